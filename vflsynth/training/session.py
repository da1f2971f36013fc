"""A session: parties, server and algorithm of one run in one process, for R replicas."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vflsynth._artefacts import check_target
from vflsynth._device import few_threads
from vflsynth._random import RandomStreams, derive
from vflsynth._version import __version__
from vflsynth._warnings import warn_user
from vflsynth.exceptions import ParameterError
from vflsynth.parties import TrainableParty
from vflsynth.protocol import Schedule
from vflsynth.training.algorithm import Algorithm
from vflsynth.training.callbacks import Callback, Progress
from vflsynth.training.checkpoint import KIND as CHECKPOINT
from vflsynth.training.checkpoint import Checkpointer, load_checkpoint
from vflsynth.training.history import History
from vflsynth.training.loop import Plan, run

logger = logging.getLogger("vflsynth")


class Session:
    """One run: has every network built, trains, and holds what training leaves.

    Parameters
    ----------
    parties : sequence of TrainableParty
        Matched and prepared.
    build : callable
        Called with the schedule that the parties share and the root of all random streams; builds
        the parties' networks and returns the algorithm.
    plan : Plan
    settings : mapping
        What the run depends on, with at least ``batch_size``, and ``latent_dim`` if latents are
        drawn; can be written as JSON.
    secrets : sequence of bytes
        One per replica; every stream of random numbers derives from it.
    n_records : int
        Training records per replica.
    replica_rows : Tensor of int64, shape (replica, n_records), optional
    device : torch.device
    make_schedule : callable, default=Schedule
        Called with what `Schedule` takes.
    """

    def __init__(
        self,
        parties: Sequence[TrainableParty],
        build: Callable[[Schedule, RandomStreams], Algorithm],
        plan: Plan,
        *,
        settings: Mapping[str, Any],
        secrets: Sequence[bytes],
        n_records: int,
        replica_rows: Tensor | None,
        device: torch.device,
        make_schedule: Callable[..., Schedule] = Schedule,
    ) -> None:
        self.parties = {party.name: party for party in parties}
        self.settings, self.plan = settings, plan
        self.secrets, self.device = secrets, device
        streams = RandomStreams(secrets, device)
        schedule = make_schedule(
            # The server never gets this one: it would know which record is in which batch.
            streams.child("shared by the parties"),
            n_records=n_records,
            batch_size=settings["batch_size"],
            latent_dim=settings.get("latent_dim", 0),
            replica_rows=None if replica_rows is None else replica_rows.to(device),
        )
        self.algorithm = build(schedule, streams)
        self.history = History(len(secrets))
        self._n_records = n_records

    def train(
        self,
        multiply_adds: float,
        *,
        callbacks: Sequence[Callback],
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: int = 1,
        resume: str | os.PathLike[str] | None = None,
        verbose: bool,
    ) -> bool:
        """Train to the end of the plan, or until stopped; warn and return True if Ctrl-C did it.

        Parameters
        ----------
        multiply_adds : float
            Of the largest layer, over all replicas: decides the number of threads.
        callbacks : sequence of Callback
        checkpoint, resume : path-like, optional
        checkpoint_every : int, default=1
            Epochs.
        verbose : bool
            Whether to show progress.
        """
        done = 0
        fingerprint = {} if checkpoint is None and resume is None else self.fingerprint()
        if resume is not None:
            done = load_checkpoint(resume, fingerprint, self.algorithm, self.parties, self.history)
        if checkpoint is not None:
            check_target(checkpoint, CHECKPOINT)
        logger.info("training %d model(s) on %s", len(self.secrets), self.device)
        progress = Progress(
            self.plan.n_epochs, done=done, phase=f"training on {self.device}", enabled=verbose
        )
        watchers: list[Callback] = [progress, *callbacks]
        if checkpoint is not None:
            watchers.append(
                Checkpointer(
                    checkpoint,
                    checkpoint_every,
                    fingerprint,
                    self.algorithm,
                    self.parties,
                    self.history,
                )
            )
        with few_threads(multiply_adds, self.device):
            try:
                interrupted = run(self.algorithm, self.plan, self.history, watchers, done)
            finally:
                progress.close()
            done = len(self.history.records)
            self.algorithm.end(done)
        if interrupted:
            what = "the model so far was kept" if done else "no epoch was finished: nothing to keep"
            warn_user(
                f"training was interrupted in epoch {done + 1} of {self.plan.n_epochs}; {what}",
                RuntimeWarning,
            )
        return interrupted

    def fingerprint(self) -> Mapping[str, Any]:
        """Return what must be equal for a checkpoint to be continued, JSON-safe."""
        secrets = [derive(secret, "fingerprint") for secret in self.secrets]
        return {
            "version of vflsynth": __version__,
            "algorithm": type(self.algorithm).__name__,
            "random_state": [secret.hex()[:16] for secret in secrets],
            "n_records": self._n_records,
            "encoded widths": {p.name: p.transformer.width_ for p in self.parties.values()},
            "records": {p.name: p.digest(secrets[0])[:16] for p in self.parties.values()},
            **self.settings,
            **self.algorithm.fingerprint(),
            "epochs": self.plan.n_epochs,
            "evaluate_every": self.plan.evaluate_every,
        }


def check_replica_rows(replica_rows: npt.ArrayLike | None, replicas: int, n: int) -> Tensor | None:
    """Check the positions that each replica trains on, int64 (replica, record); None is all.

    Raises
    ------
    ParameterError
    """
    if replica_rows is None:
        return None
    rows = np.asarray(replica_rows)
    if rows.ndim != 2 or len(rows) != replicas or not np.issubdtype(rows.dtype, np.integer):
        raise ParameterError(
            f"replica_rows must be whole numbers of shape ({replicas}, record), got {rows.dtype} "
            f"of shape {rows.shape}"
        )
    if rows.size == 0 or rows.min() < 0 or rows.max() >= n:
        raise ParameterError(f"replica_rows must lie between 0 and {n - 1}")
    return torch.from_numpy(rows.astype(np.int64))
