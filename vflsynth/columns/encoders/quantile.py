"""Normal scores of ranks."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from vflsynth.columns.arrays import Floats
from vflsynth.columns.encoders.base import FLOAT32_ROUNDING, Encoder
from vflsynth.registry import register

MOST_KNOTS = 1000


@register
class NormalScores(Encoder):
    """The number's rank, as a quantile of the standard normal distribution.

    Piecewise linear between knots: quantiles of the column, at most 1000 and at most a quarter of
    the records (plus two), each at the normal score of its mid-rank. Interpolating in scores rather
    than in ranks keeps the map and its inverse exact to rounding, and strictly increasing.

    Attributes
    ----------
    knots_ : float64 array, shape (knot,)
        Coordinates, strictly increasing; the first and last are the column's range.
    lower_, upper_ : float64 array, shape (knot,)
        Scores between which a knot is decoded, never decreasing. Here they are equal.
    """

    name: ClassVar[str] = "quantile"
    learns: ClassVar[tuple[str, ...]] = ("knots_", "lower_", "upper_")

    knots_: Floats
    lower_: Floats
    upper_: Floats

    def fit(
        self, ordered: Floats, *, least: int = 1, zero: float = 0.0, unit: float = 1.0
    ) -> NormalScores:
        """Learn knots and scores."""
        n_records = len(ordered)
        n_knots = min(MOST_KNOTS, 2 + n_records // 4)
        positions = np.linspace(0, n_records - 1, n_knots).round().astype(np.intp)
        self.knots_ = np.unique(ordered[positions])
        if len(self.knots_) == 1:  # all are equal: two knots, as near to each other as can be
            self.knots_ = np.append(self.knots_, np.nextafter(self.knots_, np.inf))
            self.lower_ = self.upper_ = np.zeros(2)
            return self
        below = np.searchsorted(ordered, self.knots_, side="left")
        not_above = np.searchsorted(ordered, self.knots_, side="right")
        self.lower_ = self.upper_ = ndtri((below + not_above) / (2 * n_records))
        self.check_learned()
        return self

    def check_learned(self) -> None:
        """Raise ValueError unless knots rise and scores do not fall."""
        lower, upper = self.lower_, self.upper_
        if (
            not 2 <= len(self.knots_) == len(lower) == len(upper)
            or not np.all(np.diff(self.knots_) > 0)
            or not np.all(lower <= upper)
            or not np.all(upper[:-1] <= lower[1:])
        ):
            raise ValueError("knots must rise, and scores must not fall")

    def scale(self, coordinates: Floats) -> Floats:
        """Map to scores: outside the knots that of the nearest, at one the middle of its own."""
        knots, lower, upper = self.knots_, self.lower_, self.upper_
        last = len(knots) - 1
        left = np.clip(np.searchsorted(knots, coordinates, side="right") - 1, 0, last)
        right = np.minimum(left + 1, last)
        width = np.where(right > left, knots[right] - knots[left], 1.0)
        fraction = np.clip((coordinates - knots[left]) / width, 0.0, 1.0)
        between = upper[left] + fraction * (lower[right] - upper[left])
        at_knot = (coordinates <= knots[left]) | (left == last)
        scores: Floats = np.where(at_knot, (lower[left] + upper[left]) / 2.0, between)
        return scores

    def unscale(self, scaled: npt.NDArray[Any]) -> Floats:
        """Map scores to coordinates."""
        knots, lower, upper = self.knots_, self.lower_, self.upper_
        scores, last = scaled.astype(np.float64), len(knots) - 1
        left = np.clip(np.searchsorted(lower, scores, side="right") - 1, 0, last)
        right = np.minimum(left + 1, last)
        gap = lower[right] - upper[left]
        gap = np.where(gap > 0.0, gap, 1.0)
        fraction = np.clip((scores - upper[left]) / gap, 0.0, 1.0)
        coordinates: Floats = knots[left] + fraction * (knots[right] - knots[left])
        return coordinates

    def error(self, lower: float, upper: float) -> float:
        """Bound the rounding of scores to float32, times the steepest slope between knots."""
        gaps = self.lower_[1:] - self.upper_[:-1]
        slopes = np.diff(self.knots_)[gaps > 0.0] / gaps[gaps > 0.0]
        if not len(slopes):
            return 0.0
        largest_score = max(abs(self.lower_[0]), abs(self.upper_[-1]))
        arithmetic = max(abs(lower), abs(upper)) * 2.0**-49
        return float(slopes.max() * largest_score * FLOAT32_ROUNDING * 1.01 + arithmetic)
