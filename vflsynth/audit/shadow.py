"""Shadow models: many models of the same kind, trained in blocks, observed, and forgotten."""

from __future__ import annotations

import hashlib
import logging
import math
import os
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import joblib
import numpy as np
import torch
from tqdm import tqdm

from vflsynth._device import available_memory
from vflsynth.adversary.encoding import Floats
from vflsynth.audit.game import World, train, trains_many
from vflsynth.audit.kept import Observation, Store, key_of
from vflsynth.exceptions import ParameterError

logger = logging.getLogger("vflsynth")

BlockResult = tuple[str, Sequence[int], list[Observation], float]

BLOCK_SIZE = 25
"""Models trained at once on a CPU, where the synthesizer can: more gain nothing there."""

LEAST_MODELS = 10
"""Models per world without which nothing can be said."""

PILOT = 4
"""Models that are trained at once to see what a block costs."""

_SHARE_OF_TIME = 0.95  # a pilot of four models errs

_LEAST_GROWTH = 0.1  # of a block's time by one more model, as a share of the mean; times err
_WORKER_MEMORY = 400 * 2**20  # of a process that has imported torch
_USABLE_SHARE = 0.8


class Observer(Protocol):
    """What is written down about trained models."""

    keep_discriminators: bool

    def describe(self) -> str:
        """Say what is observed; part of the cache's key."""

    def observe(self, models: Sequence[Any], targets: Sequence[Hashable]) -> list[Observation]:
        """Return named vectors for each of the models, all trained on the same frames."""


@dataclass(frozen=True)
class ShadowRun:
    """What was observed, and what it took.

    Parameters
    ----------
    n_models : int
        Per world: as many as were asked for, or as the time allowed.
    observations : dict of world name to dict of str to ndarray, shape (model, feature)
    n_trained : int
        Models that were not in the cache.
    seconds, cpu_seconds : float
        Wall time, and processor time of all workers.
    block_size : int
    memory : int or None
        Estimate for all workers together, in bytes; None if the synthesizer cannot tell.
    """

    n_models: int
    observations: dict[str, dict[str, Floats]]
    n_trained: int
    seconds: float
    cpu_seconds: float
    block_size: int
    memory: int | None


def run_shadow_models(
    synthesizer: Any,
    worlds: Sequence[World],
    on: Any,
    observer: Observer,
    *,
    n_models: int,
    minutes: float | None = None,
    started: float | None = None,
    power: Callable[[int], str] = lambda _: "",
    learning: float = 0.0,
    pair_seeds: bool = False,
    random_state: int = 0,
    block_size: int | None = None,
    n_jobs: int | None = None,
    cache: str | os.PathLike[str] | None = None,
    verbose: int = 1,
) -> ShadowRun:
    """Train `n_models` models in every world and observe them.

    Parameters
    ----------
    synthesizer, on
        See `vflsynth.audit.game.train`.
    worlds : sequence of World
    observer : Observer
    n_models, minutes, pair_seeds, block_size, n_jobs, verbose
        As in `audit_synthetic_data`.
    started : float, optional
        When the time began to run, by ``time.perf_counter``. Default: now.
    power : callable, optional
        Says what so many models per world would find.
    learning : float, default=0.0
        Seconds that learning from the models takes afterwards.
    random_state : int, default=0
        Model j of a world gets the same seed whatever the blocks, workers and other worlds are.
    cache : path-like, optional
        Directory where the observations of each model are kept, never a model or a record. A run
        that was interrupted continues there; a longer one adds to it.

    Returns
    -------
    ShadowRun

    Raises
    ------
    ParameterError
        If a cache is asked for and the synthesizer has no ``get_params``, or `minutes` do not
        suffice for 10 models per world.

    Notes
    -----
    How long it will take is said after a pilot where somebody looks on or the time is limited: four
    models at once and then one tell what a block costs and what each model in it.
    """
    if cache is not None and not hasattr(synthesizer, "get_params"):
        raise ParameterError(
            "a cache needs a synthesizer with get_params: a function's parameters cannot be told "
            "apart. Leave cache out, or wrap the function in a scikit-learn estimator"
        )
    now = time.perf_counter()
    started = now if started is None else started
    stores, found, missing = {}, {}, {}
    for world in worlds:
        key = key_of(synthesizer, world, on, observer.describe(), pair_seeds, random_state)
        stores[world.name] = Store(cache, key)
        found[world.name] = stores[world.name].read(n_models)
        missing[world.name] = [j for j in range(n_models) if j not in found[world.name]]
    n_missing = sum(map(len, missing.values()))
    workers = joblib.effective_n_jobs(n_jobs)
    size, memory = plan_blocks(synthesizer, worlds[0], on, block_size, workers, n_models)
    cpu_seconds, n_trained = 0.0, 0

    def keep(result: BlockResult) -> int:
        nonlocal cpu_seconds, n_trained
        name, numbers, observations, cpu = result
        for j, observation in zip(numbers, observations, strict=True):
            stores[name].write(j, observation)
            found[name][j] = observation
        cpu_seconds, n_trained = cpu_seconds + cpu, n_trained + len(numbers)
        return len(numbers)

    def seeds(world: World, numbers: Sequence[int]) -> list[int]:
        name = "any world" if pair_seeds else world.name
        return [_seed(random_state, name, j) for j in numbers]

    first = next((world for world in worlds if missing[world.name]), None)
    if first is not None and (minutes is not None or verbose > 0):
        took = {}
        for n in sorted({min(size, PILOT), 1}, reverse=True):  # what is slow once is in the first
            pilot, missing[first.name] = missing[first.name][:n], missing[first.name][n:]
            if pilot:
                before = time.perf_counter()
                keep(run_block(synthesizer, first, on, seeds(first, pilot), pilot, observer))
                took[len(pilot)] = time.perf_counter() - before
        each = _seconds_per_model(took, size) / workers
        if minutes is not None:
            left = _SHARE_OF_TIME * 60.0 * minutes - learning - (time.perf_counter() - started)
            n_models = _affordable(n_models, list(missing.values()), each, left, minutes)
            missing = {name: [j for j in js if j < n_models] for name, js in missing.items()}
            # Blocks of which every worker gets as many.
            size = min(size, max(1, math.ceil(max(map(len, missing.values())) / workers)))
        n_missing = sum(map(len, missing.values()))
        logger.info(
            "%d models per world will take %s more. %s",
            n_models,
            _duration(n_missing * each + learning),
            power(n_models),
        )
    blocks = [(world, block) for world in worlds for block in _split(missing[world.name], size)]
    estimate = "" if memory is None else f", about {memory / 2**30:.2f} GiB"
    logger.info(
        "%d shadow models to train, %d at hand; blocks of %d, %d at a time%s",
        n_missing,
        len(worlds) * n_models - n_missing,
        size,
        workers,
        estimate,
    )
    tasks = (
        joblib.delayed(run_block)(
            synthesizer,
            world,
            on,
            seeds(world, numbers),
            numbers,
            observer,
        )
        for world, numbers in blocks
    )
    with tqdm(
        total=n_missing,
        desc=f"shadow models{estimate}",
        unit="model",
        disable=verbose < 1 or not n_missing,
    ) as progress:
        for result in _unordered(tasks, n_jobs):
            progress.update(keep(result))
    return ShadowRun(
        n_models,
        {
            name: {
                label: np.stack([of_world[j][label] for j in range(n_models)])
                for label in of_world[0]
            }
            for name, of_world in found.items()
        },
        n_trained,
        time.perf_counter() - now,
        cpu_seconds,
        size,
        memory,
    )


def _split(numbers: Sequence[int], size: int) -> list[Sequence[int]]:
    """Deal numbers out to as few blocks as their size allows, all about as large."""
    n_blocks = -(-len(numbers) // size)
    ends = [len(numbers) * i // n_blocks for i in range(1, n_blocks + 1)]
    return [numbers[start:end] for start, end in zip([0, *ends], ends)]


def _seconds_per_model(took: Mapping[int, float], size: int) -> float:
    """Return what a model costs in a block of a size, from blocks of one or two other sizes."""
    most = max(took)
    average = took[most] / most
    if len(took) < 2:
        return average
    more = (took[most] - took[1]) / (most - 1)
    more = min(max(more, _LEAST_GROWTH * average), average)
    return more + (took[most] - most * more) / max(size, most)


def _affordable(
    n_models: int, missing: Sequence[Sequence[int]], each: float, seconds: float, minutes: float
) -> int:
    """Return how many models per world there is time for."""

    def cost(n: int) -> float:
        return each * sum(sum(j < n for j in numbers) for numbers in missing)

    most = max((n for n in range(LEAST_MODELS, n_models + 1) if cost(n) <= seconds), default=None)
    if most is None:
        needed = (cost(LEAST_MODELS) - seconds) / 60.0 / _SHARE_OF_TIME + minutes
        raise ParameterError(
            f"minutes={minutes:g} does not suffice for {LEAST_MODELS} models per world, which "
            f"would take about {math.ceil(needed)} minutes. Allow as many, ask about fewer "
            "targets, use more processes with n_jobs, or audit a model that trains faster"
        )
    return most


def _duration(seconds: float) -> str:
    """Say how long something takes, roughly."""
    if seconds < 90.0:
        return f"about {max(1, round(seconds))} s"
    if seconds < 5400.0:
        return f"about {round(seconds / 60.0)} minutes"
    return f"about {seconds / 3600.0:.1f} hours"


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
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # parallel blocks, not parallel operations: the networks are small
    try:
        with quiet():
            models = train(
                synthesizer,
                world.party_frames,
                on,
                random_states,
                keep_discriminators=observer.keep_discriminators,
                callbacks=callbacks,
            )
        observations = observer.observe(models, world.targets)
        return world.name, numbers, observations, time.process_time() - started
    finally:
        torch.set_num_threads(threads)


@contextmanager
def quiet() -> Iterator[None]:
    """Log warnings only: what hundreds of fits say of themselves is of no interest."""
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def _seed(random_state: int, world: str, number: int) -> int:
    """Seed of a shadow model: a function of nothing but these."""
    world_number = int.from_bytes(hashlib.sha256(world.encode()).digest()[:4], "little")
    sequence = np.random.SeedSequence(random_state, spawn_key=(world_number, number))
    return int(sequence.generate_state(1, np.uint32)[0])


def plan_blocks(
    synthesizer: Any,
    world: World,
    on: Any,
    block_size: int | None,
    workers: int,
    n_models: int,
) -> tuple[int, int | None]:
    """Decide on the block size, and estimate the memory of all workers."""
    if not trains_many(synthesizer):
        return block_size or 1, None
    on_gpu = getattr(synthesizer, "device", "cpu") != "cpu" and torch.cuda.is_available()
    most = n_models if on_gpu else BLOCK_SIZE
    # Equal blocks: 60 models in blocks of 20 rather than of 25, 25 and 10.
    size = block_size or math.ceil(n_models / math.ceil(n_models / most))
    if not hasattr(synthesizer, "estimate_memory"):
        return size, None
    with quiet():
        one, two = (synthesizer.estimate_memory(world.party_frames, on, n_models=n) for n in (1, 2))
    fixed, each = 2 * one - two, two - one
    free = available_memory(torch.device("cpu"))
    if block_size is None and free is not None and not on_gpu:
        room = _USABLE_SHARE * free / workers - fixed - _WORKER_MEMORY
        size = max(1, min(size, int(room / max(1, each))))
    return size, workers * (fixed + size * each + _WORKER_MEMORY)
