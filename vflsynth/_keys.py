"""Keys of whatever hides something: one for every run, attempt, purpose and index.

What is hidden twice by the same draw shows by its difference. So every mask, rotation, noise and
dummy is drawn of a key that names all four, here and nowhere else; and of a cryptographic
generator, AES-256 in counter mode, which tells nothing of its key whatever is seen of it. Weights,
batches and latents hide nothing and are `vflsynth._random`'s.

In one process nothing crosses a boundary: there, a run without a guarantee draws also this of its
``random_state``, and two runs are equal to the last bit. What a guarantee is about, such as
randomised labels, comes from the operating system everywhere.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from scipy.special import ndtri

from vflsynth._random import derive

_BLOCK_BYTES = 16


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
