"""Tables that the three questions compare: real, synthetic and control records."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from vflsynth._validation import Number, check_parameters
from vflsynth.adversary.encoding import Attribute, Floats
from vflsynth.exceptions import ColumnMismatchError, ParameterError, PartyDataError

_LEAST_RECORDS = 20

KINDS = ("real", "control")


def checked(values: Mapping[str, Any], owner: str) -> dict[str, pd.DataFrame]:
    """Check parameters and tables; return these with the columns of the synthetic one."""
    rules = {
        "n_attacks": Number(10, whole=True),
        "n_neighbours": Number(1, whole=True),
        "tolerance": Number(0),
        "confidence": Number(0.5, 1, closed=(True, False)),
        "random_state": Number(0, whole=True),
    }
    check_parameters(owner, dict(values), {k: r for k, r in rules.items() if k in values})
    if "n_columns" in values:
        low, high = values["n_columns"]
        if not 1 <= low <= high:
            raise ParameterError(
                f"{owner}: n_columns must be two increasing numbers from 1, got {low!r}, {high!r}"
            )
    names = values["synthetic"].columns
    tables = {}
    for kind in ("synthetic", *KINDS):
        table = values[kind]
        missing = [name for name in names if name not in table.columns]
        if missing:
            raise ColumnMismatchError(
                f"absent from the {kind} table", fix="pass tables of one kind", column=missing[0]
            )
        if len(table) < _LEAST_RECORDS:
            raise PartyDataError(
                f"the {kind} table has {len(table)} records, too few to answer anything",
                fix=f"give at least {_LEAST_RECORDS}",
            )
        tables[kind] = table[names].reset_index(drop=True)
    return tables


def values_of(attribute: Attribute, frame: pd.DataFrame) -> Floats:
    """Numbers, or positions of labels, shape (row,); NaN where a number is missing."""
    if attribute.levels is None:
        return attribute.values(frame)
    return attribute.codes(frame).astype(np.float64)


def among(categorical: Collection[Hashable], columns: Sequence[Hashable]) -> list[Hashable]:
    """Return those of the columns that are to be read as labels."""
    return [name for name in categorical if name in columns]
