"""The protocol: every message that may cross a party boundary. Nothing else does.

R replicas, B records per batch, d_i intermediate features and w_i encoded columns of party i. A
plain fit has R = 1. Every class declares sender, receiver, time, what it is made of and what its
receiver can learn: tables of the documentation are made of it, and transports, schedules and
privacy accounts read the same declarations.

The shared secret (batches, latents, rotations) is known to the parties and never to the server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from vflsynth.protocol.channel import REAL, MadeOf, Message, When, holds, message

# -- joining and matching -------------------------------------------------------------------------


@message(
    from_party=True,
    made_of=MadeOf.COLUMNS,
    slow=True,
    contents="versions, counts, keyed digests of column names and of the party's part of the "
    "contract, which checkpoints there are, heads of the privacy account",
    tells="number of rows, the kind of the keys and, except in private runs, the digits of the "
    "largest, which columns two parties both have (none may), numbers of columns and of those that "
    "a private run has to pay for, because nobody said what is public about them; how often the "
    "party took part in private runs; under a contract, which columns of the job's rules it has, "
    "and whether it leaves out rows",
)
class Hello(Message):
    """What a party says of itself when it joins a run; JSON values."""

    facts: dict[str, Any]


@message(
    from_party=False,
    made_of=MadeOf.COLUMNS,
    contents="what the hellos said of all parties, and where to go on",
)
class Terms(Message):
    """What the server tells every party of the others before training; JSON values."""

    terms: dict[str, Any]


@message(
    from_party=True,
    made_of=MadeOf.KEYS,
    in_process=True,
    contents="the party's record keys",
    tells="the keys themselves; between processes blinded keys replace it",
)
class KeyList(Message):
    """A party's record keys."""

    keys: pd.Index


@message(
    from_party=False,
    made_of=MadeOf.KEYS,
    in_process=True,
    contents="the common keys, in common order",
    tells="which of the party's records every other party also has",
)
class AlignmentNotice(Message):
    """The keys that all parties have, in the order that all parties use."""

    common_keys: pd.Index


@dataclass(frozen=True, slots=True)
class _SealedPoints(Message):
    """Points, uint8 of shape (key, 32), and the seal of the party that blinded them last.

    ``seal``, uint8 of shape (32,): proves to whoever has the parties' secret that these are the
    points of their owner, in this run, blinded by so many; nobody else can make or check it.
    """

    points: Tensor = holds(torch.uint8, "key", 32)  # noqa: RUF009 - a field
    seal: Tensor = holds(torch.uint8, "byte")  # noqa: RUF009


_BLINDED = (
    "parties learn the keys that all have and how many the others have; the server learns how many "
    "keys every group of parties has in common (with `intersection_epsilon` plus random numbers) "
    "and cannot test guesses of keys, which are keyed digests under the parties' secret "
    "(`vflsynth.federation.psi`)"
)


@message(
    from_party=True,
    made_of=MadeOf.KEYS,
    when=When.STEP,
    slow=True,
    contents="keyed digests of record keys, of three parties or more two of each, as points of a "
    "curve, blinded by the party; its seal",
    tells=_BLINDED,
)
class BlindedKeys(_SealedPoints):
    """A part of a party's keys under commutative encryption."""


@message(
    from_party=False,
    made_of=MadeOf.KEYS,
    when=When.STEP,
    contents="another party's blinded keys, with the seal of the party that blinded them last",
    tells=_BLINDED,
)
class KeysToReblind(_SealedPoints):
    """Some of another party's blinded keys, for this one to blind too."""


@message(
    from_party=True,
    made_of=MadeOf.KEYS,
    when=When.STEP,
    slow=True,
    contents="the same, blinded once more, and sealed",
    tells=_BLINDED,
)
class ReblindedKeys(_SealedPoints):
    """Keys that one party more has blinded."""


@message(
    from_party=False,
    made_of=MadeOf.KEYS,
    when=When.STEP,
    contents="of two parties: the party's own keys, blinded by both, with the other's seal",
    tells=_BLINDED,
)
class ReturnedKeys(_SealedPoints):
    """Some of the party's own keys, blinded by all; it finds the common ones by itself.

    Of two parties only: with more, lists blinded by all would tell a party which of its keys each
    of the others has, which only the server learns.
    """


@message(
    from_party=False,
    made_of=MadeOf.KEYS,
    contents="which of the party's blinded keys all parties have",
    tells=_BLINDED,
)
class CommonPositions(Message):
    """Positions, int64, in the list of blinded keys that the party sent first."""

    positions: Tensor = holds(torch.int64, "key")


@message(
    from_party=True,
    made_of=MadeOf.KEYS,
    slow=True,
    contents="a keyed digest of the common keys, which only this party can have sent",
    tells="nothing without the parties' secret",
)
class MatchProof(Message):
    """Proof of what this party was told is common, uint8 of shape (32,)."""

    proof: Tensor = holds(torch.uint8, 32)


@message(
    from_party=False,
    made_of=MadeOf.KEYS,
    contents="the proofs of all parties, which every party compares before it goes on",
    tells="that all parties were told of the same keys, or not",
)
class MatchProofs(Message):
    """Proofs as hexadecimal digits, by party name; JSON values."""

    proofs: dict[str, Any]


@message(from_party=True, made_of=MadeOf.COLUMNS, slow=True, contents="w_i")
class EncodedSize(Message):
    """Number of a party's encoded columns."""

    encoded_dim: int


@message(from_party=False, made_of=MadeOf.COLUMNS, contents="w_i of all parties")
class EncodedSizes(Message):
    """Numbers of all parties' encoded columns, by party: the networks can be built."""

    widths: dict[str, Any]


@message(
    from_party=True,
    made_of=MadeOf.COLUMNS,
    when=When.EPOCH,
    contents="heads of the party's privacy account: once it has booked what comes before the "
    "second epoch, and when the run is over",
    tells="how often the party took part in private runs; heads are random to whoever lacks the "
    "account",
)
class AccountHeads(Message):
    """What `vflsynth.privacy.PrivacyAccount.show` returns; JSON values."""

    shown: dict[str, Any]


@message(
    from_party=False,
    made_of=MadeOf.COLUMNS,
    when=When.EPOCH,
    contents="what all parties' accounts showed",
    tells="how often each of them took part in private runs",
)
class AllAccountHeads(Message):
    """Party name to `AccountHeads`; every site refuses accounts that lack what it remembers."""

    shown: dict[str, Any]


# -- during training, whatever the method ---------------------------------------------------------


@message(from_party=False, made_of=MadeOf.PLANS, when=When.EPOCH, contents="write a checkpoint now")
class CheckpointNotice(Message):
    """The epoch, as the step, after which every node writes a checkpoint."""


@message(
    from_party=False,
    made_of=MadeOf.NETWORKS,
    when=When.EPOCH,
    contents="which replicas to keep as the best (R,)",
    tells="whether this epoch is the best so far; in split learning by the held-out labels, after "
    "label privacy",
)
class SelectionNotice(Message):
    """For each replica, whether the current networks are the ones to keep, shape (replica,)."""

    keep: Tensor = holds(torch.bool, "replica")


@message(
    from_party=True,
    made_of=MadeOf.NETWORKS,
    when=When.EPOCH,
    contents="mean losses of the epoch (R,)",
)
class TrainingReport(Message):
    """Means over an epoch, each of shape (replica,)."""

    wasserstein: Tensor = holds(REAL, "replica")
    penalty: Tensor = holds(REAL, "replica")


@dataclass(frozen=True, slots=True)
class IntermediateFeatures(Message):
    """Outputs at the cut of a network."""

    features: Tensor = holds(REAL, "replica", "record", "feature")  # noqa: RUF009


class CutGradients(Message):
    """Gradients of the server's loss with respect to what a party sent, of the same shape."""

    __slots__ = ()
    gradients: Tensor
