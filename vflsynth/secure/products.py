"""Products of matrices whose records several parties hold, of which nobody sees anything else.

Party i holds a matrix X_i of whole numbers, one row per record: the codes of its columns' states,
one-hot ones, say, whose products with those of another party are all two-way tables of the two. The
parties share a secret that the server lacks, and compute modulo 2^32 or 2^64.

1. Of the secret every party draws all masks M_i, uniform and as large as X_i, and for each pair of
   parties a uniform R_ij.
2. Party i sends ``Y_i = X_i + M_i`` to the server, with a proof that these are codes, see
   `vflsynth.secure.membership`.
3. When all records were sent, and all proofs hold, the parties of each pair i < j send to the
   server, with their own noise N::

       C_i = -X_i^T M_j + R_ij + N_i
       C_j = -M_i^T (X_j + M_j) - R_ij + N_j

4. The server adds: ``Y_i^T Y_j + C_i + C_j = X_i^T X_j + N_i + N_j``, to the bit, since ``Y_i^T Y_j
   = X_i^T X_j + X_i^T M_j + M_i^T X_j + M_i^T M_j``.

This is additive sharing with correlated randomness in which the parties' common secret deals the
masks and the server multiplies. A dealer of Beaver's triples would have every masked matrix pass
through the server to the other party, and a share of the product of masks besides; here each goes
up once and no number that a record has a part in comes down.

Who sees what, if no party tells the server the secret:

- A party receives the others' codes, if they are not public anyway, and seeds and hashes of proofs.
- The server receives Y, C and proofs. M and R are uniform, independent, and unknown to it, so that
  all Y and, of each pair, C_i are uniform and independent of each other and of every record; C_j is
  what they and the noisy product leave for it. Whoever has the noisy product alone can therefore
  draw what the server saw: draw Y and C_i uniformly, and subtract.
- Without R, ``C_i`` would be noisy equations of X_i for a party that learns them; without M, Y_i
  is X_i.
- Noise is added by both parties of a pair in full. Either can subtract its own from what is
  published, and what is left has the other's.
- **That holds whatever the server does, and whatever other parties do.** A party sends every block
  once and its shares once. A server that multiplies anything else has masks that do not cancel. A
  party's numbers are codes of its columns, or the run ends, but with probability 2^-33; shares that
  are wrong are what it knows away from right ones.

Nothing is hidden from a party and the server together. Several parties together learn no more than
the published products, with the noise of one honest party.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from vflsynth._random import derive
from vflsynth.exceptions import ProtocolError
from vflsynth.secure.membership import Challenge, Codebook, Pair, Proof, Proofs, Verification
from vflsynth.secure.ring import (
    Arithmetic,
    Elements,
    Masks,
    column_products,
    elements_of,
    record_blocks,
    tensor_of,
    to_ring,
)


def product_blocks(n_records: int, n_columns: Mapping[str, int], n_states: int) -> list[slice]:
    """Divide records into the blocks that messages hold, by public numbers.

    `n_states` are the most states, and so coordinates, of a column.
    """
    total = sum(n_columns.values())
    tags = {name: 2 * (total - own) * (n_states + 1) for name, own in n_columns.items()}
    return record_blocks(n_records, max(own * n_states + tags[n] for n, own in n_columns.items()))


@dataclass(frozen=True, slots=True)
class MaskedBlock:
    """What a party sends of a block of records: Y, int (record, coordinate), with its proof."""

    numbers: Tensor
    proof: Proof


class ProductParty:
    """One party's side: its records' codes, block of records by block of records.

    States are int64 (record, column), rows as all parties have them. The parties share the secret,
    new in every run, which the server lacks. Units of the arithmetic are those of products; blocks
    are from `product_blocks`, of all records, dummies included.
    """

    def __init__(
        self,
        name: str,
        states: npt.NDArray[np.int64],
        codebook: Codebook,
        secret: bytes,
        arithmetic: Arithmetic,
        blocks: Sequence[slice],
    ) -> None:
        self.name, self.codebook, self.arithmetic = name, codebook, arithmetic
        self.pairs = [pair for pair in codebook.pairs if name in pair]
        n_dummies = blocks[-1].stop - len(states)
        # Dummies are zeros, which change no product.
        self.matrix = np.pad(codebook.encode(name, states), ((0, n_dummies), (0, 0)))
        sizes = [len(code) for code in codebook.codes[name]]
        padded = np.concatenate([states, np.full((n_dummies, len(sizes)), sizes, np.int64)])
        # Who is told other codes, numbers or blocks has masks that have nothing to do with these.
        own_secret = derive(secret, f"{codebook.digest}|{arithmetic}|{list(blocks)}")
        self._masks, self._blocks = Masks(own_secret), blocks
        self._proofs = Proofs(name, padded, codebook, own_secret, blocks, self._mask)
        self._n_sent, self._checked, self._shared = 0, False, False
        self._corrections = [
            np.zeros([codebook.widths[end] for end in pair], arithmetic.ring) for pair in self.pairs
        ]

    @property
    def n_shares(self) -> int:
        """Cells of the products that this party takes part in."""
        return sum(correction.size for correction in self._corrections)

    def mask(self, block: int) -> MaskedBlock:
        """Return Y of the next block, with its proof; refuse any other: a mask is used once."""
        if block != self._n_sent or block >= len(self._blocks):
            raise ProtocolError(
                f"party {self.name!r} was asked for block {block} of its records; it has sent "
                f"{self._n_sent} of {len(self._blocks)}"
            )
        self._n_sent += 1
        own = to_ring(self.matrix[self._blocks[block]], self.arithmetic.ring)
        masked = own + self._mask(self.name, block)
        for correction, (first, second) in zip(self._corrections, self.pairs, strict=True):
            if first == self.name:
                correction -= column_products(own, self._mask(second, block))
            else:
                correction -= column_products(self._mask(first, block), masked)
        return MaskedBlock(tensor_of(masked), self._proofs.prove(block))

    def check(self, challenge: Challenge) -> None:
        """Agree with the tags that other parties sent of this party's records.

        Raises ProtocolError if the server got others, naming the party; or before all blocks were
        sent.
        """
        self._check_sent()
        self._proofs.check(challenge)
        self._checked = True

    def shares(self, noise: npt.NDArray[np.int64]) -> Tensor:
        """Return C of all pairs that the party is one of, one after the other.

        The noise is the party's own, in full, for every cell, in steps. Raises ProtocolError before
        all blocks were sent and tags were agreed with, or for the second time.
        """
        self._check_sent()
        if not self._checked:
            raise ProtocolError(
                f"party {self.name!r} was asked for its shares before it was told of its verifiers"
            )
        self._shared = True
        corrections = [correction.ravel() for correction in self._corrections]
        zeros = [self._zero_share(pair, c.shape) for pair, c in zip(self.pairs, corrections)]
        return self.arithmetic.share(np.concatenate(corrections), np.concatenate(zeros), noise)

    def _check_sent(self) -> None:
        """Refuse to go on before all records were sent, or after the shares were."""
        if self._n_sent != len(self._blocks) or self._shared:
            raise ProtocolError(
                f"party {self.name!r} was asked to go on before it had sent all records, or twice"
            )

    def _mask(self, party: str, block: int) -> Elements:
        rows = self._blocks[block]
        shape = rows.stop - rows.start, self.codebook.widths[party]
        label = f"matrix|{self.codebook.ranks[party]}|{block}"
        return self._masks.draw(label, shape, self.arithmetic.ring)

    def _zero_share(self, pair: Pair, shape: tuple[int, ...]) -> Elements:
        """Return R of a pair, which the second party takes away again."""
        first, second = (self.codebook.ranks[party] for party in pair)
        drawn = self._masks.draw(f"products|{first}|{second}", shape)
        return drawn if pair[0] == self.name else -drawn


class ProductServer:
    """The server's side: it multiplies what is masked, and checks the proofs (`verification`)."""

    def __init__(self, codebook: Codebook, arithmetic: Arithmetic, blocks: Sequence[slice]) -> None:
        self.codebook, self.arithmetic, self.blocks = codebook, arithmetic, blocks
        self.verification = Verification(codebook)
        self._products = {
            pair: np.zeros([codebook.widths[end] for end in pair], arithmetic.ring)
            for pair in codebook.pairs
        }

    def add(self, block: int, sent: Mapping[str, MaskedBlock]) -> None:
        """Multiply all pairs of a block; ProtocolError names a party that sent what it must not."""
        rows, ring = self.blocks[block].stop - self.blocks[block].start, self.arithmetic.ring
        found = {
            name: elements_of(
                sent[name].numbers if name in sent else None,
                (rows, width),
                f"party {name!r} sent a masked matrix",
                ring,
            )
            for name, width in self.codebook.widths.items()
        }
        self.verification.add(found, {name: sent[name].proof for name in found})
        for (first, second), product in self._products.items():
            product += column_products(found[first], found[second])

    def totals(self, shares: Mapping[str, Tensor]) -> dict[Pair, npt.NDArray[np.int64]]:
        """Return the noisy product of every pair, in steps.

        Raises ProtocolError if a party sent what it must not, or its proof does not hold, naming
        it.
        """
        self.verification.conclude()
        totals = {pair: self.arithmetic.in_steps(p) for pair, p in self._products.items()}
        for name in self.codebook.codes:
            own = [pair for pair in totals if name in pair]
            sizes = [totals[pair].size for pair in own]
            found = elements_of(shares.get(name), (sum(sizes),), f"party {name!r} sent shares")
            for pair, part in zip(own, np.split(found, np.cumsum(sizes)[:-1]), strict=True):
                totals[pair] += part.reshape(totals[pair].shape)
        return {pair: self.arithmetic.signed(total) for pair, total in totals.items()}
