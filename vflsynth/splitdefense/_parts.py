"""Parts of a classifier: small parameter objects that can be nested, cloned, searched and saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from sklearn.base import BaseEstimator

from vflsynth._validation import Rule, check_parameters
from vflsynth.exceptions import ArtefactError

_CLASSES: dict[str, type[Part]] = {}


class Part(BaseEstimator):  # type: ignore[misc]
    """Parameters of one exchangeable part of a classifier; holds nothing learned.

    ``get_params``, ``set_params`` and ``clone`` reach into it, so that a grid search can go over,
    for example, ``protection__power_scale``.
    """

    _rules: ClassVar[Mapping[str, Rule]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        _CLASSES[cls.__name__] = cls

    def check(self) -> None:
        """Check the parameters, and those of nested parts.

        Raises
        ------
        ParameterError
        """
        parameters = self.get_params(deep=False)
        check_parameters(type(self).__name__, parameters, self._rules)
        for value in parameters.values():
            for part in value if isinstance(value, (list, tuple)) else [value]:
                if isinstance(part, Part):
                    part.check()

    def to_dict(self) -> dict[str, Any]:
        """Class and parameters, JSON-safe; `part_from_dict` undoes it."""
        parameters = self.get_params(deep=False)
        return {"part": type(self).__name__, **{k: to_plain(v) for k, v in parameters.items()}}

    def equals(self, other: Self) -> bool:
        """Whether the other one is of the same class with the same parameters."""
        return self.to_dict() == other.to_dict()


def to_plain(value: Any) -> Any:
    """Turn parts, tuples and NumPy numbers into JSON's types."""
    if isinstance(value, Part):
        return value.to_dict()
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    return value.item() if hasattr(value, "item") else value


def from_plain(content: Any) -> Any:
    """Undo `to_plain`, up to lists becoming tuples.

    Raises
    ------
    ArtefactError
        If it names a part that does not exist.
    """
    if isinstance(content, list):
        return tuple(from_plain(item) for item in content)
    if not isinstance(content, dict):
        return content
    values = {key: from_plain(item) for key, item in content.items()}
    if "part" not in values:
        return values
    name = values.pop("part")
    if name not in _CLASSES:
        raise ArtefactError(f"there is no part of a split classifier called {name!r}")
    return _CLASSES[name](**values)
