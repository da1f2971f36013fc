"""Values, labels, types, and parameters of estimators as JSON, and back exactly.

Plain JSON covers text, booleans, integers of any size and finite floats. Every other scalar becomes
an object with a single key that names its type, for example ``{"timestamp": [1577836800, "s",
"UTC"]}``. So do tuples, mappings and objects that a parameter may hold; a JSON list is a list.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
from pandas.api.extensions import ExtensionArray, ExtensionDtype

from vflsynth import registry
from vflsynth.exceptions import ArtefactError, ParameterError

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
        case {"string": str(storage), "missing": "NA"}:
            return pd.StringDtype(storage)
        case {"string": str(storage), "missing": "nan"}:
            return pd.StringDtype(storage, na_value=np.nan)
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
