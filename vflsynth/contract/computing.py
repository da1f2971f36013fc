"""Columns that others compute: by one rule for all records, or by one for each label."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from vflsynth.columns.arrays import Flags, kind_of_values
from vflsynth.contract.arithmetic import clocks, digits, of_two
from vflsynth.contract.bending import bends
from vflsynth.contract.combining import confirmed, multiples, nearly_follows, products, sums
from vflsynth.contract.comparing import comparisons
from vflsynth.contract.expressions import LONGEST
from vflsynth.contract.findings import (
    LEAST_SURPRISE,
    MOST_CASES,
    SCREENED,
    SCREENED_AGAIN,
    Finding,
    Table,
    case_of,
    computed_columns,
    name_of,
    share_kept,
    spread,
)
from vflsynth.contract.rules import Check, plain_value
from vflsynth.contract.times import lags, parts_of_times


def computing(table: Table) -> list[Finding]:
    """Find columns that others compute in all records; of equal ones, look at one from then on."""
    equal = list(_equalities(table))
    table.drop({finding.rule.columns[0] for finding in equal})
    found = [*lags(table), *parts_of_times(table), *comparisons(table)]
    found += [*digits(table), *clocks(table)]
    found += [*equal, *of_two(table, [*equal, *found])]
    found += [*sums(table, found), *products(table, found)]
    found += beyond_limits(table, found)
    found += bends(table, found)
    return [*found, *by_label(table, found)]


def _equalities(table: Table) -> Iterator[Finding]:
    rows = spread(table.n, SCREENED)
    first: dict[Any, Hashable] = {}
    for label in table.labels:
        column = table.frame[label]
        if column.nunique() < 2:
            continue
        some = column.iloc[rows].astype(object)
        key = (table.kinds.get(label, "labels"), *some.where(some.notna(), None))
        like = first.setdefault(key, label)
        if like == label:
            continue
        rule = Check(f"{name_of(label)} == {name_of(like)}")
        codes = np.bincount(table.codes(label)[0])
        surprise = table.n * (1.0 - float(codes.max()) / table.n)
        if surprise >= LEAST_SURPRISE and share_kept(table, rule) == 1.0:
            yield Finding(rule, "equality", int(column.notna().sum()), surprise)


def beyond_limits(table: Table, known: Sequence[Finding]) -> Iterator[Finding]:
    """Find numbers that others compute up to a limit, or from one on: 0 up to a deductible."""
    done, groups = computed_columns(known)
    rows = spread(table.n, SCREENED_AGAIN)
    numbers = table.frame[table.numbers].iloc[rows].reset_index(drop=True)
    matrix = np.array(list(table.some(SCREENED_AGAIN).values()))
    matrix[~np.isfinite(matrix)] = 0.0
    for k, column in enumerate(numbers):
        own = numbers[column]
        for bend, end in (("max", own.min()), ("min", own.max())) if column not in done else ():
            beyond = (own.notna() & (own != end)).to_numpy(np.bool_)
            if min((own == end).sum(), beyond.sum()) < LEAST_SURPRISE or not np.isfinite(end):
                continue
            if not nearly_follows(matrix[k][beyond], np.delete(matrix, k, axis=0)[:, beyond]):
                continue
            text = _computing(numbers[beyond], column)
            if text is None:
                continue
            limited = f"{bend}({text}, {plain_value(end)!r})"
            finding = confirmed(table, column, limited, matrix[k], "extreme")
            if finding is not None and {*finding.rule.columns} not in groups:
                yield finding
                break


def by_label(table: Table, known: Sequence[Finding]) -> Iterator[Finding]:
    """Find numbers that others compute in another way for each label, or for each two.

    What is `known` to be computed is left out, but for a sum, of which another column may be
    computed in its place.
    """
    taken = _Taken(known)
    rows = spread(table.n, SCREENED_AGAIN)
    numbers = table.frame[table.numbers].iloc[rows].reset_index(drop=True)
    some = table.some(SCREENED_AGAIN)
    plain = [k for k in table.cased if kind_of_values(table.frame[k].dtype) not in "iuf"]
    for by in [*combinations(table.cased, 1), *combinations(plain, 2)]:
        cells = _cells(table, by, rows)
        if len(numbers.columns) < 2 or not 2 <= len(cells) <= MOST_CASES:
            continue
        parts = {values: numbers[own] for values, own in cells.items()}
        first = [*parts.values()][: 3 - len(by)]  # of single labels two, as one may have zeros
        for finding in (finding for part in first for finding in _among(part)):
            column, columns = finding.rule.repaired_column, [*finding.rule.columns]
            if column in table.cased or not taken.leaves(finding, by):
                continue
            texts = _texts({values: part[columns] for values, part in parts.items()}, column)
            text = case_of([name_of(label) for label in by], texts)
            if text is None or "case(" not in text:
                continue
            if len(f"{name_of(column)} == round({text}, 99)") > LONGEST:
                continue
            of_all = confirmed(table, column, text, some[column], "case")
            if of_all is not None:
                taken.add(finding)
                yield of_all


class _Taken:
    """Which columns are computed, so that none is twice, and nothing that follows is told."""

    def __init__(self, known: Sequence[Finding]) -> None:
        computed, self.groups = computed_columns(known)
        exact = [finding for finding in known if finding.is_exact]
        self.sums = [{*finding.rule.columns} for finding in exact if finding.kind == "sum"]
        self.following = {f.rule.repaired_column for f in exact if f.rule.turned()}  # type: ignore[attr-defined]
        """Columns that follow from others of their sum."""
        self.columns = computed - self.following
        self.pairs: list[set[Hashable]] = []
        """Columns each of which follows from another one."""

    def _within(self, finding: Finding) -> list[set[Hashable]]:
        return [group for group in self.sums if len({*finding.rule.columns} & group) > 1]

    def leaves(self, finding: Finding, by: Sequence[Hashable]) -> bool:
        """Whether its column may be computed so, by the values of some labels."""
        column, columns = finding.rule.repaired_column, {*finding.rule.columns}
        follows = len(columns) > 2 or column in self.following
        known = any({*columns, *by} <= group for group in self.groups) or columns in self.groups
        if column in self.columns or known:
            return False
        if any(columns <= pairs for pairs in self.pairs):
            return False
        return not (follows and self._within(finding))

    def add(self, finding: Finding) -> None:
        """Note that its column is computed: with one of its sum, the others follow."""
        self.columns.add(finding.rule.repaired_column)
        if len(columns := {*finding.rule.columns}) == 2:
            linked = [pairs for pairs in self.pairs if pairs & columns]
            self.pairs = [pairs for pairs in self.pairs if not pairs & columns]
            self.pairs.append(columns.union(*linked))
        self.following.update(*self._within(finding))


def _cells(
    table: Table, by: Sequence[Hashable], rows: npt.NDArray[np.intp]
) -> dict[tuple[str, ...], Flags]:
    """Say which of some records have each combination of labels that enough of all records have.

    The most frequent come first.
    """
    values = [table.codes(label)[1] for label in by]
    shape = [len(own) + 1 for own in values]
    codes = np.ravel_multi_index([table.codes(label)[0] for label in by], shape)
    counts = np.bincount(codes, minlength=math.prod(shape))
    cells = {}
    for k in np.argsort(-counts, kind="stable"):
        own = list(zip(values, map(int, np.unravel_index(k, shape))))
        if counts[k] >= LEAST_SURPRISE and all(code < len(of) for of, code in own):
            cells[tuple(repr(plain_value(of[code])) for of, code in own)] = codes[rows] == k
    return cells


def _among(numbers: pd.DataFrame, only: Hashable = None) -> Iterator[Finding]:
    """Yield the multiples, sums and products among some numbers of a few records."""
    table = Table(numbers)
    found = list(multiples(table, only))
    yield from found
    for finding in sums(table, found, only):
        found.append(finding)
        yield finding
    yield from products(table, found, only)


def _texts(
    parts: Mapping[tuple[str, ...], pd.DataFrame], column: Hashable
) -> dict[tuple[str, ...], str]:
    """Write what computes a number in each of some parts of a table; nothing if one has nothing."""
    texts = {}
    for values, part in parts.items():
        text = _computing(part, column)
        if text is None:
            return {}
        texts[values] = text
    return texts


def _computing(numbers: pd.DataFrame, column: Hashable) -> str | None:
    """Write what computes a number before it is rounded, or its only value; None if nothing is."""
    own = numbers[column]
    if own.nunique() == 1 and not own.isna().any():
        return repr(plain_value(own.iloc[0]))
    others = [label for label in numbers if label != column]
    for finding in _among(numbers[[*others, column]], column):
        text = finding.rule.title.removeprefix(f"{name_of(column)} == ")
        rounded = re.fullmatch(r"round\((.*), \d+\)", text)
        return text if rounded is None else rounded[1]
    return None
