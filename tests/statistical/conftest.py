"""Synthesizers whose leak is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator

from vflsynth.frames import align_party_frames


@pytest.fixture(autouse=True, scope="module")
def _as_users_do(tight_accountants: None) -> None:
    """A leak is held against the budget that users are told."""


class Repeater(BaseEstimator):
    """Publishes its training records, all of them or a bootstrap draw."""

    def __init__(self, bootstrap: bool = False, random_state: int | None = None) -> None:
        self.bootstrap, self.random_state = bootstrap, random_state

    def fit(self, party_frames: Any, on: Any = None) -> Repeater:
        aligned, _, _ = align_party_frames(party_frames, on)
        self.table_ = pd.concat(list(aligned.values()), axis=1)
        return self

    def sample(self, n: int) -> pd.DataFrame:
        if not self.bootstrap:
            return self.table_
        return self.table_.sample(n, replace=True, random_state=self.random_state)


class Oblivious(BaseEstimator):
    """Publishes noise, whatever it is given."""

    def __init__(self, random_state: int | None = None) -> None:
        self.random_state = random_state

    def fit(self, party_frames: Any, on: Any = None) -> Oblivious:
        self.columns_ = [column for frame in party_frames.values() for column in frame.columns]
        return self

    def sample(self, n: int) -> pd.DataFrame:
        rng = np.random.default_rng(self.random_state)
        return pd.DataFrame(rng.normal(size=(n, len(self.columns_))), columns=self.columns_)


@pytest.fixture
def repeater() -> Repeater:
    return Repeater()


@pytest.fixture
def bootstrap() -> Repeater:
    return Repeater(bootstrap=True)


@pytest.fixture
def oblivious() -> Oblivious:
    return Oblivious()


@pytest.fixture
def numbers() -> dict[str, pd.DataFrame]:
    """Two parties, five numeric columns, 60 records; record 7 stands out."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(60, 5)), columns=list("abcde"))
    table.loc[7] = [4.0, -4.0, 4.0, -4.0, 4.0]
    return {"left": table[["a", "b"]], "right": table[["c", "d", "e"]]}
