"""Drawing rows until enough of them keep all rules.

Where parties draw apart, a party leaves out the rows that break its own rules, and says which of
the drawn ones are left. Rules about columns of several parties travel with the rows, and are looked
at when these are put side by side: in synthetic rows, so that nobody sees a real row of another.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from vflsynth._random import derive
from vflsynth.codec import from_json, to_json
from vflsynth.columns.arrays import Flags
from vflsynth.contract.preparing import Preparation
from vflsynth.contract.rules import Rule, in_order, with_column
from vflsynth.exceptions import ColumnMismatchError, RuleError

Parts = dict[str, pd.DataFrame]

LEAST_ACCEPTANCE = 0.01
"""With a smaller share of drawn rows that keep all rules, nothing is returned."""

_FEWEST, _GROWTH = 256, 4
"""Rows of a further attempt, at least, and what part of all rows drawn before."""

_BEFORE_GIVING_UP = 2000


@dataclass(frozen=True)
class Cost:
    """What rules cost in one sample.

    Of the `n_drawn` rows, `n_accepted` kept all rules, and of each rule the share `kept` it, once
    columns that rules compute were computed.
    """

    n_drawn: int
    n_accepted: int
    kept: dict[str, float]

    @property
    def acceptance(self) -> float:
        """Share of the drawn rows that were kept."""
        return self.n_accepted / max(1, self.n_drawn)

    def __str__(self) -> str:
        shares = "; ".join(f"{rule}: {share:.1%}" for rule, share in self.kept.items())
        return (
            f"{self.n_accepted:,} of {self.n_drawn:,} drawn rows kept all rules "
            f"({self.acceptance:.1%}). {shares}"
        )


def attempts(n: int, secret: bytes) -> Iterator[tuple[int, bytes]]:
    """Say how many rows are drawn from which secret, one attempt after the other, without end.

    The first attempt has the n rows that are wanted. A further one adds a quarter of what was drawn
    before it, and at least 256 rows. It depends on nothing that anybody draws, so that parties that
    draw apart go the same way.
    """
    asked, n_drawn, attempt = n, 0, 0
    while True:
        yield asked, secret if not attempt else derive(secret, f"attempt {attempt}")
        attempt, n_drawn = attempt + 1, n_drawn + asked
        asked = max(_FEWEST, n_drawn // _GROWTH)


def check_acceptance(
    n_drawn: int, n_accepted: int, broken: NDArray[np.int64], rules: Sequence[Rule]
) -> None:
    """Raise `RuleError`, naming the rule that most rows break, where hardly any row keeps all."""
    if n_drawn < _BEFORE_GIVING_UP or n_accepted >= LEAST_ACCEPTANCE * n_drawn:
        return
    worst = int(np.argmax(broken))
    raise RuleError(
        f"{n_accepted:,} of {n_drawn:,} drawn rows keep all rules of the contract; most "
        f"break {rules[worst].title!r}, which {1 - broken[worst] / n_drawn:.1%} of them "
        "keep. Fix: write it so that it can be computed (total == net + tax), state which "
        "combinations there are, train longer, or drop it"
    )


def judged(
    tables: Parts, rules: Sequence[Rule], given: Callable[[Parts], Parts] | None = None
) -> tuple[Parts, Flags]:
    """Repair rows and say which keep which rule, (rule, row).

    Row i of all tables is one record, and rules are in the order of `in_order`. `given` puts what
    is known of the records into tables, before and after columns are computed.
    """
    tables = dict(tables) if given is None else given(tables)
    owner: Mapping[Hashable, str] = {c: name for name, t in tables.items() for c in t.columns}
    n = len(next(iter(tables.values())))
    kept = np.ones((len(rules), n), dtype=np.bool_)

    def rows(rule: Rule) -> pd.DataFrame:
        return pd.DataFrame({c: tables[owner[c]][c].array for c in rule.columns}, copy=False)

    for rule in rules:
        if (label := rule.repaired_column) is not None:
            name = owner[label]
            tables[name] = with_column(tables[name], rule.repair(rows(rule))[label])
    tables = tables if given is None else given(tables)
    for number, rule in enumerate(rules):
        kept[number] = rule.keeps(rows(rule))
    return tables, kept


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
        needed = int(1.2 * n * n_drawn / max(1, len(rows))) + 256
        raise RuleError(
            f"{len(rows):,} of {n_drawn:,} drawn rows keep all rules of the contract, and {n:,} "
            f"are asked for. Fix: draw at all parties with --drawn {needed}; rows that were drawn "
            "before stay the same"
        )
    cost = Cost(n_drawn, len(rows), shares)
    return {
        name: table.take(rows[:n]).reset_index(drop=True) for name, table in found.items()
    }, cost


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
