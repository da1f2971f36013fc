"""The public tables of the benchmarks, split between parties as in the papers.

The files are not part of the project: ``VFLSYNTH_DATA`` names the folder that has them. Party
``"B"`` owns the target.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

Task = Literal["classification", "regression"]


@dataclass(frozen=True)
class BenchmarkTable:
    """A table split between parties ``"A"`` and ``"B"``, whose rows correspond by position.

    Dtypes are as in the file. The `target`, which is to be predicted, is owned by ``"B"``;
    `categorical` columns are categories whatever their dtype: codes are stored as integers.
    """

    name: str
    party_frames: dict[str, pd.DataFrame]
    target: str
    task: Task
    categorical: tuple[str, ...]

    @property
    def party_columns(self) -> dict[str, tuple[str, ...]]:
        """The columns of each party, in order."""
        return {party: tuple(frame.columns) for party, frame in self.party_frames.items()}

    def joined(self) -> pd.DataFrame:
        """Return the one table that no party has: all columns, A's first."""
        return pd.concat(self.party_frames.values(), axis="columns")


def data_file(name: str) -> Path:
    """Return the path of a file in the folder named by ``VFLSYNTH_DATA``.

    FileNotFoundError if the variable is not set or the folder lacks the file.
    """
    folder = os.environ.get("VFLSYNTH_DATA")
    if not folder:
        raise FileNotFoundError(
            "VFLSYNTH_DATA is not set. Fix: set it to the folder that has the benchmark tables."
        )
    path = Path(folder) / name
    if not path.exists():
        raise FileNotFoundError(
            f"VFLSYNTH_DATA={folder!r} has no {name!r}. Fix: put the file there."
        )
    return path


def load_red_wine() -> BenchmarkTable:
    """Red wine: 1599 x 12, quality in 6 classes; A has 6 columns (VFLGAN's split)."""
    return _load_wine("winequality-red.csv", "red-wine")


def load_white_wine() -> BenchmarkTable:
    """White wine: 4898 x 12, quality in 7 classes; A has 6 columns (VFLGAN's split)."""
    return _load_wine("winequality-white.csv", "white-wine")


def load_adult() -> BenchmarkTable:
    """Adult as VFLGAN trains on it: 42960 x 15; A has 8 columns (53 encoded features each).

    The rows with a ``?`` are dropped (45222 are left), and of those the first
    ``floor(0.95 * 45222) = 42960`` are kept. The number is the paper's, as its batches and privacy
    budgets show; which rows its missing data file had is not known.
    """
    frame = pd.read_parquet(data_file("adult.parquet"))
    frame = frame[~(frame == "?").any(axis="columns")]
    frame = frame.iloc[: int(0.95 * len(frame))].reset_index(drop=True)
    numeric = frame.select_dtypes("number").columns
    categorical = [column for column in frame.columns if column not in numeric]
    return in_two("adult", frame, 8, "income", categorical)


def load_south_german_credit() -> BenchmarkTable:
    """South German credit: 1000 x 21, all but three columns are codes; A has 10 columns."""
    frame = pd.read_csv(data_file("south-german-credit.csv"))
    categorical = [c for c in frame.columns if c not in ("duration", "amount", "age")]
    return in_two("south-german-credit", frame, 10, "credit_risk", categorical)


def load_hcv() -> BenchmarkTable:
    """Hepatitis C in Egypt: 1385 x 29; A has 14 columns.

    The features carry almost no information on the target, so utility says nothing here.
    """
    frame = pd.read_csv(data_file("hcv-egy.csv"))
    frame.columns = frame.columns.str.strip()
    target = "Baselinehistological staging"
    symptoms = frame.columns[3:10].tolist()  # Fever ... Epigastric pain, coded 1 and 2
    return in_two("hcv", frame, 14, target, ["Gender", *symptoms, target])


def load_spambase() -> BenchmarkTable:
    """Spambase: 4601 x 58, zero-inflated frequencies; A has 29 columns."""
    return in_two("spambase", pd.read_csv(data_file("spambase.csv")), 29, "spam", ["spam"])


def load_credit_default() -> BenchmarkTable:
    """Taiwanese credit card clients: 30000 x 24 without the row number; A has 11 columns."""
    frame = pd.read_parquet(data_file("credit-default.parquet")).drop(columns="ID")
    target = "default.payment.next.month"
    repayment = [c for c in frame.columns if c.startswith("PAY_") and "AMT" not in c]
    categorical = ["SEX", "EDUCATION", "MARRIAGE", *repayment, target]
    return in_two("credit-default", frame, 11, target, categorical)


def load_california_housing() -> BenchmarkTable:
    """California housing: 20640 x 9, all numeric; A has 4 columns; the target is a price."""
    frame = pd.read_parquet(data_file("california-housing.parquet"))
    return in_two("california-housing", frame, 4, "median_house_value", [])


def load_small_mixed(n: int = 1003, seed: int = 7) -> BenchmarkTable:
    """Make 1003 x 7, as few records and as mixed as many studies; A has 4 columns.

    Ages, incomes with a tail, visits with many zeros and a risk depend on each other and on three
    labels, and all of them on the outcome.
    """
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 90, n)
    region = rng.choice(["north", "south", "east", "west"], n, p=[0.4, 0.3, 0.2, 0.1])
    smoker = rng.random(n) < np.where(age < 50, 0.35, 0.15)
    income = np.exp(9.8 + 0.02 * np.minimum(age, 60) + 0.3 * (region == "north")
                    + rng.normal(0, 0.5, n)).round()  # fmt: skip
    bmi = (22 + 0.06 * age - 1.5 * smoker + rng.normal(0, 3, n)).round(1)
    visits = rng.poisson(np.exp(-1.5 + 0.03 * age + 0.6 * smoker)) * (rng.random(n) < 0.7)
    odds = -6.0 + 0.05 * age + 0.08 * bmi + 0.9 * smoker + 0.15 * visits
    ill = rng.random(n) < 1 / (1 + np.exp(-odds))
    frame = pd.DataFrame(
        {
            "age": age,
            "region": region,
            "smoker": np.where(smoker, "yes", "no"),
            "income": income.astype(np.int64),
            "bmi": bmi,
            "visits": visits.astype(np.int64),
            "ill": np.where(ill, "yes", "no"),
        }
    )
    return in_two("small-mixed", frame, 4, "ill", ["region", "smoker", "ill"])


LOADERS: dict[str, Callable[[], BenchmarkTable]] = {
    "red-wine": load_red_wine,
    "white-wine": load_white_wine,
    "adult": load_adult,
    "south-german-credit": load_south_german_credit,
    "hcv": load_hcv,
    "spambase": load_spambase,
    "credit-default": load_credit_default,
    "california-housing": load_california_housing,
    "small-mixed": load_small_mixed,
    "small-tight": lambda: replace(load_small_mixed(), name="small-tight"),
}
"""The last two differ in their public bounds (`benchmarks._schemas`)."""


def load_table(name: str) -> BenchmarkTable:
    """Return one of the tables in :data:`LOADERS` by name."""
    if name not in LOADERS:
        raise ValueError(f"Unknown table {name!r}. Known: {', '.join(LOADERS)}.")
    return LOADERS[name]()


def load_mnist_halves(
    part: Literal["train", "t10k"] = "train",
) -> tuple[dict[str, npt.NDArray[np.uint8]], npt.NDArray[np.uint8]]:
    """Return the upper and the lower half of each MNIST image (VFLGAN's split), and the digits.

    ``"A"`` has rows 0-13, ``"B"`` rows 14-27, of shape (image, 14, 28), pixels from 0 to 255; and
    the digits, (image,), are ``"B"``'s.
    """
    images = _read_idx(data_file(f"mnist/{part}-images-idx3-ubyte.gz"))
    digits = _read_idx(data_file(f"mnist/{part}-labels-idx1-ubyte.gz"))
    return {"A": images[:, :14], "B": images[:, 14:]}, digits


def _load_wine(file: str, name: str) -> BenchmarkTable:
    frame = pd.read_csv(data_file(file), sep=";")
    return in_two(name, frame, 6, "quality", ["quality"])


def in_two(
    name: str, frame: pd.DataFrame, n_first: int, target: str, categorical: list[str]
) -> BenchmarkTable:
    """Give the first columns to A and the others, which include the target, to B."""
    frames = {"A": frame.iloc[:, :n_first], "B": frame.iloc[:, n_first:]}
    task: Task = "classification" if target in categorical else "regression"
    return BenchmarkTable(name, frames, target, task, tuple(categorical))


def _read_idx(path: Path) -> npt.NDArray[np.uint8]:
    """Read a gzipped IDX file of bytes: 4 bytes of type, one big-endian int32 per dimension."""
    with gzip.open(path) as stream:
        content = stream.read()
    n_dims = content[3]
    shape = np.frombuffer(content, dtype=">i4", count=n_dims, offset=4)
    return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * n_dims).reshape(shape)
