"""What drawn records must be, and drawing until enough are: where draws are thrown away."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from vflsynth._random import derive
from vflsynth.columns.base import held_as, naming
from vflsynth.columns.wanted import Wanted
from vflsynth.contract import Cost, Rule, judged
from vflsynth.contract.rules import in_order

Tables = dict[str, pd.DataFrame]

_SMALLEST_BLOCK, _LARGEST_BLOCK = 1 << 10, 1 << 16
_SPARE = 1.2
"""More draws than the acceptance so far asks for."""


Flags = npt.NDArray[np.bool_]


class Demands:
    """What drawn records must be: as the rules of a contract say, and as is wanted of columns.

    `cost` is what the rules cost in all draws that were judged; None if there are no rules.
    """

    def __init__(
        self, rules: Sequence[Rule], wanted: Mapping[str, Mapping[Any, Wanted]] | None = None
    ) -> None:
        self.rules, self.wanted = in_order(rules), wanted or {}
        self._kept = np.zeros(len(self.rules), np.int64)
        self._n_drawn = self._n_accepted = 0

    def judge(self, tables: Tables, given: pd.DataFrame | None = None) -> tuple[Tables, Flags]:
        """Compute what rules compute, put in what is given, and say which records may stay.

        Row i of all parties' tables, as the halves draw them, is one record; `given` has known
        cells.
        """
        fill = None if given is None else partial(filled, known=given)
        tables, kept = judged(tables, self.rules, fill)
        accepted = np.asarray(kept.all(axis=0), np.bool_)
        self._kept += kept.sum(axis=1)
        self._n_drawn += len(accepted)
        self._n_accepted += int(accepted.sum())
        for name, columns in self.wanted.items():
            for label, own in columns.items():
                accepted = accepted & own.satisfied(tables[name][label])
        return tables, accepted

    @property
    def cost(self) -> Cost | None:
        """What the rules cost so far."""
        if not self.rules:
            return None
        shares = self._kept / max(1, self._n_drawn)
        titles = (rule.title for rule in self.rules)
        return Cost(self._n_drawn, self._n_accepted, dict(zip(titles, shares.tolist())))


def filled(tables: Mapping[str, pd.DataFrame], known: pd.DataFrame) -> Tables:
    """Put what is given into drawn columns, whose types stay.

    Raises ColumnKindError if a column's type cannot hold it.
    """
    found = {name: table.copy(deep=False) for name, table in tables.items()}
    for party, table in found.items():
        for label in table.columns:
            if label not in known.columns:
                continue
            column, there = table[label].copy(), ~np.asarray(known[label].isna())
            with naming(party, label):
                column[there] = held_as(column.dtype, known[label][there]).array
            table[label] = column
    return found


@dataclass(frozen=True)
class Accepted:
    """Records that were accepted, and out of how many.

    There are as many as were asked for, or fewer. `n_accepted` and `n_drawn` are of all draws, also
    those that were not needed any more.
    """

    tables: Tables
    n_accepted: int
    n_drawn: int

    @property
    def rate(self) -> float:
        """Share of the draws that were accepted."""
        return self.n_accepted / max(1, self.n_drawn)


def draw_until(
    draw: Callable[[int, bytes], Tables],
    judge: Callable[[Tables], tuple[Tables, Flags]],
    n: int,
    secret: bytes,
    *,
    most: int,
) -> Accepted:
    """Draw blocks of records until `n` are accepted, or `most` are drawn.

    `draw` takes a number of records and a secret, and returns tables by party; row i is one record
    in all of them. `judge` returns those that are kept, and a bool per record; `Demands.judge` for
    instance. Every block is drawn from a secret derived of the given one: the same one gives the
    same records. They are independent draws of the model's distribution given that they are
    accepted.
    """
    kept: list[Tables] = []
    n_accepted = n_drawn = 0
    while n_accepted < n and n_drawn < most:
        wanted = _SPARE * (n - n_accepted) * (n_drawn or 1) / max(1, n_accepted if n_drawn else 1)
        size = int(min(max(wanted, _SMALLEST_BLOCK), _LARGEST_BLOCK, max(most - n_drawn, 1)))
        tables, chosen = judge(draw(size, derive(secret, f"block {len(kept)}")))
        kept.append({name: table[chosen] for name, table in tables.items()})
        n_drawn, n_accepted = n_drawn + size, n_accepted + int(chosen.sum())
    kept = kept or [draw(0, secret)]
    return Accepted(
        {
            name: with_fresh_index(pd.concat([part[name] for part in kept]).head(n))
            for name in kept[0]
        },
        n_accepted,
        n_drawn,
    )


def with_fresh_index(table: pd.DataFrame) -> pd.DataFrame:
    """Count the rows anew; the index keeps its name."""
    return table.set_axis(pd.RangeIndex(len(table), name=table.index.name), axis=0)
