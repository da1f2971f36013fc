"""Scalers: coordinates of a number line <-> what the networks see, around zero and of unit size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol, Self

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from vflsynth.columns.axes import Floats

Scaling = Literal["standard", "quantile", "ranks"]

# Half a unit in the last place of float32: the matrix rounds every scaled number by at most this
# factor.
_FLOAT32_ROUNDING = 2.0**-24
_MOST_KNOTS = 1000

# A column that repeats its values at least so often on average, and has at most so many of them,
# takes no others.
_FEWEST_REPEATS, _MOST_LISTED = 2.0, 5000

# Multiples of it, modulo 1, are spread more evenly than any others.
_GOLDEN_RATIO = (math.sqrt(5.0) - 1.0) / 2.0

# Scores of neighbouring values are at least this far apart, or float32 might confuse them.
_SMALLEST_GAP = 1e-5


class Scaler(Protocol):
    """An increasing map from coordinates to scaled numbers, and its inverse."""

    @classmethod
    def fit(cls, ordered: Floats) -> Self:
        """Learn from sorted coordinates that hold at least two different ones."""

    def scale(self, coordinates: Floats) -> Floats:
        """Map coordinates to scaled numbers."""

    def unscale(self, scaled: npt.NDArray[Any]) -> Floats:
        """Map scaled numbers back to coordinates."""

    def error(self, lower: float, upper: float) -> float:
        """Largest coordinate error of a round trip through float32, between two coordinates."""

    def to_dict(self) -> dict[str, Any]:
        """Return the learned numbers."""


@dataclass(frozen=True)
class Standardizer:
    """``(x - mean) / std``.

    Notes
    -----
    Source: VFLGAN §4.1, Eq. 22.

    Departs from the paper's words, not from its code: the paper calls the divisor "variance", the
    release divides by the standard deviation with n - 1 in its denominator. So do we; the test is
    ``tests/unit/columns/test_scaling.py``.
    """

    mean: float
    std: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.mean) and 0.0 < self.std < math.inf):
            raise ValueError(f"not a mean and a positive standard deviation: {self}")

    @classmethod
    def fit(cls, ordered: Floats) -> Self:
        """Learn mean and standard deviation."""
        return cls(float(ordered.mean()), float(ordered.std(ddof=1)))

    def scale(self, coordinates: Floats) -> Floats:
        """Standardise."""
        scaled = coordinates - self.mean
        scaled /= self.std
        return scaled

    def unscale(self, scaled: npt.NDArray[Any]) -> Floats:
        """Undo `scale`."""
        coordinates = scaled.astype(np.float64)
        coordinates *= self.std
        coordinates += self.mean
        return coordinates

    def error(self, lower: float, upper: float) -> float:
        """Bound the rounding of the scaled number to float32 and of the float64 arithmetic."""
        reach = max(abs(lower - self.mean), abs(upper - self.mean))
        arithmetic = (abs(self.mean) + reach) * 2.0**-50
        return reach * _FLOAT32_ROUNDING * 1.01 + arithmetic

    def to_dict(self) -> dict[str, Any]:
        """Return the learned numbers."""
        return asdict(self)


@dataclass(frozen=True)
class NormalScores:
    """The number's rank, as a quantile of the standard normal distribution.

    Piecewise linear between knots: quantiles of the column, at most 1000 and at most a quarter of
    the records (plus two), each at the normal score of its mid-rank. Interpolating in scores rather
    than in ranks keeps the map and its inverse exact to rounding, and strictly increasing.

    Parameters
    ----------
    knots : list of float
        Coordinates, strictly increasing; the first and last are the column's range.
    scores : list of float
        Their normal scores, strictly increasing.
    """

    knots: list[float]
    scores: list[float]

    def __post_init__(self) -> None:
        rising = np.all(np.diff(self.knots) > 0) and np.all(np.diff(self.scores) > 0)
        if len(self.knots) != len(self.scores) or len(self.knots) < 2 or not rising:
            raise ValueError("knots and scores must rise together")

    @classmethod
    def fit(cls, ordered: Floats) -> Self:
        """Learn knots and scores."""
        n_records = len(ordered)
        n_knots = min(_MOST_KNOTS, 2 + n_records // 4)
        positions = np.linspace(0, n_records - 1, n_knots).round().astype(np.intp)
        knots = np.unique(ordered[positions])
        below = np.searchsorted(ordered, knots, side="left")
        not_above = np.searchsorted(ordered, knots, side="right")
        scores = ndtri((below + not_above) / (2 * n_records))
        return cls(knots.tolist(), scores.tolist())

    def scale(self, coordinates: Floats) -> Floats:
        """Map to normal scores; outside the knots, to that of the nearest."""
        return _interpolate(coordinates, self.knots, self.scores)

    def unscale(self, scaled: npt.NDArray[Any]) -> Floats:
        """Undo `scale`."""
        return _interpolate(scaled.astype(np.float64), self.scores, self.knots)

    def error(self, lower: float, upper: float) -> float:
        """Bound the rounding of the score to float32, times the inverse's steepest slope."""
        slopes = np.diff(self.knots) / np.diff(self.scores)
        largest_score = max(abs(self.scores[0]), abs(self.scores[-1]))
        arithmetic = max(abs(lower), abs(upper)) * 2.0**-49
        return float(slopes.max()) * largest_score * _FLOAT32_ROUNDING * 1.01 + arithmetic

    def to_dict(self) -> dict[str, Any]:
        """Return the learned numbers."""
        return asdict(self)


@dataclass(frozen=True)
class Ranks(NormalScores):
    """`NormalScores` that returns nothing between the values of a column that repeats them.

    Codes, digit preference, multiples of ten: where a column of n records has at most n / 2 and at
    most 5,000 distinct values, every value is a *cell*, the interval of scores that its records
    share, and any score decodes to the value in whose cell it falls. Standard normal scores decode
    to exactly the column's distribution. Other columns are scaled as by `NormalScores`.

    Parameters
    ----------
    knots, scores : list of float
        As of `NormalScores`; all distinct values where they are listed.
    cumulative : list of float or None
        Share of the records below each listed value, and 1 at the end; None if none are listed.
    """

    cumulative: list[float] | None = None

    def __post_init__(self) -> None:
        super(Ranks, self).__post_init__()
        if self.cumulative is not None and (
            len(self.cumulative) != len(self.knots) + 1 or not np.all(np.diff(self.cumulative) > 0)
        ):
            raise ValueError("shares of the listed values must rise, one step per value")

    @classmethod
    def fit(cls, ordered: Floats) -> Self:
        """Learn the listed values and their shares, or knots and scores."""
        n_records = len(ordered)
        starts = np.flatnonzero(np.diff(ordered, prepend=np.nan) != 0.0)
        if len(starts) * _FEWEST_REPEATS <= n_records and len(starts) <= _MOST_LISTED:
            cumulative = np.append(starts, n_records) / n_records
            scores = ndtri((cumulative[:-1] + cumulative[1:]) / 2.0)
            if np.diff(scores).min() > _SMALLEST_GAP:
                return cls(ordered[starts].tolist(), scores.tolist(), cumulative.tolist())
        return super().fit(ordered)

    def unscale(self, scaled: npt.NDArray[Any]) -> Floats:
        """Undo `scale`."""
        if self.cumulative is None:
            return super().unscale(scaled)
        edges = ndtri(np.array(self.cumulative[1:-1]))
        found: Floats = np.array(self.knots)[np.searchsorted(edges, scaled, side="right")]
        return found

    def spread(self, scores: npt.NDArray[Any]) -> Floats:
        """Move encoded values within their cells, so that they follow the normal distribution.

        Parameters
        ----------
        scores : array, shape (record,)
            As `scale` returns them.

        Returns
        -------
        float64 array, shape (record,)
            Decodes to the same. The k-th record of a cell gets the k-th place of a sequence that
            fills it evenly: nothing is drawn, and records that follow each other are far apart.
        """
        if self.cumulative is None:
            return scores.astype(np.float64)
        shares = np.array(self.cumulative)
        cells = np.searchsorted(ndtri(shares[1:-1]), scores, side="right")
        order = np.argsort(cells, kind="stable")
        counts = np.bincount(cells, minlength=len(self.knots))
        nth = np.empty(len(cells))
        nth[order] = np.arange(len(cells)) - np.repeat(np.cumsum(counts) - counts, counts)
        places = (0.5 + nth * _GOLDEN_RATIO) % 1.0
        least = 0.25 / max(len(cells), 1)
        shares = np.clip(shares[cells] + places * np.diff(shares)[cells], least, 1.0 - least)
        spread: Floats = ndtri(shares)
        return spread

    def error(self, lower: float, upper: float) -> float:
        """Return 0 where values are listed."""
        return super().error(lower, upper) if self.cumulative is None else 0.0


def _interpolate(points: Floats, starts: list[float], values: list[float]) -> Floats:
    """Piecewise linear interpolation, constant outside.

    Like ``numpy.interp``, whose slopes overflow where two knots are next to each other.
    """
    x, y = np.array(starts), np.array(values)
    left = np.clip(np.searchsorted(x, points, side="right") - 1, 0, len(x) - 2)
    fraction: Floats = points - x[left]
    fraction /= np.diff(x)[left]
    np.clip(fraction, 0.0, 1.0, out=fraction)
    fraction *= np.diff(y)[left]
    fraction += y[left]
    return fraction


SCALERS: Mapping[str, type[Standardizer] | type[NormalScores]] = {
    "standard": Standardizer,
    "quantile": NormalScores,
    "ranks": Ranks,
}
