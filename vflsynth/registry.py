"""Classes that are found by name, this package's and others', and the rules of their parameters.

Artefacts name a class in full, ``module:Class``, so that no two can be mistaken for each other.
Command lines and jobs may use the short name where only one class has it. A name in a file is
looked up here and never imported: a file can only ask for what somebody registered.

A package registers its classes when it is imported, with `register`. It is imported at the first
look-up if its metadata has an entry point of the group, such as::

    [project.entry-points."vflsynth.protections"]
    rounding = "my_package:Rounding"

Rules are ranges of parameters as data, checked in one place with one kind of message.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import logging
import math
import numbers
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, get_type_hints

from vflsynth.exceptions import ParameterError, did_you_mean

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


class Value:
    """Base class of other objects that a parameter may hold, contracts for instance."""

    registry_group: ClassVar[str] = "parameters"


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
        if isinstance(name, str) and name in (known := Members(group)):
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


class Rule:
    """What values are accepted; in the annotation of a file's dataclass, pydantic asks it."""

    __slots__ = ()

    def accepts(self, value: Any) -> bool:
        """Whether `value` is one of them."""
        raise NotImplementedError

    @property
    def json(self) -> dict[str, Any]:
        """The same as a JSON schema."""
        return {}

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Accept, or say what is accepted."""
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(self._checked)

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> Any:
        """Return `json`."""
        return self.json

    def _checked(self, value: Any) -> Any:
        if not self.accepts(value):
            raise ValueError(f"must be {self}, got {value!r}")
        return value


@dataclass(frozen=True, slots=True)
class Number(Rule):
    """A number in an interval; `whole` asks for an int, `closed` includes the ends."""

    low: float
    high: float = math.inf
    whole: bool = False
    closed: tuple[bool, bool] = (True, True)

    def accepts(self, value: Any) -> bool:
        """Whether `value` is such a number."""
        kind = numbers.Integral if self.whole else numbers.Real  # NumPy's are registered
        if isinstance(value, bool) or not isinstance(value, kind):
            return False
        try:
            number = float(value)
        except OverflowError:  # a whole number that is larger than any other
            return False
        if not math.isfinite(number):
            return False
        above = number >= self.low if self.closed[0] else number > self.low
        below = number <= self.high if self.closed[1] else number < self.high
        return above and below

    @property
    def json(self) -> dict[str, Any]:
        """The same as a JSON schema."""
        low = {"minimum" if self.closed[0] else "exclusiveMinimum": self.low}
        high = {"maximum" if self.closed[1] else "exclusiveMaximum": self.high}
        kind = {"type": "integer" if self.whole else "number"}
        return kind | low | ({} if self.high == math.inf else high)

    def __str__(self) -> str:
        noun = "a whole number" if self.whole else "a number"
        if self.high == math.inf:
            above = f" {'≥' if self.closed[0] else '>'} {self.low:g}"
            return noun + above * (self.low > -math.inf)
        left, right = "[" if self.closed[0] else "(", "]" if self.closed[1] else ")"
        return f"{noun} in {left}{self.low:g}, {self.high:g}{right}"


@dataclass(frozen=True, slots=True)
class Jobs(Rule):
    """How many things joblib does at a time."""

    def accepts(self, value: Any) -> bool:
        """Whether `value` is None or a whole number but 0."""
        return value is None or (value != 0 and Number(-math.inf, whole=True).accepts(value))

    def __str__(self) -> str:
        return "a whole number but 0 (-1: as many as there are cores) or None"


@dataclass(frozen=True, slots=True)
class Choice(Rule):
    """One of a few values."""

    options: tuple[Any, ...]

    def accepts(self, value: Any) -> bool:
        """Whether `value` is one of them."""
        return any(
            value is option or (value == option and type(value) is type(option))
            for option in self.options
        )

    @property
    def json(self) -> dict[str, Any]:
        """The same as a JSON schema."""
        return {"enum": [option for option in self.options if option is not None]}

    def __str__(self) -> str:
        return " or ".join(repr(option) for option in self.options)


@dataclass(frozen=True, slots=True)
class Several(Rule):
    """Any number of values that `rule` accepts, in a sequence that is no text."""

    rule: Number

    def accepts(self, value: Any) -> bool:
        """Whether `value` is a sequence of them."""
        is_sequence = isinstance(value, Sequence) and not isinstance(value, str)
        return is_sequence and all(map(self.rule.accepts, value))

    def __str__(self) -> str:
        return f"a sequence, each {self.rule}"


class Pair(Several):
    """Two values that `rule` accepts."""

    __slots__ = ()

    def accepts(self, value: Any) -> bool:
        """Whether `value` is such a pair."""
        return super().accepts(value) and len(value) == 2

    def __str__(self) -> str:
        return f"a pair, each {self.rule}"


@dataclass(frozen=True, slots=True)
class Sizes(Rule):
    """A sequence of layer sizes."""

    at_least: int = 1

    def accepts(self, value: Any) -> bool:
        """Whether `value` is such a sequence."""
        return Several(Number(1, whole=True)).accepts(value) and len(value) >= self.at_least

    def __str__(self) -> str:
        return f"a sequence of at least {self.at_least} whole numbers ≥ 1"


@dataclass(frozen=True, slots=True)
class Map(Rule):
    """A mapping, `of` what to what, which is a `kind` of object and no text."""

    of: str
    kind: type[Any] = object

    def accepts(self, value: Any) -> bool:
        """Whether `value` is such a mapping; what else is in it is checked by other code."""
        return isinstance(value, Mapping) and all(
            self.kind is object or (isinstance(own, self.kind) and not isinstance(own, str))
            for own in value.values()
        )

    def __str__(self) -> str:
        return f"a mapping of {self.of}"


@dataclass(frozen=True, slots=True)
class Optional(Rule):
    """None, or a word in place of it, or what `rule` accepts."""

    rule: Rule
    word: str | None = None

    def accepts(self, value: Any) -> bool:
        """Whether `value` is the word or accepted."""
        said = value is self.word or (isinstance(value, str) and value == self.word)
        return said or self.rule.accepts(value)

    @property
    def json(self) -> dict[str, Any]:
        """The same as a JSON schema: in a file it is what is left out."""
        return self.rule.json

    def __str__(self) -> str:
        return f"{self.word!r} or {self.rule}"


@dataclass(frozen=True, slots=True)
class DeviceName(Rule):
    """A device as text, which can be saved; whether it is there is seen when it is used."""

    def accepts(self, value: Any) -> bool:
        """Whether `value` is text."""
        return isinstance(value, str)

    def __str__(self) -> str:
        return "'auto' or a torch device as text, such as 'cpu' (str(device) gives it)"


def rules_of(kind: type[Any]) -> dict[str, Rule]:
    """Return the rules in the annotations of a class, by attribute."""
    hints = get_type_hints(kind, include_extras=True)
    found = {name: getattr(hint, "__metadata__", (None,))[0] for name, hint in hints.items()}
    return {name: rule for name, rule in found.items() if isinstance(rule, Rule)}


def check_parameters(owner: str, values: Mapping[str, Any], rules: Mapping[str, Rule]) -> None:
    """Check every value that has a rule; a device has one everywhere.

    Raises ParameterError, naming the owner, the parameter, the value and what is accepted.
    """
    if "device" in values:
        rules = {"device": DeviceName(), **rules}
    for name, rule in rules.items():
        if not rule.accepts(values[name]):
            raise ParameterError(f"{owner}: {name} must be {rule}, got {values[name]!r}")
