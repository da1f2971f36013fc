"""The one training loop: steps, epochs, history, callbacks. No losses, no devices."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from vflsynth.exceptions import TrainingDivergedError
from vflsynth.learning.base import Algorithm, Duration
from vflsynth.run.callbacks import Callback, EpochState
from vflsynth.run.history import History


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
