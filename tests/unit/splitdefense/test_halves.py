"""Parties' halves on their own, and what parties say of their columns and keys."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from vflsynth.columns import TableTransformer
from vflsynth.exceptions import ArtefactError, ColumnKindError, ParameterError
from vflsynth.run.local import Options
from vflsynth.splitdefense import GAFMClassifier, SplitNNClassifier
from vflsynth.splitdefense.model import BottomModel, TopModel
from vflsynth.splitdefense.run import SplitRun


def test_halves_are_saved_alone(tables, tmp_path):
    frames, y = tables
    classifier = GAFMClassifier(active="bank", epochs=2, random_state=0).fit(frames, y, on="id")
    features = {}
    for name, half in classifier.parties_.items():
        half.save(tmp_path / name)
        columns = frames[name].set_index("id").sort_index()
        features[name] = BottomModel.load(tmp_path / name).features(columns)
    classifier.top_.save(tmp_path / "top")
    top = TopModel.load(tmp_path / "top")
    assert np.array_equal(top.classes, classifier.classes_)
    assert np.array_equal(top.probabilities(features), classifier.predict_proba(frames))
    with pytest.raises(ArtefactError, match="not a saved"):
        TopModel.load(tmp_path / "shop")


def test_declared_kinds_are_those_of_the_party_that_has_the_column():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.integers(5, size=60), "b": "text", "c": rng.normal(size=60)})
    y = pd.Series(X["a"] > 2)
    frames = {"p": X[["a"]], "q": X[["b", "c"]]}
    options = {"epochs": 1, "transformer": TableTransformer(kinds={"a": "categorical"})}
    owned = {name: list(frame) for name, frame in frames.items()}
    table = SplitNNClassifier(party_columns=owned, **options).fit(X, y)
    for classifier in (table, SplitNNClassifier(active="q", **options).fit(frames, y)):
        assert classifier.parties_["p"].transformer.kinds_ == {"a": "categorical"}
        assert classifier.parties_["q"].transformer.kinds_["c"] == "continuous"
    misspelt = SplitNNClassifier(transformer=TableTransformer(kinds={"z": "categorical"}))
    with pytest.raises(ColumnKindError, match="there is no such column"):
        misspelt.fit(frames, y)


def test_parties_tell_nothing_about_their_largest_keys(tables):
    frames, y = tables
    method = SplitNNClassifier(active="bank").method()
    run = SplitRun(method, frames, y, "id", templates={}, options=Options())
    assert {party.facts()["key_offset"] for party in run.parties.values()} == {"0"}


def test_parameters_that_only_the_run_reads_are_checked(tables):
    with pytest.raises(ParameterError, match="checkpoint_every must be"):
        SplitNNClassifier(active="bank").fit(*tables, on="id", checkpoint_every=0)
