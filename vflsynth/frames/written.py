"""Columns of text that hold numbers or dates as another country writes them.

A column is converted only if all its values are written in one way that has one meaning:
``1.234,5`` but not ``1,234`` alone; ``31.12.2024``, and ``12/31/2024`` where some day is above 12.
"""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

from vflsynth.exceptions import PublishingWarning, warn_user

_NUMBER = r"[+-]?(?:\d+|\d{1,3}(?:\.\d{3})+)(?:,\d+)?"
_MAY_BE_THOUSANDS = r"[+-]?\d{1,3},\d{3}"
_WITH_UNIT = rf"(?:{_NUMBER}|[+-]?[\d,]*\.?\d+)\s*[%€$£]|[%€$£]\s*(?:{_NUMBER}|[+-]?[\d,]*\.?\d+)"
_DATE = re.compile(r"(\d{1,2})([./-])(\d{1,2})\2(\d{4})(?: (\d{1,2}:\d{2})(:\d{2})?)?")
_DURATION = (
    r"-?P(?=[\dT-])(?:-?\d+D)?(?:T[\d.HMS-]+)?|-?\d+ days?(?: [+-]?\d+:\d{2}:\d{2}(?:\.\d+)?)?"
)
_CODE = r"\d+(?:[eE]\d+)?"
_ANY_DATE = r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}.*|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}.*"


def with_values(frame: pd.DataFrame, party: str | None, *, commas: bool) -> pd.DataFrame:
    """Turn such columns, read from a file without types, into numbers and dates, and warn of it.

    `commas` says whether decimal commas are looked for.
    """
    made = frame.copy(deep=False)
    read: dict[str, list[str]] = {}
    left: dict[str, list[str]] = {}
    for label in frame:
        column = frame[label]
        if not pd.api.types.is_string_dtype(column.dtype) or not column.notna().any():
            continue
        if commas and (numbers := _numbers(column)) is not None:
            made[label] = numbers
            read.setdefault("numbers with a decimal comma", []).append(repr(label))
        elif (dates := _dates(column)) is not None:
            made[label], what = dates
            read.setdefault(what, []).append(repr(label))
        elif column.dropna().str.fullmatch(_DURATION).all():
            spans = pd.to_timedelta(column)
            whole = not column.str.contains(".", regex=False, na=False).any()
            made[label] = spans.astype("timedelta64[s]" if whole else "timedelta64[ns]")
        elif (doubt := doubts(column)) is not None:
            left.setdefault(doubt, []).append(repr(label))
    whose = "" if party is None else f"party {party!r}: "
    if read:
        said = "; ".join(f"{what}: {', '.join(labels)}" for what, labels in read.items())
        warn_user(
            f"{whose}text was read as {said}. Published are decimal points and ISO dates. Declare "
            "what holds labels categorical",
            PublishingWarning,
        )
    for doubt, labels in left.items():
        columns = f"column{'s' * (len(labels) > 1)} {', '.join(labels)}"
        warn_user(f"{whose}{columns}, read as text: {doubt}", PublishingWarning)
    return made


def doubts(column: pd.Series[Any]) -> str | None:
    """Say why a column of text may be one of numbers or dates; None if nothing looks like it."""
    if not pd.api.types.is_string_dtype(column.dtype):
        return None
    values = column.dropna().str.strip()
    if not len(values):
        return None
    if values.str.fullmatch(_MAY_BE_THOUSANDS).all():
        return (
            "numbers with a decimal comma, or with commas between thousands. Fix: decimal = ',' in "
            "a .toml file that says where the table is, or no commas"
        )
    if values.str.fullmatch(_WITH_UNIT).all():
        return "numbers with a sign or unit. Fix: keep the number alone"
    if values.str.fullmatch(_CODE).all() and values.str.contains("[eE]").any():
        return "codes of digits and an e. Fix, if they are numbers: write 100000 in place of 1e5"
    if values.str.fullmatch(_ANY_DATE).all():
        return (
            "dates in several forms, or of which day and month cannot be told apart. Fix: write "
            "them as 2024-12-31"
        )
    return None


def _numbers(column: pd.Series[Any]) -> pd.Series[Any] | None:
    values = column.str.strip()
    there = values.dropna()
    with_comma = there[there.str.contains(",", regex=False)]
    if (
        not len(with_comma)
        or not there.str.fullmatch(_NUMBER).all()
        or with_comma.str.fullmatch(_MAY_BE_THOUSANDS).all()
    ):
        return None
    plain = values.str.replace(".", "", regex=False).str.replace(",", ".", regex=False)
    return pd.to_numeric(plain).astype("float64")


def _dates(column: pd.Series[Any]) -> tuple[pd.Series[Any], str] | None:
    """Dates, and in words how they are written."""
    values = column.str.strip()
    parts = values.dropna().str.extract(_DATE)
    marks = set(parts[1]) if len(parts) else {None}
    mixed = any(parts[k].notna().nunique() != 1 for k in (4, 5))  # with times and without
    if len(marks) != 1 or parts[0].isna().any() or mixed:
        return None
    first, second = (parts[k].astype("int64").max() for k in (0, 2))
    (mark,) = marks
    if mark != "." and (first > 12) == (second > 12):
        return None
    day_first = mark == "." or first > 12
    time = ("" if parts[4].isna().all() else " %H:%M") + ("" if parts[5].isna().all() else ":%S")
    order = "%d{0}%m{0}%Y" if day_first else "%m{0}%d{0}%Y"
    found = pd.to_datetime(values, format=order.format(mark) + time, errors="coerce")
    if found.notna().sum() != len(parts):
        return None
    words = f"dates, {'day' if day_first else 'month'} first"
    return found.astype("datetime64[s]"), words
