"""Completing records by any sampler: draws that resemble what is known of them.

Importance resampling of one pool of draws: categories and missing values must agree, and numbers
have weights that fall with their distance in ranks. Approximate by the width of that kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from vflsynth._random import RandomStreams, derive
from vflsynth.columns.base import naming, not_held
from vflsynth.exceptions import RuleError
from vflsynth.models.party_model import PartyModel, sample_parties
from vflsynth.models.satisfying import Demands, Tables, with_fresh_index

Floats = npt.NDArray[np.float64]

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

    A missing cell is not known, and gets a value that is not missing. The pool has `n_draws` per
    record, at least 20,000 and at most 200,000; the first of 64 draws is taken that keeps the
    demands' rules with what is known. The second result are effective sample sizes, shape
    (record,): 0 where no draw resembles a record and keeps the rules; times the share of the 64
    draws that do.
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
                try:
                    compared.append(_comparison(own[label], known[label]))
                except (TypeError, ValueError):
                    raise not_held(own[label].dtype) from None
    for start in range(0, len(known), step):
        rows = slice(start, start + step)
        logs = np.zeros((len(known.iloc[rows]), size), np.float32)
        for kind, drawn, given in compared:
            _weigh(logs, kind, drawn, given[rows])
        weights = np.exp(logs, dtype=np.float64)
        total = weights.sum(1)
        there = total > 0.0
        safe = np.where(there, total, 1.0)
        places = rng.random((len(weights), n_candidates)) * safe[:, None]
        for row, (sums, wanted) in enumerate(zip(weights.cumsum(1), places), start=start):
            chosen[row] = np.searchsorted(sums, wanted).clip(0, size - 1)
        squares = np.where(there, np.square(weights).sum(1), 1.0)
        sizes[rows] = np.where(there, total**2 / squares, 0.0)
    if n_candidates > 1:
        tried = {name: with_fresh_index(own.iloc[chosen.ravel()]) for name, own in pool.items()}
        there = known.iloc[np.arange(len(known)).repeat(n_candidates)].reset_index(drop=True)
        pool, kept = demands.judge(tried, there)
        fits = kept.reshape(chosen.shape)
        sizes *= fits.mean(1)
        chosen = (np.arange(len(known)) * n_candidates + fits.argmax(1))[:, None]
    return {name: with_fresh_index(own.iloc[chosen[:, 0]]) for name, own in pool.items()}, sizes


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
    """Share of the draws below each value."""
    below = np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")
    outside = (values < ordered[0]) | (values > ordered[-1])
    found = np.where(outside, np.inf, below / (2.0 * len(ordered)))
    return np.where(np.isnan(values), np.nan, found)


def _weigh(logs: npt.NDArray[np.float32], kind: str, drawn: Floats, given: Floats) -> None:
    """Add a column's log weights, in place; a missing cell asks for any value but a missing one."""
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
    logs[np.ix_(~known, np.isnan(drawn))] = -np.inf
