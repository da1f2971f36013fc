r"""Sums over records of ``exp(i (a + b + ...))``, each angle being another party's.

Random Fourier features of joint records are such sums, one per frequency. By ``cos(a + b) = cos a
cos b - sin a sin b`` two parties need inner products of vectors (`vflsynth.secure.products`), and k
parties products of k factors, each of which needs another exchange. Here angles are added
before they meet a sine, so that any number of parties costs as much as two.

Angles are whole numbers modulo L = 2^16, in units of 2 π / L. G[j] is the Gaussian integer next to
``(F - sqrt(1/2)) exp(2 π i j / L)``, of modulus at most F. The parties share a secret that the
server lacks, and of a block of records:

1. Of the secret every party draws the masks m_i of all, uniform modulo L; m is their sum.
2. Party i, whose angles are a_i, sends ``a_i + m_i`` to the server. The server adds them up: s =
   a + m, where a is the joint angle.
3. The server looks up U = G[s], draws a seed for each party but one, the *opener*, and sends these
   their seeds and the opener ``U - sum of P_i``, where P_i is what a seed stands for, uniform
   modulo 2^32 or 2^64. So the parties have additive shares of U.
4. Every party multiplies its share of U by ``conj G[m]``, which all of them know, and adds over
   records.

After the last block party i sends its sum with a part of zero that is drawn of the secret, and with
its own noise N_i. These add up, to the bit, to ``sum over records of G[s] conj G[m] + sum of N_i``.

What is released: a record adds ``G[a + m] conj G[m]`` at each frequency, of modulus at most F²,
whatever the masks are; K frequencies together have an L2 norm of at most ``F² sqrt(K)``, rounding
included. Over the masks its mean is `unit` times ``exp(i a)``, to 1 / (6 F²): rounding is dithered.
Masks are independent of all records, so a mechanism whose noise hides that norm has the same ε for
whoever knows them.

Who sees what, if everybody follows the protocol and no party tells the server the secret:

- The server: all ``a_i + m_i``, uniform and independent of each other and of all records; shares,
  of which all but one are uniform and independent too, and the last is what the noisy sum leaves
  for it. Whoever has masked angles and noisy sum can therefore draw what the server saw.
- A party: a seed, or what is opened to it, uniform as long as one other party's seed is
  unknown. The opener changes from block to block, which divides the traffic evenly. Several parties
  together, all but one, see as little: they lack a seed or what was opened.
- Noise is added by every party in full: each can subtract its own, all but one together can
  subtract theirs, and what is left has the noise of one.

A single party, the holder of a joined table, is opened its own angles.

A server that does not follow the protocol can do more: were it to share the point of one record
enlarged and zeros for all others, that record would stand out of the noise. Products of matrices
(`vflsynth.secure.products`), in which parties take nothing from the server, do not have this.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vflsynth.exceptions import ProtocolError
from vflsynth.secure.ring import (
    Arithmetic,
    Elements,
    Masks,
    Ring,
    elements_of,
    record_blocks,
    tensor_of,
    to_ring,
)

RADIUS = 128
"""F, the largest modulus of a rounded point of the circle."""

_ANGLES = np.dtype(np.uint16)
_N_ANGLES = 1 << 16
_SEED_BYTES = 32
_ROWS = 1024  # rounded at a time


@cache
def circle() -> npt.NDArray[np.complex128]:
    """Return G, complex128 of shape (2^16,), with whole real and imaginary parts."""
    turns = np.arange(_N_ANGLES) / _N_ANGLES
    points = (RADIUS - math.sqrt(0.5)) * np.exp(2j * np.pi * turns)
    rounded: npt.NDArray[np.complex128] = np.round(points.real) + 1j * np.round(points.imag)
    return rounded


@cache
def unit() -> float:
    """Return what ``exp(i a)`` counts in a sum: the mean of ``G[a + m] conj G[m] exp(-i a)``."""
    turns = np.arange(_N_ANGLES) / _N_ANGLES
    return float(abs(np.mean(circle() * np.exp(-2j * np.pi * turns))) ** 2)


def angles_of(projections: Tensor) -> Elements:
    """Round angles in radians to whole ones.

    Raises
    ------
    ProtocolError
        If one is not finite, which would void the sensitivity.
    """
    if not bool(projections.isfinite().all()):
        raise ProtocolError("projections of records are not finite. Fix: the party's encoding")
    angles = np.empty(tuple(projections.shape), _ANGLES)
    for start in range(0, len(angles), _ROWS):
        rows = projections[start : start + _ROWS].detach().cpu().double()
        turned = (rows * (_N_ANGLES / (2.0 * math.pi))).round().numpy()
        angles[start : start + _ROWS] = turned.astype(np.int64)
    return angles


@dataclass(frozen=True, slots=True)
class Opening:
    """What the server sends a party of a block: a seed, or what the seeds leave.

    Parameters
    ----------
    seed : Tensor of uint8, shape (32,) or, at the opener, (0,)
    opened : Tensor, shape (2, record, frequency) or, elsewhere, (2, 0, frequency)
        Real and imaginary parts.
    """

    seed: Tensor
    opened: Tensor


class PhaseParty:
    """One party's side: its angles, block of records by block of records.

    Parameters
    ----------
    name : str
    angles : uint16 array, shape (record, frequency)
        From `angles_of`, rows as all parties have them.
    names : sequence of str
        All parties.
    secret : bytes
        What the parties share and the server lacks, new in every run.
    arithmetic : Arithmetic
        Units are those of products of two points of `circle`.
    n_dummies : int, default=0
        Records that are added at the end, as many at every party: their points are opened like
        all others, and no party adds them up.
    """

    def __init__(
        self,
        name: str,
        angles: Elements,
        names: Sequence[str],
        secret: bytes,
        arithmetic: Arithmetic,
        n_dummies: int = 0,
    ) -> None:
        self.name, self.arithmetic, self._n_real = name, arithmetic, len(angles)
        self.angles = np.pad(angles, ((0, n_dummies), (0, 0)))
        self._names = sorted(names)
        self._rank = self._names.index(name)
        self._masks = Masks(secret)
        self._blocks = record_blocks(len(self.angles), 2 * angles.shape[1])
        self._sums: Elements | None = np.zeros((2, angles.shape[1]), arithmetic.ring)
        self._sent = self._taken = 0
        self._table = _table(arithmetic.ring)

    def mask(self, block: int) -> Tensor:
        """Return the masked angles of the next block, int16 of shape (record, frequency).

        Raises
        ------
        ProtocolError
            If another block is due: a mask is used once.
        """
        if block != self._sent or self._sent != self._taken or block >= len(self._blocks):
            raise ProtocolError(
                f"party {self.name!r} was asked for block {block} of its angles; it has sent "
                f"{self._sent} of {len(self._blocks)}, and {self._taken} were answered"
            )
        own = self.angles[self._blocks[block]]
        masks, n = self._masks, len(self._names)
        mask = masks.zero_share(f"angles|{block}", n, self._rank, own.shape, _ANGLES)
        if self._rank == 0:
            mask = mask + self._joint_mask(block, own.shape)
        self._sent += 1
        return tensor_of(own + mask)

    def take(self, block: int, opening: Opening) -> None:
        """Add up a block's part of this party.

        Raises
        ------
        ProtocolError
            If it is not what the party must be sent.
        """
        if block != self._taken or self._sent != self._taken + 1:
            raise ProtocolError(f"party {self.name!r} got block {block}, which it did not send")
        shape, ring = self.angles[self._blocks[block]].shape, self.arithmetic.ring
        if block % len(self._names) == self._rank:
            what = f"the server opened block {block} to party {self.name!r}"
            share = elements_of(opening.opened, (2, *shape), what, ring)
        else:
            share = _expand(opening.seed, (2, *shape), ring, self.name)
        counted = max(0, self._n_real - self._blocks[block].start)
        mask, share = self._joint_mask(block, shape)[:counted], share[:, :counted]
        real, imaginary = (part[mask] for part in self._table)
        assert self._sums is not None, "no block comes after the shares"
        self._sums[0] += _added(share[0] * real + share[1] * imaginary)
        self._sums[1] += _added(share[1] * real - share[0] * imaginary)
        self._taken += 1

    def shares(self, noise: npt.NDArray[np.int64]) -> Tensor:
        """Return this party's part of the sums, real parts first, masked and with noise.

        Parameters
        ----------
        noise : int64 array, shape (2 * frequency,)
            The party's own, in full, in steps.

        Raises
        ------
        ProtocolError
            Before all blocks were answered, or for the second time.
        """
        if self._taken != len(self._blocks) or self._sums is None:
            raise ProtocolError(
                f"party {self.name!r} was asked for its shares before all records were answered, "
                "or twice"
            )
        sums, self._sums = self._sums.ravel(), None
        zero = self._masks.zero_share("sums", len(self._names), self._rank, sums.shape)
        return self.arithmetic.share(sums, zero, noise)

    def _joint_mask(self, block: int, shape: Sequence[int]) -> Elements:
        return self._masks.draw(f"joint angles|{block}", shape, _ANGLES)


class PhaseServer:
    """The server's side: it adds masked angles and shares what they stand for.

    Parameters
    ----------
    names : sequence of str
        All parties.
    n_records, n_frequencies : int
    arithmetic : Arithmetic
    """

    def __init__(
        self, names: Sequence[str], n_records: int, n_frequencies: int, arithmetic: Arithmetic
    ) -> None:
        self.names, self.n_frequencies = sorted(names), n_frequencies
        self.arithmetic = arithmetic
        self.blocks = record_blocks(n_records, 2 * n_frequencies)
        self._table = _table(arithmetic.ring)

    def open(self, block: int, masked: Mapping[str, Tensor]) -> dict[str, Opening]:
        """Share the points of a block's joint masked angles among the parties.

        Raises
        ------
        ProtocolError
            If a party sent what it must not, naming it.
        """
        shape = self.blocks[block].stop - self.blocks[block].start, self.n_frequencies
        joint: Elements = np.zeros(shape, _ANGLES)
        for name in self.names:
            joint = joint + elements_of(
                masked.get(name), shape, f"party {name!r} sent masked angles", _ANGLES
            )
        left = self._table[:, joint]
        opener = self.names[block % len(self.names)]
        openings = {}
        for name in self.names:
            if name != opener:
                seed = torch.frombuffer(bytearray(os.urandom(_SEED_BYTES)), dtype=torch.uint8)
                left -= _expand(seed, left.shape, self.arithmetic.ring, name)
                openings[name] = Opening(seed, tensor_of(left[:, :0]))
        openings[opener] = Opening(torch.zeros(0, dtype=torch.uint8), tensor_of(left))
        return openings

    def totals(self, shares: Mapping[str, Tensor]) -> npt.NDArray[np.int64]:
        """Return the noisy sums in steps, real parts first, shape (2 * frequency,).

        Raises
        ------
        ProtocolError
            If a party sent what it must not, naming it.
        """
        total = np.zeros(2 * self.n_frequencies, np.uint64)
        for name in self.names:
            total += elements_of(shares.get(name), total.shape, f"party {name!r} sent shares")
        return self.arithmetic.signed(total)


def _table(ring: Ring) -> Elements:
    """Return real and imaginary parts of all points, shape (2, 2^16)."""
    points = circle()
    return to_ring(np.stack([points.real, points.imag]), ring)


def _expand(seed: Tensor, shape: Sequence[int], ring: Ring, name: str) -> Elements:
    """Return what a party's seed stands for."""
    if seed.dtype != torch.uint8 or tuple(seed.shape) != (_SEED_BYTES,):
        raise ProtocolError(
            f"the server sent party {name!r} a seed that is {seed.dtype} of shape "
            f"{tuple(seed.shape)}; expected {_SEED_BYTES} bytes"
        )
    return Masks(seed.numpy().tobytes()).draw("points", shape, ring)


def _added(values: Elements) -> Elements:
    """Add over records, modulo the ring's size."""
    total: Elements = values.sum(0, dtype=values.dtype)
    return total
