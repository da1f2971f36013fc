import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vflsynth.exceptions import PrivacyParameterError, ProtocolError
from vflsynth.privacy.noise import SMOOTHING_VARIANCE
from vflsynth.privacy.releases import Grid


@given(st.floats(1e-9, 1e12))
def test_the_grid_has_the_noise_that_the_accounting_needs(noise_std):
    grid = Grid.of(noise_std)
    s = int(math.ldexp(noise_std, -grid.exponent + 60))  # exact, in 2**-60 steps
    assert grid.sigma**2 << 120 >= s**2 + (SMOOTHING_VARIANCE << 120)
    assert 2**30 <= grid.sigma <= 2**31 + 32
    assert noise_std < grid.noise_std <= noise_std * (1 + 3e-8)


@given(
    st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=20),
    st.floats(1e-3, 1e3),
)
def test_no_vector_becomes_longer(values, noise_std):
    grid = Grid.of(noise_std)
    steps = grid.truncate(values)
    for own, value in zip(steps.tolist(), values):
        assert abs(own) * 2**60 <= abs(int(math.ldexp(value, 60 - grid.exponent))) + 2**30
        assert abs(own * grid.step) <= abs(value) < (abs(own) + 1) * grid.step


def test_a_release_is_the_exact_sum_and_whole_noise():
    grid = Grid.of(3.0)
    total = grid.count(np.array([[5, 0], [7, 2]]))
    release = grid.release(total, rng=torch.Generator().manual_seed(5))
    noise = grid.noise(total.shape, rng=torch.Generator().manual_seed(5))
    assert np.array_equal(release.steps, total + noise)
    assert np.array_equal(release.values, release.steps * grid.step)


@pytest.mark.parametrize("noise_std", [0.0, -1.0, math.nan, math.inf])
def test_there_is_no_grid_without_noise(noise_std):
    with pytest.raises(PrivacyParameterError, match="noise_std"):
        Grid.of(noise_std)


@pytest.mark.parametrize(("exponent", "sigma"), [(0, 0), (0, 17), (0, 2**40), (2000, 16)])
def test_impossible_grids(exponent, sigma):
    with pytest.raises(PrivacyParameterError):
        Grid(exponent, sigma)


def test_a_record_counts_for_whole_steps_of_the_grid():
    counts = np.array([0, 3])
    found = [Grid.of(std).count(counts).tolist() for std in (1.0, 2.0**30, 2.0**31)]
    assert found == [[0, 3 * 2**30], [0, 3], [0, 0]]


def test_counts_that_would_overflow_are_refused():
    assert Grid.of(2.0**-30).count(np.array([2, 1])).max() == 2**61
    with pytest.raises(ProtocolError, match="too large for their noise"):
        Grid.of(2.0**-30).count(np.array([5, 1]))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e15])
def test_what_is_not_bounded_is_refused(value):
    with pytest.raises(ProtocolError, match="not finite, or too large"):
        Grid.of(1e-3).truncate([0.0, value])


def test_only_whole_numbers_are_published():
    with pytest.raises(ProtocolError, match="whole numbers"):
        Grid.of(1.0).release(np.zeros(3))
    with pytest.raises(ProtocolError, match="too large"):
        Grid.of(1.0).release(np.array([-(2**63)]))
