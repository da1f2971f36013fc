"""Parameter ranges as data, checked in one place with one kind of message."""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_type_hints

from vflsynth.exceptions import ParameterError


class _Rule:
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
class Number(_Rule):
    """A number in an interval; `whole` asks for an int, `closed` includes the ends."""

    low: float
    high: float = math.inf
    whole: bool = False
    closed: tuple[bool, bool] = (True, True)

    def accepts(self, value: Any) -> bool:
        """Whether `value` is such a number."""
        kind = numbers.Integral if self.whole else numbers.Real  # NumPy's are registered
        if isinstance(value, bool) or not isinstance(value, kind) or not math.isfinite(value):
            return False
        number = float(value)
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
            return f"{noun} {'≥' if self.closed[0] else '>'} {self.low:g}"
        left, right = "[" if self.closed[0] else "(", "]" if self.closed[1] else ")"
        return f"{noun} in {left}{self.low:g}, {self.high:g}{right}"


@dataclass(frozen=True, slots=True)
class Choice(_Rule):
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
class Sizes(_Rule):
    """A sequence of layer sizes."""

    at_least: int = 1

    def accepts(self, value: Any) -> bool:
        """Whether `value` is such a sequence."""
        return (
            isinstance(value, Sequence)
            and not isinstance(value, str)
            and len(value) >= self.at_least
            and all(Number(1, whole=True).accepts(size) for size in value)
        )

    def __str__(self) -> str:
        return f"a sequence of at least {self.at_least} whole numbers ≥ 1"


@dataclass(frozen=True, slots=True)
class Pair(_Rule):
    """Two values that `rule` accepts."""

    rule: Number

    def accepts(self, value: Any) -> bool:
        """Whether `value` is such a pair."""
        return (
            isinstance(value, Sequence)
            and not isinstance(value, str)
            and len(value) == 2
            and all(self.rule.accepts(item) for item in value)
        )

    def __str__(self) -> str:
        return f"a pair, each {self.rule}"


@dataclass(frozen=True, slots=True)
class Optional(_Rule):
    """None, or a word in place of it, or what `rule` accepts."""

    rule: Number | Sizes | Choice
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
class DeviceName(_Rule):
    """A device as text, which can be saved; whether it is there is seen when it is used."""

    def accepts(self, value: Any) -> bool:
        """Whether `value` is text."""
        return isinstance(value, str)

    def __str__(self) -> str:
        return "'auto' or a torch device as text, such as 'cpu' (str(device) gives it)"


def did_you_mean(name: object, known: Iterable[object]) -> str:
    """Return what somebody may have meant, as the end of a message; nothing if nothing is near.

    Examples
    --------
    >>> did_you_mean("epoch", ["epochs", "batch_size"])
    "; did you mean 'epochs'?"
    """
    near = difflib.get_close_matches(str(name), list(map(str, known)), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


Rule = Number | Choice | Sizes | Pair | Optional | DeviceName


def rules_of(kind: type[Any]) -> dict[str, Rule]:
    """Return the rules in the annotations of a class, by attribute."""
    hints = get_type_hints(kind, include_extras=True)
    found = {name: getattr(hint, "__metadata__", (None,))[0] for name, hint in hints.items()}
    return {name: rule for name, rule in found.items() if isinstance(rule, _Rule)}  # type: ignore[misc]


def check_parameters(owner: str, values: Mapping[str, Any], rules: Mapping[str, Rule]) -> None:
    """Check every value that has a rule; a device has one everywhere.

    Raises ParameterError, naming the owner, the parameter, the value and what is accepted.
    """
    if "device" in values:
        rules = {"device": DeviceName(), **rules}
    for name, rule in rules.items():
        if not rule.accepts(values[name]):
            raise ParameterError(f"{owner}: {name} must be {rule}, got {values[name]!r}")
