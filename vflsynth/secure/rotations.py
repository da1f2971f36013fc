r"""Sums over records of ``exp(i (a + b + ...))``, each angle being another party's.

Random Fourier features of joint records are such sums, one per frequency: the point that a party's
angle stands for is turned by the angles of all others. As in `vflsynth.secure.products` the parties
share a secret that the server lacks, deal all masks to themselves, and take nothing from anybody.

Angles are whole numbers modulo 2^16, in units of 2 π / 2^16, of which the first 8 bits are the
*turn*. Q of an angle or turn is, of the Gaussian integers of modulus at most F, the one that is
nearest to F times the point of the circle in the middle of the turn. There are k parties, numbered
anew in every block of records so that everybody has every number equally often. Of a block's
records, at every frequency:

A record counts at W of the K frequencies, which are those that follow one another from a first
one, its *window*: parties draw windows of the secret, one record's like and independent of
another's, and sort records by them. So the server sees how many records have each window, and
dummies too, but not which.

1. Of the secret the parties draw dithers d_1, ..., d_k that add up to zero modulo 2^16 and of which
   all but one are uniform and independent; and uniform masks R_1, ..., R_(k-1) modulo M = 2^24,
   2^32 or 2^64, in real and imaginary part.
2. Party 1, whose angle is a_1, sends ``Y_1 = Q[a_1 + d_1] + R_1``.
3. Every other party i sends the turn t_i of ``a_i + d_i``, and for i < k ``Y_i = R_i - R_(i-1)
   Q[t_i]``. Party k adds up ``-R_(k-1) Q[t_k]`` over records.
4. The server computes ``Z_1 = Y_1`` and ``Z_i = Z_(i-1) Q[t_i] + Y_i``, where Y_k = 0, and adds up
   Z_k over records. By induction ``Z_i = Q[a_1 + d_1] ... Q[a_i + d_i] + R_i``: what is turned on
   is always masked.

After the last block each party sends its sum with a part of zero that is drawn of the secret, and
with its own noise N_i. With the server's sum these add up, to the bit and modulo M, to ``sum over
records of Q[a_1 + d_1] ... Q[a_k + d_k] + N_1 + ... + N_k``.

What is released: a record adds a product of k numbers of modulus at most F at each frequency of
its window, of modulus at most ``F^k``, whatever the dithers are; W frequencies together have an L2
norm of at most ``F^k sqrt(W)``, rounding included. Over the dithers its mean is ``sum over m of
c_m^k exp(i m a)``, where a is the joint angle and c_m are Q's Fourier coefficients: `unit` =
``|c_1|^k`` times ``exp(i a)``, but for terms that are .0014 of it together and turn 7 times as fast
or more (others are below 2e-6 of it).

Dithers and windows are independent of all records, and one record more leaves those
of the others' as they were: what is released is a mixture, over all dithers and windows, of sums
that differ by this norm at most, and a mixture's ε is no larger than theirs. The sum over all
windows counts a record ``W / K`` times on average.

Who sees what, if no party tells the server the secret:

- A party receives nothing.
- The server receives t_2, ..., t_k, which are uniform and independent, for these k - 1 dithers are;
  Y_1, ..., Y_(k-1), which are so besides, whatever all angles and dithers are, for R_1, ...,
  R_(k-1) are, each in one of them for the first time; and sums, all but one of which are so for
  their parts of zero. The last sum is what the others leave of the noisy total. Whoever has the
  noisy total alone can therefore draw all that the server saw.
- **That holds whatever the server does.** What a party sends is a function of its records, of
  secret and noise. It sends every block once and its sum once, when it has sent all blocks; asked
  for anything else it ends the run. A server that leaves records out, repeats or enlarges them
  computes other numbers of those that it has, which are uniform: masks of what it left out do not
  cancel. It can publish a wrong total; it can learn no more than the true one.
- Noise is added by every party in full: each can subtract its own, all but one together can
  subtract theirs, and what is left has the noise of one. More they do not learn.

Nothing is hidden from a party and the server together. A party's numbers are taken to be in their
range, which nobody can see: one that enlarges a record's reads it from the published sum.

A party sends ``(k - 1) (1 + (bits of M) / 4) / k`` bytes of a record and frequency: 3.5 of two
parties. The holder of a joined table, a single party, adds up alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from torch import Tensor

from vflsynth.exceptions import ProtocolError
from vflsynth.secure.ring import (
    Arithmetic,
    Elements,
    Masks,
    Once,
    bytes_of,
    elements_from,
    elements_of,
    record_blocks,
    tensor_of,
    to_ring,
)

BITS = (24, 32, 64)
"""Of M: whichever is the smallest that holds the sums."""

_ANGLES, _TURNS = np.dtype(np.uint16), np.dtype(np.uint8)
_WINDOWS = np.dtype(np.uint32)
_TURN_BITS = 8
_N_ANGLES, _N_TURNS = 1 << 16, 1 << _TURN_BITS
_MANY = 5  # parties, of whom products would take 64 bits
_ROWS = 1024  # rounded at a time


def squared_radius(n_parties: int) -> int:
    """Return F², the largest squared modulus of a point.

    Of all numbers near these, those whose points lie nearest to the circle: 24 bits hold two
    parties' sums over 55,000 records, 32 bits those of 1,100,000 of three and of 60,000 of five.
    """
    return 149 if n_parties < _MANY else 65


def largest_product(n_parties: int) -> int:
    """Return F^k, rounded up: the most that a record adds to a sum at a frequency."""
    return math.isqrt(squared_radius(n_parties) ** _n_factors(n_parties) - 1) + 1


@cache
def points(n_parties: int) -> npt.NDArray[np.complex128]:
    """Return Q of every turn, complex128 of shape (2^8,), with whole real and imaginary parts."""
    largest = squared_radius(n_parties)
    axis = np.arange(-math.isqrt(largest), math.isqrt(largest) + 1)
    inside = axis[:, None] ** 2 + axis**2 <= largest
    grid = (axis[:, None] + 1j * axis)[inside]
    circle = math.sqrt(largest) * np.exp(2j * np.pi * (np.arange(_N_TURNS) + 0.5) / _N_TURNS)
    nearest: npt.NDArray[np.complex128] = grid[np.abs(circle[:, None] - grid).argmin(1)]
    return nearest


@cache
def unit(n_parties: int) -> float:
    """Return what ``exp(i a)`` counts in a sum."""
    angles = np.arange(_N_ANGLES)
    found = points(n_parties)[turns_of(angles.astype(_ANGLES))]
    first = np.mean(found * np.exp(-2j * np.pi * angles / _N_ANGLES))
    return float(abs(first) ** _n_factors(n_parties))


def _n_factors(n_parties: int) -> int:
    """Return how many points are multiplied: a single party has two, for the dithers' sake."""
    return max(2, n_parties)


def bytes_per_angle(n_parties: int, bits: int) -> float:
    """Return how many bytes a party sends of a record and frequency, on average."""
    return (n_parties - 1) * (1 + 2 * bits // 8) / n_parties


def angles_of(projections: Tensor) -> Elements:
    """Round angles in radians to whole ones.

    Raises ProtocolError if one is not finite, which would void the sensitivity.
    """
    if not bool(projections.isfinite().all()):
        raise ProtocolError("projections of records are not finite. Fix: the party's encoding")
    angles = np.empty(tuple(projections.shape), _ANGLES)
    for start in range(0, len(angles), _ROWS):
        rows = projections[start : start + _ROWS].detach().cpu().double()
        turned = (rows * (_N_ANGLES / (2.0 * math.pi))).round().numpy()
        angles[start : start + _ROWS] = turned.astype(np.int64)
    return angles


def turns_of(angles: Elements) -> Elements:
    """Return the turns of angles, uint8."""
    return (angles >> _ANGLES.type(_TURN_BITS)).astype(_TURNS)


@dataclass(frozen=True, slots=True)
class Turning:
    """What a party sends of a block: masked points, turns, or both.

    Points are Y, uint8 (2, record, frequency, bytes), real and imaginary parts, lowest bytes first;
    the last party has none. Turns are t, uint8 (record, frequency); the first party has none.
    Windows, int32 (record,), are first frequencies, rising, the same at all parties.
    """

    points: Tensor
    turns: Tensor
    windows: Tensor


class RotationParty:
    """One party's side: its angles, block of records by block of records.

    Angles, uint16 (record, frequency), are from `angles_of`, rows as all parties have them. The
    parties share the secret, new in every run, which the server lacks. The arithmetic is of `BITS`,
    with units of products of points. As many dummies are added at every party: the point of the
    first one is zero, and so is the product. `width` is W; by default, and of a single party, it is
    all frequencies.
    """

    def __init__(
        self,
        name: str,
        angles: Elements,
        names: Sequence[str],
        secret: bytes,
        arithmetic: Arithmetic,
        n_dummies: int = 0,
        width: int | None = None,
    ) -> None:
        self.name, self.arithmetic = name, arithmetic
        self._names = sorted(names)
        self._rank = self._names.index(name)
        n_records, n_frequencies = len(angles) + n_dummies, angles.shape[1]
        if width is None or len(self._names) == 1:
            width = n_frequencies
        # Masks of windows of another width, which only a server that deviates makes parties
        # disagree on, have nothing to do with these.
        self._masks, self._of = Masks(secret), f"{width} of {n_frequencies} frequencies"
        self._points = _table(len(names), arithmetic)
        self._sums = np.zeros((2, n_frequencies), arithmetic.ring)
        windows = self._drawn_windows(n_records, n_frequencies, width)
        order = np.argsort(windows, kind="stable")
        self._windows, self._is_real = windows[order], order < len(angles)
        self.angles = np.zeros((n_records, width), _ANGLES)
        for rows in record_blocks(len(angles), 2 * width):
            places = _places(windows[rows], width, n_frequencies)
            self.angles[rows] = np.take_along_axis(angles[rows], places, 1)
        if len(self._names) == 1:
            self._add_up()
        for rows in record_blocks(n_records, 2 * width):
            self.angles[rows] += self._dither(rows)
        self.angles = self.angles[order]
        self._blocks = blocks_of(len(self._names), n_records, width)
        self._once = Once(name, len(self._blocks))

    def mask(self, block: int) -> Turning:
        """Return what goes to the server of the next block, and no other: a mask is used once."""
        self._once.block(block)
        place, last = _place(self._rank, block, len(self._names)), len(self._names) - 1
        rows = self._blocks[block]
        turns, windows, real = turns_of(self.angles[rows]), self._windows[rows], self._is_real[rows]
        if place == 0:
            sent = self._mask(block, 0, turns.shape)
            sent[:, real] += self._points[:, turns[real]]
            return self._turning(sent, turns[:0], windows)
        before = _turned(self._mask(block, place - 1, turns.shape), turns, self._points)
        if place == last:
            _add(self._sums, -before, windows)
            return self._turning(before[:, :0], turns, windows)
        return self._turning(self._mask(block, place, turns.shape) - before, turns, windows)

    def shares(self, noise: npt.NDArray[np.int64]) -> Tensor:
        """Return this party's part of the sums, real parts first, masked and with noise.

        The noise, int64 (2 * frequency,), is the party's own, in full, in steps. Raises
        ProtocolError before all blocks were sent, or for the second time.
        """
        self._once.shares()
        sums, label, n_parties = self._sums.ravel(), f"{self._of}|sums", len(self._names)
        zero = self._masks.zero_share(label, n_parties, self._rank, sums.shape)
        return self.arithmetic.share(sums, zero, noise)

    def _turning(self, points: Elements, turns: Elements, windows: Elements) -> Turning:
        packed = bytes_of(points, self.arithmetic.bits)
        return Turning(packed, tensor_of(turns), tensor_of(windows))

    def _drawn_windows(self, n_records: int, n_frequencies: int, width: int) -> Elements:
        """Return the first frequency of every record's window, uniform to 2^-40."""
        if width == n_frequencies:
            return np.zeros(n_records, _WINDOWS)
        drawn = self._masks.draw(f"{self._of}|windows", (n_records,), np.dtype(np.uint64))
        return (drawn % np.uint64(n_frequencies)).astype(_WINDOWS)

    def _dither(self, rows: slice) -> Elements:
        """Return the party's dithers of records, which do not depend on the blocks they are in."""
        width, n_parties = self.angles.shape[1], len(self._names)
        shape, start = (rows.stop - rows.start, width), rows.start * width
        label = f"{self._of}|dithers"
        if n_parties == 1:
            return self._masks.draw(label, shape, _ANGLES, start)
        return self._masks.zero_share(label, n_parties, self._rank, shape, _ANGLES, start)

    def _mask(self, block: int, place: int, shape: Sequence[int]) -> Elements:
        label = f"{self._of}|points|{block}|{place}"
        return self._masks.draw(label, (2, *shape), self.arithmetic.ring).copy()

    def _add_up(self) -> None:
        """Add up a single party's points, which dithers turn back."""
        for rows in record_blocks(len(self.angles), 2 * self.angles.shape[1]):
            dither = self._dither(rows)
            kept = self._points[:, turns_of(self.angles[rows] + dither)]
            _add(self._sums, _turned(kept, turns_of(-dither), self._points), self._windows[rows])


class RotationServer:
    """The server's side: it turns what is masked.

    The arithmetic is of `BITS`; `width` is W, by default all frequencies.
    """

    def __init__(
        self,
        names: Sequence[str],
        n_records: int,
        n_frequencies: int,
        arithmetic: Arithmetic,
        width: int | None = None,
    ) -> None:
        self.names, self.n_frequencies = sorted(names), n_frequencies
        self.arithmetic, self.width = arithmetic, width or n_frequencies
        self.blocks = blocks_of(len(self.names), n_records, self.width)
        self._points = _table(len(self.names), arithmetic)
        self._sums = np.zeros((2, n_frequencies), arithmetic.ring)

    def add(self, block: int, sent: Mapping[str, Turning]) -> None:
        """Turn a block's points by all angles, and add them up.

        Raises ProtocolError if a party sent what it must not, naming it.
        """
        rows = self.blocks[block].stop - self.blocks[block].start
        shape, last = (rows, self.width), len(self.names) - 1
        order = sorted(self.names, key=lambda n: _place(self.names.index(n), block, last + 1))
        joint = np.zeros((2, *shape), self.arithmetic.ring)
        windows = np.zeros(rows, _WINDOWS)
        for place, name in enumerate(order):
            of_points = 2, 0 if place == last else rows, self.width
            of_turns = 0 if place == 0 else rows, self.width
            found, what = sent.get(name), f"party {name!r} sent"
            masked = elements_from(
                None if found is None else found.points,
                of_points,
                f"{what} masked points",
                self.arithmetic.bits,
            )
            turned = elements_of(
                None if found is None else found.turns, of_turns, f"{what} turns", _TURNS
            )
            given = elements_of(
                None if found is None else found.windows, (rows,), f"{what} windows", _WINDOWS
            )
            if (given >= self.n_frequencies).any() or (given[1:] < given[:-1]).any():
                raise ProtocolError(
                    f"{what} windows that are none; expected frequencies below "
                    f"{self.n_frequencies}, rising"
                )
            windows = given if place == 0 else windows
            if (given != windows).any():
                raise ProtocolError(
                    f"party {order[0]!r} and party {name!r} sent other windows of the same "
                    "records: one of the two deviates, and nobody can tell which. Fix: see that "
                    "both have the same secret and version of vflsynth"
                )
            if place:
                joint = _turned(joint, turned, self._points)
            if place != last:
                joint += masked
        _add(self._sums, joint, windows)

    def totals(self, shares: Mapping[str, Tensor]) -> npt.NDArray[np.int64]:
        """Return the noisy sums in steps, real parts first, shape (2 * frequency,).

        Raises ProtocolError if a party sent what it must not, naming it.
        """
        total = self.arithmetic.in_steps(self._sums).ravel()
        for name in self.names:
            total += elements_of(shares.get(name), total.shape, f"party {name!r} sent shares")
        return self.arithmetic.signed(total)


def blocks_of(n_parties: int, n_records: int, width: int) -> list[slice]:
    """Divide records into the blocks that messages hold, evenly among parties.

    Nobody sends a single party's.
    """
    if n_parties == 1:
        return []
    n_blocks = len(record_blocks(n_records, 2 * width))
    n_blocks += -n_blocks % n_parties
    bounds = [n_records * block // n_blocks for block in range(n_blocks + 1)]
    return [slice(*ends) for ends in pairwise(bounds)]


def _place(rank: int, block: int, n_parties: int) -> int:
    """Return a party's number in a block, from 0."""
    return (rank - block) % n_parties


def _table(n_parties: int, arithmetic: Arithmetic) -> Elements:
    """Return real and imaginary parts of all turns' points, shape (2, 2^8)."""
    found = points(n_parties)
    return to_ring(np.stack([found.real, found.imag]), arithmetic.ring)


def _turned(values: Elements, turns: Elements, table: Elements) -> Elements:
    """Multiply by the points of turns, both (2, record, frequency)."""
    real, imaginary = table[:, turns]
    product: Elements = np.empty_like(values)
    product[0] = values[0] * real - values[1] * imaginary
    product[1] = values[0] * imaginary + values[1] * real
    return product


def _places(windows: Elements, width: int, n_frequencies: int) -> npt.NDArray[np.int64]:
    """Return the frequencies of windows, one more axis of as many as their width."""
    return (windows.astype(np.int64)[..., None] + np.arange(width)) % n_frequencies


def _add(sums: Elements, values: Elements, windows: Elements) -> None:
    """Add records' values (2, record, W) to sums (2, K), where their windows are."""
    firsts, starts = np.unique(windows, return_index=True)
    ends = pairwise([*starts, len(windows)])
    for window, (start, end) in zip(firsts, ends, strict=True):
        part = values[:, start:end].sum(1, dtype=values.dtype)
        sums[:, _places(window, values.shape[2], sums.shape[1])] += part
