"""Relations that are exact in one table: computed columns, orders, dependencies, codes.

Columns are looked at up to three at a time: first in a few hundred records spread over the table,
where most candidates fail, and what is left in all records. A relation counts if at least
`LEAST_SURPRISE` records would break it were its columns independent. Whatever is found was read off
the records and is paid for by nobody: it is not for private fits.
"""

from __future__ import annotations

import keyword
import operator
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, permutations
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from vflsynth.columns.arrays import Floats, decimals_of, floats_of, kind_of_values, plain_values
from vflsynth.contract.rules import (
    Check,
    Determines,
    FixedCombinations,
    Rule,
    are_hashable,
    in_order,
    plain_value,
)
from vflsynth.exceptions import ContractError
from vflsynth.registry import Value, register

LEAST_SURPRISE = 20.0
"""Records that would break a relation if its columns were independent, at least."""

NEARLY = 0.99
"""A relation that so many of the records keep, if not all, is worth a word to people."""

_SCREENED, _SCREENED_AGAIN = 400, 4000
_MOST_COLUMNS, _MOST_NUMBERS = 100, 60
_MOST_LEVELS = 256
_SPIKE = 0.05
"""Share of the records that a value of a column of numbers needs to count as a level."""

_CROSSING = 0.02
"""Share of independent pairs that have to be out of order: the ranges of two columns overlap."""

Codes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Finding:
    """A relation, and how well the records support it.

    Its kind is "equality", "sum", "product", "ratio", "dates", "order", "flags", "dependency" or
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


def discover(frame: pd.DataFrame, *, nearly: bool = False) -> list[Finding]:
    """Find relations that hold in all records of a table and would not hold by chance.

    Parameters
    ----------
    frame : DataFrame, shape (record, column)
    nearly : bool, default=False
        Whether to return what 99 % of the records keep as well, all but groups of flags.

    Returns
    -------
    list of Finding
        Equal columns; sums, products and ratios, as they are rounded; differences of dates in days;
        orders, without those that follow from anything else; groups of flags of which one is set;
        columns that one or two others determine; values of a column that fix another. Of a product
        and a ratio of the same columns, the one that computes the column that tells most. Columns
        whose labels are neither text nor whole numbers are not looked at.
    """
    if len(frame) < LEAST_SURPRISE:
        return []
    table = _Table(frame, nearly=nearly)
    with np.errstate(all="ignore"):  # infinite and huge numbers
        equal = list(_equalities(table))
        table.drop({finding.rule.columns[0] for finding in equal})
        flags = list(_one_hot(table))
        computed = [*_dates(table), *_arithmetic(table)]
        dependent = list(_dependencies(table, [*equal, *computed], flags))
        levels = list(_levels(table, [*computed, *flags, *dependent]))
        table.drop({label for finding in flags for label in finding.rule.columns})
        ordered = list(_orders(table, [*computed, *dependent], levels))
    return [*equal, *computed, *ordered, *flags, *dependent, *levels]


def compatible(findings: Sequence[Finding]) -> list[Finding]:
    """Leave out relations that compute a column which one before computes, or in a circle."""
    kept: list[Finding] = []
    for finding in findings:
        rules = [own.rule for own in kept]
        computed = finding.rule.repaired_column
        if computed is not None and any(rule.repaired_column == computed for rule in rules):
            continue
        try:
            in_order([*rules, finding.rule])
        except ContractError:
            continue
        kept.append(finding)
    return kept


class _Table:
    """A table's columns as numbers and as codes, each computed once; `nearly` as of `discover`."""

    def __init__(self, frame: pd.DataFrame, *, nearly: bool = False) -> None:
        self.frame, self.n, self.nearly = frame, len(frame), nearly
        named: list[Hashable] = [
            label
            for label in frame.columns
            if isinstance(label, str | int | np.integer)
            and (frame[label].dtype != object or are_hashable(frame[label]))
        ]
        self.labels = named[:_MOST_COLUMNS]
        self._codes: dict[Hashable, tuple[Codes, list[Any]]] = {}

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
                found[label] = "number" if kind in "iuf" else str(dtype)
        return found

    @property
    def numbers(self) -> list[Hashable]:
        """Columns of numbers."""
        return [k for k in self.labels if self.kinds.get(k) == "number"][:_MOST_NUMBERS]

    def values(self, label: Hashable, rows: Any = slice(None)) -> Floats:
        """Numbers; days of times; NaN for what is missing."""
        column = self.frame[label].iloc[rows]
        kind = self.kinds[label]
        if kind == "number":
            return floats_of(column)
        days = np.full(len(column), np.nan)
        known = column.notna().to_numpy()
        times = plain_values(column[known])
        unit = np.dtype("m8[us]" if times.dtype.kind == "m" else "M8[us]")
        days[known] = times.astype(unit).astype(np.int64) / 86_400_000_000
        return days

    def codes(self, label: Hashable) -> tuple[Codes, list[Any]]:
        """Return each record's value by number, the last for what is missing; and the values."""
        if label not in self._codes:
            codes, values = pd.factorize(self.frame[label])
            found = codes.astype(np.int64)
            found[found < 0] = len(values)
            self._codes[label] = found, list(values)
        return self._codes[label]


def spread(n: int, count: int) -> npt.NDArray[np.intp]:
    """Return the places of at most `count` records that are spread over a table of `n`."""
    return np.unique(np.linspace(0, max(0, n - 1), min(count, n)).astype(np.intp))


def name_of(label: Hashable) -> str:
    """Write a column as an expression does."""
    text = str(label)
    plain = isinstance(label, str) and text.isidentifier() and not keyword.iskeyword(text)
    return text if plain else f"col({label if isinstance(label, str) else int(str(label))!r})"


# equal columns and flags


def _equalities(table: _Table) -> Iterator[Finding]:
    rows = spread(table.n, _SCREENED)
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
        if surprise >= LEAST_SURPRISE and _kept(table, rule) == 1.0:
            yield Finding(rule, "equality", int(column.notna().sum()), surprise)


def _one_hot(table: _Table) -> Iterator[Finding]:
    """Find groups of flags of which exactly one is set."""
    flags: dict[Hashable, Any] = {}
    for label in table.labels:
        column = table.frame[label]
        numeric = pd.api.types.is_bool_dtype(column.dtype) or pd.api.types.is_numeric_dtype(column)
        if numeric and column.isin([0, 1]).all() and column.nunique() > 1:
            flags[label] = column.to_numpy(dtype=np.int64)
    free = list(flags)
    while free:
        group = [free.pop(0)]
        total = flags[group[0]].copy()
        for label in list(free):
            if not (total & flags[label]).any():
                group.append(label)
                total += flags[label]
        if len(group) > 2 and (total == 1).all():
            free = [label for label in free if label not in group]
            shares = np.array([flags[label].mean() for label in group])
            odds = shares / (1 - shares)
            by_chance = float(np.prod(1 - shares) * odds.sum())  # exactly one of independent flags
            surprise = table.n * (1 - by_chance)
            yield Finding(FixedCombinations(tuple(group)), "flags", table.n, surprise)


# arithmetic


@dataclass(frozen=True)
class _Form:
    """How a column may follow from one or two others."""

    kind: str
    text: str
    of: Callable[[Floats, Floats], Floats]
    """Computes it for one column and many others, (other, record)."""
    scaled: bool = True
    two: bool = True
    symmetric: bool = False


def _not_zero(numbers: Floats) -> Floats:
    return np.where(numbers == 0.0, np.nan, numbers)


_RATIO = _Form("ratio", "{a} / {b}", lambda one, others: one / _not_zero(others))
_OF_SQUARE = _Form("ratio", "{a} / ({b} * {b})", lambda one, others: one / _not_zero(others) ** 2)
_FORMS = (
    _Form("product", "{a}", lambda one, others: one[None], two=False),
    _Form("sum", "{a} + {b}", operator.add, scaled=False, symmetric=True),
    _Form("product", "{a} * {b}", operator.mul, symmetric=True),
    _RATIO,
    _OF_SQUARE,
)


def _arithmetic(table: _Table) -> Iterator[Finding]:
    """Columns that follow from one or two others, as they are rounded."""
    labels = table.numbers
    if len(labels) < 2:
        return
    rows = spread(table.n, _SCREENED)
    values = np.stack([table.values(label, rows) for label in labels])
    values[~np.isfinite(values)] = np.nan
    places = {k: decimals_of(row[np.isfinite(row)]) for k, row in zip(labels, values)}
    slack = np.array([1e-9 if d is None else 0.5 * 10.0**-d for d in places.values()])
    done: set[frozenset[Hashable]] = set()
    multiples: set[Hashable] = set()  # with these, whatever is a product is one more
    for form in _FORMS:
        for a, one in enumerate(values):
            others = np.arange(a, len(labels)) if form.symmetric else np.arange(len(labels))
            made = form.of(one, values[others] if form.two else values[:1])
            for k, c, factor in _screened(values, made, slack, form, len(rows), table.nearly):
                used = (a, int(others[k])) if form.two else (a,)
                group = frozenset(labels[i] for i in (*used, c))
                if c in used or group in done or (form.kind != "sum" and group & multiples):
                    continue
                parts = [labels[i] for i in used]
                finding = _confirmed(table, form, labels[c], parts, factor, places[labels[c]])
                if finding is not None:
                    done.add(group)
                    multiples |= {labels[c]} if finding.is_exact and not form.two else set()
                    if form.text == "{a} * {b}":
                        finding = _finest(table, finding, labels[c], parts, factor, places)
                    yield finding


def _finest(
    table: _Table,
    product: Finding,
    computed: Hashable,
    parts: Sequence[Hashable],
    factor: str,
    places: dict[Hashable, int | None],
) -> Finding:
    """Return a product, or the ratio in its place that computes the column which tells most."""
    options = [(_distinct(table, parts), product)]
    _, inverse = _nice(1.0 / _scaled(np.ones(1), factor)[0])
    for part, other in (parts, parts[::-1]) if len(set(parts)) == 2 and product.is_exact else ():
        of = [computed, other]
        found = _confirmed(table, _RATIO, part, of, inverse, places[part])
        if found is not None and found.is_exact:
            options.append((_distinct(table, of), found))
    return min(options, key=lambda option: option[0])[1]


def _distinct(table: _Table, labels: Sequence[Hashable]) -> int:
    return int(np.prod([len(table.codes(label)[1]) for label in labels]))


def _screened(
    values: Floats, made: Floats, slack: Floats, form: _Form, n: int, nearly: bool
) -> Iterator[tuple[int, int, str]]:
    """Yield which computed rows are which column, and by which factor."""
    known_made, known = np.isfinite(made), np.isfinite(values)
    filled, full = np.where(known_made, made, 0.0), np.where(known, values, 0.0)
    both = known_made.astype(float) @ known.T.astype(float)
    factors = np.ones(both.shape)
    if form.scaled:
        squares = (filled**2) @ known.T
        factors = (filled @ full.T) / np.where(squares == 0.0, np.nan, squares)
    asked = (both >= min(LEAST_SURPRISE, n)) & np.isfinite(factors) & (factors != 0.0)
    asked[asked] = _may_be_nice(factors[asked])
    tolerance = slack[:, None] * (1.0 + 1e-9) + 1e-9 * np.abs(values)
    for k, row in enumerate(asked):
        found = [
            (int(c), *(_nice(float(factors[k, c])) if form.scaled else (1.0, "")))
            for c in np.flatnonzero(row)
        ]
        plain = None if form.two or nearly else 1.0
        found = [each for each in found if each[1] not in (None, plain)]
        own, by = [each[0] for each in found], np.array([each[1] for each in found], float)
        off = np.abs(by[:, None] * made[k] - values[own])
        wrong = np.count_nonzero(off > tolerance[own], axis=1)
        for bad, (c, _, text) in zip(wrong, found):
            if bad <= (1.0 - NEARLY) * 2.0 * both[k, c]:
                yield k, c, text


def _may_be_nice(factors: Floats) -> npt.NDArray[np.bool_]:
    """Leave out most factors that `_nice` has nothing for, in much less time."""
    found = np.zeros(factors.shape, bool)
    for values in (factors, 1.0 / factors):
        for digits, within in ((2, 1.001e-3), (3, 1.001e-5)):
            unit = 10.0 ** (np.floor(np.log10(np.abs(values))) - digits + 1)
            found |= np.abs(np.round(values / unit) * unit / values - 1.0) < within
    return found


def _nice(factor: float) -> tuple[float | None, str]:
    """Return a factor of at most three digits, or the inverse of one, and how it is written."""
    for text, value in ((" * ", factor), (" / ", 1.0 / factor)):
        digits = float(f"{value:.3g}")
        if abs(digits / value - 1.0) < 1e-3:
            if digits == 1.0:
                return 1.0, ""
            written = repr(int(digits)) if digits.is_integer() else repr(digits)
            if digits == float(f"{value:.2g}") or abs(digits / value - 1.0) < 1e-5:
                return (digits if text == " * " else 1.0 / digits), text + written
    return None, ""


def _confirmed(
    table: _Table,
    form: _Form,
    computed: Hashable,
    parts: Sequence[Hashable],
    factor: str,
    places: int | None,
) -> Finding | None:
    """Look at all records, as the rule says it."""
    names = {"a": name_of(parts[0]), "b": name_of(parts[-1])}
    texts = [form.text.format(**names) + factor]
    if form is _RATIO and factor:  # the last digit is rounded another way
        texts.append("{a}{factor} / {b}".format(**names, factor=factor))
    if form is _OF_SQUARE and factor == " * 10000":  # as of a height in centimetres
        texts.insert(0, "{a} / (({b} / 100) * ({b} / 100))".format(**names))
    kind = "equality" if texts == [names["a"]] else form.kind
    own = table.values(computed)
    used = [table.values(label) for label in parts]
    known = np.isfinite(own) & np.all([np.isfinite(v) for v in used], axis=0)
    n = int(known.sum())
    plain = {0.0} if form.kind == "sum" else {0.0, 1.0, -1.0}
    telling = [np.count_nonzero(~np.isin(v[known], list(plain))) for v in used]
    if n < LEAST_SURPRISE or min(telling) < LEAST_SURPRISE:
        return None
    if form.kind == "ratio" and (used[-1][known] == 0.0).any():
        return None
    scaled = _scaled(form.of(used[0][known], used[-1][known][None])[0], factor)
    slack = 1e-9 if places is None else 0.5 * 10.0**-places
    strange = np.abs(np.roll(own[known], 1 + n // 3) - scaled) > slack + 1e-9 * np.abs(scaled)
    if (surprise := float(strange.sum())) < LEAST_SURPRISE:
        return None
    if places is not None:
        texts += [f"round({text}, {places})" for text in texts]
    best = 0.0, Check(f"{name_of(computed)} == {texts[0]}")
    for text in texts:
        tried = Check(f"{name_of(computed)} == {text}")
        if (kept := _kept(table, tried)) > best[0]:
            best = kept, tried
        if kept == 1.0:
            break
    share, rule = best
    return Finding(rule, kind, n, surprise, share) if table.counts(share) else None


def _scaled(made: Floats, factor: str) -> Floats:
    if not factor:
        return made
    number = float(factor[3:])
    return made * number if factor[1] == "*" else made / number


def _dates(table: _Table) -> Iterator[Finding]:
    """Find times that lie as many days behind others as a column says, and days counted so."""
    times: dict[str, list[Hashable]] = {}
    for label in table.labels:
        if label in table.kinds and kind_of_values(table.frame[label].dtype) == "M":
            times.setdefault(table.kinds[label], []).append(label)
    counts = [
        k for k in table.labels if k in table.numbers or kind_of_values(table.frame[k].dtype) == "m"
    ]
    rows = spread(table.n, _SCREENED)
    for alike in times.values():
        for early, late in permutations(alike, 2):
            passed = table.values(late, rows) - table.values(early, rows)
            for label in counts:
                days = table.values(label, rows)
                known = np.isfinite(passed) & np.isfinite(days)
                for whole in (False, True):
                    made = np.floor(passed + 1e-9) if whole else passed
                    wrong = np.count_nonzero(np.abs(made - days)[known] > 1e-6)
                    if known.sum() < LEAST_SURPRISE or wrong > 2 * (1 - NEARLY) * known.sum():
                        continue
                    if (finding := _date_rule(table, early, late, label, whole)) is not None:
                        yield finding
                        break


def _date_rule(
    table: _Table, early: Hashable, late: Hashable, days: Hashable, whole: bool
) -> Finding | None:
    one, two, three = name_of(early), name_of(late), name_of(days)
    text = f"{two} == {one} + days({three})"
    if kind_of_values(table.frame[days].dtype) == "m":
        text = f"{two} == {one} + {three}"
    elif whole:
        text = f"{three} == ({two} - {one}) // days(1)"
    rule = Check(text)
    known = table.frame[[early, late, days]].notna().all(axis=1).to_numpy()
    counted = table.values(days)[known]
    n = len(counted)
    surprise = float(np.count_nonzero(np.roll(counted, 1 + n // 3) != counted)) if n else 0.0
    if surprise < LEAST_SURPRISE:
        return None
    share = _kept(table, rule)
    return Finding(rule, "dates", n, surprise, share) if table.counts(share) else None


def _kept(table: _Table, rule: Rule) -> float:
    """Share of the records with values that keep a rule; 0 if it cannot be computed."""
    rows = table.frame[list(rule.columns)]
    known = rows.notna().all(axis=1).to_numpy()
    if not known.any():
        return 0.0
    try:
        return float(np.asarray(rule.keeps(rows[known]), np.bool_).mean())
    except ContractError:
        return 0.0


# orders


def _orders(
    table: _Table, known: Sequence[Finding], levels: Sequence[Finding]
) -> Iterator[Finding]:
    """Pairs of which one is never larger, without those that follow from others.

    What a relation of both columns brings about, such as a part that is below its total, is no
    finding, nor is what follows from that. Where a value of one column fixes the other, records
    with both values say nothing.
    """
    rows = spread(table.n, _SCREENED)
    some = {k: table.values(k, rows) for k in table.labels if k in table.kinds}
    together = _groups(known)
    pairs = [group for group in together if len(group) == 2]
    together += [one | other for one, other in combinations(pairs, 2) if one & other]
    fixed = {frozenset(f.rule.columns): f.level for f in levels if f.is_exact}
    found: dict[tuple[Hashable, Hashable], Finding] = {}
    implied: set[tuple[Hashable, Hashable]] = set()
    for low, high in permutations(some, 2):
        if table.kinds[low] != table.kinds[high]:
            continue
        tells = np.isfinite(some[low]) & np.isfinite(some[high])
        wrong = np.count_nonzero((some[low] > some[high])[tells])
        if tells.sum() < LEAST_SURPRISE or wrong > (1 - NEARLY) * 2 * tells.sum():
            continue
        one, other = table.values(low), table.values(high)
        both = np.isfinite(one) & np.isfinite(other)
        share = 1.0 - float((one > other)[both].mean())
        if (one == other)[both].all() or not table.counts(share):
            continue
        if any({low, high} <= group for group in together):
            implied |= {(low, high)} if share == 1.0 else set()
            continue
        if (level := fixed.get(frozenset((low, high)))) is not None:
            tells &= ~_at(table, level)[rows]
        crossing = np.searchsorted(np.sort(some[high][tells]), some[low][tells], side="left")
        surprise = len(crossing) and both.sum() / len(rows) * float(crossing.mean())
        if surprise >= max(LEAST_SURPRISE, _CROSSING * both.sum()):
            rule = Check(f"{name_of(low)} <= {name_of(high)}")
            found[low, high] = Finding(rule, "order", int(both.sum()), surprise, share)
    ordered = found.keys() | implied
    for (low, high), finding in found.items():
        if not any((low, m) in ordered and (m, high) in ordered for m in some):
            yield finding


def _groups(found: Sequence[Finding]) -> list[set[Hashable]]:
    """Return columns that stand in one exact relation."""
    return [set(finding.rule.columns) for finding in found if finding.is_exact]


def _at(table: _Table, level: Level) -> npt.NDArray[np.bool_]:
    """Say where two columns have the values of a level."""
    there = np.ones(table.n, np.bool_)
    for label, value in ((level.by, level.when), (level.column, level.value)):
        codes, values = table.codes(label)
        there &= codes == (len(values) if value is None else values.index(value))
    return there


# dependencies


def _dependencies(
    table: _Table, known: Sequence[Finding], flags: Sequence[Finding]
) -> Iterator[Finding]:
    """Columns that one or two others determine; both ways at once are fixed combinations."""
    together = _groups([*known, *flags])
    flagged = {label for finding in flags for label in finding.rule.columns}
    limit = table.n / 5
    codes: dict[Hashable, Codes] = {}
    for label in table.labels:
        found, values = table.codes(label)
        if 1 < len(values) <= limit and found.max() < len(values):
            codes[label] = found
    determining = [label for label, own in codes.items() if own.max() >= 2]
    few, again = spread(table.n, _SCREENED), spread(table.n, _SCREENED_AGAIN)
    fewest = (2 * NEARLY - 1) * len(again)
    determines: dict[tuple[Hashable, Hashable], tuple[float, float]] = {}
    for by in determining:
        for column in codes:
            if column == by or any({by, column} <= group for group in together):
                continue
            one, other = codes[by], codes[column]
            surprise = 0.0
            if all(_is_function(one[some], other[some]) for some in (few, again)):
                surprise = _surprise(one, other)
            if surprise >= LEAST_SURPRISE:
                determines[by, column] = surprise, 1.0
            elif table.nearly and _n_agreeing(one[again], other[again]) >= fewest:
                determines |= _nearly(one, other, (by, column))
    for (by, column), (surprise, share) in determines.items():
        back = determines.get((column, by))
        if back is None or (share == 1.0) != (back[1] == 1.0):
            yield Finding(Determines((by,), column), "dependency", table.n, surprise, share)
        elif table.labels.index(by) < table.labels.index(column):
            rule, least = FixedCombinations((by, column)), min(share, back[1])
            yield Finding(rule, "dependency", table.n, surprise, least)
    most = min(_MOST_LEVELS, table.n / 20)
    short = {k: own for k, own in codes.items() if own.max() < most and k not in flagged}
    yield from _pairs(table, short, set(determines), together)


def _pairs(
    table: _Table,
    codes: dict[Hashable, Codes],
    single: set[tuple[Hashable, Hashable]],
    together: Sequence[set[Hashable]],
) -> Iterator[Finding]:
    """Columns that two others determine, of which neither does."""
    if len(codes) < 3:
        return
    labels = list(codes)
    matrix = np.stack([codes[k] for k in labels], axis=1)
    sizes = matrix.max(axis=0) + 1
    some = matrix[spread(table.n, _SCREENED_AGAIN)]
    most = 4 * (1 - NEARLY) * len(some) if table.nearly else 0
    for i, j in combinations(range(len(labels)), 2):
        if sizes[i] * sizes[j] > table.n / 5:
            continue
        if (labels[i], labels[j]) in single or (labels[j], labels[i]) in single:
            continue
        both = some[:, i] * sizes[j] + some[:, j]
        order = np.argsort(both, kind="stable")
        same = np.diff(both[order]) == 0
        changes = (np.diff(some[order], axis=0) != 0) & same[:, None]
        for k in np.flatnonzero(np.count_nonzero(changes, axis=0) <= most):
            one, other, column = labels[i], labels[j], labels[k]
            if k in (i, j) or (one, column) in single or (other, column) in single:
                continue
            if any({one, other, column} <= group for group in together):
                continue
            pair = matrix[:, i] * sizes[j] + matrix[:, j]
            agreeing = max(_n_agreeing(matrix[:, by], matrix[:, k]) for by in (i, j))
            surprise = float(table.n - agreeing)
            if surprise < LEAST_SURPRISE:
                continue
            rule = Determines((one, other), column)
            if _is_function(pair, matrix[:, k]):
                yield Finding(rule, "dependency", table.n, surprise)
            elif table.nearly:
                for chance, share in _nearly(pair, matrix[:, k], rule).values():
                    if (1 - share) * table.n <= _FEWER * surprise:
                        yield Finding(rule, "dependency", table.n, min(surprise, chance), share)


_FEWER = 0.1
"""What holds nearly is broken by at most so many of the records that would break it by chance."""


def _nearly(by: Codes, column: Codes, name: Any) -> dict[Any, tuple[float, float]]:
    """Return by how many records chance would break a dependency, and the share that keeps it.

    Nothing if too few keep it, or if columns that have nothing to do with each other do as well.
    """
    share = _n_agreeing(by, column) / len(by)
    chance = 1.0 - _n_agreeing(by, np.random.default_rng(0).permutation(column)) / len(by)
    told = 1.0 - share <= min(1.0 - NEARLY, _FEWER * chance)
    return {name: (chance * len(by), share)} if told and chance * len(by) >= LEAST_SURPRISE else {}


def _n_agreeing(by: Codes, column: Codes) -> int:
    """Count the records that have the most frequent value among those like them."""
    n_column = int(column.max()) + 1
    pairs, counts = np.unique(by * n_column + column, return_counts=True)
    begins = np.flatnonzero(np.diff(pairs // n_column, prepend=-1))
    return int(np.maximum.reduceat(counts, begins).sum())


def _is_function(by: Codes, column: Codes) -> bool:
    """Whether each value of one has one value of the other."""
    n_column = int(column.max()) + 1
    joint = by * n_column + column
    if int(joint.max()) < 4 * len(by) + 1000:
        return bool(np.count_nonzero(np.bincount(joint)) == np.count_nonzero(np.bincount(by)))
    return len(np.unique(joint)) == len(np.unique(by))


def _surprise(by: Codes, column: Codes) -> float:
    """Count records that would break a dependency by chance; 0 if one of them does break it."""
    if not _is_function(by, column):
        return 0.0
    repeated = len(by) - len(np.unique(by))  # the first record of each value can break nothing
    shares = np.bincount(column) / len(column)
    return float(repeated * (1 - shares.max()))


# levels


def _levels(table: _Table, known: Sequence[Finding]) -> Iterator[Finding]:
    """Values that fix another column, such as "zero exactly where"."""
    together = _groups(known)
    rows = spread(table.n, _SCREENED_AGAIN)
    codes = {k: table.codes(k) for k in table.labels}
    shares = {k: np.bincount(own) / table.n for k, (own, _) in codes.items()}
    least = 2 * NEARLY - 1 if table.nearly else 1.0
    found: dict[_Cells, tuple[float, float]] = {}
    for by in table.labels:
        own = codes[by][0]
        for level in _candidates(table, by, shares[by]):
            there, some = own == level, own[rows] == level
            for column in table.labels:
                if column == by or any({by, column} <= group for group in together):
                    continue
                theirs = codes[column][0]
                part = theirs[rows][some]
                usual = int(np.bincount(part).argmax()) if len(part) else 0
                if not len(part) or np.count_nonzero(part == usual) < least * len(part):
                    continue
                share = float((theirs[there] == usual).mean())
                others = 1.0 - shares[column][usual]
                few = table.nearly and 1.0 - share <= min(1 - NEARLY, _FEWER * others)
                if share < 1.0 and not few:
                    continue
                if (surprise := float(there.sum() * others)) >= LEAST_SURPRISE:
                    found[(by, level), (column, usual)] = surprise, share
    places = list(found)
    for cells, (surprise, share) in found.items():
        mirrored = cells[1], cells[0]
        back = found.get(mirrored)
        if back is None or (share == 1.0) > (back[1] == 1.0):
            yield from _level(table, cells, surprise, share, exactly=False)
        if back is not None and places.index(cells) < places.index(mirrored):
            yield from _level(table, cells, surprise, min(share, back[1]), exactly=True)


_Cells = tuple[tuple[Hashable, int], tuple[Hashable, int]]


def _level(
    table: _Table, cells: _Cells, surprise: float, share: float, *, exactly: bool
) -> Iterator[Finding]:
    """Yield what a pair of values says, if it can be written as a rule."""
    values = []
    for column, code in cells:
        known = table.codes(column)[1]
        values.append(None if code == len(known) else plain_value(known[code]))
    one, other = (_says(column, value) for (column, _), value in zip(cells, values))
    if one is None or other is None:
        return
    rule = Check(f"({one}) == ({other})" if exactly else f"{one} => {other}")
    try:
        keeps = np.asarray(rule.keeps(table.frame), np.bool_).all()
    except ContractError:
        return
    if keeps or share < 1.0:
        (by, code), (column, _) = cells
        saying = Level(by, values[0], column, values[1], exactly)
        n = int(np.count_nonzero(table.codes(by)[0] == code))
        yield Finding(rule, "level", n, surprise, share, saying)


def _candidates(table: _Table, label: Hashable, shares: Floats) -> list[int]:
    """Return levels that may fix something: frequent labels, and numbers that stand out."""
    values = table.codes(label)[1]
    many = label in table.kinds and len(values) > 10
    if len(values) > _MOST_LEVELS and not many:
        return []
    least = max(_SPIKE if many else 0.0, LEAST_SURPRISE / table.n)
    return np.flatnonzero((shares >= least) & (shares < 1.0)).tolist()


def _says(label: Hashable, value: Any) -> str | None:
    """Write that a column has a value; None if it cannot be written."""
    if value is None:
        return f"missing({name_of(label)})"
    if not isinstance(value, bool | int | float | str):
        return None
    return f"{name_of(label)} == {value!r}"


# codes


def codes_among(frame: pd.DataFrame) -> dict[Hashable, float]:
    """Find whole numbers that are codes: whose order means nothing.

    Returns by column how badly neighbours tell what a code's own records are like, from `_STRANGE`
    up.

    Of a number, records of the next smaller and the next larger value together are like its own; of
    a code, they are not. For every other column, let ``between`` be the variance of its means by
    code, and ``strange`` the mean square by which a code's mean differs from the mean of its two
    neighbours' means, both less what sampling noise adds. A column of 3 to 256 whole numbers with
    at least ten records on average is a code if some other column has at least `_TELLING` of its
    variance between codes, and ``strange`` is at least `_STRANGE` of ``between``. Labels count as
    one column of zeros and ones per value, summed up.
    """
    table = _Table(frame.iloc[spread(len(frame), 20_000)].reset_index(drop=True))
    found: dict[Hashable, float] = {}
    with np.errstate(all="ignore"):
        targets = {label: _target(table, label) for label in table.labels}
        for label in table.numbers:
            values = table.values(label)
            known = np.isfinite(values)
            if not known.any() or (values[known] % 1 != 0).any():
                continue
            levels, codes = np.unique(values[known], return_inverse=True)
            if not 3 <= len(levels) <= _MOST_LEVELS or known.sum() < 10 * len(levels):
                continue
            scores = [
                _strangeness(codes, len(levels), columns[:, known])
                for other, columns in targets.items()
                if other != label and len(columns)
            ]
            worst = max(scores, default=0.0)
            if worst >= _STRANGE:
                found[label] = worst
    return found


_STRANGE, _TELLING = 0.4, 0.3


def _target(table: _Table, label: Hashable) -> Floats:
    """Return what another column is compared by, (column, record): ranks, or zeros and ones."""
    if label in table.kinds and len(table.codes(label)[1]) > 10:
        ranks = pd.Series(table.values(label)).rank().to_numpy(np.float64)
        return np.where(np.isfinite(ranks), ranks, np.nanmean(ranks))[None]
    codes, values = table.codes(label)
    if len(values) > _MOST_LEVELS:
        return np.empty((0, table.n))
    counts = np.bincount(codes)
    common = np.argsort(-counts, kind="stable")[:20]
    return np.asarray(codes == common[counts[common] > 0][:, None], np.float64)


def _strangeness(codes: Codes, n_codes: int, columns: Floats) -> float:
    """Compare means by code with their neighbours'; 0 where codes tell little."""
    counts = np.bincount(codes, minlength=n_codes).astype(np.float64)
    between = strange = total = 0.0
    for column in columns:
        means = np.bincount(codes, column, minlength=n_codes) / counts
        inner = np.bincount(codes, (column - means[codes]) ** 2, minlength=n_codes)
        noise = inner.sum() / max(1.0, len(column) - n_codes)
        total += float(np.var(column)) * len(column)
        own = float((counts * (means - column.mean()) ** 2).sum())
        between += own - noise * (n_codes - 1)
        middle = (means[:-2] + means[2:]) / 2.0
        spread = 1 / counts[1:-1] + (1 / counts[:-2] + 1 / counts[2:]) / 4.0
        off = (means[1:-1] - middle) ** 2 - noise * spread
        # A code that is unlike both neighbours is 1.5 times as far from their mean as from all.
        strange += float((counts[1:-1] * off).sum()) / 1.5
    if total <= 0.0 or between < _TELLING * total:
        return 0.0
    return strange / between
