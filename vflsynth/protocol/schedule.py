"""How long a training is; which records and latents every step uses, from the parties' secret."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vflsynth._random import HiddenStreams, KeySchedule, RandomStreams, derive, hidden_normal

ROTATION_SIZE = 128
"""The most records that one rotation mixes; making it takes time of the third order."""

_MOST_KEPT = 1 << 10  # rotations that all parties of one process make once, 64 MiB

DEFAULT_STEPS = 15_000
"""Discriminator steps of a GAN without noise."""


@dataclass(frozen=True)
class Length:
    """Size and number of the batches of a training.

    A batch has `batch_size` records, or so many on average if it is a Poisson sample. Steps are
    those of discriminators.
    """

    batch_size: int
    epochs: int
    steps_per_epoch: int

    @classmethod
    def of(cls, n_records: int, batch_size: int, epochs: int) -> Length:
        """Count an epoch's steps: so many that their batches are as many records as there are."""
        return cls(batch_size, int(epochs), -(-n_records // batch_size))  # NumPy's wrap around

    @property
    def steps(self) -> int:
        """Steps of all epochs."""
        return self.epochs * self.steps_per_epoch


def default_epochs(n_records: int, batch_size: int, steps: int = DEFAULT_STEPS) -> int:
    """Return the number of epochs that have about `steps` steps, at least one."""
    return max(1, round(steps * batch_size / n_records))


def power_of_two(value: float, low: int, high: int) -> int:
    """Round down to a power of two, within bounds."""
    return max(low, min(high, 1 << max(0, int(value).bit_length() - 1)))


@dataclass(repr=False, eq=False)
class Schedule:
    """Everything the parties must draw alike, without telling the server (paper's assumption 1).

    Streams come from the shared secret; `latent_dim` is 0 where nothing is generated.
    `replica_rows`, int64 (replica, n_records), are positions of each replica's training records; by
    default all replicas use all records. `keys` make what hides something in this attempt, of a
    secret that the server lacks. `rotating` is the key of rotations: of `keys`, or in a resumed run
    that of the attempt that began it, which rotated the same records.
    """

    streams: RandomStreams
    _: KW_ONLY
    n_records: int
    batch_size: int
    latent_dim: int = 0
    replica_rows: Tensor | None = None
    keys: KeySchedule = field(init=False)
    rotating: bytes = field(init=False)
    _rotations: dict[tuple[str, int, int], Tensor] = field(default_factory=dict, init=False)

    @property
    def steps_per_epoch(self) -> int:
        """Batches that visit every record at least once (at most one batch more than once)."""
        return -(-self.n_records // self.batch_size)

    def rows(self, step: int) -> Tensor:
        """Choose the record positions of a batch, int64, shape (replica, batch).

        Batches run through one endless sequence of random permutations of the records, so that
        every batch is full and all records are used equally often.
        """
        epoch, offset = divmod(step * self.batch_size, self.n_records)
        rows = self.streams.permutation("rows", epoch, self.n_records)[
            :, offset : offset + self.batch_size
        ]
        missing = self.batch_size - rows.shape[1]
        if missing:
            following = self.streams.permutation("rows", epoch + 1, self.n_records)
            rows = torch.cat([rows, following[:, :missing]], 1)
        return self._of_replica(rows)

    def _of_replica(self, rows: Tensor) -> Tensor:
        """Turn positions among a replica's records into positions among all of them."""
        return rows if self.replica_rows is None else self.replica_rows.gather(1, rows)

    def latent(self, step: int) -> Tensor:
        """Draw the standard normal latents z of a batch, shape (replica, batch, latent)."""
        return self.streams.normal("latent", step, (self.batch_size, self.latent_dim))

    def interpolation(self, step: int) -> Tensor:
        """Draw uniform weights between real and fake records, shape (replica, batch, 1)."""
        return self.streams.uniform("interpolation", step, (self.batch_size, 1))

    def evaluation_latent(self, step: int, n: int) -> Tensor:
        """Draw the latents of the fakes that an evaluation looks at, shape (replica, n, latent)."""
        return self.streams.normal("evaluation", step, (n, self.latent_dim))

    def rotate(self, records: Tensor, *, reuse: bool) -> Tensor:
        """Mix records, (replica, n, column), by secret rotations.

        The result is Q x with Q orthogonal: ``(Q x)^T (Q y) = x^T y`` holds for every party's x and
        y, so the receiver, who does not know Q, can compute joint second moments. Q is made of
        blocks that are uniform over the orthogonal group.

        Real records are mixed twice, so that a row is made of records from all over the table and
        no second moment of a small group shows: in a group, one holder of a category is easily
        alone. Fakes are mixed once, with `reuse` by the same matrices at every call, which saves
        making them; the receiver then also learns inner products between columns of different
        calls.
        """
        # One rotation for all replicas: several replicas exist only inside one trust domain.
        n_blocks = -(-records.shape[1] // ROTATION_SIZE)
        if reuse:
            return self._rotate_blocks(records, n_blocks, "reused")
        records = self._rotate_blocks(records, n_blocks, "first")
        if n_blocks == 1:
            return records
        rows = torch.arange(records.shape[1], device=records.device)
        dealt = torch.cat([rows[start::n_blocks] for start in range(n_blocks)])
        return self._rotate_blocks(records[:, dealt], n_blocks, "second")

    def _rotate_blocks(self, records: Tensor, n_blocks: int, label: str) -> Tensor:
        """Rotate blocks of equal size: a remainder of one record would show it as it is."""
        rotated = []
        for block, part in enumerate(torch.tensor_split(records, n_blocks, dim=1)):
            key = (label, block, part.shape[1])
            rotation = self._rotations.get(key)
            if rotation is None:
                rotation = self._rotation(*key)
                if label == "reused" or len(self._rotations) < _MOST_KEPT:
                    self._rotations[key] = rotation
            rotated.append(rotation @ part)
        return torch.cat(rotated, 1)

    def _rotation(self, label: str, block: int, size: int) -> Tensor:
        key = derive(self.rotating, f"{label}|{size}|{block}")
        q, r = np.linalg.qr(hidden_normal(key, (size, size)))
        # The signs make the distribution exactly uniform (Mezzadri 2007).
        rotation = (q * np.sign(np.diagonal(r))).astype(np.float32)
        return torch.tensor(rotation).to(self.streams.device)


class HeldOutSchedule(Schedule):
    """Some records are held out of all batches: they say when to stop.

    `n_records` per replica include them. An epoch of at most `most_steps` need not be a whole pass
    over the records: the next one goes on where it ends. `order`, int64 (replica, record), are
    positions of the replica's records in an order that the parties draw alike; those held out come
    first, and `rows` are places in it.
    """

    def __init__(
        self,
        streams: RandomStreams,
        *,
        n_records: int,
        n_held_out: int,
        batch_size: int,
        most_steps: int | None = None,
        replica_rows: Tensor | None = None,
    ) -> None:
        super().__init__(streams, n_records=n_records - n_held_out, batch_size=batch_size)
        self.most_steps = most_steps
        order = streams.permutation("held out", 0, n_records)
        self.order = order if replica_rows is None else replica_rows.gather(1, order)
        self.n_held_out = n_held_out

    @property
    def steps_per_epoch(self) -> int:
        """Batches of an epoch: a pass over the records, or fewer."""
        whole = super().steps_per_epoch
        return whole if self.most_steps is None else min(whole, self.most_steps)

    def rows(self, step: int) -> Tensor:
        """Choose the places in `order` of a batch, int64, shape (replica, batch)."""
        return super().rows(step) + self.n_held_out


class SubsetSchedule(Schedule):
    """A fresh uniform subset of the records at every step, drawn without replacement.

    Subsets are drawn from `sampling`, by the parties alike. Not from `streams`, which may derive
    from a seed that everybody knows: amplification by sampling holds against those who cannot tell
    which records were drawn.

    Source: the sampling that VFLGAN's Proposition 4 (Wang et al. 2019) is about. The batches of an
    epoch of `Schedule`, as of most training code, are disjoint, which the proposition does not
    cover.

    Privacy: places within a batch are drawn as well. Were they to follow from the records' numbers,
    an individual with another key, which renumbers all that come after it, would move others too.
    """

    def __init__(self, streams: RandomStreams, *, sampling: HiddenStreams, **shared: Any) -> None:
        super().__init__(streams, **shared)
        self.sampling = sampling

    def rows(self, step: int) -> Tensor:
        """Choose the record positions of a batch, int64, shape (replica, batch)."""
        drawn = self.sampling.subset("rows", step, self.n_records, self.batch_size)
        return self._of_replica(torch.tensor(np.stack(drawn)).to(self.streams.device))


class PoissonSchedule(SubsetSchedule):
    """Every record is in a batch with the probability `sample_rate`, independently of all others.

    `batch_size` is that of the fakes. Batches have as many places in (nearly) all steps, see
    `places_of_batches`: were there just enough for the records drawn, the last bits of what
    networks compute of fakes could depend on how many these are.
    """

    def __init__(self, streams: RandomStreams, *, sample_rate: float, **sampled: Any) -> None:
        super().__init__(streams, **sampled)
        self.sample_rate = sample_rate
        self._latest: tuple[int, list[npt.NDArray[np.int64]]] | None = None

    def rows(self, step: int) -> Tensor:
        """Choose the record positions of a batch, int64, shape (replica, place).

        A replica has any positions in the columns beyond the records drawn for it: see `n_real`.
        """
        drawn = self._drawn(step)
        places = places_of_batches(self.batch_size)
        n_places = places * max(1, -(-max(map(len, drawn)) // places))
        rows = np.zeros((len(drawn), n_places), np.int64)
        for replica, own in enumerate(drawn):
            rows[replica, : len(own)] = own
        return self._of_replica(torch.tensor(rows).to(self.streams.device))

    @property
    def steps_per_epoch(self) -> int:
        """Batches after which every record was drawn once on average."""
        return math.ceil(1.0 / self.sample_rate - 1e-9)

    def n_real(self, step: int) -> Tensor:
        """Count the records drawn for each replica's batch, int64, shape (replica,)."""
        return torch.tensor([len(own) for own in self._drawn(step)], device=self.streams.device)

    def _drawn(self, step: int) -> list[npt.NDArray[np.int64]]:
        if self._latest is None or self._latest[0] != step:  # several ask about the same step
            drawn = [
                np.flatnonzero(chances < self.sample_rate)
                for chances in self.sampling.uniform("rows", step, (self.n_records,))
            ]
            self._latest = step, drawn
        return self._latest[1]


def places_of_batches(expected: int) -> int:
    """Return a multiple of 64 that a Poisson sample of `expected` records on average fits into.

    It exceeds that once in 10¹³ batches (Bernstein's inequality), and then has twice as many.
    """
    return 64 * math.ceil((expected + 8.0 * math.sqrt(expected) + 16.0) / 64.0)
