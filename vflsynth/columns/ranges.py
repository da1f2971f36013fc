"""Where a column's numbers can lie: public ranges, and the grid that nearly all lie on.

A range is given by whoever knows the column (`Bounds` in a `PublicSchema`), or is found among the
cells of a public grid, by noisy counts.

An axis knows the grid (tenths, hundreds, whole hours) of *all* values, and one odd value spoils it.
Generated values go to the grid of nearly all.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from numbers import Real
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from vflsynth.columns.arrays import (
    Axis,
    FloatAxis,
    Floats,
    IntegerAxis,
    has_timezone,
    numpy_dtype,
    timezone,
)
from vflsynth.columns.schema import Bounds
from vflsynth.exceptions import ColumnKindError

# Float64 does not have all whole numbers beyond this.
_LARGEST_EXACT = 2**53

# Cells of numbers: powers of two from 1e-9 to 1.8e19 of either sign, and one around 0.
_POWERS = 2.0 ** np.arange(-30, 65)
_EDGES = np.concatenate([-_POWERS[::-1], _POWERS])

# Cells of points in time begin at these years: decades where most dates are, coarse ones elsewhere.
_YEARS = (1, 1000, 1500, 1600, 1700, 1800, 1850, *range(1900, 2101, 10), 2150, 2200, 2500, 9999)
_EPOCH = date(2000, 1, 1).toordinal()
_DAYS = [date(year, 1, 1).toordinal() - _EPOCH for year in _YEARS]


@dataclass(frozen=True, slots=True)
class NumberRanges:
    """Ranges of columns of a kind of numbers; of whole ones, as every integer dtype holds."""

    kind: str
    whole: bool

    def check_dtype(self, name: Hashable, dtype: Any) -> None:
        """Raise ColumnKindError, naming the column, unless the dtype is one of numbers."""
        if numpy_dtype(dtype).kind not in "iuf":
            raise ColumnKindError(
                f"dtype {dtype} is not numeric, so the column cannot be {self.kind}",
                fix="convert it with pandas.to_numeric, or declare another kind",
                column=name,
            )

    def bounds(self, name: Hashable, dtype: Any, listed: Bounds) -> Bounds:
        """Say what public bounds mean for a column of this dtype, or raise ColumnKindError."""
        if not isinstance(listed.low, Real):
            raise ColumnKindError(
                f"its public bounds {_words(listed)} are times, and the column holds numbers of "
                f"type {dtype}",
                fix="give it two numbers as bounds, or convert the column to datetimes",
                column=name,
            )
        integers = numpy_dtype(dtype).kind in "iu"
        found = Bounds(*listed.ends, step=int(self.whole or integers))
        if integers and max(map(abs, listed.ends)) > _LARGEST_EXACT:
            low, high = math.ceil(listed.low), math.floor(listed.high)
            found = Bounds(0, high - low, int(low), 1)
        _check_axis(name, dtype, found, listed)
        return found

    def grid(self, dtype: Any) -> tuple[Floats, int]:
        """Edges of the cells in which columns are looked for, as far as the dtype goes, and origin.

        Powers of two from 2**-30 to 2**64 of either sign, with one cell around 0; whole ones, and
        0, for whole numbers. The cells at the ends also hold what is beyond.
        """
        own = numpy_dtype(dtype)
        limits: Any = np.finfo(own) if own.kind == "f" else np.iinfo(own)
        edges = np.rint(_EDGES) if self.whole or own.kind in "iu" else _EDGES
        return np.unique(np.clip(edges, float(limits.min), float(limits.max))), 0

    def between(self, dtype: Any, low: float, high: float) -> Bounds:
        """Bounds between two edges of the grid."""
        ends: tuple[float, float] = (low, high)
        if numpy_dtype(dtype).kind in "iu":
            limits = np.iinfo(numpy_dtype(dtype))  # the largest edge of 64 bits is rounded up
            ends = max(low, limits.min), min(high, limits.max)
        return self.bounds(None, dtype, Bounds(*ends))


@dataclass(frozen=True, slots=True)
class TimeRanges:
    """Ranges of columns of points in time and of durations: counts of the dtype's unit."""

    def check_dtype(self, name: Hashable, dtype: Any) -> None:
        """Raise ColumnKindError, naming the column, unless the dtype is one of times."""
        if numpy_dtype(dtype).kind not in "mM":
            raise ColumnKindError(
                f"dtype {dtype} is not a datetime",
                fix="convert it with pandas.to_datetime, or declare another kind",
                column=name,
            )

    def bounds(self, name: Hashable, dtype: Any, listed: Bounds) -> Bounds:
        """Say what public bounds mean for a column of this dtype, or raise ColumnKindError."""
        own = numpy_dtype(dtype)
        ends: tuple[Any, ...] = listed.ends
        durations = own.kind == "m"
        if isinstance(ends[0], pd.Timedelta) != durations or isinstance(ends[0], Real):
            wanted = "durations, such as '0 days'" if durations else "times, such as '2020-01-31'"
            raise ColumnKindError(
                f"its public bounds {_words(listed)} do not fit a column of type {dtype}",
                fix=f"give two {wanted}",
                column=name,
            )
        step = _smallest_step(dtype)
        if not durations:
            if not isinstance(ends[0], pd.Timestamp):
                step = _per_day(own)
            ends = tuple(in_zone(name, dtype, pd.Timestamp(end)) for end in ends)
        try:
            low, high = _count(ends[0], own, up=True), _count(ends[1], own, up=False)
            if step > 1:  # days are not of equal length everywhere: the last one is a whole step
                high = low + round((high - low) / step) * step
            found = Bounds(0, high - low, low, step)
        except ValueError:  # out of range, or less than a unit apart
            raise _does_not_hold(name, dtype, listed) from None
        _check_axis(name, dtype, found, listed)
        return found

    def grid(self, dtype: Any) -> tuple[Floats, int]:
        """Edges of the cells in which columns are looked for, as far as the dtype goes, and origin.

        Points in time, counted from the beginning of the year 2000 UTC: decades from 1900 to 2100,
        coarser cells from the year 1 to 9999. Durations: powers of two of seconds, as numbers.
        """
        own, origin = numpy_dtype(dtype), 0
        days, inside = _EDGES / 86_400.0, 2.0**63 - 2.0**12  # a rounding below what 64 bits hold
        if own.kind == "M":
            days = np.array(_DAYS, dtype=np.float64)
            origin = (_EPOCH - date(1970, 1, 1).toordinal()) * _per_day(own)
        edges = np.rint(days * _per_day(own))
        return np.unique(np.clip(edges, -inside - origin, inside - origin)), origin

    def between(self, dtype: Any, low: float, high: float) -> Bounds:
        """Bounds between two edges of the grid."""
        _, origin = self.grid(dtype)
        return Bounds(0, int(high - low), origin + int(low), _smallest_step(dtype))


def axis_of(bounds: Bounds, dtype: Any) -> Axis:
    """Return the number line of a column between the bounds that the classes above return.

    ValueError if the dtype holds no number between them, or not all of them.
    """
    own, (low, high) = numpy_dtype(dtype), bounds.ends
    if bounds.step:
        low, high = map(bounds.from_steps, bounds.outermost)
    if own.kind in "iumM":
        low, high = bounds.origin + low, bounds.origin + high
        limits = np.iinfo(own if own.kind in "iu" else np.int64)
        # The smallest 64-bit count stands for a missing time.
        if low < limits.min + (own.kind in "mM") or high > limits.max:
            raise ValueError(f"{dtype} does not reach from {low} to {high}")
        return IntegerAxis(low, high, min(int(bounds.step), high - low), own == np.uint64)
    if own.kind != "f" or max(abs(low), abs(high)) > float(np.finfo(own).max):
        raise ValueError(f"{dtype} does not reach from {low} to {high}")
    low, high = _inside(low, own, np.inf), _inside(high, own, -np.inf)
    decimals = bounds.decimals if bounds.step else None
    return FloatAxis(low, high, decimals, 0, float(np.finfo(own).eps))


def _inside(end: float, own: np.dtype[Any], direction: float) -> float:
    """Nearest number of a float type that is not beyond the end."""
    number = own.type(end)
    outside = number < end if direction > 0 else number > end
    return float(np.nextafter(number, own.type(direction)) if outside else number)


def _check_axis(name: Hashable, dtype: Any, found: Bounds, listed: Bounds) -> None:
    try:
        axis_of(found, dtype)
    except ValueError:
        raise _does_not_hold(name, dtype, listed) from None


def _does_not_hold(name: Hashable, dtype: Any, listed: Bounds) -> ColumnKindError:
    return ColumnKindError(
        f"a column of type {dtype} cannot hold the values that its public bounds {_words(listed)} "
        "give it",
        fix="give it bounds within its type, or convert it to a wider type",
        column=name,
    )


def _words(bounds: Bounds) -> str:
    return f"({bounds.low}, {bounds.high})"


def in_zone(name: Hashable, dtype: Any, end: pd.Timestamp) -> pd.Timestamp:
    """Take a time without a zone for one of the column's own."""
    if end.tz is None:
        if not has_timezone(dtype):
            return end
        return end.tz_localize(timezone(dtype), ambiguous=True, nonexistent="shift_forward")
    if has_timezone(dtype):
        return end
    raise ColumnKindError(
        f"its public bounds are in the time zone {end.tz}, and the column's times have none",
        fix="give bounds without a time zone, or the column one, with .dt.tz_localize",
        column=name,
    )


def _count(end: Any, own: np.dtype[Any], *, up: bool) -> int:
    """Count of a dtype's unit that is next to a time, on its inner side."""
    near = end.as_unit(np.datetime_data(own)[0], round_ok=True)
    count = int(near.asm8.view("i8"))
    return count + (up and near < end) - (not up and near > end)


def _per_day(own: np.dtype[Any]) -> int:
    """Return the counts of a NumPy time type per day."""
    return 86_400 * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[np.datetime_data(own)[0]]


def _smallest_step(dtype: Any) -> int:
    """Return the counts from one value of a time type to the next: Arrow has a type of days."""
    return _per_day(numpy_dtype(dtype)) if str(dtype).startswith("date32") else 1


NEARLY_ALL = 0.95
"""Share of the values that lie on a grid that generated ones are put on."""

# Powers of ten that steps are looked for between, the precision of a value that arithmetic may have
# gone through, and values looked at.
_LARGEST, _SMALLEST = 9, -9
_PRECISION = 1e-9
_LOOKED_AT = 20_000

SPACINGS = 16.0
"""Of a type's floats, that a step has at least: each of them is a multiple of less."""

_SECONDS = (86_400, 3_600, 900, 60, 1)
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass(frozen=True)
class ColumnGrid:
    """Whole multiples of a step, an int for columns of whole numbers and times.

    `lower` and `upper` are the outermost multiples inside the column's range.
    """

    step: int | float
    decimals: int
    lower: int | float
    upper: int | float

    def __post_init__(self) -> None:
        if not 0 < self.step < math.inf or not self.lower <= self.upper or self.decimals < 0:
            raise ValueError(f"not a grid: {self}")

    @classmethod
    def fit(
        cls,
        ordered: npt.NDArray[Any],
        steps: Iterable[tuple[int | float, int]],
        precision: float = 0.0,
    ) -> Self | None:
        """Find the widest step whose multiples nearly all sorted values are; None if there is none.

        `steps` are tried in their order, wide ones first, each with its decimals; a step needs
        three places within the range. `precision` is that of the column's own dtype, relative.
        """
        some = ordered[:: -(-len(ordered) // _LOOKED_AT)]
        lowest, highest = ordered[0].item(), ordered[-1].item()
        finest = SPACINGS * max(precision, 2.0**-52) * max(abs(lowest), abs(highest))
        for step, decimals in steps:
            if step < finest and not isinstance(step, int):
                return None  # every float of this size would be on it
            if 2 * step > highest - lowest or _on_grid(some, step, precision) < NEARLY_ALL:
                continue
            if isinstance(step, int):
                lower, upper = -(-lowest // step) * step, highest // step * step
            else:
                lower = round(math.ceil(lowest / step - _PRECISION) * step, decimals)
                upper = round(math.floor(highest / step + _PRECISION) * step, decimals)
            return cls(step, decimals, lower, upper) if upper - lower >= 1.99 * step else None
        return None

    def nearest(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the nearest place of the grid, shape and dtype of `values`."""
        inside = np.clip(values, self.lower, self.upper)
        nearest: npt.NDArray[Any]
        if isinstance(self.step, int):
            beyond = (inside - self.lower) % self.step
            down = inside - beyond
            nearest = np.where(2 * beyond > self.step, down + self.step, down).astype(values.dtype)
        else:
            nearest = np.round(np.rint(inside / self.step) * self.step, self.decimals)
        return nearest


def decimal_steps() -> Iterator[tuple[float, int]]:
    """List steps of 5, 2.5, 2 and 1 times powers of ten, wide first, with their decimals."""
    for power in range(_LARGEST, _SMALLEST - 1, -1):
        for digits in (50, 25, 20, 10):
            decimals = max(0, 1 - power - (digits % 10 == 0))
            yield round(digits * 10.0 ** (power - 1), decimals), decimals


def whole_steps() -> Iterator[tuple[int, int]]:
    """Those of them that are whole, but for 1."""
    return ((int(step), 0) for step, decimals in decimal_steps() if not decimals and step > 1)


def time_steps(unit: str) -> Iterator[tuple[int, int]]:
    """List a day, an hour, a quarter of one, a minute and a second, as counts of a unit."""
    return ((seconds * _UNITS[unit], 0) for seconds in _SECONDS)


def _on_grid(values: npt.NDArray[Any], step: int | float, precision: float) -> float:
    """Share of the values that are multiples of a step."""
    if isinstance(step, int):
        return float((values % step == 0).mean())
    multiples = values / step
    off = np.abs(multiples - np.rint(multiples)) * step
    error = max(precision, _PRECISION) * np.maximum(np.abs(values), step)
    return float((off <= np.minimum(error, 0.01 * step)).mean())
