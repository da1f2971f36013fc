"""For how many epochs models are trained where the time does not pay for as many as usual."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sklearn.base import clone

from vflsynth.audit.game import chooses_epochs
from vflsynth.audit.shadow import PILOT, Shadows, run_block

logger = logging.getLogger("vflsynth")

_PILOT_SHARE = 0.02  # of the time, per pilot, after which it ends with the epoch
_SLOWEST = 1.5  # epochs of the slowest of a block, beside one that stopped by itself
_PLANNED_SHARE = 0.85  # of the time; what is left of it is what a busy machine may take


@dataclass(frozen=True)
class Shortened:
    """A training that was cut short, of all models alike, to keep to the time.

    `epochs` are at most those of the models that were audited, and of those that taught the
    attackers; `usual` are those that the synthesizer chooses by itself.
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
    shadows: Shadows,
    *,
    n_models: int,
    started: float,
    learning: Callable[[], float],
    alone: int,
) -> tuple[Any, Shortened | None]:
    """Give a synthesizer as many epochs as there is time for, if that is fewer than it chooses.

    Those that have no epochs, or were told how many, stay as they are. Two pilots, a block and a
    model by itself, tell what an epoch costs and what all else; a cache keeps what was chosen. The
    time began to run at `started`, by ``time.perf_counter``; `learning` measures the seconds that
    learning from the models takes afterwards; `alone` counts models that are trained one by one.
    """
    synthesizer, minutes = shadows.synthesizer, shadows.settings.minutes or 0.0
    if not chooses_epochs(synthesizer):
        return synthesizer, None
    stores = [shadows.store(world) for world in shadows.worlds]
    known = stores[0].recall(_NAME)
    if known is not None and known["minutes"] == minutes:
        return _with(synthesizer, int(known["epochs"]), int(known["usual"]))
    n_missing = sum(n_models - len(store.read(n_models)) for store in stores)
    pilot = _Pilot.of(shadows, n_models) if n_missing else None
    if pilot is None:
        return synthesizer, None
    left = _PLANNED_SHARE * 60.0 * minutes - learning() - (time.perf_counter() - started)
    if pilot.cost(pilot.needed, n_missing, alone) <= left:
        return synthesizer, None
    epochs = pilot.affordable(left, n_models * len(shadows.worlds), alone)
    if epochs == pilot.usual:
        return synthesizer, None
    chosen = {"minutes": minutes, "epochs": epochs, "usual": pilot.usual}
    stores[0].remember(_NAME, chosen)
    return _with(synthesizer, epochs, pilot.usual)


@dataclass(frozen=True)
class _Pilot:
    """What a block, and a model by itself, were seen to cost.

    `usual` is the most epochs that the synthesizer chooses, `needed` how many it is taken to need.
    """

    blocks: dict[int, _Cost]
    size: int
    workers: int
    usual: int
    needed: int

    @classmethod
    def of(cls, shadows: Shadows, n_models: int) -> _Pilot | None:
        """Train a block, and a model, for a while; None if nobody may watch their epochs."""
        size, _ = shadows.blocks(n_models)
        seconds = _PILOT_SHARE * 60.0 * (shadows.settings.minutes or 0.0)
        found: dict[int, _Cost] = {}
        for n in sorted({size, 1}, reverse=True):  # what is slow once is in the first
            clock, before = _Clock(seconds), time.perf_counter()
            run_block(*shadows.block(shadows.worlds[0], list(range(n)), [clock]))
            if not clock.ends:
                return None
            spent = time.perf_counter() - before
            found[n] = _Cost(clock.epoch, max(0.0, spent - len(clock.ends) * clock.epoch))
        usual = clock.n_epochs
        # Who stopped by itself has shown how many epochs it takes; in a block the slowest counts.
        slowest = min(usual, math.ceil(_SLOWEST * len(clock.ends)))
        return cls(found, size, shadows.workers, usual, usual if clock.stopped else slowest)

    def cost(self, epochs: int, n_trained: int, alone: int) -> float:
        """Return the seconds of so many models, and of some that are trained one by one."""
        single, whole = self.blocks[1], self.blocks[self.size]
        first = {1: single}  # what `run_shadow_models` trains by itself to look at the time
        if self.size > 1:
            n = min(self.size, PILOT)
            first[n] = single.between(whole, (n - 1) / (self.size - 1))
        begun = alone * single.of(epochs) + sum(block.of(epochs) for block in first.values())
        rest = max(0, n_trained - sum(first))
        return begun + rest * whole.of(epochs) / self.size / self.workers

    def affordable(self, seconds: float, n_trained: int, alone: int) -> int:
        """Return how many epochs there is time for, at least one."""
        none, one = (self.cost(epochs, n_trained, alone) for epochs in (0, 1))
        return max(1, min(self.usual, int((seconds - none) / (one - none))))


_NAME = "shortened"


def _with(synthesizer: Any, epochs: int, usual: int) -> tuple[Any, Shortened]:
    shortened = Shortened(epochs, usual)
    logger.info("%s", shortened)
    return clone(synthesizer).set_params(epochs=epochs), shortened
