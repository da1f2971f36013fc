"""Rows that parties draw apart under rules: what each leaves out, and what joining leaves out.

A party leaves out the rows that break its own rules, and says which of the drawn ones are left.
Rules about columns of several parties travel with the rows, and are looked at when these are put
side by side: in synthetic rows, so that nobody sees a real row of another party.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from vflsynth.contract.enforcing import Cost, check_acceptance, judged
from vflsynth.contract.preparing import Preparation
from vflsynth.contract.rules import Rule, in_order
from vflsynth.exceptions import ColumnMismatchError, RuleError
from vflsynth.parameters import from_json, to_json


@dataclass(frozen=True)
class SharedRows:
    """Which of the drawn rows a party's part of a sample has, and the rules that are still open.

    The sample shall have n rows; `rows`, int (row,), are numbers of those that are there, among
    those drawn. Open are rules about columns of several parties, and the party's own that need what
    those compute.
    """

    n: int
    n_drawn: int
    rows: NDArray[np.intp]
    rules: tuple[Rule, ...] = ()

    @classmethod
    def of(cls, table: pd.DataFrame, preparation: Preparation, n: int) -> tuple[pd.DataFrame, Self]:
        """Leave out of a party's drawn rows those that break its own rules."""
        rows = np.flatnonzero(preparation.kept(table))
        rules = (*preparation.settled_later, *preparation.across)
        return table.take(rows), cls(n, len(table), rows, rules)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values; ParameterError if a rule is a function or is not registered."""
        there = np.zeros(self.n_drawn, np.bool_)
        there[self.rows] = True
        return {
            "n": self.n,
            "n_drawn": self.n_drawn,
            "rows": base64.b64encode(np.packbits(there).tobytes()).decode(),
            "rules": json.dumps(to_json(self.rules, "rules")),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Undo `to_dict`; the content is somebody else's.

        Raises ArtefactError, KeyError, TypeError or ValueError if it is not what `to_dict` writes.
        """
        bits = np.frombuffer(base64.b64decode(content["rows"]), np.uint8)
        n, n_drawn = int(content["n"]), int(content["n_drawn"])
        rules = tuple(from_json(json.loads(content["rules"])))
        if not 0 <= n_drawn <= 8 * len(bits) or not all(isinstance(r, Rule) for r in rules):
            raise ValueError("rows or rules that are none")
        return cls(n, n_drawn, np.flatnonzero(np.unpackbits(bits, count=n_drawn)), rules)


def rows_for_all(
    tables: Mapping[str, pd.DataFrame], shared: Mapping[str, SharedRows]
) -> tuple[dict[str, pd.DataFrame], Cost]:
    """Put parties' rows side by side, and leave out those that break a rule of several parties.

    Row i of the tables is the same record in all of them: those that a fit in one process would
    return. The cost is that of all rules together, and of those that were looked at here. Raises
    ColumnMismatchError if a rule names a column that no table has, RuleError if too few rows keep
    the rules: more have to be drawn, or a rule is hardly ever kept.
    """
    n, n_drawn = next(iter(shared.values())).n, min(own.n_drawn for own in shared.values())
    common = np.arange(n_drawn)
    for own in shared.values():
        common = np.intersect1d(common, own.rows, assume_unique=True)
    rules: list[Rule] = []
    for rule in (rule for own in shared.values() for rule in own.rules):
        rules += [] if rule in rules else [rule]
    _check_columns(tables, rules)
    ordered = in_order(rules)
    found = {
        name: table.take(np.searchsorted(shared[name].rows, common)).reset_index(drop=True)
        for name, table in tables.items()
    }
    found, kept = judged(found, ordered)
    rows = np.flatnonzero(kept.all(axis=0))
    shares = {rule.title: float(own.mean()) for rule, own in zip(ordered, kept) if len(own)}
    if len(rows) < n:
        if ordered:
            check_acceptance(n_drawn, len(rows), (~kept).sum(axis=1), ordered)
        raise RuleError(
            f"{len(rows):,} of {n_drawn:,} drawn rows keep all rules of the contract, and {n:,} "
            f"are asked for. Fix: draw at all parties with --drawn "
            f"{_needed(n, n_drawn, len(rows))}; rows that were drawn before stay the same"
        )
    cost = Cost(n_drawn, len(rows), shares)
    return {
        name: table.take(rows[:n]).reset_index(drop=True) for name, table in found.items()
    }, cost


def _needed(n: int, n_drawn: int, n_kept: int) -> int:
    """Rows to draw, with some to spare."""
    return int(1.2 * n * n_drawn / max(1, n_kept)) + 256


def _check_columns(tables: Mapping[str, pd.DataFrame], rules: list[Rule]) -> None:
    known = {label for table in tables.values() for label in table.columns}
    for rule in rules:
        for label in rule.columns:
            if label not in known:
                raise ColumnMismatchError(
                    f"the rule {rule.title!r} names it, and it is in none of the parts",
                    fix="join the parts of all parties",
                    column=label,
                )
