"""Columns of two values that say whether one number, or time, is larger than another."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import product
from typing import Any

import numpy as np

from vflsynth.columns.arrays import Floats
from vflsynth.contract.findings import (
    LEAST_SURPRISE,
    SCREENED,
    Codes,
    Finding,
    Table,
    computed_by,
    name_of,
    spread,
)
from vflsynth.contract.rules import Check, plain_value


def comparisons(table: Table) -> Iterator[Finding]:
    """Find columns of two values that others compute by comparing: late, as paid after due."""
    rows = spread(table.n, SCREENED)
    alike: dict[str, dict[Hashable, Floats]] = {}
    for label in (label for label in table.labels if label in table.kinds):
        alike.setdefault(table.kinds[label], {})[label] = table.values(label, rows)
    for flag in table.cased:
        codes, values = table.codes(flag)
        if len(values) != 2 or codes.max() > 1:
            continue
        rules = (rule for own in alike.values() for rule in _rules(flag, values, codes[rows], own))
        found = (computed_by(table, rule, "comparison") for rule in rules)
        finding = next((each for each in found if each is not None and each.is_exact), None)
        if finding is not None:
            yield finding


def _rules(
    flag: Hashable, values: list[Any], codes: Codes, numbers: dict[Hashable, Floats]
) -> Iterator[Check]:
    """Write which numbers are larger than which others exactly where a flag has one value.

    Where one of them hardly varies with either value, that is told otherwise.
    """
    moving = {
        label: own
        for label, own in numbers.items()
        if all(len({*own[codes == k].tolist()}) > 2 for k in range(2))
    }
    labels, matrix = list(moving), np.array(list(moving.values()))
    for k, sign in product(range(2), ("<", "<=")):
        true, false = (plain_value(values[own]) for own in (k, 1 - k))
        if isinstance(true, bool | int) and (true, false) != (1, 0):
            continue
        for label, own in zip(labels, matrix):
            both = np.isfinite(matrix) & np.isfinite(own)
            smaller = own < matrix if sign == "<" else own <= matrix
            wrong = both & (smaller != (codes == k))
            for other in np.flatnonzero(~wrong.any(axis=1) & (both.sum(axis=1) >= LEAST_SURPRISE)):
                text = f"{name_of(label)} {sign} {name_of(labels[other])}"
                cased = f"case({text}, True, {true!r}, {false!r})"
                yield Check(f"{name_of(flag)} == {f'({text})' if true in (True, 1) else cased}")
