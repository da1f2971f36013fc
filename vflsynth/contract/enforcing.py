"""Drawing rows until enough of them keep all rules."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from vflsynth._random import derive
from vflsynth.contract.rules import Rule, in_order
from vflsynth.exceptions import RuleError

Parts = dict[str, pd.DataFrame]

LEAST_ACCEPTANCE = 0.01
"""With a smaller share of drawn rows that keep all rules, nothing is returned."""

_FEWEST, _GROWTH = 256, 4
"""Rows of a further attempt, at least, and what part of all rows drawn before."""

_BEFORE_GIVING_UP = 2000


@dataclass(frozen=True)
class Cost:
    """What rules cost in one sample.

    Parameters
    ----------
    n_drawn, n_accepted : int
        Rows that were drawn, and those of them that kept all rules.
    kept : dict of str to float
        By rule: the share of drawn rows that kept it, once columns that rules compute were
        computed.
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

    def to_frame(self) -> pd.DataFrame:
        """Return one row per rule, and one of all together, with the shares that kept them."""
        shares = self.kept | {"all rules": self.acceptance}
        return pd.DataFrame({"rule": list(shares), "kept": list(shares.values())})


def enforce(
    draw: Callable[[int, bytes], Parts], n: int, secret: bytes, rules: Sequence[Rule]
) -> tuple[Parts, Cost]:
    """Draw until `n` rows keep all rules; return tables by party, and what the rules cost.

    `draw` takes a number of rows and a secret, and returns all parties' tables, row i of each the
    same record; the first draw is the one that would have been made without rules. Rules that
    compute a column of others do so first, also across parties: what is looked at is synthetic.

    Leaving out rows draws from the model given that the rules hold. That is what is asked for; it
    is not what the records look like if a rule that they keep is often broken by the model. Raises
    RuleError, with the rule that most rows break, if fewer than one in a hundred rows keep all.
    """
    rules = in_order(rules)
    parts: list[Parts] = []
    broken = np.zeros(len(rules), dtype=np.int64)
    n_drawn = n_accepted = 0
    for asked, own in attempts(n, secret):
        tables, kept = judged(draw(asked, own), rules)
        n_drawn += asked
        broken += (~kept).sum(axis=1)
        rows = np.flatnonzero(kept.all(axis=0))
        n_accepted += len(rows)
        parts.append({name: table.take(rows) for name, table in tables.items()})
        if n_accepted >= n:
            break
        check_acceptance(n_drawn, n_accepted, broken, rules)
    joined = {
        name: pd.concat([part[name] for part in parts], ignore_index=True).head(n)
        if len(parts) > 1
        else parts[0][name].reset_index(drop=True)
        for name in parts[0]
    }
    for name, table in joined.items():
        table.index.name = parts[0][name].index.name
    shares = (1.0 - broken / max(1, n_drawn)).tolist()
    return joined, Cost(n_drawn, n_accepted, dict(zip((r.title for r in rules), shares)))


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
) -> tuple[Parts, NDArray[np.bool_]]:
    """Repair rows and say which keep which rule, (rule, row).

    Row i of all tables is one record, and rules are in the order of `in_order`. `given` puts what
    is known of the records into tables, before and after columns are computed.
    """
    tables = dict(tables) if given is None else given(tables)
    owner: Mapping[Hashable, str] = {c: name for name, t in tables.items() for c in t.columns}
    n = len(next(iter(tables.values())))
    kept = np.ones((len(rules), n), dtype=np.bool_)
    for repairing in (True, False):
        if given is not None and not repairing:
            tables = given(tables)
        for number, rule in enumerate(rules):
            if repairing and rule.repaired_column is None:
                continue
            row = pd.DataFrame({c: tables[owner[c]][c].array for c in rule.columns}, copy=False)
            if repairing:
                name, label = owner[rule.repaired_column], rule.repaired_column
                changed = tables[name].copy(deep=False)
                changed[label] = rule.repair(row)[label].array
                tables[name] = changed
            else:
                kept[number] = rule.keeps(row)
    return tables, kept
