"""GAFM's automatic margin (its appendix C.2)."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from vflsynth.exceptions import ParameterError
from vflsynth.splitdefense import GAFMClassifier, RandomizedResponse
from vflsynth.splitdefense.gafm import MARGINS, best_margin


def trials(**columns):
    return pd.DataFrame(columns, index=pd.Index(MARGINS, name="margin"))


def test_lowest_ratio_among_those_that_learn():
    found = trials(train_auc=[0.9, 0.8, 0.55, 0.7, 0.9], ratio=[0.9, 0.7, 0.1, 0.8, 0.7])
    assert best_margin(found) == 0.1, "0.2 has the lowest ratio but an AUC below .6"
    nothing_learns = found.assign(train_auc=0.5)
    assert best_margin(nothing_learns) == 0.2


@pytest.fixture(scope="module")
def fitted(tables):
    return GAFMClassifier(
        active="bank", pseudo_label_margin="auto", epochs=5, learning_rate=5e-3, random_state=0
    ).fit(*tables, on="id")


@pytest.mark.slow
def test_margin_is_chosen_by_trials(fitted, tables):
    assert tuple(fitted.margins_.index) == MARGINS
    assert fitted.margins_["train_auc"].between(0.5, 1.0).all()
    assert fitted.margins_["leak_auc"].between(0.5, 1.0).all()
    assert fitted.pseudo_label_margin_ == best_margin(fitted.margins_)
    assert fitted.pseudo_label_margin == "auto", "parameters stay as they were given"
    assert fitted.make_objective().pseudo_label_margin == fitted.pseudo_label_margin_
    pd.testing.assert_frame_equal(fitted.margin_trials(*tables, "id"), fitted.margins_)


@pytest.mark.slow
def test_result_is_that_of_the_margin_chosen(fitted, tables):
    frames, y = tables
    given = GAFMClassifier(**fitted.get_params()).set_params(
        pseudo_label_margin=fitted.pseudo_label_margin_
    )
    given.fit(frames, y, on="id")
    assert given.margins_ is None
    assert (given.predict_proba(frames) == fitted.predict_proba(frames)).all()


def test_tenths_without_one_of_the_classes_count_for_nothing():
    X = np.random.default_rng(0).normal(size=(150, 3))
    classifier = GAFMClassifier(pseudo_label_margin="auto", epochs=1, random_state=0)
    found = classifier.fit(X, np.arange(150) == 0).margins_
    assert found["train_auc"].between(0.5, 1.0).all()
    assert classifier.pseudo_label_margin_ == best_margin(found)


@pytest.mark.parametrize("margin", ["best", 0.6, -0.1])
def test_other_margins_are_refused(margin, tables):
    with pytest.raises(ParameterError, match=r"GAFM: pseudo_label_margin must be 'auto' or"):
        GAFMClassifier(active="bank", pseudo_label_margin=margin).fit(*tables, on="id")


def test_margin_and_private_labels_exclude_each_other(tables):
    classifier = GAFMClassifier(
        active="bank", pseudo_label_margin="auto", label_privacy=RandomizedResponse(1.0)
    )
    with pytest.raises(ParameterError, match="label_privacy: it trains 25 times"):
        classifier.fit(*tables, on="id")


@pytest.mark.slow
def test_trials_see_only_the_records_that_are_trained_on(tables):
    frames, y = tables
    classifier = GAFMClassifier(active="bank", pseudo_label_margin="auto", epochs=2, random_state=0)
    rows = np.arange(300)
    (fitted,) = classifier.fit_replicas(frames, y, "id", random_states=[0], replica_rows=[rows])
    pd.testing.assert_frame_equal(classifier.margin_trials(frames, y, "id", rows), fitted.margins_)
    others = y.copy()
    others.iloc[300:] = "benign"  # the bank's table is in key order
    pd.testing.assert_frame_equal(
        classifier.margin_trials(frames, others, "id", rows), fitted.margins_
    )


@pytest.mark.slow
def test_training_auc_is_that_of_the_predictions(tables):
    frames, y = tables
    # Only the active party knows anything about the labels.
    knows = frames["bank"][["id"]].assign(hint=(y == "benign") * 1.0)
    noise = frames["web"][["id"]].assign(noise=np.random.default_rng(0).normal(size=len(y)))
    classifier = GAFMClassifier(
        active="bank", pseudo_label_margin="auto", epochs=60, learning_rate=5e-3, random_state=0
    )
    found = classifier.margin_trials({"bank": knows, "web": noise}, y, "id")
    assert found["train_auc"].mean() > 0.9, "noise alone has 0.5"
