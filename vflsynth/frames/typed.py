"""Columns of a stated type: every value is read by itself, whatever the others look like.

A program that chooses a type by looking at all values lets one of them decide how all are read: one
blank makes 1 to 1.0, one word makes true to "true". What is published with differential privacy
must not depend on that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Mapping
from datetime import date, timedelta
from decimal import Decimal
from functools import partial
from numbers import Number
from typing import Any, Literal

import numpy as np
import pandas as pd

from vflsynth.codec import Family, as_frame, family_of, places_in_order
from vflsynth.exceptions import ColumnKindError, OwnTableWarning, warn_user

Unreadable = Literal["refused", "missing"]

_WHOLE = re.compile(r"([+-]?\d+)(\.0*)?")
_TRUTH = {"true": True, "false": False}
_MOST_EXACT = 2**53
_LABELS: set[Family] = {"text", "label"}
_IN_TIME: set[Family] = {"time", "duration"}


def with_type(
    column: pd.Series[Any], dtype: Any, labels: Collection[Any] | None = None
) -> pd.Series[Any]:
    """Return a column in the type that was stated of it, or raise ColumnKindError.

    Text is read as numbers (decimal points), ``true`` and ``false`` (also as 1 and 0), ISO times or
    durations, if that is what was stated, and comes out as its number or truth value would. Numbers
    are not read as text: which text they were is lost. Categories without an order are sorted, not
    in the records' order; those of a stated "category" or "object" may be of other types than text
    if the public `labels` are.
    """
    family = family_of(dtype)
    try:
        if family == "text":
            _check_labels(column, None, dtype)
            return column.astype(dtype)
        if family == "label":
            return _with_labels(column, dtype, labels)
        own = family_of(column.dtype)
        if own in ("text", "label") or family == "truth value" != own:
            column = _read(column, family, dtype)
        elif own != family and {own, family} & _IN_TIME and column.notna().any():
            raise TypeError("numbers are no times, alone or in a column")
        if family == "whole number":
            column = _whole_numbers(column, dtype)
        return column.astype(dtype)
    except (TypeError, ValueError, ArithmeticError, NotImplementedError) as error:
        if isinstance(error, ColumnKindError):
            raise
        raise ColumnKindError(
            f"its values are not all of the type {dtype} that was stated",
            fix="state a type that can hold them; 'Int64' and 'boolean' hold blanks, 'int64' and "
            "'bool' do not",
            column=column.name,
        ) from None


def readable(
    column: pd.Series[Any],
    dtype: Any,
    labels: Collection[Any] | None = None,
    *,
    party: str | None = None,
) -> pd.Series[Any]:
    """Return a column in the type that was stated of it; what is not of the type is missing.

    For private runs, which one record must not end: see `with_type`. The owner is warned. The type
    is this one, or the one beside it that holds blanks, whatever the values are.
    """
    dtype = with_blanks(dtype)
    try:
        return with_type(column, dtype, labels)
    except ColumnKindError:
        known: dict[Any, Any] = {}
        given = column.astype(object)
        values = [_alone(v, dtype, labels, known) for v in given]
        n_lost = sum(v is None and not _is_blank(own) for own, v in zip(given, values, strict=True))
        if n_lost:
            warn_user(
                f"{'' if party is None else f'party {party!r}, '}column {column.name!r}: "
                f"{n_lost:,} of {len(values):,} values are not of the type {dtype} that was "
                "stated, and count as missing. Nobody else is told. Fix: correct them, or state a "
                "type that can hold them",
                OwnTableWarning,
            )
        return with_type(pd.Series(values, column.index, object, column.name), dtype, labels)


def _is_blank(value: Any) -> bool:
    """Whether a value is missing; pandas fails at decimals that signal."""
    no_number = isinstance(value, float | np.floating) and bool(np.isnan(value))
    return value is None or value is pd.NA or value is pd.NaT or no_number


def _alone(value: Any, dtype: Any, labels: Collection[Any] | None, known: dict[Any, Any]) -> Any:
    """Return a value alone in a type, None if it is not of it; `known` has what was looked at.

    Together some would fail: nanoseconds, and a year that has none.
    """
    place = type(value), value
    try:
        if place not in known:
            known[place] = None
            found = with_type(pd.Series([value], dtype=object), dtype, labels).astype(object)
            known[place] = None if _is_blank(found.iloc[0]) else found.iloc[0]
        return known[place]
    except (TypeError, ValueError, RecursionError):  # a list, or a number that is none
        return None


def with_types(
    frame: pd.DataFrame,
    dtypes: Mapping[Hashable, Any],
    *,
    party: str | None,
    decimal: str = ".",
    unreadable: Unreadable,
) -> pd.DataFrame:
    """Return a table whose columns have stated types, of text or of cells that have each its own.

    Other columns stay as they are. `decimal` is the point of numbers that are written as text. A
    value that is not of its column's type is refused (ColumnKindError) or missing; see `readable`.
    """
    read = with_type if unreadable == "refused" else partial(readable, party=party)
    typed = frame.copy(deep=False)
    for label in [label for label in frame.columns if label in dtypes]:
        column = frame[label]
        try:
            dtype = pd.api.types.pandas_dtype(dtypes[label])
        except TypeError as error:
            raise ColumnKindError(
                f"pandas has no type {dtypes[label]!r}",
                fix="state one that it has, such as 'Int64' or 'str'",
                party=party,
                column=label,
            ) from error
        if decimal != "." and family_of(dtype) in ("number", "whole number"):
            column = column.str.replace(decimal, ".", regex=False)
        try:
            typed[label] = read(column, dtype)
        except ColumnKindError as error:
            raise ColumnKindError(error.problem, fix=error.fix, party=party, column=label) from None
    return typed


def with_blanks(dtype: Any) -> Any:
    """Return the type of a column that may also hold blanks: of integers the nullable one."""
    if isinstance(dtype, np.dtype) and dtype.kind in "biu":
        return pd.array(np.empty(0, dtype)).dtype
    return dtype


def like_model(frame: Any, dtypes: Mapping[Hashable, Any]) -> Any:
    """Return cells that somebody gives in the types of a model, as far as they tell another one.

    Columns without any value have the model's type. Text is read as numbers, times and truth values
    where the model has these, and 0 and 1 are truth values; ColumnKindError if a value is no such.
    """
    typed = as_frame(frame)
    found = typed.copy(deep=False)
    for label in [label for label in typed.columns if label in dtypes]:
        column, dtype = typed[label], with_blanks(dtypes[label])
        own, both = family_of(column.dtype), {family_of(column.dtype), family_of(dtype)}
        if column.isna().all():
            found[label] = pd.Series(None, column.index, dtype, label)
        elif both & _LABELS == {own} or (not both & _LABELS and "truth value" in both):
            try:
                found[label] = with_type(column, dtype)
            except ColumnKindError:
                raise ColumnKindError(
                    f"its values are not all of the model's type {dtype}",
                    fix="give values as sampled records have them",
                    column=label,
                ) from None
    return found


def in_order(column: pd.Series[Any]) -> pd.Series[Any]:
    """Sort the categories of an unordered column: which record came first is nobody's business."""
    dtype: Any = column.dtype
    if not isinstance(dtype, pd.CategoricalDtype) or dtype.ordered:
        return column
    return column.cat.reorder_categories(dtype.categories[places_in_order(list(dtype.categories))])


def _with_labels(
    column: pd.Series[Any], dtype: Any, labels: Collection[Any] | None
) -> pd.Series[Any]:
    """Convert to categories or objects; every value becomes the public label that it equals."""
    listed = isinstance(dtype, pd.CategoricalDtype) and dtype.categories is not None
    if listed:
        labels = list(dtype.categories)
    _check_labels(column, labels, dtype)
    if listed and not column.dropna().isin(dtype.categories).all():
        raise ValueError("labels that are not listed, which pandas would call missing")
    if listed or labels is None:
        return in_order(column.astype(dtype))
    label_of = {label: label for label in labels}
    made = pd.Series(
        [label_of.get(value) for value in _objects(column)], column.index, object, column.name
    )
    if not isinstance(dtype, pd.CategoricalDtype):
        return made
    public: Any = pd.CategoricalDtype(pd.Index(list(labels)), ordered=dtype.ordered)
    return in_order(made.astype(public))


def _check_labels(column: pd.Series[Any], labels: Collection[Any] | None, dtype: Any) -> None:
    """Refuse labels whose spelling depends on how a program read the others."""
    if family_of(column.dtype) == "text" and labels is None:
        return
    known = {"text"} if labels is None else {_family_of_value(label) for label in labels}
    values = column.dtype.categories if isinstance(column.dtype, pd.CategoricalDtype) else column
    other = {_family_of_value(value) for value in _objects(values) if value is not None} - known
    if other:
        raise ColumnKindError(
            f"holds a {' and a '.join(sorted(other))} where the type {dtype} was stated and labels "
            f"are a {' or a '.join(sorted(known))}: a program chose this type by looking at all "
            "values, and how they were written is lost",
            fix="read them as what was stated, by vflsynth.frames.read_table(path, dtypes=...) or "
            "by dtype=... of the program; or state the type that they have, and list the labels",
            column=column.name,
        )


def _family_of_value(value: Any) -> Family:
    families: list[tuple[Any, Family]] = [
        (str, "text"),
        ((bool, np.bool_), "truth value"),
        ((Number, Decimal), "number"),
        ((date, np.datetime64), "time"),
        ((timedelta, np.timedelta64), "duration"),
    ]
    return next((family for kinds, family in families if isinstance(value, kinds)), "label")


def _objects(column: Any) -> list[Any]:
    """Return Python objects, None for what is missing."""
    missing = pd.isna(column)
    return [None if gone else value for value, gone in zip(column, missing, strict=True)]


def _read(column: pd.Series[Any], family: Family, dtype: Any) -> pd.Series[Any]:
    """Read text and objects value by value; ValueError, TypeError or ArithmeticError if not so."""
    if family in ("time", "duration"):
        return _read_times(column, family, dtype)
    ways: dict[Family, tuple[Callable[[Any], Any], str]] = {
        "whole number": (_whole, _widest(dtype)),
        "number": (_number, "float64"),
        "truth value": (_truth, "boolean"),
    }
    read, through = ways[family]
    values = [None if value is None else read(value) for value in _objects(column)]
    return pd.Series(values, column.index, through, column.name)


def _widest(dtype: Any) -> str:
    return "UInt64" if str(dtype).lower().startswith("u") else "Int64"


def _whole_numbers(column: pd.Series[Any], dtype: Any) -> pd.Series[Any]:
    """Convert to a type of whole numbers; ValueError if a number does not come out as it is."""
    if family_of(column.dtype) == "number" and bool((abs(column) >= _MOST_EXACT).any()):
        raise ValueError("whole numbers that have lost digits")
    wide = column.astype(_widest(dtype))  # type: ignore[call-overload]
    found: pd.Series[Any] = wide.astype(dtype)
    if not bool((found.dropna().astype(wide.dtype) == wide.dropna()).all()):
        raise ValueError("beyond the type")
    return found


def _whole(value: Any) -> int:
    if isinstance(value, str):
        if (found := _WHOLE.fullmatch(value.strip())) is not None:
            return int(found[1])
        value = _number(value)
    if isinstance(value, float | np.floating) and abs(float(value)) >= _MOST_EXACT:
        raise ValueError("a whole number that has lost digits")
    whole = int(value)
    if whole != value:
        raise ValueError("no whole number")
    return whole


def _number(value: Any) -> float:
    """Read text as pandas would if it alone were there: truth values are numbers, too."""
    return float(_TRUTH.get(value.strip().lower(), value) if isinstance(value, str) else value)


def _truth(value: Any) -> bool:
    number = _number(value)
    if number not in (0, 1):
        raise ValueError("neither true nor false")
    return bool(number)


def _read_times(column: pd.Series[Any], family: Family, dtype: Any) -> pd.Series[Any]:
    values = pd.Series(_objects(column), column.index, object, column.name)
    if any(_family_of_value(value) == "number" for value in values):
        raise TypeError("numbers are no times")
    if family == "duration":
        return pd.to_timedelta(values)
    zone = getattr(dtype, "tz", None)
    found: pd.Series[Any] = pd.to_datetime(values, format="ISO8601", utc=zone is not None)
    return found if zone is None else found.dt.tz_convert(zone)
