"""Tables of Arrow, and of whatever speaks its interface, such as Polars, as pandas frames."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa

from vflsynth.exceptions import TableFileError


def as_frame(table: Any, party: str | None = None) -> Any:
    """Return a table of Arrow or Polars as a DataFrame; anything else as it is.

    Parameters
    ----------
    table : pyarrow.Table, polars.DataFrame, ...
        Anything with ``__arrow_c_stream__``, Arrow's PyCapsule interface.
    party : str, optional
        Whose table it is; error messages name it.

    Raises
    ------
    TableFileError
        If two columns have the same name.
    """
    if isinstance(table, pd.DataFrame) or not hasattr(table, "__arrow_c_stream__"):
        return table
    return frame_of(pa.table(table), party, types_are_given=True)


def frame_of(
    table: pa.Table, party: str | None = None, *, types_are_given: bool = False
) -> pd.DataFrame:
    """Convert a table of Arrow: integers and truth values with missing ones stay what they are.

    Parameters
    ----------
    table : pyarrow.Table
    party : str, optional
        For error messages.
    types_are_given : bool, default=False
        Whether a file or a program fixed the types, which then do not depend on whether a value is
        missing: integers and truth values are nullable, but where pandas wrote the table from
        columns that were not.

    Raises
    ------
    TableFileError
        If two columns have the same name.
    """
    names = table.column_names
    if len(set(names)) < len(names):
        raise TableFileError(
            "several columns have the same name",
            fix="rename all but one",
            party=party,
            column=next(name for name in names if names.count(name) > 1),
        )
    plain = numpy_columns(table) if types_are_given else {*names}
    return pd.DataFrame({name: series_of(table[name], name in plain) for name in names})


def series_of(column: pa.ChunkedArray, plain: bool = True) -> pd.Series[Any]:
    """Convert a column, if it may be plain to NumPy types; dates become times, decimals floats."""
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("s"))
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    types = {} if plain and not column.null_count else NULLABLE
    series: pd.Series[Any] = column.to_pandas(types_mapper=types.get)
    return series


def numpy_columns(table: pa.Table) -> set[str]:
    """Return the columns that pandas says it had in NumPy's types, in which nothing is missing."""
    columns = (table.schema.pandas_metadata or {}).get("columns", [])
    return {own["field_name"] for own in columns if own["numpy_type"] in map(str, NULLABLE)}


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
