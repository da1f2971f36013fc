"""Number lines: the exact values of a numeric column <-> float64 coordinates.

A generator's numbers are float32 and fall anywhere. An axis knows where the column's values can lie
(its range and its grid), maps values to coordinates that are safe to average and square, and maps
any coordinate back to the nearest possible value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from vflsynth.columns.arrays import Floats, distances

_MOST_DECIMALS = 12
_LARGEST_EXACT = 2.0**53
_MODULUS = 2**64


@dataclass(frozen=True)
class FloatAxis:
    """Real numbers of a known range, perhaps with a known number of decimals.

    Parameters
    ----------
    lower, upper : float
        Observed range, in the column's unit.
    decimals : int or None
        Decimals that all observed values can be rounded to without change, at most 12; None if
        there is no such number.
    exponent : int
        Coordinates are ``values / 2**exponent``: 0, except for columns so large or so small that
        their squares would leave the range of float64.
    relative_precision : float
        Rounding unit of the column's own dtype.
    """

    lower: float
    upper: float
    decimals: int | None
    exponent: int
    relative_precision: float

    def __post_init__(self) -> None:
        if not -math.inf < self.lower <= self.upper < math.inf or self.relative_precision < 0:
            raise ValueError(f"not a range of numbers: {self}")
        if self.decimals is not None and not 0 <= self.decimals <= _MOST_DECIMALS:
            raise ValueError(f"not a number of decimals: {self.decimals!r}")

    @classmethod
    def fit(cls, ordered: npt.NDArray[Any], dtype: np.dtype[Any]) -> Self:
        """Learn range and decimals from sorted finite float64 values."""
        largest = float(max(abs(ordered[0]), abs(ordered[-1])))
        exponent = 0 if largest == 0 or 1e-100 < largest < 1e100 else math.frexp(largest)[1]
        precision = float(np.finfo(dtype).eps) if dtype.kind == "f" else 0.0
        number = dtype if dtype.kind == "f" else np.dtype(np.float64)
        decimals = _decimals(ordered, number) if largest < 1e15 else None
        return cls(float(ordered[0]), float(ordered[-1]), decimals, exponent, precision)

    def to_coordinates(self, values: npt.NDArray[Any]) -> Floats:
        """Divide by a power of two, which is exact (or do nothing, which is usual)."""
        return np.ldexp(values, -self.exponent) if self.exponent else values

    def from_coordinates(self, coordinates: Floats) -> npt.NDArray[Any]:
        """Multiply back, round to the known decimals, clip to the known range."""
        ends = np.ldexp([self.lower, self.upper], -self.exponent)
        values = np.clip(coordinates, *ends)
        if self.exponent:
            values = np.ldexp(values, self.exponent)
        if self.decimals is not None:
            np.round(values, self.decimals, out=values)
        return np.clip(values, self.lower, self.upper, out=values)

    @property
    def grid(self) -> float | None:
        """Distance of neighbouring values in coordinates; None if values may lie anywhere."""
        return None if self.decimals is None else math.ldexp(10.0**-self.decimals, -self.exponent)

    @property
    def line(self) -> tuple[float, float]:
        """The number whose coordinate is 0, and numbers per coordinate."""
        return 0.0, math.ldexp(1.0, min(self.exponent, 1023))

    def error(self, coordinate_error: float) -> float:
        """Zero where rounding to the known decimals undoes the error."""
        error = math.ldexp(coordinate_error, self.exponent)
        largest = max(abs(self.lower), abs(self.upper))
        if self.decimals is not None:
            half = 0.5 * 10.0**-self.decimals
            if error < 0.98 * half and largest * 10.0**self.decimals < _LARGEST_EXACT / 64:
                return 0.0
            error += half
        return error + largest * self.relative_precision


@dataclass(frozen=True)
class IntegerAxis:
    """64-bit integers ``lower, lower + step, ..., upper``, exact over their whole range.

    Differences are taken modulo 2**64, so that the full range of int64 and of uint64 fits.

    Parameters
    ----------
    lower, upper : int
        Observed range.
    step : int
        Greatest common divisor of the differences: dates stay whole days and prices in steps of 50
        stay so. 0 if there is only one value.
    unsigned : bool
        Whether values are uint64 rather than int64.
    """

    lower: int
    upper: int
    step: int
    unsigned: bool

    def __post_init__(self) -> None:
        limits = np.iinfo(np.uint64 if self.unsigned else np.int64)
        if not limits.min <= self.lower <= self.upper <= limits.max:
            raise ValueError(f"not a range of 64-bit integers: {self}")
        if not 0 <= self.step <= self.upper - self.lower:
            raise ValueError(f"not a step within the range: {self}")

    @classmethod
    def fit(cls, ordered: npt.NDArray[Any], dtype: np.dtype[Any]) -> Self:
        """Learn range and step from sorted int64 or uint64 values."""
        lower, upper = int(ordered[0]), int(ordered[-1])
        offsets = ordered.view(np.uint64) - np.uint64(lower % _MODULUS)
        return cls(lower, upper, _common_divisor(offsets), ordered.dtype == np.uint64)

    def to_coordinates(self, values: npt.NDArray[Any]) -> Floats:
        """Count steps above `lower`; negative for values below it."""
        coordinates = distances(values, self.lower)
        if self.step > 1:
            coordinates /= self.step
        return coordinates

    def from_coordinates(self, coordinates: Floats) -> npt.NDArray[Any]:
        """Nearest step inside the range."""
        n_steps = self._n_steps
        # float(2**64 - 1) is 2**64, which no uint64 can hold: stop short of it and set the end.
        ceiling = min(float(n_steps), np.nextafter(2.0**64, 0.0))
        whole = np.rint(np.clip(coordinates, 0.0, ceiling)).astype(np.uint64)
        np.minimum(whole, np.uint64(n_steps), out=whole)
        whole[coordinates >= float(n_steps)] = n_steps
        whole *= np.uint64(self.step)
        whole += np.uint64(self.lower % _MODULUS)
        return whole if self.unsigned else whole.view(np.int64)

    @property
    def grid(self) -> float:
        """One step."""
        return 1.0

    @property
    def line(self) -> tuple[float, float]:
        """The number whose coordinate is 0, and numbers per coordinate."""
        return float(self.lower), float(max(self.step, 1))

    def error(self, coordinate_error: float) -> float:
        """Zero where rounding to the nearest step undoes the error."""
        conversion = 0.0 if self._n_steps * max(self.step, 1) < _LARGEST_EXACT else 2.0**-51
        coordinate_error += self._n_steps * conversion
        return self.step * float(math.floor(coordinate_error * 1.001 + 0.5))

    @property
    def _n_steps(self) -> int:
        return (self.upper - self.lower) // max(self.step, 1)


Axis: TypeAlias = FloatAxis | IntegerAxis


def axis_from_dict(content: Mapping[str, Any]) -> Axis:
    """Rebuild an axis of its fields."""
    return IntegerAxis(**content) if "step" in content else FloatAxis(**content)


def _decimals(values: Floats, dtype: np.dtype[Any]) -> int | None:
    """Fewest decimals that change no value of a column of float type `dtype`."""
    own = values.astype(dtype)
    decimals = 0
    for part in (slice(1024), slice(None)):  # a few values rule out most counts cheaply
        while not np.array_equal(np.round(values[part], decimals).astype(dtype), own[part]):
            decimals += 1
            if decimals > _MOST_DECIMALS:
                return None
    return decimals


def _common_divisor(offsets: npt.NDArray[np.uint64]) -> int:
    """Greatest common divisor of the differences of sorted offsets."""
    divisor = 0
    for start in range(0, len(offsets), 4096):
        differences = np.diff(offsets[start : start + 4097])
        divisor = (
            math.gcd(divisor, int(np.gcd.reduce(differences))) if len(differences) else divisor
        )
        if divisor == 1:
            break
    return divisor
