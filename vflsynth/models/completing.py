"""Records of which something is known: how probable they are, and what the rest may be.

Of autoregressive models, sequential importance sampling through the parties in their order: known
columns get their values and every draw the probability of these as a weight; the others are drawn
from the model. Of trees of latent attributes draws are exact, and all of a record weigh the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vflsynth._random import RandomStreams, derive
from vflsynth.columns.arrays import Flags, Floats
from vflsynth.columns.evidence import Evidence, evidence_of_rows, evidence_of_wanted, has_densities
from vflsynth.contract import Rule
from vflsynth.contract.given import Among, modelled_rows, modelled_wanted
from vflsynth.contract.steps import Copied
from vflsynth.exceptions import ConditionError, ParameterError, did_you_mean
from vflsynth.models.party_model import PartyModel, stacked
from vflsynth.models.samplers import Completion
from vflsynth.models.satisfying import Demands, effective_sizes, filled

_BLOCK = 1 << 14
"""Draws at once."""

Judge = Callable[[dict[str, pd.DataFrame]], tuple[dict[str, pd.DataFrame], Flags]]
"""Drawn tables to those that count, and a bool per draw."""


@dataclass(frozen=True)
class Draws:
    """Weighted draws of partly known records.

    `tables` have one draw per record, chosen by the weights, in which what is known is as it was
    given. `log_probability`, (record,), estimates that of what is known, a density in the unit of
    columns whose values may lie anywhere. `effective_sample_size`, (record,), is that of the draws
    of each record: their number where all weigh the same, 1 where one has it all, 0 where none is
    as it must be.
    """

    tables: dict[str, pd.DataFrame]
    log_probability: Floats
    effective_sample_size: Floats


def has_likelihood(halves: Mapping[str, PartyModel]) -> bool:
    """Whether all halves are of a model that says how probable what is known of records is."""
    return are_exact(halves) or all(half.sampler.has_likelihood for half in halves.values())


def are_exact(halves: Mapping[str, PartyModel]) -> bool:
    """Whether all draws of the model given what is known weigh the same."""
    return all(half.sampler.draws_exactly for half in halves.values())


def weigh_rows(
    halves: Mapping[str, PartyModel],
    known: pd.DataFrame,
    n_draws: int,
    secret: bytes,
    *,
    missing_is_value: bool,
    demands: Demands | None = None,
) -> Draws:
    """Draw the columns that are not known, record by record, so many times each.

    The halves are of one model that `has_likelihood`; `known` has any columns of any parties; for
    `missing_is_value` see `vflsynth.columns.evidence.evidence_of_rows`. Draws whose records do not
    keep the rules of `demands`, with what is known, get no weight. ParameterError if a column is of
    no party, or densities were asked for of a model that has none; PartyDataError if a value is
    none that the model knows.
    """
    check_columns(halves, known.columns)
    demands = demands or Demands(())
    rules = demands.rules
    if missing_is_value:
        _check_as_modelled(halves, known)
    if missing_is_value and not all(has_densities(half.transformer) for half in halves.values()):
        raise ParameterError(
            "a column of this model is of a kind that does not say which encoded numbers its "
            "values have: there are no densities. Fix: use this package's own kinds of columns"
        )

    def evidence(name: str, rows: slice) -> Evidence:
        half = halves[name]
        among: Among = {}
        part = known[[column for column in known if column in half.domains]].iloc[rows]
        if half.preparation is not None:
            part, among = modelled_rows(
                half.preparation, part, computed_by(rules), name, missing_is_value=missing_is_value
            )
        return evidence_of_rows(
            half.transformer, part, missing_is_value=missing_is_value, among=among
        )

    def judge(rows: slice) -> Judge:
        part = known.iloc[rows]
        repeated = part.iloc[np.arange(len(part)).repeat(n_draws)].reset_index(drop=True)
        return partial(demands.judge, given=partial(filled, known=repeated, halves=halves))

    return _in_blocks(halves, len(known), n_draws, secret, evidence, judge if rules else None)


def weigh_wanted(
    halves: Mapping[str, PartyModel], demands: Demands, n: int, n_draws: int, secret: bytes
) -> Draws:
    """Draw n records whose columns are as they are wanted, and keep the rules, several times each.

    The halves are those of one model that `has_likelihood`.
    """
    found = _wanted(halves, demands)
    return _in_blocks(
        halves, n, n_draws, secret, lambda name, rows: found[name], lambda rows: demands.judge
    )


def draws_as_wanted(
    halves: Mapping[str, PartyModel], demands: Demands
) -> tuple[Callable[[int, bytes], dict[str, pd.DataFrame]], float]:
    """Make what draws records whose encoded columns may be what is wanted.

    The halves are those of one model whose draws `are_exact`. Returns a function from a number of
    records and a secret to tables, and the probability with which a record of the model is so.
    """
    found = _wanted(halves, demands)
    _, log_probability = _drawn_given(halves, Completion(found, 0, 1, b"", 0))

    def draw(n: int, secret: bytes) -> dict[str, pd.DataFrame]:
        rows, _ = _drawn_given(halves, Completion(found, n, 1, secret, 0))
        return {name: _decoded(halves[name], own, secret) for name, own in rows.items()}

    return draw, log_probability.exp().item()


def _wanted(halves: Mapping[str, PartyModel], demands: Demands) -> dict[str, Evidence]:
    """Say what encoded columns can be where decoded ones are as they are wanted."""
    found = {}
    for name, half in halves.items():
        wanted = demands.wanted.get(name, {})
        if half.preparation is not None:
            wanted = modelled_wanted(half.preparation, wanted, computed_by(demands.rules))
        found[name] = evidence_of_wanted(half.transformer, wanted)
    return found


def computed_by(rules: Iterable[Rule]) -> set[Hashable]:
    """Return the columns that rules compute."""
    return {rule.repaired_column for rule in rules if rule.repaired_column is not None}


def check_columns(halves: Mapping[str, PartyModel], columns: Iterable[Hashable]) -> None:
    """Raise ConditionError for columns that no party publishes as they are modelled."""
    known = [c for half in halves.values() for c in half.domains]
    strange = [c for c in columns if c not in known]
    if not strange:
        return
    prepared = (half.preparation for half in halves.values() if half.preparation is not None)
    if any(strange[0] in own.columns for own in prepared):
        problem, fix = "it comes out as fresh values, whatever is asked of it", "leave it out"
    else:
        problem = f"no party has columns {strange}{did_you_mean(strange[0], known)}"
        fix = f"give some of {known}; a key is the index, or on the command line --on"
    raise ConditionError(problem, fix=fix, column=strange[0])


def _check_as_modelled(halves: Mapping[str, PartyModel], known: pd.DataFrame) -> None:
    """Refuse to say how probable records are under a contract that changes what is drawn.

    And where columns are missing that others are often a copy of.
    """
    for name, half in halves.items():
        if (prepared := half.preparation) is None:
            continue
        if prepared.replacements or prepared.titles:
            raise ParameterError(
                f"party {name!r}: rows that are drawn under a contract with rules or replaced "
                "columns have no probability that could be computed: rows are left out and columns "
                "computed after drawing. Fix: fit without the contract"
            )
        if unlike := [step.column for step in prepared.steps if not step.has_density]:
            raise ParameterError(
                f"party {name!r}: column {unlike[0]!r} has a value exactly where another column "
                "has one, and is modelled without it: records have no probability that could be "
                "computed. Fix: fit with structure='ignore'"
            )
        for step in prepared.steps:
            if isinstance(step, Copied) and step.column in known and step.by[0] not in known:
                raise ParameterError(
                    f"party {name!r}: column {step.column!r} is modelled as a copy of "
                    f"{step.by[0]!r} where they are equal, which is not among the columns. Fix: "
                    "give it, too, or fit with structure='ignore'"
                )


def _in_blocks(
    halves: Mapping[str, PartyModel],
    n: int,
    n_draws: int,
    secret: bytes,
    evidence: Callable[[str, slice], Evidence],
    judge: Callable[[slice], Judge] | None,
) -> Draws:
    # Draws of a tree weigh the same: where none can be refused, one is as good as all.
    needed = 1 if judge is None and are_exact(halves) else n_draws
    per_block = max(1, _BLOCK // needed)
    blocks = []
    for number, start in enumerate(range(0, max(1, n), per_block)):
        rows = slice(start, min(n, start + per_block))
        facts = {name: evidence(name, rows) for name in halves}
        asked = Completion(facts, rows.stop - start, needed, secret, number)
        blocks.append(_block(halves, asked, None if judge is None else judge(rows)))
    return Draws(
        {name: stacked([block.tables[name] for block in blocks]) for name in halves},
        np.concatenate([block.log_probability for block in blocks]),
        np.concatenate([block.effective_sample_size for block in blocks]) * (n_draws // needed),
    )


def _block(halves: Mapping[str, PartyModel], asked: Completion, judge: Judge | None) -> Draws:
    drawn, logs = _drawn_given(halves, asked)
    n_records, n_draws = asked.n_records, asked.n_draws
    weights = logs.expand(n_records, n_draws).numpy()
    widths = sum(own.log_width for own in asked.facts.values())
    own = derive(asked.secret, f"replacements {asked.number}")
    tables: dict[str, pd.DataFrame] = {}
    if judge is not None:
        tables = {name: _decoded(halves[name], rows, own) for name, rows in drawn.items()}
        tables, accepted = judge(tables)
        weights = np.where(accepted.reshape(weights.shape), weights, -np.inf)
    largest = weights.max(1, keepdims=True)
    shares = np.exp(weights - np.where(largest > -np.inf, largest, 0.0))
    sums, effective = effective_sizes(shares)
    streams = RandomStreams([derive(asked.secret, "choosing")])
    (generator,) = streams.numpy_generators("draws", asked.number)
    places = generator.random(n_records)
    chosen = (shares.cumsum(1) / sums[:, None] < places[:, None]).sum(1).clip(0, n_draws - 1)
    rows_of = np.arange(n_records) * n_draws + chosen
    if judge is not None:
        tables = {name: table.iloc[rows_of] for name, table in tables.items()}
    else:
        kept = torch.tensor(rows_of)
        tables = {
            name: _decoded(halves[name], rows[kept.to(rows.device)], own)
            for name, rows in drawn.items()
        }
    return Draws(tables, largest[:, 0] + np.log(sums / n_draws) - widths, effective)


def _decoded(half: PartyModel, rows: Tensor, secret: bytes) -> pd.DataFrame:
    table = half.transformer.inverse_transform(rows.cpu().numpy(), generated=True)
    if half.preparation is None:
        return table
    return half.preparation.restore(table, secret, half.name)


def _drawn_given(
    halves: Mapping[str, PartyModel], asked: Completion
) -> tuple[dict[str, Tensor], Tensor]:
    samplers = {name: half.sampler for name, half in halves.items()}
    return type(next(iter(samplers.values()))).draw_jointly(samplers, asked)
