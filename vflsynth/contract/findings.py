"""What relations are looked for in, and what is found: a table's columns as numbers and codes."""

from __future__ import annotations

import keyword
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from vflsynth.columns.arrays import Floats, floats_of, kind_of_values, plain_values
from vflsynth.contract.rules import Check, Rule, are_hashable, plain_value
from vflsynth.exceptions import ContractError
from vflsynth.registry import Value, register

LEAST_SURPRISE = 20.0
"""Records that would break a relation if its columns were independent, at least."""

NEARLY = 0.99
"""A relation that so many of the records keep, if not all, is worth a word to people."""

MOST_CASES = 24
"""Labels, or pairs of them, that have a rule each, at most."""

_LONGEST_NAME, _LONGEST_LABEL = 100, 50
"""Characters of columns and labels that rules say, at most: a rule may have to say many."""

SCREENED, SCREENED_AGAIN = 400, 4000
"""Records that candidates are looked for in: where most fail, and what is left."""

_MOST_COLUMNS, _MOST_NUMBERS = 100, 60

Codes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Finding:
    """A relation, and how well the records support it.

    Its kind is "equality", "sum", "product", "ratio", "extreme", "case", "digits", "dates",
    "comparison", "order", "flags", "dependency", "classes" of numbers that hardly repeat, or
    "level", which says its `level` in values. Of the `n_records` that it can be looked at in, a
    `share` keep it, and `n_surprising` would break it if the columns were independent.
    """

    rule: Rule
    kind: str
    n_records: int
    n_surprising: float
    share: float = 1.0
    level: Level | None = None

    @property
    def is_exact(self) -> bool:
        """Whether all records keep it."""
        return self.share == 1.0

    @property
    def judges_rows(self) -> bool:
        """Whether its rule says something of rows with values that the records do not have."""
        return self.kind != "classes"

    def __str__(self) -> str:
        of = f"{self.n_records:,} records that have values"
        how = f"all {of}" if self.is_exact else f"{self.share:.2%} of the {of}"
        return (
            f"{self.rule.title}: holds in {how}; if the columns were independent "
            f"{self.n_surprising:,.0f} would break it"
        )


@register
@dataclass(frozen=True)
class Level(Value):
    """One value of a column fixes another column's: ``by == when``, ``column == value``.

    Missing values are None. `exactly` says that the column has the value nowhere else.
    """

    by: Hashable
    when: Any
    column: Hashable
    value: Any
    exactly: bool


class Table:
    """A table's columns as numbers and as codes, each computed once; `nearly` as of `discover`."""

    def __init__(self, frame: pd.DataFrame, *, nearly: bool = False) -> None:
        self.frame, self.n, self.nearly = frame, len(frame), nearly
        named: list[Hashable] = [
            label
            for label in frame.columns
            if isinstance(label, str | int | np.integer)
            and len(str(label)) <= _LONGEST_NAME
            and (frame[label].dtype != object or are_hashable(frame[label]))
        ]
        self.labels = named[:_MOST_COLUMNS]
        self._codes: dict[Hashable, tuple[Codes, list[Any]]] = {}
        self._some: dict[int, dict[Hashable, Floats]] = {}

    def counts(self, share: float) -> bool:
        """Whether a relation is kept by enough records."""
        return share == 1.0 or (self.nearly and share >= NEARLY)

    def drop(self, labels: set[Hashable]) -> None:
        """Look at some columns no more."""
        self.labels = [label for label in self.labels if label not in labels]

    @cached_property
    def kinds(self) -> dict[Hashable, str]:
        """Columns of numbers and times with more than two values, and which of them compare."""
        found: dict[Hashable, str] = {}
        for label in self.frame.columns:
            dtype = self.frame[label].dtype
            kind = kind_of_values(dtype)
            if kind in "iufmM" and self.frame[label].nunique() > 2:
                zoned = isinstance(dtype, pd.DatetimeTZDtype)
                found[label] = "number" if kind in "iuf" else f"{kind}{'z' * zoned}"
        return found

    @property
    def numbers(self) -> list[Hashable]:
        """Columns of numbers."""
        return [k for k in self.labels if self.kinds.get(k) == "number"][:_MOST_NUMBERS]

    @cached_property
    def cased(self) -> list[Hashable]:
        """Columns of so few values that each may have a rule, and that a rule can say."""
        found = []
        for label in self.labels:
            values = [plain_value(value) for value in self.codes(label)[1][: MOST_CASES + 1]]
            said = all(isinstance(own, bool | int | float | str) for own in values)
            said &= max(map(len, map(str, values)), default=0) <= _LONGEST_LABEL
            finite = all(np.isfinite(own) for own in values if isinstance(own, float))
            if said and finite and 2 <= len(values) <= MOST_CASES:
                found.append(label)
        return found

    def values(self, label: Hashable, rows: Any = slice(None)) -> Floats:
        """Numbers; days of times; NaN for what is missing."""
        return numbers_or_days(self.frame[label].iloc[rows])

    def some(self, count: int) -> dict[Hashable, Floats]:
        """Return the numbers of records that are spread over the table, see `spread`, by column."""
        if count not in self._some:
            rows = spread(self.n, count)
            self._some[count] = {label: self.values(label, rows) for label in self.numbers}
        return {label: self._some[count][label] for label in self.numbers}

    def codes(self, label: Hashable) -> tuple[Codes, list[Any]]:
        """Return each record's value by number, the last for what is missing; and the values."""
        if label not in self._codes:
            codes, values = pd.factorize(self.frame[label])
            found = codes.astype(np.int64)
            found[found < 0] = len(values)
            self._codes[label] = found, list(values)
        return self._codes[label]


def numbers_or_days(column: pd.Series[Any]) -> Floats:
    """Return numbers, or days of times; NaN for what is missing."""
    if kind_of_values(column.dtype) not in "mM":
        return floats_of(column)
    days = np.full(len(column), np.nan)
    known = column.notna().to_numpy()
    times = plain_values(column[known])
    unit = np.dtype("m8[us]" if times.dtype.kind == "m" else "M8[us]")
    days[known] = times.astype(unit).astype(np.int64) / 86_400_000_000
    return days


def spread(n: int, count: int) -> npt.NDArray[np.intp]:
    """Return the places of at most `count` records that are spread over a table of `n`."""
    return np.unique(np.linspace(0, max(0, n - 1), min(count, n)).astype(np.intp))


def name_of(label: Hashable) -> str:
    """Write a column as an expression does."""
    text = str(label)
    plain = isinstance(label, str) and text.isidentifier() and not keyword.iskeyword(text)
    return text if plain else f"col({label if isinstance(label, str) else int(str(label))!r})"


def case_of(by: Sequence[str], texts: Mapping[Any, str | None]) -> str | None:
    """Write what belongs to each combination of labels; what most have comes last, without them.

    None if something is missing.
    """
    if not by:
        return texts[()]
    inner: dict[str, dict[tuple[str, ...], str | None]] = {}
    for (value, *rest), text in sorted(texts.items()):
        inner.setdefault(value, {})[tuple(rest)] = text
    written = {value: case_of(by[1:], own) for value, own in inner.items()}
    if None in written.values() or not written:
        return None
    usual = max(written.values(), key=[*written.values()].count)
    cases = "".join(f"{value}, {text}, " for value, text in written.items() if text != usual)
    return f"case({by[0]}, {cases}{usual})" if cases else usual


def share_kept(table: Table, rule: Rule) -> float:
    """Share of the records with values that keep a rule; 0 if it cannot be computed."""
    rows = table.frame[list(rule.columns)]
    known = rows.notna().all(axis=1).to_numpy()
    if not known.any():
        return 0.0
    try:
        return float(np.asarray(rule.keeps(rows[known]), np.bool_).mean())
    except ContractError:
        return 0.0


def computed_by(table: Table, rule: Check, kind: str) -> Finding | None:
    """Look at all records for a rule that computes a column; None if too few support it."""
    known = table.frame[list(rule.columns)].notna().all(axis=1).to_numpy()
    own = table.codes(rule.repaired_column)[0][known]
    surprise = float(np.count_nonzero(np.roll(own, 1 + len(own) // 3) != own))
    if surprise < LEAST_SURPRISE:
        return None
    share = share_kept(table, rule)
    return Finding(rule, kind, len(own), surprise, share) if table.counts(share) else None


def computed_columns(
    known: Sequence[Finding],
) -> tuple[set[Hashable | None], list[set[Hashable]]]:
    """Return the columns that exact relations compute, and the columns that each is of."""
    rules = [finding.rule for finding in known if finding.is_exact]
    return {rule.repaired_column for rule in rules}, [{*rule.columns} for rule in rules]


def agree(counted: Floats, made: Floats) -> bool:
    """Whether nearly all of enough records count what is made: a candidate for `computed_by`."""
    known = np.isfinite(counted) & np.isfinite(made)
    wrong = np.count_nonzero(np.abs(made - counted)[known] > 1e-6)
    return bool(known.sum() >= LEAST_SURPRISE and wrong <= 2 * (1 - NEARLY) * known.sum())
