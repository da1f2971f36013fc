"""Types of columns that were fixed before anybody looked at the records."""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import Any

import pandas as pd

from vflsynth.columns.arrays import numpy_dtype
from vflsynth.columns.base import naming
from vflsynth.columns.schema import Categories, PublicSchema
from vflsynth.exceptions import PartyDataError
from vflsynth.frames.alignment import only_counts_rows
from vflsynth.frames.typed import in_order, readable, with_type

_NULLABLE = {"b": "boolean", "i": "Int64", "u": "UInt64", "f": "float64"}


def with_public_types(
    frame: pd.DataFrame,
    schema: PublicSchema | None,
    key: Hashable = None,
    *,
    party: str | None = None,
) -> pd.DataFrame:
    """Give a table the types that its public schema states; what is not of them is missing.

    The frame, with its key column if it has one, is not modified. PartyDataError if nobody stated
    the type of a column; ColumnKindError if a key is not of the type that was stated.

    Privacy: types that a program inferred from values are not public, and neither is what became of
    all values because of one (`vflsynth.frames.typed`). What is published has the types of the
    schema, or those beside them that hold blanks, whatever the table's are; categories without an
    order are sorted. One value that is not of its column's type must neither end a run nor be
    counted aloud: it is missing, and the owner alone is warned (`OwnTableWarning`).
    """
    if schema is not None and schema.dtypes == "given":
        typed = frame.copy(deep=False)
        for name in frame.columns:
            typed[name] = in_order(frame[name])
        return typed
    stated: dict[Hashable, Any] = {
        label: None if schema is None else schema.dtype_of(label) for label in frame.columns
    }
    missing = [label for label, dtype in stated.items() if dtype is None]
    if missing:
        proposed = {label: type_with_blanks(frame[label].dtype) for label in missing}
        raise PartyDataError(
            f"the public schema does not say of which types the columns {missing} are, and types "
            "that were inferred from the records are not public: one blank can change them",
            fix=f"PublicSchema(dtypes={proposed!r}), or dtypes='given' if the table's own types "
            "were fixed without looking at the records, as parquet files and databases do",
            party=party,
        )
    assert schema is not None, "it states all types"
    typed = frame.copy(deep=False)
    of_owner = partial(readable, party=party)
    for label, dtype in stated.items():
        public = schema.get(label)
        labels = public.values if isinstance(public, Categories) else None
        with naming(party, label):
            read = with_type if label == key else of_owner
            typed[label] = read(frame[label], dtype, labels)
    return typed.set_axis(_public_index(frame.index, schema))


def _public_index(index: pd.Index, schema: PublicSchema) -> pd.Index:
    """Return the index, by which records match if there is no key column, in a public type.

    If nobody stated it, keys are minted as text, as those of objects are: that all are numbers, or
    consecutive ones, was found out by looking at all of them.
    """
    if isinstance(index, pd.MultiIndex) or only_counts_rows(index):
        return index
    dtype = schema.dtype_of(index.name) if index.name is not None else None
    if dtype is None:
        found: pd.Index = pd.Index(index, dtype=object)
    else:
        found = pd.Index(with_type(index.to_series(), dtype), name=index.name)
    return found


def type_with_blanks(dtype: Any) -> Hashable:
    """Return the type of a column that may also hold blanks.

    Examples
    --------
    >>> type_with_blanks(pd.Series([1, 2]).dtype)
    'Int64'
    """
    if isinstance(dtype, pd.CategoricalDtype):
        return "category"
    if pd.api.types.is_string_dtype(dtype) or pd.api.types.is_object_dtype(dtype):
        return "str"
    return _NULLABLE.get(numpy_dtype(dtype).kind, str(dtype))
