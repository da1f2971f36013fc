"""Laws that every split classifier obeys: scikit-learn's own checks, on a single table."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from vflsynth.splitdefense import (
    DIMIPClassifier,
    GAFMClassifier,
    Marvell,
    MarvellClassifier,
    SplitNNClassifier,
)

# Small enough for a hundred fits, large enough to learn the checks' toy problems.
QUICK = {"epochs": 15, "learning_rate": 0.04, "bottom_hidden": (16,), "batch_size": 64}


BATCHES = "a record twice is in two batches, and one of weight 2 in one"
WEIGHTS = (
    "check_class_weight_classifiers",
    "check_classifiers_one_label_sample_weights",
    "check_sample_weights_list",
    "check_sample_weights_not_an_array",
    "check_sample_weights_not_overwritten",
    "check_sample_weights_pandas_series",
    "check_sample_weights_shape",
)


def expected(estimator):
    """Return the checks that an estimator does not pass, with the reason."""
    of_gafm = dict.fromkeys(WEIGHTS, "its losses are of batches: weights are refused")
    found = of_gafm if isinstance(estimator, GAFMClassifier) else {}
    return found | {"check_sample_weight_equivalence_on_dense_data": BATCHES}


@parametrize_with_checks([SplitNNClassifier(**QUICK)], expected_failed_checks=expected)
def test_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        MarvellClassifier(**QUICK),
        SplitNNClassifier(protection=Marvell(1.0), monitor=False, numeric_bins=0, **QUICK),
        DIMIPClassifier(**QUICK),
        GAFMClassifier(**(QUICK | {"epochs": 50})),
    ],
    expected_failed_checks=expected,
)
def test_scikit_learn_of_other_protections(estimator, check):
    """What these add to those above is one protection of gradients, or another objective."""
    check(estimator)
