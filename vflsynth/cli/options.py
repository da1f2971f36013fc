"""Kinds of options that many commands have."""

from __future__ import annotations

import argparse
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
