"""Secure products of records' codes, as messages: what their parties and algorithms have in common.

`vflsynth.secure.products` says what is computed, and who sees what.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from vflsynth._random import Purpose, RandomStreams
from vflsynth.exceptions import ProtocolError
from vflsynth.learning.base import AtOnce, OneRound, Party
from vflsynth.learning.messages import MaskedStates, SumShares, TagsAgreed, VerifierSeeds
from vflsynth.privacy.releases import RESOLUTION, TAIL, Floats, Grid, Release
from vflsynth.protocol.channel import SERVER, Channel, answers, takes
from vflsynth.protocol.schedule import Schedule
from vflsynth.secure.membership import Challenge, Codebook, Pair, Proof
from vflsynth.secure.products import MaskedBlock, ProductParty, ProductServer, product_blocks
from vflsynth.secure.ring import Arithmetic

_FINEST = 20  # a unit has at most 2**20 steps, so that 64 bits hold more records than there are
_LARGEST = 36  # binary digits of the largest noise that can be drawn, in steps

ASKED = frozenset({MaskedStates, TagsAgreed, SumShares})
"""What `noisy_products` asks parties for."""


def unit_grid(noise_std: float) -> Grid:
    """Choose the grid of a sum of whole units, by the noise, in units, that each party adds.

    A unit is from 1 to 2^20 steps; less than one, and so nothing, beside noise above 2^36.
    """
    binary = math.frexp(noise_std)[1] - 1
    exponent = max(-_FINEST, binary - RESOLUTION)
    if binary < _LARGEST:
        exponent = min(0, exponent)
    return Grid.of(noise_std, binary - exponent)


@dataclass(frozen=True, slots=True)
class ProductTerms:
    """What all know of products across parties before codes are.

    `width` is the most states of a column, and most coordinates of a code; the grid is of every
    party's noise; blocks are of records, dummies included.
    """

    n_columns: Mapping[str, int]
    width: int
    grid: Grid
    arithmetic: Arithmetic
    blocks: Sequence[slice]

    @classmethod
    def of(
        cls, n_records: int, n_columns: Mapping[str, int], width: int, grid: Grid, largest: int
    ) -> ProductTerms:
        """Derive the rest of public numbers; `largest` is a record's largest product, in units."""
        arithmetic = Arithmetic.of(n_records * largest + 2 * TAIL * grid.noise_std, -grid.exponent)
        blocks = product_blocks(n_records, n_columns, width)
        return cls(n_columns, width, grid, arithmetic, blocks)


class ProductsParty(Party):
    """A party whose records' codes are multiplied by those of other parties."""

    _multiplied: ProductParty | None = None

    def share(
        self, terms: ProductTerms | None, secret: bytes, noise: torch.Generator | None = None
    ) -> None:
        """Prepare what the party contributes to; there may be no terms if it is the only party.

        The secret is the parties', new in every attempt; `noise` is for tests only, see
        `vflsynth.privacy.noise`.
        """
        self._terms, self._secret, self._noise = terms, secret, noise

    @property
    def terms(self) -> ProductTerms:
        """What all know of products across parties; ProtocolError if there are none."""
        if self._terms is None:
            raise ProtocolError(f"party {self.name!r} has nothing to multiply with other parties")
        return self._terms

    def multiply(self, states: npt.NDArray[np.int64], codebook: Codebook) -> None:
        """Prepare to mask the party's records, whose states are int64 (record, column)."""
        terms = self.terms
        self._multiplied = ProductParty(
            self.name, states, codebook, self._secret, terms.arithmetic, terms.blocks
        )

    @property
    def _products(self) -> ProductParty:
        if self._multiplied is None:
            raise ProtocolError(f"party {self.name!r} was not told yet what codes are")
        return self._multiplied

    @answers(MaskedStates)
    def masked_states(self, step: int) -> MaskedStates:
        """Mask a block of records."""
        sent = self._products.mask(step)
        return MaskedStates(self.name, SERVER, step, sent.numbers, *sent.proof)

    @takes(VerifierSeeds)
    def take_seeds(self, message: VerifierSeeds) -> None:
        """Agree with the tags that other parties sent of this party's records.

        Raises ProtocolError if the server got others, naming the party.
        """
        self._products.check(Challenge(message.seeds, message.seals, message.digests))

    @answers(TagsAgreed)
    def tags_agreed(self, step: int) -> TagsAgreed:
        """Say so; a party that does not agree has ended the run."""
        return TagsAgreed(self.name, SERVER, step)

    @answers(SumShares)
    def sum_shares(self, step: int) -> SumShares:
        """Send shares of all products with other parties' columns, all of them with noise."""
        noise = self.terms.grid.noise((self._products.n_shares,), rng=self._noise)
        return SumShares(self.name, SERVER, step, self._products.shares(noise))


class ProductsMethod(OneRound):
    """A method whose parties' records are multiplied, in one round."""

    @property
    @abstractmethod
    def terms(self) -> ProductTerms | None:
        """How products across parties are computed; None if there are none."""

    def n_blocks(self, settings: AtOnce) -> int:
        """Return how many blocks of records there are masked states of."""
        terms = self.terms
        return len(terms.blocks) if terms is not None and len(terms.n_columns) > 1 else 0

    def build(
        self, party: Any, settings: AtOnce, schedule: Schedule, streams: RandomStreams
    ) -> None:
        """Let a party prepare what it releases and masks."""
        party.share(self.terms, schedule.keys.key(Purpose.MASKS), self.noise)


def one_hot_codes(terms: ProductTerms) -> Codebook:
    """Return codes of as many states as there may be, whose products are tables of counts."""
    one_hot = np.eye(terms.width, dtype=np.int64)
    return Codebook({name: [one_hot] * n for name, n in terms.n_columns.items()})


def noisy_products(
    channel: Channel, codebook: Codebook, terms: ProductTerms
) -> dict[Pair, list[list[Floats]]]:
    """Have all pairs of parties' records multiplied, and return what is published.

    That is, by pair, noisy sums of products, (coordinate, coordinate), of every column of one with
    every column of the other. Raises ProtocolError if a party sent what it must not, naming it.
    """
    server = ProductServer(codebook, terms.arithmetic, terms.blocks)
    for block in range(len(terms.blocks)):
        sent = {
            name: MaskedBlock(m.numbers, Proof(m.places, m.openings, m.tags, m.seed, m.seal))
            for name, m in channel.gather(MaskedStates, block).items()
        }
        server.add(block, sent)
    told = server.verification.challenges().items()
    channel.scatter({name: VerifierSeeds(SERVER, name, 0, *own) for name, own in told})
    channel.gather(TagsAgreed, 0)
    server.verification.conclude()
    totals = server.totals({n: m.shares for n, m in channel.gather(SumShares, 0).items()})
    found = {}
    for (one, other), total in totals.items():
        values = Release(total, terms.grid).values
        found[one, other] = [
            [values[rows, columns] for columns in codebook.columns(other)]
            for rows in codebook.columns(one)
        ]
    return found
