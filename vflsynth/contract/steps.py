"""Steps that write one column from others: what they tell is taken out, and put back.

And the areas of labels that two numbers tell: codes beside coordinates.
"""

from __future__ import annotations

import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from vflsynth.codec import array_of
from vflsynth.columns import TableTransformer
from vflsynth.columns.arrays import (
    Flags,
    Floats,
    axis_through,
    decimals_of,
    floats_of,
    held_by,
    kind_of_values,
    numpy_dtype,
    read_values,
    write_values,
)
from vflsynth.columns.base import ColumnGrid
from vflsynth.contract.findings import Codes, Level, numbers_or_days
from vflsynth.contract.recoding import is_true
from vflsynth.contract.rules import Check, Combination, combinations_of, plain_value, with_column
from vflsynth.registry import Value, register

Columns = dict[Hashable, "pd.Series[Any]"]

_MOST = 0.8
"""Share of the records that combinations which alone are drawn must have."""

_MIDDLE = 101
"""Draws whose middle one stands for a column of numbers."""


class Step(Value, ABC):
    """How one column follows from others; subclasses are frozen dataclasses."""

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

    @property
    def is_mended(self) -> bool:
        """Whether the column is modelled as it is, and changed where it does not go with others."""
        return False

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

    It is left out if it misses a value exactly where one of the others does, which is `is_whole`,
    and nothing depends on it alone. If not, it is modelled, and what is computed stands in place of
    its values.
    """

    column: Hashable
    dtype: Any
    rule: Check
    is_left_out: bool = True
    is_whole: bool = True

    @property
    def by(self) -> tuple[Hashable, ...]:  # type: ignore[override]
        """The other columns of the rule."""
        return tuple(label for label in self.rule.columns if label != self.column)

    @property
    def is_mended(self) -> bool:
        """Parts of times are."""
        return self.is_whole and not self.is_left_out

    def restore(self, columns: Columns, index: pd.Index[Any]) -> pd.Series[Any]:
        """Compute it."""
        own = _empty(self.dtype, index) if self.is_whole else columns[self.column]
        table = pd.DataFrame({self.column: own, **{k: columns[k] for k in self.by}}, copy=False)
        made: pd.Series[Any] = self.rule.repair(table)[self.column]
        return made if self.is_whole else made.where(own.notna(), own)


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
        numbers = left_out and kind_of_values(frame[by[0]].dtype) in "iufM"
        if numbers:
            cuts, values = _runs(numbers_or_days(frame[by[0]]), frame[column], least)
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
            numbers = numbers_or_days(columns[self.by[0]])
            cuts = np.array([key[0] for key in self.keys])
            found = np.searchsorted(cuts, numbers, side="right") - 1
            return np.where(np.isnan(numbers), -1, found.clip(min=0))
        known = {key: place for place, key in enumerate(self.keys)}
        rows = combinations_of(columns, self.by)
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

    @property
    def is_mended(self) -> bool:
        """It is."""
        return True

    def restore(self, columns: Columns, index: pd.Index[Any]) -> pd.Series[Any]:
        """Draw anew what does not go with the others."""
        own = columns[self.column]
        rows = combinations_of(columns, (*self.by, self.column))
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

    @property
    def is_mended(self) -> bool:
        """It is."""
        return True

    def restore(self, columns: Columns, index: pd.Index[Any]) -> pd.Series[Any]:
        """Draw anew what lies elsewhere."""
        own = columns[self.column]
        points = np.stack([floats_of(columns[k]) for k in self.by], axis=1)
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

    def fixes(self, others: pd.DataFrame, *values: Any) -> Flags:
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
        column = changed[self.column].copy()
        drawn = _drawn_like(column[~there], int(there.sum()), self.least)
        if drawn is None:
            column[there] = self.otherwise
        else:
            column.iloc[np.flatnonzero(there)] = drawn.array
        return with_column(changed, column)

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

    `decimals` is None if its values may lie anywhere; where nearly all lie on a `grid`, they are
    put there. What is beyond the `ends` that enough records reach is mirrored at them.
    """

    low: Hashable
    high: Hashable
    dtype: Any
    decimals: int | None
    grid: ColumnGrid | None = None
    ends: tuple[Any, Any] | None = None
    of_low: bool = False

    @classmethod
    def of(
        cls, frame: pd.DataFrame, low: Hashable, high: Hashable, least: int, *, of_low: bool = False
    ) -> Self | None:
        """Return the step, if both columns are numbers or both times, and the difference never < 0.

        A whole number is put beside whole ones only. Nothing comes out that is beyond the values of
        `least` records at either end. The other column may miss no value that this one has.
        """
        pair = (high, low) if of_low else (low, high)
        beside, own = frame[pair[0]], frame[pair[1]]
        kinds = [kind_of_values(column.dtype) for column in (beside, own)]
        whole = [kind in "iu" for kind in kinds]
        alike = kinds == ["M", "M"] and beside.dtype == own.dtype
        broken = kinds[1] == "f" and kinds[0] in "iuf"
        known = own.notna()
        if not (alike or broken or all(whole)) or beside[known].isna().any():
            return None
        if not known.any() or not (frame[high] >= frame[low])[known].all():
            return None
        ordered = own[known].sort_values()
        decimals = None
        if kinds[1] == "f":
            decimals = decimals_of(ordered.to_numpy(np.float64), numpy_dtype(own.dtype))
        k = min(least, len(ordered) // 2)
        ends, grid = limits(ordered, k, kinds[1])
        return cls(low, high, own.dtype, decimals, grid, ends if k > 1 else None, of_low)

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
        if isinstance(self.dtype, np.dtype) and self.dtype.kind in "iuf":
            difference = difference.astype("f8" if self.dtype.kind == "f" else "i8")
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
        if self.ends is not None:
            for end, beyond in zip(self.ends, (found < self.ends[0], found > self.ends[1])):
                found = found.mask(is_true(beyond), end - (found - end))  # mirrored: none piles up
        if self.grid is not None:
            found = self._on_grid(beside, found, self.grid)
        elif self.decimals is not None:
            found = found.round(self.decimals)
        bounded = self.grid is not None or self.ends is not None
        return (self._within(beside, found) if bounded else found).astype(self.dtype)

    def settled(self, columns: Columns, index: pd.Index[Any]) -> pd.Series[Any]:
        """Return the column, no further than the other."""
        return self._within(columns[self.by[0]], columns[self.column]).astype(self.dtype)

    def _on_grid(
        self, beside: pd.Series[Any], found: pd.Series[Any], grid: ColumnGrid
    ) -> pd.Series[Any]:
        """Put the column where its values lie, on its side of the other."""
        values, missing = read_values(found)
        near = grid.nearest(values)
        further = grid.nearest(near - grid.step if self.of_low else near + grid.step)
        first, second = (
            write_values(each, missing, found.dtype, found.name).set_axis(found.index)
            for each in (near, further)
        )
        return first.mask(self._beyond(beside, first), second)

    def _beyond(self, beside: pd.Series[Any], found: pd.Series[Any]) -> pd.Series[Any]:
        """Say where the column is on the wrong side of the other."""
        return is_true(found > beside if self.of_low else found < beside)

    def _within(self, beside: pd.Series[Any], found: pd.Series[Any]) -> pd.Series[Any]:
        """Return the column, or the other where that is nearer."""
        return found.mask(self._beyond(beside, found), beside)


@register
@dataclass(frozen=True)
class Copied(Step):
    """A column of numbers that many records have as it is in another one.

    In place of such a number a `mark`, a power of two beyond the ends, is modelled: models draw it
    as they draw a frequent value. Values that are `frequent` anyway stay as they are. A copy lies
    within the `ends` of what enough records have.
    """

    column: Hashable
    dtype: Any
    by: tuple[Hashable, ...]
    mark: Any
    frequent: tuple[Any, ...]
    ends: tuple[Any, Any]

    @classmethod
    def of(
        cls, column: pd.Series[Any], other: Hashable, frequent: tuple[Any, ...], least: int
    ) -> Self | None:
        """Return the step; None if the type has no room for a mark.

        Which mark follows from the ends: to look for one that no record has would tell of a record.
        """
        known = column.dropna().sort_values()
        kind, own = kind_of_values(column.dtype), numpy_dtype(column.dtype)
        ends = known.iloc[0], known.iloc[-1]
        if least > 1:
            ends, _ = limits(known, least, kind)
        low, high = map(plain_value, ends)
        power = 2 ** (1 + math.ceil(math.log2(max(2.0, abs(low), abs(high)))))
        if power > (np.finfo(own) if own.kind == "f" else np.iinfo(own)).max:
            return None
        mark = type(low)(power if own.kind == "u" else -power)
        return cls(column.name, column.dtype, (other,), mark, frequent, (low, high))

    def apply(self, frame: pd.DataFrame, changed: pd.DataFrame) -> pd.DataFrame:
        """Put the mark where it is equal."""
        return with_column(changed, self.marked(frame))

    def marked(self, frame: pd.DataFrame) -> pd.Series[Any]:
        """Return the column with marks; without the other column there are none."""
        own: pd.Series[Any] = frame[self.column]
        if self.by[0] not in frame:
            return own
        there = is_true(own == frame[self.by[0]]) & ~own.isin(self.frequent)
        return own.mask(there, self.mark)

    def restore(self, columns: Columns, index: pd.Index[Any]) -> pd.Series[Any]:
        """Put the other column's numbers in place of marks."""
        own = columns[self.column]
        there = is_true(own == self.mark)
        made = own.copy()
        made[there] = columns[self.by[0]][there].clip(*self.ends).astype(self.dtype)
        return made


def _runs(by: Floats, column: pd.Series[Any], least: int) -> tuple[list[float], list[Any]]:
    """Return where runs of numbers with one value begin, and the values, of enough records each."""
    order = np.argsort(by, kind="stable")
    numbers, (codes, values) = by[order], pd.factorize(column.iloc[order])
    begins = np.flatnonzero(np.r_[True, np.diff(codes) != 0])
    ends = np.r_[begins[1:], len(codes)]
    kept = [(int(b), int(e)) for b, e in zip(begins, ends) if e - b >= least]
    merged: list[tuple[int, int]] = []
    for begin, end in kept:
        if merged and codes[merged[-1][0]] == codes[begin]:
            merged[-1] = merged[-1][0], end
        else:
            merged.append((begin, end))
    lowest = float(np.finfo(np.float64).min)
    cuts = [
        _between(numbers[merged[k - 1][1] - 1], numbers[begin]) if k else lowest
        for k, (begin, _) in enumerate(merged)
    ]
    return cuts, [plain_value(values[codes[begin]]) for begin, _ in merged]


def limits(
    column: pd.Series[Any], least: int, kind: str
) -> tuple[tuple[Any, Any], ColumnGrid | None]:
    """Return the ends of a column's numbers or times as they come out if encoded, and its grid."""
    kinds = {column.name: {"f": "continuous", "M": "datetime"}.get(kind, "integer")}
    coder = TableTransformer(
        kinds, continuous="standard", spike_share=None, extreme_records=least
    ).fit(column.to_frame())
    coded = coder.inverse_transform(coder.transform(column.to_frame()))[column.name]
    grid: ColumnGrid | None = coder.transformers_[column.name].grid_
    return (coded.min(), coded.max()), grid


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
    values, _ = read_values(known)
    ordered = np.unique(np.sort(values)[least - 1 : len(values) - least + 1])
    if not len(ordered):
        return None
    axis = axis_through(ordered, column.dtype)
    points, places = axis.to_coordinates(ordered), rng.random(n) * (len(ordered) - 1)
    made = axis.from_coordinates(np.interp(places, np.arange(len(points)), points))
    days = kind == "M" and bool((known.dt.normalize() == known).all())
    return write_values(made, missing, column.dtype, column.name, days=days)


def _is(column: pd.Series[Any], value: Any) -> Flags:
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


_DEPTHS = range(5)
"""How often the records of a label are halved, at most: each part has a distribution."""

_BEYOND = 0.02
"""Share of other records that count as beyond their label's area."""

_BY_CHANCE = 0.2
"""Share of records that are within it if the label is independent of the numbers, at most."""

_RECORDS = 20_000

_PRIOR = 3.0
"""Records that the usual spread of a part counts as, beside its own."""


@register
@dataclass(frozen=True)
class Areas(Value):
    """Where the records of each label lie in a plane.

    Each of the `parts` of a label's records is the number of the label, a share of all records, a
    centre (2), and the inverse of a covariance (3). Where a label has less than the chance `least`
    is beyond its area. `score` is the mean log chance of labels of records that were not used.
    """

    labels: tuple[Any, ...]
    parts: tuple[tuple[float, ...], ...]
    least: float = 0.0
    score: float = 0.0

    @classmethod
    def of(cls, points: Floats, codes: Codes, labels: Sequence[Any], smallest: int) -> Self | None:
        """Return areas of a label's values, (record,), and two numbers; None if they say little.

        The number of parts is that which tells most of a quarter of the records from the others.
        """
        order = np.random.default_rng(0).permutation(len(codes))[:_RECORDS]
        points, codes = points[order], codes[order]
        held, rest = slice(0, len(order) // 4), slice(len(order) // 4, None)
        best = -np.inf, 0, 0.0, 1.0
        for depth in _DEPTHS:
            made = cls(tuple(labels), _parts(points[rest], codes[rest], smallest, depth))
            known = np.isin(codes[held], [part[0] for part in made.parts])
            theirs, chances = codes[held][known], made.chances(points[held][known])
            own = chances[np.arange(len(theirs)), theirs]
            score = float(np.log(np.maximum(own, 1e-9)).mean())
            if score <= best[0]:
                break
            least = float(np.quantile(own, _BEYOND))
            chance = (chances[np.arange(len(theirs)), np.roll(theirs, 1)] >= least).mean()
            best = score, depth, least, chance
        score, depth, least, chance = best
        if chance > _BY_CHANCE:
            return None
        return cls(tuple(labels), _parts(points, codes, smallest, depth), least, score)

    def chances(self, points: Floats) -> Floats:
        """Return the chances of each label, (point, label)."""
        parts = np.array(self.parts)
        label, share, x, y, xx, xy, yy = parts.T
        scale = np.log(share) + 0.5 * np.log(xx * yy - xy**2)
        found: Floats = np.zeros((len(points), len(self.labels)))
        begins = np.flatnonzero(np.diff(label, prepend=-1))
        for some in range(0, len(points), 1000):
            here = slice(some, some + 1000)
            right, up = points[here, :1] - x, points[here, 1:] - y
            logs = scale - 0.5 * (xx * right**2 + 2 * xy * right * up + yy * up**2)
            logs -= logs.max(axis=1, keepdims=True)
            sums = np.add.reduceat(np.exp(logs), begins, axis=1)
            found[here, label[begins].astype(int)] = sums
        found /= found.sum(axis=1, keepdims=True)
        return found


def _parts(
    points: Floats, codes: Codes, smallest: int, depth: int
) -> tuple[tuple[float, ...], ...]:
    """Halve the records of each label as often, and describe each part of `smallest` and more."""
    scale = points.std(axis=0)
    found = []
    for code in range(int(codes.max()) + 1):
        own = points[codes == code]
        if len(own) >= smallest:
            found += [(code, part) for part in _halved(own / scale, smallest, depth)]
    centres = np.array([part.mean(axis=0) for _, part in found])
    squares = np.array([(part - c).T @ (part - c) for (_, part), c in zip(found, centres)])
    counts = np.array([float(len(part)) for _, part in found])
    usual = squares.sum(axis=0) / max(1.0, float((counts - 1).sum())) + 1e-9 * np.eye(2)
    covariances = (squares + _PRIOR * usual) / (counts - 1 + _PRIOR)[:, None, None]
    inverse = np.linalg.inv(covariances) / np.outer(scale, scale)
    described = zip(found, counts / counts.sum(), centres * scale, inverse)
    return tuple(
        (float(code), float(n), *map(float, (*c, i[0, 0], i[0, 1], i[1, 1])))
        for (code, _), n, c, i in described
    )


def _halved(own: Floats, smallest: int, depth: int) -> Iterator[Floats]:
    """Yield parts of points, halved along the longer side."""
    if not depth or len(own) < 2 * smallest:
        yield own
        return
    axis = int(np.argmax(own.std(axis=0)))
    order = np.argsort(own[:, axis], kind="stable")
    for half in np.array_split(order, 2):
        yield from _halved(own[half], smallest, depth - 1)
