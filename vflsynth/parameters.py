"""Parameters of estimators, and of the objects they hold, as JSON and back.

Scalars are written as `vflsynth.frames.codec.scalar_to_json` writes labels. Tuples, mappings and
objects are JSON objects whose keys say what they are; a JSON list is a list.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.extensions import ExtensionArray, ExtensionDtype

from vflsynth import registry
from vflsynth.exceptions import ArtefactError, ParameterError
from vflsynth.frames.codec import (
    dtype_from_json,
    dtype_to_json,
    scalar_from_json,
    scalar_to_json,
)

_GROUPS = ("mechanisms", "protections", "encoders", "parameters")
"""Groups of the registry whose members a parameter may hold."""

_LISTS = (list, range, np.ndarray, pd.Index, pd.Series, ExtensionArray)


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
