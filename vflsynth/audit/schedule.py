"""How many models an audit trains, and for how many epochs, where the time is limited."""

from __future__ import annotations

import logging
import math
import time
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace

from sklearn.base import clone

from vflsynth.audit.game import chooses_epochs
from vflsynth.audit.settings import LEAST_MODELS
from vflsynth.audit.shadow import ShadowRun, Shadows
from vflsynth.exceptions import ParameterError
from vflsynth.reporting import duration_text
from vflsynth.run.loop import Trial

logger = logging.getLogger("vflsynth")

_AT_ONCE = 4  # models that are trained at once to see what a block costs
_LEAST_GROWTH = 0.1  # of a block's time by one more model, as a share of the mean; times err

_PILOT_SHARE = 0.02  # of the time, per pilot, after which it ends with the epoch
_SLOWEST = 1.5  # epochs of the slowest model, beside those of a pilot that stopped by itself
_SHARE_OF_TIME = 0.95  # for models of a known cost: a pilot of four models errs
_PLANNED_SHARE = 0.85  # for epochs; what is left of it is what a busy machine may take

_NAME = "shortened"


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


class Pilot:
    """What the first models of a run took: some at once, and one by itself.

    With `seconds`, trainings that take longer are ended. The other models are kept.
    """

    def __init__(self, run: ShadowRun, seconds: float = math.inf) -> None:
        self._size, self._workers = run.block_size, run.shadows.workers
        self._trials: dict[int, Trial] = {}
        for n in sorted({min(self._size, _AT_ONCE), 1}, reverse=True):  # what is slow once is first
            trial = Trial(seconds)
            if n_trained := run.begin(n, trial, watched=seconds < math.inf):
                self._trials[n_trained] = trial
        self.complete = not any(trial.stopped for trial in self._trials.values())

    @property
    def usual(self) -> int:
        """The most epochs that the synthesizer chooses; 0 if nobody may watch them."""
        return max(trial.n_epochs for trial in self._trials.values())

    @property
    def needed(self) -> int:
        """Epochs that the synthesizer is taken to need."""
        if not self.complete:
            return self.usual
        seen = max(len(trial.taken) for trial in self._trials.values())
        return min(self.usual, math.ceil(_SLOWEST * seen))

    def each(self, epochs: int | None = None) -> float:
        """Return the seconds of a further model, by default as it was trained in the pilot."""
        return seconds_per_model(self.took(epochs), self._size) / self._workers

    def cost(self, epochs: int, n_models: int, alone: int) -> float:
        """Return the seconds of so many models with a pilot, and of some trained one by one."""
        took = self.took(epochs)
        rest = max(0, n_models - sum(took))
        return alone * took[min(took)] / min(took) + sum(took.values()) + rest * self.each(epochs)

    def took(self, epochs: int | None = None) -> dict[int, float]:
        """Return the seconds of its blocks by their size, as they were or with so many epochs."""
        return {
            n: trial.seconds if epochs is None else trial.of(epochs)
            for n, trial in self._trials.items()
        }


def seconds_per_model(took: dict[int, float], size: int) -> float:
    """Return what a model costs in a block of a size, from blocks of one or two other sizes."""
    most = max(took)
    average = took[most] / most
    if len(took) < 2:
        return average
    more = (took[most] - took[1]) / (most - 1)
    more = min(max(more, _LEAST_GROWTH * average), average)
    return more + (took[most] - most * more) / max(size, most)


class Schedule:
    """A run of shadow models that keeps to the minutes of its settings.

    If fewer than `enough` models per world could be trained, all get fewer epochs. Those that have
    no epochs, or were told how many, stay as they are. A cache keeps what was chosen. The time
    began to run at `started`, by ``time.perf_counter``; `learning` measures the seconds that
    learning from so many models per world takes; `alone` counts models that are trained one by one.
    """

    shortened: Shortened | None = None

    def __init__(
        self,
        shadows: Shadows,
        *,
        started: float,
        enough: int,
        learning: Callable[[int], float],
        alone: int,
    ) -> None:
        self.run = ShadowRun(shadows)
        self._started, self._enough, self._alone = started, enough, alone
        self._learning, self._minutes = learning, shadows.settings.minutes
        self._pilot: Pilot | None = None
        if self._minutes is not None and chooses_epochs(shadows.synthesizer):
            self._shorten(self._minutes)

    def train(self, power: Callable[[int], str]) -> ShadowRun:
        """Train as many models as there is time for; say how long it takes if somebody looks on.

        `power` says what so many models per world would find. Raises ParameterError if the minutes
        do not suffice for 10 models per world.
        """
        run, settings = self.run, self.run.shadows.settings
        if run.n_missing() and (self._minutes is not None or settings.verbose > 0):
            learning = self._learning(settings.n_models)
            if self._pilot is None or not self._pilot.complete:
                self._pilot = Pilot(run)
            each = self._pilot.each()
            if self._minutes is not None:
                self._keep_to(self._minutes, each, self._left(_SHARE_OF_TIME) - learning)
            logger.info(
                "%d models per world will take %s more. %s",
                run.n_models,
                f"about {duration_text(run.n_missing() * each + learning)}",
                power(run.n_models),
            )
        run.train()
        return run

    def _left(self, share: float) -> float:
        """Return the seconds that are left of a share of the time."""
        spent = time.perf_counter() - self._started
        return share * 60.0 * (self._minutes or 0.0) - spent

    def _keep_to(self, minutes: float, each: float, seconds: float) -> None:
        """Train only as many models per world as there is time for."""
        run, numbers = self.run, range(LEAST_MODELS, self.run.n_models + 1)
        n_fit = bisect_right(numbers, seconds, key=lambda n: each * run.n_missing(n))
        if not n_fit:
            lacking = each * run.n_missing(LEAST_MODELS) - seconds
            raise ParameterError(
                f"{minutes:g} minutes do not suffice for {LEAST_MODELS} models per world, which "
                f"take about {math.ceil(lacking / 60.0 / _SHARE_OF_TIME + minutes)} here. Allow as "
                "many, ask about fewer targets, use more processes (jobs), or audit a model that "
                "trains faster"
            )
        run.keep_to(numbers[n_fit - 1])

    def _shorten(self, minutes: float) -> None:
        """Give the models as many epochs as there is time for, if they would take more."""
        run, shadows, enough = self.run, self.run.shadows, self._enough
        store = shadows.store(shadows.worlds[0])
        known = store.recall(_NAME)
        if known is not None and known["minutes"] == minutes:
            self._use(Shortened(int(known["epochs"]), int(known["usual"])))
        elif n_missing := run.n_missing(enough):
            self._pilot = pilot = Pilot(run, _PILOT_SHARE * 60.0 * minutes)
            left = self._left(_PLANNED_SHARE) - self._learning(enough)

            def cost(epochs: int, n_models: int = enough * len(shadows.worlds)) -> float:
                return pilot.cost(epochs, n_models, self._alone)

            trained = sum(pilot.took().values()) if pilot.complete else 0.0
            if not pilot.usual or cost(pilot.needed, n_missing) - trained <= left:
                return
            epochs = max(1, bisect_right(range(1, pilot.usual + 1), left, key=cost))
            if epochs < pilot.usual:
                store.remember(_NAME, {"minutes": minutes, "epochs": epochs, "usual": pilot.usual})
                self._use(Shortened(epochs, pilot.usual))

    def _use(self, shortened: Shortened) -> None:
        """Train other models: shorter, and no more than are enough."""
        logger.info("%s", shortened)
        shadows = self.run.shadows
        synthesizer = clone(shadows.synthesizer).set_params(epochs=shortened.epochs)
        settings = replace(shadows.settings, n_models=self._enough)
        self.run = ShadowRun(replace(shadows, synthesizer=synthesizer, settings=settings))
        self.shortened, self._pilot = shortened, None
