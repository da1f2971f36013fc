"""Quantile maps: the shares they give, what they leave alone, and what noise may not do."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vflsynth.columns.histograms import NoisyHistogram
from vflsynth.columns.quantile_mapping import corrected_shares, quantile_map
from vflsynth.columns.schema import Bounds

EDGES = np.linspace(0.0, 10.0, 6)


def shares_of(values, edges=EDGES):
    return np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0] / len(values)


def test_shares_move_by_what_is_beyond_three_standard_deviations():
    generated, published = np.array([0.5, 0.5, 0.0]), np.array([400.0, 480.0, 120.0])
    found = corrected_shares(generated, published, noise_std=10.0)
    expected = []
    for share, count in zip(generated, published, strict=True):
        difference = count / 1000 - share
        error = ((10.0 / 1000) ** 2 + share * (1 - share) / 1000) ** 0.5
        left = max(abs(difference) - 3.0 * error, 0.0)
        expected.append(share + (left if difference > 0 else -left))
    np.testing.assert_allclose(found, np.array(expected) / sum(expected), rtol=1e-12)


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
