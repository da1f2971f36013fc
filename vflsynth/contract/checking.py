"""Rules held against a party's own table before anything is learned.

Every part of an expression is a number, a duration, a time, a text or a truth. Mixtures that mean
nothing are refused, such as an integer beside a duration, and so are rules that no row keeps.
"""

from __future__ import annotations

import ast
import logging
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import pandas as pd

from vflsynth.codec import Family, family_of
from vflsynth.contract.expressions import OPERATORS, PARTS, label_of, parse
from vflsynth.contract.rules import Check, Rule
from vflsynth.exceptions import ContractError

logger = logging.getLogger("vflsynth")


class Unit(StrEnum):
    """What a part of an expression computes."""

    NUMBER = "a number"
    DURATION = "a duration"
    TIME = "a point in time"
    TEXT = "text"
    TRUTH = "yes or no"
    ANYTHING = "anything"


_OF_FAMILIES: Mapping[Family, Unit] = {
    "whole number": Unit.NUMBER,
    "number": Unit.NUMBER,
    "duration": Unit.DURATION,
    "time": Unit.TIME,
    "text": Unit.TEXT,
    "truth value": Unit.TRUTH,
    "label": Unit.ANYTHING,
}
_COUNTS = {Unit.NUMBER, Unit.TRUTH}  # flags are 0 and 1
_EXAMPLES: Mapping[Unit, Any] = {
    Unit.NUMBER: np.float64(1),
    Unit.DURATION: np.timedelta64(1, "us"),
    Unit.TIME: np.datetime64(0, "us"),
}
"""Of these, arithmetic shows what unit its results have."""
_OF_KINDS = {"f": Unit.NUMBER, "i": Unit.NUMBER, "m": Unit.DURATION, "M": Unit.TIME}
_CALLS: Mapping[str, tuple[Unit, ...]] = {
    "date": (Unit.TEXT, Unit.TIME),
    "days": (Unit.NUMBER, Unit.DURATION),
    "round": (Unit.NUMBER, Unit.NUMBER, Unit.NUMBER),
    "months_after": (Unit.TIME, Unit.NUMBER, Unit.TIME),
    "months_between": (Unit.TIME, Unit.TIME, Unit.NUMBER),
    "years_between": (Unit.TIME, Unit.TIME, Unit.NUMBER),
    **dict.fromkeys(PARTS, (Unit.TIME, Unit.NUMBER)),
    **dict.fromkeys(("sqrt", "log", "log10"), (Unit.NUMBER, Unit.NUMBER)),
}
"""What functions are of, and what they make; others make what they are of."""
_FIXES = {
    frozenset({Unit.NUMBER, Unit.DURATION}): "write days(...) around the number of days",
    frozenset({Unit.NUMBER, Unit.TIME}): "write year(...) around the time, or days(...) around "
    "the number where it is added",
    frozenset({Unit.TEXT, Unit.TIME}): "give the column the type of a date",
    frozenset({Unit.TEXT, Unit.NUMBER}): "leave the quotes out, or give the column another type",
}


@dataclass(frozen=True)
class Held:
    """How many rows of a party's own table keep a rule, of those with values where it compares."""

    rule: Rule
    n_rows: int
    n_broken: int

    def __str__(self) -> str:
        if not self.n_broken:
            return f"{self.rule.title}: all {self.n_rows:,} rows keep it"
        return (
            f"{self.rule.title}: {self.n_broken:,} of {self.n_rows:,} rows break it "
            f"({self.n_broken / self.n_rows:.1%})"
        )


def check_units(rules: Iterable[Rule], dtypes: Mapping[Hashable, Any]) -> None:
    """Refuse expressions that compare or add what has different units, by the types of columns.

    Rules other than `Check` have no units, and a column that is not there may be anything. The
    ContractError has both sides, what they are, and how they can be made alike.
    """
    for rule in rules:
        if isinstance(rule, Check):
            _Units(rule.expression, dtypes).of(parse(rule.expression).tree)


def hold(rules: Iterable[Rule], table: pd.DataFrame, whose: str) -> tuple[Held, ...]:
    """Count the rows that keep each rule, of which none is still to be learned.

    ContractError, which begins with `whose`, if a rule cannot be computed, or no row keeps it.
    """
    found = []
    for rule in rules:
        rows = table[list(rule.columns)]
        looked_at = parse(rule.expression).known(rows) if isinstance(rule, Check) else None
        broken = ~np.asarray(rule.keeps(rows), dtype=np.bool_)
        n = len(rows) if looked_at is None else int(looked_at.sum())
        held = Held(rule, n, int(broken.sum()))
        if n and held.n_broken == n:
            raise ContractError(
                f"{whose}: none of {n:,} rows keeps the rule {rule.title!r}. Fix: correct the rule "
                "or the table, or drop the rule"
            )
        found.append(held)
    return tuple(found)


def check_rules(rules: Sequence[Rule], frame: pd.DataFrame, party: str, *, private: bool) -> None:
    """Check a party's own rules against its table as a fit begins; ContractError of two functions.

    These are `check_units` and, unless the fit is private, `hold`: then types are looked at, and no
    record. The log says how many rows break a rule.
    """
    check_units(rules, dict(frame.dtypes))
    if private:
        return
    stated = [rule for rule in rules if not rule.reads_records]
    for held in hold(stated, frame, f"party {party!r}"):
        if held.n_broken:
            logger.warning("party %r: %s; every synthetic row will keep the rule", party, held)


@dataclass(frozen=True)
class _Units:
    """Units of the parts of one expression."""

    text: str
    dtypes: Mapping[Hashable, Any]

    def of(self, node: ast.expr) -> Unit:
        """Return the unit of a part, or refuse it."""
        if (label := label_of(node)) is not None:
            dtype = self.dtypes.get(label)
            if isinstance(dtype, pd.CategoricalDtype):
                dtype = dtype.categories.dtype
            return Unit.ANYTHING if dtype is None else _OF_FAMILIES[family_of(dtype)]
        match node:
            case ast.Constant():
                kinds = {bool: Unit.TRUTH, str: Unit.TEXT}
                return kinds.get(type(node.value), Unit.NUMBER)
            case ast.BoolOp():
                return self._truths(node.values)
            case ast.UnaryOp(op=ast.Not()):
                return self._truths([node.operand])
            case ast.UnaryOp():
                return self.of(node.operand)
            case ast.BinOp():
                return self._arithmetic(node)
            case ast.Compare():
                return self._compared(node)
            case ast.Call(func=ast.Name(id=name)):
                return self._called(name, node.args)
        return Unit.ANYTHING

    def _truths(self, parts: Sequence[ast.expr]) -> Unit:
        for part in parts:
            if (unit := self.of(part)) not in (*_COUNTS, Unit.ANYTHING):
                raise self._refused(f"{ast.unparse(part)} is {unit}, and not true or false")
        return Unit.TRUTH

    def _arithmetic(self, node: ast.BinOp) -> Unit:
        left, right = self.of(node.left), self.of(node.right)
        if Unit.ANYTHING in (left, right):
            return Unit.ANYTHING
        left, right = (Unit.NUMBER if unit in _COUNTS else unit for unit in (left, right))
        try:
            made = OPERATORS[type(node.op)](_EXAMPLES[left], _EXAMPLES[right])
        except (KeyError, TypeError):  # text, and what NumPy has no result for
            raise self._unlike(node.left, left, node.right, right) from None
        return _OF_KINDS[made.dtype.kind]

    def _compared(self, node: ast.Compare) -> Unit:
        left = node.left
        for op, right in zip(node.ops, node.comparators):
            others = right.elts if isinstance(right, ast.List | ast.Tuple) else [right]
            for other in others:
                self._alike(left, other)
                if isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE):
                    self._check_order(left)
                    self._check_order(other)
            if not isinstance(op, ast.In | ast.NotIn):
                left = right
        return Unit.TRUTH

    def _check_order(self, node: ast.expr) -> None:
        """Refuse ordered categories: a rule would compare their texts letter by letter."""
        dtype = self.dtypes.get(label_of(node))
        if getattr(dtype, "ordered", False) and self.of(node) == Unit.TEXT:
            raise self._refused(
                f"{ast.unparse(node)} has categories whose order a rule does not know",
                'list them, as in grade in ["low", "medium"], or give the column numbers',
            )

    def _alike(self, left: ast.expr, right: ast.expr) -> Unit:
        one, other = self.of(left), self.of(right)
        both = {one, other}
        if both == {Unit.TIME, Unit.TEXT}:
            text = left if one == Unit.TEXT else right
            if isinstance(text, ast.Constant):  # read as a date
                return Unit.TIME
        elif len(both) == 1 or Unit.ANYTHING in both or both <= _COUNTS:
            return Unit.NUMBER if both == _COUNTS else one
        raise self._unlike(left, one, right, other)

    def _called(self, name: str, parts: Sequence[ast.expr]) -> Unit:
        if name == "missing":
            return Unit.TRUTH
        if name == "implies":
            return self._truths(parts)
        if name in ("min", "max"):
            return [self._alike(parts[0], other) for other in parts][-1]
        if name == "case":
            return self._cased(*parts)
        if name not in _CALLS:
            return self.of(parts[0])
        *wanted, made = _CALLS[name]
        for own, part in zip(wanted, parts):
            if (unit := self.of(part)) not in (own, Unit.ANYTHING):
                raise self._refused(f"{name}(...) is of {own}, and here of {unit}")
        return made

    def _cased(self, of: ast.expr, *cases: ast.expr) -> Unit:
        if len(cases) < 3 or len(cases) % 2 == 0:
            raise self._refused("case(...) has values and no last one", "end with what else holds")
        for value in cases[:-1:2]:
            self._alike(of, value)
        return [self._alike(cases[-1], made) for made in cases[1::2]][-1]

    def _unlike(self, left: ast.expr, one: Unit, right: ast.expr, other: Unit) -> ContractError:
        return self._refused(
            f"{ast.unparse(left)} is {one}, and {ast.unparse(right)} is {other}",
            _FIXES.get(frozenset({one, other}), "compare and add what is of one kind"),
        )

    def _refused(self, why: str, fix: str = "compare and add what is of one kind") -> ContractError:
        return ContractError(f"the rule {self.text!r} cannot be computed: {why}. Fix: {fix}")
