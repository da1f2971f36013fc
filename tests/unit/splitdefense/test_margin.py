"""GAFM's automatic margin (its appendix C.2)."""

from __future__ import annotations

import pandas as pd
import pytest

from vflsynth.exceptions import ParameterError
from vflsynth.splitdefense import GAFMClassifier
from vflsynth.splitdefense.margin import MARGINS, best_margin, margin_trials


def trials(**columns):
    return pd.DataFrame(columns, index=pd.Index(MARGINS, name="margin"))


def test_lowest_ratio_among_those_that_learn():
    found = trials(train_auc=[0.9, 0.8, 0.55, 0.7, 0.9], ratio=[0.9, 0.7, 0.1, 0.8, 0.7])
    assert best_margin(found) == 0.1, "0.2 has the lowest ratio but an AUC below .6"
    nothing_learns = found.assign(train_auc=0.5)
    assert best_margin(nothing_learns) == 0.2


@pytest.fixture(scope="module")
def fitted(tables):
    frames, y = tables
    return GAFMClassifier(
        active="bank", pseudo_label_margin="auto", epochs=5, learning_rate=5e-3, random_state=0
    ).fit(frames, y, on="id")


def test_margin_is_chosen_by_trials(fitted, tables):
    assert tuple(fitted.margins_.index) == MARGINS
    assert fitted.margins_["train_auc"].between(0.5, 1.0).all()
    assert fitted.margins_["leak_auc"].between(0.5, 1.0).all()
    assert fitted.pseudo_label_margin_ == best_margin(fitted.margins_)
    assert fitted.pseudo_label_margin == "auto", "parameters stay as they were given"
    assert fitted.method().objective.pseudo_label_margin == fitted.pseudo_label_margin_
    frames, y = tables
    pd.testing.assert_frame_equal(margin_trials(fitted, frames, y, "id"), fitted.margins_)


def test_result_is_that_of_the_margin_chosen(fitted, tables):
    frames, y = tables
    given = GAFMClassifier(**fitted.get_params()).set_params(
        pseudo_label_margin=fitted.pseudo_label_margin_
    )
    given.fit(frames, y, on="id")
    assert given.margins_ is None
    assert (given.predict_proba(frames) == fitted.predict_proba(frames)).all()


@pytest.mark.parametrize("margin", ["best", 0.6, -0.1])
def test_other_margins_are_refused(margin, tables):
    frames, y = tables
    with pytest.raises(ParameterError, match=r"GAFM: pseudo_label_margin must be 'auto' or"):
        GAFMClassifier(active="bank", pseudo_label_margin=margin).fit(frames, y, on="id")
