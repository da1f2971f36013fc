"""Spectral shrinkage: moments and shares against slow obvious code, and what it must do."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vflsynth.methods.mean_embedding.embedding import (
    feature_moments,
    random_features,
    random_frequencies,
    shrink_mean_embedding,
    signal_shares,
)

N_FEATURES = 60
FREQUENCIES = random_frequencies(4, N_FEATURES, (1.0, 3.0), np.random.default_rng(0))


def related(n, seed, strength=0.9):
    """Records of two parties, whose columns are related by `strength`."""
    rng = np.random.default_rng(seed)
    one = rng.standard_normal((n, 2))
    two = strength * one + np.sqrt(1.0 - strength**2) * rng.standard_normal((n, 2))
    return [torch.from_numpy(x) @ w for x, w in zip((one, two), FREQUENCIES.split(2), strict=True)]


def embedding(projections):
    return random_features(sum(projections)).mean(0)


TRUTHS = {strength: embedding(related(100_000, 7, strength)) for strength in (0.0, 0.5, 0.9)}
INDEPENDENT = feature_moments(sum(related(20_000, 1, strength=0.0)))


def shrunk(projections, noise_std, seed=2):
    n = len(projections[0])
    noise = torch.randn(N_FEATURES, generator=torch.Generator().manual_seed(seed)).double()
    released = embedding(projections) + noise * noise_std / n
    return released, shrink_mean_embedding(released, *INDEPENDENT, noise_std=noise_std, n_records=n)


def test_moments_are_those_of_the_features_record_by_record():
    parts = related(5000, 3)
    features = random_features(parts[0] + parts[1]).numpy()
    mean, covariance = feature_moments(sum(parts))
    np.testing.assert_allclose(mean, features.mean(0), atol=1e-12)
    np.testing.assert_allclose(covariance, np.cov(features.T, bias=True), atol=1e-12)


@pytest.mark.parametrize(("strength", "whole"), [(0.0, 0.0), (0.15, 0.0), (2.0, 1.0)])
def test_shares_are_those_of_the_likeliest_model(strength, whole):
    """Against a fine grid over energies and exponents, one direction after the other."""
    rng = np.random.default_rng(4)
    eigenvalues = 0.5 ** np.arange(12)
    signal = strength * eigenvalues**1.5 / np.sum(eigenvalues**1.5)
    errors = eigenvalues / 50 + 0.01
    difference = rng.standard_normal(12) * np.sqrt(signal + errors)
    best, least = None, np.inf
    for exponent in np.arange(0.5, 3.01, 0.25):
        total = sum(value**exponent for value in eigenvalues)
        for energy in np.geomspace(1e-4, 4.0, 4001):
            misfit, shares = 0.0, []
            for d, value, error in zip(difference, eigenvalues, errors, strict=True):
                s = energy * value**exponent / total
                misfit += np.log(s + error) + d * d / (s + error)
                shares.append(s / (s + error))
            if misfit < least:
                best, least = shares, misfit
    total = sum(errors)
    by_chance = 1 + 3 * sum(2 * error**2 for error in errors) ** 0.5 / total
    left_alone = (sum(d * d for d in difference) / total - by_chance) / (4.505 - by_chance)
    left_alone = min(max(left_alone, 0.0), 1.0)
    expected = [left_alone + (1 - left_alone) * share for share in best]
    found = signal_shares(difference, eigenvalues, noise_variance=0.01, n_records=50)
    assert left_alone == whole
    np.testing.assert_allclose(found, expected, atol=2e-3)


def test_pure_noise_is_taken_back():
    """Independent columns: what is released differs from the reference by errors alone."""
    parts = related(500, 5, strength=0.0)
    released, target = shrunk(parts, noise_std=5.0)
    before, after = ((x - INDEPENDENT[0]).norm().item() for x in (released, target))
    assert after < 0.25 * before


def test_a_release_far_above_its_errors_is_left_alone():
    released, target = shrunk(related(20_000, 6), noise_std=1e-6)
    torch.testing.assert_close(target, released, atol=1e-12, rtol=0.0)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("noise_std", [1.0, 10.0, 50.0])
@pytest.mark.parametrize("strength", [0.0, 0.5, 0.9])
def test_the_estimate_is_never_farther_from_the_truth_than_the_release(strength, noise_std, seed):
    truth = TRUTHS[strength]
    released, target = shrunk(related(1000, 8 + seed, strength), noise_std, seed)
    assert (target - truth).norm() <= (released - truth).norm() * (1.0 + 1e-9)


def test_drowned_releases_are_replaced_by_independent_columns():
    released, target = shrunk(related(200, 9), noise_std=1e12)
    assert released.norm() > 1e9
    assert (target - INDEPENDENT[0]).norm() < 1e-9


@given(
    st.lists(st.floats(-1e3, 1e3), min_size=6, max_size=6),
    st.lists(st.floats(-1e-15, 1e3), min_size=6, max_size=6),
    st.floats(0.0, 1e6),
    st.floats(1.0, 1e6),
)
def test_shares_are_shares_whatever_comes(difference, eigenvalues, noise, n_records):
    shares = signal_shares(
        np.array(difference), np.array(eigenvalues), noise_variance=noise, n_records=n_records
    )
    assert np.isfinite(shares).all()
    assert (shares >= 0.0).all()
    assert (shares <= 1.0).all()


def test_directions_without_variance_keep_nothing():
    shares = signal_shares(
        np.array([0.3, 0.1]), np.array([1.0, 0.0]), noise_variance=0.01, n_records=100
    )
    assert shares[0] > 0.5
    assert shares[1] < 1e-3
