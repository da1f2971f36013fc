"""Numbers as people write them, and how far something is."""

from __future__ import annotations

import math
import sys
import warnings
from typing import Any


def progress_bar(**options: Any) -> Any:
    """Return a bar of tqdm: a notebook's own kind in notebooks that have ipywidgets."""
    with warnings.catch_warnings(action="ignore"):  # there may be no ipywidgets
        from tqdm.auto import tqdm
    options.setdefault("mininterval", 0.1 if somebody_is_watching() else 10.0)
    return tqdm(**options)


def somebody_is_watching() -> bool:
    """Whether standard error is a terminal, or a notebook shows it."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


def number_text(value: float | None, digits: int = 3) -> str:
    """Write a number for people: no exponent, thousands apart, a true minus, a dash for none.

    Examples
    --------
    >>> number_text(0.12345), number_text(46512.3), number_text(-6e-5), number_text(None)
    ('0.123', '46,512', '−0.00006', '–')
    """
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    size = abs(value)
    decimals = max(0, digits - 1 - math.floor(math.log10(size))) if size >= 1e-6 else 0
    text = f"{value:,.{decimals}f}".replace("-", "−")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "−0" else text


def duration_text(seconds: float) -> str:
    """Write seconds for people.

    Examples
    --------
    >>> duration_text(42), duration_text(600), duration_text(9000)
    ('42 s', '10 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def size_text(n_bytes: int) -> str:
    """Write a number of bytes for people.

    Examples
    --------
    >>> size_text(900), size_text(12_345), size_text(3_000_000)
    ('900 B', '12.3 kB', '3 MB')
    """
    value, units = float(n_bytes), ["B", "kB", "MB", "GB", "TB"]
    while value >= 1000 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.3g} {units[0]}"
