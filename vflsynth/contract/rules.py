"""What must hold in every published row.

`keeps` is the one question that a rule answers: sampling asks it of synthetic rows, evaluation of
real and synthetic tables. A rule that can mend a row does it in `repair`, before it is asked.
"""

from __future__ import annotations

import ast
import graphlib
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pandas as pd

from vflsynth.codec import array_of
from vflsynth.columns.arrays import Flags, numpy_dtype
from vflsynth.contract.expressions import columns_of, label_of, parse
from vflsynth.exceptions import ContractError
from vflsynth.registry import Value, register

PLACES = 9
"""Decimals of what is computed, if it is that near to them: .1 + .2 is .3."""

Combination = tuple[Any, ...]


class Rule(Value, ABC):
    """What must hold in every row; subclasses are frozen dataclasses."""

    @property
    @abstractmethod
    def columns(self) -> tuple[Hashable, ...]:
        """Labels of the columns that it is about."""

    @property
    @abstractmethod
    def title(self) -> str:
        """What errors and reports call it."""

    @abstractmethod
    def keeps(self, table: pd.DataFrame) -> Flags:
        """Say which rows of a table keep the rule, booleans of shape (row,)."""

    @property
    def reads_records(self) -> bool:
        """Whether something has to be learned from real records first, see `learned`."""
        return False

    def learned(self, records: pd.DataFrame, least: int) -> Self:
        """Return the rule with what one party's records say; nothing of fewer than `least`."""
        return self

    @property
    def repaired_column(self) -> Hashable | None:
        """Column that `repair` computes from the others, if there is one."""
        return None

    def repair(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the table with rows mended where the rule says how."""
        return table


@register
@dataclass(frozen=True)
class Check(Rule):
    """An expression that must be true, see `vflsynth.contract.expressions`.

    Parameters
    ----------
    expression : str
        ``column == ...`` is kept by computing the column, others by leaving out rows.

    Examples
    --------
    >>> import pandas as pd
    >>> rule = Check("total == net + tax")
    >>> rule.repair(pd.DataFrame({"net": [1, 2], "tax": [3, 4], "total": [0, 0]}))["total"].tolist()
    [4, 6]
    """

    expression: str

    def __post_init__(self) -> None:
        parse(self.expression)

    @property
    def title(self) -> str:
        """The text."""
        return self.expression

    @property
    def columns(self) -> tuple[Hashable, ...]:
        """Columns that it names."""
        return parse(self.expression).columns

    def keeps(self, table: pd.DataFrame) -> Flags:
        """Compute it."""
        return parse(self.expression).keeps(table)

    @property
    def ordered(self) -> tuple[Hashable, Hashable] | None:
        """The smaller and the larger column of ``a <= b``, ``a < b`` and their mirror images."""
        tree = parse(self.expression).tree
        if not isinstance(tree, ast.Compare) or len(tree.ops) != 1:
            return None
        one, other = label_of(tree.left), label_of(tree.comparators[0])
        if one is None or other is None or one == other:
            return None
        if isinstance(tree.ops[0], ast.Lt | ast.LtE):
            return one, other
        return (other, one) if isinstance(tree.ops[0], ast.Gt | ast.GtE) else None

    @property
    def repaired_column(self) -> Hashable | None:
        """The column in front of ``==``, if it does not stand behind it as well."""
        sides = self._sides()
        return None if sides is None else sides[0]

    def turned(self) -> list[tuple[Check, tuple[Hashable, Hashable]]]:
        """Return what computes a part of a sum of columns, or the earlier of two times.

        With each comes which other column must not be larger than which for it not to be below 0.
        """
        sides = self._sides()
        if sides is None:
            return []
        tree, parts = sides[1], list[ast.expr]()
        while isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Add):
            parts.insert(0, tree.right)
            tree = tree.left
        if not parts or label_of(tree) is None:
            return []
        parts.insert(0, tree)
        total = ast.unparse(parse(self.expression).tree.left)  # type: ignore[attr-defined]
        found = []
        for k, part in enumerate(parts):
            others = [*parts[:k], *parts[k + 1 :]]
            less = "".join(f" - {ast.unparse(other)}" for other in others)
            if label_of(part) is not None:
                one = label_of(others[0]) if len(others) == 1 else None
                found.append((Check(f"{ast.unparse(part)} == {total}{less}"), (one, sides[0])))
        return found

    @property
    def shares(self) -> tuple[float, tuple[Hashable, ...]] | None:
        """The sum of the columns of ``a == 100 - b - c``, and these, as they stand there."""
        sides, labels = self._sides(), list[Hashable]()
        tree = None if sides is None else sides[1]
        while isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Sub):
            labels.append(label_of(tree.right))
            tree = tree.left
        plain = isinstance(tree, ast.Constant) and isinstance(tree.value, int | float)
        if sides is None or not plain or not labels or None in labels:
            return None
        return float(tree.value), (sides[0], *labels[::-1])  # type: ignore[union-attr]

    def _sides(self) -> tuple[Hashable, ast.expr] | None:
        tree = parse(self.expression).tree
        if not isinstance(tree, ast.Compare) or not isinstance(tree.ops[0], ast.Eq):
            return None
        label = label_of(tree.left)
        inside = {own for own, _ in columns_of(tree.comparators[0], self.expression)}
        if len(tree.ops) > 1 or label is None or label in inside or not inside:
            return None
        return label, tree.comparators[0]

    def computed(self, rows: pd.DataFrame) -> Any:
        """Return what stands behind ``==``, of rows that have values in its columns."""
        sides = self._sides()
        return None if sides is None else parse(self.expression).value(sides[1], rows)

    def repair(self, table: pd.DataFrame) -> pd.DataFrame:
        """Compute the column in front of ``==`` where all others have values."""
        label = self.repaired_column
        if label is None:
            return table
        others = [column for column in self.columns if column != label]
        known = np.flatnonzero(table[others].notna().to_numpy().all(axis=1))
        if not len(known):
            return table
        values = self.computed(table.take(known))
        dtype = table[label].dtype
        kind = numpy_dtype(dtype).kind
        try:
            if kind in "iu":
                values = np.broadcast_to(values, len(known))
                there = np.isfinite(values)
                known, values = known[there], values[there]
                values = np.rint(values) if values.dtype.kind == "f" else values
            elif kind == "f":
                values = np.asarray(values, dtype=np.float64)
                rounded = np.round(values, PLACES)  # .1 + .2 to .3; what has more places stays
                close = np.isclose(rounded, values, rtol=1e-12, atol=1e-12)
                values = np.where(close, rounded, values)
                values = np.where(np.isfinite(values), values, np.nan)  # nothing divides by 0
            made = pd.Series(np.broadcast_to(values, len(known)))
            if isinstance(dtype, pd.DatetimeTZDtype):
                made = made.dt.tz_localize("UTC")  # what expressions compute with
            column = table[label].copy()
            column.iloc[known] = made.astype(dtype).array
        except (TypeError, ValueError, OverflowError):
            raise ContractError(
                f"what {self.title!r} computes is no value of column {label!r}, of type {dtype}. "
                "Fix: give the column a type that can hold it"
            ) from None
        return with_column(table, column)


@register
@dataclass(frozen=True)
class FixedCombinations(Rule):
    """Values of some columns go together in a few ways only: one-hot groups, codes and their names.

    Parameters
    ----------
    among : tuple of column labels
    combinations : tuple of tuples, optional
        What is allowed; None for what is missing. Default: learned from the records of the party
        that has all these columns; under privacy they must be given.
    """

    among: tuple[Hashable, ...]
    combinations: tuple[Combination, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "among", tuple(self.among))
        if len(set(self.among)) < 2 or len(set(self.among)) < len(self.among):
            raise ContractError("fixed combinations need two or more different columns")
        if self.combinations is None:
            return
        object.__setattr__(self, "combinations", tuple(map(tuple, self.combinations)))
        if not self.combinations or {len(c) for c in self.combinations} != {len(self.among)}:
            raise ContractError(f"{self.title}: every combination needs one value per column")

    @property
    def title(self) -> str:
        """The columns."""
        return f"fixed combinations of {', '.join(map(str, self.among))}"

    @property
    def columns(self) -> tuple[Hashable, ...]:
        """The columns."""
        return self.among

    @property
    def reads_records(self) -> bool:
        """Whether combinations were not given."""
        return self.combinations is None

    def learned(self, records: pd.DataFrame, least: int) -> Self:
        """Return the rule with the combinations of at least `least` records, frequent ones first.

        Raises ContractError if there are none.
        """
        if not self.reads_records:
            return self
        counts = pd.Series(combinations_of(records, self.among)).value_counts(sort=False)
        kept = counts[counts >= least].sort_values(ascending=False, kind="stable")
        if kept.empty:
            raise ContractError(
                f"{self.title}: none is held by {least} records. Fix: drop the rule, or lower "
                "rare_records"
            )
        return replace(self, combinations=tuple(kept.index))

    def keeps(self, table: pd.DataFrame) -> Flags:
        """Whether the combination is among them."""
        if self.combinations is None:
            raise ContractError(f"{self.title}: nobody has said which there are")
        known, rows = set(self.combinations), combinations_of(table, self.among)
        return np.fromiter((row in known for row in rows), np.bool_, len(rows))


@register
@dataclass(frozen=True)
class Determines(Rule):
    """One value of `column` for each combination of others (a functional dependency): zip and town.

    Parameters
    ----------
    by : tuple of column labels
    column : column label
    values : tuple of (combination, value) pairs, optional
        Default: learned from the records of the party that has all these columns, where in case of
        doubt the most frequent value stands; under privacy they must be given. For combinations
        that are not among them nothing is asked.
    """

    by: tuple[Hashable, ...]
    column: Hashable
    values: tuple[tuple[Combination, Any], ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "by", tuple(self.by))
        if not self.by or self.column in self.by:
            raise ContractError("a dependency needs columns, and another that they determine")
        if self.values is not None:
            pairs = tuple((tuple(key), value) for key, value in self.values)
            object.__setattr__(self, "values", pairs)

    @property
    def title(self) -> str:
        """The columns."""
        return f"{', '.join(map(str, self.by))} determine{'s' * (len(self.by) == 1)} {self.column}"

    @property
    def columns(self) -> tuple[Hashable, ...]:
        """All of them."""
        return (*self.by, self.column)

    @property
    def reads_records(self) -> bool:
        """Whether values were not given."""
        return self.values is None

    def learned(self, records: pd.DataFrame, least: int) -> Self:
        """Return the rule with the pairs that at least `least` records hold."""
        if not self.reads_records:
            return self
        pairs = pd.Series(combinations_of(records, self.columns)).value_counts()
        best: dict[Combination, Any] = {}
        for (*key, value), count in zip(pairs.index, pairs):  # frequent ones first
            if count >= least:
                best.setdefault(tuple(key), value)
        return replace(self, values=tuple(best.items()))

    @property
    def repaired_column(self) -> Hashable:
        """The column that the others determine."""
        return self.column

    def repair(self, table: pd.DataFrame) -> pd.DataFrame:
        """Look the column up."""
        known = dict(self.values or ())
        keys = combinations_of(table, self.by)
        old = combinations_of(table, (self.column,))
        values = [known.get(key, own) for key, (own,) in zip(keys, old)]
        dtype = table[self.column].dtype
        try:
            array = array_of(values, dtype)
        except (TypeError, ValueError, OverflowError):
            raise ContractError(
                f"{self.title}: a value that is stated is none of column {self.column!r}, of type "
                f"{dtype}. Fix: state values of its type"
            ) from None
        return with_column(table, pd.Series(array, index=table.index, name=self.column))

    def keeps(self, table: pd.DataFrame) -> Flags:
        """Whether the column has the value that belongs to the combination."""
        if self.values is None:
            raise ContractError(f"{self.title}: nobody has said which values")
        known = dict(self.values)
        pairs = combinations_of(table, self.columns)
        kept = (known.get(tuple(key), value) == value for *key, value in pairs)
        return np.fromiter(kept, np.bool_, len(table))


def in_order(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Sort rules so that columns are computed before others are; ContractError if in a circle."""
    given = list(rules)
    makers = {r.repaired_column: k for k, r in enumerate(given) if r.repaired_column is not None}
    needs = {
        k: {makers[c] for c in rule.columns if c in makers and makers[c] != k}
        if rule.repaired_column is not None
        else set()
        for k, rule in enumerate(given)
    }
    try:
        return tuple(given[k] for k in graphlib.TopologicalSorter(needs).static_order())
    except graphlib.CycleError as error:
        titles = " and ".join(repr(given[k].title) for k in sorted(set(error.args[1])))
        raise ContractError(
            f"the rules {titles} compute columns from each other. Fix: leave one of them out"
        ) from None


def combinations_of(
    table: pd.DataFrame | Mapping[Hashable, pd.Series[Any]], columns: Sequence[Hashable]
) -> list[Combination]:
    """Return each row's values as a tuple of plain objects; None for what is missing."""
    parts = []
    for label in columns:
        values, missing = table[label].astype(object), table[label].isna()
        parts.append([None if lost else plain_value(v) for v, lost in zip(values, missing)])
    return list(zip(*parts))


def are_hashable(column: pd.Series[Any]) -> bool:
    """Whether no value is a list or the like."""
    return bool(column.map(lambda value: isinstance(value, Hashable)).all())


def plain_value(value: Any) -> Any:
    """Return a value of NumPy as one of Python, others as they are."""
    return value.item() if isinstance(value, np.bool_ | np.number) else value


def with_column(table: pd.DataFrame, column: pd.Series[Any]) -> pd.DataFrame:
    """Return the table with one column in another's place, whatever its label."""
    changed = table.copy(deep=False)
    changed[column.name] = column.array
    return changed
