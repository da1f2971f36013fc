"""Columns that should not be modelled as they are: identifiers, names and free text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from vflsynth.columns.arrays import numpy_dtype

_NEARLY_ALL, _LOOKED_AT = 0.9, 2000
_FEWEST_DISTINCT, _FEWEST_RECORDS = 5, 50
_FEWEST_NAMES = 20
_SHARED_BY = 5
"""Records of a usual name that is nobody's own, in a column that says no more than "name"."""

_DATE = re.compile(r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})([ T].*)?")
_SHAPES: Mapping[str, re.Pattern[str]] = {
    "e-mail addresses": re.compile(r"[^@\s]+@[^@\s]+\.[^@\s.]+"),
    "social-security numbers": re.compile(r"\d{3}-\d{2}-\d{4}"),
    "universally unique identifiers": re.compile(
        r"\{?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\}?", re.IGNORECASE
    ),
    "telephone numbers": re.compile(r"(\+\d|\(\d|0\d|\d{3}[-. ])(?=(\D*\d){5,13}\D*$)[\d ()./-]*"),
}
_LABELS: Mapping[str, re.Pattern[str]] = {
    "names of people": re.compile(
        r"(.*[ _-])?(sur|last|first|given|family|full|middle|maiden)[ _-]?names?", re.IGNORECASE
    ),
    "names, of people perhaps": re.compile(r"names?", re.IGNORECASE),
    "telephone numbers": re.compile(
        r"(.*[ _-])?(tele)?(phone|mobile|fax)([ _-].*)?", re.IGNORECASE
    ),
    "social-security numbers": re.compile(r"(.*[ _-])?(ssn|social[ _-]?security.*)", re.IGNORECASE),
}
_KNOWN_TO_OTHERS = re.compile(
    r"(.*[ _.-])?(age|sex|gender|birth\w*|dob|zip\w*|post(al)?[ _-]?codes?|postcodes?|plz|city|"
    r"town|"
    r"municipality|county|state|province|region|country|nationality|citizenship|race|ethnicity|"
    r"marital.*|occupation|profession|job|education.*|degree|household.*|children)([ _.-].*)?",
    re.IGNORECASE,
)
_INDEX = re.compile(r"Unnamed: \d+|level_\d+|index|", re.IGNORECASE)

_WORDS = 5.0
"""Words per value, on average, of free text."""

_DIGITS = 8
"""Of a number that is an identifier if nearly all have as many and nearly all differ."""


@dataclass(frozen=True)
class Recognised:
    """What a column looks like, in words, and its role: "identifier" or "free text"."""

    what: str
    role: str


def is_known_to_others(label: object) -> bool:
    """Whether a column's name says what neighbours or colleagues know of a person, such as age."""
    return _KNOWN_TO_OTHERS.fullmatch(str(label)) is not None


def recognise(column: pd.Series[Any]) -> Recognised | None:
    """Say whether a column's values identify somebody, or are free text; None if not.

    E-mail addresses, telephone and social-security numbers and universally unique identifiers by
    their shape (nine in ten of at most 2,000 distinct values); names of people by the column's
    label, where it is "name" alone only if most names are those of fewer than five records; text of
    five words and more; and whole numbers of eight digits and more that are nearly all different.
    """
    dtype, label = column.dtype, str(column.name)
    kinds = dtype.categories.dtype if isinstance(dtype, pd.CategoricalDtype) else dtype
    if pd.api.types.is_bool_dtype(kinds):
        return None
    if pd.api.types.is_numeric_dtype(kinds):
        return _number(column, label)
    if not (pd.api.types.is_string_dtype(kinds) or kinds == np.dtype(object)):
        return None
    present = column.dropna().head(50 * _LOOKED_AT)
    values = list(dict.fromkeys(v for v in present if isinstance(v, str)))
    if len(values) < _FEWEST_DISTINCT or len(values) < _NEARLY_ALL * _n_distinct(column):
        return None
    values = values[:_LOOKED_AT]
    for what, shape in _SHAPES.items():
        hits = sum(
            bool(shape.fullmatch(value.strip())) and not _DATE.fullmatch(value.strip())
            for value in values
        )
        if hits >= _NEARLY_ALL * len(values):
            return Recognised(what, "identifier")
    words = float(np.mean([len(value.split()) for value in values]))
    if words >= _WORDS and len(values) >= 0.5 * min(column.count(), _LOOKED_AT):
        return Recognised("free text", "free text")
    for what, pattern in _LABELS.items():
        if len(values) < _FEWEST_NAMES or not pattern.fullmatch(label):
            continue
        if "perhaps" in what and column.value_counts().median() >= _SHARED_BY:
            continue  # products, stations: most of them are named by several records
        return Recognised(what, "identifier")
    return None


def is_index(column: pd.Series[Any]) -> bool:
    """Whether a column is the row number that a file kept of a table's index."""
    if not _INDEX.fullmatch(str(column.name)) or not pd.api.types.is_integer_dtype(column.dtype):
        return False
    values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    return len(values) > 1 and bool((np.diff(values) == 1).all())


def _n_distinct(column: pd.Series[Any]) -> int:
    try:
        return int(column.dropna().head(50 * _LOOKED_AT).nunique())
    except TypeError:  # lists and the like, which are refused elsewhere
        return len(column)


def _number(column: pd.Series[Any], label: str) -> Recognised | None:
    kind = getattr(numpy_dtype(column.dtype), "kind", "O")
    if kind not in "iuf":
        return None
    values = column.dropna().to_numpy(dtype=np.float64)
    whole = np.isfinite(values) & (values == np.floor(values))
    if len(values) < _FEWEST_RECORDS or not whole.all():
        return None
    digits = np.floor(np.log10(np.maximum(np.abs(values), 1.0))) + 1
    usual = np.bincount(digits.astype(np.int64)).argmax()
    same = float((digits == usual).mean()) >= _NEARLY_ALL
    for what in ("telephone numbers", "social-security numbers"):
        if same and usual >= _DIGITS - 1 and _LABELS[what].fullmatch(label):
            return Recognised(what, "identifier")
    distinct = len(np.unique(values)) >= _NEARLY_ALL * len(values)
    # An identifier uses its digits evenly; amounts of eight digits crowd at the lower end.
    spread = np.ptp(values) > 0.5 * 10.0 ** (usual - 1)
    if kind != "f" and same and distinct and usual >= _DIGITS and spread and usual <= 16:
        return Recognised(f"numbers of {usual} digits that are nearly all different", "identifier")
    return None
