"""Kinds of options that many commands have, and numbers that are refused where they are read."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any


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
