"""Normal scores of ranks that keep repeated values."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from vflsynth.columns.arrays import Flags, Floats, even_points
from vflsynth.columns.encoders.quantile import MOST_KNOTS, NormalScores
from vflsynth.registry import register

# A column that repeats its values at least so often on average, and has at most so many of them,
# takes no others.
_FEWEST_REPEATS, _MOST_ATOMS = 2.0, 5000

# Narrower atoms are none: float32 might miss them.
_SMALLEST_GAP = 2e-6


@register
class Ranks(NormalScores):
    """Normal scores that keep what a column repeats: codes, digit preference, round amounts.

    A value that several records share is an *atom*: an interval of scores, all of which decode to
    it. Between atoms the map is piecewise linear through quantiles of the column, as that of
    `NormalScores`. Standard normal scores decode to the column's distribution. A column of n
    records with at most n / 2 and at most 5,000 distinct values has nothing but atoms, so that
    nothing between its values is decoded, unless some are held by fewer than `least` records.

    The attributes are those of `NormalScores`.
    """

    name: ClassVar[str] = "ranks"

    def fit(
        self, ordered: Floats, *, least: int = 1, zero: float = 0.0, unit: float = 1.0
    ) -> Ranks:
        """Learn knots and their scores; only what `least` records hold is an atom."""
        n_records = len(ordered)
        starts = np.flatnonzero(np.diff(ordered, prepend=np.nan) != 0.0)
        counts = np.diff(starts, append=n_records)
        listed = len(starts) * _FEWEST_REPEATS <= n_records and len(starts) <= _MOST_ATOMS
        chosen = counts >= (least if listed else max(2, least))
        if chosen.sum() > _MOST_ATOMS:
            chosen = counts >= np.partition(counts, -_MOST_ATOMS)[-_MOST_ATOMS]
        shares = np.stack([starts, starts + counts]) / n_records
        end = 0.25 / n_records
        lower, upper = ndtri(np.clip(shares, end, 1.0 - end))
        chosen &= upper - lower > _SMALLEST_GAP
        middle = ndtri(shares.mean(0))
        lower, upper = np.where(chosen, lower, middle), np.where(chosen, upper, middle)
        kept = np.flatnonzero(chosen | _quantiles(starts, counts))
        self.knots_, self.lower_, self.upper_ = ordered[starts][kept], lower[kept], upper[kept]
        self.check_learned()
        return self

    @property
    def keeps_values(self) -> bool:
        """Whether nothing between the knots is decoded."""
        return np.array_equal(self.upper_[:-1], self.lower_[1:])

    def decoded(self, coordinates: Floats) -> Floats:
        """Return the nearer atom for coordinates between two that nothing is decoded between."""
        knots = self.knots_
        right = np.clip(np.searchsorted(knots, coordinates), 1, len(knots) - 1)
        left = right - 1
        closed = self.upper_[left] >= self.lower_[right]
        lower_is_nearer = coordinates - knots[left] <= knots[right] - coordinates
        nearer = np.where(lower_is_nearer, knots[left], knots[right])
        return np.where(closed, nearer, coordinates)

    def spread(self, scaled: npt.NDArray[Any]) -> Floats:
        """Move encoded atoms within their intervals, so that scores are normally distributed.

        Parameters
        ----------
        scaled : array, shape (record,)
            As `scale` returns them.

        Returns
        -------
        float64 array, shape (record,)
            Decodes to the same. The k-th record of an atom gets the k-th place of a sequence that
            fills it evenly: nothing is drawn, and records that follow each other are far apart.
        """
        lower, upper = self.lower_, self.upper_
        spread = scaled.astype(np.float64)
        atoms = np.clip(np.searchsorted(lower, spread, side="right") - 1, 0, len(lower) - 1)
        inside = (spread <= upper[atoms]) & (upper[atoms] > lower[atoms])
        atoms = atoms[inside]
        order = np.argsort(atoms, kind="stable")
        counts = np.bincount(atoms, minlength=len(lower))
        places = np.empty(len(atoms))
        nth = np.arange(len(atoms)) - np.repeat(np.cumsum(counts) - counts, counts)
        places[order] = even_points(nth)
        below, above = ndtr(lower), ndtr(upper)
        spread[inside] = ndtri(below[atoms] + places * (above - below)[atoms])
        return np.clip(spread, lower[0], upper[-1])


def _quantiles(starts: npt.NDArray[np.intp], counts: npt.NDArray[np.intp]) -> Flags:
    """Which distinct values are knots: quantiles, evenly spaced in ranks and in scores."""
    n_records = int(starts[-1] + counts[-1])
    n_knots = min(MOST_KNOTS, 2 + n_records // 4) // 2 + 1
    evenly = np.linspace(0, n_records - 1, n_knots)
    furthest = ndtri(0.5 / n_records)
    by_score = ndtr(np.linspace(furthest, -furthest, n_knots)) * n_records - 0.5
    positions = np.concatenate([evenly, by_score, [0, n_records - 1]]).round().astype(np.intp)
    found = np.zeros(len(starts), np.bool_)
    found[np.searchsorted(starts, np.clip(positions, 0, n_records - 1), side="right") - 1] = True
    return found
