"""What is exact in a party's table, kept without a contract: steps that undo each other.

Every step writes one column from others. Before training it takes out of the table what the others
tell; once rows are decoded, it puts it back. No column is written twice, and none from itself, so
that steps in order keep all their relations in every row, whatever the model learned.
"""

from __future__ import annotations

import graphlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import clone

from vflsynth.columns import TableTransformer
from vflsynth.columns.codec import array_of
from vflsynth.contract.discovering import Finding, Level, codes_among, discover
from vflsynth.contract.recoding import (
    Composite,
    Difference,
    composite_of,
    is_true,
    kind_of_values,
)
from vflsynth.contract.rules import (
    Check,
    Combination,
    Determines,
    FixedCombinations,
    Rule,
    combinations_of,
    plain_value,
)
from vflsynth.registry import register

Columns = dict[Hashable, "pd.Series[Any]"]


class Step(ABC):
    """How one column follows from others; subclasses are frozen dataclasses."""

    registry_group: ClassVar[str] = "parameters"

    column: Hashable
    dtype: Any

    @property
    @abstractmethod
    def by(self) -> tuple[Hashable, ...]:
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

    Parameters
    ----------
    column : column label
    dtype : dtype
    rule : Check
    is_left_out : bool
        Whether the column misses a value exactly where one of the others does. If not, it is
        modelled, and what is computed stands in place of its values.
    """

    column: Hashable
    dtype: Any
    rule: Check
    is_left_out: bool = True

    @property
    def by(self) -> tuple[Hashable, ...]:
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

    Parameters
    ----------
    column : column label
    dtype : dtype
    on : tuple of column labels
    keys : tuple of tuples
        Of one column of numbers: where a run of equal values begins, in order, the first of them
        below all. Of others: combinations.
    values : tuple
        What belongs to each key.
    usual : object
        What belongs to all others, where the column is not modelled.
    of_numbers : bool
    is_left_out : bool
        False where several columns determine it: then the model says what belongs to
        combinations that are not in the table.
    """

    column: Hashable
    dtype: Any
    on: tuple[Hashable, ...]
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
    def by(self) -> tuple[Hashable, ...]:
        """The columns that determine it."""
        return self.on

    def places(self, columns: Columns) -> npt.NDArray[np.intp]:
        """Return which key is each row's; -1 for none."""
        if self.of_numbers:
            numbers = columns[self.by[0]].to_numpy(np.float64, na_value=np.nan)
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
class Fixed(Step):
    """A column that has a certain value where another has one.

    Parameters
    ----------
    column : column label
    dtype : dtype
    on : column label
    when, value : object
        ``on == when`` fixes ``column == value``; None for a missing value.
    exactly : bool
        Whether it has the value nowhere else. Then it is modelled without it: where it is fixed,
        records count as having a value of others, drawn at random.
    otherwise : object
        What stands in place of the value elsewhere.
    bound : {"below", "above"}, optional
        Whether it is nowhere larger, or smaller, than the other column.
    """

    column: Hashable
    dtype: Any
    on: Hashable
    when: Any
    value: Any
    exactly: bool
    otherwise: Any = None
    bound: str | None = None

    @classmethod
    def of(cls, frame: pd.DataFrame, found: Level, least: int) -> Self | None:
        """Return the step; None if too few records say what the column is elsewhere."""
        made = cls(
            found.column, frame[found.column].dtype, found.by, found.when, found.value,
            found.exactly,
        )  # fmt: skip
        if not found.exactly:
            return made
        elsewhere = frame[found.column][~made.fixes(frame[found.by])].dropna()
        if len(elsewhere) < max(1, least):
            return None
        counts = elsewhere.value_counts()
        usual = plain_value(counts.index[0])
        if counts.iloc[0] < least:
            if kind_of_values(made.dtype) not in "iufM":
                return None
            usual = elsewhere.median()
            usual = round(usual) if kind_of_values(made.dtype) in "iu" else plain_value(usual)
            if usual == found.value:
                return None
        return cls(made.column, made.dtype, made.on, made.when, made.value, True, usual)

    @property
    def by(self) -> tuple[Hashable, ...]:
        """The other column."""
        return (self.on,)

    @property
    def has_density(self) -> bool:
        """Whether the column is modelled as it is."""
        return not self.exactly

    def fixes(self, other: pd.Series[Any]) -> npt.NDArray[np.bool_]:
        """Say in which rows the column is fixed."""
        return _is(other, self.when)

    def apply(self, frame: pd.DataFrame, changed: pd.DataFrame) -> pd.DataFrame:
        """Fill up where it is fixed."""
        there = self.fixes(frame[self.on])
        if not self.exactly or not there.any():
            return changed
        changed = changed.copy(deep=False)
        column = changed[self.column].copy()
        donors = np.flatnonzero(~there)
        if len(donors):
            drawn = np.random.default_rng(0).choice(donors, int(there.sum()))
            column.iloc[np.flatnonzero(there)] = column.iloc[drawn].array
        else:
            column[there] = self.otherwise
        changed[self.column] = column
        return changed

    def restore(self, columns: Columns, index: pd.Index[Any]) -> pd.Series[Any]:
        """Put the value where it belongs, and nowhere else if it belongs nowhere else."""
        other, column = columns[self.on], columns[self.column].copy()
        there = self.fixes(other)
        if self.exactly:
            elsewhere = ~there & _is(column, self.value)
            if self.when is not None:
                elsewhere &= other.notna().to_numpy()
            column[elsewhere] = self.otherwise
        column[there] = self.value
        if self.bound is not None:
            beyond = column > other if self.bound == "below" else column < other
            column = column.mask(is_true(beyond), other)
        return column.astype(self.dtype)


@register
@dataclass(frozen=True)
class Above(Step):
    """A column that is never below another: modelled as what it exceeds it by.

    Parameters
    ----------
    difference : Difference
    """

    difference: Difference

    @property
    def column(self) -> Hashable:  # type: ignore[override]
        """The larger column."""
        return self.difference.high

    @property
    def dtype(self) -> Any:
        """Of the larger column."""
        return self.difference.dtype

    @property
    def by(self) -> tuple[Hashable, ...]:
        """The lower column."""
        return (self.difference.low,)

    def apply(self, frame: pd.DataFrame, changed: pd.DataFrame) -> pd.DataFrame:
        """Put the difference in its place."""
        made = changed.copy(deep=False)
        made[self.column] = self.difference.apply(frame[[*self.by, self.column]])[self.column]
        return made

    def restore(self, columns: Columns, index: pd.Index[Any]) -> pd.Series[Any]:
        """Add the lower column."""
        return self.difference.restore(columns[self.difference.low], columns[self.column])

    def settled(self, columns: Columns, index: pd.Index[Any]) -> pd.Series[Any]:
        """Return the larger of both."""
        low, high = columns[self.difference.low], columns[self.column]
        return high.mask(is_true(high < low), low).astype(self.dtype)


@dataclass(frozen=True)
class Structure:
    """What is exact in a party's table, and how it is kept.

    Parameters
    ----------
    steps : tuple of Step
        In the order in which columns are restored.
    groups : tuple of Composite
        Flags of which exactly one is set, as one column of labels.
    codes : tuple of column label
        Whole numbers whose order means nothing.
    """

    steps: tuple[Step, ...]
    groups: tuple[Composite, ...]
    codes: tuple[Hashable, ...]

    @classmethod
    def of(cls, frame: pd.DataFrame, least: int, as_they_are: Collection[Hashable] = ()) -> Self:
        """Find it, of columns that nothing else is said of, some of which are modelled as they are.

        `least` is the fewest records of anything that is kept of the table. Where two relations
        would write one column, computed columns come first, then those that others determine,
        values that are fixed both ways, orders, and values that are fixed one way.
        """
        found, least = [f for f in discover(frame) if f.is_exact], max(1, least)
        groups = []
        for finding in found:
            rule = finding.rule
            if finding.kind == "flags" and not set(rule.columns) & set(as_they_are):
                allowed = rule.learned(frame, least).combinations  # type: ignore[attr-defined]
                groups.append(composite_of(frame, rule.columns, allowed))
        taken = {label for group in groups for label in group.columns}
        steps: dict[Hashable, Step] = {}
        for finding in sorted(found, key=_rank):
            if set(finding.rule.columns) & taken:
                continue
            if (bounded := _bounded(finding.rule, steps)) is not None:
                steps[bounded.column] = bounded
                continue
            step = _step(frame, finding, least, steps)
            if step is None or step.column in steps:
                continue
            if step.column in as_they_are and (step.is_left_out or isinstance(step, Above)):
                continue
            if not _reaches(steps, step.by, step.column):
                steps[step.column] = step
        order = graphlib.TopologicalSorter({k: set(s.by) & set(steps) for k, s in steps.items()})
        above = {step.column for step in steps.values() if isinstance(step, Above)}
        codes = tuple(k for k in codes_among(frame) if k not in {*as_they_are, *taken, *above})
        return cls(tuple(steps[column] for column in order.static_order()), tuple(groups), codes)

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


def _rank(finding: Finding) -> tuple[int, int, float]:
    """Sort by what is kept first; of dependencies those of one column, of orders the closest."""
    kind = finding.kind
    if finding.level is not None and finding.level.exactly:
        kind = "exactly"
    place = _RANKS.index(kind) if kind in _RANKS else len(_RANKS)
    return place, len(finding.rule.columns), -finding.n_surprising


def _bounded(rule: Rule, steps: dict[Hashable, Step]) -> Fixed | None:
    """Return a step that fixes one of two columns by the other, with their order as well."""
    pair = rule.ordered if isinstance(rule, Check) else None
    for column, bound in zip(pair or (), ("below", "above")):
        step = steps.get(column)
        if not isinstance(step, Fixed) or not step.exactly or step.on not in (pair or ()):
            continue
        if step.when == step.value:  # else one could take a value of the other that is fixed
            return replace(step, bound=bound)
    return None


def _step(
    frame: pd.DataFrame, finding: Finding, least: int, steps: dict[Hashable, Step]
) -> Step | None:
    """Return the step that keeps a relation; None if there is none."""
    rule = finding.rule
    if isinstance(rule, Determines):
        return Lookup.of(frame, rule.by, rule.column, least)
    if isinstance(rule, FixedCombinations) and len(rule.among) == 2:
        one, other = sorted(rule.among, key=lambda k: kind_of_values(frame[k].dtype) != "O")
        return Lookup.of(frame, (one,), other, least)
    if finding.level is not None:
        level = finding.level
        if level.column in steps and level.exactly:
            level = Level(level.column, level.value, level.by, level.when, exactly=True)
        return Fixed.of(frame, level, least)
    if isinstance(rule, Check) and rule.ordered is not None:
        difference = Difference.of(frame, *rule.ordered, least)
        return None if difference is None else Above(difference)
    if isinstance(rule, Check) and (column := rule.repaired_column) is not None:
        missing = frame[[k for k in rule.columns if k != column]].isna().any(axis=1)
        return Computed(
            column, frame[column].dtype, rule, bool((missing == frame[column].isna()).all())
        )
    return None


def _reaches(steps: dict[Hashable, Step], by: Sequence[Hashable], column: Hashable) -> bool:
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
        -np.inf if not k else float((numbers[merged[k - 1][1] - 1] + numbers[begin]) / 2.0)
        for k, (begin, _) in enumerate(merged)
    ]
    lowest = float(np.finfo(np.float64).min)
    return (
        [lowest if cut == -np.inf else cut for cut in cuts],
        [plain_value(values[codes[begin]]) for begin, _ in merged],
    )


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
