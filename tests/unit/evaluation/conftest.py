"""Tables to judge: real ones that scikit-learn bundles, generated ones, and nasty ones."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer


@pytest.fixture
def cancer():
    """569 rows, 30 numeric columns and the diagnosis as a label."""
    frame = load_breast_cancer(as_frame=True).frame
    return frame.assign(target=frame["target"].map({0: "malignant", 1: "benign"}))


@pytest.fixture
def mixed():
    """Columns of all kinds, related across parties, some values missing."""
    return make_mixed(600, seed=0)


@pytest.fixture(scope="session")
def make():
    """``make(rows, seed)``: more rows from the distribution of `mixed`."""
    return make_mixed


@pytest.fixture(scope="session")
def parties():
    """Who owns which column of `mixed`."""
    return {
        "clinic": ["age", "smoker", "admitted"],
        "lab": ["marker", "grade", "count", "stage"],
    }


@pytest.fixture
def wine():
    """``wine("red")`` or ``wine("white")``: the public benchmark tables."""

    def read(colour):
        path = Path(os.environ["VFLSYNTH_DATA"]) / f"winequality-{colour}.csv"
        if not path.exists():
            pytest.skip(f"{path.name} is not in VFLSYNTH_DATA")
        return pd.read_csv(path, sep=";")

    return read


def make_mixed(rows, seed):
    rng = np.random.default_rng(seed)
    health = rng.normal(size=rows)
    marker = 2.0 * health + rng.normal(size=rows)
    return pd.DataFrame(
        {
            "age": np.round(50 + 10 * health + 5 * rng.normal(size=rows)).astype("int64"),
            "smoker": rng.random(rows) < 1 / (1 + np.exp(-health)),
            "admitted": pd.Timestamp("2020-01-01", tz="UTC")
            + pd.to_timedelta(np.round(rng.exponential(100, rows)), unit="D"),
            "marker": np.where(rng.random(rows) < 0.1, np.nan, marker),
            "grade": pd.Categorical(
                np.where(health > 0.8, "high", np.where(health > -0.5, "mid", "low")),
                categories=["low", "mid", "high", "unused"],
            ),
            "count": pd.array(rng.poisson(3, rows), dtype="Int64"),
            "stage": pd.Series(rng.choice(["I", "II", "III"], rows), dtype="str").mask(
                rng.random(rows) < 0.05
            ),
        }
    )
