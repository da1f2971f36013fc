"""Laws that every statistic and every adversary keeps."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vflsynth.adversary import (
    DEFAULT_STATISTICS,
    Adversary,
    LikelihoodRatio,
    RandomForest,
    RegularisedLogistic,
    Statistic,
)
from vflsynth.adversary.intervals import auc
from vflsynth.datasets import make_party_frames
from vflsynth.exceptions import ColumnMismatchError
from vflsynth.registry import find

ADVERSARIES = [RandomForest(n_trees=100), RegularisedLogistic(), LikelihoodRatio()]


def _mixed(seed: int, n: int = 60) -> pd.DataFrame:
    """Numbers, labels, times and missing values."""
    frames = make_party_frames(n, 2, random_state=seed)
    tables = [frame.set_index("record_id").sort_index() for frame in frames.values()]
    return pd.concat(tables, axis=1).reset_index(drop=True)


def test_what_is_registered_is_listed_and_found_by_name():
    for group, members in (("statistics", DEFAULT_STATISTICS), ("adversaries", ADVERSARIES)):
        for member in members:
            assert find(member.name, group) is type(member)
            assert isinstance(member, (Statistic, Adversary))


@pytest.mark.parametrize("statistic", DEFAULT_STATISTICS, ids=repr)
class TestStatistics:
    def test_every_table_gives_as_many_finite_numbers(self, statistic):
        known = _mixed(0)
        fitted = statistic.fit(known, categorical=["count_1"])
        lengths = set()
        for table in (known, _mixed(1, 200), _mixed(2, 2), known.head(1), known.iloc[[3] * 9]):
            features = fitted.measure(table, known.head(1))
            assert np.isfinite(features).all()
            lengths.add(features.shape)
        assert len(lengths) == 1

    def test_the_order_of_rows_does_not_matter(self, statistic):
        known = _mixed(0)
        fitted = statistic.fit(known)
        shuffled = known.sample(frac=1, random_state=0)
        np.testing.assert_allclose(
            fitted.measure(known, known.head(1)), fitted.measure(shuffled, known.head(1)), atol=1e-8
        )

    def test_fitting_returns_a_copy(self, statistic):
        known = _mixed(0)
        first = statistic.fit(known)
        before = first.measure(known, known.head(1))
        statistic.fit(known[["measure_1", "group_1"]])
        np.testing.assert_array_equal(before, first.measure(known, known.head(1)))

    def test_a_table_without_a_column_is_refused_by_name(self, statistic):
        known = _mixed(0)
        with pytest.raises(ColumnMismatchError, match="'city_2'"):
            statistic.fit(known).measure(known.drop(columns="city_2"), known.head(1))

    @settings(max_examples=25, deadline=None)
    @given(
        data=st.data(),
        values=st.lists(
            st.floats(allow_nan=True, allow_infinity=False, width=32), min_size=1, max_size=8
        ),
    )
    def test_nasty_numbers_give_finite_features(self, statistic, data, values):
        known = pd.DataFrame({"x": [0.0, 1.0, 2.0, 5.0], "y": ["a", "b", "a", None]})
        labels = st.sampled_from(["a", "b", "c", None])
        table = pd.DataFrame({"x": values, "y": [data.draw(labels) for _ in values]})
        assert np.isfinite(statistic.fit(known).measure(table, known.head(1))).all()


@pytest.mark.parametrize("adversary", ADVERSARIES, ids=lambda adversary: adversary.name)
class TestAdversaries:
    @staticmethod
    def _worlds(shift: float, n: int = 80, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(seed)
        is_member = np.repeat([True, False], n)
        return rng.normal(size=(2 * n, 6)) + shift * is_member[:, None], is_member

    def test_it_finds_a_shift(self, adversary):
        features, is_member = self._worlds(1.0)
        fresh, fresh_members = self._worlds(1.0, seed=1)
        adversary.fit(features, is_member)
        assert auc(adversary.score(fresh), fresh_members) > 0.9
        assert auc(adversary.training_scores, is_member) > 0.8

    def test_its_training_scores_are_honest(self, adversary):
        """Scores of a classifier that saw the label would be nearly perfect on noise."""
        features, is_member = self._worlds(0.0)
        assert auc(adversary.fit(features, is_member).training_scores, is_member) < 0.65

    def test_its_boundary_is_where_guesses_turn(self, adversary):
        features, is_member = self._worlds(3.0)
        guesses = adversary.fit(features, is_member).score(features) >= adversary.boundary
        assert (guesses == is_member).mean() > 0.95

    def test_it_repeats_itself(self, adversary):
        features, is_member = self._worlds(0.5)
        first = adversary.fit(features, is_member).score(features)
        np.testing.assert_array_equal(first, adversary.fit(features, is_member).score(features))

    def test_constant_and_perfectly_separating_statistics_are_no_error(self, adversary):
        features = np.zeros((40, 3))
        is_member = np.repeat([True, False], 20)
        assert np.isfinite(adversary.fit(features, is_member).score(features)).all()
        features[:20, 0] = 1.0
        scores = adversary.fit(features, is_member).score(features)
        assert auc(scores, is_member) == 1.0


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
