"""Numbers that follow from one, two or more others, as they are rounded."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations

import numpy as np
import numpy.typing as npt

from vflsynth.columns.arrays import Floats, decimals_of
from vflsynth.contract.findings import (
    LEAST_SURPRISE,
    NEARLY,
    SCREENED,
    Finding,
    Table,
    agree,
    computed_by,
    name_of,
    share_kept,
)
from vflsynth.contract.rules import Check


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
    rates: float = 0.0
    """The largest of the other, if that is a column of a few rates."""


def slack_of(places: int | None) -> float:
    """Return by how much numbers of so many decimals may be off."""
    return 1e-9 if places is None else 0.5 * 10.0**-places


def _not_zero(numbers: Floats) -> Floats:
    return np.where(numbers == 0.0, np.nan, numbers)


def _with_rate(by: float, one: Floats, others: Floats) -> Floats:
    """Multiply by one more or less a rate."""
    return one * (1.0 + by * others)


def _alone(of: Callable[[Floats], Floats], one: Floats, others: Floats) -> Floats:
    return of(one)[None]


_MOST_RATES = 50
"""Different rates in a column of them, at most."""

_MULTIPLE = _Form("product", "{a}", lambda one, others: one[None], two=False)
_RATIO = _Form("ratio", "{a} / {b}", lambda one, others: one / _not_zero(others))
_OF_SQUARE = _Form("ratio", "{a} / ({b} * {b})", lambda one, others: one / _not_zero(others) ** 2)
_FORMS = (
    _MULTIPLE,
    *(
        _Form("product", text, partial(_alone, of), scaled=False, two=False)
        for text, of in (
            ("log({a})", np.log),
            ("log({a} + 1)", np.log1p),
            ("log10({a})", np.log10),
            ("sqrt({a})", np.sqrt),
        )
    ),
    _Form("sum", "{a} + {b}", operator.add, scaled=False, symmetric=True),
    _Form("extreme", "max({a}, {b})", np.maximum, scaled=False, symmetric=True),
    _Form("extreme", "min({a}, {b})", np.minimum, scaled=False, symmetric=True),
    _Form("product", "{a} * {b}", operator.mul, symmetric=True),
    *(
        _Form("product", f"{{a}} * (1 {sign} {{b}}{of})", partial(_with_rate, by), rates=most)
        for most, of in ((1.0, ""), (100.0, " / 100"))
        for sign, by in (("-", -1.0 / most), ("+", 1.0 / most))
    ),
    _RATIO,
    _OF_SQUARE,
)


def of_two(table: Table, known: Sequence[Finding]) -> Iterator[Finding]:
    """Find columns that follow from one or two others, as they are rounded."""
    labels = table.numbers
    if len(labels) < 2:
        return
    values = np.stack(list(table.some(SCREENED).values()))
    values[~np.isfinite(values)] = np.nan
    places = {k: decimals_of(row[np.isfinite(row)]) for k, row in zip(labels, values)}
    slack = np.array([slack_of(d) for d in places.values()])
    done = {frozenset(finding.rule.columns) for finding in known if finding.is_exact}
    multiples: set[Hashable] = set()  # with these, whatever is a product is one more
    few = np.array([len({*row[np.isfinite(row)].tolist()}) <= _MOST_RATES for row in values])
    low = np.nanmin(values, axis=1, initial=np.inf)
    high = np.nanmax(values, axis=1, initial=-np.inf)
    for form in _FORMS:
        asked = few & (low >= 0.0) & (high <= form.rates) if form.rates else few | True
        for a, one in enumerate(values):
            others = np.flatnonzero(asked)
            others = others[others >= a] if form.symmetric else others
            made = form.of(one, values[others] if form.two else values[:1])
            for k, c, factor in _screened(values, made, slack, form, values.shape[1], table.nearly):
                used = (a, int(others[k])) if form.two else (a,)
                group = frozenset(labels[i] for i in (*used, c))
                if c in used or group in done or (form.kind != "sum" and group & multiples):
                    continue
                parts = [labels[i] for i in used]
                finding = _confirmed(table, form, labels[c], parts, factor, places[labels[c]])
                if finding is not None:
                    done.add(group)
                    multiples |= {labels[c]} if finding.is_exact and form is _MULTIPLE else set()
                    if form.text == "{a} * {b}":
                        finding = _finest(table, finding, labels[c], parts, factor, places)
                    yield finding


def _finest(
    table: Table,
    product: Finding,
    computed: Hashable,
    parts: Sequence[Hashable],
    factor: str,
    places: dict[Hashable, int | None],
) -> Finding:
    """Return a product, or the ratio in its place that computes the column which tells most."""
    options = [(_distinct(table, parts), product)]
    _, turned = nice(1.0 / _scaled(np.ones(1), factor)[0])
    for part, other in (parts, parts[::-1]) if len(set(parts)) == 2 and product.is_exact else ():
        of = [computed, other]
        found = _confirmed(table, _RATIO, part, of, turned, places[part])
        if found is not None and found.is_exact:
            options.append((_distinct(table, of), found))
    return min(options, key=lambda option: option[0])[1]


def _distinct(table: Table, labels: Sequence[Hashable]) -> int:
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
            (int(c), *(nice(float(factors[k, c])) if form.scaled else (1.0, "")))
            for c in np.flatnonzero(row)
        ]
        plain = 1.0 if form is _MULTIPLE and not nearly else None
        found = [each for each in found if each[1] not in (None, plain)]
        own, by = [each[0] for each in found], np.array([each[1] for each in found], float)
        off = np.abs(by[:, None] * made[k] - values[own])
        wrong = np.count_nonzero(off > tolerance[own], axis=1)
        telling = np.count_nonzero((full[own] != 0.0) & known_made[k], axis=1)
        for bad, some, (c, _, text) in zip(wrong, telling, found):
            if bad <= (1.0 - NEARLY) * 2.0 * both[k, c] and bad < max(1, some / 2):
                yield k, c, text


_DIGITS = ((2, 1e-3), (3, 1e-4), (4, 1e-5))
"""Digits that factors may have, and how near they must come to what is estimated."""

_WAYS = (
    (3, " * {}", 1.0, 1),
    (4, " / {}", 1.0, -1),
    (4, " * {}", 1.0, 1),
    (3, " * {} / 12", 12.0, 1),
    (6, " * {}", 1.0, 1),
)
"""How a factor that is estimated beside others may be written, and digits that it has, at most."""

_LOOSEST = 5e-3
"""Error of an estimated factor, as a share of it, at most."""

_RATHER = 10.0
"""Numbers are divided only if that comes so many times nearer than a factor."""


def _may_be_nice(factors: Floats) -> npt.NDArray[np.bool_]:
    """Leave out most factors that `nice` has nothing for, in much less time."""
    found = np.zeros(factors.shape, bool)
    for values in (factors, 1.0 / factors):
        for digits, within in _DIGITS:
            unit = 10.0 ** (np.floor(np.log10(np.abs(values))) - digits + 1)
            found |= np.abs(np.round(values / unit) * unit / values - 1.0) < 1.001 * within
    return found


def nice(factor: float) -> tuple[float | None, str]:
    """Return a factor of at most four digits, or the inverse of one, and how it is written."""
    best: tuple[float, float | None, str] = np.inf, None, ""
    if not 1e-300 < abs(factor) < 1e300:
        return best[1:]
    for text, value in ((" * ", factor), (" / ", 1.0 / factor)):
        for count, within in _DIGITS:
            digits = float(f"{value:.{count}g}")
            off = abs(digits / value - 1.0) / within
            worse = off if text == " * " else _RATHER * off
            if off < 1.0 and worse < best[0]:
                written = repr(int(digits)) if digits.is_integer() else repr(digits)
                one = digits if text == " * " else 1.0 / digits
                best = worse, *((1.0, "") if digits == 1.0 else (one, text + written))
    return best[1:]


def shortest(factor: float, error: float) -> tuple[float | None, str]:
    """Return the factor of fewest digits within an error, and how it is written; as `nice`.

    It may be a number, the inverse of one, or a twelfth of one, as of a year. None if the error is
    too large for that to tell anything.
    """
    if not 1e-300 < abs(factor) < 1e300 or error > _LOOSEST * abs(factor):
        return None, ""
    for most, text, times, power in _WAYS:
        value = factor**power * times
        for count in range(1, most + 1):
            digits = float(f"{value:.{count}g}")
            made = (digits / times) ** power
            if abs(made - factor) <= error:
                written = text.format(int(digits) if digits.is_integer() else repr(digits))
                return made, "" if made == 1.0 else written
    return None, ""


def _confirmed(
    table: Table,
    form: _Form,
    computed: Hashable,
    parts: Sequence[Hashable],
    factor: str,
    places: int | None,
) -> Finding | None:
    """Look at all records, as the rule says it."""
    names = {"a": name_of(parts[0]), "b": name_of(parts[-1])}
    text = form.text.format(**names) + factor
    if form is _OF_SQUARE and factor == " * 10000":  # as of a height in centimetres
        text = "{a} / (({b} / 100) * ({b} / 100))".format(**names)
    kind = "equality" if text == names["a"] else form.kind
    own = table.values(computed)
    used = [table.values(label) for label in parts]
    known = np.isfinite(own) & np.all([np.isfinite(v) for v in used], axis=0)
    n = int(known.sum())
    plain = {0.0, 1.0, -1.0} if form.scaled else {0.0}
    telling = [np.count_nonzero(~np.isin(v[known], list(plain))) for v in used]
    if form.kind == "extreme":
        telling = [np.count_nonzero((a > b)[known]) for a, b in (used, used[::-1])]
    if n < LEAST_SURPRISE or min(telling) < LEAST_SURPRISE:
        return None
    if form.kind == "ratio" and (used[-1][known] == 0.0).any():
        return None
    scaled = _scaled(form.of(used[0][known], used[-1][known][None])[0], factor)
    slack = slack_of(places)
    strange = np.abs(np.roll(own[known], 1 + n // 3) - scaled) > slack + 1e-9 * np.abs(scaled)
    if (surprise := float(strange.sum())) < LEAST_SURPRISE:
        return None
    share, rule = 0.0, Check(f"{name_of(computed)} == {text}")
    for written in (text, f"round({text}, {places})")[: 1 if places is None else 2]:
        tried = Check(f"{name_of(computed)} == {written}")
        if (kept := share_kept(table, tried)) > share:
            share, rule = kept, tried
    return Finding(rule, kind, n, surprise, share) if table.counts(share) else None


def _scaled(made: Floats, factor: str) -> Floats:
    if not factor:
        return made
    number = float(factor[3:])
    return made * number if factor[1] == "*" else made / number


_DIVISORS = (7, 10, 12, 24, 30, 60, 100, 365, 500, 1000, 3600, 10_000)
"""Numbers that are cut into digits, days, months, hours and the like by."""


def digits(table: Table) -> Iterator[Finding]:
    """Find whole quotients and remainders of others: hours in 1730, or in minutes."""
    values = table.some(SCREENED)
    whole = {k: own for k, own in values.items() if not (own[np.isfinite(own)] % 1).any()}
    for label, own in whole.items():
        for by in (each for each in _DIVISORS if np.nanmax(np.abs(own), initial=0.0) >= each):
            for text, made in ((f"// {by}", own // by), (f"% {by}", own % by)):
                for other in (k for k in whole if k != label):
                    if not agree(whole[other], made):
                        continue
                    rule = Check(f"{name_of(other)} == {name_of(label)} {text}")
                    if (finding := computed_by(table, rule, "digits")) is not None:
                        yield finding


_CLOCKS = (
    "clock_of((minutes_of({0}) + {1}) % 1440)",
    "clock_of((minutes_of({0}) + {1} - 1) % 1440 + 1)",
)
"""A time of day some minutes after another, as hours and minutes in one number; 0 or 2400."""


def clocks(table: Table) -> Iterator[Finding]:
    """Find times of day, such as 1730, that lie as many minutes behind others as a column says."""
    values = table.some(SCREENED)
    times = [label for label, own in values.items() if _is_clock(own[np.isfinite(own)])]
    for early, late in permutations(times, 2):
        start, end = (values[k] // 100 * 60 + values[k] % 100 for k in (early, late))
        for label in (k for k in values if k not in (early, late)):
            if not agree(end % 1440, (start + values[label]) % 1440):
                continue
            made = [text.format(name_of(early), name_of(label)) for text in _CLOCKS]
            rules = [Check(f"{name_of(late)} == {text}") for text in made]
            found = [computed_by(table, rule, "digits") for rule in rules]
            yield from [finding for finding in found if finding is not None][:1]


def _is_clock(numbers: Floats) -> bool:
    within = (numbers >= 0) & (numbers <= 2400) & (numbers % 100 < 60) & (numbers % 1 == 0)
    return len(numbers) > 0 and bool(within.all() and np.ptp(numbers) > 100)
