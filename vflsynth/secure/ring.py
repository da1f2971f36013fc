"""Whole numbers modulo powers of two, and pseudorandom ones that hide others.

A number plus an independent uniform one, modulo the same power of two, is uniform whatever the
number is: the one-time pad, which all of `vflsynth.secure` rests on. Here the uniform numbers are
the key stream of AES-256 in counter mode, which nobody without the key can tell from uniform ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vflsynth._random import derive, key_stream
from vflsynth.exceptions import ParameterError, ProtocolError

Elements: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
"""Numbers of one ring; numpy adds and multiplies them modulo its size."""

Ring: TypeAlias = "np.dtype[np.unsignedinteger[Any]]"

_NARROW: Ring = np.dtype(np.uint32)
_WIDE: Ring = np.dtype(np.uint64)

BLOCK_ELEMENTS = 1 << 20
"""Numbers of a record block in one message, 4 MiB of four bytes each."""

_LIMB = 16  # bits; products of two limbs, added 2^21 times, are exact in float64
_LIMB_ROWS = 1 << 21
_TYPES = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Masks:
    """Uniform ring elements that only those who have a secret of 32 bytes can compute.

    A label must stand for one thing only under one secret: two messages under the same mask differ
    by what is to be hidden.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def draw(self, label: str, shape: Sequence[int], ring: Ring = _WIDE) -> Elements:
        """Return uniform elements of a label."""
        kept = key_stream(derive(self._secret, label), math.prod(shape) * ring.itemsize)
        drawn: Elements = np.frombuffer(kept, ring.newbyteorder("<"))
        return drawn.astype(ring, copy=False).reshape(shape)


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """What sums are computed in: a ring for what is masked, and the steps that noise is drawn in.

    Sums are of whole units, and noise of whole steps, 2^shift of which are a unit; `shift` is below
    0 where a unit is less than a step: then sums are of noise alone. What is masked is counted
    modulo 2^bits, 64 at most. Numbers that are equal modulo 2^b are equal modulo 2^(b + shift) when
    both are multiplied by 2^shift: so masked records travel in few bits, and only sums in many.
    """

    bits: int
    shift: int

    @classmethod
    def of(cls, largest: float, shift: int) -> Arithmetic:
        """Choose 32 bits, or 64 if sums could be mistaken in these.

        `largest` is the size of the largest sum, noise included, in units. Raises ParameterError if
        64 are not enough.
        """
        for bits in (32, 64):
            found = cls(bits, shift)
            if math.ldexp(largest, shift) < 2.0 ** (found.n_bits - 1):
                return found
        raise ParameterError(
            f"sums of up to {largest:.3g} units of 2^{shift} steps do not fit into 64 bits: use "
            "fewer records, or a larger epsilon"
        )

    @property
    def ring(self) -> Ring:
        """What is masked is computed in, of 2^bits elements."""
        return _NARROW if self.bits == 8 * _NARROW.itemsize else _WIDE

    @property
    def n_bits(self) -> int:
        """Bits of a sum in steps."""
        return min(64, self.bits + max(0, self.shift))

    def in_steps(self, units: Elements) -> Elements:
        """Turn a sum in units, or a share of one, into one in steps, uint64."""
        if self.shift < 0:
            return np.zeros(units.shape, np.uint64)
        return units.astype(np.uint64) << np.uint64(self.shift)

    def share(self, units: Elements, zero: Elements, noise: npt.NDArray[np.int64]) -> Tensor:
        """Return a party's share of sums in steps, with its noise, for a message.

        `units` are its share of the sums in units, `zero`, uint64, its part of zero, and noise is
        in steps. Bits beyond `n_bits` are dropped: those of the sum of all shares would tell how
        often shares in units went around their ring, which depends on masks that the server does
        not know.
        """
        wide = self.in_steps(units.ravel()) + zero.ravel() + to_ring(noise.ravel())
        return tensor_of(wide & np.uint64((1 << self.n_bits) - 1))

    def signed(self, steps: Elements) -> npt.NDArray[np.int64]:
        """Return the sums, of either sign, that shares in steps add up to."""
        spare = 64 - self.n_bits
        return (steps << np.uint64(spare)).astype(np.int64) >> np.int64(spare)


def to_ring(values: npt.NDArray[Any], ring: Ring = _WIDE) -> Elements:
    """Take whole numbers of either sign modulo the ring's size."""
    return values.astype(np.int64).astype(ring)


def column_products(one: Elements, other: Elements) -> Elements:
    """Multiply the transpose of a matrix by another one, modulo the ring's size.

    Shapes (record, a) and (record, b) make (a, b). By matrix products of 16-bit limbs in float64,
    where no number exceeds 2^53: exact, and as fast as linear algebra is. Numpy multiplies matrices
    of whole numbers one element after the other.
    """
    ring = one.dtype
    total = np.zeros((one.shape[1], other.shape[1]), np.uint64)
    n_limbs = 8 * ring.itemsize // _LIMB
    for start in range(0, len(one), _LIMB_ROWS):
        rows = slice(start, start + _LIMB_ROWS)
        left, right = _limbs(one[rows], n_limbs), _limbs(other[rows], n_limbs)
        for i in range(n_limbs):
            for j in range(n_limbs - i):
                part = (left[i].T @ right[j]).astype(np.uint64)
                total += part << np.uint64(_LIMB * (i + j))
    return total.astype(ring)


def _limbs(elements: Elements, n_limbs: int) -> list[npt.NDArray[np.float64]]:
    parts = np.ascontiguousarray(elements).astype("<u8").view("<u2")
    parts = parts.reshape(*elements.shape, 4)
    return [parts[..., limb].astype(np.float64) for limb in range(n_limbs)]


def record_blocks(n_records: int, width: int) -> list[slice]:
    """Divide records of `width` ring elements into the blocks that messages hold."""
    rows = max(1, BLOCK_ELEMENTS // max(1, width))
    return [
        slice(start, min(start + rows, n_records)) for start in range(0, max(1, n_records), rows)
    ]


def tensor_of(elements: Elements) -> Tensor:
    """Return ring elements for a message: as signed numbers of the same bits, but for bytes."""
    kind = elements.dtype if elements.itemsize == 1 else f"i{elements.itemsize}"
    return torch.from_numpy(np.ascontiguousarray(elements).view(kind))  # noqa: TID251 - integers


def elements_of(
    tensor: Tensor | None, shape: Sequence[int], what: str, ring: Ring = _WIDE
) -> Elements:
    """Return the ring elements of a message, which may come from anybody.

    `what` says for the error whose numbers they are, and which. Raises ProtocolError if there are
    other numbers than there must be, or more, or fewer.
    """
    expected = _TYPES[ring.itemsize]
    if tensor is None or tensor.dtype != expected or tuple(tensor.shape) != tuple(shape):
        sent = "nothing" if tensor is None else f"{tensor.dtype} of shape {tuple(tensor.shape)}"
        raise ProtocolError(f"{what}: {sent}; expected {expected} of shape {tuple(shape)}")
    found: Elements = tensor.cpu().contiguous().numpy().view(ring)
    return found
