"""What parties and the server tell each other of tables of pairs of columns; codes are checked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from vflsynth.exceptions import ProtocolError
from vflsynth.learning.messages import PublishedTables
from vflsynth.methods.pairwise.column_codes import CODE_NORM
from vflsynth.protocol.channel import SERVER, MadeOf, Message, holds, message
from vflsynth.secure.membership import Code


@message(
    from_party=True,
    made_of=MadeOf.RECORDS,
    slow=True,
    contents="sums of products of codes of all pairs of the party's columns, with discrete "
    "Gaussian noise, in whole steps; kinds and numbers of states (columns,), their shares, codes "
    "and the number of records by the published histograms",
    tells="published; the privacy ledger counts it",
)
class ColumnTables(PublishedTables):
    """Published sums of products of a party's own columns, one pair after the other.

    `shares` are those of all states, column by column; `kinds` say whether states are ordered.
    Codes follow from both (`pairwise.column_codes`): `coordinates` are how many numbers one has,
    and `codes` are those of all states, column by column. `n_records` is what the party's
    histograms say.
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
    contents="weights of a mixture (K,), shares of the party's states in each of them (K, states)",
    tells="published; the privacy ledger counts it",
)
class Mixture(Message):
    """The mixture that was fitted to all noisy tables, as far as it is about one party's columns.

    `weights` have shape (component,), `shares` (component, state), column by column.
    """

    weights: Tensor = holds(torch.float32, "component")
    shares: Tensor = holds(torch.float32, "component", "state")


def codes_of(message: ColumnTables | StateCodes, sizes: Sequence[int], width: int) -> list[Code]:
    """Return the codes of columns' states, which nobody may have made longer than they may be.

    Columns have `sizes` states, and codes at most `width` coordinates; ProtocolError, naming the
    sender, if they are others than there can be.
    """
    coordinates: list[int] = message.coordinates.tolist()
    whose = "the server" if message.sender == SERVER else f"party {message.sender!r}"
    what = f"{whose} sent codes of columns"
    numbers = [size * own for size, own in zip(sizes, coordinates, strict=False)]
    right = len(coordinates) == len(sizes) and all(0 < own <= width for own in coordinates)
    if not right or len(message.codes) != sum(numbers):
        raise ProtocolError(
            f"{what} with {coordinates} coordinates, {len(message.codes)} numbers; expected those "
            f"of {len(sizes)} columns, each from 1 to {width}, for {list(sizes)} states"
        )
    found = message.codes.cpu().numpy()
    if not ((found >= -CODE_NORM) & (found <= CODE_NORM)).all():
        raise ProtocolError(f"{what} from {found.min()} to {found.max()}; they have {CODE_NORM}")
    parts = np.split(found, np.cumsum(numbers))[:-1]
    codes = [own.reshape(n, -1) for own, n in zip(parts, sizes, strict=True)]
    longest = max((int((code**2).sum(1).max()) for code in codes), default=0)
    if longest > CODE_NORM**2:
        raise ProtocolError(
            f"{what} of squared norm {longest}; expected at most {CODE_NORM}², which the noise is "
            "for"
        )
    return codes
