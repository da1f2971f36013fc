"""Which records are in which batch, and which are in none because they say when to stop."""

from __future__ import annotations

import torch
from torch import Tensor

from vflsynth._random import RandomStreams
from vflsynth.protocol import HeldOutSchedule, PoissonSchedule, Schedule


class HoldingOut(HeldOutSchedule):
    """A schedule whose batches are positions among the matched records; see `HeldOutSchedule`.

    `held_out` and `trained_on`, (replica, record), are the positions of the records that are in no
    batch, and of all others.
    """

    def __init__(
        self,
        streams: RandomStreams,
        *,
        n_records: int,
        n_held_out: int,
        batch_size: int,
        replica_rows: Tensor | None = None,
    ) -> None:
        super().__init__(
            streams,
            n_records=n_records,
            n_held_out=n_held_out,
            batch_size=batch_size,
            replica_rows=replica_rows,
        )
        parts = torch.split(self.order, [n_held_out, n_records - n_held_out], dim=1)
        self.held_out, self.trained_on = parts

    def rows(self, step: int) -> Tensor:
        """Choose the record positions of a batch, int64, shape (replica, batch)."""
        return self.order.gather(1, super().rows(step))


def n_records(schedule: Schedule, step: int) -> int:
    """Count the rows of a batch that are records: a Poisson sample is filled up with others."""
    if isinstance(schedule, PoissonSchedule):
        return int(schedule.n_real(step)[0])
    return schedule.batch_size
