"""Quantile maps: the shares they give, what they leave alone, and what noise may not do."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vflsynth.columns.bins import corrected_shares, quantile_map
from vflsynth.columns.histograms import NoisyHistogram
from vflsynth.columns.schema import Bounds

EDGES = np.linspace(0.0, 10.0, 6)


def shares_of(values, edges=EDGES):
    return np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0] / len(values)


def test_shares_move_where_a_sum_of_bins_differs_beyond_errors():
    """Against wavelets written out one by one: means of dyadic blocks and what halves differ by."""
    rng = np.random.default_rng(0)
    generated = rng.dirichlet(np.ones(6))
    published = 1000.0 * generated + rng.normal(0.0, 10.0, 6) + [0, 0, 90, -60, 0, 0]
    found = corrected_shares(generated, published, noise_std=10.0)
    total = published.sum()
    difference = np.append(published / total - generated, [0.0, 0.0])
    variance = (10.0 / total) ** 2 + generated * (1 - generated) / total
    variance = np.append(variance, [0.0, 0.0])
    moved = np.full(8, difference.mean())
    n_kept = 0
    for size in (8, 4, 2):
        for first in range(0, 8, size):
            wavelet = np.zeros(8)
            wavelet[first : first + size // 2] = 1.0 / size
            wavelet[first + size // 2 : first + size] = -1.0 / size
            coefficient = wavelet @ difference
            if abs(coefficient) > 3.0 * (wavelet**2 @ variance) ** 0.5:
                moved += coefficient * wavelet * size
                n_kept += 1
    assert 0 < n_kept < 7
    expected = np.maximum(generated + moved[:6], 0.0)
    np.testing.assert_allclose(found, expected / expected.sum(), rtol=1e-12)


def test_many_small_differences_move_shares_together():
    """None of 64 bins differs from the spike beside them by three errors."""
    generated = np.r_[0.36, np.full(64, 0.01)]
    published = 2000.0 * np.r_[0.68, np.full(64, 0.005)]
    error = np.sqrt((5.0 / 2000) ** 2 + 0.01 * 0.99 / 2000)
    assert 3.0 * error > 0.005
    found = corrected_shares(generated, published, noise_std=5.0)
    assert found[0] == pytest.approx(0.68, abs=0.01)


@pytest.mark.parametrize("noise_std", [0.0, 3.0, 1e9])
def test_what_errors_explain_is_left_alone(noise_std):
    rng = np.random.default_rng(0)
    counts = rng.multinomial(2000, [0.2] * 5) + rng.normal(0.0, min(noise_std, 3.0), 5)
    generated = np.full(5, 0.2)
    np.testing.assert_allclose(corrected_shares(generated, counts, noise_std), generated, atol=0.01)


@given(
    st.lists(st.floats(0.0, 1.0), min_size=5, max_size=5),
    st.lists(st.floats(-1e6, 1e6), min_size=5, max_size=5),
    st.floats(0.0, 1e6),
)
def test_corrected_shares_are_shares(generated, published, noise_std):
    generated = np.array(generated) + 1e-3
    generated /= generated.sum()
    shares = corrected_shares(generated, np.array(published), noise_std)
    assert (shares >= 0.0).all()
    assert shares.sum() == pytest.approx(1.0)


@given(
    st.lists(st.integers(0, 20), min_size=5, max_size=5).filter(any),
    st.sampled_from(["spread", "one bin", "beyond the edges", "one value"]),
)
def test_mapped_values_have_the_wanted_shares_and_their_order(wanted, values):
    rng = np.random.default_rng(1)
    values = {
        "spread": rng.uniform(0.0, 10.0, 5000),
        "one bin": rng.uniform(4.1, 4.9, 5000),
        "beyond the edges": rng.normal(5.0, 8.0, 5000),
        "one value": np.full(5000, 4.5) + rng.normal(0.0, 1e-9, 5000),
    }[values]
    wanted = np.array(wanted) / sum(wanted)
    before, after = quantile_map(values, EDGES, wanted)
    assert (np.diff(after) >= 0.0).all()
    mapped = np.interp(np.sort(values), before, after)
    np.testing.assert_allclose(shares_of(mapped), wanted, atol=0.005)


def test_the_map_to_the_own_shares_changes_nothing():
    values = np.random.default_rng(2).normal(5.0, 4.0, 5000)
    mapped = np.interp(values, *quantile_map(values, EDGES, shares_of(values)))
    inside = np.quantile(values, [0.01, 0.99])
    moved = np.abs(mapped - values)[(values > inside[0]) & (values < inside[1])]
    assert moved.max() < 0.1
    assert mapped.max() == pytest.approx(values.max())
    assert mapped.min() == pytest.approx(values.min())


def test_a_tail_that_the_generator_lost_comes_back():
    """A column of incomes: half a percent of the records make most of its variance."""
    rng = np.random.default_rng(3)
    real = np.concatenate([rng.gamma(2.0, 1.0, 39_800), rng.uniform(90.0, 100.0, 200)])
    counts = np.append(np.histogram(real, np.linspace(0.0, 100.0, 33))[0], 0.0)
    histogram = NoisyHistogram(Bounds(0.0, 100.0), counts + rng.normal(0.0, 2.0, 33), 2.0)
    mean, std = histogram.mean_and_std()
    scores = (rng.gamma(2.0, 1.0, 20_000) - mean) / std
    before, after = (h.decode_numeric(scores) for h in (histogram, histogram.mapped(scores)))
    assert before.std() < 0.3 * real.std()
    assert after.std() == pytest.approx(real.std(), rel=0.15)
    assert (np.diff(after[scores.argsort()]) >= 0.0).all()
    assert np.median(np.abs(after - before)) < 0.1


def test_a_drowned_histogram_maps_nothing():
    rng = np.random.default_rng(4)
    histogram = NoisyHistogram(Bounds(0.0, 1.0), rng.normal(0.0, 1e6, 9), 1e6)
    assert histogram.mapped(rng.standard_normal(500)).quantile_map is None
    assert histogram.mapped(np.empty(0)) is histogram
