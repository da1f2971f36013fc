"""Numbers that follow another one along lines that meet: taxes with brackets, prices by tiers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations

import numpy as np

from vflsynth.columns.arrays import Floats, decimals_of
from vflsynth.contract.arithmetic import slack_of
from vflsynth.contract.combining import confirmed, sum_of
from vflsynth.contract.findings import (
    SCREENED,
    SCREENED_AGAIN,
    Finding,
    Table,
    computed_columns,
    name_of,
)

_LEAST, _MOST = 20, 5
"""Records on a line, at least; lines that meet, at most."""

_SMOOTH = 0.95
"""Share of the records that lie between their neighbours, but for rounding, at least."""


def bends(table: Table, known: Sequence[Finding]) -> Iterator[Finding]:
    """Find numbers that are the largest, or the smallest, of some lines along another one."""
    done, groups = computed_columns(known)
    few, more = table.some(SCREENED), table.some(SCREENED_AGAIN)
    for along, column in permutations(table.numbers, 2):
        if column in done or {along, column} in groups:
            continue
        if not _is_smooth(*_in_order(few[along], few[column])):
            continue
        x, y = _in_order(more[along], more[column])
        lines = _lines(x, y, name_of(along)) if _is_smooth(x, y) else []
        slopes, texts = [slope for slope, _ in lines], list(dict.fromkeys(own for _, own in lines))
        if 1 < len(texts) <= _MOST:
            bend = "max" if slopes == sorted(slopes) else "min"
            text = f"{bend}({', '.join(texts)})"
            finding = confirmed(table, column, text, more[column], "extreme")
            if finding is not None:
                done.add(column)
                yield finding


def _in_order(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Sort records by one number, and leave out those that repeat it."""
    known = np.isfinite(x) & np.isfinite(y)
    found, first = np.unique(x[known], return_index=True)
    return found, y[known][first]


def _is_smooth(x: Floats, y: Floats) -> bool:
    """Whether nearly all records lie on the line through their neighbours."""
    half = slack_of(decimals_of(y))
    if len(x) < 2 * _LEAST or np.ptp(y) <= 50 * half:
        return False
    slopes = (y[2:] - y[:-2]) / (x[2:] - x[:-2])
    off = np.abs(y[:-2] + slopes * (x[1:-1] - x[:-2]) - y[1:-1])
    return bool((off <= 2.0 * half + 1e-9 * np.abs(y[1:-1])).mean() >= _SMOOTH)


def _lines(x: Floats, y: Floats, name: str) -> list[tuple[float, str]]:
    """Return the slope of each line, and how it is written, from left to right."""
    found: list[tuple[float, str]] = []
    begin = 0
    while begin + _LEAST <= len(x) and len(found) <= _MOST:
        end, beyond = begin + _LEAST, len(x) + 1
        while beyond - end > 1:
            middle = (end + beyond) // 2
            straight = _line(x[begin:middle], y[begin:middle], name) is not None
            end, beyond = (middle, beyond) if straight else (end, middle)
        line = _line(x[begin:end], y[begin:end], name)
        if line is None:
            return []
        found.append(line)
        begin = end
    return found


def _line(x: Floats, y: Floats, name: str) -> tuple[float, str] | None:
    """Return the slope of a line of few digits, and how it is written; None if there is none."""
    if not np.ptp(y):
        return 0.0, f"{y[0]:.15g}"
    text = sum_of(y, x[None], [name])
    return None if text is None else (float(np.polyfit(x - x.mean(), y, 1)[0]), text)
