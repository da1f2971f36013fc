"""For how many epochs models are trained where the time does not pay for as many as usual."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import joblib
from sklearn.base import clone

from vflsynth.audit.game import World, chooses_epochs
from vflsynth.audit.kept import Store, key_of
from vflsynth.audit.shadow import PILOT, Observer, plan_blocks, run_block

logger = logging.getLogger("vflsynth")

_PILOT_SHARE = 0.02  # of the time, per pilot, after which it ends with the epoch
_SLOWEST = 1.5  # epochs of the slowest of a block, beside one that stopped by itself
_PLANNED_SHARE = 0.85  # of the time; what is left of it is what a busy machine may take


@dataclass(frozen=True)
class Shortened:
    """A training that was cut short, of all models alike, to keep to the time.

    Parameters
    ----------
    epochs : int
        Most epochs of the models that were audited, and of those that taught the attackers.
    usual : int
        Most epochs that the synthesizer chooses by itself.
    """

    epochs: int
    usual: int

    def __str__(self) -> str:
        return (
            f"Models were trained for at most {self.epochs} epochs in place of {self.usual}, those "
            "audited and those of the attackers alike: the time did not pay for more, and a model "
            "that trains for longer may leak more."
        )


class _Clock:
    """Ends a training some seconds after it began, and notes when its epochs ended.

    Two epochs at least, where there are as many: what comes before the first may take longer.
    """

    def __init__(self, seconds: float) -> None:
        self._started, self._seconds = time.perf_counter(), seconds
        self.ends: list[float] = []
        self.n_epochs = 0
        self.stopped = False

    def on_epoch_end(self, state: Any) -> bool:
        """Look at the time."""
        self.n_epochs = state.n_epochs
        self.ends.append(time.perf_counter())
        self.stopped = len(self.ends) > 1 and self.ends[-1] - self._started >= self._seconds
        return self.stopped

    @property
    def epoch(self) -> float:
        """Seconds of an epoch; of an only one with what comes before it."""
        since = [self._started, *self.ends] if len(self.ends) == 1 else self.ends
        return (since[-1] - since[0]) / (len(since) - 1)


@dataclass(frozen=True)
class _Cost:
    """Seconds of a block: of each of its epochs, and of all else."""

    epoch: float
    rest: float

    def of(self, epochs: int) -> float:
        return self.rest + epochs * self.epoch

    def between(self, other: _Cost, share: float) -> _Cost:
        return _Cost(
            self.epoch + share * (other.epoch - self.epoch),
            self.rest + share * (other.rest - self.rest),
        )


def shorten(
    synthesizer: Any,
    worlds: Sequence[World],
    on: Any,
    observer: Observer,
    *,
    n_models: int,
    minutes: float,
    started: float,
    learning: Callable[[], float],
    alone: int,
    pair_seeds: bool,
    random_state: int,
    block_size: int | None,
    n_jobs: int | None,
    cache: str | os.PathLike[str] | None,
) -> tuple[Any, Shortened | None]:
    """Give a synthesizer as many epochs as there is time for, if that is fewer than it chooses.

    Parameters
    ----------
    synthesizer, worlds, on, observer, minutes, started, pair_seeds, random_state, block_size, \
n_jobs
        As in `run_shadow_models`.
    n_models : int
        Models per world that are worth more than longer training.
    learning : callable
        Measures the seconds that learning from the models takes afterwards.
    alone : int
        Further models that are trained one by one.
    cache : path-like, optional
        What was chosen is kept there too: an audit that is continued chooses the same.

    Returns
    -------
    synthesizer
        The same, or a clone with ``epochs``.
    shortened : Shortened or None

    Notes
    -----
    Synthesizers that have no epochs, or were told how many, stay as they are. Two pilots, a block
    and a model by itself, are ended after a fiftieth of the time each, and tell what an epoch costs
    and what all else. A method that stops by itself, as it does in the pilot, is taken to need half
    as many epochs again.
    """
    if not chooses_epochs(synthesizer):
        return synthesizer, None
    stores = [
        Store(cache, key_of(synthesizer, w, on, observer.describe(), pair_seeds, random_state))
        for w in worlds
    ]
    known = stores[0].recall(_NAME)
    if known is not None and known["minutes"] == minutes:
        return _with(synthesizer, int(known["epochs"]), int(known["usual"]))
    n_missing = sum(n_models - len(store.read(n_models)) for store in stores)
    if not n_missing:
        return synthesizer, None
    workers: int = joblib.effective_n_jobs(n_jobs)
    size, _ = plan_blocks(synthesizer, worlds[0], on, block_size, workers, n_models)
    found: dict[int, _Cost] = {}
    usual = 0
    for n in sorted({size, 1}, reverse=True):  # what is slow once is in the first
        clock, before = _Clock(_PILOT_SHARE * 60.0 * minutes), time.perf_counter()
        numbers = list(range(n))
        run_block(synthesizer, worlds[0], on, numbers, numbers, observer, [clock])
        if not clock.ends:  # it has epochs, and nobody may watch them
            return synthesizer, None
        spent = time.perf_counter() - before
        found[n] = _Cost(clock.epoch, max(0.0, spent - len(clock.ends) * clock.epoch))
        usual = clock.n_epochs
    # Who stopped by itself has shown how many epochs it takes; in a block the slowest counts.
    needed = usual if clock.stopped else min(usual, math.ceil(_SLOWEST * len(clock.ends)))
    single = found[1]
    first = {1: single}  # what `run_shadow_models` trains by itself to look at the time
    if size > 1:
        n = min(size, PILOT)
        first[n] = single.between(found[size], (n - 1) / (size - 1))
    left = _PLANNED_SHARE * 60.0 * minutes - learning() - (time.perf_counter() - started)

    def cost(epochs: int, n_trained: int) -> float:
        begun = alone * single.of(epochs) + sum(block.of(epochs) for block in first.values())
        rest = max(0, n_trained - sum(first))
        return begun + rest * found[size].of(epochs) / size / workers

    if cost(needed, n_missing) <= left:
        return synthesizer, None
    n_trained = n_models * len(worlds)
    each = cost(1, n_trained) - cost(0, n_trained)
    epochs = max(1, min(usual, int((left - cost(0, n_trained)) / each)))
    if epochs == usual:
        return synthesizer, None
    stores[0].remember(_NAME, {"minutes": minutes, "epochs": epochs, "usual": usual})
    return _with(synthesizer, epochs, usual)


_NAME = "shortened"


def _with(synthesizer: Any, epochs: int, usual: int) -> tuple[Any, Shortened]:
    shortened = Shortened(epochs, usual)
    logger.info("%s", shortened)
    return clone(synthesizer).set_params(epochs=epochs), shortened
