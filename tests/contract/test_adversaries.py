"""Every statistic and every adversary keeps the laws, and who breaks one is found."""

import numpy as np
import pytest

from vflsynth.adversary import (
    DEFAULT_STATISTICS,
    Adversary,
    LikelihoodRatio,
    Naive,
    RandomForest,
    RegularisedLogistic,
    Statistic,
)
from vflsynth.adversary.intervals import auc
from vflsynth.registry import find
from vflsynth.testing import adversary_checks, parametrize_with_checks, statistic_checks

ADVERSARIES = [RandomForest(n_trees=100), RegularisedLogistic(), LikelihoodRatio()]


def test_what_is_registered_is_listed_and_found_by_name():
    for group, members in (("statistics", DEFAULT_STATISTICS), ("adversaries", ADVERSARIES)):
        for member in members:
            assert find(member.name, group) is type(member)
            assert isinstance(member, (Statistic, Adversary))


@parametrize_with_checks(
    {repr(statistic): statistic_checks(statistic) for statistic in DEFAULT_STATISTICS}
    | {adversary.name: adversary_checks(adversary) for adversary in ADVERSARIES}
)
def test_laws(check):
    check()


class Broken(Naive):
    """Means and the like; `how` says how it errs."""

    name = "broken"

    def __init__(self, how):
        self.how = how

    def fit(self, table, categorical=()):
        if self.how == "itself":
            self._encoding = super().fit(table, categorical)._encoding
            return self
        if self.how == "in place":
            table["bool"] = False
        return super().fit(table, categorical)

    def _measure(self, table, target):
        found = super()._measure(table, target)
        return {
            "rows": lambda: np.r_[found, np.arange(len(table))],
            "order": lambda: np.r_[found, str(table.index[0]) == "0"],
            "chance": lambda: found + np.random.default_rng().normal(),
        }.get(self.how, lambda: found)()


@pytest.mark.parametrize(
    ("how", "law"),
    [
        ("rows", "every_table_has_as_many_finite_numbers"),
        ("order", "order_and_index_of_rows_mean_nothing"),
        ("itself", "fitting_leaves_it_and_the_tables_as_they_were"),
        ("in place", "fitting_leaves_it_and_the_tables_as_they_were"),
        ("chance", "nothing_is_drawn"),
    ],
)
def test_a_statistic_that_breaks_a_law_is_found(how, law):
    (check,) = [own for own in statistic_checks(Broken(how)) if own.law.__name__ == law]
    with pytest.raises(AssertionError, match=f"Broken .'broken'. breaks the law '{law}'"):
        check()


class Cheating(RegularisedLogistic):
    """A logistic regression; `how` says how it errs."""

    def __init__(self, how):
        self.how = how

    def fit(self, features, is_member):
        super().fit(features, is_member)
        if self.how == "training":
            self.training_scores = is_member.astype(float)
        if self.how == "boundary":
            self.boundary = 1.0
        if self.how == "in place":
            features[:] = 0.0
        return self

    def score(self, features):
        scores = super().score(features)
        if self.how == "ranks":
            return scores.argsort().argsort() / len(scores)
        if self.how == "chance":
            return scores + 1e-6 * np.random.default_rng().normal(size=len(scores))
        return -scores if self.how == "sign" else scores


@pytest.mark.parametrize(
    ("how", "law"),
    [
        ("sign", "a_shift_is_found"),
        ("training", "training_scores_are_honest"),
        ("boundary", "guesses_turn_at_the_boundary"),
        ("ranks", "models_are_scored_one_by_one"),
        ("chance", "the_same_models_teach_the_same"),
        ("in place", "the_same_models_teach_the_same"),
    ],
)
def test_an_adversary_that_breaks_a_law_is_found(how, law):
    (check,) = [own for own in adversary_checks(Cheating(how)) if own.law.__name__ == law]
    with pytest.raises(AssertionError, match=f"breaks the law '{law}'"):
        check()


def test_only_the_linear_adversary_sees_a_direction_without_noise():
    """Why it is there: one common noise term hides the shift from every single feature."""
    rng = np.random.default_rng(0)
    is_member = np.repeat([True, False], 100)
    features = np.repeat(rng.normal(size=(200, 1)), 4, axis=1)
    features[:, 0] += 0.05 * is_member
    training = np.tile([True, False], 100)
    areas = {
        adversary.name: auc(
            adversary.fit(features[training], is_member[training]).score(features[~training]),
            is_member[~training],
        )
        for adversary in ADVERSARIES
    }
    assert areas["regularised logistic"] > 0.99
    assert areas["random forest"] < 0.7
