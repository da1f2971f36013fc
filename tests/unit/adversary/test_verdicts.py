"""p-values, their adjustment, and power, each against slow and obvious code."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, mannwhitneyu, rankdata

from tests.later import later
from vflsynth.adversary.intervals import (
    holm,
    least_leak_found,
    most_telling,
    rank_sum_p_value,
)


@given(st.lists(st.integers(0, 3), min_size=2, max_size=8), st.data())
def test_p_values_count_all_ways_to_choose_members(values, data):
    n_in = data.draw(st.integers(1, len(values) - 1))
    scores, is_member = np.array(values, float), np.arange(len(values)) < n_in
    ranks = rankdata(scores)
    sums = [ranks[list(chosen)].sum() for chosen in combinations(range(len(values)), n_in)]
    expected = np.mean([total >= ranks[is_member].sum() - 1e-9 for total in sums])
    assert rank_sum_p_value(scores, is_member) == pytest.approx(expected)


def test_large_samples_take_the_normal_approximation():
    rng = np.random.default_rng(0)
    for n, members in ((100, 50), (102, 51)):
        scores, is_member = rng.normal(size=n), np.arange(n) < members
        test = mannwhitneyu(scores[is_member], scores[~is_member], alternative="greater")
        assert rank_sum_p_value(scores, is_member) == pytest.approx(test.pvalue, abs=2e-3)


def test_adjusted_p_values_keep_the_family_s_error():
    rng = np.random.default_rng(1)
    families = rng.random((4000, 20))
    assert np.mean([min(holm(family)) <= 0.05 for family in families]) <= 0.06
    assert holm([0.2]) == [0.2]
    assert holm([0.9, 0.8]) == [1.0, 1.0]


@pytest.mark.parametrize(
    ("n_in", "n_out", "level"), [*later((50, 50, 0.05)), (30, 30, 0.01), (10, 20, 0.05)]
)
def test_power_is_that_of_a_leak_that_shows_in_some_releases(n_in, n_out, level):
    share = least_leak_found(n_in, n_out, level=level)
    is_member = np.arange(n_in + n_out) < n_in
    found = [
        rank_sum_p_value((np.arange(n_in + n_out) < hits).astype(float), is_member) <= level
        if n_in + n_out <= 100
        else False
        for hits in range(n_in + 1)
    ]
    power = binom.pmf(np.arange(n_in + 1), n_in, share)[found].sum()
    assert power == pytest.approx(0.8, abs=1e-6)


def test_too_few_models_find_nothing():
    assert least_leak_found(2, 2, level=0.05) == float("inf")


def _attacks(rng, tells, n_each=20, n_attacks=20):
    """Scores of attacks in training and in test, of which one tells and the others err alike."""
    members = np.repeat([True, False], n_each)
    found = []
    for _ in range(2):
        scores = rng.normal(size=(n_attacks, 2 * n_each)) + 2.0 * rng.normal(size=2 * n_each)
        scores[7] = rng.normal(size=2 * n_each) + tells * members
        found += [scores, members]
    return found


@pytest.mark.slow
def test_the_choice_of_the_most_telling_attack_is_paid_for():
    """Of what tells nothing one in twenty is called out; the best of the attacks is not lost."""
    rng = np.random.default_rng(0)
    null = [most_telling(*_attacks(rng, 0.0))[1] for _ in range(100)]
    assert np.mean(np.array(null) <= 0.05) <= 0.11  # 99 % of binomial draws
    found = [most_telling(*_attacks(rng, 1.3)) for _ in range(30)]
    assert np.mean([attack == 7 and p <= 0.05 for attack, p in found]) > 0.8
    scores, members, *training = _attacks(rng, 1.3)
    alone = most_telling(scores[7:8], members, training[0][7:8], training[1])
    assert alone == (0, rank_sum_p_value(scores[7], members))
