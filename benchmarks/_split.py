"""What the benchmarks of split learning share: tables in the papers' scaling, splits, summaries."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.metrics import roc_auc_score

from benchmarks._data import data_file, load_credit_default, load_spambase
from vflsynth.columns import TableTransformer
from vflsynth.splitdefense import BaseSplitClassifier

Frames = dict[str, pd.DataFrame]
Labels = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]


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

    def transform(
        self, frame: pd.DataFrame, *, unseen: Literal["refuse", "neutral"] = "refuse"
    ) -> npt.NDArray[np.float32]:
        """Scale to [0, 1]."""
        return (super().transform(frame, unseen=unseen) - self.low_) / self.range_


def numbers() -> NumbersTable:
    """Make a transformer that standardises and does nothing else."""
    return NumbersTable(continuous="standard", spike_share=None, rare_threshold=0.0)


def zero_to_one() -> MinMaxTable:
    """Make a transformer that scales to [0, 1] and does nothing else."""
    return MinMaxTable(continuous="standard", spike_share=None, rare_threshold=0.0)


def spambase() -> tuple[pd.DataFrame, Labels]:
    """Spambase: 57 columns, 39 % positive."""
    table = load_spambase().joined()
    return table.drop(columns="spam"), table["spam"].to_numpy()


def credit() -> tuple[pd.DataFrame, Labels]:
    """Credit default: 23 columns, codes as numbers, 22 % positive."""
    table, target = load_credit_default().joined(), load_credit_default().target
    return table.drop(columns=target), table[target].to_numpy()


def imdb(words: int = 500) -> tuple[pd.DataFrame, Labels]:
    """IMDB: presence of the 500 most frequent words (tokens 2 to 501) in each of 50,000 reviews."""
    with np.load(data_file("imdb-sequences.npz")) as data:
        tokens, offsets, y = data["tokens"], data["offsets"], data["label"]
    review = np.repeat(np.arange(len(y)), np.diff(offsets))
    kept = (tokens >= 2) & (tokens < 2 + words)
    table = np.zeros((len(y), words), np.float32)
    table[review[kept], tokens[kept] - 2] = 1.0
    return pd.DataFrame(table, columns=[f"word {i}" for i in range(words)]), y.astype(np.int64)


TABLES: dict[str, Callable[[], tuple[pd.DataFrame, Labels]]] = {
    "spambase": spambase,
    "credit-default": credit,
    "imdb": imdb,
}


def divided(table: pd.DataFrame, parties: int) -> Frames:
    """Deal a table's columns out to passive parties."""
    columns = [list(table.columns[i::parties]) for i in range(parties)]
    return {f"party {i}": table[names] for i, names in enumerate(columns)}


def splits(n: int, seeds: Sequence[int], share: float = 0.7) -> tuple[Rows, Rows]:
    """Train and test rows of each seed, (seed, record)."""
    orders = np.stack([np.random.default_rng(seed).permutation(n) for seed in seeds])
    cut = int(share * n)
    return orders[:, :cut], orders[:, cut:]


def rows_of(frames: Mapping[str, pd.DataFrame], rows: Rows) -> Frames:
    """Take the same rows of every party's table."""
    return {name: frame.iloc[rows] for name, frame in frames.items()}


def fit_points(
    model: BaseSplitClassifier,
    frames: Frames,
    y: Labels,
    points: Mapping[str, Mapping[str, Any]],
    seeds: Sequence[int],
    train: Rows,
) -> tuple[dict[str, list[Any]], float]:
    """Train with the parameters of every point and with every seed, all at once.

    Returns the classifiers of each point, one per seed, and the seconds of all points together.
    """
    started = time.perf_counter()
    models = model.fit_replicas(
        frames,
        y,
        random_states=[seed for _ in points for seed in seeds],
        parameters=[dict(point) for point in points.values() for _ in seeds],
        replica_rows=np.concatenate([train] * len(points)),
    )
    seconds = round(time.perf_counter() - started, 1)
    n = len(seeds)
    return {name: list(models[i * n : (i + 1) * n]) for i, name in enumerate(points)}, seconds


def held_out_auc(model: BaseSplitClassifier, frames: Frames, y: Labels, rows: Rows) -> float:
    """AUC on rows that were not trained on."""
    probabilities = model.predict_proba(rows_of(frames, rows))
    return float(roc_auc_score(y[rows], probabilities[:, 1]))


def summarise(batches: pd.DataFrame) -> pd.DataFrame:
    """Summarise what was measured per batch over a training, one row per measure."""
    epoch, values = batches["epoch"], batches.drop(columns="epoch")
    return pd.DataFrame(
        {
            "first": values[epoch == epoch.min()].mean(),
            "final": values[epoch == epoch.max()].mean(),
            "tail": values[epoch > 0.8 * epoch.max()].mean(),
            "mean": values.mean(),
            "q95": values.quantile(0.95),
            "max": values.max(),
        }
    )


def spread(values: Sequence[float]) -> dict[str, float]:
    """Mean and standard deviation over seeds."""
    return {"mean": round(float(np.mean(values)), 4), "sd": round(float(np.std(values)), 4)}


def spreads(of_seeds: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """`spread` of every entry."""
    return {key: spread([values[key] for values in of_seeds]) for key in of_seeds[0]}


def cell(value: Mapping[str, float] | None) -> str:
    """Print a mean and its deviation."""
    return "" if value is None else f"{value['mean']:.3f}±{value['sd']:.3f}"
