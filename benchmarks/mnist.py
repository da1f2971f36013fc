"""MNIST between two parties, upper and lower halves (VFLGAN §5.2.1): distance, score, picture.

    VFLSYNTH_DATA=... python -m benchmarks.mnist run --epochs 300        # the paper's length: a GPU
    VFLSYNTH_DATA=... python -m benchmarks.mnist run --settings default --epochs 40
    python -m benchmarks.mnist show --settings default --epochs 40

Results go to ``benchmarks/results/mnist``, one file and one picture of samples per method, settings
and length. Networks are those of the paper's code but for a linear output layer instead of tanh:
pixels are scaled to [-1, 1] and clipped when they are decoded; with ``--settings default``, which
train three times faster here, they are what every class uses for tables. The last generator (its
average, but with settings "paper") is kept rather than the best of many looks. The paper's order
(VFLGAN at twice WGAN-GP's distance, VertiGAN at seven times) does not come out in so short a
schedule, a thirtieth or an eighth of the paper's: VFLGAN is behind VertiGAN then, whose halves are
cleaner and do not fit together.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks import _runs
from benchmarks._data import load_mnist_halves
from benchmarks._digits import Images, Judges
from vflsynth.transformers import TableTransformer
from vflsynth.transformers.axes import IntegerAxis
from vflsynth.transformers.base import ColumnTransformer
from vflsynth.transformers.numeric import IntegerTransformer
from vflsynth.transformers.scaling import Standardizer

FOLDER = _runs.RESULTS / "mnist"
CACHE = _runs.RESULTS.parent / "cache" / "mnist"
N_PICTURED = 10


class PixelColumn(IntegerTransformer):
    """A pixel: 0 to 255 as -1 to 1, whatever the values that occur."""

    def _fit(self, column: pd.Series[Any]) -> None:
        super()._fit(column)
        self.axis_ = IntegerAxis(0, 255, 1, unsigned=False)
        self.scaler_ = Standardizer(127.5, 127.5)


class PixelTransformer(TableTransformer):
    """A table of pixels."""

    def _transformer(self, kind: str) -> ColumnTransformer:
        return PixelColumn(spike_share=None)


def main() -> None:
    """Run or show."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("run", "show"))
    parser.add_argument(
        "--method", choices=_runs.SYNTHESIZERS, nargs="+", default=list(_runs.SYNTHESIZERS)
    )
    parser.add_argument("--settings", choices=_runs.SETTINGS, default="ours")
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--judge-epochs", type=int, default=2)
    parser.add_argument("--images", type=int, default=10_000, help="generated, for the judges")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.action == "run":
        run(arguments)
    show(arguments.settings, arguments.epochs)


def run(arguments: argparse.Namespace) -> None:
    """Train and judge the methods that are missing, then draw samples of those just trained."""
    missing = [
        method
        for method in arguments.method
        if not (FOLDER / f"{method}.{arguments.settings}.{arguments.epochs}.json").exists()
    ]
    if not missing:
        return
    halves, digits = load_mnist_halves()
    test_halves, test_digits = load_mnist_halves("t10k")
    real, held_out = (np.concatenate([h["A"], h["B"]], 1) for h in (halves, test_halves))
    judges = Judges(
        CACHE,
        real,
        digits,
        held_out,
        test_digits,
        epochs=arguments.judge_epochs,
        device="cuda" if arguments.device == "cuda" else "cpu",
    )
    frames = {
        party: pd.DataFrame(
            half.reshape(len(half), -1), columns=[f"{party}{i}" for i in range(14 * 28)]
        )
        for party, half in halves.items()
    }
    for method in missing:
        result, images = train(frames, method, arguments)
        result |= {
            "frechet_distance": round(judges.frechet_distance(images), 3),
            "inception_score": round(judges.inception_score(images), 3),
            "n_images": len(images),
            "of_held_out_images": {
                "frechet_distance": round(judges.frechet_distance(held_out), 3),
                "inception_score": round(judges.inception_score(held_out), 3),
            },
            "judges": {
                "epochs": judges.epochs,
                "accuracy": round(judges.accuracy, 4),
                "reconstruction_error": round(judges.reconstruction_error, 5),
            },
            **_runs.environment(),
        }
        name = f"{method}.{arguments.settings}.{arguments.epochs}"
        _runs.write(FOLDER / f"{name}.json", result)
        draw(images[: N_PICTURED**2], name)
        print(f"{name}: FD {result['frechet_distance']}", flush=True)


def train(
    frames: dict[str, pd.DataFrame], method: str, arguments: argparse.Namespace
) -> tuple[dict[str, Any], Images]:
    """Train one method; return what is known about the run, and generated images."""
    chosen = _runs.parameters("mnist", method, arguments.settings) | {
        "epochs": arguments.epochs,
        "transformer": PixelTransformer(),
        "model_selection": "last",
        "device": arguments.device,
        "random_state": arguments.seed,
        "verbose": 0,
    }
    started = time.perf_counter()
    model = _runs.SYNTHESIZERS[method](**chosen).fit(frames)
    seconds = time.perf_counter() - started
    table = model.sample(arguments.images, random_state=arguments.seed)
    known = {
        "data": "mnist",
        "method": method,
        "settings": arguments.settings,
        "seed": arguments.seed,
        "parameters": {k: v for k, v in model.settings_.items() if v is not None},
        "device": model.device_,
        "seconds": {"training": round(seconds, 1)},
    }
    return known, table.to_numpy(dtype=np.uint8).reshape(-1, 28, 28)


def draw(images: Images, name: str) -> None:
    """Write a square of images."""
    rows = images.reshape(N_PICTURED, N_PICTURED, 28, 28).transpose(0, 2, 1, 3)
    figure = Figure(figsize=(3, 3))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.imshow(rows.reshape(N_PICTURED * 28, -1), cmap="gray_r")
    axes.set_axis_off()
    figure.savefig(FOLDER / f"{name}.png", dpi=100)


def show(settings: str, epochs: int) -> None:
    """Print what is there for this length."""
    found = {
        r["method"]: r
        for r in _runs.read_all(FOLDER)
        if r["settings"] == settings and r["parameters"]["epochs"] == epochs
    }
    print(f"MNIST halves, settings {settings}, {epochs} epochs (paper: 300)")
    print("paper: FD of VFLGAN about 2 times WGAN-GP's, VertiGAN's about 7 times")
    for method in _runs.SYNTHESIZERS:
        if method in found:
            row = found[method]
            base = found.get("wgan-gp", row)["frechet_distance"]
            print(
                f"{method:<12} FD {row['frechet_distance']:8.3f} "
                f"({row['frechet_distance'] / base:.2f} x WGAN-GP's)  "
                f"IS {row['inception_score']:.2f}  {row['seconds']['training']:.0f} s"
            )
    if found:
        last = next(iter(found.values()))
        print(f"held-out real images: {last['of_held_out_images']}; judges: {last['judges']}")


if __name__ == "__main__":
    main()
