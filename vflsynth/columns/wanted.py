"""What is asked of one column of records that are to be drawn: a value, a set, a range."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any, Self

import numpy as np
import pandas as pd

from vflsynth.columns.arrays import Flags, has_timezone, numpy_dtype, timezone
from vflsynth.columns.base import ColumnTransformer
from vflsynth.columns.categorical import CategoricalTransformer
from vflsynth.columns.public import PublicTransformer
from vflsynth.columns.schema import Categories
from vflsynth.exceptions import ColumnKindError

_SEVERAL = (
    *(list, tuple, set, frozenset, range),
    *(np.ndarray, pd.Index, pd.Series, pd.api.extensions.ExtensionArray),
)


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers or times from `low` to `high`, both included.

    Parameters
    ----------
    low, high : number, time or None, default=None
        None leaves an end open. Missing values are in no range.

    Examples
    --------
    >>> Range(30, 40)
    Range(low=30, high=40)
    """

    low: Any = None
    high: Any = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a column's values must be, in the column's own type.

    Any of `values`, or, if there are none, between `low` and `high`; or `missing`; or any of the
    numbers `also`.
    """

    values: tuple[Any, ...] = ()
    low: Any = None
    high: Any = None
    missing: bool = False
    also: tuple[Any, ...] = ()

    @property
    def is_range(self) -> bool:
        """Whether values between two ends are wanted."""
        return not self.values and not self.missing

    def satisfied(self, column: pd.Series[Any]) -> Flags:
        """Say which values of a column are as they must be, bool of shape (record,)."""
        missing = np.asarray(column.isna())
        if self.is_range:
            found = ~missing
            if self.low is not None:
                found &= np.asarray((column >= self.low).fillna(False), dtype=np.bool_)
            if self.high is not None:
                found &= np.asarray((column <= self.high).fillna(False), dtype=np.bool_)
            return np.asarray(found | np.asarray(column.isin(self.also)))
        listed: Flags = np.array(column.isin([*self.values, *self.also]), dtype=np.bool_)
        listed[missing] = self.missing
        return listed


@dataclass(frozen=True, slots=True)
class Domain:
    """What can be asked of a column as it is published; it has labels, or numbers or times."""

    dtype: Any
    labels: tuple[Any, ...] | None = None

    @classmethod
    def of(cls, transformer: ColumnTransformer) -> Self:
        """Return that of a column which is published as it is modelled."""
        labels = None
        if isinstance(transformer, CategoricalTransformer):
            labels = tuple(transformer.categories_)
        elif isinstance(transformer, PublicTransformer):
            listed = transformer.histogram_.column
            labels = tuple(listed.values) if isinstance(listed, Categories) else None
        return cls(transformer.dtype_, labels)


def wanted_of(domain: Domain, condition: Any, *, column: Hashable, party: str) -> Wanted:
    """Check what a user asks of a column; None and NaN stand for missing values.

    ColumnKindError, naming column and party, if it fits no value that the column can have.
    """

    def wrong(problem: str, fix: str) -> ColumnKindError:
        return ColumnKindError(problem, fix=fix, party=party, column=column)

    labels = domain.labels
    if isinstance(condition, Range):
        if labels is not None:
            raise wrong("a range was asked for, and the column has categories", "list the values")
        low, high = (
            None if end is None else _held(domain.dtype, end, wrong)
            for end in (condition.low, condition.high)
        )
        if low is None and high is None:
            raise wrong("the range is open at both ends", "give one end, or leave the column out")
        if low is not None and high is not None and low > high:
            raise wrong("the range ends before it begins", "swap its ends")
        return Wanted(low=low, high=high)
    asked = list(condition) if isinstance(condition, _SEVERAL) else [condition]
    if any(pd.api.types.is_list_like(value) and not isinstance(value, tuple) for value in asked):
        raise wrong("a list of lists was asked for", "list the values, or give a DataFrame of rows")
    if not asked:
        raise wrong("no value was asked for", "list at least one, or leave the column out")
    present = [value for value in asked if not pd.isna(value)]
    if labels is None:
        values = [_held(domain.dtype, value, wrong) for value in present]
    else:
        known = {label: label for label in labels}
        if strange := [value for value in present if value not in known]:
            raise wrong(
                f"{len(strange)} of the categories asked for were not there when the model was "
                f"fitted, or are of another type than {domain.dtype}",
                "ask for categories that sampled records have",
            )
        values = [known[value] for value in present]
    return Wanted(tuple(values), missing=len(present) < len(asked))


def value_from_text(domain: Domain, text: str) -> Any:
    """Read a value of a column off the command line; empty is missing. ValueError if it is none."""
    if not text:
        return None
    if domain.labels is not None:
        for label in domain.labels:
            if text == str(label):
                return label
            if isinstance(label, bool | np.bool_) and text == str(label).lower():
                return label  # as a csv file has it
        raise ValueError(text)
    if ".." in text:  # a range, which the parser of times would make one time of
        raise ValueError(text)
    match numpy_dtype(domain.dtype).kind:
        case "M":
            return _instant(text)
        case "m":
            return pd.Timedelta(text)
        case "f":
            return float(text)
        case _:
            return int(text) if text.lstrip("+-").isdigit() else float(text)


def _instant(value: Any) -> Any:
    """Return a time; text must be ISO, as 1.2.1970 is in January or in February."""
    return pd.to_datetime(value, format="ISO8601" if isinstance(value, str) else None)


def _held(dtype: Any, value: Any, wrong: Any) -> Any:
    """Return a number or time as a column's type has it."""
    kind = numpy_dtype(dtype).kind
    try:
        if kind in "mM" and pd.api.types.is_number(value):
            raise TypeError  # pandas would count nanoseconds
        if kind == "M":
            time = _instant(value)
            if has_timezone(dtype) and time.tz is None:
                time = time.tz_localize(timezone(dtype))
            if has_timezone(dtype) != (time.tz is not None):
                raise ValueError
            return time
        if kind == "m":
            return pd.Timedelta(value)
    except (TypeError, ValueError):
        fix = "give a time, such as '2020-01-31' or '3 days'"
        raise wrong(f"what was asked for is no value of type {dtype}", fix) from None
    if isinstance(value, Decimal):
        value = float(value)
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real | np.number):
        raise wrong(f"what was asked for is no value of type {dtype}", "give a number")
    if not np.isfinite(float(value)):
        raise wrong("what was asked for is not finite", "leave an open end of a range out")
    if kind == "f":
        own = np.finfo(numpy_dtype(dtype))
        return float(own.dtype.type(np.clip(float(value), float(own.min), float(own.max))))
    return value.item() if isinstance(value, np.generic) else value
