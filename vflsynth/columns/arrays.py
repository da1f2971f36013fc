"""Numbers of pandas columns, of any flavour of dtype, as NumPy arrays and on number lines.

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
import pandas as pd

from vflsynth.exceptions import ColumnKindError, InfiniteValueError

Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.intp]

# Multiples of it, modulo 1, are spread more evenly than any others.
_GOLDEN_RATIO = (math.sqrt(5.0) - 1.0) / 2.0


def even_points(numbers: npt.NDArray[Any]) -> Floats:
    """Points of the unit interval for whole numbers, of which the first ones fill it evenly."""
    return np.asarray((0.5 + numbers * _GOLDEN_RATIO) % 1.0)


def nearest_places(rising: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> Codes:
    """Index of the nearest of rising numbers, the smaller of two, for every number wanted.

    Exact for whole numbers of 64 bits, signed or not.
    """
    right = np.searchsorted(rising, wanted).clip(0, len(rising) - 1)
    left = (right - 1).clip(0)
    low, high = rising[left], rising[right]
    nearer = (wanted <= low) | ((wanted < high) & (wanted - low <= high - wanted))
    return np.where(nearer, left, right)


def numpy_dtype(dtype: Any) -> np.dtype[Any]:
    """NumPy dtype of a column's values without their missing ones; object if there is none."""
    if isinstance(dtype, np.dtype):
        return dtype
    if isinstance(dtype, pd.DatetimeTZDtype):
        return np.dtype(f"M8[{dtype.unit}]")
    found = getattr(dtype, "numpy_dtype", None)
    return found if isinstance(found, np.dtype) else np.dtype(object)


def kind_of_values(dtype: Any) -> str:
    """Return NumPy's letter for a type of numbers or times, "O" for all others."""
    if isinstance(dtype, pd.CategoricalDtype) or dtype == np.dtype(object):
        return "O"
    return "O" if pd.api.types.is_string_dtype(dtype) else numpy_dtype(dtype).kind


def plain_values(column: pd.Series[Any]) -> npt.NDArray[Any]:
    """Return a column without missing values as numbers, times in UTC or objects of NumPy."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(column.dtype.categories.dtype)
    dtype = column.dtype
    if isinstance(dtype, pd.DatetimeTZDtype):
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)
    if dtype == np.dtype(object) or pd.api.types.is_string_dtype(dtype):
        return column.to_numpy(dtype=object)
    return column.to_numpy(dtype=numpy_dtype(column.dtype))


def floats_of(column: pd.Series[Any]) -> Floats:
    """Return numbers as float64, NaN where they are missing."""
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def read_integers(column: pd.Series[Any]) -> tuple[npt.NDArray[Any], Flags]:
    """Values as int64 (uint64 where needed), with 0 where missing, and missing flags."""
    own = numpy_dtype(column.dtype)
    target = np.uint64 if own == np.uint64 else np.int64
    if isinstance(column.dtype, np.dtype):
        return column.to_numpy(dtype=target), np.zeros(len(column), dtype=np.bool_)
    return column.to_numpy(dtype=target, na_value=0), np.asarray(column.isna())


def read_floats(column: pd.Series[Any]) -> tuple[Floats, Flags]:
    """Values as float64 (NaN where missing) and missing flags; infinity is an error."""
    values = floats_of(column)
    infinite = np.isinf(values)
    if infinite.any():
        raise InfiniteValueError(
            f"{infinite.sum()} infinite values",
            fix="replace them by NaN or by a bound",
            column=column.name,
            rows=np.flatnonzero(infinite)[:5].tolist(),
        )
    return values, np.isnan(values)


def timezone(dtype: Any) -> Any:
    """Timezone of points in time of this dtype; None if there is none."""
    arrow = isinstance(dtype, pd.ArrowDtype)
    return getattr(dtype.pyarrow_dtype if arrow else dtype, "tz", None)


def has_timezone(dtype: Any) -> bool:
    """Whether values of this dtype are points in time in a timezone."""
    return timezone(dtype) is not None


def read_times(column: pd.Series[Any], dtype: Any) -> tuple[npt.NDArray[np.int64], Flags]:
    """Points in time, in UTC, or durations as 64-bit counts of a dtype's unit, and missing flags.

    ColumnKindError, if the values are of another kind than the dtype's, or lack its time zone.
    """
    own, got = numpy_dtype(dtype), column.dtype
    if numpy_dtype(got).kind != own.kind or has_timezone(got) != has_timezone(dtype):
        raise changed_dtype(column, dtype)
    missing = np.asarray(column.isna())
    if isinstance(got, pd.ArrowDtype) and not has_timezone(got):
        column = column.astype(numpy_dtype(got))  # Arrow dates have no direct way to NumPy
    return column.to_numpy(dtype=own).view(np.int64), missing


def read_values(column: pd.Series[Any]) -> tuple[npt.NDArray[Any], Flags]:
    """Numbers, and times as counts, as float64, int64 or uint64, and missing flags."""
    kind = numpy_dtype(column.dtype).kind
    if kind in "mM":
        return read_times(column, column.dtype)
    return read_floats(column) if kind == "f" else read_integers(column)


def write_values(
    values: npt.NDArray[Any], missing: Flags, dtype: Any, name: Any, *, days: bool = False
) -> pd.Series[Any]:
    """Undo `read_values`, perhaps overwriting `values`; both arrays have shape (record,).

    Nothing may be missing from integers and flags of NumPy. `days` moves times to the nearest
    midnight of their time zone, where days differ in length.
    """
    own = numpy_dtype(dtype)
    if own.kind in "mM":
        times = values.view(own)
        times[missing] = np.array("NaT", dtype=own)
        column: pd.Series[Any] = pd.Series(times, name=name, copy=False)
        if has_timezone(dtype):
            column = column.dt.tz_localize("UTC")  # counts are in UTC; astype converts
            if days:
                noon = column.dt.tz_convert(timezone(dtype)) + pd.Timedelta(hours=12)
                column = noon.dt.normalize()
        return column.astype(dtype)
    array: Any = values.astype(own, copy=False)
    if not isinstance(dtype, np.dtype):
        array = pd.array(array, dtype=dtype)
    if missing.any():
        array[missing] = np.nan if isinstance(dtype, np.dtype) else pd.NA
    return pd.Series(array, name=name, copy=False)


def read_numbers(column: pd.Series[Any], origin: int) -> Floats:
    """Read numbers and times, less an origin, as float64, every record by itself; all else is NaN.

    Unlike `read_integers` and `read_floats` this never fails because of a value, which would tell
    about a record. ``pandas.to_numeric`` would not do: a single odd record, such as a complex
    number, decides how it reads all the others, and then one record moves more than one cell per
    column.
    """
    kind = column.dtype.kind
    if kind in "iumM":
        counts, missing = read_values(column)
        return np.where(missing, np.nan, distances(counts, origin))
    if kind in "bf":
        return floats_of(column)
    return np.array([_real_number(value) for value in column.astype(object)], dtype=np.float64)


def distances(values: npt.NDArray[Any], origin: int) -> Floats:
    """Differences of 64-bit integers from one, exact before they are rounded to float64.

    Taken modulo 2**64, so that the full range of int64 and of uint64 fits.
    """
    above = values.view(np.uint64) - np.uint64(origin % 2**64)
    found = above.astype(np.float64)
    below = values < origin
    if below.any():
        found[below] = -(np.uint64(0) - above[below]).astype(np.float64)
    return found


def _real_number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def changed_dtype(column: pd.Series[Any], fitted: Any) -> ColumnKindError:
    """Error about a column that is not of the dtype that a transformer was fitted on."""
    return ColumnKindError(
        f"dtype is {column.dtype}, but was {fitted} when the transformer was fitted",
        fix=f"convert it with .astype({str(fitted)!r})",
        column=column.name,
    )


_MOST_DECIMALS = 18
_LARGEST_EXACT = 2.0**53
_MODULUS = 2**64


@dataclass(frozen=True)
class FloatAxis:
    """Real numbers of a known range, in the column's unit.

    All observed values can be rounded to `decimals`, at most 18, without change; None if there is
    no such number. Coordinates are ``values / 2**exponent``: 0, except for columns so large or so
    small that their squares would leave the range of float64. `relative_precision` is the rounding
    unit of the column's own dtype.
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
        decimals = decimals_of(ordered, number) if largest < 1e15 else None
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

    Differences are taken modulo 2**64, so that the full range of int64 and of uint64 fits. `step`
    is their greatest common divisor: dates stay whole days and prices in steps of 50 stay so. It is
    0 if there is only one value.
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
        step = int(np.gcd.reduce(np.diff(offsets)))
        return cls(lower, upper, step, ordered.dtype == np.uint64)

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


def axis_through(ordered: npt.NDArray[Any], dtype: Any) -> Axis:
    """Learn the axis of a column of a dtype from its sorted values, as `read_values` has them."""
    kind = FloatAxis if ordered.dtype.kind == "f" else IntegerAxis
    return kind.fit(ordered, numpy_dtype(dtype))


def axis_from_dict(content: Mapping[str, Any]) -> Axis:
    """Rebuild an axis of its fields."""
    return IntegerAxis(**content) if "step" in content else FloatAxis(**content)


def decimals_of(values: Floats, dtype: npt.DTypeLike = np.float64) -> int | None:
    """Fewest decimals that change no value of a column of float type `dtype`; None for any."""
    own = values.astype(dtype)
    decimals, largest = 0, float(np.abs(own).max(initial=0.0))
    for part in (slice(1024), slice(None)):  # a few values rule out most counts cheaply
        while not np.array_equal(np.round(values[part], decimals).astype(dtype), own[part]):
            decimals += 1
            if decimals > _MOST_DECIMALS or (decimals > 12 and largest * 10.0**decimals >= 1e15):
                return None  # float64 keeps fifteen digits
    return decimals


def factorize(column: pd.Series[Any]) -> tuple[Codes, list[Any]]:
    """Code of each record (-1 where missing) and the distinct values as Python objects."""
    try:
        codes, uniques = pd.factorize(column)
    except TypeError:
        raise ColumnKindError(
            "the column holds values that cannot be hashed, such as lists",
            fix="convert them to text, or drop the column",
            column=column.name,
        ) from None
    return codes, list(uniques)


def held_by(column: pd.Series[Any], least: int) -> pd.Index[Any]:
    """Return the values that `least` records have."""
    counts = column.value_counts()
    return counts.index[counts >= least]
