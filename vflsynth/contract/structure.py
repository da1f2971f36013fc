"""What is exact in a party's table, kept without a contract: steps that undo each other.

Every step writes one column from others. Before training it takes out of the table what the others
tell; once rows are decoded, it puts it back. No column is written twice, and none from itself, so
that steps in order keep all their relations in every row, whatever the model learned.
"""

from __future__ import annotations

import graphlib
import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import clone

from vflsynth.codec import array_of
from vflsynth.columns import TableTransformer
from vflsynth.columns.arrays import (
    FloatAxis,
    IntegerAxis,
    decimals_of,
    kind_of_values,
    numpy_dtype,
    read_floats,
    read_integers,
    read_times,
    write_numbers,
    write_times,
)
from vflsynth.contract.areas import Areas, areas_of
from vflsynth.contract.discovering import Finding, Level, codes_among, discover
from vflsynth.contract.recoding import (
    Composite,
    composite_of,
    held_by,
    is_true,
    kept_type,
)
from vflsynth.contract.rules import (
    Check,
    Combination,
    Determines,
    Rule,
    combinations_of,
    plain_value,
)
from vflsynth.registry import register

Columns = dict[Hashable, "pd.Series[Any]"]

_MOST = 0.8
"""Share of the records that combinations which alone are drawn must have."""

_TRIED, _ATTEMPTS = 2000, 8
"""Records, and choices, in a trial of which relations some steps keep."""

_MIDDLE = 101
"""Draws whose middle one stands for a column of numbers."""


class Step(ABC):
    """How one column follows from others; subclasses are frozen dataclasses."""

    registry_group: ClassVar[str] = "parameters"

    column: Hashable
    dtype: Any
    by: tuple[Hashable, ...]
    """Columns that it is made of."""

    @property
    def is_left_out(self) -> bool:
        """Whether the column is not modelled at all."""
        return False

    @property
    def has_density(self) -> bool:
        """Whether a record is as probable as what is modelled of it."""
        return True

    def apply(self, frame: pd.DataFrame, changed: pd.DataFrame) -> pd.DataFrame:
        """Return what is modelled, of a table as it is published and as it was changed so far."""
        return changed.drop(columns=[self.column]) if self.is_left_out else changed

    @abstractmethod
    def restore(self, columns: Columns, index: pd.Index[Any]) -> pd.Series[Any]:
        """Return the published column, of all that are there already."""

    def settled(self, columns: Columns, index: pd.Index[Any]) -> pd.Series[Any]:
        """Return the published column anew, once others were given other values."""
        return self.restore(columns, index)


@register
@dataclass(frozen=True)
class Computed(Step):
    """A column that a rule computes.

    It is left out if it misses a value exactly where one of the others does. If not, it is
    modelled, and what is computed stands in place of its values.
    """

    column: Hashable
    dtype: Any
    rule: Check
    is_left_out: bool = True

    @property
    def by(self) -> tuple[Hashable, ...]:  # type: ignore[override]
        """The other columns of the rule."""
        return tuple(label for label in self.rule.columns if label != self.column)

    def restore(self, columns: Columns, index: pd.Index[Any]) -> pd.Series[Any]:
        """Compute it."""
        own = _empty(self.dtype, index) if self.is_left_out else columns[self.column]
        table = pd.DataFrame({self.column: own, **{k: columns[k] for k in self.by}}, copy=False)
        made: pd.Series[Any] = self.rule.repair(table)[self.column]
        return made if self.is_left_out else made.where(own.notna(), own)


@register
@dataclass(frozen=True)
class Lookup(Step):
    """A column that others determine, by a table of what enough records have.

    `keys` are combinations of the columns `by`; of one column of numbers, where runs of equal
    values begin, in order, the first below all. `values` belong to them, `usual` to what is no key.
    Where several columns determine it, it is modelled, and the model says what belongs there.
    """

    column: Hashable
    dtype: Any
    by: tuple[Hashable, ...]
    keys: tuple[Combination, ...]
    values: tuple[Any, ...]
    usual: Any
    of_numbers: bool = False
    is_left_out: bool = True

    @classmethod
    def of(
        cls, frame: pd.DataFrame, by: tuple[Hashable, ...], column: Hashable, least: int
    ) -> Self | None:
        """Return the table of a party's records; None if it would be empty.

        Levels of fewer than `least` records are not in it. A model that keeps rare levels to itself
        never draws them; of numbers, they count as their neighbours.
        """
        dtype, left_out = frame[column].dtype, len(by) == 1
        usual = plain_value(frame[column].mode().iloc[0])
        numbers = left_out and kind_of_values(frame[by[0]].dtype) in "iuf"
        if numbers:
            cuts, values = _runs(frame[by[0]], frame[column], least)
            keys: list[Combination] = [(cut,) for cut in cuts]
        else:
            counts = pd.Series(combinations_of(frame, (*by, column))).value_counts(sort=False)
            kept = sorted(counts.index[counts >= least], key=str)
            keys, values = [c[:-1] for c in kept], [c[-1] for c in kept]
        if not keys:
            return None
        return cls(column, dtype, by, tuple(keys), tuple(values), usual, numbers, left_out)

    @property
    def is_complete(self) -> bool:
        """Whether the table has all combinations of values that it has."""
        return len(self.keys) == math.prod(len(set(values)) for values in zip(*self.keys))

    def places(self, columns: Columns) -> npt.NDArray[np.intp]:
        """Return which key is each row's; -1 for none."""
        if self.of_numbers:
            numbers = _numbers(columns[self.by[0]])
            cuts = np.array([key[0] for key in self.keys])
            found = np.searchsorted(cuts, numbers, side="right") - 1
            return np.where(np.isnan(numbers), -1, found.clip(min=0))
        known = {key: place for place, key in enumerate(self.keys)}
        rows = combinations_of(pd.DataFrame({k: columns[k] for k in self.by}), self.by)
        return np.fromiter((known.get(row, -1) for row in rows), np.intp, len(rows))

    def restore(self, columns: Columns, index: pd.Index[Any]) -> pd.Series[Any]:
        """Look it up."""
        places = self.places(columns)
        looked_up = array_of([*self.values, self.usual], self.dtype).take(places)
        made = pd.Series(looked_up, index=index)
        return made if self.is_left_out else columns[self.column].where(places < 0, made)


@register
@dataclass(frozen=True)
class Redrawn(Step):
    """A column that has, beside values of others, only what enough records have there.

    It is modelled as it is. Beside each of `keys`, combinations of the columns `by`, what is not
    among its `values` is drawn anew from them, by their `shares`.
    """

    column: Hashable
    dtype: Any
    by: tuple[Hashable, ...]
    keys: tuple[Combination, ...]
    values: tuple[tuple[Any, ...], ...]
    shares: tuple[tuple[float, ...], ...]

    @classmethod
    def of(
        cls, frame: pd.DataFrame, column: Hashable, by: tuple[Hashable, ...], least: int
    ) -> Self | None:
        """Return what at least `least` records have; None if most records have anything else."""
        counts = pd.Series(combinations_of(frame, (*by, column))).value_counts(sort=False)
        kept = counts[counts >= least]
        if kept.sum() < _MOST * len(frame):
            return None
        options: dict[Combination, dict[Any, float]] = {}
        for own, count in sorted(zip(kept.index.tolist(), kept.tolist()), key=str):
            options.setdefault(own[:-1], {})[own[-1]] = float(count)
        shares = (tuple(n / sum(some.values()) for n in some.values()) for some in options.values())
        values = tuple(tuple(some) for some in options.values())
        return cls(column, frame[column].dtype, by, tuple(options), values, tuple(shares))

    def restore(self, columns: Columns, index: pd.Index[Any]) -> pd.Series[Any]:
        """Draw anew what does not go with the others."""
        own = columns[self.column]
        used = (*self.by, self.column)
        rows = combinations_of(pd.DataFrame({k: columns[k] for k in used}), used)
        places = {key: place for place, key in enumerate(self.keys)}
        ends = [np.cumsum(shares) for shares in self.shares]
        chances = np.random.default_rng(zlib.crc32(str(self.column).encode())).random(len(index))
        cells = []
        for (*key, value), chance in zip(rows, chances):
            place = places.get(tuple(key))
            if place is not None and value not in self.values[place]:
                options = self.values[place]
                value = options[min(int(np.searchsorted(ends[place], chance)), len(options) - 1)]
            cells.append(value)
        return pd.Series(array_of(cells, own.dtype), index=own.index)


@register
@dataclass(frozen=True)
class Placed(Step):
    """A column of labels that each stand for an area of two columns of numbers.

    It is modelled as it is. A label beyond whose area a row lies is drawn anew, from those within.
    """

    column: Hashable
    dtype: Any
    by: tuple[Hashable, ...]
    areas: Areas

    def restore(self, columns: Columns, index: pd.Index[Any]) -> pd.Series[Any]:
        """Draw anew what lies elsewhere."""
        own = columns[self.column]
        points = np.stack([_numbers(columns[k]) for k in self.by], axis=1)
        places = pd.Index(self.areas.labels).get_indexer(pd.Index(own.astype(object)))
        known = np.flatnonzero((places >= 0) & np.isfinite(points).all(axis=1))
        chances = self.areas.chances(points[known])
        likely = np.minimum(self.areas.least, chances.max(axis=1, initial=0.0, keepdims=True))
        chances[chances < likely] = 0.0
        some = np.flatnonzero(chances[np.arange(len(known)), places[known]] == 0.0)
        within = chances[some].cumsum(axis=1)
        rng = np.random.default_rng(zlib.crc32(str(self.column).encode()))
        drawn = (within <= rng.random((len(some), 1)) * within[:, -1:]).sum(axis=1)
        made = own.copy()
        made.iloc[known[some]] = array_of([self.areas.labels[k] for k in drawn], own.dtype)
        return made


@register
@dataclass(frozen=True)
class Fixed(Step):
    """A column that has certain values where others have certain ones.

    Each of `levels` fixes a value of the column, or is one of which the column must not have the
    first value where another has not the second; `otherwise` stands in place of that. Only the
    first may hold both ways: then the column is modelled without its value, and where it is fixed,
    records count as having one like others, drawn at random (`_drawn_like`, with `least`). With
    `bound` the column is nowhere "below" or "above" the other column of the first level.
    """

    column: Hashable
    dtype: Any
    levels: tuple[Level, ...]
    otherwise: Any = None
    bound: str | None = None
    least: int = 1

    @classmethod
    def of(
        cls, frame: pd.DataFrame, column: Hashable, levels: tuple[Level, ...], least: int
    ) -> Self | None:
        """Return the step; None if too few records say what the column is elsewhere."""
        made = cls(column, frame[column].dtype, levels, least=max(1, least))
        if all(level.column == column and not level.exactly for level in levels):
            return made
        forbidden = [level.when if level.by == column else level.value for level in levels]
        elsewhere = frame[column][~np.any([_is(frame[column], v) for v in forbidden], axis=0)]
        elsewhere = elsewhere.dropna()
        if len(elsewhere) < made.least:
            return None
        counts = elsewhere.value_counts()
        usual = plain_value(counts.index[0])
        if counts.iloc[0] < least:
            drawn = _drawn_like(elsewhere, _MIDDLE, made.least)
            if drawn is None or kind_of_values(made.dtype) not in "iufM":
                return None
            usual = plain_value(drawn.sort_values().iloc[_MIDDLE // 2])
            if usual in forbidden:
                return None
        return replace(made, otherwise=usual)

    @property
    def by(self) -> tuple[Hashable, ...]:  # type: ignore[override]
        """The other columns."""
        others = (k for level in self.levels for k in (level.by, level.column))
        return tuple(dict.fromkeys(k for k in others if k != self.column))

    @property
    def setting(self) -> tuple[Level, ...]:
        """Those that fix a value of the column."""
        return tuple(level for level in self.levels if level.column == self.column)

    @property
    def has_density(self) -> bool:
        """Whether the column is modelled as it is."""
        return not self.levels[0].exactly

    def fixes(self, others: pd.DataFrame, *values: Any) -> npt.NDArray[np.bool_]:
        """Say in which rows the column is fixed; to one of some values, if there are any."""
        there = np.zeros(len(others), np.bool_)
        for level in self.setting:
            if not values or level.value in values:
                there |= _is(others[level.by], level.when)
        return there

    def apply(self, frame: pd.DataFrame, changed: pd.DataFrame) -> pd.DataFrame:
        """Fill up where it is fixed both ways."""
        there = _is(frame[self.levels[0].by], self.levels[0].when)
        if self.has_density or not there.any():
            return changed
        changed = changed.copy(deep=False)
        column = changed[self.column].copy()
        drawn = _drawn_like(column[~there], int(there.sum()), self.least)
        if drawn is None:
            column[there] = self.otherwise
        else:
            column.iloc[np.flatnonzero(there)] = drawn.array
        changed[self.column] = column
        return changed

    def restore(self, columns: Columns, index: pd.Index[Any]) -> pd.Series[Any]:
        """Put the values where they belong, and nowhere else if they belong nowhere else."""
        column = columns[self.column].astype(self.dtype).copy()
        for level in self.levels:
            if level.by == self.column:
                other, there, own = columns[level.column], level.value, level.when
            elif level.exactly:
                other, there, own = columns[level.by], level.when, level.value
            else:
                continue
            elsewhere = ~_is(other, there) & _is(column, own)
            if there is not None:
                elsewhere &= other.notna().to_numpy()
            column[elsewhere] = self.otherwise
        for level in self.setting[::-1]:
            column[_is(columns[level.by], level.when)] = level.value
        if self.bound is not None:
            other = columns[self.levels[0].by]
            beyond = column > other if self.bound == "below" else column < other
            column = column.mask(is_true(beyond), other)
        return column.astype(self.dtype)


@register
@dataclass(frozen=True)
class Ordered(Step):
    """One of two columns of which `low` is never beyond `high`, as how far it is from the other.

    `decimals` is None if its values may lie anywhere. What is beyond the `ends` that enough records
    reach is mirrored at them.
    """

    low: Hashable
    high: Hashable
    dtype: Any
    decimals: int | None
    ends: tuple[Any, Any] | None = None
    of_low: bool = False

    @classmethod
    def of(
        cls, frame: pd.DataFrame, low: Hashable, high: Hashable, least: int, *, of_low: bool = False
    ) -> Self | None:
        """Return the step, if both columns are numbers or both times, and the difference never < 0.

        Nothing comes out that is beyond the values of `least` records at either end. The other
        column may miss no value that this one has.
        """
        pair = (high, low) if of_low else (low, high)
        beside, own = frame[pair[0]], frame[pair[1]]
        kinds = [kind_of_values(column.dtype) for column in (beside, own)]
        whole = [kind in "iu" for kind in kinds]
        alike = kinds == ["M", "M"] and beside.dtype == own.dtype
        known = own.notna()
        if not (alike or kinds == ["f", "f"] or all(whole)) or beside[known].isna().any():
            return None
        if not known.any() or not (frame[high] >= frame[low])[known].all():
            return None
        ordered = own[known].sort_values()
        decimals = (
            decimals_of(ordered.to_numpy(np.float64), numpy_dtype(own.dtype))
            if kinds[1] == "f"
            else None
        )
        k = min(least, len(ordered) // 2)
        ends = _limits(ordered, k, kinds[1]) if k > 1 else None
        return cls(low, high, own.dtype, decimals, ends, of_low)

    @property
    def column(self) -> Hashable:  # type: ignore[override]
        """The column that is modelled so."""
        return self.low if self.of_low else self.high

    @property
    def by(self) -> tuple[Hashable, ...]:  # type: ignore[override]
        """The other column."""
        return (self.high if self.of_low else self.low,)

    def difference(self, frame: pd.DataFrame) -> pd.Series[Any]:
        """Return how far the two are apart."""
        low, high = frame[self.low], frame[self.high]
        if kind_of_values(self.dtype) in "iu":
            low, high = low.astype("Int64"), high.astype("Int64")
        difference: pd.Series[Any] = high - low
        if isinstance(self.dtype, np.dtype) and self.dtype.kind in "iu":
            difference = difference.astype("int64")
        return difference if self.decimals is None else difference.round(self.decimals)

    def apply(self, frame: pd.DataFrame, changed: pd.DataFrame) -> pd.DataFrame:
        """Put the difference in its place."""
        made = changed.copy(deep=False)
        made[self.column] = self.difference(frame)
        return made

    def restore(self, columns: Columns, index: pd.Index[Any]) -> pd.Series[Any]:
        """Go as far from the other column."""
        beside, difference = columns[self.by[0]], columns[self.column]
        zero = difference.iloc[:0].sum() if kind_of_values(self.dtype) == "M" else 0
        away, whole = difference.clip(lower=zero), kind_of_values(self.dtype) in "iu"
        if whole:
            beside, away = beside.astype("Int64"), away.astype("Int64")
        found = beside - away if self.of_low else beside + away
        if whole:
            limits = np.iinfo(numpy_dtype(self.dtype))
            found = found.clip(limits.min, limits.max)
        if self.decimals is not None:
            found = found.round(self.decimals)
        if self.ends is not None:
            for end, beyond in zip(self.ends, (found < self.ends[0], found > self.ends[1])):
                found = found.mask(is_true(beyond), end - (found - end))  # mirrored: none piles up
            found = self._within(beside, found)
        return found.astype(self.dtype)

    def settled(self, columns: Columns, index: pd.Index[Any]) -> pd.Series[Any]:
        """Return the column, no further than the other."""
        return self._within(columns[self.by[0]], columns[self.column]).astype(self.dtype)

    def _within(self, beside: pd.Series[Any], found: pd.Series[Any]) -> pd.Series[Any]:
        """Return the column, or the other where that is nearer."""
        beyond = found > beside if self.of_low else found < beside
        return found.mask(is_true(beyond), beside)


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
        least: int,
        as_they_are: Collection[Hashable] = (),
        written: Collection[Hashable] = (),
        given: Sequence[Rule] = (),
    ) -> Self:
        """Find it, of columns that nothing else is said of, some of which are modelled as they are.

        `least` is the fewest records of anything that is kept of the table. What is `written` is
        restored before. Where two relations would write one column, `given` rules, which all
        records keep, come first: computed columns come first, then those that others determine,
        values that are fixed both ways, orders, and values that are fixed one way. Where some
        relation is not kept so, other choices are tried, and the one that keeps most stands.
        """
        found, least = [f for f in discover(frame) if f.is_exact], max(1, least)
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
        placed = _placed(frame, codes, free, {step.column: step for step in steps}, least)
        made = []
        for step in placed:  # of a type that names no label of few
            dtype = kept_type(frame[step.column], held_by(frame[step.column], least))
            made.append(replace(step, dtype=dtype))  # type: ignore[type-var]
        return cls(tuple(made), tuple(groups), codes)

    def encoded(self, template: TableTransformer) -> TableTransformer:
        """Return a transformer for what is modelled."""
        gone = {step.column for step in self.steps if step.is_left_out}
        gone |= {label for group in self.groups for label in group.columns}
        said: dict[str, dict[Hashable, Any]] = {}
        for name in ("kinds", "encoders", "overrides"):
            said[name] = dict(getattr(template, name) or {})
        said["kinds"] = {**dict.fromkeys(self.codes, "categorical"), **said["kinds"]}
        said["kinds"] |= {group.label: "categorical" for group in self.groups}
        kept = {n: {k: v for k, v in own.items() if k not in gone} for n, own in said.items()}
        made: TableTransformer = clone(template).set_params(
            **{n: v or None for n, v in kept.items()}
        )
        return made


_RANKS = ("equality", "dates", "sum", "product", "ratio", "dependency", "exactly", "order", "level")


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
        merged = isinstance(old, Fixed) and isinstance(step, Fixed)
        if step.column in self.taken or (old is not None and not merged):
            return False
        is_as_it_is = not step.is_left_out and isinstance(step, Fixed | Computed)
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
            made = Fixed.of(self.frame, column, (*others, own), self.least)
            if made is not None:
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
            made = Ordered.of(self.frame, *pair, self.least, of_low=of_low)
            if made is not None:
                yield [made]

    def _computed(self, rule: Check) -> Iterator[list[Step]]:
        """Compute the column of a rule; of a sum, another one if need be."""
        yield [self._compute(rule)] if rule.repaired_column is not None else []
        for other, bounded in rule.turned():
            column = other.repaired_column
            if not np.asarray(other.keeps(self.frame), np.bool_).all():
                continue
            if not _is_below_zero(self.frame[column]):
                low = Ordered.of(self.frame, *bounded, self.least, of_low=True)
                yield [] if low is None else [low, self._compute(other)]
            yield [self._compute(other)]

    def _compute(self, rule: Check) -> Computed:
        column = rule.repaired_column
        own = self.frame[column]
        missing = self.frame[[k for k in rule.columns if k != column]].isna().any(axis=1)
        return Computed(column, own.dtype, rule, bool((missing == own.isna()).all()))

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
            drawn = Redrawn.of(self.frame, own, others, self.least)
            if drawn is not None:
                yield [drawn]

    def broken(self, steps: Sequence[Step]) -> list[Finding]:
        """Return the relations that break if all that is modelled were independent."""
        rows = np.unique(np.linspace(0, len(self.frame) - 1, _TRIED).astype(np.intp))
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
) -> tuple[Step, ...]:
    """Add steps for those codes and labels, of columns that are `free`, which two numbers tell."""
    kinds = {k: kind_of_values(frame[k].dtype) for k in frame}
    numbers = {k: _numbers(frame[k]) for k in frame if kinds[k] in "iuf" and k not in codes}
    for label in frame:
        if label not in free or not (label in codes or kinds[label] == "O"):
            continue
        by = {k: own for k, own in numbers.items() if not _reaches(steps, (k,), label)}
        found = areas_of(frame[label], by, least) if len(by) > 1 else None
        if found is not None:
            steps[label] = Placed(label, frame[label].dtype, *found)
    return _in_order(steps)


def _numbers(column: pd.Series[Any]) -> npt.NDArray[np.float64]:
    """Return numbers, NaN for missing ones."""
    return column.to_numpy(np.float64, na_value=np.nan)


def _is_below_zero(column: pd.Series[Any]) -> bool:
    """Whether any number of a column is."""
    return kind_of_values(column.dtype) in "iufm" and bool(
        (column < 0 * column.iloc[:0].sum()).any()
    )


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


def _runs(by: pd.Series[Any], column: pd.Series[Any], least: int) -> tuple[list[float], list[Any]]:
    """Return where runs of numbers with one value begin, and the values, of enough records each."""
    order = np.argsort(by.to_numpy(np.float64), kind="stable")
    numbers, (codes, values) = by.to_numpy(np.float64)[order], pd.factorize(column.iloc[order])
    begins = np.flatnonzero(np.r_[True, np.diff(codes) != 0])
    ends = np.r_[begins[1:], len(codes)]
    kept = [(int(b), int(e)) for b, e in zip(begins, ends) if e - b >= least]
    merged: list[tuple[int, int]] = []
    for begin, end in kept:
        if merged and codes[merged[-1][0]] == codes[begin]:
            merged[-1] = merged[-1][0], end
        else:
            merged.append((begin, end))
    cuts = [
        -np.inf if not k else _between(numbers[merged[k - 1][1] - 1], numbers[begin])
        for k, (begin, _) in enumerate(merged)
    ]
    lowest = float(np.finfo(np.float64).min)
    return (
        [lowest if cut == -np.inf else cut for cut in cuts],
        [plain_value(values[codes[begin]]) for begin, _ in merged],
    )


def _limits(column: pd.Series[Any], least: int, kind: str) -> tuple[Any, Any]:
    """Return the ends of a column's numbers or times as they come out if they are encoded."""
    kinds = {column.name: {"f": "continuous", "M": "datetime"}.get(kind, "integer")}
    coder = TableTransformer(kinds, spike_share=None, extreme_records=least).fit(column.to_frame())
    coded = coder.inverse_transform(coder.transform(column.to_frame()))[column.name]
    return coded.min(), coded.max()


def _between(low: float, high: float) -> float:
    """Return about the middle of two numbers, in so few digits that it tells neither."""
    middle = float((low + high) / 2.0)
    rounded = round(middle, 1 - math.floor(math.log10(high - low)))
    return rounded if low < rounded < high else middle


def _drawn_like(column: pd.Series[Any], n: int, least: int) -> pd.Series[Any] | None:
    """Draw `n` values as a column's; None if it has none that may come out.

    A copy must not make many of few: values are those that `least` records have. Of numbers and
    times most of which fewer have, they lie between those of neighbouring records, and not beyond
    the values of `least` records at either end.
    """
    rng, known = np.random.default_rng(0), column.dropna()
    held = known[known.isin(held_by(known, least))]
    missing = rng.random(n) < 1.0 - len(known) / max(1, len(column))
    kind = kind_of_values(column.dtype)
    if kind not in "iufmM" or 2 * len(held) >= len(known):
        drawn = held.iloc[rng.integers(len(held), size=n)] if len(held) else None
        return drawn.mask(missing) if drawn is not None and missing.any() else drawn
    if kind in "mM":
        values: npt.NDArray[Any] = read_times(known, column.dtype)[0]
    else:
        values = (read_floats if kind == "f" else read_integers)(known)[0]
    ordered = np.unique(np.sort(values)[least - 1 : len(values) - least + 1])
    if not len(ordered):
        return None
    axis = (FloatAxis if kind == "f" else IntegerAxis).fit(ordered, numpy_dtype(column.dtype))
    points, places = axis.to_coordinates(ordered), rng.random(n) * (len(ordered) - 1)
    made = axis.from_coordinates(np.interp(places, np.arange(len(points)), points))
    if kind not in "mM":
        return write_numbers(made, missing, column.dtype, column.name)
    days = kind == "M" and bool((known.dt.normalize() == known).all())
    return write_times(made, missing, column.dtype, column.name, days=days)


def _is(column: pd.Series[Any], value: Any) -> npt.NDArray[np.bool_]:
    """Say which cells have a value; None for missing ones."""
    missing = column.isna().to_numpy()
    if value is None:
        return np.asarray(missing, np.bool_)
    found = np.zeros(len(column), np.bool_)
    found[~missing] = np.asarray(column[~missing] == value, np.bool_)
    return found


def _empty(dtype: Any, index: pd.Index[Any]) -> pd.Series[Any]:
    """Return a column of nothing, or of zeros where a type has no word for that."""
    if not isinstance(dtype, np.dtype):
        return pd.Series(index=index, dtype=dtype)
    cells: list[Any] = [0 if dtype.kind in "iub" else None] * len(index)
    return pd.Series(array_of(cells, dtype), index=index)
