"""How numbers become what networks see: increasing maps with an inverse.

Curves (standard scores, logs), normal scores of ranks, of quantiles and of repeated values, and
when to choose which.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri
from sklearn.base import BaseEstimator, clone

from vflsynth.codec import scalar_from_json, scalar_to_json
from vflsynth.columns.arrays import Codes, Flags, Floats, even_points
from vflsynth.exceptions import ParameterError
from vflsynth.registry import (
    Members,
    Number,
    Rule,
    check_parameters,
    full_name,
    named_in_file,
    register,
)

FLOAT32_ROUNDING = 2.0**-24
"""Half a unit in the last place: the matrix rounds a scaled number by at most this factor."""


class Encoder(BaseEstimator, ABC):  # type: ignore[misc]
    """How numbers become what networks see, around zero and of unit size, and back.

    Numbers come as *coordinates*: float64, in which a column counts its exact values. What an
    encoder learns are floats and float64 arrays, in attributes that end in ``_``. Most encoders are
    a `Curve`.
    """

    registry_group: ClassVar[str] = "encoders"

    name: ClassVar[str]
    """For tables of a job, the command line and `TableTransformer`."""

    rules: ClassVar[Mapping[str, Rule]] = {}
    """Ranges of parameters, by name."""

    learns: ClassVar[tuple[str, ...]]
    """Names of the learned attributes."""

    def check_parameters(self) -> None:
        """Raise ParameterError for a parameter out of range."""
        check_parameters(type(self).__name__, self.get_params(deep=False), self.rules)

    @abstractmethod
    def fit(
        self, ordered: Floats, *, least: int = 1, zero: float = 0.0, unit: float = 1.0
    ) -> Encoder:
        """Learn from a column.

        Parameters
        ----------
        ordered : float64 array, shape (value,)
            Sorted coordinates that hold at least two different ones.
        least : int, default=1
            Values of fewer records must not be kept as they are.
        zero, unit : float
            The number of a coordinate x is ``zero + unit * x``.

        Returns
        -------
        Encoder
            This one, or another that it chose.

        Raises
        ------
        ValueError
            If it cannot tell the values apart.
        """

    @abstractmethod
    def scale(self, coordinates: Floats) -> Floats:
        """Map coordinates to scaled numbers; a larger one never gets a smaller one."""

    @abstractmethod
    def unscale(self, scaled: npt.NDArray[Any]) -> Floats:
        """Map scaled numbers of any float type back to coordinates."""

    @abstractmethod
    def error(self, lower: float, upper: float) -> float:
        """Largest coordinate error of a round trip through float32, between two coordinates."""

    @abstractmethod
    def check_learned(self) -> None:
        """Raise ValueError if what was learned, or read from a file, cannot be."""

    @property
    def keeps_values(self) -> bool:
        """Whether nothing is decoded but the values that it was fitted to."""
        return False

    def decoded(self, coordinates: Floats) -> Floats:
        """Return what coordinates count as where not all of them are decoded."""
        return coordinates

    def spread(self, scaled: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Move equal scaled numbers apart, as far as they decode to the same; default: do not."""
        return scaled

    def published(self) -> Curve:
        """Return what encodes by published histograms, under differential privacy.

        ParameterError if it needs the records, which is the default.
        """
        raise ParameterError(
            f"{self!r} does not go with differential privacy: it learns from the records, and "
            "noisy histograms tell no more than mean and standard deviation. Fix: use 'standard', "
            "'log' or another Curve"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Encoder) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def to_dict(self) -> dict[str, Any]:
        """Return class, parameters and what was learned, if anything, as JSON values."""
        return {
            "object": full_name(type(self)),
            "parameters": {k: scalar_to_json(v) for k, v in self.get_params(deep=False).items()},
            "learned": {
                name: np.asarray(getattr(self, name)).tolist()
                for name in self.learns
                if hasattr(self, name)
            },
        }

    @staticmethod
    def from_dict(content: Mapping[str, Any]) -> Encoder:
        """Undo `to_dict`, for an encoder of any registered class.

        ParameterError if there is no such class, ValueError if what was learned cannot be.
        """
        parameters = {k: scalar_from_json(v) for k, v in content["parameters"].items()}
        encoder: Encoder = named_in_file(content["object"], "encoders")(**parameters)
        if learned := content["learned"]:
            if sorted(learned) != sorted(encoder.learns):
                raise ValueError(f"{type(encoder).__name__} learns {encoder.learns}")
            for name, value in learned.items():
                kept = np.array(value, np.float64) if isinstance(value, list) else float(value)
                setattr(encoder, name, kept)
            encoder.check_learned()
        return encoder


class Curve(Encoder):
    """Encoders that bend numbers by a fixed curve, and standardise them (VFLGAN Eq. 22).

    Subclasses write `bend` and `unbend`, which learn nothing and take any number. Mean and standard
    deviation are those of the records, or follow from a published histogram: curves work in both
    modes.
    """

    learns: ClassVar[tuple[str, ...]] = ("mean_", "std_", "zero_", "unit_")

    is_straight: ClassVar[bool] = False
    """Whether the curve bends nothing, so that zero and unit of the numbers do not matter."""

    mean_: float
    std_: float
    zero_: float
    unit_: float

    @abstractmethod
    def bend(self, numbers: Floats) -> Floats:
        """Map numbers along the curve; a larger one gets a larger one."""

    @abstractmethod
    def unbend(self, bent: Floats) -> Floats:
        """Undo `bend`."""

    def fit(
        self, ordered: Floats, *, least: int = 1, zero: float = 0.0, unit: float = 1.0
    ) -> Encoder:
        """Learn mean and standard deviation, with n - 1 in its denominator; see `Encoder`."""
        self.zero_, self.unit_ = (0.0, 1.0) if self.is_straight else (zero, unit)
        bent = self.bend(self._numbers(ordered))
        self.mean_, self.std_ = float(bent.mean()), float(bent.std(ddof=1))
        self.check_learned()
        return self

    def check_learned(self) -> None:
        """Raise ValueError unless numbers can be told apart."""
        finite = all(map(math.isfinite, (self.mean_, self.std_, self.zero_, self.unit_)))
        if not finite or self.std_ <= 0.0 or self.unit_ <= 0.0:
            raise ValueError(
                f"not a mean and a positive standard deviation: {self.mean_}, {self.std_}"
            )

    def scale(self, coordinates: Floats) -> Floats:
        """Bend and standardise."""
        scaled = self.bend(self._numbers(coordinates)) - self.mean_
        scaled /= self.std_
        return scaled

    def unscale(self, scaled: npt.NDArray[Any]) -> Floats:
        """Undo `scale`."""
        bent = scaled.astype(np.float64)
        bent *= self.std_
        bent += self.mean_
        numbers = self.unbend(bent)
        return numbers if self._is_plain else (numbers - self.zero_) / self.unit_

    def error(self, lower: float, upper: float) -> float:
        """Bound the rounding to float32, and of the float64 arithmetic.

        For curves whose inverse is steepest at an end, as most are.
        """
        ends = np.array([lower, upper])
        bent = self.bend(self._numbers(ends))
        reach = float(np.abs(bent - self.mean_).max())
        away = reach * FLOAT32_ROUNDING * 1.01 + (abs(self.mean_) + reach) * 2.0**-50
        off = [
            np.abs(self.unscale((bent + side - self.mean_) / self.std_) - ends)
            for side in (-away, away)
        ]
        arithmetic = float(np.abs(ends).max()) + abs(self.zero_) / self.unit_
        return float(np.max(off)) * 1.01 + arithmetic * 2.0**-49

    def published(self) -> Curve:
        """Return this: mean and standard deviation can be those of a histogram."""
        return self

    @property
    def _is_plain(self) -> bool:
        return self.zero_ == 0.0 and self.unit_ == 1.0

    def _numbers(self, coordinates: Floats) -> Floats:
        return coordinates if self._is_plain else self.zero_ + self.unit_ * coordinates


@register
class Standardizer(Curve):
    """``(x - mean) / std``.

    Notes
    -----
    Source: VFLGAN §4.1, Eq. 22.

    Departs from the paper's words, not from its code: the paper calls the divisor "variance", the
    release divides by the standard deviation with n - 1 in its denominator. So do we; the test is
    ``tests/unit/columns/test_encoders.py``.
    """

    name: ClassVar[str] = "standard"
    is_straight: ClassVar[bool] = True

    def bend(self, numbers: Floats) -> Floats:
        """Return the numbers."""
        return numbers

    def unbend(self, bent: Floats) -> Floats:
        """Return the numbers."""
        return bent


@register
class Log(Curve):
    """``sign(x) log(1 + |x| / linear)``, standardised: for amounts that span orders of magnitude.

    Parameters
    ----------
    linear : float, default=1.0
        Numbers that are small against this keep their distances, so that 0 and negative numbers
        have a place. In the column's unit; of times, the unit of their type.
    """

    name: ClassVar[str] = "log"
    rules: ClassVar = {"linear": Number(0, closed=(False, True))}

    def __init__(self, linear: float = 1.0) -> None:
        self.linear = linear

    def bend(self, numbers: Floats) -> Floats:
        """Take the logarithm."""
        return np.copysign(np.log1p(np.abs(numbers) / self.linear), numbers)

    def unbend(self, bent: Floats) -> Floats:
        """Take the exponential."""
        with np.errstate(over="ignore"):  # what a generator makes has no end
            return np.copysign(np.expm1(np.abs(bent)) * self.linear, bent)


def encoder_of(given: str | Encoder, owner: str = "encoder") -> Encoder:
    """Return a fresh encoder, of one or of its name, with its parameters checked.

    ParameterError, which calls it `owner`, if there is none of that name or a parameter is out of
    range.
    """
    known = Members("encoders")
    if isinstance(given, str) and given in known:
        given = known[given]()
    if not isinstance(given, Encoder):
        raise ParameterError(f"{owner} must be one of {list(known)} or an Encoder, got {given!r}")
    fresh: Encoder = clone(given)
    fresh.check_parameters()
    return fresh


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
        return np.where(at_knot, (lower[left] + upper[left]) / 2.0, between)

    def unscale(self, scaled: npt.NDArray[Any]) -> Floats:
        """Map scores to coordinates."""
        knots, lower, upper = self.knots_, self.lower_, self.upper_
        scores, last = scaled.astype(np.float64), len(knots) - 1
        left = np.clip(np.searchsorted(lower, scores, side="right") - 1, 0, last)
        right = np.minimum(left + 1, last)
        gap = lower[right] - upper[left]
        gap = np.where(gap > 0.0, gap, 1.0)
        fraction = np.clip((scores - upper[left]) / gap, 0.0, 1.0)
        return knots[left] + fraction * (knots[right] - knots[left])

    def error(self, lower: float, upper: float) -> float:
        """Bound the rounding of scores to float32, times the steepest slope between knots."""
        gaps = self.lower_[1:] - self.upper_[:-1]
        slopes = np.diff(self.knots_)[gaps > 0.0] / gaps[gaps > 0.0]
        if not len(slopes):
            return 0.0
        largest_score = max(abs(self.lower_[0]), abs(self.upper_[-1]))
        arithmetic = max(abs(lower), abs(upper)) * 2.0**-49
        return float(slopes.max() * largest_score * FLOAT32_ROUNDING * 1.01 + arithmetic)


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

    What comes again and again, days of the week and hours of the day, is taken out before if
    somebody says its period: coordinates are closer together where few records are, so that what a
    smooth density draws is as rarely at night as records are.

    Attributes
    ----------
    knots_, lower_, upper_ : float64 array, shape (knot,)
        As those of `NormalScores`.
    cycle_ : float64 array, shape (3 + cell,)
        Period and start, in coordinates, and the ends of its equal cells as shares of the records;
        empty if there is none.
    """

    name: ClassVar[str] = "ranks"
    learns: ClassVar[tuple[str, ...]] = (*NormalScores.learns, "cycle_")

    cycle_: Floats

    def fit(
        self, ordered: Floats, *, least: int = 1, zero: float = 0.0, unit: float = 1.0
    ) -> Ranks:
        """Learn knots and their scores; only what `least` records hold is an atom."""
        self.cycle_ = np.empty(0)
        return self._fit_straight(ordered, least)

    def fit_cycle(
        self, ordered: Floats, period: float, start: float, n_cells: int, least: int
    ) -> Ranks:
        """Learn sorted coordinates anew without a cycle, if records are many and it tells enough.

        Cells that fewer than `least` records are in count alike.
        """
        if len(ordered) < _RECORDS_A_CELL * n_cells:
            return self
        places = np.floor((ordered - start) / period * n_cells) % n_cells
        counts = np.bincount(places.astype(np.intp), minlength=n_cells)
        few = counts < max(1, least)
        mass = max(float(counts[few].sum()), _LEAST_MASS * len(ordered))
        shares = np.where(few, mass / max(1, few.sum()), counts)
        shares /= shares.sum()
        gain = (shares * np.log(shares * n_cells)).sum() - (n_cells - 1) / len(ordered)
        middle_half = np.ptp(np.quantile(ordered, [0.25, 0.75]))
        if gain < _LEAST_GAIN or middle_half < _PERIODS * period:
            return self
        self.cycle_ = np.concatenate([[period, start, 0.0], shares.cumsum()[:-1], [1.0]])
        return self._fit_straight(self._straight(ordered), least)

    def _fit_straight(self, ordered: Floats, least: int) -> Ranks:
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

    def check_learned(self) -> None:
        """Raise ValueError unless knots, and ends of cells, rise."""
        super().check_learned()
        ends = self._ends
        if len(self.cycle_) and not (
            self.cycle_[0] > 0.0 and len(ends) > 1 and np.all(np.diff(ends) > 0.0)
        ):
            raise ValueError("the ends of a cycle's cells must rise")

    def scale(self, coordinates: Floats) -> Floats:
        """Map to scores."""
        return super().scale(self._straight(coordinates))

    def unscale(self, scaled: npt.NDArray[Any]) -> Floats:
        """Map scores to coordinates."""
        return self._cyclic(super().unscale(scaled))

    def error(self, lower: float, upper: float) -> float:
        """Bound the rounding of scores, where cells are steepest."""
        error = super().error(*map(float, self._straight(np.array([lower, upper]))))
        ends = self._ends
        return error / float(np.diff(ends).min() * (len(ends) - 1)) if len(ends) else error

    @property
    def keeps_values(self) -> bool:
        """Whether nothing between the knots is decoded."""
        return np.array_equal(self.upper_[:-1], self.lower_[1:])

    @property
    def _ends(self) -> Floats:
        return self.cycle_[2:]

    def _straight(self, coordinates: Floats) -> Floats:
        """Give every cell of the cycle the width of its share."""
        return self._along(coordinates, np.linspace(0.0, 1.0, len(self._ends)), self._ends)

    def _cyclic(self, straight: Floats) -> Floats:
        """Undo `_straight`."""
        return self._along(straight, self._ends, np.linspace(0.0, 1.0, len(self._ends)))

    def _along(self, places: Floats, these: Floats, those: Floats) -> Floats:
        if not len(self.cycle_):
            return places
        period, start = self.cycle_[:2]
        periods, within = np.divmod((places - start) / period, 1.0)
        return np.asarray(start + period * (periods + np.interp(within, these, those)))

    def decoded(self, coordinates: Floats) -> Floats:
        """Return the nearer atom for coordinates between two that nothing is decoded between."""
        return self._cyclic(self._nearest_atoms(self._straight(coordinates)))

    def _nearest_atoms(self, coordinates: Floats) -> Floats:
        knots = self.knots_
        right = np.clip(np.searchsorted(knots, coordinates), 1, len(knots) - 1)
        left = right - 1
        closed = self.upper_[left] >= self.lower_[right]
        lower_is_nearer = coordinates - knots[left] <= knots[right] - coordinates
        nearer = np.where(lower_is_nearer, knots[left], knots[right])
        return np.where(closed, nearer, coordinates)

    def spread(self, scaled: npt.NDArray[Any]) -> Floats:
        """Move encoded atoms within their intervals, so that scores are normally distributed.

        They decode to the same. The k-th record of an atom gets the k-th place of a sequence that
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


# Of the records: what all cells that few are in have together, at least. What a cycle tells of a
# record to be kept, in nats, and how many of its periods the middle half of the records take up.
_LEAST_MASS, _LEAST_GAIN, _PERIODS, _RECORDS_A_CELL = 1e-3, 0.02, 2.0, 10


def _quantiles(starts: Codes, counts: Codes) -> Flags:
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


# A column has long tails if its standard deviation is so many times that of a normal column of the
# same interquartile range, or if a value is so many standard deviations from the mean.
_WIDE, _FAR = 2.0, 8.0
_IQR_OF_NORMAL = 1.349


@register
class Auto(Standardizer):
    """Standard scores, and scores of ranks for a column with long tails.

    Standardised, most values of such a column would lie within a few hundredths of each other,
    where a network cannot tell them apart. `Ranks` take the place of `NormalScores` where records
    share values: these would be decoded to anything as far as the next knots, which are single
    records' values.
    """

    name: ClassVar[str] = "auto"

    def fit(
        self, ordered: Floats, *, least: int = 1, zero: float = 0.0, unit: float = 1.0
    ) -> Encoder:
        """Return a fitted `Standardizer`, `NormalScores` or `Ranks`."""
        standard = Standardizer().fit(ordered)
        scaled = standard.scale(ordered)
        low, high = np.quantile(scaled, [0.25, 0.75])
        wide = _WIDE * (high - low) < _IQR_OF_NORMAL
        long_tails = wide or max(-scaled[0], scaled[-1]) > _FAR
        if not long_tails:
            return standard
        ranks = Ranks().fit(ordered, least=least)
        return ranks if (ranks.lower_ < ranks.upper_).any() else NormalScores().fit(ordered)

    def published(self) -> Standardizer:
        """Return standard scores: histograms tell no ranks."""
        return Standardizer()
