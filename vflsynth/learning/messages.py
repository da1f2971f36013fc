"""Messages that several methods have in common: masked records, and shares of secure sums."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from vflsynth.protocol.declaration import REAL, STEPS, MadeOf, Message, When, holds, message


class MaskedRecords(Message):
    """Encoded records with a constant column in front, rotated by a secret orthogonal matrix."""

    __slots__ = ()
    records: Tensor


class PublishedTables(Message):
    """Noisy tables of a party's own columns, or of what it made of them, one after the other.

    `counts` are whole numbers of steps; `sizes` the numbers of states.
    """

    __slots__ = ()
    counts: Tensor
    sizes: Tensor
    of: ClassVar[str]
    """What has the states, for errors."""


_MASKED = (
    "the joint mean and covariance of the encoded columns, which is what they are for. A rotation "
    "unknown to the server leaves inner products of columns, so no row can be read, but where a "
    "single record holds a category, that category's covariances *are* its record: the pooling of "
    "rare categories is the remedy"
)


@message(
    from_party=True,
    made_of=MadeOf.RECORDS,
    when=When.BLOCK,
    slow=True,
    contents="a block of the rows of Q [1, x_i] (R, m, w_i + 1), rotated by a secret rotation Q of "
    "the records; of normal scores for the Gaussian copula",
    tells=_MASKED,
)
class MaskedReal(MaskedRecords):
    """Real records, masked, of which no block is larger than 32 MiB."""

    records: Tensor = holds(REAL, "replica", "record", "column")


@message(
    from_party=True,
    made_of=MadeOf.NETWORKS,
    when=When.EPOCH,
    contents="the same of fakes",
    tells=_MASKED,
)
class MaskedFake(MaskedRecords):
    """Fresh fakes, masked."""

    records: Tensor = holds(REAL, "replica", "fake", "column")


UNIFORM = "nothing: uniformly random to its receiver, whatever the records are"


@message(
    from_party=True,
    made_of=MadeOf.RECORDS,
    when=When.BLOCK,
    slow=True,
    masked=True,
    contents="codes of the states of the block's records (b, coordinates), each number with a mask "
    "that is drawn of the shared secret; a proof that they are codes: places (b, columns), turned "
    "by it, the sum of their pads, which are drawn of it, too; for the proofs of others tags of "
    "all their places (b, places), a random seed and its seal",
    tells=UNIFORM + ", and whatever it does (`vflsynth.secure.products`, "
    "`vflsynth.secure.membership`)",
)
class MaskedStates(Message):
    """Masked codes of a block of records, and `vflsynth.secure.Proof`."""

    numbers: Tensor = holds(STEPS, "record", "coordinate")
    places: Tensor = holds(torch.int16, "record", "column")
    openings: Tensor = holds(torch.int64, "verifier")
    tags: Tensor = holds(torch.int64, "record", "place")
    seed: Tensor = holds(torch.uint8, 32)
    seal: Tensor = holds(torch.uint8, 32)


@message(
    from_party=False,
    made_of=MadeOf.NETWORKS,
    when=When.ONCE,
    masked=True,
    contents="seeds of the other parties' tags of every block, with their seals, and a hash of the "
    "tags that each of them sent",
    tells="random numbers: with these the party computes the tags itself, and ends the run if "
    "others were sent (`vflsynth.secure.membership`)",
)
class VerifierSeeds(Message):
    """What a party is told of its verifiers after the last block: `vflsynth.secure.Challenge`."""

    seeds: Tensor = holds(torch.uint8, "verifier", "block", 32)
    seals: Tensor = holds(torch.uint8, "verifier", "block", 32)
    digests: Tensor = holds(torch.uint8, "verifier", 32)


@message(
    from_party=True,
    made_of=MadeOf.PLANS,
    when=When.ONCE,
    slow=True,
    contents="nothing",
)
class TagsAgreed(Message):
    """That the tags of a party's records are those that it can compute: proofs may be judged."""


@message(
    from_party=True,
    made_of=MadeOf.RECORDS,
    when=When.ONCE,
    slow=True,
    masked=True,
    contents="a share of sums over records, with the party's own noise in full and a part of zero "
    "that is drawn of the shared secret",
    tells="all parties' shares together: the published sums with every party's noise, which the "
    "privacy ledger counts; fewer are uniformly random (`vflsynth.secure`)",
)
class SumShares(Message):
    """A party's share of noisy sums, int64, one after the other."""

    shares: Tensor = holds(torch.int64, "sum")
