"""Kinds of options that many commands have: what cannot be meant, or written, is refused early."""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from vflsynth import _artefacts as artefacts
from vflsynth.exceptions import ArtefactError, ParameterError


def file(
    parser: argparse._ActionsContainer, names: str, metavar: str, help: str, **more: Any
) -> None:
    """Declare a file or folder; `names` has all its names, apart by spaces."""
    parser.add_argument(*names.split(), metavar=metavar, type=Path, help=help, **more)


def number(parser: argparse._ActionsContainer, names: str, help: str, **more: Any) -> None:
    """Declare a whole number."""
    parser.add_argument(*names.split(), metavar="N", type=int, help=help, **more)


def flag(parser: argparse._ActionsContainer, names: str, help: str) -> None:
    """Declare what is said or not."""
    parser.add_argument(*names.split(), action="store_true", help=help)


def several(
    parser: argparse._ActionsContainer, names: str, metavar: str, help: str, **more: Any
) -> None:
    """Declare one value or more, none unless it is given."""
    parser.add_argument(*names.split(), nargs="+", default=[], metavar=metavar, help=help, **more)


def repeated(
    parser: argparse._ActionsContainer, names: str, metavar: str, help: str, **more: Any
) -> None:
    """Declare an option that may be given several times."""
    parser.add_argument(
        *names.split(), action="append", default=[], metavar=metavar, help=help, **more
    )


def count(text: str) -> int:
    """Read a whole number from 0 up.

    Examples
    --------
    >>> count("12")
    12
    """
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 up")
    return int(text)


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


def check_folder(option: str, path: Path | None) -> None:
    """Check that files can be made in a folder, which need not exist and is no saved model."""
    if path is not None:
        _check_writable(option, path / "files")


def check_artefact(path: Path, kind: str) -> None:
    """Check that a directory of a kind can be saved, or replaced."""
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
    try:
        artefacts.check_writable(path)
    except ArtefactError as error:
        raise ParameterError(f"{option}: {error}") from error
    _check_outside_artefacts(path)


def _check_outside_artefacts(path: Path) -> None:
    for folder in path.resolve().parents:
        try:
            kind = artefacts.kind_of(folder)
        except (ArtefactError, OSError):
            continue  # any other folder
        raise ArtefactError(
            f"{path} is inside {folder}, a saved {kind}, which could not be opened any more; "
            "choose another path"
        )
