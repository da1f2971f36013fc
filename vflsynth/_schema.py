"""Files that people write, as dataclasses: all mistakes of a file at once, JSON schemas, TOML.

A class of a file is a dataclass and a `FileTable`. Its annotations are the schema: pydantic reads
them when the first file is checked, and not before, so that commands that read no file do not pay
for it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from textwrap import shorten
from typing import Any, ClassVar, TypeVar

from vflsynth.exceptions import ParameterError, UnusableFileError, VFLSynthError, did_you_mean

T = TypeVar("T")
Failure = Callable[[str], Exception]


class FileTable:
    """Base class of what tables of files say: other keys than its fields are mistakes."""

    __slots__ = ()
    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}


_MUST_BE = {
    "string_type": "text",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a table of names and values",
    "mapping_type": "a table of names and values",
    "dataclass_type": "a table of names and values",
}
"""What pydantic's types of errors ask for, in the words of TOML."""


@dataclass(frozen=True)
class Says:
    """The words for a value of several forms, in an annotation: ``must be`` and these."""

    words: str

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Have one error in place of one per form."""
        from pydantic_core import core_schema

        return core_schema.custom_error_schema(
            handler(source), custom_error_type="says", custom_error_message=f"must be {self.words}"
        )


@dataclass(frozen=True)
class Parsed:
    """What a value is made into, in an annotation; errors of `make` are mistakes of the file.

    `json` is the JSON schema of what the file says.
    """

    make: Callable[[Any], Any]
    json: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Call `make`."""
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(self._made)

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> Any:
        """Return `json`."""
        return dict(self.json)

    def _made(self, value: Any) -> Any:
        try:
            return self.make(value)
        except (VFLSynthError, TypeError) as error:
            raise ValueError(str(error)) from None


class Mistakes:
    """Errors that are kept until all of them are known."""

    def __init__(self) -> None:
        self.said: dict[str, None] = {}

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep what is raised inside."""
        try:
            yield
        except VFLSynthError as error:
            self.said |= dict.fromkeys(str(error).splitlines())

    def check(self, failure: Failure = ParameterError) -> None:
        """Raise one error with all that was kept, a line for each."""
        if self.said:
            raise failure("\n".join(self.said))


def checked(kind: type[T], content: Any, where: str, failure: Failure = ParameterError) -> T:
    """Make an object of what a file of TOML or JSON says; error messages begin with `where`.

    The kind is a dataclass and a `FileTable`. Raises ParameterError, or what `failure` makes of its
    message: a line for each mistake, with its place in the file.
    """
    from pydantic import ValidationError

    a_class: Any = kind
    adapter = _adapter(a_class)
    try:
        made: T = adapter.validate_python(content)
        return made
    except ValidationError as error:
        inside = f"{where}: " if where else ""
        found = [_mistake(adapter, own) for own in error.errors(include_url=False)]
    raise failure("\n".join(dict.fromkeys(inside + line for line in found)))


def json_schema(kind: Any, title: str) -> dict[str, Any]:
    """Return the JSON schema of a file, with what docstrings say of its keys."""
    from pydantic.json_schema import GenerateJsonSchema

    class Described(GenerateJsonSchema):
        def dataclass_schema(self, schema: Any) -> Any:
            made = super().dataclass_schema(schema)
            said = _documented(getattr(schema["cls"], "documented_by", schema["cls"]))
            made.pop("description", None)
            for name, own in made.get("properties", {}).items():
                if name in said:
                    own["description"] = said[name]
            return made

    made = _adapter(kind).json_schema(schema_generator=Described)
    return {"$schema": GenerateJsonSchema.schema_dialect, **made, "title": title}


def read_toml(path: Path, failure: Failure = ParameterError) -> dict[str, Any]:
    """Read a TOML file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", error)
        kind = UnusableFileError if failure is ParameterError else failure
        raise kind(f"{path} cannot be read: {why}") from error
    return parsed_toml(text, str(path), failure)


def parsed_toml(text: str, where: str, failure: Failure = ParameterError) -> dict[str, Any]:
    """Read the text of a TOML file."""
    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise failure(f"{where} is no TOML: {error}") from error


def toml_text(content: Mapping[str, Any], heading: str = "") -> str:
    """Write a TOML file of plain values, sequences and mappings, below comments for people.

    None as a key's value leaves the key out, and within a sequence is ``{}``.
    """
    import tomlkit
    from tomlkit.exceptions import ConvertError

    comments = "".join(f"# {line}".rstrip() + "\n" for line in heading.splitlines())
    try:
        return comments + tomlkit.dumps(_item(content))
    except ConvertError as error:
        raise ParameterError(f"a value has no form in TOML: {error}") from None


def _item(value: Any) -> Any:
    """Return what tomlkit writes as we want it: {} for None, long lists one item a line."""
    import tomlkit

    if value is None:
        return tomlkit.inline_table()
    if isinstance(value, Mapping):
        return {str(name): _item(own) for name, own in value.items() if own is not None}
    if isinstance(value, str):  # rules read better within single quotes
        literal = '"' in value and "'" not in value and value.isprintable()
        return tomlkit.string(value, literal=literal)
    if isinstance(value, list | tuple):
        if value and all(isinstance(own, Mapping) for own in value):
            return [*map(_item, value)]
        items: Any = tomlkit.item([*map(_item, value)])
        return items.multiline(any(isinstance(own, str) and len(own) > 20 for own in value))
    return value.item() if hasattr(value, "item") else value


@cache
def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _mistake(adapter: Any, error: Mapping[str, Any]) -> str:
    """Write one of pydantic's errors as a person would say it."""
    place, what, got = error["loc"], error["type"], error["input"]
    inside = f"{_written(place[:-1])}: " if place[1:] else ""
    if what == "unexpected_keyword_argument":
        schema = adapter.json_schema()
        names = _names(schema, place[:-1], schema.get("$defs", {}))
        near = did_you_mean(place[-1], names)
        return f"{inside}unknown {place[-1]!r}; there are {', '.join(names)}{near}"
    if what == "missing":
        return f"{inside}{place[-1]!r} is missing"
    if what == "value_error":
        said = str(error["ctx"]["error"]).replace("must be None or ", "must be ")
    else:
        said = f"must be {_MUST_BE[what]}" if what in _MUST_BE else error["msg"]
        said = f"{said.replace('Input should', 'must', 1)}, got {shorten(repr(got), 80)}"
    joined = " " if said.startswith(("must ", "is ")) else ": "
    return f"{_written(place)}{joined}{said}" if place else re.sub("^must", "it must", said)


def _written(place: Sequence[str | int]) -> str:
    """Write a place as TOML does, and lists from one."""
    steps = (f", item {step + 1}" if isinstance(step, int) else f".{step}" for step in place)
    return "".join(steps).lstrip(".")


def _names(schema: Any, place: Sequence[str | int], named: Mapping[str, Any]) -> list[str]:
    """Return the keys that a JSON schema has at a place; `named` are its definitions."""
    if "$ref" in schema:
        return _names(named[schema["$ref"].rpartition("/")[2]], place, named)
    if "anyOf" in schema:
        return [name for own in schema["anyOf"] for name in _names(own, place, named)]
    keys = schema.get("properties", {})
    if not place:
        return [*keys]
    inner = schema.get("items") if isinstance(place[0], int) else keys.get(place[0])
    return _names(inner or schema.get("additionalProperties"), place[1:], named)


def _documented(kind: type[Any]) -> dict[str, str]:
    """Return what a numpydoc docstring, and those of its bases, say of parameters."""
    found: dict[str, str] = {}
    for own in reversed(kind.__mro__):
        _, _, section = (own.__doc__ or "").partition("----------\n")
        section = re.split(r"\n\s*\n\s*\w+\n\s*---", section)[0]
        for names, text in re.findall(
            r"^    (\w[\w, ]*) ?:.*\n((?:        .*\n?)+)", section, re.M
        ):
            words = " ".join(text.replace("`", "").split())
            found |= dict.fromkeys(re.split(r",\s*", names.strip()), words)
    return found
