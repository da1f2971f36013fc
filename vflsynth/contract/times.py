"""Times that lie some days, months or years behind others, and parts of times."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from itertools import permutations
from typing import Any

import numpy as np

from vflsynth.columns.arrays import kind_of_values, plain_values
from vflsynth.contract.expressions import FUNCTIONS, parse
from vflsynth.contract.findings import (
    SCREENED,
    Finding,
    Table,
    agree,
    computed_by,
    name_of,
    spread,
)
from vflsynth.contract.rules import Check

_DAY = np.timedelta64(86_400_000_000, "us")

_LAGS: Mapping[str, Callable[[Any, Any], Any]] = {
    "{late} == {early} + {passed}": lambda early, late: (late - early) / _DAY,
    "{count} == ({late} - {early}) // days(1)": lambda early, late: (late - early) // _DAY,
    "{late} == months_after({early}, {count})": FUNCTIONS["months_between"],
    "{count} == months_between({early}, {late})": FUNCTIONS["months_between"],
    "{count} == years_between({early}, {late})": FUNCTIONS["years_between"],
}
"""Rules of how far one time lies behind another, and what they say a column counts."""

_PARTS = (
    "year({time})",
    "month({time})",
    "(month({time}) + 2) // 3",
    "day({time})",
    "weekday({time})",
    "weekday({time}) + 1",
    "(weekday({time}) + 1) % 7",
    "(weekday({time}) + 1) % 7 + 1",
    "(weekday({time}) >= 5)",
    "hour({time})",
    "minute({time})",
)
"""What a column may say of one time; weeks begin on Monday or Sunday, with 0 or 1."""


def lags(table: Table) -> Iterator[Finding]:
    """Find times that lie as far behind others as a column says, and columns that count so."""
    alike: dict[str, list[Hashable]] = {}
    for label in _times(table):
        alike.setdefault(table.kinds[label], []).append(label)
    kinds = {label: kind_of_values(table.frame[label].dtype) for label in table.labels}
    counts = [label for label in kinds if label in table.numbers or kinds[label] == "m"]
    rows = spread(table.n, SCREENED)
    for early, late in (pair for labels in alike.values() for pair in permutations(labels, 2)):
        times = table.frame[[early, late]].iloc[rows]
        there = times.notna().all(axis=1).to_numpy()
        one, other = (plain_values(times[k][there]) for k in (early, late))
        behind = {text: passed(one, other) for text, passed in _LAGS.items()}
        for label in counts:
            days = "{count}" if kinds[label] == "m" else "days({count})"
            counted = table.values(label, rows)[there]
            for text, made in behind.items():
                if not agree(counted, made):
                    continue
                written = text.replace("{passed}", days).format(
                    early=name_of(early), late=name_of(late), count=name_of(label)
                )
                if (finding := computed_by(table, Check(written), "dates")) is not None:
                    yield finding
                    break


def parts_of_times(table: Table) -> Iterator[Finding]:
    """Find columns that are the year, month, weekday, hour and so on of a time."""
    rows = spread(table.n, SCREENED)
    plain = [k for k in table.labels if kind_of_values(table.frame[k].dtype) in "iufb"]
    some = {
        label: table.frame[label].iloc[rows].to_numpy(np.float64, na_value=np.nan)
        for label in plain
    }
    for time in _times(table):
        own = table.frame[[time]].iloc[rows].dropna()
        there = table.frame[time].iloc[rows].notna().to_numpy()
        for text in (part.format(time=name_of(time)) for part in _PARTS):
            part = parse(text)
            made = np.asarray(part.value(part.tree, own), np.float64)
            for label in plain if len({*made.tolist()}) > 1 else ():
                if agree(some[label][there], made):
                    finding = computed_by(table, Check(f"{name_of(label)} == {text}"), "dates")
                    if finding is not None:
                        yield finding


def _times(table: Table) -> list[Hashable]:
    return [
        k for k in table.kinds if k in table.labels and kind_of_values(table.frame[k].dtype) == "M"
    ]
