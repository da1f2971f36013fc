"""Drawing until enough records are as demanded, and choosing draws that resemble what is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from vflsynth._random import RandomStreams, derive
from vflsynth.columns.arrays import Codes, Flags, Floats
from vflsynth.columns.base import held_as, naming, not_held
from vflsynth.columns.wanted import Wanted
from vflsynth.contract import Cost, Rule, attempts, judged
from vflsynth.contract.enforcing import check_acceptance
from vflsynth.contract.given import told_missing
from vflsynth.contract.rules import in_order
from vflsynth.exceptions import RuleError
from vflsynth.models.party_model import PartyModel, sample_parties, stacked

Tables = dict[str, pd.DataFrame]

_SMALLEST_BLOCK, _LARGEST_BLOCK = 1 << 10, 1 << 16
_SPARE = 1.2
"""More draws than the acceptance so far asks for."""

_ENOUGH_TO_TELL = 200_000
"""Draws after which the search ends if `most` would not give half of what is wanted."""


class Demands:
    """What drawn records must be: as the rules of a contract say, and as is wanted of columns.

    `cost` is what the rules cost in all draws that were judged; None if there are no rules.
    """

    def __init__(
        self, rules: Sequence[Rule], wanted: Mapping[str, Mapping[Any, Wanted]] | None = None
    ) -> None:
        self.rules, self.wanted = in_order(rules), wanted or {}
        self.kept = np.zeros(len(self.rules), np.int64)
        self.n_drawn = self.n_accepted = 0

    def judge(
        self, tables: Tables, given: Callable[[Tables], Tables] | None = None
    ) -> tuple[Tables, Flags]:
        """Compute what rules compute, put in what is given, and say which records may stay.

        Row i of all parties' tables, as the halves draw them, is one record; `given` puts in known
        cells, see `filled`.
        """
        tables, kept = judged(tables, self.rules, given)
        accepted = np.asarray(kept.all(axis=0), np.bool_)
        self.kept += kept.sum(axis=1)
        self.n_drawn += len(accepted)
        self.n_accepted += int(accepted.sum())
        for name, columns in self.wanted.items():
            for label, own in columns.items():
                accepted = accepted & own.satisfied(tables[name][label])
        return tables, accepted

    @property
    def cost(self) -> Cost | None:
        """What the rules cost so far."""
        if not self.rules:
            return None
        shares = self.kept / max(1, self.n_drawn)
        titles = (rule.title for rule in self.rules)
        return Cost(self.n_drawn, self.n_accepted, dict(zip(titles, shares.tolist())))


def filled(
    tables: Mapping[str, pd.DataFrame], known: pd.DataFrame, halves: Mapping[str, PartyModel]
) -> Tables:
    """Put what is given into drawn columns, whose types stay, and restore what these tell.

    Raises ColumnKindError if a column's type cannot hold it.
    """
    found = {name: table.copy(deep=False) for name, table in tables.items()}
    for party, table in found.items():
        for label in [label for label in table.columns if label in known.columns]:
            column, there = table[label].copy(), ~np.asarray(known[label].isna())
            with naming(party, label):
                column[there] = held_as(column.dtype, known[label][there]).array
            table[label] = column
        if (prepared := halves[party].preparation) is not None:
            found[party] = prepared.settled(table, known)
    return found


def draw_until(
    draw: Callable[[int, bytes], Tables],
    judge: Callable[[Tables], tuple[Tables, Flags]],
    n: int,
    secret: bytes,
    *,
    most: int,
) -> tuple[Tables, int, int]:
    """Draw blocks of records until `n` are accepted, or `most` are drawn, or would be too few.

    `draw` takes a number of records and a secret, and returns tables by party; row i is one record
    in all of them. `judge` returns those that are kept, and a bool per record; `Demands.judge` for
    instance. Every block is drawn from a secret derived of the given one: the same one gives the
    same records. They are independent draws of the model's distribution given that they are
    accepted.

    Returns `n` records or fewer, and how many were accepted and drawn in all, also those that were
    not needed any more.
    """
    kept: list[Tables] = []
    n_accepted = n_drawn = 0
    while n_accepted < n and n_drawn < most:
        wanted = _SPARE * (n - n_accepted) * (n_drawn or 1) / max(1, n_accepted if n_drawn else 1)
        size = int(min(max(wanted, _SMALLEST_BLOCK), _LARGEST_BLOCK, max(most - n_drawn, 1)))
        tables, chosen = judge(draw(size, derive(secret, f"block {len(kept)}")))
        kept.append({name: table[chosen] for name, table in tables.items()})
        n_drawn, n_accepted = n_drawn + size, n_accepted + int(chosen.sum())
        if n_drawn >= _ENOUGH_TO_TELL and 2 * n_accepted * most < n * n_drawn:
            break
    kept = kept or [draw(0, secret)]
    joined = {name: stacked([part[name] for part in kept]).head(n) for name in kept[0]}
    return joined, n_accepted, n_drawn


def enforce(
    draw: Callable[[int, bytes], Tables], n: int, secret: bytes, rules: Sequence[Rule]
) -> tuple[Tables, Cost]:
    """Draw until `n` rows keep all rules; return tables by party, and what the rules cost.

    `draw` is that of `draw_until`; its first draw is the one that would have been made without
    rules. Rules that compute a column of others do so first, also across parties: what is looked at
    is synthetic.

    Leaving out rows draws from the model given that the rules hold. That is what is asked for; it
    is not what the records look like if a rule that they keep is often broken by the model. Raises
    RuleError, with the rule that most rows break, if fewer than one in a hundred rows keep all.
    """
    demands = Demands(rules)
    parts: list[Tables] = []
    for asked, own in attempts(n, secret):
        tables, kept = demands.judge(draw(asked, own))
        parts.append({name: table[kept] for name, table in tables.items()})
        if demands.n_accepted >= n:
            break
        check_acceptance(
            demands.n_drawn, demands.n_accepted, demands.n_drawn - demands.kept, demands.rules
        )
    assert demands.cost is not None, "there are rules"
    joined = {name: stacked([part[name] for part in parts]).head(n) for name in parts[0]}
    return joined, demands.cost


_FEWEST, _MOST = 20_000, 200_000
"""Draws of a pool."""

_WIDTH, _FURTHEST = 0.05, 3.0
"""Of the Gaussian kernel: standard deviation, in shares of the records; and in such deviations."""

_CANDIDATES = 64
"""Draws that are tried for each record where rules must hold for what is given and drawn."""

_AT_ONCE = 1 << 22
"""Entries of a table of weights."""


def nearest_rows(
    halves: Mapping[str, PartyModel],
    known: pd.DataFrame,
    n_draws: int,
    secret: bytes,
    demands: Demands,
) -> tuple[Tables, Floats]:
    """Choose for every record a draw that resembles what is known of it: tables by party.

    A missing cell is not known, and gets a value that is not missing, unless others tell that it
    is. The pool has `n_draws` per record, at least 20,000 and at most 200,000; the first of 64
    draws is taken that keeps the demands' rules with what is known. The second result
    are effective sample sizes, shape (record,): 0 where no draw resembles a record and keeps the
    rules; times the share of the 64 draws that do.
    """
    size = min(max(_FEWEST, n_draws * len(known)), _MOST)
    pool, kept = demands.judge(sample_parties(halves, size, derive(secret, "pool")))
    pool, size = {name: own[kept] for name, own in pool.items()}, int(kept.sum())
    if not size:
        raise RuleError(
            "no draw of the model keeps all rules of the contract. Fix: see rule_cost()"
        )
    n_candidates = _CANDIDATES if demands.rules else 1
    rng = RandomStreams([derive(secret, "choosing")]).numpy_generators("draws", 0)[0]
    chosen, sizes = np.zeros((len(known), n_candidates), np.intp), np.zeros(len(known))
    step = max(1, _AT_ONCE // size)
    compared = []
    for name, own in pool.items():
        for label in (label for label in own if label in known.columns):
            with naming(name, label):
                blank = told_missing(halves[name].preparation, known, label)
                try:
                    compared.append((*_comparison(own[label], known[label]), blank))
                except (TypeError, ValueError):
                    raise not_held(own[label].dtype) from None
    draws, (first, group) = rng.random((len(known), n_candidates)), _alike(compared, len(known))
    rows_of = np.split(np.argsort(group, kind="stable"), np.bincount(group).cumsum()[:-1])
    for start in range(0, len(first), step):
        rows = first[start : start + step]
        logs = np.zeros((len(rows), size), np.float32)
        for kind, drawn, given, blank in compared:
            _weigh(logs, kind, drawn, given[rows], blank[rows])
        weights = np.exp(logs, dtype=np.float64)
        total, effective = effective_sizes(weights)
        for k, sums in enumerate(weights.cumsum(1)):
            alike = rows_of[start + k]
            chosen[alike] = np.searchsorted(sums, draws[alike] * total[k]).clip(0, size - 1)
            sizes[alike] = effective[k]
    if n_candidates > 1:
        tried = {name: stacked([own.iloc[chosen.ravel()]]) for name, own in pool.items()}
        there = known.iloc[np.arange(len(known)).repeat(n_candidates)].reset_index(drop=True)
        pool, kept = demands.judge(tried, partial(filled, known=there, halves=halves))
        fits = kept.reshape(chosen.shape)
        sizes *= fits.mean(1)
        chosen = (np.arange(len(known)) * n_candidates + fits.argmax(1))[:, None]
    found = {name: stacked([own.iloc[chosen[:, 0]]]) for name, own in pool.items()}
    for name, own in found.items():  # a draw may be chosen more than once
        if (prepared := halves[name].preparation) is not None:
            fresh = prepared.replaced(len(own), derive(secret, "replacements"), name)
            for label, column in fresh.items():
                own[label] = column.array
    return found, sizes


def effective_sizes(weights: Floats) -> tuple[Floats, Floats]:
    """Return sums of weights, (record, draw), and effective sample sizes; 1 and 0 if all are 0."""
    sums = weights.sum(1)
    possible = sums > 0.0
    sums = np.where(possible, sums, 1.0)
    squares = np.where(possible, np.square(weights).sum(1), 1.0)
    return sums, np.where(possible, sums**2 / squares, 0.0)


def _alike(compared: Sequence[tuple[str, Floats, Floats, Flags]], n: int) -> tuple[Codes, Codes]:
    """Group rows of which the same is known, weighed once: each group's first, each row's group."""
    columns = [column for *_, given, blank in compared for column in (given, blank)]
    table = np.stack([np.ones(n), *columns], axis=1)
    keys = np.ascontiguousarray(table).view(f"V{table.itemsize * table.shape[1]}").ravel()
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    return first, group


def _comparison(drawn: pd.Series[Any], given: pd.Series[Any]) -> tuple[str, Floats, Floats]:
    """Return how a column is compared, and drawn and given values as numbers."""
    numbers = pd.api.types.is_numeric_dtype(drawn) and not pd.api.types.is_bool_dtype(drawn)
    times = drawn.dtype.kind in "mM"
    if numbers or times:
        ours, theirs = (
            _as_numbers(column, times=times)
            for column in (drawn, given.astype(drawn.dtype) if times else given)
        )
        if pd.Series(ours).nunique() > 20:
            ordered = np.sort(ours[~np.isnan(ours)])
            return "near", _ranks(ordered, ours), _ranks(ordered, theirs)
        return "same", ours, theirs
    values = pd.Index(drawn.dropna().unique())
    codes = [values.get_indexer(pd.Index(column)).astype(float) for column in (drawn, given)]
    codes[0][np.asarray(drawn.isna())] = np.nan
    codes[1][np.asarray(given.isna())] = np.nan
    codes[1][codes[1] < 0] = np.inf  # like no draw
    return "same", codes[0], codes[1]


def _as_numbers(column: pd.Series[Any], *, times: bool) -> Floats:
    """NaN where missing."""
    if not times:
        return np.asarray(column.astype("Float64").to_numpy(float, na_value=np.nan), np.float64)
    counts = column.astype("int64").to_numpy(np.float64)
    return np.where(np.asarray(column.isna()), np.nan, counts)


def _ranks(ordered: Floats, values: Floats) -> Floats:
    """Share of the draws below each value; one beyond all draws is nearest to the outermost."""
    below = np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")
    return np.where(np.isnan(values), np.nan, below / (2.0 * len(ordered)))


def _weigh(
    logs: npt.NDArray[np.float32], kind: str, drawn: Floats, given: Floats, blank: Flags
) -> None:
    """Add a column's log weights, in place.

    A missing cell asks for any value but a missing one, unless it has to be `blank`.
    """
    known = ~np.isnan(given)
    if kind == "same":
        fits = drawn[None] == given[:, None]
        logs[~fits & known[:, None]] = -np.inf
    else:
        with np.errstate(invalid="ignore"):
            scores = ((drawn[None] - given[:, None]) / _WIDTH).astype(np.float32)
            near = np.abs(scores) <= _FURTHEST
        term = np.where(near, -0.5 * np.where(near, scores, 0.0) ** 2, -np.inf)
        logs += np.where(known[:, None], term, 0.0)
    logs[np.ix_(~known & ~blank, np.isnan(drawn))] = -np.inf
