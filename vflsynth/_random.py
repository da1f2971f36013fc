"""Randomness: named streams of draws without any state, and the keys of whatever hides something.

The draw number ``index`` of the stream ``name`` is a pure function of ``(secret, name, index)`` and
its shape. Nothing has to be saved to resume a run, two parties that share a secret draw the same
numbers without talking to each other, and a replica draws the same numbers whichever other replicas
it is trained with.

Draws are made on the host by numpy's counter-based Philox generator and moved to the device in
blocks, so that a CPU and a GPU run see the same numbers.

What is hidden twice by the same draw shows by its difference. So every mask, rotation, noise and
dummy is drawn of a key for one run, attempt, purpose and index (`KeySchedule`), and of a
cryptographic generator, AES-256 in counter mode, which tells nothing of its key whatever is seen of
it. In one process nothing crosses a boundary: there, a run without a guarantee draws also this of
its ``random_state``, and two runs are equal to the last bit. What a guarantee is about, such as
randomised labels, comes from the operating system everywhere.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR

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

_BLOCK_BYTES = 16
"""Of the cipher."""

_FloatArray: TypeAlias = npt.NDArray[np.float32]


def check_states(random_states: object) -> None:
    """Check that there is a list of states, one per model, or raise ParameterError."""
    if not hasattr(random_states, "__len__"):
        raise ParameterError(
            f"random_states must be a list of one state per model, got {random_states!r}"
        )
    if not len(random_states):
        raise ParameterError("random_states is empty; give one state per model")


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


class Purpose(StrEnum):
    """What is hidden, or by what."""

    MASKS = "masks"
    ROTATIONS = "rotations"
    SAMPLES = "samples of records"
    CONTEXT_NOISE = "noise of contexts"
    MATCHING = "matching"
    DUMMIES = "dummies"
    TAGS = "tags"
    GRADIENTS = "noise of gradients"


@dataclass(frozen=True, slots=True)
class KeySchedule:
    """Derives the keys of one attempt of one run.

    The secret is of all who draw alike, and of nobody from whom it hides. The attempt names what is
    new in it for each of them, such as everybody's nonce.
    """

    secret: bytes
    run: str
    attempt: str

    def key(self, purpose: Purpose, index: object = "") -> bytes:
        """Return the key of one draw, or of one owner's draws."""
        label = json.dumps([self.run, self.attempt, purpose.value, str(index)])
        return derive(self.secret, label)


def repeatable(secret: bytes) -> KeySchedule:
    """Return keys that are the same in every attempt, for runs in one process."""
    return KeySchedule(derive(secret, "hiding"), "", "")


def key_stream(key: bytes, n_bytes: int) -> bytes:
    """Return the first bytes of a key's stream."""
    return Cipher(AES256(key), CTR(bytes(_BLOCK_BYTES))).encryptor().update(bytes(n_bytes))


def hidden_words(key: bytes, n: int) -> npt.NDArray[np.uint64]:
    """Draw whole numbers below 2^64."""
    return np.frombuffer(key_stream(key, 8 * n), "<u8").astype(np.uint64, copy=False)


def hidden_uniform(key: bytes, shape: Sequence[int]) -> npt.NDArray[np.float64]:
    """Draw numbers between 0 and 1, which are neither."""
    words = hidden_words(key, math.prod(shape)) >> np.uint64(12)
    return (words.astype(np.float64) + 0.5).reshape(shape) * 2.0**-52


def hidden_normal(key: bytes, shape: Sequence[int]) -> npt.NDArray[np.float64]:
    """Draw standard normal numbers, by the inverse of their distribution function."""
    from scipy.special import ndtri  # half a second, which commands without numbers do not pay

    found = hidden_uniform(key, shape)
    ndtri(found, out=found)
    return found


def hidden_subset(key: bytes, n: int, size: int) -> npt.NDArray[np.int64]:
    """Draw `size` of ``range(n)`` without replacement, in an order that is drawn as well."""
    if 2 * size > n:
        return np.argsort(hidden_words(key, n), kind="stable")[:size]
    n_words = 4 * size
    while True:  # a word modulo n is uniform but for n / 2^64
        words = (hidden_words(key, n_words) % np.uint64(n)).astype(np.int64)
        first = np.sort(np.unique(words, return_index=True)[1])
        if len(first) >= size:
            return words[first[:size]]
        n_words *= 2


class HiddenStreams:
    """Named streams of draws that others cannot guess, for a stack of replicas, by key of each."""

    def __init__(self, secrets: Sequence[bytes]) -> None:
        self.secrets = tuple(secrets)

    def uniform(self, name: str, index: int, shape: Sequence[int]) -> list[npt.NDArray[np.float64]]:
        """Draw uniformly between 0 and 1, an array for each replica."""
        return [hidden_uniform(key, shape) for key in self._keys(name, index)]

    def normal(self, name: str, index: int, shape: Sequence[int]) -> list[npt.NDArray[np.float64]]:
        """Draw standard normal numbers, an array for each replica."""
        return [hidden_normal(key, shape) for key in self._keys(name, index)]

    def subset(self, name: str, index: int, n: int, size: int) -> list[npt.NDArray[np.int64]]:
        """Draw subsets of ``range(n)``, in an order that is drawn as well; one for each replica."""
        return [hidden_subset(key, n, size) for key in self._keys(name, index)]

    def _keys(self, name: str, index: int) -> list[bytes]:
        return [derive(secret, f"{name}|{index}") for secret in self.secrets]
