"""The one training loop: steps, epochs, callbacks and the history they leave. No losses."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vflsynth.exceptions import TrainingDivergedError
from vflsynth.learning.base import Algorithm, Duration
from vflsynth.run.callbacks import Callback, EpochState


class History:
    """Losses, distances and times of every epoch, for every replica.

    Parameters
    ----------
    n_replicas : int
    """

    def __init__(self, n_replicas: int) -> None:
        self.n_replicas = n_replicas
        self.records: list[dict[str, Any]] = []

    def append(self, values: Mapping[str, float | int | Tensor]) -> None:
        """Add an epoch; tensors of shape (replica,) become lists."""
        self.records.append(
            {k: v.tolist() if isinstance(v, Tensor) else v for k, v in values.items()}
        )

    def to_frame(self, replica: int = 0) -> pd.DataFrame:
        """Return one row per epoch for one replica, indexed by epoch.

        The column ``chosen`` marks the epoch whose generators were kept.
        """
        rows = [
            {k: v[replica] if isinstance(v, list) else v for k, v in record.items()}
            for record in self.records
        ]
        frame = pd.DataFrame(rows)
        if frame.empty:
            return frame
        frame = frame.set_index("epoch")
        kept = np.flatnonzero(frame.pop("kept").to_numpy(dtype=bool))
        chosen = np.zeros(len(frame), dtype=bool)
        if len(kept):
            chosen[kept[-1]] = True
        frame["chosen"] = chosen
        return frame


def history_to_json(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a history frame as JSON-safe records; what is missing becomes None."""
    plain = frame.reset_index().astype(object)
    records: list[dict[str, Any]] = plain.where(plain.notna(), None).to_dict("records")  # type: ignore[assignment]
    return records


def history_from_json(records: list[dict[str, Any]]) -> pd.DataFrame:
    """Undo `history_to_json`."""
    frame = pd.DataFrame(records)
    return frame.set_index("epoch") if len(frame) else frame


def run(
    algorithm: Algorithm,
    duration: Duration,
    history: History,
    callbacks: Sequence[Callback],
    done: int = 0,
) -> bool:
    """Train from epoch `done` on.

    Parameters
    ----------
    algorithm : Algorithm
    duration : Duration
    history : History
        Extended by one record per epoch.
    callbacks : sequence of Callback
        Called in order after every epoch.
    done : int, default=0
        Epochs finished before.

    Returns
    -------
    bool
        True if Ctrl-C stopped the run between two steps.
    """
    with _interruptible() as interrupted:
        algorithm.begin()
        for epoch in range(done + 1, duration.n_epochs + 1):
            if algorithm.finished:
                break
            started = time.perf_counter()
            for step in range(
                (epoch - 1) * duration.steps_per_epoch, epoch * duration.steps_per_epoch
            ):
                algorithm.step(step)
                if interrupted.is_set():
                    return True
            values: dict[str, Any] = {"epoch": epoch, **algorithm.report(epoch)}
            _check_finite(values, epoch, algorithm.advice)
            due = epoch % duration.evaluate_every == 0 or epoch == duration.n_epochs
            values |= algorithm.end_epoch(epoch, evaluate=due)
            values["seconds"] = time.perf_counter() - started
            history.append(values)
            state = EpochState(
                epoch, duration.n_epochs, duration.steps_per_epoch, history.records[-1]
            )
            stops = [callback.on_epoch_end(state) for callback in callbacks]  # all see the epoch
            if any(stops):
                break
            if interrupted.is_set():
                return True
    return False


def _check_finite(values: Mapping[str, object], epoch: int, advice: str) -> None:
    for name, value in values.items():
        if isinstance(value, Tensor) and not bool(torch.isfinite(value).all()):
            raise TrainingDivergedError(
                f"training diverged in epoch {epoch}: {name} is not finite. {advice}; "
                "`resume` continues from the last checkpoint"
            )


@contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C into a flag that is read between steps; a second one raises."""
    flag = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield flag  # signals reach the main thread only
        return

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, previous)
        flag.set()

    previous = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield flag
    finally:
        signal.signal(signal.SIGINT, previous)
