"""Columns one by one, and small groups of discrete columns: distances between distributions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb
from typing import Any, Literal, NamedTuple, Unpack

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from vflsynth.evaluation.columns import CategoricalColumn, Column, Floats, Integers, present
from vflsynth.evaluation.intervals import (
    GROUPS,
    Groups,
    jackknife_interval,
    jackknifed,
    random_groups,
)
from vflsynth.evaluation.metric import Metric, MetricResult, Reading
from vflsynth.evaluation.tables import Compared, Tables
from vflsynth.exceptions import ParameterError

MARGINAL_DISTANCE = Metric(
    name="marginal_distance",
    title="Marginal distance",
    direction="lower",
    measures="How differently the values of a single column are distributed, averaged over the "
    "columns: the largest gap between two cumulative distributions (Kolmogorov-Smirnov), or the "
    "share of rows with another label (total variation).",
    naive="values drawn evenly over each column's range or labels",
)
AVERAGE_VARIATION_DISTANCE = Metric(
    name="average_variation_distance",
    title="Average variation distance of discrete columns (AVD)",
    direction="lower",
    measures="The share of rows whose combination of labels would have to change for the two "
    "tables to agree, averaged over groups of discrete columns.",
    naive="labels drawn independently of each other (evenly, for single columns)",
)

BINS = 256
"""Quantile bins in which intervals and baselines of numeric columns are computed."""

_MOST_COUNTED = 1 << 22  # possible cells up to which they are counted, not sorted

MOST_GROUPS_OF_COLUMNS = 1000
"""Beyond this, AVD is averaged over a random choice of groups of columns."""


def marginal_distance(
    real: pd.DataFrame, synthetic: pd.DataFrame, **known: Unpack[Compared]
) -> MetricResult:
    """Compare the distribution of every column.

    Parameters
    ----------
    real, synthetic, **known
        As in `evaluate`; `parties` adds the owner to every part.

    Returns
    -------
    MetricResult
        The mean distance. ``parts`` has one row per column: its `measure` (``"ks"`` or ``"tv"``),
        the distance, and the shares of missing values.

    Notes
    -----
    Kolmogorov-Smirnov compares the values that are present; a difference in the share of missing
    values counts instead where it is larger. For labels a missing value is one more label.

    Examples
    --------
    >>> import pandas as pd
    >>> real = pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0]})
    >>> float(marginal_distance(real, real + 2))
    0.5
    """
    return single_columns(Tables(real, synthetic, **known))


def single_columns(tables: Tables) -> MetricResult:
    """Compute `marginal_distance`, which see."""
    real, synthetic, owner = tables.real, tables.synthetic, tables.owner
    encoder, rng = tables.encoder, tables.generator(MARGINAL_DISTANCE.name)
    groups = [random_groups(len(table), rng) for table in (real, synthetic)]
    parts = []
    for column in encoder.columns:
        binned = _Binned.of(column, (real, synthetic), groups)
        distance, naive = _exact_distances(column, real, synthetic, binned)
        row: dict[str, object] = {"column": column.name}
        row |= {} if owner is None else {"party": owner[column.name]}
        missing = (
            ("missing_real", float(real[column.name].isna().mean())),
            ("missing_synthetic", float(synthetic[column.name].isna().mean())),
        )
        parts.append(_Part(row | {"measure": binned.measure}, distance, binned, naive, missing))
    return _mean_result(MARGINAL_DISTANCE, parts, encoder.notes)


def average_variation_distance(
    real: pd.DataFrame, synthetic: pd.DataFrame, *, ways: int = 2, **known: Unpack[Compared]
) -> MetricResult:
    """Compare the joint distribution of every group of `ways` discrete columns.

    Parameters
    ----------
    real, synthetic, **known
        As in `evaluate`. Numbers count only if they are named in `categorical`.
    ways : int, default 2
        Size of the groups.

    Returns
    -------
    MetricResult
        ``parts`` has one row per group of columns, the worst first.

    Raises
    ------
    ParameterError
        If `ways` is below 1.
    PartyDataError
        If the tables cannot be compared.

    Notes
    -----
    Source: named in VFLGAN §5.1.3, after Tang et al. (2021) and Jiang et al. (2023): half the L1
    distance between k-way marginals.
    """
    if ways < 1:
        raise ParameterError(f"ways must be at least 1, not {ways}")
    return discrete_columns(Tables(real, synthetic, **known), ways)


def discrete_columns(tables: Tables, ways: int = 2) -> MetricResult:
    """Compute `average_variation_distance`, which see."""
    encoder, owner, discrete = tables.encoder, tables.owner, tables.encoder.discrete
    if len(discrete) < ways:
        found = "no discrete column" if not discrete else f"{len(discrete)} discrete column(s)"
        return AVERAGE_VARIATION_DISTANCE.not_applicable(
            f"the table has {found}, and {ways} are needed"
        )
    rng = tables.generator(AVERAGE_VARIATION_DISTANCE.name)
    both, n_real = (tables.real, tables.synthetic), len(tables.real)
    groups = [random_groups(len(table), rng) for table in both]
    codes = [
        np.concatenate([column.codes(table).astype(np.uint8) for table in both])
        for column in discrete
    ]
    chosen, notes = _groups_of_columns(len(discrete), ways, rng)
    parts = []
    for group in chosen:
        joint = np.zeros(sum(map(len, both)), dtype=np.int64)
        for i in group:
            # Re-numbered after every factor, so that no product of widths can overflow.
            joint = _numbered(joint * discrete[i].width + codes[i])
        n_cells = int(joint.max()) + 1
        binned = _Binned.counted("tv", (joint[:n_real], joint[n_real:]), n_cells, groups)
        of_real = [codes[i][:n_real] for i in group]
        naive = _independent_distance(of_real, joint[:n_real], n_cells)
        names = [discrete[i].name for i in group]
        row: dict[str, object] = {"columns": ", ".join(str(name) for name in names)}
        if owner is not None:
            same = len({owner[name] for name in names}) == 1
            row |= {"scope": "within" if same else "across"}
        parts.append(_Part(row, binned.distance(), binned, naive))
    result = _mean_result(AVERAGE_VARIATION_DISTANCE, parts, encoder.notes + notes)
    worst_first = result.parts.sort_values("value", ascending=False, kind="stable")
    return replace(result, parts=worst_first.reset_index(drop=True))


def _numbered(values: Integers) -> Integers:
    """Return the place of each value among those that occur, as ``np.unique`` does by sorting."""
    if values.max(initial=0) > _MOST_COUNTED:
        return np.unique(values, return_inverse=True)[1]
    return (np.cumsum(np.bincount(values) > 0) - 1)[values]


def ks_distance(real: Floats, synthetic: Floats) -> float:
    """Return the largest gap between the distribution functions of two samples without NaN.

    0 if both are empty, 1 if only one is.
    """
    if not len(real) or not len(synthetic):
        return float(len(real) != len(synthetic))
    real, synthetic = np.sort(real), np.sort(synthetic)
    at = np.concatenate([real, synthetic])
    below = np.searchsorted(real, at, side="right") / len(real)
    others_below = np.searchsorted(synthetic, at, side="right") / len(synthetic)
    return float(np.abs(below - others_below).max())


@dataclass(frozen=True)
class _Binned:
    """Counts of both tables in the same bins, by random group of rows; the last is "missing"."""

    measure: Literal["ks", "tv"]
    real: Floats  # (group, bin)
    synthetic: Floats  # (group, bin)

    @classmethod
    def counted(
        cls,
        measure: Literal["ks", "tv"],
        codes: Sequence[Integers],
        n_bins: int,
        groups: Sequence[Groups | None],
    ) -> _Binned:
        """Count codes of both tables' rows."""
        real, synthetic = map(_grouped_counts, codes, (n_bins, n_bins), groups)
        return cls(measure, real, synthetic)

    @classmethod
    def of(
        cls, column: Column, tables: Sequence[pd.DataFrame], groups: Sequence[Groups | None]
    ) -> _Binned:
        if isinstance(column, CategoricalColumn):
            codes = [column.codes(table) for table in tables]
            return cls.counted("tv", codes, column.width, groups)
        values = [column.values(table) for table in tables]
        known = present(np.concatenate(values))
        inner = np.linspace(0.0, 1.0, BINS + 1)[1:-1]
        edges = np.unique(np.quantile(known, inner, method="lower")) if len(known) else inner
        missing = len(edges) + 1
        codes = [
            np.where(np.isnan(v), missing, np.searchsorted(edges, v, side="left")) for v in values
        ]
        return cls.counted("ks", codes, missing + 1, groups)

    def _between(self, first: Floats, second: Floats) -> Floats:
        """Return the distance of counts, shape (..., bin) to (...)."""
        shares, others = (
            counts / np.maximum(counts.sum(axis=-1, keepdims=True), 1.0)
            for counts in (first, second)
        )
        if self.measure == "tv":
            return np.asarray(np.abs(shares - others).sum(axis=-1) / 2)
        missing = np.abs(shares[..., -1] - others[..., -1])
        below, others_below = (
            np.cumsum(part[..., :-1], axis=-1)
            / np.maximum(part[..., :-1].sum(axis=-1, keepdims=True), 1e-300)
            for part in (shares, others)
        )
        return np.asarray(np.maximum(np.abs(below - others_below).max(axis=-1), missing))

    def distance(self) -> float:
        """Distance of the two tables in these bins."""
        return float(self._between(self.real.sum(axis=0), self.synthetic.sum(axis=0)))

    def jackknife(self) -> tuple[Floats, Floats] | None:
        """Distances with one group of real, or of synthetic, rows left out; shape (group,) each."""
        if len(self.real) != GROUPS or len(self.synthetic) != GROUPS:
            return None
        real, synthetic = self.real.sum(axis=0), self.synthetic.sum(axis=0)
        return (
            self._between(real - self.real, synthetic),
            self._between(real, synthetic - self.synthetic),
        )

    def halves(self) -> float | None:
        """Mean distance between random halves of the real table."""
        if len(self.real) != GROUPS:
            return None
        half = GROUPS // 2
        first = np.stack([np.roll(self.real, by, axis=0)[:half].sum(axis=0) for by in range(half)])
        return float(self._between(first, self.real.sum(axis=0) - first).mean())


def _grouped_counts(codes: Integers, n_bins: int, groups: Groups | None) -> Floats:
    if groups is None:
        return np.bincount(codes, minlength=n_bins)[None].astype(np.float64)
    flat = np.bincount(groups * np.int64(n_bins) + codes, minlength=GROUPS * n_bins)
    return flat.reshape(GROUPS, n_bins).astype(np.float64)


def _exact_distances(
    column: Column, real: pd.DataFrame, synthetic: pd.DataFrame, binned: _Binned
) -> tuple[float, float]:
    """Distances of the synthetic column, and of one drawn evenly over the real range or labels."""
    if isinstance(column, CategoricalColumn):
        return binned.distance(), _unevenness(binned.real.sum(axis=0) / binned.real.sum())
    values, others = column.values(real), column.values(synthetic)
    missing, others_missing = np.isnan(values), np.isnan(others)
    gap = abs(float(missing.mean()) - float(others_missing.mean()))
    present = np.sort(values[~missing])
    distance = max(ks_distance(present, others[~others_missing]), gap)
    if not len(present) or present[0] == present[-1]:
        return distance, 0.0
    even = (present / 2 - present[0] / 2) / (present[-1] / 2 - present[0] / 2)
    steps = np.arange(len(present) + 1) / len(present)
    return distance, float(max(np.abs(steps[1:] - even).max(), np.abs(steps[:-1] - even).max()))


def _unevenness(shares: Floats) -> float:
    """Distance of a distribution to the even one over the labels that occur."""
    seen = shares > 0
    return float(np.abs(shares[seen] - 1.0 / seen.sum()).sum() / 2)


def _independent_distance(codes: Sequence[NDArray[Any]], joint: Integers, n_cells: int) -> float:
    """Distance of a joint distribution to the product of its marginals (even, for one column)."""
    shares = np.bincount(joint, minlength=n_cells) / len(joint)
    if len(codes) == 1:
        return _unevenness(shares)
    seen = shares > 0
    product = np.ones(n_cells)
    for column in codes:
        of_row = (np.bincount(column) / len(column))[column]
        of_cell = np.zeros(n_cells)
        of_cell[joint] = of_row  # all rows of a cell agree
        product *= of_cell
    outside = 1.0 - product[seen].sum()  # combinations that no real row has
    return float((np.abs(shares[seen] - product[seen]).sum() + max(0.0, outside)) / 2)


def _groups_of_columns(
    n_columns: int, ways: int, rng: np.random.Generator
) -> tuple[list[tuple[int, ...]], tuple[str, ...]]:
    total = comb(n_columns, ways)
    if total <= MOST_GROUPS_OF_COLUMNS:
        return list(combinations(range(n_columns), ways)), ()
    chosen: set[tuple[int, ...]] = set()
    while len(chosen) < MOST_GROUPS_OF_COLUMNS:
        chosen.add(tuple(sorted(rng.choice(n_columns, ways, replace=False).tolist())))
    note = f"a random {MOST_GROUPS_OF_COLUMNS} of {total} groups of columns were compared"
    return sorted(chosen), (note,)


class _Part(NamedTuple):
    """One column, or group of columns: its distance and marks, and what its row shows besides."""

    names: dict[str, object]
    distance: float
    binned: _Binned
    naive: float
    more: tuple[tuple[str, object], ...] = ()


def _mean_result(metric: Metric, parts: list[_Part], notes: tuple[str, ...]) -> MetricResult:
    """Average over columns; the interval is that of the average, columns moving together."""
    value = float(np.mean([part.distance for part in parts]))
    halves = [part.binned.halves() for part in parts]
    jackknives = [part.binned.jackknife() for part in parts]
    interval = baseline = None
    if known := [each for each in jackknives if each is not None]:
        replicates = [np.mean(each, axis=0) for each in zip(*known)]
        interval = jackknife_interval(value, replicates, metric.minimum, metric.maximum)
    if baselines := [half for half in halves if half is not None]:
        baseline = float(np.mean(baselines))
    rows = [
        part.names
        | {"value": part.distance, "baseline": half, "naive": part.naive}
        | dict(part.more)
        for part, half in zip(parts, halves)
    ]
    naive = float(np.mean([part.naive for part in parts]))
    reading = Reading(value, interval, baseline, naive)
    return jackknifed(metric, reading, pd.DataFrame(rows), notes)
