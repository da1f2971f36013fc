"""Normal scores of ranks."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from vflsynth.columns.arrays import Floats
from vflsynth.columns.encoders.base import Encoder, error_between, interpolate
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
    scores_ : float64 array, shape (knot,)
        Their normal scores, strictly increasing.
    """

    name: ClassVar[str] = "quantile"
    learns: ClassVar[tuple[str, ...]] = ("knots_", "scores_")

    knots_: Floats
    scores_: Floats

    def fit(
        self, ordered: Floats, *, least: int = 1, zero: float = 0.0, unit: float = 1.0
    ) -> NormalScores:
        """Learn knots and scores."""
        n_records = len(ordered)
        n_knots = min(MOST_KNOTS, 2 + n_records // 4)
        positions = np.linspace(0, n_records - 1, n_knots).round().astype(np.intp)
        self.knots_ = np.unique(ordered[positions])
        below = np.searchsorted(ordered, self.knots_, side="left")
        not_above = np.searchsorted(ordered, self.knots_, side="right")
        self.scores_ = ndtri((below + not_above) / (2 * n_records))
        self.check_learned()
        return self

    def check_learned(self) -> None:
        """Raise ValueError unless knots and scores rise together."""
        rising = np.all(np.diff(self.knots_) > 0) and np.all(np.diff(self.scores_) > 0)
        if self.knots_.shape != self.scores_.shape or len(self.knots_) < 2 or not rising:
            raise ValueError("knots and scores must rise together")

    def scale(self, coordinates: Floats) -> Floats:
        """Map to normal scores; outside the knots, to that of the nearest."""
        return interpolate(coordinates, self.knots_, self.scores_)

    def unscale(self, scaled: npt.NDArray[Any]) -> Floats:
        """Undo `scale`."""
        return interpolate(scaled.astype(np.float64), self.scores_, self.knots_)

    def error(self, lower: float, upper: float) -> float:
        """Bound the rounding of the score to float32, times the inverse's steepest slope."""
        return error_between((self.scores_, self.scores_), self.knots_)
