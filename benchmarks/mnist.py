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

import pandas as pd

from benchmarks import _runs
from benchmarks._digits import Images, PixelTransformer, draw, images_of, load_digits, show_judges

FOLDER = _runs.RESULTS / "mnist"


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
    frames, judges = load_digits(epochs=arguments.judge_epochs, device=arguments.device)
    for method in missing:
        result, images = train(frames, method, arguments)
        result |= judges.judge(images) | _runs.environment()
        name = f"{method}.{arguments.settings}.{arguments.epochs}"
        _runs.write(FOLDER / f"{name}.json", result)
        draw(images, FOLDER / f"{name}.png")
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
    return known, images_of(table)


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
    show_judges(found.values())


if __name__ == "__main__":
    main()
