"""Conditions on the command line: ``age=30..40``, ``marital=Single,Divorced``, ``income=``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vflsynth.columns import Range
from vflsynth.columns.wanted import Domain, value_from_text
from vflsynth.exceptions import ParameterError


def condition_of(text: str, columns: Mapping[Any, Domain]) -> tuple[Any, Any]:
    """Return the column, and the value, values or Range, of a condition.

    Raises ParameterError if it names no column, or a value that is not of the column's type.
    """
    name, sign, asked = text.partition("=")
    label = next((column for column in columns if str(column) == name.strip()), None)
    if not sign or label is None:
        raise ParameterError(
            f"--where {text!r} must be COLUMN=VALUE, COLUMN=VALUE,VALUE or COLUMN=LOW..HIGH, "
            f"with a column of {', '.join(map(str, columns))}"
        )
    column, asked = columns[label], asked.strip()
    try:
        try:
            return label, value_from_text(column, asked)  # also where it has a comma or two dots
        except ValueError:
            pass
        low, dots, high = asked.partition("..")
        if dots:
            return label, Range(*(value_from_text(column, end.strip()) for end in (low, high)))
        return label, [value_from_text(column, value.strip()) for value in asked.split(",")]
    except ValueError:
        raise ParameterError(
            f"--where {text!r}: what is asked for is no value of column {label!r}, "
            f"which is of type {column.dtype}. Fix: give values as sampled records have them"
        ) from None
