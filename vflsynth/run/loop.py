"""The one training loop, and the callbacks that may watch or stop it."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from vflsynth._signals import handling
from vflsynth.exceptions import TimeLimitError, TrainingDivergedError
from vflsynth.learning.base import Algorithm, Duration
from vflsynth.registry import Number, Rule, check_parameters
from vflsynth.reporting import duration_text, progress_bar, somebody_is_watching

logger = logging.getLogger("vflsynth")

_FEWEST_STEPS, _LEAST_SECONDS, _WORTH_SAYING = 20, 1.0, 10.0
"""Steps, and seconds of them, by which the time is known; shorter trainings are not announced."""

_SOONEST, _LATEST, _SHARE = 10.0, 300.0, 0.1
"""A log gets a line each time a tenth more time has passed, but 10 s at least, at most 300 s."""


@dataclass(frozen=True, slots=True)
class EpochState:
    """What a callback sees at the end of an epoch.

    Parameters
    ----------
    epoch : int
        Epochs finished, from 1.
    n_epochs : int
        Epochs planned.
    steps_per_epoch : int
    record : dict
        The epoch's entry of the history; values per replica are lists.
    """

    epoch: int
    n_epochs: int
    steps_per_epoch: int
    record: dict[str, Any]


class Callback(Protocol):
    """Anything with `on_epoch_end`."""

    def on_epoch_end(self, state: EpochState) -> bool | None:
        """Look at the epoch; return True to stop training after it."""
        ...


class EarlyStopping:
    """Stop when the Fréchet distance has not improved for `patience` evaluations.

    Of models that are trained by likelihood: when the held-out log-likelihood has not.

    With several replicas, all of them must have stopped improving. Every fit counts anew, except
    that a resumed one goes on counting where the same object is passed again.

    Parameters
    ----------
    patience : int
        Evaluations without an improvement; ``evaluate_every`` says how often there is one, which
        GANs have with ``model_selection="best"`` alone.

    Raises
    ------
    ParameterError
        If it is out of range.
    """

    def __init__(self, patience: int) -> None:
        rules: dict[str, Rule] = {"patience": Number(1, whole=True)}
        check_parameters("EarlyStopping", {"patience": patience}, rules)
        self.patience = patience
        self._best: Any = None
        self._waited = 0

    def on_epoch_end(self, state: EpochState) -> bool:
        """Count evaluations without improvement."""
        if state.epoch == 1:
            self._best, self._waited = None, 0
        distance, likelihood = map(state.record.get, ("frechet_distance", "held_out"))
        if distance is None and likelihood is None:
            return False
        values = np.asarray(distance) if likelihood is None else -np.asarray(likelihood)
        if self._best is None or bool(np.any(values < self._best)):
            self._waited = 0
        else:
            self._waited += 1
        self._best = values if self._best is None else np.minimum(self._best, values)
        return self._waited >= self.patience


class Pace:
    """Measures the steps of a training, or its epochs, and tells how long more of them take.

    Parameters
    ----------
    outliers : int, default=0
        How many of the longest steps do not count, as somebody may have waited in them.
    own : bool, default=False
        Leave out the time in which other programs had the processors.

    Attributes
    ----------
    taken : list of float
        Seconds of each step so far. The first prepares things.
    seconds : float
        Of everything up to the last look at the clock.
    """

    def __init__(self, *, outliers: int = 0, own: bool = False) -> None:
        self.taken: list[float] = []
        self.seconds = 0.0
        self._outliers, self._own = outliers, own
        self._clocks = time.perf_counter(), time.process_time()

    def look(self) -> float:
        """Look at the clock, and return the seconds since the last look."""
        clocks = time.perf_counter(), time.process_time()
        wall, own = (now - then for now, then in zip(clocks, self._clocks, strict=True))
        self._clocks, passed = clocks, min(wall, own) if self._own else wall
        self.seconds += passed
        return passed

    def step(self) -> None:
        """Take note that a step is over."""
        self.taken.append(self.look())

    @property
    def each(self) -> float:
        """Seconds of a step after the first; of the first if there is no other."""
        later = sorted(self.taken[1:])
        counted = later[: max(1, len(later) - self._outliers)] or self.taken
        return sum(counted) / len(counted)

    def of(self, n_steps: int) -> float:
        """Return the seconds that so many steps take, with all else that was seen to take time."""
        if not self.taken:
            return self.seconds
        return max(0.0, self.seconds - len(self.taken) * self.each) + n_steps * self.each


class Trial(Pace):
    """A callback that measures epochs, and ends a training after a while.

    Parameters
    ----------
    seconds : float
        After the first epoch. One more is measured at least, where there is one.
    own : bool, default=False
        See `Pace`.

    Attributes
    ----------
    n_epochs : int
        Epochs planned.
    stopped : bool
        Whether it ended the training.
    """

    def __init__(self, seconds: float, *, own: bool = False) -> None:
        super().__init__(own=own)
        self.n_epochs, self.stopped = 0, False
        self._most = seconds

    def on_epoch_end(self, state: EpochState) -> bool:
        """Take note of an epoch; True once the time is over."""
        self.step()
        self.n_epochs = state.n_epochs
        self.stopped = len(self.taken) > 1 and sum(self.taken[1:]) >= self._most
        return self.stopped


class Progress:
    """How far training is: a bar in terminals and notebooks, elsewhere lines in the log.

    `n_epochs` are planned, `done` were finished before a resume.
    """

    def __init__(self, n_epochs: int, *, done: int, phase: str) -> None:
        watched = somebody_is_watching()
        self._bar = progress_bar(
            total=n_epochs,
            initial=done,
            desc=phase,
            unit="epoch",
            disable=not watched,
            dynamic_ncols=True,
        )
        self._logs = not watched
        self._pace, self._spoken = Pace(), 0.0

    def on_epoch_end(self, state: EpochState) -> None:
        """Advance by one epoch."""
        reached = _reached(state.record)
        self._pace.step()
        if self._logs:
            self._say(state, reached)
        if reached:
            self._bar.set_postfix_str(reached, refresh=False)
        self._bar.update(1)

    def _say(self, state: EpochState, reached: str) -> None:
        """Write a line now and then, and at the end."""
        now, n = self._pace.seconds, state.n_epochs
        gap = min(max(_SOONEST, _SHARE * now), _LATEST)
        if now - self._spoken < gap and state.epoch < n:
            return
        parts = [f"epoch {state.epoch:,} of {n:,}", reached]
        if state.epoch == n:
            parts.append("done")
        elif len(self._pace.taken) > 1:
            left = self._pace.each * (n - state.epoch)
            parts.append(f"at most {duration_text(left)} left")
        logger.info("%s", ", ".join(filter(None, parts)))
        self._spoken = now

    def close(self) -> None:
        """Leave the bar as it is and release the line."""
        self._bar.close()


def _reached(record: Mapping[str, Any]) -> str:
    """Say in a few letters what an epoch reached; nothing if it was not evaluated."""
    if (distance := record.get("frechet_distance")) is not None:
        return f"FD {np.mean(distance):.3g}"
    if (likelihood := record.get("held_out")) is not None:
        return f"{np.mean(likelihood):.2f} nats"
    loss = next((v for k, v in record.items() if "loss" in k or "wasserstein" in k), None)
    return "" if loss is None else f"loss {np.mean(loss):.3g}"


class _Limit:
    """Says how long training takes, by its first steps, and refuses what nobody agreed to wait for.

    `n_steps` are left; without steps these are epochs.
    """

    def __init__(self, n_steps: int, most_hours: float | None) -> None:
        self._n_steps, self._most, self._said = n_steps, most_hours, False
        self._pace = Pace(outliers=1)

    def step(self, *, last: bool) -> None:
        """Take note that a step is over, and whether it was an epoch's `last`.

        Raises TimeLimitError as soon as the time is known.
        """
        if self._said:
            return
        pace = self._pace
        pace.step()
        n_taken = len(pace.taken)
        few = n_taken <= _FEWEST_STEPS or sum(pace.taken[1:]) < _LEAST_SECONDS
        if n_taken < 2 or (few and not last):
            return
        self._said, seconds = True, pace.of(self._n_steps)
        text = f"about {duration_text(seconds)} on this machine"
        if seconds > _WORTH_SAYING:
            logger.info("all epochs take %s", text)
        if self._most is not None and seconds > 3600 * self._most:
            raise TimeLimitError(
                f"training takes {text}: {self._n_steps - n_taken:,} further steps of "
                f"{1000 * pace.each:.0f} ms, and {self._most:g} hours are allowed. Fix: train "
                "fewer epochs or a smaller model, draw fewer records (max_records), or raise "
                "most_hours"
            )


def run(
    algorithm: Algorithm,
    duration: Duration,
    history: list[dict[str, Any]],
    callbacks: Sequence[Callback],
    done: int = 0,
    most_hours: float | None = None,
) -> bool:
    """Train from epoch `done` on; return True if Ctrl-C stopped the run between two steps.

    The history gets a record per epoch, in which tensors of shape (replica,) are lists; then
    callbacks are called in order. Raises TimeLimitError if the first steps tell that training
    takes more hours than these.
    """
    limit = _Limit((duration.n_epochs - done) * max(1, duration.steps_per_epoch), most_hours)
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
                limit.step(last=(step + 1) % duration.steps_per_epoch == 0)
                if interrupted.is_set():
                    return True
            values: dict[str, Any] = {"epoch": epoch, **algorithm.report(epoch)}
            _check_finite(values, epoch, algorithm.advice)
            due = epoch % duration.evaluate_every == 0 or epoch == duration.n_epochs
            values |= algorithm.end_epoch(epoch, evaluate=due)
            values["seconds"] = time.perf_counter() - started
            history.append(
                {k: v.tolist() if isinstance(v, Tensor) else v for k, v in values.items()}
            )
            if not duration.steps_per_epoch:
                limit.step(last=True)
            state = EpochState(epoch, duration.n_epochs, duration.steps_per_epoch, history[-1])
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
                f"training diverged in epoch {epoch}: {name} is not finite. {advice}"
            )


@contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C into a flag that is read between steps; a second one raises."""
    flag, previous = threading.Event(), signal.getsignal(signal.SIGINT)

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, previous)
        flag.set()

    with handling(signal.SIGINT, on_interrupt):
        yield flag
