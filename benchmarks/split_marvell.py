"""Marvell: leak of one message against test AUC over the power of the noise; what it costs.

    VFLSYNTH_DATA=... python -m benchmarks.split_marvell curves   # trains everything at once
    python -m benchmarks.split_marvell speed                      # protection, solver, monitor
    python -m benchmarks.split_marvell show

The cut is 16 wide and linear, columns are standardised. Marvell, isotropic noise and max-norm. The
leak is the 95 % quantile over batches, as in the paper. ``show`` prints the curves and, at equal
test AUC, which of Marvell and isotropic noise leaks less; ``curves`` draws them too.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
import timeit
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from benchmarks import _runs
from benchmarks._split import (
    FOLDER,
    TABLES,
    cell,
    divided,
    held_out_auc,
    numbers,
    read,
    splits,
    spread,
    spreads,
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
from vflsynth.splitdefense.leakage.report import summarise
from vflsynth.splitdefense.marvell_solver import solve_noise_variances
from vflsynth.splitdefense.protections import Context, Draws
from vflsynth.training import EpochState

MARVELL = (0.1, 0.25, 1.0, 4.0, 16.0, 64.0)
ISOTROPIC = (0.25, 1.0, 4.0, 25.0, 100.0)

# Test AUC; 95 % quantile of norm and cosine leak. The prototype's, cut of 16.
PROTOTYPE = {
    "Marvell 1": (0.971, 0.68, 0.77),
    "Marvell 4": (0.969, 0.58, 0.67),
    "max-norm": (0.965, 0.58, 0.91),
    "isotropic 1": (0.970, 0.66, 1.00),
    "isotropic 25": (0.959, 0.57, 0.76),
}


def main() -> None:
    """Train, time or show."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("curves", "speed", "show"))
    parser.add_argument("--data", choices=TABLES, default="spambase")
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=100)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.action == "curves":
        path = FOLDER / f"marvell.{arguments.data}.{arguments.width}.json"
        _runs.write(
            path, curves(arguments.data, arguments.width, arguments.seeds, arguments.epochs)
        )
        picture = FOLDER / "marvell.curves.svg"
        draw(recorded()).savefig(picture, metadata={"Date": None})
    elif arguments.action == "speed":
        result = {
            "milliseconds per message": milliseconds(),
            "microseconds per solution": microseconds(),
            "cost of the monitor": cost_of_the_monitor(),
            **_runs.environment(),
        }
        _runs.write(FOLDER / "marvell.speed.json", result)
        show_speed(result)
    else:
        show()


def points() -> dict[str, Protection | None]:
    """Return the points of the curves."""
    return {
        "none": None,
        "max-norm": MaxNorm(),
        **{f"Marvell {s:g}": Marvell(s) for s in MARVELL},
        **{f"isotropic {t:g}": Isotropic(t) for t in ISOTROPIC},
    }


def curves(data: str, width: int, n_seeds: int, epochs: int) -> dict[str, Any]:
    """Train every point with every seed, all at once."""
    table, y = TABLES[data]()
    seeds = list(range(n_seeds))
    train, test = splits(len(y), seeds)
    frames, wanted = divided(table, 1), points()
    started = time.perf_counter()
    models = SplitNNClassifier(
        intermediate_dim=width,
        batch_size=1028,
        learning_rate=5e-4,
        epochs=epochs,
        monitor=LeakageMonitor(every=3),
        transformer=numbers(),
        device="cpu",
    ).fit_replicas(
        frames,
        y,
        random_states=[seed for _ in wanted for seed in seeds],
        parameters=[{"protection": point} for point in wanted.values() for _ in seeds],
        replica_rows=np.concatenate([train] * len(wanted)),
    )
    seconds = time.perf_counter() - started
    rows = {}
    for i, name in enumerate(wanted):
        mine = models[i * n_seeds : (i + 1) * n_seeds]
        leaks = [
            summarise(next(iter(model.evidence_.values())).batches)["q95"].to_dict()
            for model in mine
        ]
        test_aucs = [held_out_auc(m, frames, y, rows) for m, rows in zip(mine, test)]
        rows[name] = {"test AUC": spread(test_aucs), **spreads(leaks)}
    return {
        "data": data,
        "width": width,
        "seeds": seeds,
        "epochs": epochs,
        "q95": rows,
        "seconds": round(seconds, 1),
        **_runs.environment(),
    }


def milliseconds() -> dict[str, float]:
    """Time to protect one batch of 1028 records, best of several, in milliseconds."""
    labels = (torch.rand(1, 1028) < 0.4).long()
    found = {}
    for dim in (1, 16, 128):
        gradients = torch.randn(1, 1028, dim) + labels.unsqueeze(-1)
        streams, steps = RandomStreams([b"speed"]), itertools.count()
        memory: dict[str, torch.Tensor] = {}

        def protect(
            gradients: torch.Tensor = gradients,
            streams: RandomStreams = streams,
            memory: dict[str, torch.Tensor] = memory,
            steps: Iterator[int] = steps,
        ) -> None:
            context = Context(labels, 2, Draws(streams, next(steps)), memory)
            Marvell(4.0).protect(gradients, context)

        found[f"1028 x {dim}"] = round(
            1e3 * min(timeit.repeat(protect, number=50, repeat=9)) / 50, 3
        )
    return found


def microseconds() -> dict[str, float]:
    """Mean time of the solver over random problems by dimension, in microseconds."""
    rng = np.random.default_rng(0)
    found = {}
    for dim in (1, 16, 128):
        problems = []
        for _ in range(200):
            g = 10 ** rng.uniform(-3, 1)
            u, v = g * 10 ** rng.uniform(-2.5, 0.5, size=2)
            problems.append(
                (u, v, dim, g, rng.uniform(0.02, 0.98), g * 10 ** rng.uniform(-1.5, 1.5))
            )

        def solve(problems: list[Any] = problems) -> None:
            for problem in problems:
                solve_noise_variances(*problem)

        found[f"{dim}"] = round(1e6 * min(timeit.repeat(solve, number=1, repeat=9)) / 200, 1)
    return found


class _Clock:
    """A callback that takes the processor time at the end of the first epoch."""

    start: float | None = None

    def on_epoch_end(self, state: EpochState) -> None:
        """Take the time, once."""
        if self.start is None:
            self.start = time.process_time()

    def seconds(self) -> float:
        """Until now."""
        assert self.start is not None
        return time.process_time() - self.start


def cost_of_the_monitor() -> dict[str, float]:
    """Share that watching adds to the processor time of training; medians over turns.

    From the end of the first epoch, when everything is loaded, to the end of the fit, with all that
    is kept for a report. Training with and without take turns, so that a machine whose speed drifts
    does not decide.
    """
    table, y = TABLES["spambase"]()
    frames = divided(table, 1)
    settings: dict[str, dict[str, Any]] = {
        "default settings": {},
        "default settings, Marvell": {"protection": Marvell(4.0)},
        "batches of 1028, scalar cut": {
            "epochs": 100,
            "batch_size": 1028,
            "intermediate_dim": 1,
            "bottom_output": "sigmoid",
        },
    }
    found = {}
    for name, chosen in settings.items():
        shares = []
        for turn in range(5):
            seconds = {}
            for watched in (True, False):
                clock = _Clock()
                SplitNNClassifier(
                    **chosen,
                    monitor=watched,
                    transformer=numbers(),
                    device="cpu",
                    random_state=turn,
                ).fit(frames, y, callbacks=[clock])
                seconds[watched] = clock.seconds()
            shares.append(seconds[True] / seconds[False] - 1.0)
        found[name] = round(float(np.median(shares)), 3)
    return found


def recorded() -> list[dict[str, Any]]:
    """Return the curves that are there."""
    return [r for path in sorted(FOLDER.glob("marvell.*.*.json")) if (r := read(path))]


def show() -> None:
    """Print."""
    speed = read(FOLDER / "marvell.speed.json")
    if speed:
        show_speed(speed)
    for result in recorded():
        print(f"\n{result['data']}, cut of width {result['width']}, {len(result['seeds'])} seeds")
        columns = ("test AUC", "norm", "cosine", "mean", "mean_threshold", "direction", "spectral")
        print(f"{'':<16}" + "".join(f"{column:>16}" for column in columns))
        for name, row in result["q95"].items():
            print(f"{name:<16}" + "".join(f"{cell(row[column]):>16}" for column in columns))
            theirs = PROTOTYPE.get(name) if result["width"] == 16 else None
            if theirs and result["data"] == "spambase":
                print(f"{'  prototype':<16}" + "".join(f"{value:>11.3f}     " for value in theirs))
        for leak in ("norm", "cosine", "direction"):
            print(f"  {leak}: {compare(result['q95'], leak)}")


def compare(rows: dict[str, Any], leak: str) -> str:
    """Say, for each power of isotropic noise, what Marvell leaks at the same test AUC."""
    own = sorted(
        (rows[f"Marvell {s:g}"]["test AUC"]["mean"], rows[f"Marvell {s:g}"][leak]["mean"])
        for s in MARVELL
    )
    parts = []
    for t in ISOTROPIC:
        theirs = rows[f"isotropic {t:g}"]
        at = theirs["test AUC"]["mean"]
        if own[0][0] <= at <= own[-1][0]:
            ours = float(np.interp(at, *zip(*own)))
            parts.append(f"{at:.3f}: {ours:.2f} against {theirs[leak]['mean']:.2f}")
    return "Marvell against isotropic noise at test AUC " + "; ".join(parts)


def draw(results: list[dict[str, Any]]) -> Figure:
    """Draw leak against test AUC."""
    leaks = ("norm", "cosine", "direction")
    figure = Figure(figsize=(9, 3 * len(results)), layout="constrained")
    panels = figure.subplots(len(results), len(leaks), squeeze=False)
    for line, result in zip(panels, results):
        rows = result["q95"]
        for axes, leak in zip(line, leaks):
            for label, names in (
                ("Marvell", [f"Marvell {s:g}" for s in MARVELL]),
                ("isotropic", [f"isotropic {t:g}" for t in ISOTROPIC]),
                ("max-norm", ["max-norm"]),
                ("none", ["none"]),
            ):
                x = [rows[name]["test AUC"]["mean"] for name in names]
                axes.plot(x, [rows[name][leak]["mean"] for name in names], "o-", ms=4, label=label)
            axes.set_xlabel(f"test AUC, {result['data']}, cut of {result['width']}", fontsize=8)
            axes.set_ylabel(f"{leak} leak, 95 % quantile", fontsize=8)
            axes.set_ylim(0.48, 1.02)
            axes.grid(visible=True, alpha=0.3)
    panels[0, 0].legend(fontsize=7)
    return figure


def show_speed(result: dict[str, Any]) -> None:
    """Print times, with the bounds that we set ourselves."""
    one = result["milliseconds per message"]["1028 x 16"]
    print(f"ms per message: {result['milliseconds per message']}")
    print(f"  1028 x 16: {one} ms (at most 1: {_runs.verdict(one < 1.0)})")
    print(f"µs per solution by dimension: {result['microseconds per solution']}")
    for name, share in result["cost of the monitor"].items():
        print(f"monitor, {name}: {share:.0%} (at most 25 %: {_runs.verdict(share < 0.25)})")


if __name__ == "__main__":
    sys.exit(main())
