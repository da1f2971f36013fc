"""Numbers that follow from any number of others: sums and products of many.

One column after the other is written as a sum of those before it, by least squares, in records that
have values in all of them; logarithms, for products. What comes out with factors of few digits is
looked at in all records.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import permutations
from typing import TypeVar

import numpy as np

from vflsynth.columns.arrays import Floats, decimals_of
from vflsynth.contract.arithmetic import shortest, slack_of
from vflsynth.contract.findings import SCREENED_AGAIN, Finding, Table, computed_by, name_of
from vflsynth.contract.rules import PLACES, Check

K = TypeVar("K", bound=Hashable)

_LONGEST, _ROWS = 12, 5
"""Columns of a relation, at most; and how many times as many records must have values in all."""

_LEFT, _TOLD, _NOTHING = 0.05, 1e-3, 1e-9
"""Shares of a column's deviation: what others leave of one that may be computed, the least that one
of them counts, and what rounding errors are."""

_SURELY, _PLACES = 5.0, 4
"""Standard errors by which factors may be off; decimals more that what is added may have."""


def multiples(table: Table, only: Hashable = None) -> Iterator[Finding]:
    """Find numbers that are multiples of another one; as `sums`.

    Of two the one is computed that can have more values, in which the other's leave gaps.
    """
    values = table.some(SCREENED_AGAIN)
    finest = sorted(values, key=lambda label: -_n_values(values[label]))
    told: list[set[Hashable]] = []
    for label, of in permutations(finest, 2):
        known = np.isfinite(values[label]) & np.isfinite(values[of])
        own, other = values[label][known], values[of][known]
        square = float(other @ other)
        if only not in (None, label) or {label, of} in told or not 0.0 < square < np.inf:
            continue
        factor = float(own @ other) / square
        left = own - factor * other
        if (np.abs(left) > 1.5 * slack_of(decimals_of(own)) + _NOTHING * np.abs(own)).any():
            continue
        error = _SURELY * float(left.std()) / math.sqrt(square) + _NOTHING * abs(factor)
        value, text = shortest(abs(factor), error)
        written = None if value is None else f"{'-' if factor < 0 else ''}{name_of(of)}{text}"
        if (finding := confirmed(table, label, written, own, "product")) is not None:
            told.append({label, of})
            yield finding


def sums(table: Table, known: Sequence[Finding], only: Hashable = None) -> Iterator[Finding]:
    """Find columns that are sums of others, or a number less others; perhaps `only` one.

    What is `known` to follow from one or two others is left out.
    """
    exact = [finding for finding in known if finding.is_exact]
    gone = {f.rule.repaired_column for f in exact if f.kind in ("sum", "equality")}
    groups = [{*finding.rule.columns} for finding in exact]
    some = table.some(SCREENED_AGAIN)
    values = _complete({label: own for label, own in some.items() if label not in gone})
    labels = list(values)

    def found(members: Sequence[int], matrix: Floats) -> Finding | None:
        if {labels[k] for k in members} in groups:
            return None
        for one in _to_compute(members, matrix):
            if only not in (None, labels[one]):
                continue
            others = [k for k in sorted(members) if k != one]
            text = sum_of(matrix[one], matrix[others], [name_of(labels[k]) for k in others])
            if (made := confirmed(table, labels[one], text, matrix[one], "sum")) is not None:
                return made
        return None

    yield from _related(np.array(list(values.values())), found)


def products(table: Table, known: Sequence[Finding], only: Hashable = None) -> Iterator[Finding]:
    """Find products of three factors and more, 1 less or more a rate among them; as `sums`.

    What is `known` to follow from one or two others is left out.
    """
    groups = [{*finding.rule.columns} for finding in known if finding.is_exact]
    numbers, logs = dict[str, tuple[Hashable, Floats]](), dict[str, Floats]()
    for label, own in table.some(SCREENED_AGAIN).items():
        for text, made in {name_of(label): own, **_rates(name_of(label), own)}.items():
            numbers[text], logs[text] = (label, own), np.log(np.where(made > 0, made, np.nan))
    logs = _complete(logs)
    texts = list(logs)

    def found(members: Sequence[int], matrix: Floats) -> Finding | None:
        columns = {numbers[texts[k]][0] for k in members}
        if len(members) < 3 or any(columns <= group for group in groups):
            return None
        for one in _to_compute(members, matrix):
            label, own = numbers[texts[one]]
            others = [k for k in sorted(members) if k != one]
            text = _product(matrix[one], matrix[others], [texts[k] for k in others])
            if texts[one] != name_of(label) or label in {numbers[texts[k]][0] for k in others}:
                continue
            if only not in (None, label):
                continue
            if (made := confirmed(table, label, text, own, "product")) is not None:
                return made
        return None

    yield from _related(np.array(list(logs.values())), found)


def _rates(name: str, own: Floats) -> dict[str, Floats]:
    """Write one more and one less a column of shares, or of per cent; nothing of other columns."""
    low, high = np.nanmin(own, initial=np.inf), np.nanmax(own, initial=-np.inf)
    if not 0 <= low < high <= 100:
        return {}
    by, rate = ("", own) if high <= 1 else (" / 100", own / 100)
    return {f"(1 - {name}{by})": 1 - rate, f"(1 + {name}{by})": 1 + rate}


def _complete(values: dict[K, Floats]) -> dict[K, Floats]:
    """Leave out the emptiest columns until enough records have values in all, and these records."""
    known = {k: np.isfinite(own) for k, own in values.items()}
    while known:
        whole = np.all(list(known.values()), axis=0)
        if whole.sum() >= max(_ROWS * len(known), len(whole) / 2):
            return {k: values[k][whole] for k in known}
        del known[min(known, key=lambda k: known[k].sum())]
    return {}


def _related(
    matrix: Floats, found: Callable[[Sequence[int], Floats], Finding | None]
) -> Iterator[Finding]:
    """Yield what is found of columns that nearly follow from some before them."""
    basis: list[int] = []
    directions = np.empty((matrix.shape[-1], 0))
    for c, own in enumerate(matrix):
        left, spread_out = own - own.mean(), own.std()
        for _ in range(2):  # once more for what rounding errors leave
            left = left - directions @ (directions.T @ left)
        if left.std() <= _LEFT * spread_out and basis:
            weights, _ = _weights(own, matrix[basis])
            told = np.abs(weights) * matrix[basis].std(axis=1) > _TOLD * spread_out
            told &= np.abs(weights) > _SURELY * _errors(own, matrix[basis], weights)
            parts = [k for k, there in zip(basis, told) if there]
            finding = found([c, *parts], matrix) if 0 < len(parts) < _LONGEST else None
            if finding is not None:
                yield finding
                continue
        if left.std() > _NOTHING * spread_out:
            basis.append(c)
            directions = np.c_[directions, left / np.linalg.norm(left)]


def nearly_follows(own: Floats, others: Floats) -> bool:
    """Whether a column may be a sum of others, or a product."""
    positive = (others > 0).all(axis=1)
    options = [(own, others)]
    if positive.any() and (own > 0).all():
        options.append((np.log(own), np.log(others[positive])))
    for one, rest in options:
        weights, constant = _weights(one, rest)
        if one.std() > 0.0 and (one - constant - weights @ rest).std() <= _LEFT * one.std():
            return True
    return False


def _to_compute(members: Sequence[int], matrix: Floats) -> list[int]:
    """Sort columns by which to compute: of finest steps, a total, or the share that varies most."""
    first, *parts = members
    weights, _ = _weights(matrix[first], matrix[parts])
    signs = dict(zip(members, [1.0, *-np.sign(weights)]))
    alone = [k for k in members if list(signs.values()).count(signs[k]) == 1]
    varied = sorted(members, key=lambda k: -matrix[k].std())
    before = varied if len({*signs.values()}) == 1 else alone if len(alone) == 1 else []
    return sorted(dict.fromkeys([*before, *members]), key=lambda k: _step(matrix[k]))


def _n_values(numbers: Floats) -> float:
    """Return about how many values numbers of so many decimals may have."""
    known = numbers[np.isfinite(numbers)]
    return float(known.std() / slack_of(decimals_of(known))) if len(known) else 0.0


def _step(numbers: Floats) -> float:
    """Return what all numbers are multiples of, in decimals; 0 for those that have many."""
    places = decimals_of(numbers)
    if places is None:
        return 0.0
    whole = np.rint(numbers * 10.0**places)
    return float(np.gcd.reduce(whole.astype(np.int64))) / 10.0**places


def _weights(own: Floats, others: Floats) -> tuple[Floats, float]:
    """Return what others count in a column, by least squares, and what is added; NaN if unknown."""
    centred, left = others - others.mean(axis=1, keepdims=True), own - own.mean()
    if not (np.isfinite(centred).all() and np.isfinite(left).all()):  # they are too large
        return np.full(len(others), np.nan), np.nan
    weights = np.linalg.lstsq(centred.T, left, rcond=None)[0]
    return weights, float(own.mean() - weights @ others.mean(axis=1))


def sum_of(own: Floats, others: Floats, names: Sequence[str]) -> str | None:
    """Write a sum with factors of few digits, what is added first; None if there is none."""
    weights, _ = _weights(own, others)
    errors = _SURELY * _errors(own, others, weights)
    factors = [shortest(abs(float(w)), float(error)) for w, error in zip(weights, errors)]
    values = [value for value, _ in factors if value is not None]
    if len(values) < len(factors):
        return None
    constant = _added(own, own - np.copysign(values, weights) @ others)
    if constant is None:
        return None
    terms = [(w < 0, f"{name}{factor}") for w, name, (_, factor) in zip(weights, names, factors)]
    if constant:
        terms.append((constant < 0, f"{abs(constant):.15g}"))
    (negative, first), *rest = sorted(terms, key=lambda term: term[0])
    more = "".join(f" {'-' if less else '+'} {term}" for less, term in rest)
    return f"{'-' if negative else ''}{first}{more}"


def _errors(own: Floats, others: Floats, weights: Floats) -> Floats:
    """Return the standard errors of what others count in a column."""
    centred = others - others.mean(axis=1, keepdims=True)
    left = own - own.mean() - weights @ centred
    scales = centred.std(axis=1)
    scaled = centred / scales[:, None]
    alike = scaled @ scaled.T
    if not np.isfinite(alike).all():  # of numbers that are too large, or all the same
        return np.full(len(others), np.inf)
    told = np.linalg.pinv(alike).diagonal()
    errors: Floats = left.std() * np.sqrt(np.abs(told)) / scales + _NOTHING * np.abs(weights)
    return errors


def _added(own: Floats, left: Floats) -> float | None:
    """Return the number of fewest decimals that others leave of a column, but for its rounding."""
    places = decimals_of(own)
    for more in range(_PLACES):
        constant = float(np.round(np.median(left), PLACES if places is None else places + more))
        if (np.abs(left - constant) <= slack_of(places) + _NOTHING * np.abs(own)).all():
            return constant
    return None


def _product(own: Floats, others: Floats, names: Sequence[str]) -> str | None:
    """Write a product, of logarithms; None if what is multiplied is not each to the power of 1."""
    weights, _ = _weights(own, others)
    powers = np.rint(weights)
    if (np.abs(powers) != 1).any() or np.abs(weights - powers).max() > _LEFT:
        return None
    logs = own - powers @ others
    error = _SURELY * float(logs.std()) / math.sqrt(len(logs)) + _NOTHING
    value, factor = shortest(made := float(np.exp(np.median(logs))), error * made)
    above = [name for name, power in zip(names, powers) if power > 0]
    below = [name for name, power in zip(names, powers) if power < 0]
    if value is None or not above:
        return None
    return " / ".join([" * ".join(above), *below]) + factor


def confirmed(
    table: Table, label: Hashable, text: str | None, own: Floats, kind: str
) -> Finding | None:
    """Look at all records, as the rule says it, rounded and not; None if some do not keep it."""
    places = decimals_of(own[np.isfinite(own)])
    texts = [text] if places is None else [text, f"round({text}, {places})"]
    for written in texts if text is not None else ():
        finding = computed_by(table, Check(f"{name_of(label)} == {written}"), kind)
        if finding is not None and finding.is_exact:
            return finding
    return None
