"""Distinct values of a column as Python objects, which tells True from 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from vflsynth.columns.arrays import Codes
from vflsynth.exceptions import ColumnKindError


def key_of(value: Any) -> tuple[bool, Any]:
    """Return a dictionary key that tells True from 1."""
    return isinstance(value, bool | np.bool_), value


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
    values = list(uniques)
    if column.dtype == np.dtype(object) and any(v in (0, 1) for v in values if _is_number(v)):
        return _separate_booleans(column, codes, values)
    return codes, values


def _is_number(value: Any) -> bool:
    return isinstance(value, bool | np.bool_ | int | float | np.number)


def _separate_booleans(
    column: pd.Series[Any], codes: Codes, values: list[Any]
) -> tuple[Codes, list[Any]]:
    """Undo that pandas takes True for 1 and False for 0 in columns of mixed objects."""
    boolean = np.fromiter((isinstance(v, bool | np.bool_) for v in column), np.bool_, len(column))
    pairs = np.where(codes < 0, -1, 2 * codes + boolean)
    new_codes, pairs_found = pd.factorize(pairs[pairs >= 0])
    result = np.full(len(codes), -1, dtype=np.intp)
    result[pairs >= 0] = new_codes
    separated = [bool(values[p // 2]) if p % 2 else values[p // 2] for p in pairs_found.tolist()]
    # A number that was first met as a boolean still looks like one.
    separated = [
        int(v) if not p % 2 and isinstance(v, bool | np.bool_) else v
        for v, p in zip(separated, pairs_found.tolist())
    ]
    return result, separated
