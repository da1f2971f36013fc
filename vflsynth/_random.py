"""Randomness: named streams of draws, one independent sequence per replica, without any state.

The draw number ``index`` of the stream ``name`` is a pure function of ``(secret, name, index)`` and
its shape. Nothing has to be saved to resume a run, two parties that share a secret draw the same
numbers without talking to each other, and a replica draws the same numbers whichever other replicas
it is trained with.

Draws are made on the host by numpy's counter-based Philox generator and moved to the device in
blocks, so that a CPU and a GPU run see the same numbers.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from vflsynth.exceptions import ParameterError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

RandomState: TypeAlias = int | np.random.Generator | np.random.RandomState | None

# Floats drawn at once per stream and replica. It decides which block a draw comes from, hence its
# value: changing it changes the results of every seed.
_BLOCK_SIZE = 1 << 14

_LATIN_POINTS, _LATIN_SLICE = 1 << 13, 1 << 7
"""Points of a Latin hypercube, and how many of them in a row are one themselves."""

_FloatArray: TypeAlias = npt.NDArray[np.float32]


def secret_from(random_state: RandomState) -> bytes:
    """Turn scikit-learn's ``random_state`` into a 32-byte secret.

    An integer always gives the same secret; a generator is advanced; None takes fresh entropy from
    the operating system. Raises ParameterError for anything else.
    """
    if random_state is None:
        return os.urandom(32)
    if isinstance(random_state, (np.random.Generator, np.random.RandomState)):
        return random_state.bytes(32)
    if isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool):
        return hashlib.sha256(b"vflsynth random_state %d" % int(random_state)).digest()
    raise ParameterError(
        "random_state must be an int, a numpy Generator or RandomState, or None, got "
        f"{random_state!r}"
    )


def derive(secret: bytes, label: str) -> bytes:
    """Derive an independent secret; whoever knows only the result learns nothing about `secret`."""
    return hmac.new(secret, label.encode(), hashlib.sha256).digest()


class RandomStreams:
    """Named streams of random draws, used on a device, for replicas with a secret each."""

    def __init__(self, secrets: Sequence[bytes], device: torch.device | str = "cpu") -> None:
        import torch

        self.secrets = tuple(secrets)
        self.device = torch.device(device)
        self._blocks: dict[str, tuple[int, Tensor]] = {}
        self._permutations: dict[tuple[str, int, int], Tensor] = {}

    def child(self, label: str) -> RandomStreams:
        """Streams that are independent of these ones, for another owner or purpose."""
        return RandomStreams([derive(secret, label) for secret in self.secrets], self.device)

    def numpy_generators(self, name: str, index: int = 0) -> list[np.random.Generator]:
        """One numpy generator per replica, at the start of draw `index` of stream `name`."""
        label = f"{name}|{index}"
        return [
            np.random.Generator(
                np.random.Philox(key=int.from_bytes(derive(secret, label)[:16], "little"))
            )
            for secret in self.secrets
        ]

    def normal(self, name: str, index: int, shape: tuple[int, ...]) -> Tensor:
        """Draw from the standard normal distribution, shape (replica, *shape)."""
        return self._draw(
            name, index, shape, lambda rng, size: rng.standard_normal(size, np.float32)
        )

    def uniform(self, name: str, index: int, shape: tuple[int, ...]) -> Tensor:
        """Draw uniformly from [0, 1), shape (replica, *shape)."""
        return self._draw(name, index, shape, lambda rng, size: rng.random(size, np.float32))

    def gumbel(self, name: str, index: int, shape: tuple[int, ...]) -> Tensor:
        """Draw from the standard Gumbel distribution, shape (replica, *shape)."""
        return self._draw(name, index, shape, _gumbel)

    def latin_hypercube(self, name: str, index: int, n: int, n_dimensions: int) -> Tensor:
        """Draw n points, at most 8,192, of which every dimension is filled evenly.

        The result, float64 (replica, n, dimension) in [0, 1), is a sliced Latin hypercube design
        (Qian 2012). Each 128 points in a row have one in each 128th of every dimension, all of them
        one in each 8,192nd, where they are uniform. Dimensions are independent of each other. Fewer
        points are its first ones.
        """
        assert n <= _LATIN_POINTS, "a block of rows has as many points at most"
        slices = _LATIN_POINTS // _LATIN_SLICE
        drawn = []
        for rng in self.numpy_generators(name, index):
            shape = (n_dimensions, slices, _LATIN_SLICE)
            coarse = rng.permuted(np.broadcast_to(np.arange(_LATIN_SLICE), shape), axis=2)
            fine = rng.permuted(np.broadcast_to(np.arange(slices)[:, None], shape), axis=1)
            fine = np.take_along_axis(fine, coarse, axis=2)
            cells = (coarse * slices + fine).reshape(n_dimensions, _LATIN_POINTS).T
            drawn.append(((cells + rng.random(cells.shape)) / _LATIN_POINTS)[:n])
        return self._moved(np.stack(drawn))

    def permutation(self, name: str, index: int, n: int) -> Tensor:
        """Draw permutations of ``range(n)``, int64, shape (replica, n)."""
        key = (name, index, n)
        if key not in self._permutations:
            drawn = np.stack([rng.permutation(n) for rng in self.numpy_generators(name, index)])
            if len(self._permutations) >= 2:  # a batch spans at most two consecutive ones
                self._permutations.pop(next(iter(self._permutations)))
            self._permutations[key] = self._moved(drawn)
        return self._permutations[key]

    def _draw(
        self,
        name: str,
        index: int,
        shape: tuple[int, ...],
        draw: Callable[[np.random.Generator, tuple[int, ...]], _FloatArray],
    ) -> Tensor:
        per_block = max(1, _BLOCK_SIZE // max(1, math.prod(shape)))
        block, position = divmod(index, per_block)
        cached = self._blocks.get(name)
        if cached is None or cached[0] != block or cached[1].shape[2:] != shape:
            drawn = np.stack(
                [draw(rng, (per_block, *shape)) for rng in self.numpy_generators(name, block)], 1
            )
            cached = (block, self._moved(drawn))
            self._blocks[name] = cached
        return cached[1][position]

    def _moved(self, drawn: npt.NDArray[np.generic]) -> Tensor:
        """Put what was drawn on the host where it is used."""
        import torch

        return torch.tensor(drawn).to(self.device)


def _gumbel(rng: np.random.Generator, size: tuple[int, ...]) -> _FloatArray:
    exponential = rng.standard_exponential(size, np.float32)
    np.maximum(exponential, np.finfo(np.float32).tiny, out=exponential)
    return -np.log(exponential, out=exponential)
