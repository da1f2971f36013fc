"""The types that tables may have; values, labels, types and parameters as JSON, and back exactly.

One rule for the types of all tables, wherever they come from:

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

Objects of Python become what all of them are, sparse columns dense ones. NumPy's, nullable and
Arrow's types of pandas stay what they are where the table names them. Everything else (numbers
beyond 64 bits, intervals, lists, values of several types in one column) cannot be written, and is
refused before anything is learned.

Plain JSON covers text, booleans, integers of any size and finite floats. Every other scalar becomes
an object with a single key that names its type, for example ``{"timestamp": [1577836800, "s",
"UTC"]}``. So do tuples, mappings and objects that a parameter may hold; a JSON list is a list.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pandas.api.extensions import ExtensionArray, ExtensionDtype

from vflsynth import registry
from vflsynth.exceptions import ArtefactError, ColumnKindError, ParameterError, TableFileError

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
    party, if two columns have the same name, Arrow cannot read the table, or it is a lazy one.
    """
    if not isinstance(table, pd.DataFrame):
        if hasattr(table, "__arrow_c_stream__") and not isinstance(table, pd.Series):
            return frame_of(_arrow_table(table, party), party)
        if hasattr(table, "collect"):
            raise TableFileError(
                f"a {type(table).__name__} has no rows before it is computed",
                fix="pass what its collect() returns",
                party=party,
            )
        return table
    found = {}
    for i, dtype in enumerate(table.dtypes):
        odd = isinstance(dtype, np.dtype) and (dtype == np.dtype(object) or not dtype.isnative)
        if odd or isinstance(dtype, pd.ArrowDtype | pd.SparseDtype):
            column: Any = table.iloc[:, i]
            if (made := logical(column, by_value=by_value)) is not column:
                found[i] = made
    if not found:
        return table
    frame = table.copy(deep=False)
    for i, made in found.items():
        frame.isetitem(i, made.array)
    return frame


def _arrow_table(table: Any, party: str | None) -> pa.Table:
    try:
        return pa.table(table)
    except pa.ArrowException as error:
        library = type(table).__module__.partition(".")[0]
        raise TableFileError(
            f"a table of {library} cannot be read as one of Arrow: {error}",
            fix="cast columns that Arrow has no type for, as integers of 128 bits, to another type",
            party=party,
        ) from error


def logical(column: pd.Series[Any], *, by_value: bool = True) -> pd.Series[Any]:
    """Return a column in one of the types above; the same one if it is, or can be of none."""
    dtype: Any = column.dtype
    if isinstance(dtype, pd.SparseDtype):
        return pd.Series(np.asarray(column.array), column.index, name=column.name)
    if isinstance(dtype, np.dtype) and not dtype.isnative:  # as other machines' files have it
        return column.astype(dtype.newbyteorder("="))
    if isinstance(dtype, pd.ArrowDtype):
        given = pa.chunked_array(pa.array(column.array))
        if pa.types.is_float16(given.type):  # which Arrow stores, and hardly computes with
            given = given.cast(pa.float32())
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
    plain = {*names}
    if types_are_given:  # those that pandas says it had in NumPy's types
        noted = (table.schema.pandas_metadata or {}).get("columns", [])
        plain = {own["field_name"] for own in noted if own["numpy_type"] in map(str, NULLABLE)}
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
        try:
            "".join(values.dropna().unique() if values.dtype == object else ()).encode()
        except UnicodeEncodeError:
            raise ColumnKindError(
                "holds text that no file could hold",
                fix="read it in the encoding that it was written in",
                column=column.name,
            ) from None
        return
    try:
        if _is_one(_logical(pa.chunked_array([pa.array(values, from_pandas=True)])).type):
            return
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        pass
    kinds = sorted({type(value).__name__ for value in values[~pd.isna(values)]})
    what = "whole numbers beyond 64 bits" if kinds == ["int"] else f"values of type {kinds[0]}"
    if len(kinds) > 1:
        what = f"values of several types ({', '.join(kinds)})"
    raise ColumnKindError(
        f"holds {what}",
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
            if kind.scale <= 0:
                return column.cast(pa.int64())
            return column.cast(pa.string()).cast(pa.float64())
        except pa.ArrowInvalid:  # beyond 64 bits
            return column
    return column


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


_GROUPS = ("mechanisms", "protections", "encoders", "parameters")
"""Groups of the registry whose members a parameter may hold."""

_LISTS = (list, range, np.ndarray, pd.Index, pd.Series, ExtensionArray)


def scalar_to_json(value: Any) -> Any:
    """Encode one label or value; TypeError for types without an exact form here, such as lists."""
    if isinstance(value, np.timedelta64):  # which is one of NumPy's whole numbers
        value = pd.Timedelta(value)
    elif isinstance(value, np.datetime64):
        value = pd.Timestamp(value)
    match value:
        case None | bool() | str():
            return value
        case np.bool_():
            return bool(value)
        case int() | np.integer():
            return int(value)
        case float() | np.floating():
            number = float(value)
            return number if math.isfinite(number) else {"float": repr(number)}
        case tuple():
            return {"tuple": [scalar_to_json(item) for item in value]}
        case decimal.Decimal():
            return {"decimal": str(value)}
    if value is pd.NA or value is pd.NaT:
        return {"missing": "NA" if value is pd.NA else "NaT"}
    if isinstance(value, datetime.datetime):
        stamp = pd.Timestamp(value)
        zone = None if stamp.tz is None else str(stamp.tz)
        return {"timestamp": [stamp.asm8.view("i8").item(), stamp.unit, zone]}
    if isinstance(value, datetime.timedelta):
        span = pd.Timedelta(value)
        return {"timedelta": [span.asm8.view("i8").item(), span.unit]}
    if isinstance(value, datetime.date):
        return {"date": value.isoformat()}
    raise TypeError(f"values of type {type(value).__name__} have no JSON form")


def scalar_from_json(content: Any) -> Any:
    """Decode `scalar_to_json`; ValueError for anything else."""
    if not isinstance(content, dict | list):
        return content
    match content:
        case {"float": str(text)}:
            return float(text)
        case {"tuple": list(items)}:
            return tuple(scalar_from_json(item) for item in items)
        case {"decimal": str(text)}:
            return decimal.Decimal(text)
        case {"missing": "NA"}:
            return pd.NA
        case {"missing": "NaT"}:
            return pd.NaT
        case {"timestamp": [int(count), str(unit), zone]}:
            stamp = pd.Timestamp(np.int64(count).view(f"M8[{unit}]"))
            return stamp if zone is None else stamp.tz_localize("UTC").tz_convert(zone)
        case {"timedelta": [int(count), str(unit)]}:
            return pd.Timedelta(np.int64(count).view(f"m8[{unit}]"))
        case {"date": str(text)}:
            return datetime.date.fromisoformat(text)
    raise ValueError(f"not an encoded value: {content!r}")


def dtype_to_json(dtype: Any) -> Any:
    """Encode a dtype; TypeError if it cannot be rebuilt, as one with an unnamed timezone."""
    content: Any
    if isinstance(dtype, pd.CategoricalDtype):
        listed = None if dtype.categories is None else index_to_json(dtype.categories)
        content = {"category": listed, "ordered": bool(dtype.ordered)}
    elif isinstance(dtype, pd.StringDtype):
        content = {"string": dtype.storage, "missing": "NA" if dtype.na_value is pd.NA else "nan"}
    elif isinstance(dtype, pd.ArrowDtype) and pa.types.is_string(dtype.pyarrow_dtype):
        content = {"arrow": "string"}  # "string[pyarrow]" would name another dtype
    else:
        content = str(dtype)
    try:
        same = dtype_from_json(content) == dtype
    except (TypeError, ValueError, NotImplementedError, KeyError):
        same = False
    if not same:
        raise TypeError(f"dtype {dtype} cannot be rebuilt from its description")
    return content


def dtype_from_json(content: Any) -> Any:
    """Decode `dtype_to_json`."""
    match content:
        case str():
            return pd.api.types.pandas_dtype(content)
        case {"category": dict() | None as listed, "ordered": bool(ordered)}:
            categories = None if listed is None else index_from_json(listed)
            return pd.CategoricalDtype(categories, ordered=ordered)
        case {"string": str(storage), "missing": "NA" | "nan" as missing}:
            return pd.StringDtype(storage, na_value=pd.NA if missing == "NA" else np.nan)
        case {"arrow": "string"}:
            return pd.ArrowDtype(pa.string())
    raise ValueError(f"not an encoded dtype: {content!r}")


def array_of(values: list[Any] | npt.NDArray[Any], dtype: Any) -> ExtensionArray:
    """Array of `values` with exactly `dtype`, also where NumPy or pandas would prefer another."""
    if isinstance(dtype, np.dtype) and dtype == np.dtype(object):
        objects = np.empty(len(values), dtype=object)
        objects[:] = values
        return pd.array(objects, dtype=dtype)
    own = getattr(dtype, "numpy_dtype", dtype)
    if own.kind in "iu":  # else a list may pass through float64 on its way to uint64
        values = np.array(values, dtype=own)
    array: ExtensionArray = pd.array(values, dtype=dtype)
    return array


def index_to_json(index: pd.Index[Any]) -> dict[str, Any]:
    """Encode an index with its labels, dtype and name."""
    name = scalar_to_json(index.name)
    if isinstance(index, pd.RangeIndex):
        return {"range": [index.start, index.stop, index.step], "name": name}
    values = [scalar_to_json(value) for value in index]
    return {"dtype": dtype_to_json(index.dtype), "values": values, "name": name}


def index_from_json(content: dict[str, Any]) -> pd.Index[Any]:
    """Decode `index_to_json`."""
    name = scalar_from_json(content["name"])
    if "range" in content:
        start, stop, step = content["range"]
        return pd.RangeIndex(start, stop, step, name=name)
    values = [scalar_from_json(value) for value in content["values"]]
    dtype = dtype_from_json(content["dtype"])
    array = array_of(values, dtype)
    index: pd.Index[Any] = pd.Index(array, dtype=dtype, name=name, tupleize_cols=False)
    return index


def to_json(value: Any, where: str = "value") -> Any:
    """Encode a parameter's value, of JSON's types.

    It is None, a number, text, a label, time or type of pandas; a tuple, list, array or mapping of
    such; or an object of a registered class whose parameters are such. ParameterError, which calls
    it `where`, for anything else. Arrays come back as lists, everything else as what it was.
    """
    if isinstance(value, Mapping):
        return {
            "mapping": [
                [to_json(key, f"a key of {where}"), to_json(item, f"{where}[{key!r}]")]
                for key, item in value.items()
            ]
        }
    if isinstance(value, np.dtype | ExtensionDtype):
        return {"dtype": dtype_to_json(value)}
    if isinstance(value, (tuple, *_LISTS)):
        items = [to_json(item, f"{where}[{i}]") for i, item in enumerate(value)]
        return {"tuple": items} if isinstance(value, tuple) else items
    if hasattr(value, "get_params") or dataclasses.is_dataclass(value):
        name = registry.full_name(type(value))
        if not registry.is_registered(type(value)):
            raise ParameterError(
                f"{where} cannot be saved: {name} is not registered; write "
                "@vflsynth.registry.register above the class, or call it on the class"
            )
        return {"object": name, "parameters": parameters_to_json(value, where)}
    try:
        return scalar_to_json(value)
    except TypeError as error:
        raise ParameterError(
            f"{where} cannot be saved: {error}; give numbers, text, times, tuples, lists or "
            "mappings of them, or an object of a registered class"
        ) from error


def from_json(content: Any) -> Any:
    """Decode `to_json`.

    ArtefactError if it names a class that is not registered, or is not what `to_json` writes.
    """
    try:
        match content:
            case list():
                return [from_json(item) for item in content]
            case {"tuple": list(items)}:
                return tuple(from_json(item) for item in items)
            case {"mapping": list(pairs)}:
                return {from_json(key): from_json(item) for key, item in pairs}
            case {"dtype": dtype}:
                return dtype_from_json(dtype)
            case {"object": str(name), "parameters": dict(parameters)}:
                return registry.named_in_file(name, *_GROUPS)(**parameters_from_json(parameters))
        return scalar_from_json(content)
    except (TypeError, ValueError) as error:
        raise ArtefactError(str(error)) from error


def parameters_to_json(owner: Any, where: str = "") -> dict[str, Any]:
    """Encode what a scikit-learn estimator or a dataclass was made with.

    A ``random_state`` that is a generator becomes None: its place in its sequence is not known to
    those who load it. `where` is what the owner is called in errors, by default its class.
    """
    if hasattr(owner, "get_params"):
        values = owner.get_params(deep=False)
    else:
        values = {field.name: getattr(owner, field.name) for field in dataclasses.fields(owner)}
    if not isinstance(values.get("random_state", 0), int | np.integer):
        values["random_state"] = None
    return {n: to_json(v, f"{where or type(owner).__name__}.{n}") for n, v in values.items()}


def parameters_from_json(content: Mapping[str, Any]) -> dict[str, Any]:
    """Decode `parameters_to_json`; errors as of `from_json`."""
    return {name: from_json(value) for name, value in content.items()}
