"""VFLGAN Eq. 23: the batched, eigenvalue-based distance against scipy's plain matrix root."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import sqrtm

from vflsynth.networks.layers import frechet_distance_of_moments


def slow_distance(mean, covariance, other_mean, other_covariance):
    root = sqrtm(covariance @ other_covariance)
    return float(
        ((mean - other_mean) ** 2).sum()
        + np.trace(covariance + other_covariance - 2.0 * np.real(root))
    )


def moments(rng, features, rows=None):
    data = rng.normal(size=(rows or 5 * features, features)) @ rng.normal(size=(features, features))
    return data.mean(axis=0), np.atleast_2d(np.cov(data, rowvar=False))


def fast_distance(*arrays):
    return float(frechet_distance_of_moments(*(torch.from_numpy(array) for array in arrays)))


@given(seed=st.integers(0, 2**32 - 1), features=st.integers(1, 12))
@settings(max_examples=50, deadline=None)
def test_agrees_with_the_printed_formula(seed, features):
    rng = np.random.default_rng(seed)
    first, second = moments(rng, features), moments(rng, features)
    expected = slow_distance(*first, *second)
    assert fast_distance(*first, *second) == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_of_one_feature_is_the_closed_form():
    # Two normal distributions on a line: (difference of means)^2 + (difference of deviations)^2.
    mean, other = np.array([1.0]), np.array([4.0])
    assert fast_distance(mean, np.array([[4.0]]), other, np.array([[9.0]])) == pytest.approx(10.0)


@given(seed=st.integers(0, 2**32 - 1), features=st.integers(2, 10))
@settings(max_examples=25, deadline=None)
def test_singular_covariances_are_finite_and_zero_for_equal_moments(seed, features):
    rng = np.random.default_rng(seed)
    mean, covariance = moments(rng, features, rows=2)  # rank one
    one_hot = np.eye(features)[rng.integers(features, size=50)]
    other = one_hot.mean(axis=0), np.cov(one_hot, rowvar=False)
    size = np.trace(covariance) + 1.0
    assert np.isfinite(fast_distance(mean, covariance, *other))
    assert fast_distance(mean, covariance, mean, covariance) == pytest.approx(0, abs=1e-6 * size)
    assert fast_distance(*other, *other) == pytest.approx(0, abs=1e-6)


def test_is_symmetric_and_grows_with_a_shift():
    rng = np.random.default_rng(0)
    first, second = moments(rng, 4), moments(rng, 4)
    assert fast_distance(*first, *second) == pytest.approx(fast_distance(*second, *first))
    shift = np.array([3.0, 0.0, 0.0, 0.0])
    assert fast_distance(first[0] + shift, first[1], *first) == pytest.approx(9.0)


def test_a_batch_equals_its_members():
    rng = np.random.default_rng(0)
    members = [moments(rng, 3) for _ in range(4)]
    other_mean, other_covariance = moments(rng, 3)
    batched = frechet_distance_of_moments(
        torch.from_numpy(np.stack([mean for mean, _ in members])),
        torch.from_numpy(np.stack([covariance for _, covariance in members])),
        torch.from_numpy(other_mean),
        torch.from_numpy(other_covariance),
    )
    alone = [fast_distance(*member, other_mean, other_covariance) for member in members]
    assert batched.numpy() == pytest.approx(alone)
