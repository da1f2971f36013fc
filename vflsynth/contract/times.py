"""Times that lie some days, months or years behind others, and parts of times."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from itertools import permutations
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from vflsynth.columns.arrays import kind_of_values, plain_values
from vflsynth.contract.expressions import FUNCTIONS, parse
from vflsynth.contract.findings import (
    LEAST_SURPRISE,
    SCREENED,
    SCREENED_AGAIN,
    Finding,
    Table,
    agree,
    case_of,
    computed_by,
    name_of,
    spread,
)
from vflsynth.contract.rules import Check, plain_value

_DAY = np.timedelta64(86_400_000_000, "us")

_LAGS: Mapping[str, Callable[[Any, Any], Any]] = {
    "{late} == {early} + {passed}": lambda early, late: (late - early) / _DAY,
    "{count} == ({late} - {early}) // days(1)": lambda early, late: (late - early) // _DAY,
    "{late} == months_after({early}, {count})": FUNCTIONS["months_between"],
    "{count} == months_between({early}, {late})": FUNCTIONS["months_between"],
    "{count} == years_between({early}, {late})": FUNCTIONS["years_between"],
}
"""Rules of how far one time lies behind another, and what they say a column counts."""

_LATER = [text for text in _LAGS if text.startswith("{late}")]
"""Those that compute the later time."""

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
    rows = spread(table.n, SCREENED_AGAIN)
    counted = {label: table.values(label, rows) for label in counts}
    for early, late in (pair for labels in alike.values() for pair in permutations(labels, 2)):
        times = table.frame[[early, late]].iloc[rows]
        there = times.notna().all(axis=1).to_numpy()
        one, other = (plain_values(times[k][there]) for k in (early, late))
        behind = {text: passed(one, other) for text, passed in _LAGS.items()}
        names = {"early": name_of(early), "late": name_of(late)}
        found = []
        for label in counts:
            days = "{count}" if kinds[label] == "m" else "days({count})"
            own = counted[label][there]
            agreeing = (text for text, made in behind.items() if agree(own, made))
            rules = (_rule(text, days, count=name_of(label), **names) for text in agreeing)
            found += _first(table, rules)
        for text in _LATER if not found else ():
            constants = _constants(table, behind[text], rows[there])
            found += _first(table, (_rule(text, count=own, **names) for own in constants))
        yield from found


def _rule(text: str, days: str = "days({count})", **names: str) -> Check:
    return Check(text.replace("{passed}", days).format(**names))


def _first(table: Table, rules: Iterable[Check]) -> list[Finding]:
    """Return what the first rule says that enough records support."""
    for rule in rules:
        if (finding := computed_by(table, rule, "dates")) is not None:
            return [finding]
    return []


def _constants(table: Table, counted: Any, rows: npt.NDArray[np.intp]) -> Iterator[str]:
    """Write whole numbers that are the same for all of some records, or for all of each label."""
    if not len(rows) or (counted % 1).any() or counted.min() < 0:
        return
    whole = pd.Series(counted).astype(np.int64)
    if whole.nunique() == 1:
        yield repr(int(whole[0]))
        return
    for label in table.cased:
        codes, values = table.codes(label)
        of_label = whole.groupby(codes[rows])
        if (of_label.min() != of_label.max()).any():
            continue
        often = np.bincount(codes, minlength=len(values)) >= LEAST_SURPRISE
        found = zip(of_label.min().index.tolist(), of_label.min().tolist())
        counts = {values[k]: n for k, n in found if k < len(values) and often[k]}
        texts = {(repr(plain_value(value)),): repr(n) for value, n in counts.items()}
        if text := case_of([name_of(label)], texts):
            yield text


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
