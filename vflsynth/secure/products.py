"""Products of matrices whose records several parties hold, of which nobody sees anything else.

Party i holds a matrix X_i of whole numbers, one row per record: one-hot codes of its columns, say,
whose products with those of another party are all two-way tables of the two. The parties share a
secret that the server lacks, and compute modulo 2^32 or 2^64.

1. Of the secret every party draws all masks M_i, uniform and as large as X_i, and for each pair of
   parties a uniform R_ij.
2. Party i sends ``Y_i = X_i + M_i`` to the server.
3. The parties of each pair i < j send to the server, with their own noise N::

       C_i = -X_i^T M_j + R_ij + N_i
       C_j = -M_i^T (X_j + M_j) - R_ij + N_j

4. The server adds: ``Y_i^T Y_j + C_i + C_j = X_i^T X_j + N_i + N_j``, to the bit, since ``Y_i^T Y_j
   = X_i^T X_j + X_i^T M_j + M_i^T X_j + M_i^T M_j``.

This is additive sharing with correlated randomness in which the parties' common secret deals the
masks and the server multiplies. A dealer of Beaver's triples would have every masked matrix pass
through the server to the other party, and a share of the product of masks besides; here each goes
up once and nothing comes down.

Who sees what, if everybody follows the protocol and no party tells the server the secret:

- A party receives nothing.
- The server receives Y and C. M and R are uniform, independent, and unknown to it, so that all Y
  and, of each pair, C_i are uniform and independent of each other and of every record; C_j is what
  they and the noisy product leave for it. Whoever has the noisy product alone can therefore draw
  what the server saw: draw Y and C_i uniformly, and subtract.
- Without R, ``C_i`` would be noisy equations of X_i for a party that learns them; without M, Y_i
  is X_i.
- Noise is added by both parties of a pair in full. Either can subtract its own from what is
  published, and what is left has the other's.

Nothing is hidden from a party and the server together. Several parties together learn no more than
the published products, with the noise of one honest party. A party's numbers are taken to be in
their range, which nobody can see: one that enlarges a record's reads it from the published product.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations

import numpy as np
import numpy.typing as npt
from torch import Tensor

from vflsynth.secure.once import Once
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

Pair = tuple[str, str]


def pairs_of(names: Iterable[str]) -> list[Pair]:
    """Return all pairs of parties, in the order in which shares hold them."""
    return list(combinations(sorted(names), 2))


class ProductParty:
    """One party's side: its matrix, block of records by block of records.

    Parameters
    ----------
    name : str
    matrix : int64 array, shape (record, column)
        The party's, rows as all parties have them.
    widths : mapping of party name to int
        Columns of all parties' matrices.
    secret : bytes
        What the parties share and the server lacks, new in every run.
    arithmetic : Arithmetic
        Units are those of the products.
    n_dummies : int, default=0
        Records of zeros that are added, as many at every party: they change no product.
    """

    def __init__(
        self,
        name: str,
        matrix: npt.NDArray[np.int64],
        widths: Mapping[str, int],
        secret: bytes,
        arithmetic: Arithmetic,
        n_dummies: int = 0,
    ) -> None:
        self.name, self.widths, self.arithmetic = name, dict(widths), arithmetic
        self.matrix = np.pad(matrix, ((0, n_dummies), (0, 0)))
        self.pairs = [pair for pair in pairs_of(widths) if name in pair]
        self._ranks = {party: rank for rank, party in enumerate(sorted(widths))}
        self._masks = Masks(secret)
        self._blocks = record_blocks(len(self.matrix), max(widths.values()))
        self._once = Once(name, len(self._blocks))
        self._corrections = [
            np.zeros((widths[first], widths[second]), arithmetic.ring)
            for first, second in self.pairs
        ]

    @property
    def n_shares(self) -> int:
        """Cells of the products that this party takes part in."""
        return sum(self.widths[first] * self.widths[second] for first, second in self.pairs)

    def mask(self, block: int) -> Tensor:
        """Return Y of the next block of records.

        Raises
        ------
        ProtocolError
            If another block is due: a mask is used once.
        """
        self._once.block(block)
        own = to_ring(self.matrix[self._blocks[block]], self.arithmetic.ring)
        masked = own + self._mask(self.name, block, len(own))
        for correction, (first, second) in zip(self._corrections, self.pairs, strict=True):
            if first == self.name:
                correction -= column_products(own, self._mask(second, block, len(own)))
            else:
                correction -= column_products(self._mask(first, block, len(own)), masked)
        return tensor_of(masked)

    def shares(self, noise: npt.NDArray[np.int64]) -> Tensor:
        """Return C of all pairs that the party is one of, one after the other.

        Parameters
        ----------
        noise : int64 array
            The party's own, in full, for every cell, in steps.

        Raises
        ------
        ProtocolError
            Before all blocks were sent, or for the second time.
        """
        self._once.shares()
        corrections = [correction.ravel() for correction in self._corrections]
        zeros = [self._zero_share(pair, c.shape) for pair, c in zip(self.pairs, corrections)]
        return self.arithmetic.share(np.concatenate(corrections), np.concatenate(zeros), noise)

    def _mask(self, party: str, block: int, n_rows: int) -> Elements:
        shape = n_rows, self.widths[party]
        return self._masks.draw(f"matrix|{self._ranks[party]}|{block}", shape, self.arithmetic.ring)

    def _zero_share(self, pair: Pair, shape: tuple[int, ...]) -> Elements:
        first, second = (self._ranks[party] for party in pair)
        part = pair.index(self.name)
        return self._masks.zero_share(f"products|{first}|{second}", 2, part, shape)


class ProductServer:
    """The server's side: it multiplies what is masked.

    Parameters
    ----------
    widths : mapping of party name to int
    n_records : int
    arithmetic : Arithmetic
    """

    def __init__(self, widths: Mapping[str, int], n_records: int, arithmetic: Arithmetic) -> None:
        self.widths, self.arithmetic = dict(widths), arithmetic
        self.blocks = record_blocks(n_records, max(widths.values()))
        self.pairs = pairs_of(widths)
        self._products = {
            (first, second): np.zeros((widths[first], widths[second]), arithmetic.ring)
            for first, second in self.pairs
        }

    def add(self, block: int, masked: Mapping[str, Tensor]) -> None:
        """Multiply all pairs of a block.

        Raises
        ------
        ProtocolError
            If a party sent what it must not, naming it.
        """
        rows, ring = self.blocks[block].stop - self.blocks[block].start, self.arithmetic.ring
        found = {
            name: elements_of(
                masked.get(name), (rows, width), f"party {name!r} sent a masked matrix", ring
            )
            for name, width in self.widths.items()
        }
        for (first, second), product in self._products.items():
            product += column_products(found[first], found[second])

    def totals(self, shares: Mapping[str, Tensor]) -> dict[Pair, npt.NDArray[np.int64]]:
        """Return the noisy product of every pair, in steps.

        Raises
        ------
        ProtocolError
            If a party sent what it must not, naming it.
        """
        totals = {pair: self.arithmetic.in_steps(p) for pair, p in self._products.items()}
        for name in self.widths:
            own = [pair for pair in totals if name in pair]
            sizes = [totals[pair].size for pair in own]
            found = elements_of(shares.get(name), (sum(sizes),), f"party {name!r} sent shares")
            for pair, part in zip(own, np.split(found, np.cumsum(sizes)[:-1]), strict=True):
                totals[pair] += part.reshape(totals[pair].shape)
        return {pair: self.arithmetic.signed(total) for pair, total in totals.items()}
