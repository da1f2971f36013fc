"""What parties and the server tell each other of tables of pairs of columns."""

from __future__ import annotations

import torch
from torch import Tensor

from vflsynth.learning.messages import PublishedTables
from vflsynth.protocol.declaration import MadeOf, Message, When, holds, message


@message(
    from_party=True,
    made_of=MadeOf.RECORDS,
    when=When.ONCE,
    slow=True,
    contents="sums of products of codes of all pairs of the party's columns, with discrete "
    "Gaussian noise, in whole steps; kinds and numbers of states (columns,), their shares, codes "
    "and the number of records by the published histograms",
    tells="published; the privacy ledger counts it",
)
class ColumnTables(PublishedTables):
    """Published sums of products of a party's own columns, one pair after the other.

    `counts` are whole numbers of steps, int64; `sizes` are the columns' numbers of states, shape
    (column,); `shares` are those of all states, float64, column by column; `kinds`, shape
    (column,), say whether states are ordered. Codes follow from both
    (`pairwise.column_codes`): `coordinates`, shape (column,), are how many numbers one
    has, and `codes` are those of all states, column by column. `n_records`, shape (1,), is what the
    party's histograms say.
    """

    of = "columns"

    counts: Tensor = holds(torch.int64, "product")
    sizes: Tensor = holds(torch.int64, "column")
    shares: Tensor = holds(torch.float64, "state")
    kinds: Tensor = holds(torch.int64, "column")
    coordinates: Tensor = holds(torch.int64, "column")
    codes: Tensor = holds(torch.int64, "number")
    n_records: Tensor = holds(torch.float64, 1)


@message(
    from_party=False,
    made_of=MadeOf.RECORDS,
    when=When.ONCE,
    contents="numbers of states and coordinates, and codes, of all parties' columns",
    tells="a function of the noisy histograms: how many records have each state, about",
)
class StateCodes(Message):
    """The codes that records are masked as, of all parties by name, column by column.

    `sizes` and `coordinates` have shape (column,); `codes` are those of all states of a column,
    one after the other.
    """

    sizes: Tensor = holds(torch.int64, "column")
    coordinates: Tensor = holds(torch.int64, "column")
    codes: Tensor = holds(torch.int64, "number")


@message(
    from_party=False,
    made_of=MadeOf.NETWORKS,
    when=When.ONCE,
    contents="weights of a mixture (K,), shares of the party's states in each of them (K, states)",
    tells="published; the privacy ledger counts it",
)
class Mixture(Message):
    """The mixture that was fitted to all noisy tables, as far as it is about one party's columns.

    `weights` have shape (component,), `shares` (component, state), column by column.
    """

    weights: Tensor = holds(torch.float32, "component")
    shares: Tensor = holds(torch.float32, "component", "state")
