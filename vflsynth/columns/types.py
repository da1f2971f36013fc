"""Types of columns that were fixed before anybody looked at the records."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pandas as pd

from vflsynth.columns.arrays import numpy_dtype
from vflsynth.columns.base import naming
from vflsynth.columns.schema import PublicSchema
from vflsynth.exceptions import ColumnKindError, PartyDataError

_NULLABLE = {"b": "boolean", "i": "Int64", "u": "UInt64", "f": "float64"}


def with_public_types(
    frame: pd.DataFrame, schema: PublicSchema | None, *, party: str | None = None
) -> pd.DataFrame:
    """Give a table the types that its public schema states.

    Parameters
    ----------
    frame : DataFrame
        With its key column, if it has one; not modified.
    schema : PublicSchema, optional
    party : str, optional
        For error messages.

    Returns
    -------
    DataFrame

    Raises
    ------
    PartyDataError
        If nobody stated the type of a column.
    ColumnKindError
        If a column's values are not of the type that was stated.

    Notes
    -----
    Privacy: types that a program inferred from values are not public. What is published has the
    types of the schema, whatever the table's are.
    """
    if schema is not None and schema.dtypes == "given":
        return frame
    stated: dict[Hashable, Any] = {
        label: None if schema is None else schema.dtype_of(label) for label in frame.columns
    }
    missing = [label for label, dtype in stated.items() if dtype is None]
    if missing:
        proposed = {label: _proposal(frame[label].dtype) for label in missing}
        raise PartyDataError(
            f"the public schema does not say of which types the columns {missing} are, and types "
            "that were inferred from the records are not public: one blank can change them",
            fix=f"PublicSchema(dtypes={proposed!r}), or dtypes='given' if the table's own types "
            "were fixed without looking at the records, as parquet files and databases do",
            party=party,
        )
    typed = frame.copy(deep=False)
    for label, dtype in stated.items():
        with naming(party, label):
            try:
                typed[label] = frame[label].astype(dtype)
            except (TypeError, ValueError, OverflowError) as error:
                raise ColumnKindError(
                    f"its values are not all of the type {dtype} that public_schema states",
                    fix="state a type that can hold them; 'Int64' and 'boolean' hold blanks, "
                    "'int64' and 'bool' do not",
                    column=label,
                ) from error
    return typed


def _proposal(dtype: Any) -> Hashable:
    """Type that also holds blanks."""
    if isinstance(dtype, pd.CategoricalDtype):
        return "category"
    if pd.api.types.is_string_dtype(dtype) or pd.api.types.is_object_dtype(dtype):
        return "str"
    return _NULLABLE.get(numpy_dtype(dtype).kind, str(dtype))
