"""Schedule: which records and latents every step uses, from a secret shared by the parties."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from vflsynth._random import RandomStreams

ROTATION_SIZE = 128
"""The most records that one rotation mixes; making it takes time of the third order."""


class Schedule:
    """Everything the parties must draw alike, without telling the server (paper's assumption 1).

    Parameters
    ----------
    streams : RandomStreams
        From the shared secret.
    n_records : int
        Training records per replica.
    batch_size : int
    latent_dim : int, default=0
        0 where nothing is generated.
    replica_rows : Tensor of int64, shape (replica, n_records), optional
        Positions of each replica's training records; by default all replicas use all records.
    """

    def __init__(
        self,
        streams: RandomStreams,
        *,
        n_records: int,
        batch_size: int,
        latent_dim: int = 0,
        replica_rows: Tensor | None = None,
    ) -> None:
        self.streams = streams
        self.n_records = n_records
        self.batch_size = batch_size
        self.latent_dim = latent_dim
        self.replica_rows = replica_rows
        self._rotations: dict[tuple[int, int], Tensor] = {}

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
        """Mix records by secret rotations.

        Parameters
        ----------
        records : Tensor, shape (replica, n, column)
        reuse : bool
            False is for real records. It mixes twice, so that a row is made of records from all
            over the table and no second moment of a small group shows: in a group, one holder of a
            category is easily alone. True is for fakes at every evaluation. It mixes once, by the
            same matrices at every call, which saves making them; the receiver then also learns
            inner products between columns of different calls.

        Returns
        -------
        Tensor, shape (replica, n, column)
            Q x with Q orthogonal: ``(Q x)^T (Q y) = x^T y`` holds for every party's x and y, so the
            receiver, who does not know Q, can compute joint second moments. Q is made of blocks
            that are uniform over the orthogonal group.
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
            key = (block, part.shape[1])
            rotation = self._rotations.get(key) if label == "reused" else None
            if rotation is None:
                rotation = self._rotation(label, *key)
                if label == "reused":
                    self._rotations[key] = rotation
            rotated.append(rotation @ part)
        return torch.cat(rotated, 1)

    def _rotation(self, label: str, block: int, size: int) -> Tensor:
        generator = self.streams.numpy_generators(f"rotation|{label}|{size}", block)[0]
        q, r = np.linalg.qr(generator.standard_normal((size, size)))
        # The signs make the distribution exactly uniform (Mezzadri 2007).
        rotation = (q * np.sign(np.diagonal(r))).astype(np.float32)
        return torch.from_numpy(rotation).to(self.streams.device)
