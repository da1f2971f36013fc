"""Numbers as people write them."""

from __future__ import annotations


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
