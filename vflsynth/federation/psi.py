"""Private set intersection of record keys, for any number of parties.

Every party turns its keys into keyed digests under the parties' secret, so that nobody without it
can test guesses, and blinds them with a secret of its own, in random order: a digest becomes a
point of Curve25519, which is multiplied by the secret (X25519). The lists go round until every list
has been blinded by every party. Multiplication commutes, so equal keys have then become equal
points, which the server finds without having any of the secrets, and each party is told which of
its own keys they are. With more than two parties every key is two points, which only its owners
can tell to be of one key: whoever leaves keys out must leave out both points of each (`n_copies`).

Lists travel in parts (`Parts`), each an exchange with a deadline of its own. How many there are
follows from the numbers of rows, which all have been told, and tells nothing more. A party blinds
others' keys when all of its own have left: none is chosen by what others turned out to have.

What is learned, if nobody colludes (`vflsynth.federation.matching` has what is done about those who
deviate):

- a party: the keys that all parties have, which *is* a disclosure (that this person is known to
  every other party), and how many keys every other party has; nothing about other keys;
- the server: how many keys each party has, and how many each group of parties has in common; with
  dummies (`Dummies`) the latter plus random numbers.

In split learning the active party is the server, has the parties' secret, and keys of its own in
the comparison: with several passive parties it also learns which of its own keys each of them has.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from joblib import cpu_count
from torch import Tensor

from vflsynth._random import derive
from vflsynth.exceptions import (
    MisalignedError,
    MissingExtraError,
    ParameterError,
    PayloadRejectedError,
    ProtocolError,
)
from vflsynth.privacy.padding import Padding

POINT = 32
"""Bytes of a point, which is its u-coordinate, and of a digest."""

_HEADER = 1 << 12
"""Bytes of a frame around a list of keys, at most."""

_PART = 1 << 16
"""Points of a part: seconds of one core, 2 MiB."""

_CHUNK = 4096
"""Points that a thread blinds at a time; the library lets other threads compute meanwhile."""

_PRIME, _A = 2**255 - 19, 486662

Positions = npt.NDArray[np.int64]


class KeyBlinder:
    """One party's secret of the intersection; a fresh one for every run.

    Keys have no duplicates. `order` is a random permutation: the order in which copies of keys and
    dummies are shown to others. Under the secret `shared` of all parties keys become digests.
    `dummies` are texts of further keys, which are nobody's, and `copies` the points of every key,
    see `n_copies`. Raises MissingExtraError if the extra ``flare`` is not installed.
    """

    def __init__(
        self,
        keys: pd.Index,
        order: Positions,
        shared: bytes,
        dummies: Sequence[str] = (),
        copies: int = 1,
    ) -> None:
        self._times, self._jacobi, self._integer = _library()
        self._keys, self._order, self._shared, self._dummies = keys, order, shared, dummies
        self._copies, self._n = copies, len(keys) + len(dummies)
        self._secret = os.urandom(POINT)

    def blind(self, part: slice = slice(None)) -> Tensor:
        """Return a part of the own keys, blinded by the party alone: uint8, (copy of a key, 32)."""
        copies, places = np.divmod(self._order[part], self._n)
        n_keys = len(self._keys)
        own = iter(self._keys.take(places[places < n_keys]))
        texts = (
            key_text(next(own)) if place < n_keys else self._dummies[place - n_keys]
            for place in places.tolist()
        )
        digests = [
            hmac.digest(self._shared, f"{copy}{text}".encode(), hashlib.sha256)
            for copy, text in zip(copies.tolist(), texts)
        ]
        return self._in_threads(lambda some: self._multiply(self._hash_to_curve(some)), digests)

    def reblind(self, points: Tensor) -> Tensor:
        """Blind other parties' points too, in their order.

        They may be of the curve's twist, which is as hard. Raises ProtocolError if one is of small
        order.
        """
        data = points.numpy().tobytes()
        return self._in_threads(
            self._multiply, [data[i : i + POINT] for i in range(0, len(data), POINT)]
        )

    def common(self, positions: Tensor) -> tuple[pd.Index, set[int]]:
        """Return the own keys, and the numbers of the dummies, at positions of the blinded list.

        Raises ProtocolError if they are no positions of the list and MisalignedError if not all
        copies of a key are among them.
        """
        found = positions.numpy()
        there = (found >= 0) & (found < len(self._order))
        if len(np.unique(found)) != len(found) or not there.all():
            raise ProtocolError("received positions of common keys that the party does not have")
        places, times = np.unique(self._order[found] % self._n, return_counts=True)
        if (times != self._copies).any():
            raise wrong_match(
                f"of a key that is {self._copies} points only some are said to be common: the "
                "server, or a party, left out the others"
            )
        n_keys = len(self._keys)
        dummies = places[places >= n_keys] - n_keys
        return self._keys.take(places[places < n_keys]), set(dummies.tolist())

    def _hash_to_curve(self, digests: list[bytes]) -> list[bytes]:
        """Hash digests again, each until it is a point of the curve.

        Half of all numbers are of its twist and stay there, whatever they are multiplied by: a
        blinded key would show of which it is.
        """
        prime, points = self._integer(_PRIME), []
        for digest in digests:
            while True:
                u = self._integer(int.from_bytes(digest, "little") & (2**255 - 1))
                if self._jacobi(u * (u * (u + _A) + 1), prime) == 1:
                    break
                digest = hashlib.sha256(digest).digest()
            points.append(digest)
        return points

    def _multiply(self, points: list[bytes]) -> bytes:
        try:
            return b"".join([self._times(self._secret, point) for point in points])
        except RuntimeError as error:
            raise ProtocolError("received blinded keys that are not points of the curve") from error

    def _in_threads(self, work: Callable[[list[bytes]], bytes], items: list[bytes]) -> Tensor:
        """Do some work on parts of a list, on all cores that this process may use, in order."""
        parts = [items[i : i + _CHUNK] for i in range(0, len(items), _CHUNK)]
        with ThreadPoolExecutor(cpu_count()) as pool:
            points = b"".join(pool.map(work, parts))
        return torch.tensor(np.frombuffer(points, np.uint8).reshape(-1, POINT))


def n_copies(n_parties: int) -> int:
    """Return how many points every key is.

    Two parties find what is common by themselves. More would have to see each other's lists to do
    so, which tells how many keys every group of them has. Instead a key is two points, which nobody
    can tell to be of one key who lacks the parties' secret: a server that leaves out k of n common
    keys, without being noticed, has picked both points of each by chance. The probability is C(n,
    k) / C(2n, 2k), at most 1 / (2n - 1) for k < n; if nothing is left, nobody trains. After Kamara,
    Mohassel, Raykova and Sadeghian, Scaling Private Set Intersection to Billion-Element Sets, 2014;
    a server that declares more than there is the parties' proofs find.
    """
    return 1 if n_parties == 2 else 2


def common_positions(lists: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Find the points that are in every list, in an order that is the same for all parties.

    Lists, uint8 (key, 32), are blinded by every party; positions are int64.
    """
    own = {name: points.numpy().reshape(-1).view(f"S{POINT}") for name, points in lists.items()}
    common = reduce(np.intersect1d, own.values())
    found = {}
    for name, points in own.items():
        order = np.argsort(points, kind="stable")
        found[name] = torch.tensor(order[np.searchsorted(points, common, sorter=order)])
    return found


@dataclass(frozen=True)
class Parts:
    """How lists of blinded keys are cut, which every node computes of what all have been told.

    There are so many points in every party's list, and at most `most` in a part.
    """

    points: Mapping[str, int]
    most: int

    @classmethod
    def of(cls, rows: Mapping[str, int], n_padded: int, max_bytes: int) -> Parts:
        """Cut lists of so many rows and dummies for frames of at most so many bytes."""
        copies = n_copies(len(rows))
        most = (max_bytes - _HEADER) // (2 * POINT)  # a reply may bring two parts
        points = {name: copies * (n + n_padded) for name, n in rows.items()}
        return cls(points, max(1, min(_PART, most)))

    @property
    def n(self) -> int:
        """How many parts the longest list has; shorter ones end with empty parts."""
        return max([1, *(-(-points // self.most) for points in self.points.values())])

    @property
    def turns(self) -> int:
        """How often every part is blinded by another party."""
        return len(self.points) - 1

    def slice(self, part: int) -> slice:
        """Return where a part is in a list."""
        return slice(part * self.most, (part + 1) * self.most)

    def size(self, name: str, part: int) -> int:
        """Return how many points a part of a party's list has."""
        return len(range(self.points[name])[self.slice(part)])

    def of_step(self, step: int) -> tuple[int, int]:
        """Return which part is blinded again in a step, and in which turn, from 1."""
        part, turn = divmod(step - 1, self.turns)
        return part, turn + 1

    def check(self, max_bytes: int) -> None:
        """Refuse lists whose common keys no frame could name (PayloadRejectedError)."""
        name = min(self.points, key=lambda party: self.points[party])
        needed = _HEADER + POINT * self.most + 8 * self.points[name]
        if needed > max_bytes:
            raise PayloadRejectedError(
                f"its {self.points[name]:,} blinded keys, if they are common, are {needed:,} "
                f"bytes; at most {max_bytes:,} are taken",
                fix=f"max_frame_bytes = {needed} or more in the job and in every site file",
                party=name,
            )


def rounds(names: Sequence[str]) -> list[dict[str, str]]:
    """Say whose list each party blinds, round by round: by receiver, the list's owner."""
    n = len(names)
    return [{names[(i + r) % n]: names[i] for i in range(n)} for r in range(1, n)]


def wrong_match(problem: str) -> MisalignedError:
    """Return the error of a match that no server and parties that follow the protocol make."""
    return MisalignedError(
        f"{problem}. Nothing about records was sent",
        fix="compare the sites' logs: a server or a party does not follow the protocol, or parties "
        "have different shared secrets; do not start again before you know which",
    )


def key_text(key: Any) -> str:
    """Write a key so that equal keys are equal texts, whatever the width they are stored in."""
    if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
        return f"i{int(key)}"
    if isinstance(key, (float, np.floating)):
        return f"f{float(key) + 0.0!r}"  # -0.0 is 0.0
    if isinstance(key, pd.Timestamp):
        return f"d{(key if key.tz is None else key.tz_convert('UTC')).isoformat()}"
    return f"s{key}"


def _library() -> tuple[Callable[[bytes, bytes], bytes], Any, Any]:
    """Return X25519, which makes secrets multiples of eight, Jacobi's symbol, and its numbers."""
    try:
        from gmpy2 import jacobi, mpz
        from nacl.bindings import crypto_scalarmult
    except ImportError as error:
        raise MissingExtraError(
            "matching records across processes", "gmpy2 and PyNaCl", "flare"
        ) from error
    return crypto_scalarmult, jacobi, mpz


_MOST_PARTIES = 10  # of which a party shares 511 groups


@dataclass(frozen=True, slots=True)
class Dummies:
    """The dummies of one party: texts in place of keys, those of the group of all parties first.

    Every group of two parties and more draws its own number of dummies (`vflsynth.privacy.padding`)
    of the parties' secret, and each of its members has them. Without those of smaller groups, the
    difference of what all have in common and what some have would be told to the last record. Keys
    that the party alone has fill its list up to a length that depends on public numbers only.

    `n_common` is how many of them all parties have.
    """

    texts: tuple[str, ...] = ()
    n_common: int = 0

    @classmethod
    def of(
        cls, padding: Padding | None, name: str, names: Sequence[str], session: bytes
    ) -> Dummies:
        """Draw the dummies of a run; the session is of the parties' secret, new in every run.

        Raises ParameterError if there are too many parties.
        """
        if padding is None:
            return cls()
        if len(names) > _MOST_PARTIES:
            raise ParameterError(
                f"intersection_epsilon is for at most {_MOST_PARTIES} parties, as every group of "
                f"them needs dummies of its own; there are {len(names)}"
            )
        texts: list[str] = []
        common = 0
        for size in range(len(names), 1, -1):
            for group in combinations(sorted(names), size):
                if name in group:
                    secret = derive(session, f"dummies of|{'|'.join(group)}")
                    number = padding.draw(secret)
                    texts += [f"x{secret.hex()}|{i}" for i in range(number)]
                    common = number if size == len(names) else common
        while len(texts) < n_dummies(padding, len(names)):
            texts.append(f"x{os.urandom(32).hex()}")
        return cls(tuple(texts), common)


def n_dummies(padding: Padding | None, n_parties: int) -> int:
    """Return how many dummies every party shows, which everybody may know."""
    return 0 if padding is None else (2 ** (n_parties - 1) - 1) * padding.largest
