"""Marvell: leak of one message against test AUC over the power of the noise; speed of a message.

    VFLSYNTH_DATA=... python benchmarks/split_marvell.py

The cut is 16 wide and linear. Marvell, isotropic noise and max-norm, one training for all. The leak
is the 95 % quantile over batches, as in the paper.
"""

from __future__ import annotations

import time
import timeit
from typing import Any

import numpy as np
import torch
from _split import (
    DATASETS,
    NumbersTable,
    arguments,
    leak_summaries,
    splits,
    spread,
    test_auc,
    write,
)

from vflsynth._random import RandomStreams
from vflsynth.splitdefense import (
    Isotropic,
    LeakageMonitor,
    Marvell,
    MaxNorm,
    Protection,
    SplitNNClassifier,
)
from vflsynth.splitdefense.protections import Context, Draws


def curves() -> dict[str, Protection | None]:
    """Return the points of the curves."""
    points: dict[str, Protection | None] = {"none": None, "max-norm": MaxNorm()}
    points |= {f"Marvell {s:g}": Marvell(s) for s in (0.1, 0.25, 1.0, 4.0, 16.0, 64.0)}
    points |= {f"isotropic {t:g}": Isotropic(t) for t in (0.25, 1.0, 4.0, 25.0, 100.0)}
    return points


def milliseconds() -> dict[str, float]:
    """Time to protect one batch of 1028 records, on one core, best of several."""
    labels = (torch.rand(1, 1028) < 0.4).long()
    found = {}
    for dim in (1, 16, 128):
        gradients = torch.randn(1, 1028, dim) + labels.unsqueeze(-1)
        streams, memory, steps = RandomStreams([b"speed"]), {}, iter(range(10**9))

        def protect(gradients=gradients, streams=streams, memory=memory, steps=steps) -> None:
            context = Context(labels, 2, Draws(streams, next(steps)), memory)
            Marvell(4.0).protect(gradients, context)

        best = min(timeit.repeat(protect, number=50, repeat=7)) / 50
        found[f"1028 x {dim}"] = round(1e3 * best, 3)
    return found


def main() -> None:
    """Train, attack, time."""
    options = arguments(__doc__.splitlines()[0], dataset="spambase", seeds=3, epochs=100)
    start = time.perf_counter()
    table, y = DATASETS[options.dataset]()
    seeds = list(range(options.seeds))
    train, test = splits(len(y), seeds)
    frames, points = {"party": table}, curves()
    models = SplitNNClassifier(
        intermediate_dim=16,
        batch_size=1028,
        learning_rate=5e-4,
        epochs=options.epochs,
        monitor=LeakageMonitor(every=3),
        transformer=NumbersTable(spike_share=None, rare_threshold=0.0),
        device="cpu",
    ).fit_replicas(
        frames,
        y,
        random_states=[seed for _ in points for seed in seeds],
        parameters=[{"protection": point} for point in points.values() for _ in seeds],
        replica_rows=np.concatenate([train] * len(points)),
    )
    results: dict[str, Any] = {"milliseconds per message": milliseconds()}
    for i, name in enumerate(points):
        mine = models[i * len(seeds) : (i + 1) * len(seeds)]
        leaks = [leak_summaries(m.evidence_["party"].batches)["q95"] for m in mine]
        results[name] = {
            "test AUC": spread([test_auc(m, frames, y, t) for m, t in zip(mine, test)]),
            **{f"q95 {attack}": spread([leak[attack] for leak in leaks]) for attack in leaks[0]},
        }
        print(name, {k: v["mean"] for k, v in results[name].items()}, flush=True)
    print(results["milliseconds per message"])
    write(
        options.output,
        f"split_marvell_{options.dataset}",
        vars(options) | {"output": ""},
        results,
        start,
    )


if __name__ == "__main__":
    main()
