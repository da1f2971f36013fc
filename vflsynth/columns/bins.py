"""Cells of a histogram: of numbers intervals and single values, else the labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api.types import is_hashable

from vflsynth.columns.arrays import Flags, Floats, read_numbers
from vflsynth.columns.schema import Bounds, Categories, label_index

# Towards 0, bins halve down to this share of the range, or to one step.
_FINEST = 2.0**-20


@dataclass(frozen=True, eq=False)
class Bins:
    """Cells of a column of numbers, ascending: intervals, and single values.

    The bounds are the column's: their origin is what values are counted from, their step how far
    apart they are. `lows` and `highs`, (bin,), say where each begins and ends, the same number for
    a single value. Intervals of a column with a step reach half a step beyond their values.
    """

    bounds: Bounds
    lows: Floats
    highs: Floats

    def __post_init__(self) -> None:
        ends = np.stack([self.lows, self.highs], 1).ravel()
        if not len(ends) or not np.isfinite(ends).all() or (np.diff(ends) < 0.0).any():
            raise ValueError("bins need finite ends, in ascending order")

    def __len__(self) -> int:
        return len(self.lows)

    @classmethod
    def even(cls, bounds: Bounds, n_bins: int) -> Self:
        """Divide the range into equal bins, as far as the column has values for them."""
        return cls.between(bounds, np.linspace(*_reach(bounds), n_bins + 1))

    @classmethod
    def first(cls, bounds: Bounds, n_bins: int) -> Self:
        """Divide the range for a first look at a column, of which only the bounds are known.

        Into equal bins, those beside 0 into halves again and again: heavy tails begin and spikes
        lie there. Of a column without a step, 0 and both bounds, as which all values beyond count,
        are bins of their own.
        """
        low, high = _reach(bounds)
        edges, points = np.linspace(low, high, n_bins + 1), [bounds.low, bounds.high]
        if bounds.low <= 0.0 <= bounds.high:
            width, finest = (high - low) / n_bins, max((high - low) * _FINEST, bounds.step)
            halves = width * 0.5 ** np.arange(max(0.0, math.log2(width / finest)) + 1.0)
            near = np.concatenate([[0.0], halves, -halves])
            edges = np.concatenate([edges, near[(near > low) & (near < high)]])
            points.append(0.0)
        return cls.between(bounds, edges, () if bounds.step else points)

    @classmethod
    def between(cls, bounds: Bounds, edges: npt.ArrayLike, points: Sequence[float] = ()) -> Self:
        """Make the bins between two or more edges, which a column with a step moves to half steps.

        Without a step, `points` have bins of their own.
        """
        found = np.unique(np.asarray(edges, np.float64))
        if not bounds.step:
            found = np.sort(np.append(found, np.unique(points)))
            return cls(bounds, found[:-1], found[1:])
        inner = bounds.from_steps(np.floor(bounds.to_steps(found[1:-1])) + 0.5)
        found = np.unique(np.clip([found[0], *inner, found[-1]], found[0], found[-1]))
        first = bounds.from_steps(np.ceil(bounds.to_steps(found[:-1]))) + 0.0  # of a negative 0
        last = bounds.from_steps(np.floor(bounds.to_steps(found[1:]))) + 0.0
        single = first == last
        return cls(bounds, np.where(single, first, found[:-1]), np.where(single, last, found[1:]))

    @property
    def single(self) -> Flags:
        """Which bins are single values, shape (bin,)."""
        return np.asarray(self.lows == self.highs)

    @property
    def edges(self) -> Floats:
        """Where one bin ends and the next begins, shape (bin + 1,): ascending, equal at points."""
        points = self.single
        half = self.bounds.step / 2.0
        inner = np.where(points[1:], self.highs[:-1], self.lows[1:])
        both = points[1:] & points[:-1]
        inner[both] = (self.lows[1:] + self.highs[:-1])[both] / 2.0
        ends = self.lows[0] - half * points[0], self.highs[-1] + half * points[-1]
        return np.concatenate([ends[:1], inner, ends[1:]])

    def codes(self, values: pd.Series[Any]) -> npt.NDArray[np.int64]:
        """Return the bin of every value, shape (record,), from 0; the last plus one if missing."""
        numbers = read_numbers(values, self.bounds.origin)
        ends = self.lows[0], self.highs[-1]
        inside = np.clip(np.nan_to_num(numbers), *ends)  # the largest number has no room for steps
        if self.bounds.decimals:  # some may have more of them
            inside = np.clip(self.bounds.from_steps(np.rint(self.bounds.to_steps(inside))), *ends)
        codes = np.searchsorted(self.lows, inside, side="right") - 1
        before = np.maximum(codes - 1, 0)
        is_point = (self.lows[before] == inside) & (self.highs[before] == inside)
        return np.where(np.isnan(numbers), len(self), np.where(is_point, before, codes))


def _reach(bounds: Bounds) -> tuple[float, float]:
    """Where the first bin begins and the last one ends."""
    if not bounds.step:
        return float(bounds.low), float(bounds.high)
    first, last = bounds.outermost
    return bounds.from_steps(first - 0.5), bounds.from_steps(last + 0.5)


Cells: TypeAlias = Bins | Categories
"""What a column's records are counted in; missing values have one more cell, the last."""


def cell_codes(values: pd.Series[Any], cells: Cells) -> npt.NDArray[np.int64]:
    """Return the number of every record's cell, shape (record,): bins or categories from 0.

    The last, ``n_cells(cells) - 1``, holds missing values and values outside the public list. Every
    record is in exactly one cell, whatever it contains.
    """
    if isinstance(cells, Bins):
        return cells.codes(values)
    found = [value if is_hashable(value) else None for value in values.astype(object)]
    codes = label_index(cells.values).get_indexer(label_index(found))
    return np.where(codes < 0, len(cells.values), codes).astype(np.int64)


def n_cells(cells: Cells) -> int:
    """Count cells: bins or categories, and one for missing values."""
    return (len(cells) if isinstance(cells, Bins) else len(cells.values)) + 1
