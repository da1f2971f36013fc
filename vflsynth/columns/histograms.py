"""What a published noisy histogram of a column says: its scale, its labels, and its encoding."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from vflsynth.columns.arrays import Codes, Floats, nearest_places, read_numbers
from vflsynth.columns.bins import Bins, Cells, cell_codes
from vflsynth.columns.encoders import Curve, Standardizer
from vflsynth.columns.schema import Bounds, PublicColumn

LARGEST_SCORE = 12.0
"""Standard scores are clipped to ± this many standard deviations."""

# A column gets an indicator of missing values if their noisy count exceeds this many noise standard
# deviations: by chance alone once in a thousand columns.
_MISSING_THRESHOLD = 3.0

# A public category can be drawn if its noisy count exceeds this many noise standard deviations: one
# that is dropped is missing from all samples, one that nobody has is in a few records of each.
_CATEGORY_THRESHOLD = 1.0

# A bin is part of a column's support above this many noise standard deviations, and is divided into
# bins that are expected to have so many. Of these, those at the ends count as empty as far as they
# have no more than so many together, more of them if they are far.
_SIGNIFICANT = 3.0
_WORTH_A_BIN = 5.0
_WORTH_AN_END = 2.0
_WORTH_A_FAR_END = 3.0
_FENCE = 1.5
_MOST_EXPLAINED = 0.1

# Of a score that is kept in 32 bits, and of what it is computed with.
_ROUNDING = 2.0**-22

# Of the public range: how wide an interval stands for a value that may lie anywhere.
_SMALL = 1e-6

# What a column's bins are divided into is at most so many times as many.
_MOST_DIVIDED = 4


@dataclass(frozen=True, eq=False)
class NoisyHistogram:
    """A published histogram and everything that follows from it without further cost.

    Parameters
    ----------
    column : Bounds or Categories
    counts : float64 array, shape (cell,)
        Noisy, so possibly negative; the last cell is that of missing values.
    noise_std : float
        In counts; 0 if nothing was released.
    bins : Bins, optional
        Those of a numeric column; values beyond count as its ends. Default: the public bounds
        divided evenly.
    exponent : int, default=0
        Counts are multiples of ``2**exponent``, the step of the grid of their release.
    curve : Curve, optional
        By which numbers are bent before they are standardised. Mean and standard deviation are
        those of bent numbers. Default: by none.
    """

    column: PublicColumn
    counts: Floats
    noise_std: float
    bins: Bins | None = None
    exponent: int = 0
    curve: Curve = field(default_factory=Standardizer)

    @property
    def steps(self) -> npt.NDArray[np.int64]:
        """What was released: the counts in steps of their grid."""
        return np.ldexp(self.counts, -self.exponent).astype(np.int64)

    @classmethod
    def uninformed(cls, column: PublicColumn, n_bins: int) -> NoisyHistogram:
        """Describe a column by public knowledge alone: even shares, and no value missing.

        Reads no record, hence costs nothing.
        """
        if not isinstance(column, Bounds):
            return cls(column, np.append(np.ones(len(column.values)), 0.0), 0.0)
        bins = Bins.even(column, n_bins)
        widths = np.diff(bins.edges)  # not all are equal where bins hold few values
        return cls(column, np.append(np.rint(1000.0 * widths / widths.mean()), 0.0), 0.0, bins)

    @cached_property
    def cells(self) -> Cells:
        """What `cell_codes` needs to find a record's cell."""
        if isinstance(self.column, Bounds):
            return self.bins or Bins.even(self.column, len(self.counts) - 1)
        return self.column

    @property
    def has_missing(self) -> bool:
        """Whether missing values are visible above the noise."""
        return bool(self.counts[-1] > max(0.5, _MISSING_THRESHOLD * self.noise_std))

    @property
    def visible(self) -> Codes:
        """Positions, in the public list, of the categories that are visible above the noise."""
        counts = self.counts[:-1]
        above = np.flatnonzero(counts > max(0.5, _CATEGORY_THRESHOLD * self.noise_std))
        return above if len(above) else np.arange(len(counts))

    @property
    def missing_share(self) -> float:
        """Share of records without a value, 0 if not visible above the noise."""
        if not self.has_missing:
            return 0.0
        return float(min(1.0, self.counts[-1] / max(self.counts.sum(), 1.0)))

    def shares(self) -> Floats:
        """Shares of bins or categories, (cell - 1,), among the records that have a value.

        See `nearest_shares`. Bins of numbers at either end are 0 as far as they have no more than
        two noise standard deviations together, or three beyond the fences of Tukey (1977), 1.5
        times the interquartile range from the quartiles. Never a tenth of all values is left out.
        """
        counts = self.counts[:-1]
        if not isinstance(self.column, Bounds) or not counts.max() > 0.0:
            return nearest_shares(counts)
        lows, highs = self.bent_bins()
        low, high = _quartiles(counts)
        middle = highs[high] - lows[low]
        beyond = np.maximum(lows[low] - highs, lows - highs[high])
        far = beyond > _FENCE * middle
        least = np.where(far, _WORTH_A_FAR_END, _WORTH_AN_END) * self.noise_std
        most, ends = _MOST_EXPLAINED * counts.sum(), np.sqrt(np.arange(1.0, len(counts) + 1.0))
        before, after = (np.minimum(own * ends, most) for own in (least, least[::-1]))
        there = np.logical_or.accumulate(np.cumsum(counts) > before)
        there &= np.logical_or.accumulate(np.cumsum(counts[::-1]) > after)[::-1]
        inside = np.where(there, counts, 0.0)
        return nearest_shares(inside if inside.sum() > 0.0 else counts)

    def mean_and_std(self) -> tuple[float, float]:
        """Mean and standard deviation of a numeric column's bent numbers.

        Usually nothing is bent, and they are in the column's unit, above the origin.
        """
        bins, shares, (lows, highs) = self._bins(), self.shares(), self.bent_bins()
        middles, widths = (lows + highs) / 2.0, highs - lows
        mean = float(shares @ middles)
        variance = float(shares @ ((middles - mean) ** 2 + widths**2 / 12.0))
        # Where there seems to be a single value, others may be below the noise.
        least = float(highs[-1] - lows[0]) / len(bins) or 1.0
        return mean, math.sqrt(max(variance, least**2 / 12.0))

    def bent_bins(self) -> tuple[Floats, Floats]:
        """Where the bins of a numeric column begin and end along the curve."""
        bins = self._bins()
        return self._bend(bins.lows), self._bend(bins.highs)

    def _bend(self, numbers: Floats) -> Floats:
        return self.curve.bend(numbers + self._zero)

    @property
    def _zero(self) -> int:
        """What numbers are counted from along the curve."""
        return 0 if self.curve.is_straight else self._bins().bounds.origin

    def divided(self) -> Bins:
        """Fit bins to where a numeric column's values are, by the noisy counts alone.

        They reach from the first to the last whose count exceeds three noise standard deviations,
        alone or with neighbours, and on either side a third as many more as noise does not explain,
        at most of the middle half of all values, at least one; they are the public bounds, divided
        evenly, if none does. Neighbours whose density noise does not tell apart are one bin
        (`_even_stretches`). Those are merged until their count exceeds five deviations, in a tail
        by ever more; one that has more is divided into as many as would have five each, at most in
        proportion to its share of four times as many as there are, down to single values of a
        column with a step.
        """
        bins, counts = self._bins(), self.counts[:-1]
        support = _support(counts, _SIGNIFICANT * self.noise_std)
        if support is None:
            return Bins.even(bins.bounds, len(bins))
        least = max(1.0, _WORTH_A_BIN * self.noise_std)
        per_count = _MOST_DIVIDED * len(bins) / max(counts.sum(), 1.0)
        ends, (low, high), n_dense = bins.edges, _quartiles(counts), 0
        for a, b in _even_stretches(counts, np.diff(ends), *support, self.noise_std):
            dense = counts[a:b].sum() > _SIGNIFICANT * self.noise_std * math.sqrt(b - a)
            n_dense += b - a if dense else 0
        more = max(1, min(high - low, n_dense) // 3)
        first, last = max(0, support[0] - more), min(len(bins), support[1] + more)
        start, waiting = first, 0.0
        edges: list[float] = []
        points: list[float] = []
        for a, b in _even_stretches(counts, np.diff(ends), first, last, self.noise_std):
            count = counts[a:b].sum()
            waiting += count
            if count > max(least, _SIGNIFICANT * self.noise_std * math.sqrt(b - a)):
                n_parts = max(1, int(min(count / least, count * per_count)))
                inside = np.linspace(ends[a], ends[b], n_parts + 1)
                edges += [*ends[_tail(start, a)], *inside]
                points += [ends[a]] if ends[a] == ends[b] else []
            elif waiting > least * math.sqrt(b - start):
                edges += [ends[start], ends[b]]
            else:
                continue
            start, waiting = b, 0.0
        return Bins.between(bins.bounds, [*edges, *ends[_tail(start, last)]], points)

    @property
    def encoded_dim(self) -> int:
        """Number of encoded columns."""
        values = 1 if isinstance(self.column, Bounds) else len(self.visible)
        return values + int(self.has_missing)

    def encode(self, values: pd.Series[Any]) -> Floats:
        """Turn a column into bounded numbers, (record, encoded_dim), by published statistics alone.

        Numbers become standard scores within ±12, 0 where missing. Categories are one-hot of the
        visible ones, all zero for others and where missing. Then follows, if `has_missing`, an
        indicator of missing values.
        """
        if isinstance(self.column, Bounds):
            numbers = read_numbers(values, self.column.origin)
            numbers = np.clip(numbers, self.column.low, self.column.high)
            mean, std = self.mean_and_std()
            scores = np.clip((self._bend(numbers) - mean) / std, -LARGEST_SCORE, LARGEST_SCORE)
            missing = np.isnan(numbers)
            encoded = np.column_stack([np.where(missing, 0.0, scores), missing])
        else:
            columns = np.eye(len(self.counts))[:, np.append(self.visible, len(self.counts) - 1)]
            encoded = columns[cell_codes(values, self.column)]
        return encoded[:, : self.encoded_dim]

    def score_cells(self, values: pd.Series[Any]) -> tuple[Floats, Floats, float]:
        """Find the standard scores that decode to each value of a numeric column, none missing.

        Returns the lower and upper ends of intervals, (record,), and 0 for columns with a step.
        Others get intervals of a millionth of the public range, and then the third result is the
        logarithm of their width, to be subtracted for a density.
        """
        bounds, (mean, std) = self._bins().bounds, self.mean_and_std()
        low, high = float(bounds.low), float(bounds.high)
        width = bounds.step or _SMALL * (high - low)
        numbers = np.clip(read_numbers(values, bounds.origin), low, high)
        ends = self._bend(numbers[:, None] + np.array([-0.5, 0.5]) * width)
        lower, upper = ((ends - mean) / std).T
        if bounds.step:
            lower = np.where(numbers < low + bounds.step, -np.inf, lower)
            upper = np.where(numbers > high - bounds.step, np.inf, upper)
        return lower, upper, 0.0 if bounds.step else math.log(width)

    def decode_numeric(self, scores: Floats) -> Floats:
        """Turn standard scores into numbers (above the origin) within the public bounds."""
        bins, (mean, std) = self._bins(), self.mean_and_std()
        bent = scores * std + mean
        numbers = self.curve.unbend(bent) - self._zero
        if len(points := bins.lows[bins.single]):
            places = self._bend(points)
            nearest = nearest_places(places, bent)
            error = _ROUNDING * (np.abs(scores) * std + abs(mean))  # of a score of 32 bits
            there = np.abs(bent - places[nearest]) <= error
            numbers = np.where(there, points[nearest], numbers)
        return np.clip(numbers, float(bins.bounds.low), float(bins.bounds.high))

    def _bins(self) -> Bins:
        if isinstance(self.cells, Bins):
            return self.cells
        raise TypeError("A categorical column has no bins.")


def _quartiles(counts: Floats) -> tuple[int, int]:
    """Return the bins in which the lowest and the highest quarter of the values end and begin."""
    low, high = np.searchsorted(np.cumsum(nearest_shares(counts)), [0.25, 0.75])
    return int(low), int(high)


def _support(counts: Floats, least: float) -> tuple[int, int] | None:
    """Where the bins begin and end that have more than `least`, alone or with neighbours."""
    there = counts > least
    width = 2
    while width <= len(counts):
        alone = np.where(there, -np.inf, counts)
        sums = np.lib.stride_tricks.sliding_window_view(alone, width).sum(1)
        for place in np.flatnonzero(sums > least * math.sqrt(width)):
            there[place : place + width] = True
        width *= 2
    found = np.flatnonzero(there)
    if not len(found):
        return None
    start, end = int(found[0]), int(found[-1]) + 1
    # With less than a third of all values it is chance that made it visible.
    return (start, end) if counts[start:end].sum() >= counts.sum() / 3.0 else None


def _even_stretches(
    counts: Floats, widths: Floats, first: int, last: int, noise_std: float
) -> list[tuple[int, int]]:
    """Where bins begin and end that are next to each other and may well be equally dense.

    Bins are parted where both sides differ most from an even density, in noise standard deviations,
    as long as that is more than three (Scott and Knott 1974). Else a stretch within is parted from
    both its sides by more than five, as there are many such stretches (Olshen et al. 2004): none of
    its ends alone tells a few bins from all others.
    """
    n, width = last - first, widths[first:last].sum()
    if n < 2 or not width > 0.0:
        return [(first, last)]
    filled, wide = (np.append(0.0, np.cumsum(values[first:last])) for values in (counts, widths))

    def differs(starts: Codes, ends: Codes) -> Floats:
        some, share = ends - starts, (wide[ends] - wide[starts]) / width
        apart = np.abs(filled[ends] - filled[starts] - share * filled[-1])
        noise = noise_std * np.sqrt(some * (1.0 - share) ** 2 + (n - some) * share**2)
        return np.asarray(apart / np.maximum(noise, np.finfo(np.float64).tiny))

    ends = np.arange(1, n)
    found, parts = differs(np.zeros_like(ends), ends), [0, n]
    if found.max() > _SIGNIFICANT:
        parts = [0, int(ends[found.argmax()]), n]
    elif n > 2:
        starts, ends = (1 + place for place in np.triu_indices(n - 1, 1))
        found = differs(starts, ends)
        if found.max() > _WORTH_A_BIN:
            parts = [0, int(starts[found.argmax()]), int(ends[found.argmax()]), n]
    if len(parts) == 2:
        return [(first, last)]
    return [
        part
        for start, end in pairwise(parts)
        for part in _even_stretches(counts, widths, first + start, first + end, noise_std)
    ]


def _tail(start: int, end: int) -> list[int]:
    """Where bins that have little begin and end when merged: by 1, 2, 4, ... from either end."""
    edges, width = [start, end], 1
    while start + width < end - width:
        start, end = start + width, end - width
        edges += [start, end]
        width *= 2
    return edges


def nearest_shares(counts: Floats) -> Floats:
    """Turn noisy counts into shares, shape (cell,), that are not negative and add up to 1.

    The counts are moved to the nearest such point (in least squares, "norm-sub"), which unlike
    cutting off negative counts adds no mass to empty cells. Equal shares if they add up to nothing.
    """
    total = counts.sum()
    if not total > np.finfo(np.float64).eps * np.abs(counts).sum():  # nothing but rounding
        return np.full(len(counts), 1.0 / len(counts))
    descending = np.sort(counts)[::-1]
    excess = (np.cumsum(descending) - total) / np.arange(1, len(counts) + 1)
    threshold = excess[np.flatnonzero(descending > excess)[-1]]
    shares: Floats = np.maximum(counts - threshold, 0.0)
    shares /= shares.sum()
    return shares


def estimate_n_records(columns: Iterable[Floats]) -> float:
    """Estimate the number of records, at least 1, from published histograms, at no further cost.

    Each of any parties' columns, noisy counts of shape (cell,), counts all records. A sum has the
    noise of its cells together, so columns are weighted by the inverse of their numbers of cells.
    """
    pairs = [(counts.sum(), 1.0 / len(counts)) for counts in columns]
    weight = sum(weight for _, weight in pairs)
    return max(1.0, float(sum(total * weight for total, weight in pairs) / weight))


def std_of_n_records(histograms: Iterable[NoisyHistogram]) -> float:
    """Return the standard deviation of what `estimate_n_records` says by these columns."""
    pairs = [(histogram.noise_std, 1.0 / len(histogram.counts)) for histogram in histograms]
    variance = sum(noise_std**2 * weight for noise_std, weight in pairs)
    return math.sqrt(variance) / sum(weight for _, weight in pairs)
