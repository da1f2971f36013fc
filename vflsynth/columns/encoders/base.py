"""What every encoder promises, an increasing map with an inverse; curves, standard scores, logs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, clone

from vflsynth._validation import Number, Rule, check_parameters
from vflsynth.codec import scalar_from_json, scalar_to_json
from vflsynth.columns.arrays import Floats
from vflsynth.exceptions import ParameterError
from vflsynth.registry import Members, full_name, named_in_file, register

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
