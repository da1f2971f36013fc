"""Classes that are found by name: this package's own and those of packages installed beside it.

Artefacts name a class in full, ``module:Class``, so that no two can be mistaken for each other.
Command lines and jobs may use the short name where only one class has it. A name in a file is
looked up here and never imported: a file can only ask for what somebody registered.

A package registers its classes when it is imported, with `register`. It is imported at the first
look-up if its metadata has an entry point of the group, such as::

    [project.entry-points."vflsynth.protections"]
    rounding = "my_package:Rounding"
"""

from __future__ import annotations

import importlib
import importlib.metadata
import logging
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from vflsynth._validation import did_you_mean
from vflsynth.exceptions import ParameterError

logger = logging.getLogger("vflsynth")

C = TypeVar("C", bound=type)

OWN_MODULES = {
    "synthesizers": ("vflsynth.methods",),
    "classifiers": ("vflsynth.splitdefense",),
    "column_kinds": ("vflsynth.columns.kinds",),
    "encoders": ("vflsynth.columns.encoders",),
    "mechanisms": ("vflsynth.mechanisms", "vflsynth.methods"),
    "samplers": ("vflsynth.methods",),
    "protections": ("vflsynth.splitdefense",),
    "leakage_attacks": ("vflsynth.splitdefense",),
    "metrics": ("vflsynth.evaluation",),
    "statistics": ("vflsynth.adversary",),
    "adversaries": ("vflsynth.adversary",),
    "parameters": ("vflsynth.columns.table", "vflsynth.contract", "vflsynth.splitdefense"),
}
"""The groups, and where this package's own members are registered. As text: nothing is imported
before it is asked for. "parameters" are other objects that a parameter may hold."""

_SHORT_NAMES = {
    "column_kinds": "kind",
    "encoders": "name",
    "mechanisms": "name",
    "samplers": "kind",
    "leakage_attacks": "name",
    "metrics": "name",
    "statistics": "name",
    "adversaries": "name",
}
"""Class attributes that are the short names of a group; elsewhere it is the class's own name."""

_classes: dict[str, dict[str, type[Any]]] = {group: {} for group in OWN_MODULES}
_loaded: set[str] = set()


def register(cls: C) -> C:
    """Make a class known to artefacts, command lines and jobs; a class decorator.

    Parameters
    ----------
    cls : class
        Derived from one of this package's base classes, whose ``registry_group`` it inherits.

    Returns
    -------
    class
        The same.

    Raises
    ------
    ParameterError
        If the class belongs to no group, or another one has its full name. In an interactive
        session the last one is used, so that a notebook's cell can be run again.

    Examples
    --------
    >>> from vflsynth.splitdefense import Protection
    >>> @register
    ... class Nothing(Protection):
    ...     def protect(self, gradients, context):
    ...         return gradients
    >>> find("Nothing", "protections") is Nothing
    True
    """
    group = getattr(cls, "registry_group", None)
    if group not in _classes:
        raise ParameterError(
            f"{full_name(cls)} cannot be registered: it derives from none of the base classes of "
            f"{', '.join(_classes)}"
        )
    known = _classes[group].setdefault(full_name(cls), cls)
    if known is not cls:
        if not hasattr(sys, "ps1"):
            raise ParameterError(
                f"there already is a class {full_name(cls)}; give one of the two another name"
            )
        _classes[group][full_name(cls)] = cls
    return cls


def full_name(cls: type[Any]) -> str:
    """Return ``module:Class``, what a class is called in files."""
    return f"{cls.__module__}:{cls.__qualname__}"


def is_registered(cls: type[Any]) -> bool:
    """Whether files may name a class."""
    return any(members.get(full_name(cls)) is cls for members in _classes.values())


class Members(Mapping[str, type[Any]]):
    """A group's classes by the names that people may use for them, in the order of registration.

    Iteration gives short names, and full names where several classes share the short one. Either
    finds a class. The group is one of `OWN_MODULES`.
    """

    def __init__(self, group: str) -> None:
        self._group = group

    def __getitem__(self, name: str) -> type[Any]:
        by_full_name = _load(self._group)
        return by_full_name[name] if name in by_full_name else self._by_name()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name())

    def __len__(self) -> int:
        return len(_load(self._group))

    def _by_name(self) -> dict[str, type[Any]]:
        members = _load(self._group)
        shared = Counter(_short_name(self._group, cls) for cls in members.values())
        return {
            full if shared[short := _short_name(self._group, cls)] > 1 else short: cls
            for full, cls in members.items()
        }


def find(name: Any, *groups: str, where: str = "") -> type[Any]:
    """Return the class of any of some groups that somebody means by a short or full name.

    ParameterError, which begins with `where`, if there is none, or the short name is that of
    several.
    """
    for group in groups:
        if name in (known := Members(group)):
            return known[name]
    inside = f"{where}: " if where else ""
    nouns = " or ".join(group.replace("_", " ") for group in groups)
    several = [f for g in groups for f, cls in _load(g).items() if _short_name(g, cls) == name]
    if several:
        raise ParameterError(
            f"{inside}several {nouns} are called {name!r}; give the full name: "
            f"{' or '.join(several)}"
        )
    names = [name for group in groups for name in Members(group)]
    raise ParameterError(
        f"{inside}there is no {name!r} among the {nouns}; there are {', '.join(names)}"
        + did_you_mean(name, names)
    )


def named_in_file(name: str, *groups: str) -> type[Any]:
    """Return the class of a full name, from any of a few groups, or raise ParameterError."""
    for group in groups:
        if name in (found := _load(group)):
            return found[name]
    raise ParameterError(
        f"no class {name!r} is registered among the {', '.join(groups)}; install the package that "
        "has it, or import it first"
    )


def _short_name(group: str, cls: type[Any]) -> str:
    return str(getattr(cls, _SHORT_NAMES.get(group, "__name__"), cls.__name__))


def _load(group: str) -> dict[str, type[Any]]:
    """Import what a group's members are registered by, once; return them by full name."""
    if group not in _loaded:
        _loaded.add(group)
        for name in OWN_MODULES[group]:
            importlib.import_module(name)
        for entry in importlib.metadata.entry_points(group=f"vflsynth.{group}"):
            try:
                register(entry.load())
            except Exception as error:  # one broken package must not take the others away
                logger.warning("%s = %s cannot be loaded: %r", entry.name, entry.value, error)
    return _classes[group]
