r"""Proofs that what a party masked are codes of its columns' states, which nobody sees.

A party sends its records under masks M, in which nobody would see numbers that no code has. So each
party, here the *prover*, shows every other, a *verifier*, by way of the server that each column of
each record is one of the m - 1 codes that are public, or zero. Of one record and column:

1. Of the secret that the parties share and the server lacks all draw a turn a in 0, ..., m - 1, and
   for each verifier m pads, uniform modulo 2^64.
2. The prover, whose code is number s, sends Y, which is code s + M, the *place* ``p = (s + a) mod
   m``, and the pad of that place: added up over all columns and records of a block, the *opening*.
3. A verifier draws a seed, which the prover does not know, and of it weights w, uniform modulo
   2^64. It sends the seed and, for every place q, the *tag* ``<w, code (q - a) mod m + M> + pad of
   q``, where code m - 1 is zero and numbers are counted in 32 bits.
4. When all records were sent, the server tells the prover seeds, and a hash of the tags it got. The
   prover computes the tags, and ends the run if the server has others.
5. The server adds up the tags of the places that it was sent. Less the opening, that must be ``<w,
   Y>``. If it is not, the server ends the run: when all provers have agreed in step 4, and before
   anybody sends a share of the products.

**A prover that deviates.** If one of the numbers that it masked is none of the column's, what must
be equal differs by a sum of weights times numbers of up to 32 bits, not all zero, plus what it
chose without knowing a weight. That is zero with probability at most 2^-33. Whatever place it sends
stands for a code. So every record of an honest party is multiplied by codes, or the run ends.

It can compute in step 4 whether it will be found out, and end the run by silence, unnamed.

**A verifier that deviates** knows turns and pads, and could send wrong tags for some of a record's
states: whether the run ends would tell which state it has. Step 4 ends it whatever the state is.

**The server** receives places, which are uniform, since turns are; tags, which pads make uniform,
and independent of all else, but for those of the places that it got, of which the opening tells the
sum, which it could compute. It learns nothing, whatever it does: parties take two things from it.
Codes of the others, and whatever else all must agree on, enter the secret of all masks, so that of
parties that were told other things nothing cancels; and seeds bear their verifier's seal, an HMAC
under that secret. A prover answers tags by going on or not, and tags of an honest verifier are all
known to the server.

Source: lookups by one-time pads; message authentication codes modulo 2^(k + s) as in SPDZ2k (Cramer
et al. 2018), which here check a public list instead of a product. A proof by fully linear PCPs
(Boneh et al. 2019) would be shorter, and takes a field and rounds.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from hmac import compare_digest
from itertools import combinations, permutations
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from torch import Tensor

from vflsynth._random import derive
from vflsynth.exceptions import MisalignedError, ProtocolError
from vflsynth.secure.ring import Elements, Masks, elements_of, record_blocks, tensor_of, to_ring

SEED_BYTES = 32

PLACES = np.dtype(np.uint16)
MOST_STATES = np.iinfo(PLACES).max - 2
"""Of a column, so that there are places for these, one of missing values, and zero."""

WIDE, HALF, BYTES = np.dtype(np.uint64), np.dtype(np.uint32), np.dtype(np.uint8)


class Proof(NamedTuple):
    """What a party sends beside its masked numbers of a block, as prover and as verifier.

    Places are int16 (record, column), openings int64, of all other parties by name; tags, int64
    (record, place), are of all places of these. Weights are drawn of the seed, uint8 (32,); the
    seal is an HMAC under the parties' secret.
    """

    places: Tensor
    openings: Tensor
    tags: Tensor
    seed: Tensor
    seal: Tensor


class Challenge(NamedTuple):
    """What a party is told of its verifiers, all other parties by name, after the last block.

    Seeds and seals are uint8 (verifier, block, 32); digests, uint8 (verifier, 32), are SHA-256 of
    all tags of the party's places, as they came.
    """

    seeds: Tensor
    seals: Tensor
    digests: Tensor


class Places:
    """The places of one party's columns, and codes of each, (state, coordinate), at them."""

    def __init__(self, codes: Sequence[Code]) -> None:
        self.entries = [np.pad(code, ((0, 1), (0, 0))) for code in codes]
        self._sizes = np.array([len(own) for own in self.entries], np.uint64)
        self._starts = np.cumsum([0, *(len(own) for own in self.entries)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def turned(self, states: npt.NDArray[np.int64], turns: Elements) -> Elements:
        """Return the places of states, shape (record, column)."""
        return ((states.astype(WIDE) + turns) % self._sizes).astype(PLACES)

    def turns(self, drawn: Elements) -> Elements:
        """Make turns of 64-bit numbers, shape (record, column): uniform to 2^-50 or so."""
        turns: Elements = drawn % self._sizes
        return turns

    def tags(self, turns: Elements, masks: Elements, weights: Elements) -> Elements:
        """Return ``<w, code (q - a) mod m + M>`` of every record and place, without pads.

        Turns are uint64 (record, column), masks of the products' ring, (record, coordinate),
        weights uint64 (record, halves of coordinates).
        """
        tags = np.empty((len(turns), len(self)), WIDE)
        first = 0
        n_halves = masks.itemsize // HALF.itemsize
        for column, entries in enumerate(self.entries):
            size, width = entries.shape
            own, last, start = to_ring(entries, masks.dtype), first + width, self._starts[column]
            for rows in record_blocks(len(turns), size * width):
                numbers = (np.arange(size) - turns[rows, column, None].astype(np.int64)) % size
                masked = own[numbers] + masks[rows, None, first:last]
                weighed = halves(masked) * weights[rows, None, n_halves * first : n_halves * last]
                tags[rows, start : start + size] = weighed.sum(2, dtype=WIDE)
            first = last
        return tags

    def at(self, places: Elements, values: Elements) -> Elements:
        """Return what values of all places are at some, one of every column, shape like these."""
        chosen = places.astype(np.int64) + self._starts[:-1]
        return np.take_along_axis(values, chosen, 1)

    def received(self, tensor: Tensor | None, n_rows: int, what: str) -> Elements:
        """Return places that came from anybody.

        Raises ProtocolError if there are more, fewer, or others than there are.
        """
        found = elements_of(tensor, (n_rows, len(self.entries)), what, PLACES)
        if (found >= self._sizes).any():
            raise ProtocolError(f"{what}: from {found.min()} to {found.max()}; there are no such")
        return found


def halves(elements: Elements) -> Elements:
    """Return numbers of 32 bits that elements of a ring are made of, along the last axis."""
    little = np.ascontiguousarray(elements).astype(elements.dtype.newbyteorder("<"), copy=False)
    found: Elements = little.view(HALF.newbyteorder("<")).astype(WIDE)
    return found


def weights_of(seed: bytes, rank: int, elements: Elements) -> Elements:
    """Draw a verifier's weights of a prover's masked numbers, as `halves` takes them apart.

    The seed is the block's, the rank the prover's among all parties; weights have the shape and
    size of the elements, (record, coordinate) of the products' ring.
    """
    n_rows, width = elements.shape
    shape = n_rows, width * elements.itemsize // HALF.itemsize
    return Masks(seed).draw(f"weights|{rank}", shape, WIDE)


class Proofs:
    """A party's side: it proves, block by block, and lets others prove.

    `states`, (record, column), are numbers of every record's codes; zero has the number of a
    column's codes. The secret only parties have that were told the same codes and blocks. `masks`
    returns what numbers of a party's block are masked with.
    """

    def __init__(
        self,
        name: str,
        states: npt.NDArray[np.int64],
        codebook: Codebook,
        secret: bytes,
        blocks: Sequence[slice],
        masks: Callable[[str, int], Elements],
    ) -> None:
        self.name, self._states, self._blocks, self._masks = name, states, blocks, masks
        self._secret, self._drawn = secret, Masks(secret)
        self._ranks, self._others = codebook.ranks, codebook.others(name)
        self._places = {party: Places(codes) for party, codes in codebook.codes.items()}

    def prove(self, block: int) -> Proof:
        """Return what goes to the server with a block of masked numbers."""
        own, seed = self._places[self.name], secrets.token_bytes(SEED_BYTES)
        places = own.turned(self._states[self._blocks[block]], self._turns(self.name, block))
        openings = [
            own.at(places, self._pads(other, self.name, block)).sum(dtype=WIDE)
            for other in self._others
        ]
        tags = [self._tags(self.name, other, block, seed) for other in self._others]
        return Proof(
            tensor_of(places),
            tensor_of(np.array(openings, WIDE)),
            tensor_of(np.concatenate(tags, 1)),
            tensor_of(np.frombuffer(seed, np.uint8).copy()),
            tensor_of(np.frombuffer(self._seal(self.name, block, seed), np.uint8).copy()),
        )

    def check(self, challenge: Challenge) -> None:
        """Compute the tags that others must have sent of this party's places.

        Raises MisalignedError if the server got other ones, or says so, naming the verifier.
        """
        what = f"party {self.name!r} was sent its verifiers'"
        shape = len(self._others), len(self._blocks), SEED_BYTES
        seeds = elements_of(challenge.seeds, shape, f"{what} seeds", BYTES)
        seals = elements_of(challenge.seals, shape, f"{what} seals", BYTES)
        digests = elements_of(challenge.digests, shape[::2], f"{what} digests", BYTES)
        for other, own_seeds, own_seals, digest in zip(self._others, seeds, seals, digests):
            hashed = sha256()
            for block, (seed, seal) in enumerate(zip(map(bytes, own_seeds), map(bytes, own_seals))):
                if not compare_digest(self._seal(other, block, seed), seal):
                    raise _wrong_tags(
                        f"the seed that the server sent party {self.name!r} as that of {other!r} "
                        "does not bear its seal"
                    )
                hashed.update(_bytes_of(self._tags(other, self.name, block, seed)))
            if not compare_digest(hashed.digest(), bytes(digest)):
                raise _wrong_tags(
                    f"party {other!r} sent other tags of the records of {self.name!r} than both "
                    "can compute, or the server says so: they would tell what the records are"
                )

    def _turns(self, prover: str, block: int) -> Elements:
        shape = self._n_rows(block), len(self._places[prover].entries)
        drawn = self._drawn.draw(f"turns|{self._ranks[prover]}|{block}", shape, WIDE)
        return self._places[prover].turns(drawn)

    def _pads(self, verifier: str, prover: str, block: int) -> Elements:
        both = f"{self._ranks[verifier]}|{self._ranks[prover]}"
        shape = self._n_rows(block), len(self._places[prover])
        return self._drawn.draw(f"pads|{both}|{block}", shape, WIDE)

    def _tags(self, verifier: str, prover: str, block: int, seed: bytes) -> Elements:
        masks = self._masks(prover, block)
        weights = weights_of(seed, self._ranks[prover], masks)
        tags = self._places[prover].tags(self._turns(prover, block), masks, weights)
        return tags + self._pads(verifier, prover, block)

    def _seal(self, verifier: str, block: int, seed: bytes) -> bytes:
        return derive(self._secret, f"seed|{self._ranks[verifier]}|{block}|{seed.hex()}")

    def _n_rows(self, block: int) -> int:
        rows = self._blocks[block]
        return int(rows.stop - rows.start)


class Verification:
    """The server's side: it compares tags of places that it was sent, and says so at the end."""

    def __init__(self, codebook: Codebook) -> None:
        self._codebook = codebook
        self._places = {party: Places(codes) for party, codes in codebook.codes.items()}
        self._hashes = {pair: sha256() for pair in permutations(codebook.codes, 2)}
        self._seeds: dict[str, list[Elements]] = {name: [] for name in codebook.codes}
        self._seals: dict[str, list[Elements]] = {name: [] for name in codebook.codes}
        self._refuted: set[str] = set()

    def add(self, numbers: Mapping[str, Elements], proofs: Mapping[str, Proof]) -> None:
        """Check a block of numbers, (record, coordinate), as they came: masked.

        Raises ProtocolError, naming the party, if it sent what it must not. Not if a proof does not
        hold: before all parties have answered, whether it does would tell a verifier what it wants
        to know.
        """
        n_rows = len(next(iter(numbers.values())))
        places, openings, tags = {}, {}, {}
        for name, proof in proofs.items():
            what, others = f"party {name!r} sent", self._codebook.others(name)
            places[name] = self._places[name].received(proof.places, n_rows, f"{what} places")
            opened = elements_of(proof.openings, (len(others),), f"{what} openings")
            ends = np.cumsum([0, *(len(self._places[other]) for other in others)])
            sent = elements_of(proof.tags, (n_rows, int(ends[-1])), f"{what} tags")
            for number, (other, first, last) in enumerate(zip(others, ends, ends[1:])):
                openings[other, name] = opened[number]
                tags[name, other] = sent[:, first:last]
            for kept, part in ((self._seeds, proof.seed), (self._seals, proof.seal)):
                kept[name].append(elements_of(part, (SEED_BYTES,), f"{what} a seed", BYTES))
        for (verifier, prover), own in tags.items():
            self._hashes[verifier, prover].update(_bytes_of(own))
            seed, masked = bytes(self._seeds[verifier][-1]), numbers[prover]
            weighed = halves(masked) * weights_of(seed, self._codebook.ranks[prover], masked)
            opened = self._places[prover].at(places[prover], own).sum(dtype=WIDE)
            left = int(opened) - int(openings[verifier, prover]) - int(weighed.sum(dtype=WIDE))
            if left % (1 << 64):
                self._refuted.add(prover)

    def challenges(self) -> dict[str, Challenge]:
        """Return what each party is told after the last block."""
        made = {}
        for name in self._codebook.codes:
            others = self._codebook.others(name)
            digests = [self._hashes[other, name].digest() for other in others]
            made[name] = Challenge(
                tensor_of(np.stack([np.stack(self._seeds[other]) for other in others])),
                tensor_of(np.stack([np.stack(self._seals[other]) for other in others])),
                tensor_of(np.stack([np.frombuffer(d, np.uint8) for d in digests])),
            )
        return made

    def conclude(self) -> None:
        """Raise ProtocolError, naming the prover, if a proof does not hold.

        Called when all parties have agreed with their tags, before anybody sends shares.
        """
        if self._refuted:
            raise ProtocolError(
                f"party {sorted(self._refuted)[0]!r} masked numbers that no record of its columns "
                "has. Nothing is published: others' records could be read from it"
            )


def _wrong_tags(problem: str) -> MisalignedError:
    return MisalignedError(
        problem,
        fix="compare the sites' logs: the server or that party does not follow the protocol; do "
        "not start again before you know which",
    )


def _bytes_of(tags: Elements) -> bytes:
    return np.ascontiguousarray(tags).astype("<u8", copy=False).tobytes()


Code: TypeAlias = npt.NDArray[np.int64]
"""Of one column, shape (state, coordinate)."""

Pair = tuple[str, str]


def coordinates_of(codes: Iterable[Code]) -> list[slice]:
    """Return which coordinates each code has where they are side by side."""
    ends = np.cumsum([0, *(code.shape[1] for code in codes)]).tolist()
    return [slice(start, end) for start, end in zip(ends, ends[1:])]


class Codebook:
    """Codes of all parties' columns, by party in its order, int64 (state, coordinate) of each."""

    def __init__(self, codes: Mapping[str, Sequence[Code]]) -> None:
        self.codes = {name: list(codes[name]) for name in sorted(codes)}
        self.pairs = list(combinations(self.codes, 2))  # in the order in which shares hold them
        self.ranks = {name: rank for rank, name in enumerate(self.codes)}
        self.widths = {name: sum(c.shape[1] for c in own) for name, own in self.codes.items()}

    def encode(self, party: str, states: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return codes side by side, (record, coordinate), of a party's states (record, column)."""
        columns = [code[own] for code, own in zip(self.codes[party], states.T, strict=True)]
        return np.concatenate([np.zeros((len(states), 0), np.int64), *columns], 1)

    @property
    def all(self) -> list[Code]:
        """Return the codes of all columns, party by party."""
        return [code for own in self.codes.values() for code in own]

    def others(self, party: str) -> list[str]:
        """Return all parties but one, by name."""
        return [name for name in self.codes if name != party]

    def columns(self, party: str) -> list[slice]:
        """Return which coordinates are each of a party's columns'."""
        return coordinates_of(self.codes[party])

    @cached_property
    def digest(self) -> str:
        """A hash of all codes: who has other ones draws other masks."""
        hashed = sha256()
        for number, own in enumerate(self.codes.values()):
            for code in own:
                hashed.update(f"{number} {code.shape}".encode() + code.astype("<i8").tobytes())
        return hashed.hexdigest()
