import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from vflsynth.evaluation import detection_auc
from vflsynth.exceptions import ParameterError


def test_samples_of_one_distribution_cannot_be_told_apart(make):
    result = detection_auc(make(1000, seed=0), make(1000, seed=1))
    low, high = result.interval
    assert low - 0.02 <= 0.5 <= high + 0.02
    assert result.value == pytest.approx(0.5, abs=0.04)


def test_disjoint_tables_are_always_told_apart(mixed):
    result = detection_auc(mixed, mixed.assign(age=mixed["age"] + 1000))
    assert result.value == pytest.approx(1.0, abs=1e-6)
    assert result.gap_closed == pytest.approx(0.0, abs=1e-6)


def test_copies_are_neither_told_apart_nor_below_chance(mixed):
    result = detection_auc(mixed, mixed.sample(frac=1, random_state=0))
    assert result.value == pytest.approx(0.5, abs=0.03)


def test_a_linear_classifier_sees_less():
    rng = np.random.default_rng(0)
    real = pd.DataFrame({"x": rng.normal(size=1000)})
    narrow = pd.DataFrame({"x": 0.3 * rng.normal(size=1000)})
    trees = detection_auc(real, narrow)
    linear = detection_auc(real, narrow, classifier=LogisticRegression())
    assert trees.value > 0.7 > linear.value


@pytest.mark.parametrize("classifier", ["x", LogisticRegression])
def test_what_is_no_classifier_is_refused(mixed, classifier):
    with pytest.raises(ParameterError, match="classifier must be an estimator with predict_proba"):
        detection_auc(mixed, mixed, classifier=classifier)


def test_too_few_rows_do_not_apply(mixed):
    assert "10 rows" in detection_auc(mixed.head(8), mixed).not_applicable
    constant = pd.DataFrame({"x": [1.0] * 50})
    assert "cannot be split" in detection_auc(constant, constant).not_applicable
