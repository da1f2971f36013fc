"""What a person sees: results on standard output, everything else on standard error."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

logger = logging.getLogger("vflsynth")


def say(text: str = "") -> None:
    """Write a line of the result."""
    sys.stdout.write(f"{text}\n")


@contextmanager
def reporting(*, quiet: bool) -> Iterator[None]:
    """Send messages and warnings to standard error, plainly; if `quiet`, no mere messages."""

    def warn(message: Warning | str, *_: Any, **__: Any) -> None:
        logger.warning("%s", message)

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter())
    level, propagates = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.propagate = False  # a library of a mechanism gives the root logger a handler
    logger.setLevel(logging.WARNING if quiet else logging.INFO)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = warn
            yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagates


class _Formatter(logging.Formatter):
    """Messages as they are; warnings and errors say what they are, and who speaks."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if record.levelno < logging.WARNING:
            return text
        return f"vflsynth: {record.levelname.lower()}: {text}"


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Lay out records with the same keys as aligned text, numbers to the right; None is nothing.

    Examples
    --------
    >>> print(table([{"column": "age", "distinct": 61}, {"column": "sex", "distinct": 2}]))
      column  distinct
      age           61
      sex            2
    """
    columns = []
    for name in rows[0]:
        values = [row[name] for row in rows]
        cells = [name, *map(_cell, values)]
        width = max(map(len, cells))
        to_the_right = all(isinstance(value, int | float) for value in values if value is not None)
        columns.append([c.rjust(width) if to_the_right else c.ljust(width) for c in cells])
    return "\n".join(("  " + "  ".join(line)).rstrip() for line in zip(*columns))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else str(value).replace("\n", "\\n")
