"""Numbers on the command line, refused where they are read if they cannot be meant."""

from __future__ import annotations

import argparse
import math


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
