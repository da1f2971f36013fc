"""Train CTGAN or TVAE on one joined table and write a synthetic one. Runs in its own environment.

Started by ``benchmarks/external/run.py``; knows nothing of vflsynth.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from pathlib import Path

import ctgan
import pandas as pd
import torch

METHODS = {"ctgan": ctgan.CTGAN, "tvae": ctgan.TVAE}
DEFAULT_EPOCHS = 300
FEWER_EPOCHS = 100


def main() -> None:
    """Train, sample as many rows as the real table has, write the table and its record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("method", choices=METHODS)
    parser.add_argument("real", type=Path, help="the joined real table, parquet")
    parser.add_argument("output", type=Path, help="the synthetic table, parquet")
    parser.add_argument("--categorical", type=json.loads, default=[], help="JSON list of columns")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--max-minutes", type=float, default=40)
    args = parser.parse_args()

    torch.set_num_threads(1)
    # The package warns about its own use of pandas and of scikit-learn's mixtures.
    warnings.filterwarnings("ignore")
    real = pd.read_parquet(args.real)
    predicted = predict_seconds(args.method, real, args.categorical)
    epochs = DEFAULT_EPOCHS if predicted <= 60 * args.max_minutes else FEWER_EPOCHS
    print(f"  {epochs} epochs, predicted {predicted:.0f} s for {DEFAULT_EPOCHS}", flush=True)

    start = time.perf_counter()
    model = fit(args.method, real, args.categorical, epochs, args.seed)
    fitted = time.perf_counter()
    synthetic = model.sample(len(real))
    sampled = time.perf_counter()

    record = {
        "method": args.method,
        "settings": "package defaults" if epochs == DEFAULT_EPOCHS else "fewer epochs",
        "epochs": epochs,
        "seed": args.seed,
        "n_records": len(real),
        "fit_seconds": fitted - start,
        "sample_seconds": sampled - fitted,
        "threads": torch.get_num_threads(),
        "versions": {m.__name__: m.__version__ for m in (ctgan, torch, pd)},
    }
    temporary = args.output.with_suffix(".tmp")
    synthetic.to_parquet(temporary, index=False)
    args.output.with_suffix(".json").write_text(json.dumps(record, indent=2) + "\n")
    os.replace(temporary, args.output)
    print(f"  fitted in {fitted - start:.0f} s", flush=True)


def fit(method: str, real: pd.DataFrame, categorical: list[str], epochs: int, seed: int):
    """Fit with the package's defaults but for the number of epochs, on the CPU."""
    model = METHODS[method](epochs=epochs, enable_gpu=False)
    model.set_random_state(seed)
    model.fit(real, discrete_columns=categorical)
    return model


def predict_seconds(method: str, real: pd.DataFrame, categorical: list[str]) -> float:
    """Predict the seconds of a fit with the default epochs, from fits of 1 and of 11 epochs.

    Preparing the data takes as long in both, so their difference is the time of ten epochs.
    """
    seconds = []
    for epochs in (1, 11):
        start = time.perf_counter()
        fit(method, real, categorical, epochs, seed=0)
        seconds.append(time.perf_counter() - start)
    return seconds[0] + (DEFAULT_EPOCHS - 1) * max(seconds[1] - seconds[0], 0) / 10


if __name__ == "__main__":
    main()
