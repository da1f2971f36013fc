"""One rule for the types of all tables, wherever they come from.

======================  ==========================================  ============================
what it is              types of sources                            held, and written, as
======================  ==========================================  ============================
truth value             bool, boolean                               bool; boolean with blanks
whole number            integers of 8 to 64 bits, decimals without  the same width; nullable with
                        digits behind the point                     blanks, or if a file says so
number                  floats; decimals, each the nearest float    float32, float64
text                    str, string, large_string, string_view;     text; times of day as
                        times of day                                ``08:30:00``
label                   category, dictionary                        category
day, point in time      date32, date64, timestamp, datetime, date;  datetime64 of the source's
                        with or without a zone                      unit and zone; days ``[s]``
duration                duration, timedelta                         timedelta64; in csv ISO 8601
nothing                 null, only blanks                           the type of the model
======================  ==========================================  ============================

Objects of Python become what all of them are. NumPy's, nullable and Arrow's types of pandas stay
what they are where the table names them. Everything else (numbers beyond 64 bits, intervals, lists,
values of several types in one column) cannot be written, and is refused before anything is learned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from vflsynth.exceptions import ColumnKindError, TableFileError

Family = Literal["text", "whole number", "number", "truth value", "time", "duration", "label"]

NULLABLE = {
    pa.bool_(): pd.BooleanDtype(),
    pa.int8(): pd.Int8Dtype(),
    pa.int16(): pd.Int16Dtype(),
    pa.int32(): pd.Int32Dtype(),
    pa.int64(): pd.Int64Dtype(),
    pa.uint8(): pd.UInt8Dtype(),
    pa.uint16(): pd.UInt16Dtype(),
    pa.uint32(): pd.UInt32Dtype(),
    pa.uint64(): pd.UInt64Dtype(),
}


def as_frame(table: Any, party: str | None = None, *, by_value: bool = True) -> Any:
    """Return a table of pandas, Arrow or Polars as a DataFrame of the types above.

    It may be anything with ``__arrow_c_stream__``, Arrow's PyCapsule interface; all else is
    returned as it is. `by_value` says whether objects become what all of them are, not for private
    fits: one value would decide about the type of all. Raises TableFileError, which names the
    party, if two columns have the same name.
    """
    if not isinstance(table, pd.DataFrame):
        has_stream = hasattr(table, "__arrow_c_stream__") and not isinstance(table, pd.Series)
        return frame_of(pa.table(table), party) if has_stream else table
    found = {}
    for i, dtype in enumerate(table.dtypes):
        if isinstance(dtype, pd.ArrowDtype | pd.SparseDtype) or dtype == np.dtype(object):
            column: Any = table.iloc[:, i]
            if (made := logical(column, by_value=by_value)) is not column:
                found[i] = made
    if not found:
        return table
    frame = table.copy(deep=False)
    for i, made in found.items():
        frame.isetitem(i, made.array)
    return frame


def logical(column: pd.Series[Any], *, by_value: bool = True) -> pd.Series[Any]:
    """Return a column in one of the types above; the same one if it is, or can be of none."""
    dtype: Any = column.dtype
    if isinstance(dtype, pd.SparseDtype):
        return pd.Series(np.asarray(column.array), column.index, name=column.name)
    if isinstance(dtype, pd.ArrowDtype):
        given = pa.chunked_array(pa.array(column.array))
    elif dtype != np.dtype(object) or not by_value or _is_text(column):
        return column
    else:
        try:
            given = pa.chunked_array([pa.array(column, from_pandas=True)])
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            return column
    made = _logical(given)
    is_held = isinstance(dtype, pd.ArrowDtype) and dtype.pyarrow_dtype == made.type
    if not _is_one(made.type) or (is_held and not pa.types.is_dictionary(made.type)):
        return column
    (values,) = (own for _, own in frame_of(pa.table({"": made}), types_are_given=False).items())
    return pd.Series(values.array, column.index, name=column.name)


def frame_of(
    table: pa.Table, party: str | None = None, *, types_are_given: bool = True
) -> pd.DataFrame:
    """Convert a table of Arrow, with what pandas noted in it of index and column labels.

    `types_are_given` says that a file or a program fixed the types, which then do not depend on
    whether a value is missing: integers and truth values are nullable, but where pandas wrote the
    table from columns that were not. TableFileError if two columns have the same name.
    """
    names = table.column_names
    check_names(names, party)
    for i, name in enumerate(names):
        if (made := _logical(table[i])).type != table.schema.field(i).type:
            table = table.set_column(i, name, made)
    frame: pd.DataFrame = table.to_pandas()
    plain = _numpy_columns(table) if types_are_given else {*names}
    for field in table.schema:
        name, dtype = field.name, NULLABLE.get(field.type)
        if dtype is None or name not in frame or not isinstance(frame[name].dtype, np.dtype):
            continue
        if name not in plain or table[name].null_count:
            frame[name] = table[name].to_pandas(types_mapper=NULLABLE.get).array
    return frame


def check_names(names: list[str], party: str | None) -> None:
    """Refuse a table with two columns of one name, with TableFileError."""
    if len(set(names)) < len(names):
        raise TableFileError(
            "several columns have the same name",
            fix="rename all but one",
            party=party,
            column=next(name for name in names if names.count(name) > 1),
        )


def check_can_be_written(column: pd.Series[Any]) -> None:
    """Refuse a column whose values no file could hold, with ColumnKindError."""
    dtype: Any = column.dtype
    values = dtype.categories if isinstance(dtype, pd.CategoricalDtype) else column
    if values.dtype.kind in "biumM" or _is_text(values):
        return
    try:
        if _is_one(_logical(pa.chunked_array([pa.array(values, from_pandas=True)])).type):
            return
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        pass
    kinds = sorted({type(value).__name__ for value in values[~pd.isna(values)]})
    what = "whole numbers beyond 64 bits" if kinds == ["int"] else f"values of type {kinds[0]}"
    raise ColumnKindError(
        f"holds values of several types ({', '.join(kinds)})"
        if len(kinds) > 1
        else f"holds {what}",
        fix="no file could hold these in one column: convert it to text with .astype('str'), or to "
        "numbers or times, or drop it",
        column=column.name,
    )


def _is_text(values: Any) -> bool:
    """Whether values are text, or none at all."""
    return pd.api.types.infer_dtype(values, skipna=True) in ("string", "empty")


def _is_one(kind: pa.DataType) -> bool:
    """Whether a type is one of those above."""
    if pa.types.is_dictionary(kind):
        return _is_one(kind.value_type)
    types = pa.types
    simple = (types.is_boolean, types.is_integer, types.is_floating, types.is_string)
    return any(is_one(kind) for is_one in (*simple, types.is_timestamp, types.is_duration))


def _logical(column: Any) -> Any:
    """Cast a column, or an array, to one of the types above; the same if it can be of none."""
    kind, types = column.type, pa.types
    if types.is_dictionary(kind) and not _is_one(kind):
        chunks = column.unify_dictionaries().chunks
        values = [pa.DictionaryArray.from_arrays(c.indices, _logical(c.dictionary)) for c in chunks]
        return pa.chunked_array(values) if values else column.cast(pa.string())
    if types.is_time(kind):
        return pc.replace_substring_regex(column.cast(pa.string()), r"\.0+$", "")
    if types.is_large_string(kind) or types.is_string_view(kind):
        return column.cast(pa.string())
    if types.is_date(kind):
        return column.cast(pa.timestamp("s"))
    if types.is_decimal(kind):
        try:
            return (
                column.cast(pa.int64())
                if kind.scale <= 0
                else column.cast(pa.string()).cast(pa.float64())
            )
        except pa.ArrowInvalid:  # beyond 64 bits
            return column
    return column


def _numpy_columns(table: pa.Table) -> set[str]:
    """Return the columns that pandas says it had in NumPy's types."""
    columns = (table.schema.pandas_metadata or {}).get("columns", [])
    return {own["field_name"] for own in columns if own["numpy_type"] in map(str, NULLABLE)}


def family_of(dtype: Any) -> Family:
    """Return what a dtype holds; "label" for categories and objects, which may hold anything."""
    if isinstance(dtype, pd.CategoricalDtype) or pd.api.types.is_object_dtype(dtype):
        return "label"
    tests: dict[Family, Callable[[Any], bool]] = {
        "truth value": pd.api.types.is_bool_dtype,
        "whole number": pd.api.types.is_integer_dtype,
        "number": pd.api.types.is_numeric_dtype,
        "time": pd.api.types.is_datetime64_any_dtype,
        "duration": lambda dtype: dtype.kind == "m",  # of NumPy and of Arrow
        "text": pd.api.types.is_string_dtype,
    }
    return next((family for family, is_one in tests.items() if is_one(dtype)), "label")


def places_in_order(values: Sequence[Any]) -> list[int]:
    """Return the positions that sort values, which may be of several types."""
    places = range(len(values))
    try:
        return sorted(places, key=values.__getitem__)
    except TypeError:
        return sorted(places, key=lambda i: (type(values[i]).__name__, repr(values[i])))
