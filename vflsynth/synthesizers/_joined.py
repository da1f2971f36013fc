"""One table out of all parties' matched rows, and back: for synthesizers that join."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

import pandas as pd
from torch import Tensor

from vflsynth.columns import TableTransformer
from vflsynth.parties import GANParty, MeanEmbeddingParty, Party
from vflsynth.parties.private_party import PrivateParty
from vflsynth.privacy.discovery import ColumnCounts, sum_columns
from vflsynth.protocol import AlignmentNotice
from vflsynth.protocol.channel import Verb
from vflsynth.protocol.messages import SERVER

JOINED = "joined"
"""Name of the one party that holds everything, as in `history_` and in ledgers."""

_Joined = TypeVar("_Joined", bound=GANParty, covariant=True)


class MakesParty(Protocol[_Joined]):
    """What makes the holder of the joined table."""

    def __call__(
        self, name: str, frame: pd.DataFrame, on: None, transformer: TableTransformer, /
    ) -> _Joined:
        """Make a party."""


def join(
    parties: Sequence[Party], make: MakesParty[_Joined], transformer: TableTransformer
) -> _Joined:
    """Make the holder of all parties' matched rows, side by side; nothing is encoded yet.

    Parameters
    ----------
    parties : sequence of Party
        Matched.
    make : callable
        Makes the holder from name, table, key column and transformer.
    transformer : TableTransformer
    """
    ordered = sorted(parties, key=lambda party: party.name)  # as all other GANs
    table = pd.concat([party.matched().reset_index(drop=True) for party in ordered], axis=1)
    joined = make(JOINED, table, None, transformer)
    joined.take(Verb.ALIGN, AlignmentNotice(SERVER, JOINED, 0, table.index))
    return joined


def columns_of_joined(columns: Mapping[str, ColumnCounts]) -> dict[str, ColumnCounts]:
    """All columns as those of the holder of the joined table."""
    return {JOINED: sum_columns(columns)}


def hand_back_encoding(parties: Sequence[Party], joined: PrivateParty | MeanEmbeddingParty) -> None:
    """Give every party its columns' part of the encoding that the holder published."""
    for party in parties:
        matched = party.matched()
        own = {label: joined.histograms[label] for label in matched.columns}
        party.transformer = TableTransformer.from_histograms(matched, own, party=party.name)


def weights_of(party: Party, joined: GANParty) -> dict[str, Tensor]:
    """Take from the one generator what makes the party's columns."""
    labels = list(joined.transformer.transformers_)
    widths = [joined.transformer.transformers_[label].width_ for label in labels]
    start = sum(widths[: labels.index(next(iter(party.transformer.transformers_)))])
    weights = dict(joined.selected)
    for name in ("output.weight", "output.bias"):
        weights[name] = weights[name][..., start : start + party.transformer.width_]
    return weights
