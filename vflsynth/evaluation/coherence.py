"""Rows that do not hold together: they have two common values that real rows never have both."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Unpack

import numpy as np
import numpy.typing as npt
import pandas as pd

from vflsynth.evaluation.columns import CategoricalColumn, Column, Floats, Integers, present
from vflsynth.evaluation.intervals import sample_rows, wilson
from vflsynth.evaluation.metric import Metric, MetricResult
from vflsynth.evaluation.tables import Compared, Tables
from vflsynth.reporting import number_text

INCOHERENT = Metric(
    name="incoherent_rows",
    title="Rows whose values do not go together",
    direction="lower",
    measures="The share of synthetic rows that have two common values which real rows hardly ever "
    "have together, such as a husband who is female.",
    baseline="real rows, each judged by all others",
    naive="columns that have nothing to do with each other",
)

LEAST_EXPECTED = 20
"""Real rows that would have both values if their columns were independent, at least.

Then one row or none is found once in 20 million pairs of values by chance.
"""

Excluded = Mapping[tuple[int, int], npt.NDArray[np.bool_]]
"""Pairs of columns with cells that exclude each other, shape (level, level)."""

_ALL_TOGETHER = "all common values of the real table go together: no row is incoherent"
_EXCEPTIONS = 1 / 20  # of the expected rows: real tables have errors
_MOST_ROWS = 20_000  # of each table
_BINS, _MOST_VALUES = 10, 20  # numbers with more values are binned by their quantiles


def incoherent_rows(
    real: pd.DataFrame, synthetic: pd.DataFrame, **known: Unpack[Compared]
) -> MetricResult:
    """Count synthetic rows with two values that exclude each other in the real table.

    Two values of different columns exclude each other if at least `LEAST_EXPECTED` real rows would
    have both, were the columns independent, and at most one in twenty of these rows is there.
    Numbers with more than 20 values count by tenths of the real rows. No rule needs to be known:
    whoever knows rules finds `rule_violations` sharper. Of larger tables, a random 20,000 rows are
    looked at.

    Parameters
    ----------
    real, synthetic, **known
        As in `evaluate`.

    Returns
    -------
    MetricResult
        ``parts`` has the columns, the worst first, with the share of rows in which a column is one
        of the two, and the values that meet most often. Where all common values of the real table
        go together, the value is 0 whatever the synthetic rows are, and so is the naive mark.

    Examples
    --------
    >>> import pandas as pd
    >>> real = pd.DataFrame({"who": ["husband", "wife"] * 100, "sex": ["male", "female"] * 100})
    >>> synthetic = pd.DataFrame({"who": ["husband"] * 4, "sex": ["male"] * 3 + ["female"]})
    >>> float(incoherent_rows(real, synthetic))
    0.25
    """
    return whole_rows(Tables(real, synthetic, **known))


def whole_rows(tables: Tables) -> MetricResult:
    """Compute `incoherent_rows`, which see."""
    encoder, rng = tables.encoder, tables.generator("incoherent rows")
    real, synthetic = (
        sample_rows(table, _MOST_ROWS, rng) for table in (tables.real, tables.synthetic)
    )
    levels = [_Levels.of(column, real) for column in encoder.columns]
    ours, theirs = _codes(levels, real), _codes(levels, synthetic)
    sizes = [len(column.words) for column in levels]
    excluded = _excluded(ours, sizes)
    broken, most_often = _broken(excluded, theirs), _most_often(levels, excluded, theirs)
    value = _share(broken)
    parts = [
        {
            "column": column.name,
            "value": float(broken[i].mean()),
            "real": float(mine.mean()),
            "most_often": most_often[i],
        }
        for i, (column, mine) in enumerate(zip(levels, _broken(excluded, ours)))
    ]
    return MetricResult(
        INCOHERENT,
        value,
        interval=wilson(round(value * len(synthetic)), len(synthetic)),
        interval_method="95 %, Wilson over synthetic rows",
        baseline=_share(_broken(_excluded(ours, sizes, itself=1), ours)),
        naive=_share(_broken(excluded, np.stack([rng.permutation(column) for column in ours]))),
        parts=pd.DataFrame(parts).sort_values("value", ascending=False, kind="stable"),
        notes=encoder.notes if excluded else (*encoder.notes, _ALL_TOGETHER),
    )


@dataclass(frozen=True)
class _Levels:
    """What a column's values are counted as: levels that common codes have, 0 for all others."""

    column: Column
    cuts: Floats  # upper ends of intervals of numbers, empty for labels
    level: Integers  # of each code
    words: list[str]  # of each level

    @property
    def name(self) -> Hashable:
        return self.column.name

    @classmethod
    def of(cls, column: Column, real: pd.DataFrame) -> _Levels:
        """Look at the real rows."""
        cuts = np.empty(0)
        if isinstance(column, CategoricalColumn):
            words = column.labels
        else:
            known = present(column.values(real))
            cuts = single = np.unique(known)
            if len(single) > _MOST_VALUES:
                cuts = np.unique(np.quantile(known, np.linspace(0.0, 1.0, _BINS + 1)))
            ends = [
                str(pd.Timestamp(end, unit="s").date())
                if column.is_instant
                else number_text(end + column.origin, 4)
                for end in cuts
            ]
            words = ends if cuts is single else [*ends[:1], *map(" to ".join, zip(ends, ends[1:]))]
            words = [*words, "(missing)"]
        codes = cls(column, cuts, np.arange(len(words)), words)
        counts = np.bincount(codes.of_rows(real), minlength=len(words))
        common = np.flatnonzero(counts >= LEAST_EXPECTED)
        level = np.zeros(len(words), dtype=np.int64)
        level[common] = np.arange(1, len(common) + 1)
        return replace(codes, level=level, words=["rare", *(words[code] for code in common)])

    def said(self, level: int) -> str:
        """Write a level with the column's name."""
        return f"{self.name} = {self.words[level]}"

    def of_rows(self, frame: pd.DataFrame) -> Integers:
        """Return every row's level, shape (row,)."""
        if isinstance(self.column, CategoricalColumn):
            return self.level[self.column.codes(frame)]
        found = self.column.values(frame)
        codes = np.searchsorted(self.cuts[:-1], found, side="left")
        return self.level[np.where(np.isfinite(found), codes, len(self.level) - 1)]


def _codes(levels: Sequence[_Levels], frame: pd.DataFrame) -> Integers:
    """Return every row's levels, shape (column, row)."""
    return np.stack([column.of_rows(frame) for column in levels])


def _excluded(codes: Integers, sizes: Sequence[int], itself: int = 0) -> Excluded:
    """Return the pairs of columns that have excluded cells, and which, shape (level, level).

    `itself` rows of each cell do not count.
    """
    found = {}
    n_rows = codes.shape[1]
    counts = [np.bincount(column, minlength=size) for column, size in zip(codes, sizes)]
    for a, b in combinations(range(len(codes)), 2):
        expected = np.outer(counts[a], counts[b]) / n_rows
        there = np.bincount(codes[a] * len(counts[b]) + codes[b], minlength=expected.size)
        cells = there.reshape(expected.shape) - itself <= _EXCEPTIONS * expected
        cells &= expected >= LEAST_EXPECTED
        cells[0], cells[:, 0] = False, False
        if cells.any():
            found[a, b] = cells
    return found


def _broken(excluded: Excluded, codes: Integers) -> npt.NDArray[np.bool_]:
    """Return where a column has a value that excludes one of the same row, shape (column, row)."""
    found = np.zeros(codes.shape, dtype=bool)
    for (a, b), cells in excluded.items():
        broken = cells[codes[a], codes[b]]
        found[a] |= broken
        found[b] |= broken
    return found


def _share(broken: npt.NDArray[np.bool_]) -> float:
    """Return the share of rows with any such column."""
    return float(broken.any(axis=0).mean()) if broken.size else 0.0


def _most_often(levels: Sequence[_Levels], excluded: Excluded, codes: Integers) -> list[str | None]:
    """Name, for every column, the two values that most rows have against each other."""
    most: list[tuple[int, str | None]] = [(0, None)] * len(levels)
    for (a, b), cells in excluded.items():
        broken = cells[codes[a], codes[b]]
        counts = np.bincount(codes[a, broken] * cells.shape[1] + codes[b, broken], minlength=1)
        n, (x, y) = int(counts.max()), divmod(int(counts.argmax()), cells.shape[1])
        words = f"{levels[a].said(x)} and {levels[b].said(y)}"
        for column in (a, b):
            if n > most[column][0]:
                most[column] = n, words
    return [words for _, words in most]
