"""Sizes of a split autoregressive model, and who sends contexts to whom: all nodes agree on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vflsynth._random import RandomStreams
from vflsynth.methods.autoregressive.contexts import Sender, bits_of_channel, noise_for_bits

FEATURE_BLOCK = 1 << 15
"""Records whose features one message holds: 64 MiB of 512 features."""


@dataclass(frozen=True, slots=True)
class AutoregressiveSettings:
    """Sizes and rates, resolved; `AutoregressiveSynthesizer` documents them.

    `order` are the parties in the order in which their columns are drawn, without those that have
    none to draw; `hidden_of_many` counts for a column of a party with so many that each sees only
    some (`layout.MOST_SEEING_ALL`); `n_featured` are the records of which parties send features.
    `bits_per_record` is None where nothing bounds it.
    """

    protocol: Literal["bounded", "trained", "one_message"]
    order: tuple[str, ...]
    batch_size: int
    hidden: int
    dropout: float
    learning_rate: float
    weight_average: float
    patience: int
    n_held_out: int
    n_featured: int
    n_features: int
    context_dim: int
    sender_hidden: int
    bits_per_record: float | None
    unmatched: Literal["train", "ignore"]
    hidden_of_many: int = 48

    @property
    def noise_std(self) -> float:
        """Of the contexts' noise; 0 where nothing is bounded."""
        if self.bits_per_record is None:
            return 0.0
        return noise_for_bits(self.context_dim, self.bits_per_record)

    @property
    def bound(self) -> float:
        """Bits per record of a noisy context, from the noise that is added."""
        return bits_of_channel(self.context_dim, self.noise_std)

    @property
    def n_blocks(self) -> int:
        """Messages of features that a party sends."""
        return -(-self.n_featured // FEATURE_BLOCK)

    def block(self, number: int) -> slice:
        """Return the places of a block's records among those that features are sent of."""
        start = number * FEATURE_BLOCK
        return slice(start, min(start + FEATURE_BLOCK, self.n_featured))

    def senders(self, party: str) -> tuple[str, ...]:
        """Return the parties before one, whose contexts it gets."""
        return self.order[: self.order.index(party)] if party in self.order else ()

    def receivers(self, party: str) -> tuple[str, ...]:
        """Return the parties after one, which get contexts of it."""
        return self.order[self.order.index(party) + 1 :] if party in self.order else ()

    def sender(self, party: str, streams: RandomStreams, name: str) -> Sender:
        """Make what a party's features contribute to the contexts of those after it."""
        n_receivers, hidden = len(self.receivers(party)), self.sender_hidden
        return Sender(self.n_features, n_receivers, hidden, self.context_dim, streams, name)

    def width_for(self, party: str) -> int:
        """Return the length of a party's context."""
        senders = len(self.senders(party))
        if self.protocol == "one_message":
            return senders * self.n_features
        return self.context_dim if senders else 0
