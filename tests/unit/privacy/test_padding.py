"""Dummies hide one record more or less, exactly as well as they say."""

import math
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from scipy.stats import chisquare

from vflsynth.privacy.padding import Padding


def missed(weights, epsilon):
    """The δ that ε needs: what a server sees of N records, and of N + 1, count by count."""
    most = Fraction(math.exp(epsilon)) * (1 - Fraction(1, 2**50))  # whatever exp rounds to
    total = sum(weights)
    of_n = dict(enumerate(weights))
    of_one_more = {seen + 1: weight for seen, weight in of_n.items()}
    worst = 0
    for one, other in ((of_n, of_one_more), (of_one_more, of_n)):
        excess = [w - most * other.get(seen, 0) for seen, w in one.items()]
        worst = max(worst, sum(e for e in excess if e > 0))
    return worst / total


@pytest.mark.parametrize("epsilon", [0.02, 0.5, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-7])
def test_two_counts_are_as_alike_as_stated_and_no_smaller_number_of_dummies_would_do(
    epsilon, delta
):
    padding = Padding(epsilon, delta)
    weights = padding.weights()
    assert len(weights) == padding.largest + 1
    assert missed(weights, epsilon) <= delta
    assert missed(weights, 0.9 * epsilon) > delta  # the check can fail
    assert missed(weights[1:-1], epsilon) > delta


def test_dummies_are_drawn_as_often_as_they_weigh():
    padding = Padding(0.5, 0.05)
    drawn = [padding.draw(bytes([i % 256, i // 256])) for i in range(4000)]
    seen = np.bincount(drawn, minlength=padding.largest + 1)
    expected = np.array(padding.weights(), dtype=float)
    assert chisquare(seen, expected / expected.sum() * seen.sum()).pvalue > 1e-4
    assert padding.draw(bytes(32)) == padding.draw(bytes(32))


def test_a_record_in_place_of_another_moves_four_groups_counts_at_most():
    """Every group's own number of records, for all that may happen to two people at a party."""
    names = "abcd"
    groups = [frozenset(g) for k in range(5) for g in combinations(names, k)]

    def moved(n_names):
        most = 0
        for before, after in product(groups, groups):
            if not (before | after) <= set(names[:n_names]):
                continue
            for party in before:  # holds the one now, and the other afterwards
                if party in after:
                    continue
                change = dict.fromkeys(groups, 0)
                change[before] -= 1
                change[before - {party}] += 1
                change[after] -= 1
                change[after | {party}] += 1
                counted = [abs(c) for group, c in change.items() if len(group) > 1]
                assert max(counted) <= 1
                most = max(most, sum(counted))
        return most

    assert moved(2) == 1
    assert moved(4) == 4
    assert Padding.of_groups(1.0, 1e-4, 2) == Padding(1.0, 1e-4)
    assert Padding.of_groups(1.0, 1e-4, 3) == Padding(0.25, 2.5e-5)
