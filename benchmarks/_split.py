"""What the benchmarks of split learning share: tables in the papers' scaling, splits, summaries."""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from _data import data_file
from sklearn.metrics import roc_auc_score

from vflsynth._version import __version__
from vflsynth.splitdefense import BaseSplitClassifier
from vflsynth.splitdefense.leakage.scores import kolmogorov_smirnov, principal_direction
from vflsynth.transformers import TableTransformer

RESULTS = Path(__file__).parent / "results"


class NumbersTable(TableTransformer):
    """All columns are numbers, codes too; standardised."""

    def fit(self, frame: pd.DataFrame, y: object = None, *, party: str | None = None) -> Self:
        """Learn means and deviations."""
        self.kinds = dict.fromkeys(frame.columns, "continuous")
        return super().fit(frame, y, party=party)


class MinMaxTable(NumbersTable):
    """Columns of numbers between 0 and 1, as GAFM's experiments scale them."""

    def fit(self, frame: pd.DataFrame, y: object = None, *, party: str | None = None) -> Self:
        """Learn the ranges too."""
        super().fit(frame, y, party=party)
        encoded = super().transform(frame)
        self.low_, self.range_ = encoded.min(0), np.ptp(encoded, axis=0)
        return self

    def transform(self, frame: pd.DataFrame) -> np.ndarray:
        """Scale to [0, 1]."""
        return (super().transform(frame) - self.low_) / self.range_


def spambase() -> tuple[pd.DataFrame, np.ndarray]:
    table = pd.read_csv(data_file("spambase.csv"))
    y = table.pop("spam").to_numpy()
    return table, y


def credit() -> tuple[pd.DataFrame, np.ndarray]:
    table = pd.read_parquet(data_file("credit-default.parquet")).drop(columns="ID")
    y = table.pop("default.payment.next.month").to_numpy()
    return table, y


def imdb(words: int = 500) -> tuple[pd.DataFrame, np.ndarray]:
    """Presence of the most frequent words (tokens 2 to 501) in each review."""
    with np.load(data_file("imdb-sequences.npz")) as data:
        tokens, offsets, y = data["tokens"], data["offsets"], data["label"]
    review = np.repeat(np.arange(len(y)), np.diff(offsets))
    kept = (tokens >= 2) & (tokens < 2 + words)
    table = np.zeros((len(y), words), np.float32)
    table[review[kept], tokens[kept] - 2] = 1.0
    return pd.DataFrame(table, columns=[f"word {i}" for i in range(words)]), y


DATASETS = {"spambase": spambase, "credit": credit, "imdb": imdb}


def splits(n: int, seeds: Sequence[int], share: float = 0.7) -> tuple[np.ndarray, np.ndarray]:
    """Train and test rows of each seed, (seed, record)."""
    orders = np.stack([np.random.default_rng(seed).permutation(n) for seed in seeds])
    cut = int(share * n)
    return orders[:, :cut], orders[:, cut:]


def test_auc(model: BaseSplitClassifier, frames: Any, y: np.ndarray, rows: np.ndarray) -> float:
    some = {name: frame.iloc[rows] for name, frame in frames.items()}
    return float(roc_auc_score(y[rows], model.predict_proba(some)[:, 1]))


def leak_summaries(batches: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Summarise each attack: first and final epoch, last fifth; mean, 95 % quantile, maximum."""
    epoch = batches["epoch"]
    parts = {
        "first": batches[epoch == epoch.min()],
        "final": batches[epoch == epoch.max()],
        "tail": batches[epoch > 0.8 * epoch.max()],
        "mean": batches,
    }
    found = {name: part.drop(columns="epoch").mean() for name, part in parts.items()}
    found["q95"] = batches.drop(columns="epoch").quantile(0.95)
    found["max"] = batches.drop(columns="epoch").max()
    return {name: values.round(4).to_dict() for name, values in found.items()}


def last_epoch_ks(evidence: Any) -> float:
    """Kolmogorov-Smirnov distance of the classes' gradients in the last epoch."""
    rows = torch.from_numpy(evidence.last_gradients).double().unsqueeze(0)
    line = (rows @ principal_direction(rows))[0, :, 0]
    return float(kolmogorov_smirnov(line, torch.from_numpy(evidence.labels == 1)))


def spread(values: Sequence[float]) -> dict[str, float]:
    return {"mean": round(float(np.mean(values)), 4), "sd": round(float(np.std(values)), 4)}


def arguments(description: str, **defaults: Any) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--output", type=Path, default=RESULTS)
    for name, value in defaults.items():
        if isinstance(value, tuple):
            parser.add_argument(f"--{name}", nargs="+", type=type(value[0]), default=list(value))
        else:
            parser.add_argument(f"--{name}", type=type(value), default=value)
    torch.set_num_threads(1)
    return parser.parse_args()


def write(folder: Path, name: str, settings: Mapping[str, Any], results: Any, start: float) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "settings": dict(settings),
        "versions": {
            "vflsynth": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "seconds": round(time.perf_counter() - start, 1),
        "results": results,
    }
    (folder / f"{name}.json").write_text(json.dumps(content, indent=1), encoding="utf-8")
    print(f"{name}: {content['seconds']} s")
