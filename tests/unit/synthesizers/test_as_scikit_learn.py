"""Synthesizers and transformers where scikit-learn's users expect things."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import vflsynth
from vflsynth import (
    ColumnContract,
    Contract,
    IndependentSynthesizer,
    MixtureSynthesizer,
    PartyContract,
    TableTransformer,
    VFLGANSynthesizer,
)
from vflsynth.datasets import make_party_frames
from vflsynth.exceptions import ParameterError

TABLE = pd.DataFrame({"age": [31.5, None, 48.25, 20.0], "smoker": [True, False, True, True]})
NAMES = ["age_value", "age_state_0", "age_state_1", "smoker_category_0", "smoker_category_1"]


def test_a_table_transformer_names_its_columns_and_makes_frames():
    plain = TableTransformer().fit(TABLE)
    assert plain.get_feature_names_out().tolist() == NAMES
    named = clone(TableTransformer().set_output(transform="pandas")).fit(TABLE)
    made = named.transform(TABLE.set_index(pd.Index([7, 8, 9, 10])))
    assert made.columns.tolist() == NAMES
    assert made.index.tolist() == [7, 8, 9, 10]
    np.testing.assert_array_equal(made.to_numpy(), plain.transform(TABLE))
    with pytest.raises(ParameterError, match="'default' or 'pandas'"):
        plain.set_output(transform="polars")


def test_a_pipeline_of_a_transformer_sets_its_output():
    pipeline = make_pipeline(TableTransformer(), FunctionTransformer(lambda x: 2 * x))
    made = pipeline.set_output(transform="pandas").fit_transform(TABLE)
    assert made.columns.tolist() == NAMES


def test_parties_learn_from_arrays_whatever_a_transformer_returns(tables):
    one, other = (
        IndependentSynthesizer(transformer=template, random_state=0).fit(tables).sample(9)
        for template in (TableTransformer(), TableTransformer().set_output(transform="pandas"))
    )
    pd.testing.assert_frame_equal(one, other)


@pytest.fixture
def tables():
    rng = np.random.default_rng(0)
    one = pd.DataFrame({"a": rng.normal(size=90), "b": rng.choice(["x", "y"], 90)})
    return {"one": one, "two": pd.DataFrame({"c": rng.choice(["u", "v", "w"], 90)})}


def test_parameters_of_the_default_transformer_can_be_set():
    synth = IndependentSynthesizer().set_params(transformer__rare_records=3, random_state=1)
    assert synth.transformer.rare_records == 3
    given = TableTransformer(max_levels=4)
    changed = IndependentSynthesizer(transformer=given).set_params(transformer__rare_records=3)
    assert (changed.transformer.max_levels, changed.transformer.rare_records) == (4, 3)


def test_privacy_may_be_named_as_on_the_command_line(tables):
    text = "pairwise_tables, epsilon=3, delta=1e-6"
    contract = Contract(
        {
            "one": PartyContract({"b": ColumnContract(dtype="str", categories=("x", "y"))}),
            "two": PartyContract({"c": ColumnContract(dtype="str", categories=("u", "v", "w"))}),
        }
    )
    synth = MixtureSynthesizer(privacy=text, contract=contract)
    assert clone(synth).privacy == text
    assert type(synth.method().privacy).__name__ == "PairwiseTables"
    assert synth.method().privacy.epsilon == 3
    frames = {"one": tables["one"][["b"]], "two": tables["two"]}
    assert synth.fit(frames).privacy_ledger_.epsilon() == pytest.approx(3, rel=1e-2)
    with pytest.raises(ParameterError, match="there is no 'pairwise'"):
        MixtureSynthesizer(privacy="pairwise").method()
    with pytest.raises(ParameterError, match="cannot be read"):
        MixtureSynthesizer(privacy="pairwise_tables, epsilon=").method()
    with pytest.raises(ParameterError, match="cannot be read"):
        MixtureSynthesizer(privacy="pairwise_tables, epsilon=1, epsilon=9").method()


def test_parameters_of_a_named_mechanism_can_be_set():
    synth = MixtureSynthesizer(privacy="pairwise_tables").set_params(
        privacy__epsilon=1.0, privacy__delta=1e-6
    )
    assert synth.method().privacy.epsilon == 1.0
    with pytest.raises(ParameterError, match="privacy__epsilon: set privacy to an object that"):
        MixtureSynthesizer().set_params(privacy__epsilon=1.0)


def test_judging_and_releasing_are_top_level_names():
    names = ("evaluate", "audit_synthetic_data", "release_gate", "write_release", "publish")
    assert all(callable(getattr(vflsynth, name)) for name in names)


def test_small_numbers_of_numpy_count_as_python_s():
    """Four times 60 states were minus 16, and columns unrelated; networks overflowed."""
    privacy = "pairwise_tables, epsilon=3, delta=1e-6"
    mixture = MixtureSynthesizer(privacy=privacy, n_states=np.int8(60)).method()
    assert (mixture.n_fine, mixture.width) == (240, 241)
    sizes = {"latent_dim": np.uint8(200), "generator_hidden": (np.uint8(200), np.int8(9))}
    synth = VFLGANSynthesizer(**sizes, epochs=1, verbose=0, random_state=0)
    synth.fit(make_party_frames(60, 2, random_state=0), on="record_id")
    assert synth.settings_["generator_hidden"] == (200, 9)
    assert synth.latent_dim.dtype == np.uint8
    assert len(synth.sample(np.int8(100), conditions={"flag_1": True})) == 100
