"""Marvell: leak of one message against test AUC over the power of the noise; what it costs.

    VFLSYNTH_DATA=... python -m benchmarks.split_marvell curves   # trains everything at once
    python -m benchmarks.split_marvell speed                      # protection, solver, monitor
    python -m benchmarks.split_marvell show

The cut is 16 wide and linear, columns are standardised. Marvell, isotropic noise and max-norm. The
leak is the 95 % quantile over batches, as in the paper. ``show`` prints the curves and, at equal
test AUC, which of Marvell and isotropic noise leaks less; ``curves`` draws them too.
"""

from __future__ import annotations

import itertools
import time
import timeit
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from benchmarks import _commands, _results
from benchmarks._runs import EpochClock
from benchmarks._split import (
    TABLES,
    cell,
    divided,
    fit_points,
    held_out_auc,
    numbers,
    splits,
    spread,
    spreads,
    summarise,
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
from vflsynth.splitdefense.protections.gradients import Context, Draws
from vflsynth.splitdefense.protections.marvell import solve_noise_variances
from vflsynth.splitdefense.settings import AS_PUBLISHED

MARVELL = (0.1, 0.25, 1.0, 4.0, 16.0, 64.0)
ISOTROPIC = (0.25, 1.0, 4.0, 25.0, 100.0)

FAMILIES = {
    "Marvell": [f"Marvell {s:g}" for s in MARVELL],
    "isotropic": [f"isotropic {t:g}" for t in ISOTROPIC],
    "max-norm": ["max-norm"],
    "none": ["none"],
}
"""The points that one line of the picture joins."""

Curve = dict[str, _results.Row]
Curves = dict[tuple[str, int], Curve]

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
    parser = _commands.parser(__doc__, "curves", "speed", "show")
    parser.add_argument("--data", choices=TABLES, default="spambase")
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--epochs", type=int, default=100)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.action == "curves":
        rows = curves(arguments.data, arguments.width, arguments.seeds, arguments.epochs)
        _results.put("split_marvell", *rows)
        picture = _results.RESULTS / "split_marvell.svg"
        draw().savefig(picture, metadata={"Date": None})
    elif arguments.action == "speed":
        result = {
            "milliseconds per message": milliseconds(),
            "microseconds per solution": microseconds(),
            "cost of the monitor": cost_of_the_monitor(),
        }
        _results.put("split_marvell_speed", result)
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


def curves(data: str, width: int, n_seeds: int, epochs: int) -> list[_results.Row]:
    """Train every point with every seed, all at once. ``seconds`` are those of all points."""
    table, y = TABLES[data]()
    seeds = list(range(n_seeds))
    train, test = splits(len(y), seeds)
    frames = divided(table, 1)
    classifier = SplitNNClassifier(
        intermediate_dim=width,
        batch_size=1028,
        learning_rate=5e-4,
        monitor=LeakageMonitor(every=3),
        transformer=numbers(),
        device="cpu",
        **(AS_PUBLISHED | {"epochs": epochs}),
    )
    protections = {name: {"protection": point} for name, point in points().items()}
    models, seconds = fit_points(classifier, frames, y, protections, seeds, train)
    measured = []
    for name, mine in models.items():
        leaks = [
            summarise(next(iter(model.evidence_.values())).batches)["q95"].to_dict()
            for model in mine
        ]
        test_aucs = [held_out_auc(m, frames, y, rows) for m, rows in zip(mine, test)]
        measured.append(
            {
                "data": data,
                "width": width,
                "point": name,
                "seeds": seeds,
                "epochs": epochs,
                "q95": {"test AUC": spread(test_aucs), **spreads(leaks)},
                "seconds": seconds,
            }
        )
    return measured


def milliseconds() -> dict[str, float]:
    """Time to protect one batch of 1028 records, best of several, in milliseconds."""
    labels = (torch.rand(1, 1028) < 0.4).long()

    def seconds(dim: int) -> float:
        gradients = torch.randn(1, 1028, dim) + labels.unsqueeze(-1)
        streams, steps = RandomStreams([b"speed"]), itertools.count()
        memory: dict[str, torch.Tensor] = {}

        def protect() -> None:
            context = Context(labels, 2, Draws(streams, next(steps)), memory)
            Marvell(4.0).protect(gradients, context)

        return min(timeit.repeat(protect, number=50, repeat=9)) / 50

    return {f"1028 x {dim}": round(1e3 * seconds(dim), 3) for dim in (1, 16, 128)}


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
        turns = timeit.repeat(
            lambda some=problems: [solve_noise_variances(*problem) for problem in some],
            number=1,
            repeat=9,
        )
        found[f"{dim}"] = round(1e6 * min(turns) / 200, 1)
    return found


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
                clock = EpochClock()
                SplitNNClassifier(
                    **(AS_PUBLISHED | chosen),
                    monitor=watched,
                    transformer=numbers(),
                    device="cpu",
                    random_state=turn,
                ).fit(frames, y, callbacks=[clock])
                seconds[watched] = time.process_time() - clock.ends[0]
            shares.append(seconds[True] / seconds[False] - 1.0)
        found[name] = round(float(np.median(shares)), 3)
    return found


def recorded() -> Curves:
    """Return what was measured of every point, in order, by table and width."""
    found: Curves = {}
    for row in _results.rows("split_marvell"):
        found.setdefault((row["data"], row["width"]), {})[row["point"]] = row
    return {
        curve: {name: rows[name] for name in points() if name in rows}
        for curve, rows in found.items()
    }


def show() -> None:
    """Print the speed and the curves."""
    for speed in _results.rows("split_marvell_speed"):
        show_speed(speed)
    for (data, width), rows in recorded().items():
        print(f"\n{data}, cut of width {width}, {len(rows['none']['seeds'])} seeds")
        columns = ("test AUC", "norm", "cosine", "mean", "mean_threshold", "direction", "spectral")
        print(f"{'':<16}" + "".join(f"{column:>16}" for column in columns))
        for name, row in rows.items():
            print(f"{name:<16}" + "".join(f"{cell(row['q95'][c]):>16}" for c in columns))
            if name in PROTOTYPE and (data, width) == ("spambase", 16):
                theirs = "".join(f"{value:>11.3f}     " for value in PROTOTYPE[name])
                print(f"{'  prototype':<16}{theirs}")
        for leak in ("norm", "cosine", "direction"):
            print(f"  {leak}: {compare(rows, leak)}")


def means(rows: Curve, names: Iterable[str], leak: str) -> list[tuple[float, float]]:
    """Return test AUC and leak of some points, means over seeds."""
    found = (rows[name]["q95"] for name in names)
    return [(values["test AUC"]["mean"], values[leak]["mean"]) for values in found]


def compare(rows: Curve, leak: str) -> str:
    """Say, for each power of isotropic noise, what Marvell leaks at the same test AUC."""
    aucs, leaks = zip(*sorted(means(rows, FAMILIES["Marvell"], leak)))
    parts = []
    for at, theirs in means(rows, FAMILIES["isotropic"], leak):
        if aucs[0] <= at <= aucs[-1]:
            ours = float(np.interp(at, aucs, leaks))
            parts.append(f"{at:.3f}: {ours:.2f} against {theirs:.2f}")
    return "Marvell against isotropic noise at test AUC " + "; ".join(parts)


def draw() -> Figure:
    """Draw leak against test AUC."""
    results = recorded()
    leaks = ("norm", "cosine", "direction")
    figure = Figure(figsize=(9, 3 * len(results)), layout="constrained")
    panels = figure.subplots(len(results), len(leaks), squeeze=False)
    for line, ((data, width), rows) in zip(panels, results.items()):
        for axes, leak in zip(line, leaks):
            for label, names in FAMILIES.items():
                x, y = zip(*means(rows, names, leak))
                axes.plot(x, y, "o-", ms=4, label=label)
            axes.set_xlabel(f"test AUC, {data}, cut of {width}", fontsize=8)
            axes.set_ylabel(f"{leak} leak, 95 % quantile", fontsize=8)
            axes.set_ylim(0.48, 1.02)
            axes.grid(visible=True, alpha=0.3)
    panels[0, 0].legend(fontsize=7)
    return figure


def show_speed(result: dict[str, Any]) -> None:
    """Print times, with the bounds that we set ourselves."""
    one = result["milliseconds per message"]["1028 x 16"]
    print(f"ms per message: {result['milliseconds per message']}")
    print(f"  1028 x 16: {one} ms (at most 1: {_results.verdict(one < 1.0)})")
    print(f"µs per solution by dimension: {result['microseconds per solution']}")
    for name, share in result["cost of the monitor"].items():
        print(f"monitor, {name}: {share:.0%} (at most 25 %: {_results.verdict(share < 0.25)})")


if __name__ == "__main__":
    main()
