"""Shadow models: many models of the same kind, trained in blocks, observed, and forgotten."""

from __future__ import annotations

import hashlib
import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import joblib
import numpy as np
import torch

from vflsynth._device import available_memory, few_threads
from vflsynth.adversary.encoding import Floats
from vflsynth.audit.game import World, train, trains_many
from vflsynth.audit.kept import Observation, Store, key_of
from vflsynth.audit.settings import AuditSettings
from vflsynth.exceptions import ParameterError
from vflsynth.reporting import progress_bar, quiet
from vflsynth.run.loop import Trial

logger = logging.getLogger("vflsynth")

BlockResult = tuple[str, Sequence[int], list[Observation], float]

BLOCK_SIZE = 25
"""Models trained at once on a CPU, where the synthesizer can: more gain nothing there."""

_WORKER_MEMORY = 400 * 2**20  # of a process that has imported torch
_USABLE_SHARE = 0.8


class Observer(ABC):
    """What is written down about trained models."""

    keep_discriminators = False
    watch_releases = False

    @abstractmethod
    def describe(self) -> str:
        """Say what is observed; part of the cache's key."""

    @abstractmethod
    def observe(self, model: Any, targets: Sequence[Hashable]) -> Observation:
        """Return named vectors for a model; no other is looked at with it."""


@dataclass(frozen=True, eq=False)
class Shadows:
    """Models to train in some worlds, and what to write down about them; see `game.train`."""

    synthesizer: Any
    worlds: Sequence[World]
    on: Any
    observer: Observer
    settings: AuditSettings

    @property
    def workers(self) -> int:
        """Blocks that are trained at a time."""
        return int(joblib.effective_n_jobs(self.settings.n_jobs))

    def store(self, world: World) -> Store:
        """Return where observations of a world's models are kept."""
        seen, seed = self.observer.describe(), self.settings.random_state
        return Store(self.settings.cache, key_of(self.synthesizer, world, self.on, seen, seed))

    def block(
        self, world: World, numbers: Sequence[int], callbacks: Sequence[Any] = ()
    ) -> tuple[Any, ...]:
        """Return what `run_block` is told of a block; a worker needs no other world."""
        name = int.from_bytes(hashlib.sha256(world.name.encode()).digest()[:4], "little")
        sequences = (
            np.random.SeedSequence(self.settings.random_state, spawn_key=(name, j)) for j in numbers
        )
        seeds = [int(sequence.generate_state(1, np.uint32)[0]) for sequence in sequences]
        return self.synthesizer, world, self.on, seeds, numbers, self.observer, callbacks

    def blocks(self, n_models: int) -> tuple[int, int | None]:
        """Decide on the block size, and estimate the memory of all workers in bytes."""
        asked = self.settings.block_size
        if not trains_many(self.synthesizer):
            return asked or 1, None
        device = getattr(self.synthesizer, "device", "cpu")
        on_gpu = device != "cpu" and torch.cuda.is_available()
        most = n_models if on_gpu else BLOCK_SIZE
        # Equal blocks: 60 models in blocks of 20 rather than of 25, 25 and 10.
        size = asked or math.ceil(n_models / math.ceil(n_models / most))
        if not hasattr(self.synthesizer, "estimate_memory"):
            return size, None
        with quiet():
            one, two = (
                self.synthesizer.estimate_memory(self.worlds[0].party_frames, self.on, n_models=n)
                for n in (1, 2)
            )
        fixed, each = 2 * one - two, two - one
        free = available_memory(torch.device("cpu"))
        if asked is None and free is not None and not on_gpu:
            room = _USABLE_SHARE * free / self.workers - fixed - _WORKER_MEMORY
            size = max(1, min(size, int(room / max(1, each))))
        return size, self.workers * (fixed + size * each + _WORKER_MEMORY)


class ShadowRun:
    """What was observed, what is missing, and what it took.

    `n_models` per world are as many as were asked for, or as the time allowed; `n_trained` of them
    were not in the cache. Seconds so far are wall time, and processor time of all workers; `memory`
    is an estimate for all workers together, in bytes, None if the synthesizer cannot tell. Raises
    ParameterError if a cache is asked for and the synthesizer has no ``get_params``.
    """

    def __init__(self, shadows: Shadows) -> None:
        settings = shadows.settings
        if settings.cache is not None and not hasattr(shadows.synthesizer, "get_params"):
            raise ParameterError(
                "a cache needs a synthesizer with get_params: a function's parameters cannot be "
                "told apart. Leave cache out, or wrap the function in a scikit-learn estimator"
            )
        self.shadows, self.n_models = shadows, settings.n_models
        self._stores = {world.name: shadows.store(world) for world in shadows.worlds}
        self._found = {name: store.read(self.n_models) for name, store in self._stores.items()}
        self.missing = {
            name: [j for j in range(self.n_models) if j not in found]
            for name, found in self._found.items()
        }
        self.block_size, self.memory = shadows.blocks(self.n_models)
        self.seconds, self.cpu_seconds, self.n_trained = 0.0, 0.0, 0

    def n_missing(self, n_models: int | None = None) -> int:
        """Return how many models are to be trained, for so many per world or for all."""
        most = self.n_models if n_models is None else n_models
        return sum(j < most for numbers in self.missing.values() for j in numbers)

    def _keep(self, result: BlockResult) -> int:
        name, numbers, observations, cpu = result
        for j, observation in zip(numbers, observations, strict=True):
            self._stores[name].write(j, observation)
            self._found[name][j] = observation
        self.cpu_seconds += cpu
        self.n_trained += len(numbers)
        return len(numbers)

    def begin(self, n_models: int, trial: Trial, *, watched: bool) -> int:
        """Train the first models of those that are missing, and keep them if the trial lets them.

        It is asked after each epoch if they are `watched`. Returns how many were trained.
        """
        for world in self.shadows.worlds:
            if numbers := self.missing[world.name][:n_models]:
                callbacks = [trial] if watched else []
                result = run_block(*self.shadows.block(world, numbers, callbacks))
                trial.look()
                self.seconds += trial.seconds
                if not trial.stopped:
                    self._keep(result)
                    del self.missing[world.name][:n_models]
                return len(numbers)
        return 0

    def keep_to(self, n_models: int) -> None:
        """Train no more than so many models per world, in blocks that keep every worker busy."""
        self.n_models = n_models
        self.missing = {n: [j for j in js if j < n_models] for n, js in self.missing.items()}
        longest = max(map(len, self.missing.values()))
        self.block_size = min(self.block_size, max(1, math.ceil(longest / self.shadows.workers)))

    def train(self) -> None:
        """Train and keep all that is missing."""
        started = time.perf_counter()
        shadows, verbose = self.shadows, self.shadows.settings.verbose
        estimate = "" if self.memory is None else f", about {self.memory / 2**30:.2f} GiB"
        logger.info(
            "%d shadow models to train, %d at hand; blocks of %d, %d at a time%s",
            self.n_missing(),
            len(shadows.worlds) * self.n_models - self.n_missing(),
            self.block_size,
            shadows.workers,
            estimate,
        )
        tasks = (
            joblib.delayed(run_block)(*shadows.block(world, numbers))
            for world in shadows.worlds
            for numbers in _split(self.missing[world.name], self.block_size)
        )
        with progress_bar(
            total=self.n_missing(),
            desc=f"shadow models{estimate}",
            unit="model",
            disable=verbose < 1 or not self.n_missing(),
        ) as progress:
            for result in _unordered(tasks, shadows.settings.n_jobs):
                progress.update(self._keep(result))
        self.seconds += time.perf_counter() - started

    @property
    def observations(self) -> dict[str, dict[str, Floats]]:
        """What was observed, by world and name, of shape (model, feature)."""
        return {
            name: {
                label: np.stack([of_world[j][label] for j in range(self.n_models)])
                for label in of_world[0]
            }
            for name, of_world in self._found.items()
        }


def _split(numbers: Sequence[int], size: int) -> list[Sequence[int]]:
    """Deal numbers out to as few blocks as their size allows, all about as large."""
    n_blocks = -(-len(numbers) // size)
    ends = [len(numbers) * i // n_blocks for i in range(1, n_blocks + 1)]
    return [numbers[start:end] for start, end in zip([0, *ends], ends)]


def _unordered(tasks: Iterable[Any], n_jobs: int | None) -> Iterable[BlockResult]:
    """Run tasks and yield results as they come, or at the end where the backend cannot (Ray)."""
    try:
        parallel = joblib.Parallel(n_jobs=n_jobs, return_as="generator_unordered")
    except ValueError:
        parallel = joblib.Parallel(n_jobs=n_jobs)
    results: Iterable[BlockResult] = parallel(tasks)
    return results


def run_block(
    synthesizer: Any,
    world: World,
    on: Any,
    random_states: Sequence[int],
    numbers: Sequence[int],
    observer: Observer,
    callbacks: Sequence[Any] = (),
) -> BlockResult:
    """Train and observe one block; runs in a worker."""
    started = time.process_time()
    # Parallel blocks, not parallel operations: the networks are small.
    with few_threads(0.0, torch.device("cpu")):
        with quiet():
            models = train(
                synthesizer,
                world.party_frames,
                on,
                random_states,
                keep_discriminators=observer.keep_discriminators,
                watch_releases=observer.watch_releases,
                callbacks=callbacks,
            )
        observations = [observer.observe(model, world.targets) for model in models]
    return world.name, numbers, observations, time.process_time() - started
