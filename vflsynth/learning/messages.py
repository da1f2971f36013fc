"""Messages that several methods have in common, and how they are filled, gathered and checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from vflsynth.exceptions import PayloadRejectedError, ProtocolError
from vflsynth.privacy.releases import Floats, Grid, Release
from vflsynth.protocol.channel import (
    REAL,
    STEPS,
    Channel,
    MadeOf,
    Message,
    Uses,
    When,
    holds,
    message,
)


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


@message(
    from_party=True,
    made_of=MadeOf.RECORDS,
    when=When.BLOCK,
    slow=True,
    uses=(Uses.LATENTS,),
    contents="with `resample`, fixed random features of at most 32,768 records, a block of them at "
    "a time (R, m, 256), and of as many drawn rows",
    tells="one vector per record, without noise, once. The server does not know the weights of the "
    "features, nor which record a row belongs to; but it has features of rows that may be "
    "published, and can match their distribution to that of real ones: it reads columns with few "
    "categories, and who knows some of the records reads the others' columns by regression. As "
    "exposed as `DiscriminatorFeatures`",
)
class RowFeatures(Message):
    """Features of records and of rows that the party's generator draws."""

    real: Tensor = holds(REAL, "replica", "row", "feature")
    fake: Tensor = holds(REAL, "replica", "row", "feature")


@message(
    from_party=False,
    made_of=MadeOf.NETWORKS,
    contents="with `resample`, a classifier of drawn rows: weights of the party's own features (R, "
    "256, 32), and what follows the hidden layer (R, 32), the same for all parties",
    tells="which drawn rows look real: of the others' records what a network of one hidden layer "
    "learns about rows of all parties, by the 32 numbers that reach its hidden layer",
)
class RowScorer(Message):
    """What a party scores its columns of drawn rows with."""

    first: Tensor = holds(REAL, "replica", "feature", "hidden")
    bias: Tensor = holds(REAL, "replica", "hidden")
    last: Tensor = holds(REAL, "replica", "hidden")


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
    tells="nothing: uniformly random to its receiver, whatever the records are, and whatever it "
    "does (`vflsynth.secure.products`, `vflsynth.secure.membership`)",
)
class MaskedStates(Message):
    """Masked codes of a block of records, and `vflsynth.secure.membership.Proof`."""

    numbers: Tensor = holds(STEPS, "record", "coordinate")
    places: Tensor = holds(torch.int16, "record", "column")
    openings: Tensor = holds(torch.int64, "verifier")
    tags: Tensor = holds(torch.int64, "record", "place")
    seed: Tensor = holds(torch.uint8, 32)
    seal: Tensor = holds(torch.uint8, 32)


@message(
    from_party=False,
    made_of=MadeOf.NETWORKS,
    masked=True,
    contents="seeds of the other parties' tags of every block, with their seals, and a hash of the "
    "tags that each of them sent",
    tells="random numbers: with these the party computes the tags itself, and ends the run if "
    "others were sent (`vflsynth.secure.membership`)",
)
class VerifierSeeds(Message):
    """What is told of verifiers after the last block: `vflsynth.secure.membership.Challenge`."""

    seeds: Tensor = holds(torch.uint8, "verifier", "block", 32)
    seals: Tensor = holds(torch.uint8, "verifier", "block", 32)
    digests: Tensor = holds(torch.uint8, "verifier", 32)


@message(from_party=True, made_of=MadeOf.PLANS, slow=True, contents="nothing")
class TagsAgreed(Message):
    """That the tags of a party's records are those that it can compute: proofs may be judged."""


@message(
    from_party=True,
    made_of=MadeOf.RECORDS,
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


_ROUNDING = 1e-5
"""By which shares of 32 bits may miss a sum of 1."""


def states_of(message: PublishedTables, expected: int, width: int) -> list[int]:
    """Return how many states, at most `width`, a party's columns or latent attributes have.

    Raises ProtocolError if there are other numbers than there must be, naming the party.
    """
    sizes: list[int] = message.sizes.tolist()
    if len(sizes) != expected or not all(0 < size <= width for size in sizes):
        raise ProtocolError(
            f"party {message.sender!r} says that its {message.of} have {sizes} states; expected "
            f"{expected} numbers from 1 to {width}"
        )
    return sizes


def tables_of(
    message: PublishedTables, shapes: Sequence[tuple[int, int]], largest: int, grid: Grid | None
) -> list[Floats]:
    """Return a party's published tables, of shapes by the numbers of states that the party told.

    `largest` is that of a number in them, without noise; the grid is of the party's noise, None if
    there is no table. Raises ProtocolError if there are more counts, fewer, or larger ones than can
    be, naming the party.
    """
    cells = [rows * columns for rows, columns in shapes]
    steps = message.counts.cpu().numpy()
    values = np.zeros(len(steps)) if grid is None else Release(steps, grid).values
    most = 0.0 if grid is None else grid.most(largest)
    found = float(np.abs(values).max(initial=0.0))
    if len(values) != sum(cells) or found > most:
        raise ProtocolError(
            f"party {message.sender!r} sent {len(values)} counts of up to {found:.4g}; "
            f"expected {sum(cells)} counts of at most {most:.4g}, noise included"
        )
    parts = np.split(values, np.cumsum(cells)[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=bool(shapes))]


def check_cut(party: str, message: Any, expected: tuple[int, ...]) -> None:
    """Refuse, with PayloadRejectedError, a party's features at the cut of another shape."""
    if (shape := tuple(message.features.shape)) != expected:
        raise PayloadRejectedError(
            f"sent intermediate features of shape {shape}; expected {expected}",
            fix="give all parties the same settings and version of vflsynth",
            party=party,
            step=message.step,
        )


def check_distributions(shares: Tensor, what: str, *, least: float = 0.0) -> None:
    """Refuse shares, (..., state), that are no distributions; `what` says whose, for the error.

    Raises ProtocolError if a share is not finite or below `least`, or shares of states do not add
    up to 1.
    """
    totals = shares.double().sum(-1)
    right = (shares >= least).all() and ((totals - 1.0).abs() <= _ROUNDING).all()
    if not shares.numel() or not bool(right):
        found = "no shares"
        if shares.numel():
            found = f"shares from {shares.min():.4g}, sums {totals.min():.4g} to {totals.max():.4g}"
        raise ProtocolError(f"{what}: {found}; expected shares from {least:g}, sums of 1")


MOST_NUMBERS = 1 << 23
"""Of float32 in a message: 32 MiB."""


def n_masked_blocks(n_records: int, widths: Mapping[str, int]) -> int:
    """Return in how many messages every party sends its masked records.

    `widths` are encoded columns; a constant one is sent with them.
    """
    return max(1, -(-n_records * (max(widths.values()) + 1) // MOST_NUMBERS))


class MaskedBlocks:
    """A party's masked records, (replica, record, column), until the last block was sent."""

    def __init__(self, compute: Callable[[], Tensor], n_blocks: int) -> None:
        self._compute, self._n_blocks = compute, n_blocks
        self._parts: tuple[Tensor, ...] = ()

    def __getitem__(self, block: int) -> Tensor:
        """Return a block; they are asked for one after the other."""
        if block == 0:
            self._parts = torch.tensor_split(self._compute(), self._n_blocks, dim=1)
        if not 0 <= block < len(self._parts):
            raise ProtocolError(f"block {block} of masked records was asked for out of turn")
        part = self._parts[block]
        if block == self._n_blocks - 1:
            self._parts = ()
        return part


def gather_masked(channel: Channel, n_blocks: int) -> dict[str, MaskedReal]:
    """Ask every party for its masked records; return them as one message each."""
    blocks = [channel.gather(MaskedReal, block) for block in range(n_blocks)]
    if n_blocks == 1:
        return blocks[0]
    return {
        name: replace(first, records=torch.cat([block[name].records for block in blocks], 1))
        for name, first in blocks[0].items()
    }


def moments(received: Mapping[str, MaskedRecords]) -> tuple[Tensor, Tensor]:
    """Mean and covariance (ddof 1) of the joint columns, from masked records alone.

    Shapes (replica, column) and (replica, column, column). Raises ProtocolError if the parties'
    constant columns differ: they used different secrets or numbers of records.
    """
    parts = [received[name].records for name in sorted(received)]
    constant = parts[0][..., :1]  # Q 1
    for name, part in zip(sorted(received), parts):
        # Equal but for rounding: the product's last bits depend on the party's number of columns.
        if part.shape[:2] != constant.shape[:2] or not torch.allclose(
            part[..., :1], constant, atol=1e-4
        ):
            raise ProtocolError(f"the masked records of party {name!r} do not match the others'")

    replicas, n, _ = constant.shape
    width = sum(part.shape[-1] - 1 for part in parts)
    mean = constant.new_zeros(replicas, 1, width, dtype=torch.float64)
    for ones, columns in _in_double(parts):
        mean += ones.mT @ columns / n  # 1^T Q^T Q x = 1^T x
    covariance = constant.new_zeros(replicas, width, width, dtype=torch.float64)
    for ones, columns in _in_double(parts):
        centred = columns - ones * mean  # Q (x - mean)
        covariance += centred.mT @ centred / max(1, n - 1)
    return mean.squeeze(1), covariance


_CHUNK = 1 << 14


def _in_double(parts: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """Constant and joint columns in float64, in chunks: all at once can be the peak of a fit."""
    for chunk in zip(*(torch.split(part, _CHUNK, dim=1) for part in parts)):
        columns = torch.cat([part[..., 1:] for part in chunk], -1)
        yield chunk[0][..., :1].double(), columns.double()
