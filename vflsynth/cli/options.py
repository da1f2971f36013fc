"""Kinds of options that many commands have: what cannot be meant, or written, is refused early."""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vflsynth.exceptions import ArtefactError, ParameterError, TableFileError


def whole(least: int, most: float = math.inf) -> Callable[[str], int]:
    """Return what reads a whole number from `least` up, to `most`.

    Examples
    --------
    >>> whole(1)("12")
    12
    """

    def read(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            to = "up" if most == math.inf else f"to {most}"
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} {to}")
        return int(text)

    return read


_TYPES: dict[str, Any] = {"N": whole(1), "SEED": whole(0), "PORT": whole(0, 65535)} | dict.fromkeys(
    ("FILE", "DIR", "MODEL", "STUDY", "DOSSIER", "JOB", "SITE", "KIT"), Path
)
"""What values are made into, by the word that stands for them; others are text."""


class Option:
    """What a command may be told, declared as ``--help`` shows it.

    ``"-o --output FILE"`` has all names and the word that stands for the value. ``"COLUMN..."``
    takes one value or more, ``"CONDITION*"`` may be given several times, and both are empty unless
    they are given; without a word the option is said or not. `more` is as of argparse, and goes
    before all that.
    """

    def __init__(self, declared: str, help: str, **more: Any) -> None:
        *names, word = declared.split()
        said: dict[str, Any] = {}
        if not names or word.startswith("-"):
            names.append(word)
            if "choices" not in more:
                said = {"action": "store_true"}
        else:
            metavar = word.rstrip(".*")
            said = {"metavar": metavar, "type": _TYPES.get(metavar)}
            if word.endswith("..."):
                said |= {"nargs": "+", "action": "extend", "default": []}
            if word.endswith("*"):
                said |= {"action": "append", "default": []}
        self.names, self.said = names, said | more | {"help": help}


@dataclass(frozen=True)
class Group:
    """Options that stand together, under a title."""

    title: str
    options: Sequence[Option]


def declare(parser: argparse._ActionsContainer, options: Iterable[Option | Group]) -> None:
    """Have a parser know options."""
    for own in options:
        if isinstance(own, Group):
            declare(parser.add_argument_group(own.title), own.options)
        else:
            parser.add_argument(*own.names, **own.said)


def jobs(text: str) -> int:
    """Read a number of processes: from 1 up, or below 0 to count from all processors down."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number == 0:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of processes: a whole number from 1 up, or -1 for one per "
            "processor"
        )
    return number


def nonnegative(text: str) -> float:
    """Read a finite number from 0 up.

    Examples
    --------
    >>> nonnegative("1e-5")
    1e-05
    """
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 up")
    return number


def check_file(option: str, path: Path | None, inputs: Iterable[Path] = ()) -> None:
    """Check that a file can be written, or replaced, and is none of those that are read.

    None is fine: nothing was asked for. `option` names it in messages.
    """
    if path is None:
        return
    if path.is_dir():
        raise ParameterError(f"{option}: {path} is a folder; name a file, such as one inside it")
    if path.resolve() in {file.resolve() for file in inputs}:
        raise ParameterError(f"{option}: {path} is read, too, and would be lost; name another file")
    _check_writable(option, path)


def check_page(option: str, path: Path | None, inputs: Iterable[Path] = ()) -> None:
    """Check that a page of HTML can be written to a file, as of `check_file`."""
    check_file(option, path, inputs)
    if path is not None and path.suffix.lower() not in (".html", ".htm"):
        raise ParameterError(f"{option}: {path} is to be HTML. Fix: a name that ends in .html")


def check_table(option: str, path: Path, inputs: Iterable[Path] = ()) -> None:
    """Check that a table can be written to a file, as of `check_file`."""
    from vflsynth.frames.io import suffix_of

    with _as_usage(option):
        suffix_of(path)
    check_file(option, path, inputs)


def check_folder(option: str, path: Path | None) -> None:
    """Check that files can be made in a folder, which need not exist and is no saved model."""
    if path is not None:
        _check_writable(option, path / "files")


def check_artefact(option: str, path: Path, kind: str) -> None:
    """Check that a directory of a kind can be saved, or replaced."""
    from vflsynth import _artefacts as artefacts  # not where options are declared: it loads numpy

    with _as_usage(option):
        artefacts.check_target(path, kind)
        _check_outside_artefacts(path)


def check_apart(directories: Mapping[str, Path | None]) -> None:
    """Check that directories, by option, are neither the same nor inside each other."""
    given = {option: path for option, path in directories.items() if path is not None}
    for one, other in itertools.combinations(given, 2):
        first, second = given[one].resolve(), given[other].resolve()
        if first.is_relative_to(second) or second.is_relative_to(first):
            how = "are the same" if first == second else "lie inside each other"
            raise ParameterError(
                f"{one} {given[one]} and {other} {given[other]} {how}, and one would damage the "
                "other; choose separate directories"
            )


def is_taken(path: Path) -> bool:
    """Whether there is something at a path other than an empty directory."""
    return path.exists() and not (path.is_dir() and not any(path.iterdir()))


def beside(path: Path) -> Path:
    """Return PATH-interrupted, or the first of PATH-interrupted-2, -3, ... that is not taken."""
    path = path.resolve()
    numbered = (path.with_name(f"{path.name}-interrupted-{n}") for n in itertools.count(2))
    names = itertools.chain([path.with_name(f"{path.name}-interrupted")], numbered)
    return next(name for name in names if not is_taken(name))


def _check_writable(option: str, path: Path) -> None:
    from vflsynth import _artefacts as artefacts

    with _as_usage(option):
        artefacts.check_writable(path)
        _check_outside_artefacts(path)


@contextmanager
def _as_usage(option: str) -> Iterator[None]:
    """Call what cannot be written a mistake of the command line, whatever finds it."""
    try:
        yield
    except (ArtefactError, TableFileError) as error:
        raise ParameterError(f"{option}: {error}") from error


def _check_outside_artefacts(path: Path) -> None:
    from vflsynth import _artefacts as artefacts

    for folder in path.resolve().parents:
        try:
            kind = artefacts.kind_of(folder)
        except (ArtefactError, OSError):
            continue  # any other folder
        raise ArtefactError(
            f"{path} is inside {folder}, a saved {kind}, which could not be opened any more; "
            "choose another path"
        )
