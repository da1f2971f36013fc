"""What is public about a table: bounds of its numbers and times, and lists of its labels."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from numbers import Real
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd

from vflsynth.codec import scalar_to_json
from vflsynth.exceptions import PrivacyParameterError
from vflsynth.registry import Value, register

# Squares of such numbers, which variances are made of, are still finite; those of such differences
# are not 0.
_LARGEST_BOUND, _SMALLEST_RANGE = 1e150, 1e-150

# Steps of decimals, and how far from a whole number of them a bound may be that is written so.
_DECIMAL_STEPS = tuple(10.0**-decimals for decimals in range(1, 13))
_PRECISION = 1e-6

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True, slots=True)
class Bounds:
    """Public range of a column of numbers or times; values beyond it count as its ends.

    Parameters
    ----------
    low, high : float, date, Timestamp or Timedelta
        In the column's own units, finite, ``low < high``. ISO text stands for a date or a point in
        time, other text for a duration ("3 days"). Two dates say that the values are whole days.
    origin : int, default 0
        Of a column whose type is known: the 64-bit count (of the dtype's unit, for times) from
        which `low` and `high` are counted, so that float64 keeps their differences exactly.
    step : int or float, default 0
        Values are whole multiples of this above `origin`: a whole number, or a power of ten below 1
        for numbers of so many decimals; 0 if they may lie anywhere.
    """

    low: Any
    high: Any
    origin: int = 0
    step: float = 0

    def __post_init__(self) -> None:
        low, high = map(_end, (self.low, self.high))  # from whoever wrote the schema
        if {type(low), type(high)} == {date, pd.Timestamp}:
            low, high = pd.Timestamp(low), pd.Timestamp(high)
        if not _in_order(low, high):
            raise PrivacyParameterError(
                "bounds",
                (self.low, self.high),
                f"two numbers within ±{_LARGEST_BOUND:g} that differ, two times (both with a time "
                "zone or both without) or two durations, the smaller one first",
            )
        whole = isinstance(self.step, int) and self.step >= 0
        if not whole and self.step not in _DECIMAL_STEPS:
            raise PrivacyParameterError("step", self.step, "whole, or a power of ten below 1")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    @property
    def ends(self) -> tuple[Any, Any]:
        """Low and high."""
        return self.low, self.high

    @property
    def decimals(self) -> int:
        """Of the step; 0 without one."""
        return round(-math.log10(self.step)) if 0 < self.step < 1 else 0

    @property
    def outermost(self) -> tuple[int, int]:
        """Steps from the origin to the first and to the last value."""
        if not self.decimals:  # whole numbers of 64 bits are exact
            return int(-(-self.low // self.step)), int(self.high // self.step)
        low, high = map(self.to_steps, self.ends)
        return math.ceil(low - _PRECISION), math.floor(high + _PRECISION)

    def to_steps(self, numbers: Any) -> Any:
        """Count steps above the origin, which are whole numbers up to rounding at values."""
        return numbers * 10**decimals if (decimals := self.decimals) else numbers / self.step

    def from_steps(self, steps: Any) -> Any:
        """Return numbers so many steps above the origin; those of decimals as they are written."""
        return steps / 10**decimals if (decimals := self.decimals) else steps * self.step


@dataclass(frozen=True, slots=True)
class Categories:
    """Public list of a column's labels; all other values count as missing.

    Parameters
    ----------
    values : tuple
        Distinct, at least one, none of them missing: missing values have a cell of their own.
    """

    values: tuple[Hashable, ...]

    def __post_init__(self) -> None:
        given: Any = self.values  # from whoever wrote the schema
        if isinstance(given, str | bytes) or not isinstance(given, Iterable):
            raise PrivacyParameterError("categories", given, "a list of values")
        object.__setattr__(self, "values", tuple(self.values))
        try:
            [scalar_to_json(value) for value in self.values]
        except TypeError as error:
            raise PrivacyParameterError(
                "categories", given, f"text, numbers or times: {error}"
            ) from None
        values = label_index(self.values)
        if not len(values) or not values.is_unique or values.hasnans:
            raise PrivacyParameterError(
                "categories",
                self.values,
                "a list of at least one value, all distinct, without missing ones",
            )


PublicColumn: TypeAlias = Bounds | Categories


@register
@dataclass(frozen=True)
class PublicSchema(Value):
    """Bounds and categories that hold whatever the records are, by column.

    Parameters
    ----------
    bounds : mapping of column to (low, high)
        Columns of numbers, times and durations; see `Bounds`. Times without a zone are in the
        column's own.
    categories : mapping of column to sequence
        Columns of labels. Those of an ordered column are in its order.
    dtypes : mapping of column to dtype, or "given", optional
        Types of the columns, and of the key column if there is one: dtypes, or names that pandas
        knows, such as "Int64", "str" or "datetime64[us]". Files that have no types (csv) are read
        in them, value by value; tables in memory are converted (`vflsynth.frames.typed`). "given"
        insists on the types that the tables have, where files or programs fix them (parquet, a
        database). Private fits need one or the other: a type that was inferred from the values is
        of the records.

    Raises
    ------
    PrivacyParameterError
        If a column is in both, or bounds, categories or dtypes are malformed.

    Notes
    -----
    Privacy: nothing is spent on a schema, so it must come from outside the data: a data dictionary,
    a law, a measuring instrument's range. Reading the minimum of a column off the records and
    calling it public voids the guarantee.

    A column is of the kind that users declare, or else of the one that its type and the schema say:
    integers are labels only if they are declared so or have categories here. Columns of booleans
    need no list.

    Examples
    --------
    >>> schema = PublicSchema(
    ...     bounds={"age": (0, 120), "admitted": ("2020-01-01", "2024-12-31")},
    ...     categories={"smoker": ["no", "yes"]},
    ...     dtypes={"age": "Int64", "admitted": "datetime64[s]", "smoker": "str"},
    ... )
    >>> schema["age"].high
    120
    >>> schema["admitted"].low
    datetime.date(2020, 1, 1)
    """

    bounds: Mapping[Hashable, Sequence[Any]] = field(default_factory=dict)
    categories: Mapping[Hashable, Sequence[Hashable]] = field(default_factory=dict)
    dtypes: Mapping[Hashable, Any] | Literal["given"] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if both := sorted(map(str, set(self.bounds) & set(self.categories))):
            raise PrivacyParameterError("schema", both, "either bounds or categories per column")
        for column in (*self.bounds, *self.categories):
            self[column]
        if self.dtypes != "given" and not isinstance(self.dtypes, Mapping):
            raise PrivacyParameterError("dtypes", self.dtypes, 'a type per column, or "given"')
        for column in self.stated_dtypes:
            self.dtype_of(column)

    @property
    def stated_dtypes(self) -> Mapping[Hashable, Any]:
        """Types by column; none if those that the tables have are insisted on."""
        return self.dtypes if isinstance(self.dtypes, Mapping) else {}

    def dtype_of(self, column: Hashable) -> Any:
        """Return the dtype that is stated of a column, or None."""
        if column not in self.stated_dtypes:
            return None
        try:
            return pd.api.types.pandas_dtype(self.stated_dtypes[column])
        except TypeError as error:
            raise PrivacyParameterError(
                "dtypes",
                self.stated_dtypes[column],
                f"a type that pandas knows, for column {column!r}",
            ) from error

    def __contains__(self, column: Hashable) -> bool:
        return column in self.bounds or column in self.categories

    def get(self, column: Hashable) -> PublicColumn | None:
        """Return what is known of a column, or None."""
        if column in self.bounds:
            ends: Any = self.bounds[column]
            if isinstance(ends, str) or not isinstance(ends, Sequence) or len(ends) != 2:
                raise PrivacyParameterError("bounds", ends, f"(low, high) for column {column!r}")
            return Bounds(*ends)
        if column in self.categories:
            return Categories(self.categories[column])  # type: ignore[arg-type]
        return None

    def __getitem__(self, column: Hashable) -> PublicColumn:
        found = self.get(column)
        if found is None:
            raise PrivacyParameterError(
                "schema",
                column,
                "complete: give every column public bounds or a public list of categories; without "
                "them this column could only be read outside the privacy budget",
            )
        return found


PublicColumns: TypeAlias = PublicSchema | Mapping[Hashable, PublicColumn]


def label_index(values: Iterable[Any]) -> pd.Index[Any]:
    """Make an index of labels of any types, tuples among them."""
    return pd.Index(list(values), dtype=object, tupleize_cols=False)


def _end(value: Any) -> Any:
    """Return times, also as text, as date, Timestamp or Timedelta, and all else as it is."""
    try:
        if isinstance(value, str):
            if _DATE.fullmatch(value):
                return date.fromisoformat(value)
            if _DATE.match(value):
                return pd.Timestamp(value)
            return pd.Timedelta(value) if re.search("[a-zA-Z:]", value) else value
        if isinstance(value, datetime | np.datetime64):
            return pd.Timestamp(value)
        if isinstance(value, timedelta | np.timedelta64):
            return pd.Timedelta(value)
        if isinstance(value, np.generic):  # small types of NumPy overflow
            return value.item()
    except ValueError:
        pass
    return value


def _in_order(low: Any, high: Any) -> bool:
    if isinstance(low, Real) and isinstance(high, Real):
        finite = abs(float(low)) < _LARGEST_BOUND > abs(float(high))
        difference: Any = high - low
        return finite and bool(difference > _SMALLEST_RANGE)
    try:
        times = isinstance(low, date | pd.Timedelta) and isinstance(high, date | pd.Timedelta)
        return times and bool(low < high)
    except TypeError:  # a time and a duration, or one time with a zone and one without
        return False
