"""A table, another of the same population, and a contract that says what a release must keep."""

import datetime

import numpy as np
import pandas as pd
import pytest

from tests.smaller import judge_by_few_trees
from vflsynth.contract import ColumnContract, Contract, PartyContract, ReleaseTerms
from vflsynth.evaluation import evaluate

WAIVED = {
    "membership": "audited with the last edition",
    "singling_out": "audited with the last edition",
    "linkability": "one party's columns only",
    "inference": "nothing here is sensitive",
}
DATE = datetime.date(2026, 3, 1)


def make(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    health = rng.normal(size=n)
    return pd.DataFrame(
        {
            "income": np.exp(10 + health) + rng.random(n),
            "age": rng.integers(18, 80, n),
            "sex": rng.choice(["f", "m"], n),
            "town": rng.choice(["Ulm", "Bonn", "Trier"], n, p=[0.5, 0.3, 0.2]),
            "ill": np.where(health + rng.normal(size=n) > 0, "yes", "no"),
        }
    )


def make_contract(**release) -> Contract:
    quasi = ColumnContract(role="quasi-identifier")
    terms = ReleaseTerms(**{"waived": WAIVED, **release})
    columns = {"age": quasi, "sex": quasi, "town": quasi}
    return Contract({"office": PartyContract(columns, ["age >= 18"])}, release=terms)


@pytest.fixture(scope="session")
def real() -> pd.DataFrame:
    return make(600, 0)


@pytest.fixture(scope="session")
def synthetic() -> pd.DataFrame:
    """Fresh rows of the same population: what a perfect synthesizer would give."""
    return make(600, 1)


@pytest.fixture(autouse=True, scope="module")
def _few_trees():
    """Judge by forests of a few trees: which clauses fail does not depend on more."""
    with pytest.MonkeyPatch.context() as patch:
        judge_by_few_trees(patch, 20, n_rounds=10)
        yield


@pytest.fixture(scope="module")
def evaluation(_few_trees, real, synthetic):
    """What the gate computes itself if nobody else has: the tests of clauses need it once."""
    return evaluate(real, synthetic, target="ill")
