"""Records that are drawn under conditions: whole tables of them, or one partly filled row each.

Everything here reads models and what the caller gives, never a party's records: under privacy it is
post-processing. Values that the caller gives come out as they were given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from vflsynth._random import derive
from vflsynth.codec import as_frame, check_names, family_of
from vflsynth.columns.arrays import Floats, read_floats
from vflsynth.columns.base import naming
from vflsynth.columns.wanted import Wanted, wanted_of
from vflsynth.contract import Cost, Rule, all_rules
from vflsynth.contract.given import is_implied
from vflsynth.exceptions import (
    ConditionError,
    ParameterError,
    RuleError,
    UnseenValueError,
    warn_user,
)
from vflsynth.frames.party_frames import check_is_frame
from vflsynth.frames.typed import like_model
from vflsynth.models.completing import (
    are_exact,
    check_columns,
    draws_as_wanted,
    has_likelihood,
    weigh_rows,
    weigh_wanted,
)
from vflsynth.models.party_model import PartyModel, sample_parties
from vflsynth.models.satisfying import Demands, Tables, draw_until, filled, nearest_rows

_WORTH_REJECTING, _MOST_BEFORE = 32, 1024
"""Draws per record, and more, beyond which an autoregressive model weighs draws instead."""

_MOST_DRAWS, _MOST_PER_RECORD = 200_000, 500
_WEIGHED, _FEW = 64, 2.0
"""Draws per record that are weighed, and effective ones below which there was hardly a choice."""


def sample_given(
    halves: Mapping[str, PartyModel],
    n: int,
    conditions: Mapping[Any, Any] | pd.DataFrame,
    secret: bytes,
) -> tuple[Tables, Cost | None]:
    """Sample records under conditions: tables by party, and what the contract's rules cost.

    Conditions are as of `vflsynth.columns.wanted.wanted_of`, or a frame of n rows for
    `complete_rows`. Where draws were thrown away, which is exact, tables have the attribute
    ``acceptance_rate``; where draws were weighed, ``effective_sample_size``. Raises ConditionError
    if no party has a column, its values cannot be so, or too few draws are.
    """
    conditions = as_frame(conditions)
    if isinstance(conditions, pd.DataFrame):
        if len(conditions) != n:
            raise ParameterError(
                f"n is {n}, and the frame of conditions has {len(conditions)} rows. Fix: pass "
                "n=len(conditions), and repeat rows to get several records of each"
            )
        return complete_rows(halves, conditions, _WEIGHED, secret)
    demands = Demands(contract_rules(halves), _checked(halves, conditions))
    draw: Callable[[int, bytes], Tables] = partial(sample_parties, halves)
    weighs, probability = has_likelihood(halves), 1.0
    if are_exact(halves):
        draw, probability = draws_as_wanted(halves, demands)
        weighs = False
    most = _WORTH_REJECTING * n + _MOST_BEFORE if weighs else _MOST_PER_RECORD * n + _MOST_DRAWS
    rejection = derive(secret, "rejection")
    tables, n_accepted, n_drawn = draw_until(draw, demands.judge, n, rejection, most=most)
    if n_accepted >= n:
        rate = n_accepted / max(1, n_drawn) * probability
        return _with_attrs(tables, acceptance_rate=rate), demands.cost
    if not weighs:
        raise _too_rare(halves, demands, n_accepted, n_drawn, n, secret)
    drawn = weigh_wanted(halves, demands, n, _WEIGHED, derive(secret, "weighing"))
    sizes = drawn.effective_sample_size
    if (sizes == 0.0).any():
        raise _too_rare(halves, demands, int((sizes > 0.0).sum()), n * _WEIGHED, n, secret)
    _warn_of_few(sizes)
    return _with_attrs(drawn.tables, effective_sample_size=sizes.tolist()), demands.cost


def complete_rows(
    halves: Mapping[str, PartyModel], known: pd.DataFrame, n_draws: int, secret: bytes
) -> tuple[Tables, Cost | None]:
    """Draw what a table lacks, as `sample_given`: columns that are not there, and missing cells.

    A missing cell gets a value that is not missing, unless others tell that it is; what is known
    comes out as it was given, in the model's types. There are `n_draws` per record; of models
    without a likelihood all records choose among the same. Raises ConditionError if no party has a
    column or no draw resembles a record, RuleError if what is given breaks a rule, PartyDataError
    for values that the model does not know.
    """
    known = typed_rows(halves, known)
    check_columns(halves, known.columns)
    demands, known = Demands(contract_rules(halves)), known.reset_index(drop=True)
    _check_given(demands.rules, known)
    prepared = (half.preparation for half in halves.values())
    if has_likelihood(halves) and all(p is None or is_implied(p, known) for p in prepared):
        drawn = weigh_rows(halves, known, n_draws, secret, missing_is_value=False, demands=demands)
        tables, sizes = drawn.tables, drawn.effective_sample_size
    else:
        tables, sizes = nearest_rows(halves, known, n_draws, secret, demands)
    if (lost := np.flatnonzero(sizes == 0.0)).size:
        _check_labels(halves, known.iloc[lost])
        keeps = ", and keeps all rules of the contract" if demands.rules else ""
        raise ConditionError(
            f"no draw of the model goes with what is given of {lost.size} records{keeps}",
            fix="leave the rarest of the given columns out, or raise n_draws (--draws)",
            rows=lost[:5].tolist(),
        )
    _warn_of_few(sizes)
    tables = filled(tables, known, halves)
    return _with_attrs(tables, effective_sample_size=sizes.tolist()), demands.cost


def typed_rows(halves: Mapping[str, PartyModel], known: pd.DataFrame) -> pd.DataFrame:
    """Read what is given in the model's types; PartyDataError if it is no table, or has others."""
    known = as_frame(known)
    check_is_frame(known, None)
    check_names([*known.columns], None)
    for name, half in halves.items():
        for label, domain in half.domains.items():
            if label in known:
                with naming(name, label):
                    known = like_model(known, {label: domain.dtype})
                    if family_of(known[label].dtype) == "number":
                        read_floats(known[label])  # infinity is an error
    return known


def contract_rules(halves: Mapping[str, PartyModel]) -> tuple[Rule, ...]:
    """Return the rules that hold in every sampled row, with what was learned of records."""
    return all_rules(half.preparation for half in halves.values() if half.preparation is not None)


def _check_given(rules: Iterable[Rule], known: pd.DataFrame) -> None:
    """Refuse rows that break a rule by what is known of them: nothing that is drawn could mend."""
    for rule in rules:
        if not set(rule.columns) <= set(known.columns):
            continue
        rows = known[list(rule.columns)].dropna()
        if (broken := np.flatnonzero(~np.asarray(rule.keeps(rows), np.bool_))).size:
            raise RuleError(
                f"what is given of {broken.size} records breaks the rule {rule.title!r}. Fix: "
                f"correct it, for example in rows {rows.index[broken[:5]].tolist()}"
            )


def _check_labels(halves: Mapping[str, PartyModel], known: pd.DataFrame) -> None:
    """Name the column in which rows that no draw resembles have what the model never draws."""
    for party, half in halves.items():
        for label, domain in half.domains.items():
            if domain.labels is None or label not in known:
                continue
            column = known[label]
            if (unseen := np.asarray(column.notna() & ~column.isin(list(domain.labels)))).any():
                raise UnseenValueError(
                    f"{unseen.sum()} rows hold values that the model does not know",
                    fix="leave these cells empty, or give values as sampled records have them",
                    party=party,
                    column=label,
                    rows=known.index[unseen][:5].tolist(),
                )


def _checked(
    halves: Mapping[str, PartyModel], conditions: Mapping[Any, Any]
) -> dict[str, dict[Any, Wanted]]:
    if not isinstance(conditions, Mapping):
        raise ParameterError(
            "conditions must map columns to values, lists of values or Range(low, high), or be a "
            f"DataFrame of partly filled rows, got {type(conditions).__name__}"
        )
    check_columns(halves, conditions)
    return {
        name: {
            label: wanted_of(domain, conditions[label], column=label, party=name)
            for label, domain in half.domains.items()
            if label in conditions
        }
        for name, half in halves.items()
    }


def _too_rare(
    halves: Mapping[str, PartyModel],
    demands: Demands,
    n_found: int,
    n_drawn: int,
    n: int,
    secret: bytes,
) -> ConditionError | RuleError:
    """Name the condition that the fewest drawn records satisfy, or the rule that they break."""
    looked_at = Demands(demands.rules)
    tables, _ = looked_at.judge(sample_parties(halves, 10_000, derive(secret, "rare")))
    shares = {
        (name, label): float(own.satisfied(tables[name][label]).mean())
        for name, columns in demands.wanted.items()
        for label, own in columns.items()
    }
    cost, of_rules = looked_at.cost, ""
    if cost is not None and cost.acceptance <= min(shares.values(), default=1.0):
        return RuleError(
            f"{n_found} of {n_drawn:,} draws were as they were asked for and keep all rules of the "
            f"contract, and {n} are needed. Of draws that nothing was asked of: {cost}. Fix: ask "
            "for less, or write the rule that most break so that it can be computed"
        )
    if cost is not None:
        of_rules = f", and {cost.acceptance:.2%} keep all rules of the contract"
    (party, column), share = min(shares.items(), key=lambda item: item[1])
    return ConditionError(
        f"{n_found} of {n_drawn:,} draws were as they were asked for, and {n} are needed; "
        f"{share:.2%} of the model's records satisfy the condition on this column{of_rules}",
        fix="give a wider range or more values, or leave the column out",
        party=party,
        column=column,
    )


def _warn_of_few(sizes: Floats) -> None:
    if (few := int((sizes < _FEW).sum())) and few > len(sizes) // 20:
        warn_user(
            f"{few} of {len(sizes)} records had fewer than {_FEW:.0f} effective draws to choose "
            "from: they are hardly distributed as the model has them. Raise n_draws, or ask for "
            "less",
            RuntimeWarning,
        )


def _with_attrs(tables: Mapping[str, pd.DataFrame], **attrs: Any) -> Tables:
    found = {name: table.copy(deep=False) for name, table in tables.items()}
    for table in found.values():
        table.attrs.update(attrs)
    return found
