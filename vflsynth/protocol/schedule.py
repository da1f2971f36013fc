"""Schedule: which records and latents every step uses, from a secret shared by the parties."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from vflsynth._random import RandomStreams

ROTATION_SIZE = 256
"""Records that one rotation mixes: the server learns second moments of blocks of this size."""


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
        """Mix records by secret uniform rotations, block by block.

        Parameters
        ----------
        records : Tensor, shape (replica, n, column)
        reuse : bool
            True rotates by the same matrices at every call, which saves making them. The receiver
            then also learns inner products between columns of different calls.

        Returns
        -------
        Tensor, shape (replica, n, column)
            Q x, with Q block diagonal and Haar distributed. ``(Q x)^T (Q y) = x^T y`` holds for
            every party's x and y, so the receiver can compute joint second moments and, not knowing
            Q, nothing else.
        """
        # One rotation for all replicas: several replicas exist only inside one trust domain.
        rotated = []
        for block, part in enumerate(torch.split(records, ROTATION_SIZE, dim=1)):
            size = part.shape[1]
            rotation = self._rotations.get((block, size)) if reuse else None
            if rotation is None:
                rotation = self._rotation("reused" if reuse else "once", block, size)
                if reuse:
                    self._rotations[block, size] = rotation
            rotated.append(rotation @ part)
        return torch.cat(rotated, 1)

    def _rotation(self, label: str, block: int, size: int) -> Tensor:
        generator = self.streams.numpy_generators(f"rotation|{label}|{size}", block)[0]
        q, r = np.linalg.qr(generator.standard_normal((size, size)))
        # The signs make the distribution exactly uniform (Mezzadri 2007).
        rotation = (q * np.sign(np.diagonal(r))).astype(np.float32)
        return torch.from_numpy(rotation).to(self.streams.device)
