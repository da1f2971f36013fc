"""What is exact in a party's table, kept without a contract: steps that undo each other.

Every step writes one column from others. Before training it takes out of the table what the others
tell; once rows are decoded, it puts it back. No column is written twice, and none from itself, so
that steps in order keep all their relations in every row, whatever the model learned.
"""

from __future__ import annotations

import graphlib
import math
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import clone

from vflsynth.columns import TableTransformer
from vflsynth.columns.arrays import Floats, floats_of, held_by, kind_of_values
from vflsynth.contract.agreeing import Moved, Share
from vflsynth.contract.discovering import codes_among, discover
from vflsynth.contract.findings import Codes, Finding, Level, spread
from vflsynth.contract.recoding import Composite, composite_of, kept_type
from vflsynth.contract.rules import Check, Determines, Rule, are_hashable, plain_value
from vflsynth.contract.steps import (
    Areas,
    Computed,
    Copied,
    Fixed,
    Lookup,
    Ordered,
    Placed,
    Redrawn,
    Step,
)

_TRIED, _ATTEMPTS = 2000, 8
"""Records, and choices, in a trial of which relations some steps keep."""


@dataclass(frozen=True)
class Structure:
    """What is exact in a party's table, and how it is kept.

    `steps` are in the order of restoring, `groups` flags of which exactly one is set, as one column
    of labels, `codes` whole numbers whose order means nothing.
    """

    steps: tuple[Step, ...]
    groups: tuple[Composite, ...]
    codes: tuple[Hashable, ...]

    @classmethod
    def of(
        cls,
        frame: pd.DataFrame,
        template: TableTransformer,
        written: Collection[Hashable] = (),
        given: Sequence[Rule] = (),
        *,
        copies: bool = False,
    ) -> Self:
        """Find it, of columns that nothing else is said of, some of which are modelled as they are.

        Those are columns that the template says encoders or parameters of; nothing is kept of the
        table that fewer than its `rare_records` have. What is `written` is restored before. Where
        two relations would write one column, `given` rules, which all records keep, come first:
        computed columns come first, then those that others determine, values that are fixed both
        ways, orders, and values that are fixed one way. Where some relation is not kept so, other
        choices are tried, and the one that keeps most stands. With `copies`, numbers that often
        equal another column's are copies of it: generators that are told of samples by critics
        learn marks worse than numbers near each other.
        """
        found = [finding for finding in discover(frame) if finding.is_exact]
        least = max(1, template.rare_records or 0)
        as_they_are = {*(template.encoders or {}), *(template.overrides or {})}
        groups = []
        for finding in found:
            flags = set(finding.rule.columns)
            said = flags & {*as_they_are, *written}
            if finding.kind != "flags" or said or _are_named(flags, found):
                continue
            allowed = finding.rule.learned(frame, least).combinations  # type: ignore[attr-defined]
            groups.append(composite_of(frame, finding.rule.columns, allowed))
        taken = {*written, *(label for group in groups for label in group.columns)}
        known = {finding.rule.title for finding in found}
        order = [
            Finding(rule, "given", len(frame), 0.0) for rule in given if rule.title not in known
        ]
        order += sorted(found, key=_rank)
        steps = Choice(frame, order, least, frozenset(as_they_are), frozenset(taken)).best()
        ordered = {step.column for step in steps if isinstance(step, Ordered)}
        codes = tuple(k for k in codes_among(frame) if k not in {*as_they_are, *taken, *ordered})
        free = {*frame.columns} - {*as_they_are, *taken, *(step.column for step in steps)}
        told = {step.column: step for step in steps}
        told |= _placed(frame, codes, free, told, least)
        plain = [k for k in frame if k not in codes and k not in (template.kinds or {})]
        told |= _copied(frame[plain], free, told, template) if copies else {}
        made = []
        for step in _in_order(told):  # of a type that names no label of few
            dtype = kept_type(frame[step.column], held_by(frame[step.column], least))
            made.append(replace(step, dtype=dtype))  # type: ignore[type-var]
        return cls(tuple(made), tuple(groups), codes)

    def encoded(self, template: TableTransformer) -> TableTransformer:
        """Return a transformer for what is modelled."""
        gone = {step.column for step in self.steps if step.is_left_out}
        gone |= {label for group in self.groups for label in group.columns}
        kinds = dict.fromkeys(self.codes, "categorical") | dict(template.kinds or {})
        composites = {group.label: "categorical" for group in self.groups}
        marks = {s.column: {"spikes": (s.mark,)} for s in self.steps if isinstance(s, Copied)}
        made: TableTransformer = clone(template).set_params(
            kinds=without(kinds, gone) | composites or None,
            encoders=without(template.encoders, gone) or None,
            overrides=without(template.overrides, gone) | marks or None,
        )
        return made


def without(said: Mapping[Hashable, Any] | None, gone: set[Hashable]) -> dict[Hashable, Any]:
    """Return what is said of the columns that the modelled table has."""
    return {label: own for label, own in (said or {}).items() if label not in gone}


_RANKS = (
    "equality",
    "dates",
    "digits",
    "comparison",
    "case",
    "extreme",
    "sum",
    "product",
    "ratio",
    "dependency",
    "classes",
    "exactly",
    "order",
    "level",
)


def _are_named(flags: set[Hashable], found: Sequence[Finding]) -> bool:
    """Whether some column says which of some flags is set."""
    determined: dict[Hashable, set[Hashable]] = {}
    for rule in (finding.rule for finding in found):
        if isinstance(rule, Determines):
            determined.setdefault(rule.by, set()).add(rule.column)
    return any(flags <= columns for columns in determined.values())


def _rank(finding: Finding) -> tuple[int, int, float]:
    """Sort by what is kept first; of dependencies those of one column, of orders the closest."""
    kind = finding.kind
    if finding.level is not None and finding.level.exactly:
        kind = "exactly"
    place = _RANKS.index(kind) if kind in _RANKS else len(_RANKS)
    return place, len(finding.rule.columns), -finding.n_surprising


@dataclass
class Choice:
    """Which relation is kept by which step.

    The exact relations are in the order in which they are kept, `least` is the fewest records of
    anything that is kept of the table. Columns are modelled `as_they_are`, or `taken`: restored
    before any step.
    """

    frame: pd.DataFrame
    found: list[Finding]
    least: int
    as_they_are: frozenset[Hashable]
    taken: frozenset[Hashable] = frozenset()

    @cached_property
    def rules(self) -> list[Rule]:
        """The relations, with what the records say."""
        return [finding.rule.learned(self.frame, 1) for finding in self.found]

    def best(self) -> tuple[Step, ...]:
        """Return the steps, in the order of restoring, that keep most relations."""
        order, tried = list(self.found), set[Rule]()
        best: tuple[Step, ...] = ()
        fewest = len(self.found) + 1
        while self.found and len(tried) < _ATTEMPTS:
            steps = self._in(order)
            broken = self.broken(steps)
            if len(broken) < fewest:
                best, fewest = steps, len(broken)
            again = [f for f in broken if f.rule not in tried]
            if not again:
                break
            tried.add(again[0].rule)
            order = [again[0], *(f for f in order if f is not again[0])]
        return best

    def _in(self, order: Sequence[Finding]) -> tuple[Step, ...]:
        """Take for each relation the first steps that write no column twice or in a circle."""
        steps: dict[Hashable, Step] = {}
        for finding in order:
            for option in self.options(finding, steps):
                if option and all(self._may(step, steps) for step in option):
                    steps |= {step.column: step for step in option}
                    break
        return _in_order(steps)

    def _may(self, step: Step, steps: Mapping[Hashable, Step]) -> bool:
        old = steps.get(step.column)
        merged = isinstance(old, Fixed | Moved) and type(step) is type(old)
        if step.column in self.taken or (old is not None and not merged):
            return False
        is_as_it_is = not step.is_left_out and isinstance(step, Fixed | Computed | Share | Moved)
        if step.column in self.as_they_are and not is_as_it_is:
            return False
        return not _reaches(steps, step.by, step.column)

    def options(self, finding: Finding, steps: Mapping[Hashable, Step]) -> Iterator[list[Step]]:
        """Yield steps that together keep a relation, the best first."""
        rule, pair = finding.rule, finding.rule.columns
        if finding.level is not None:
            yield from self._levels(finding.level, steps)
        elif isinstance(rule, Check) and rule.ordered is not None:
            yield from self._orders(rule.ordered, steps)
        elif isinstance(rule, Check):
            yield from self._agreeing(rule, steps)
            yield from self._computed(rule)
        elif isinstance(rule, Determines):
            yield from self._determined(rule.by, rule.column)
        elif len(pair) == 2:
            one, other = sorted(pair, key=lambda k: kind_of_values(self.frame[k].dtype) != "O")
            yield from self._determined((one,), other)
            yield from self._determined((other,), one)

    def _levels(self, level: Level, steps: Mapping[Hashable, Step]) -> Iterator[list[Step]]:
        turned = level
        if level.exactly:
            turned = Level(level.column, level.value, level.by, level.when, exactly=True)
        for column, own in ((level.column, level), (level.by, turned)):
            old = steps.get(column)
            others = old.levels if isinstance(old, Fixed) else ()
            if others and level.exactly:
                continue  # only the first holds both ways
            if (made := Fixed.of(self.frame, column, (*others, own), self.least)) is not None:
                yield [replace(made, bound=old.bound) if isinstance(old, Fixed) else made]

    def _orders(
        self, pair: tuple[Hashable, Hashable], steps: Mapping[Hashable, Step]
    ) -> Iterator[list[Step]]:
        for column, bound in zip(pair, ("below", "above")):
            step = steps.get(column)
            if isinstance(step, Fixed) and step.levels[0].exactly and step.levels[0].by in pair:
                level = step.levels[0]
                if level.when == level.value:  # else it could take a value that is fixed
                    yield [replace(step, bound=bound)]
        for of_low in (False, True):
            if (made := Ordered.of(self.frame, *pair, self.least, of_low=of_low)) is not None:
                yield [made]

    def _agreeing(self, rule: Check, steps: Mapping[Hashable, Step]) -> Iterator[list[Step]]:
        """Model all columns of shares of a whole; a time and its parts, but for such as years."""
        yield Share.of(self.frame, rule)
        part, others = rule.repaired_column, rule.columns[1:]
        if part is None or len(others) != 1 or kind_of_values(self.frame[others[0]].dtype) != "M":
            return
        along = self.frame[part].iloc[self.frame[others[0]].argsort()].dropna()
        if kind_of_values(self.frame[part].dtype) in "iufb" and not along.is_monotonic_increasing:
            step = steps.get(others[0])
            if isinstance(step, Moved):
                step = replace(step, rules=(*step.rules, rule))
            else:
                step = Moved.of(self.frame, rule, self.least)
            yield [step, replace(self._compute(rule), is_left_out=False)]

    def _computed(self, rule: Check) -> Iterator[list[Step]]:
        """Compute the column of a rule; of a sum, another one if need be."""
        yield [self._compute(rule)] if rule.repaired_column is not None else []
        for other, bounded in rule.turned():
            column = other.repaired_column
            if not np.asarray(other.keeps(self.frame), np.bool_).all():
                continue
            if None not in bounded and not _is_below_zero(self.frame[column]):
                low = Ordered.of(self.frame, *bounded, self.least, of_low=True)
                yield [] if low is None else [low, self._compute(other)]
            yield [self._compute(other)]

    def _compute(self, rule: Check) -> Computed:
        column = rule.repaired_column
        own = self.frame[column]
        missing = self.frame[[k for k in rule.columns if k != column]].isna().any(axis=1)
        whole = bool((missing == own.isna()).all())
        return Computed(column, own.dtype, rule, whole, whole)

    def _determined(self, by: tuple[Hashable, ...], column: Hashable) -> Iterator[list[Step]]:
        """Look a column up; if that is written otherwise, or in part, draw one it is looked up by.

        Of two columns that determine it, those combinations alone are drawn that are in the table.
        """
        looked_up = Lookup.of(self.frame, by, column, self.least)
        if looked_up is not None:
            if len(by) == 2 and not looked_up.is_complete:
                for one, other in (by, by[::-1]):
                    drawn = Redrawn.of(self.frame, other, (one,), self.least)
                    yield [] if drawn is None else [drawn, looked_up]
            yield [looked_up]
        for k, own in enumerate(by):
            others = (*by[:k], *by[k + 1 :], column)
            if (drawn := Redrawn.of(self.frame, own, others, self.least)) is not None:
                yield [drawn]

    def broken(self, steps: Sequence[Step]) -> list[Finding]:
        """Return the relations that break if all that is modelled were independent."""
        rows = spread(len(self.frame), _TRIED)
        real, rng = self.frame.iloc[rows].reset_index(drop=True), np.random.default_rng(0)
        modelled = real
        for step in steps:
            modelled = step.apply(real, modelled)
        columns = {k: modelled[k].iloc[rng.permutation(len(real))] for k in modelled}
        columns = {k: own.reset_index(drop=True) for k, own in columns.items()}
        for step in steps:
            columns[step.column] = step.restore(columns, real.index)
        made = pd.DataFrame(columns)
        wrong = [
            {*step.by, step.column}
            for step in steps
            if isinstance(step, Computed)
            and _is_below_zero(made[step.column])
            and not _is_below_zero(self.frame[step.column])
        ]
        return [
            finding
            for finding, rule in zip(self.found, self.rules)
            if {*rule.columns} in wrong or not rule.keeps(made).all()
        ]


def _in_order(steps: Mapping[Hashable, Step]) -> tuple[Step, ...]:
    """Sort steps so that each comes after those that it needs."""
    graph = {k: set(step.by) & set(steps) for k, step in steps.items()}
    return tuple(steps[k] for k in graphlib.TopologicalSorter(graph).static_order())


def _placed(
    frame: pd.DataFrame,
    codes: Collection[Hashable],
    free: Collection[Hashable],
    steps: dict[Hashable, Step],
    least: int,
) -> dict[Hashable, Step]:
    """Make steps for those codes and labels, of columns that are `free`, which two numbers tell."""
    made: dict[Hashable, Step] = {}
    kinds = {k: kind_of_values(frame[k].dtype) for k in frame}
    numbers = {k: floats_of(frame[k]) for k in frame if kinds[k] in "iuf" and k not in codes}
    for label in frame:
        if label not in free or not (label in codes or kinds[label] == "O"):
            continue
        by = {k: own for k, own in numbers.items() if not _reaches({**steps, **made}, (k,), label)}
        found = areas_of(frame[label], by, least) if len(by) > 1 else None
        if found is not None:
            made[label] = Placed(label, frame[label].dtype, *found)
    return made


_VALUES = 256
"""A column with more of them than this may be a copy of others."""

_OFTEN, _ONE_VALUE = 3, 0.2
"""How many times more records of a copy are equal than are any other distance apart, and the share
of them that one value may have: numbers of few values are equal by chance."""


def _copied(
    frame: pd.DataFrame,
    free: Collection[Hashable],
    steps: Mapping[Hashable, Step],
    template: TableTransformer,
) -> dict[Hashable, Step]:
    """Make steps for those numbers, of columns that are `free`, that often equal one before them.

    Often are as many records as hold a value that is a spike; that one is, does not count. Infinite
    values are refused where the table is encoded.
    """
    made: dict[Hashable, Step] = {}
    if template.spike_share is None:
        return made
    fewest = max(template.spike_records, math.ceil(template.spike_share * len(frame)))
    kinds = {k: kind_of_values(frame[k].dtype).replace("u", "i") for k in frame}
    numbers = {k: floats_of(frame[k]) for k in frame if kinds[k] in "if"}
    numbers = {k: own for k, own in numbers.items() if not np.isinf(own).any()}
    whole = {k for k, own in numbers.items() if not np.isnan(own).any()}
    rows = spread(len(frame), _TRIED)
    some = {k: own[rows] for k, own in numbers.items()}
    screened = fewest / len(frame) * len(rows) / 2.0
    for place, (label, own) in enumerate(numbers.items()):
        before = [
            k
            for k in [*numbers][:place]
            if kinds[k] == kinds[label]
            and k in whole
            and np.count_nonzero(some[k] == some[label]) >= screened
        ]
        many = label in free and frame[label].nunique() > max(_VALUES, template.max_levels)
        if not before or not many:
            continue
        frequent = held_by(frame[label], fewest)
        known = frame[label].notna().to_numpy() & ~frame[label].isin(frequent).to_numpy()
        same = {k: known & (own == numbers[k]) for k in before}
        scale = np.nanmax(np.abs(own))
        for other in sorted(same, key=lambda k: -np.count_nonzero(same[k])):
            if (n_same := np.count_nonzero(same[other])) < fewest:
                break
            others = known & ~same[other]
            apart = np.round(own[others] / scale - numbers[other][others] / scale, 12)
            if (
                n_same >= _OFTEN * _mode(apart)
                and _mode(own[same[other]]) <= _ONE_VALUE * n_same
                and not _reaches({**steps, **made}, (other,), label)
            ):
                values = tuple(map(plain_value, frequent))
                step = Copied.of(frame[label], other, values, template.rare_records or 0)
                made |= {} if step is None else {label: step}
                break
    return made


def _mode(numbers: Floats) -> int:
    """Return how many have the most frequent value."""
    return int(np.unique(numbers, return_counts=True)[1].max(initial=0))


def _is_below_zero(column: pd.Series[Any]) -> bool:
    """Whether any number of a column is."""
    is_numeric = kind_of_values(column.dtype) in "iufm"
    return is_numeric and bool((column < 0 * column.iloc[:0].sum()).any())


def _reaches(steps: Mapping[Hashable, Step], by: Sequence[Hashable], column: Hashable) -> bool:
    """Whether any of some columns is made of one, by steps so far."""
    waiting, seen = list(by), set()
    while waiting:
        label = waiting.pop()
        if label == column:
            return True
        if label in steps and label not in seen:
            seen.add(label)
            waiting += steps[label].by
    return False


_FEWEST, _MOST = 5, 256
"""Labels that areas are looked for of."""

_TELLING, _NUMBERS = 0.3, 6
"""Share of a number's variance that is between the labels, at least, and how many are tried."""


def areas_of(
    column: pd.Series[Any], numbers: Mapping[Hashable, Floats], least: int
) -> tuple[tuple[Hashable, ...], Areas] | None:
    """Find two columns of numbers that tell a column's labels, of `least` records each at least.

    Tried are pairs of those numbers whose variance is between labels by `_TELLING` and more.
    """
    if column.dtype == object and not are_hashable(column):
        return None
    codes, labels = pd.factorize(column.where(column.isin(held_by(column, least))))
    if not _FEWEST <= len(labels) <= min(_MOST, len(column) // 10):
        return None
    telling = {k: _between(codes, own) for k, own in numbers.items() if k != column.name}
    some = sorted((k for k in telling if telling[k] >= _TELLING), key=telling.__getitem__)
    best: tuple[tuple[Hashable, ...], Areas] | None = None
    for pair in combinations(some[: -_NUMBERS - 1 : -1], 2):
        points = np.stack([numbers[k] for k in pair], axis=1)
        known = np.isfinite(points).all(axis=1) & (codes >= 0)
        made = Areas.of(points[known], codes[known], list(map(plain_value, labels)), max(least, 3))
        if made is not None and (best is None or made.score > best[1].score):
            best = pair, made
    return best


def _between(codes: Codes, own: Floats) -> float:
    """Return the share of a number's variance, by ranks, that is between labels."""
    known = np.isfinite(own) & (codes >= 0)
    ranks = pd.Series(own[known]).rank().to_numpy()
    counts = np.maximum(1, np.bincount(codes[known]))
    means = np.bincount(codes[known], ranks) / counts
    total = float(np.var(ranks))
    noise = (len(counts) - 1) / max(1, len(ranks))
    return float(np.var(means[codes[known]])) / total - noise if total > 0 else 0.0
