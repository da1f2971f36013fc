"""Mechanisms for a joined table, compared on MNIST with WGAN-GP at (10, 1e-5) (VFLGAN §5.2.1).

    VFLSYNTH_DATA=... python -m benchmarks.mnist_mechanisms run
    python -m benchmarks.mnist_mechanisms show

Results go to ``benchmarks/results/mnist_mechanisms``, with a picture of samples each. Pixels are
integers from 0 to 255, which is public: gradient mechanisms pay for no histogram. Lengths are what
two cores can do: the classes' own for DP-SGD and the mean embedding, and a part of the paper's 300
epochs for the others. GS-WGAN has 250 shards instead of its authors' 1,000, so 240 images each.
Since the ε of GS-WGAN is counted as it must be (`vflsynth.privacy.gs_wgan`), its noise is larger
than published. Bandwidths of the mean embedding are larger than for tables by the square root of
the number of columns over twelve, as distances are. DP-SGD is also there with a smaller learning
rate, which was tried after the default, made for tables, had failed: a look that its ε does not
count. One seed each.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from benchmarks import _runs
from benchmarks._digits import PixelTransformer, draw, images_of, load_digits, show_judges
from vflsynth import WGANGPSynthesizer
from vflsynth.exceptions import NoPrivacyWarning
from vflsynth.privacy import GaussianPrivacy, PublicSchema

FOLDER = _runs.RESULTS / "mnist_mechanisms"
EPSILON, DELTA = 10.0, 1e-5
N_SHARDS = 250

DIGITS: dict[str, Any] = {"transformer": PixelTransformer(), "model_selection": "last"}
FREE = {"preprocessing_share": 0.0}
POISSON = {"n_records": 60_000, **FREE}

# Of each row: mechanism, its parameters, those of the synthesizer.
CHOICES: dict[str, tuple[str | None, dict[str, Any], dict[str, Any]]] = {
    "none": (None, {}, {"epochs": 40, **DIGITS}),
    "first_layer": ("first_layer", {}, {"epochs": 40, **DIGITS}),
    "dpsgd": ("dpsgd", POISSON, {}),
    "dpsgd, penalty at records": ("dpsgd", {"gradient_penalty_at": "records", **POISSON}, {}),
    "dpsgd, a fifth of the rate": ("dpsgd", POISSON, {"learning_rate": 1e-4}),
    "dpsgd_gan": ("dpsgd_gan", FREE, {}),
    "gs_wgan": ("gs_wgan", {"n_shards": N_SHARDS, **FREE}, {"epochs": 5}),
    "kernel_mean_embedding": ("kernel_mean_embedding", {"bandwidths": (16.0, 32.0, 64.0)}, {}),
}


def make_model(
    row: str, frames: dict[str, pd.DataFrame], device: str, seed: int
) -> WGANGPSynthesizer:
    """Make the synthesizer of a row."""
    mechanism, options, model = CHOICES[row]
    if mechanism not in (None, "first_layer"):
        pixels = [column for frame in frames.values() for column in frame]
        options = {**options, "public_schema": PublicSchema(bounds=dict.fromkeys(pixels, (0, 255)))}
    privacy = (
        None
        if mechanism is None
        else GaussianPrivacy(epsilon=EPSILON, delta=DELTA, mechanism=mechanism, **options)
    )
    return WGANGPSynthesizer(privacy=privacy, device=device, random_state=seed, verbose=0, **model)


def run(arguments: argparse.Namespace) -> None:
    """Train and judge the mechanisms that are missing, and draw samples."""
    missing = [row for row in arguments.row if not _path(row).exists()]
    if not missing:
        return
    frames, judges = load_digits(epochs=arguments.judge_epochs, device=arguments.device)
    for row in missing:
        model = make_model(row, frames, arguments.device, arguments.seed)
        started = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoPrivacyWarning)
            model.fit(frames)
        seconds = time.perf_counter() - started
        images = images_of(model.sample(arguments.images, random_state=arguments.seed))
        ledger = model.privacy_ledger_
        result = {
            "row": row,
            "epsilon_spent": None if ledger is None else round(ledger.epsilon(), 6),
            "delta": None if ledger is None else DELTA,
            "seed": arguments.seed,
            "privacy": CHOICES[row][1],
            "parameters": {k: v for k, v in model.settings_.items() if v is not None},
            "seconds": {"training": round(seconds, 1)},
            **judges.judge(images),
            **_runs.environment(),
        }
        _runs.write(_path(row), result)
        draw(images, _path(row).with_suffix(".png"))
        print(f"{row}: FD {result['frechet_distance']}, {seconds:.0f} s", flush=True)


def show() -> None:
    """Print what is there."""
    found = {r["row"]: r for r in _runs.read_all(FOLDER)}
    print(f"MNIST, WGAN-GP on the joined images, epsilon {EPSILON:g}, delta {DELTA:g}")
    for row in CHOICES:
        if row in found:
            result = found[row]
            print(
                f"{row:<26} FD {result['frechet_distance']:7.1f}  "
                f"IS {result['inception_score']:.2f}  {result['parameters']['epochs']:>3} epochs  "
                f"{result['seconds']['training']:5.0f} s"
            )
    show_judges(found.values())


def _path(row: str) -> Path:
    return FOLDER / f"{row.replace(', ', '-').replace(' ', '-')}.json"


def main() -> None:
    """Run or show."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("run", "show"))
    parser.add_argument("--row", choices=CHOICES, nargs="+", default=list(CHOICES))
    parser.add_argument("--judge-epochs", type=int, default=2)
    parser.add_argument("--images", type=int, default=10_000, help="generated, for the judges")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.action == "run":
        run(arguments)
    show()


if __name__ == "__main__":
    main()
