"""What never comes out by default: rare categories and single extremes, contract or not."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from tests.later import later
from tests.unit.contract.test_every_synthesizer import PLAIN
from vflsynth import (
    ColumnContract,
    Contract,
    IndependentSynthesizer,
    PartyContract,
)
from vflsynth.columns import TableTransformer
from vflsynth.columns.kinds import recognise
from vflsynth.exceptions import IdentifierError, PublishingWarning

N = 200


def people(n=N):
    """Families of two, somebody with a post of their own, ages whose ends few records hold."""
    rng = np.random.default_rng(0)
    age = 10 * rng.integers(3, 8, n)
    age[:4], age[4:6] = 20, 90  # means of five would be rounded to these on a grid of tens
    return pd.DataFrame(
        {
            "family": [f"F{i // 2}" for i in range(n)],
            "post": [
                "the only one" if i == 7 else "usual" if i % 3 else "other one" for i in range(n)
            ],
            "age": age,
            "flag": rng.random(n) < 0.4,
        }
    )


@pytest.mark.parametrize("estimator", PLAIN, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("contract", [None, *later(Contract())], ids=["alone", "contract"])
@pytest.mark.usefixtures("quick_contexts")
def test_nobodys_own_value_comes_out(estimator, contract):
    table = people()
    kinds = {"family": "categorical"}
    frames = {"lab": table[["family", "age"]], "clinic": table[["post", "flag"]].copy()}
    for name, frame in frames.items():
        frames[name] = frame.set_axis([f"k{i}" for i in range(N)], axis=0)
    synth = clone(estimator)
    synth.set_params(random_state=0, column_kinds=kinds, contract=contract)
    with pytest.warns(PublishingWarning, match="'family': 100% of the records have a value"):
        sample = synth.fit(frames).sample(2000)
    assert set(sample["family"]) == {"other"}
    assert "the only one" not in set(sample["post"])
    assert {20, 90}.isdisjoint(sample["age"])
    assert sample["age"].isin(range(30, 81, 10)).mean() > 0.9


def test_what_is_asked_for_comes_out():
    table = people().set_axis([f"k{i}" for i in range(N)], axis=0)
    for synth in (
        IndependentSynthesizer(
            transformer=TableTransformer(rare_records=0, extreme_records=0, rare_threshold=0.0),
            column_kinds={"family": "categorical"},
        ),
        IndependentSynthesizer(
            contract=Contract(
                {
                    "lab": PartyContract(
                        {
                            "age": ColumnContract(extremes=True),
                            "family": ColumnContract(role="ordinary"),
                        }
                    )
                },
                rare_records=0,
            )
        ),
    ):
        sample = synth.set_params(random_state=0).fit({"lab": table}).sample(3000)
        assert "the only one" in set(sample["post"])
        assert sample["family"].nunique() > 90
        assert {20, 90} <= set(sample["age"])


@pytest.mark.parametrize("label", ["surname", "Last name", "first_name"])
def test_names_of_people_are_refused_however_often_they_occur(label):
    column = pd.Series([f"N{i % 30}" for i in range(900)], name=label)
    assert recognise(column).what == "names of people"


def test_a_column_called_name_may_be_of_products():
    products = pd.Series([f"Product {i % 30}" for i in range(900)], name="name")
    assert recognise(products) is None
    people_ = pd.Series([f"Somebody {i // 2}" for i in range(900)], name="name")
    assert recognise(people_).role == "identifier"
    frames = {
        "lab": pd.DataFrame({"name": people_, "a": np.random.default_rng(0).normal(size=900)})
    }
    frames["lab"].index += 5
    with pytest.raises(IdentifierError, match=r"write-contract.*role 'identifier'.*'ordinary'"):
        IndependentSynthesizer().fit(frames)
    said = Contract({"lab": PartyContract({"name": ColumnContract(role="ordinary")})})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PublishingWarning)
        sample = IndependentSynthesizer(contract=said).fit(frames).sample(50)
    assert set(sample["name"]) == {"other"}
