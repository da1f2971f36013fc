"""Intervals and bounds against definitions."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom
from sklearn.metrics import roc_auc_score

from vflsynth.adversary.intervals import (
    auc,
    auc_interval,
    best_threshold,
    binomial_interval,
    epsilon_lower_bound,
    most_epsilon,
    tpr_at_fpr,
)

scores_and_members = st.lists(
    st.tuples(st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.0, 7.5]), st.booleans()),
    min_size=6,
    max_size=40,
).filter(lambda pairs: 2 <= sum(member for _, member in pairs) <= len(pairs) - 2)


def _split(pairs):
    return np.array([score for score, _ in pairs]), np.array([member for _, member in pairs])


@given(successes=st.integers(0, 40), extra=st.integers(0, 40))
def test_the_binomial_interval_is_where_tails_are_two_and_a_half_percent(successes, extra):
    trials = successes + extra
    if not trials:
        return
    interval = binomial_interval(successes, trials)
    assert 0.0 <= interval.low <= interval.value <= interval.high <= 1.0
    if successes:
        assert binom.sf(successes - 1, trials, interval.low) == pytest.approx(0.025)
    if extra:
        assert binom.cdf(successes, trials, interval.high) == pytest.approx(0.025)


@settings(max_examples=60)
@given(pairs=scores_and_members)
def test_auc_is_the_share_of_pairs_in_the_right_order(pairs):
    scores, is_member = _split(pairs)
    wins = [
        (a > b) + (a == b) / 2 for a, b in itertools.product(scores[is_member], scores[~is_member])
    ]
    assert auc(scores, is_member) == pytest.approx(np.mean(wins))
    assert auc(scores, is_member) == pytest.approx(roc_auc_score(is_member, scores))


@settings(max_examples=60)
@given(pairs=scores_and_members)
def test_the_auc_interval_holds_the_value_and_mirrors(pairs):
    scores, is_member = _split(pairs)
    interval = auc_interval(scores, is_member)
    mirrored = auc_interval(-scores, is_member)
    assert 0.0 <= interval.low <= interval.value <= interval.high <= 1.0
    assert mirrored.low == pytest.approx(1 - interval.high, abs=1e-6)
    assert mirrored.high == pytest.approx(1 - interval.low, abs=1e-6)


def test_perfect_separation_does_not_give_an_empty_interval():
    for n, low in ((5, 0.64), (50, 0.96)):
        interval = auc_interval(np.r_[np.ones(n), np.zeros(n)], np.repeat([True, False], n))
        assert interval.value == interval.high == 1.0
        assert interval.low == pytest.approx(low, abs=0.01)


def test_the_variance_is_delongs():
    """Against the kernel matrix of all pairs."""
    rng = np.random.default_rng(0)
    is_member = np.repeat([True, False], (40, 70))
    scores = np.round(rng.normal(size=110) + 0.5 * is_member, 1)  # with ties
    inside, outside = scores[is_member], scores[~is_member]
    kernel = (inside[:, None] > outside) + 0.5 * (inside[:, None] == outside)
    variance = kernel.mean(1).var(ddof=1) / 40 + kernel.mean(0).var(ddof=1) / 70
    value = kernel.mean()
    reach = 1.959964 * math.sqrt(variance) / (value * (1 - value))
    logit = math.log(value / (1 - value))
    interval = auc_interval(scores, is_member)
    assert interval.low == pytest.approx(1 / (1 + math.exp(-logit + reach)))
    assert interval.high == pytest.approx(1 / (1 + math.exp(-logit - reach)))


@settings(max_examples=60)
@given(pairs=scores_and_members, fpr=st.sampled_from([0.0, 0.01, 0.1, 0.5, 1.0]))
def test_tpr_at_fpr_is_the_best_threshold_of_all(pairs, fpr):
    scores, is_member = _split(pairs)
    rates = [
        (scores[is_member] >= threshold).mean()
        for threshold in [*scores, np.inf]
        if (scores[~is_member] >= threshold).mean() <= fpr
    ]
    assert tpr_at_fpr(scores, is_member, fpr).value == pytest.approx(max(rates))


@given(
    hits=st.integers(0, 50),
    false_alarms=st.integers(0, 50),
    delta=st.sampled_from([0.0, 1e-3, 0.1]),
)
def test_the_bound_treats_both_worlds_alike_and_never_exceeds_a_perfect_attack(
    hits, false_alarms, delta
):
    bound = epsilon_lower_bound(hits, 50, false_alarms, 50, delta=delta)
    mirrored = epsilon_lower_bound(50 - false_alarms, 50, 50 - hits, 50, delta=delta)
    assert bound == pytest.approx(mirrored)
    assert 0.0 <= bound <= most_epsilon(50, 50, delta=delta)


def test_the_bound_by_hand():
    # 97.5 % one-sided bounds of 30 of 30: 0.025 ** (1 / 30).
    low = 0.025 ** (1 / 30)
    assert most_epsilon(30, 30) == pytest.approx(math.log(low / (1 - low)))
    assert most_epsilon(30, 30, delta=0.1) == pytest.approx(math.log((low - 0.1) / (1 - low)))


def test_the_bound_errs_as_seldom_as_it_says():
    """Randomised response with epsilon 1, a fixed attack, 2000 audits."""
    rng = np.random.default_rng(0)
    rate = math.e / (1 + math.e)
    wrong = sum(
        epsilon_lower_bound(rng.binomial(40, rate), 40, rng.binomial(40, 1 - rate), 40) > 1.0
        for _ in range(2000)
    )
    assert wrong / 2000 <= 0.05


def test_the_threshold_lies_between_scores_where_the_bound_is_largest():
    is_member = np.repeat([True, False], 20)
    scores = np.r_[np.linspace(1, 2, 20), np.linspace(-1, 0, 20)]
    assert best_threshold(scores, is_member) == pytest.approx(0.5)
    assert best_threshold(np.zeros(40), is_member) == 0.0
