import math
import os
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch
from scipy import stats

from vflsynth.exceptions import PrivacyParameterError
from vflsynth.privacy import noise as module
from vflsynth.privacy.noise import (
    BLOCKS,
    SMOOTHING_VARIANCE,
    discrete_gaussian,
    exp_bounds,
    half_gaussian_thresholds,
)
from vflsynth.testing.laws import global_random_state_left_alone


def pmf(sigma, values):
    """The definition, in double precision: an error of 1e-15, where samples have one of 1e-3."""
    everywhere = np.arange(-40 * sigma, 40 * sigma + 1, dtype=np.float64)
    weights = np.exp(-(np.asarray(values, dtype=np.float64) ** 2) / (2.0 * sigma**2))
    return weights / np.exp(-(everywhere**2) / (2.0 * sigma**2)).sum()


def chi_square(drawn, sigma):
    """p of Pearson's test against the exact probabilities, cells of at least about 20 draws."""
    reach = int(sigma * 3.5)
    counts = np.bincount(np.clip(drawn, -reach - 1, reach + 1) + reach + 1, minlength=2 * reach + 3)
    expected = pmf(sigma, np.arange(-reach, reach + 1))
    tail = (1.0 - expected.sum()) / 2.0
    expected = np.concatenate([[tail], expected, [tail]]) * len(drawn)
    return stats.chisquare(counts, expected).pvalue


@pytest.mark.parametrize("sigma", [16, 32, 48, 80, 208])
def test_every_number_has_its_exact_probability(sigma):
    """Fails once in a million runs; σ = 48 and 80 have blocks of a width that is no power of 2."""
    drawn = discrete_gaussian((400_000,), sigma)
    assert chi_square(drawn, sigma) > 1e-6


def test_the_test_of_probabilities_finds_a_rounded_gaussian():
    """σ = 16: rounding widens by 1/12 step, which 400,000 draws cannot see; a shift of 1% can."""
    drawn = np.rint(np.random.default_rng(0).normal(0.0, 16.0 * 1.01, 400_000)).astype(int)
    assert chi_square(drawn, 16) < 1e-6
    fair = discrete_gaussian((400_000,), 16)
    assert chi_square(np.where(fair == 0, 1, fair), 16) < 1e-6  # a zero that never comes


def test_what_the_tables_leave_open_is_decided_exactly(monkeypatch):
    """Everything that is decided one by one is right too, not only what the tables decide."""
    monkeypatch.setattr(module, "_DOUBT", 2**32)
    monkeypatch.setattr(module, "_SURE", np.zeros_like(module._SURE))
    monkeypatch.setattr(module, "_BLOCK_OF", np.full_like(module._BLOCK_OF, -1))
    assert chi_square(discrete_gaussian((40_000,), 48), 48) > 1e-6


def test_what_is_decided_exactly_is_accepted_as_often_as_the_exponential_says(monkeypatch):
    """Far out, where a block's slope shows: fails once in a million runs."""
    monkeypatch.setattr(module, "_DOUBT", 2**32)
    n, width, block, place = 4_000, 48, 100, 47
    chances = np.random.default_rng(0).integers(0, 2**15, n).astype(np.uint64)
    blocks, places = np.full(n, block), np.full(n, place, np.uint64)
    accepted = module._accept(chances, blocks, places, width, None)
    rate = math.exp(-place * (2 * block * width + place) / (2 * (BLOCKS * width) ** 2))
    assert abs(accepted.mean() - rate) < 5 * (rate * (1 - rate) / n) ** 0.5


def test_vectorised_steps_decide_without_the_exact_ones(monkeypatch):
    """And the other way round: acceptance by tables alone, as for all but one in 10^7."""
    monkeypatch.setattr(module, "_SURE", np.zeros_like(module._SURE))
    monkeypatch.setattr(module, "_exactly_below", lambda *_: pytest.fail("not needed"))
    drawn = discrete_gaussian((200_000,), 80, rng=torch.Generator().manual_seed(3))
    assert chi_square(drawn, 80) > 1e-6


def test_large_standard_deviations():
    """A Kolmogorov-Smirnov test that fails once in a million runs; steps are too fine to see."""
    sigma = 16 * (2**27 + 12345)
    drawn = discrete_gaussian((200_000,), sigma)
    assert stats.kstest(drawn / sigma, "norm").pvalue > 1e-6
    assert abs(np.mean(drawn % 2) - 0.5) < 5 * 0.5 / 200_000**0.5
    assert len(np.unique(drawn % 16)) == 16


def test_every_place_in_a_wide_block_is_as_likely_as_any_other():
    """A third of 2^32 numbers would go to every place twice as often; Lemire throws those away."""
    width = 3 * 2**30
    drawn = np.abs(discrete_gaussian((20_000,), BLOCKS * width)) % width
    assert stats.chisquare(np.bincount(drawn % 3)).pvalue > 1e-6


@pytest.mark.parametrize("block", [0, 1, 17, 64, 127])
def test_the_fixed_point_exponential_is_as_good_as_it_says(block, rng):
    for width in (1, 3, 2**27 - 5, 2**31):
        places = np.unique(np.append(rng.integers(0, width, 50), [0, width - 1])).astype(np.uint64)
        blocks = np.full(len(places), block, dtype=np.uint64)
        found = module._exp32(blocks, places, width)
        for place, value in zip(places.tolist(), found.tolist()):
            gamma = Fraction(place * (2 * block * width + place), 2 * (BLOCKS * width) ** 2)
            low, high = exp_bounds(gamma, 32)
            assert low - 16 < value < high + 16


@pytest.mark.parametrize("gamma", [Fraction(0), Fraction(1, 3), Fraction(1), Fraction(355, 113)])
@pytest.mark.parametrize("bits", [15, 64, 300])
def test_bounds_of_exponentials(gamma, bits):
    with mpmath.workdps(200):
        exact = mpmath.exp(-mpmath.mpf(gamma.numerator) / gamma.denominator) * mpmath.mpf(2) ** bits
        low, high = exp_bounds(gamma, bits)
        assert low <= exact <= high
        assert high - low <= 1


def test_thresholds_of_blocks():
    with mpmath.workdps(60):
        weights = [mpmath.exp(-mpmath.mpf(k * k) / (2 * BLOCKS**2)) for k in range(400)]
        total, cumulated = sum(weights), mpmath.mpf(0)
        for weight, found in zip(weights, half_gaussian_thresholds(BLOCKS, 80)):
            cumulated += weight
            assert found == int(mpmath.floor(cumulated / total * 2**80))
    assert half_gaussian_thresholds(BLOCKS, 80)[-1] == 2**80 - 1


def test_every_coordinate_has_noise_of_its_own():
    """The red-wine release adds one scalar to the whole matrix; this test fails for it."""
    drawn = discrete_gaussian((400, 500), 2**30)
    assert drawn.std() / 2**30 == pytest.approx(1.0, rel=0.02)
    assert drawn.mean(0).std() * 400**0.5 / 2**30 == pytest.approx(1.0, rel=0.2)
    assert len(np.unique(drawn)) > 0.999 * drawn.size


def test_every_bit_comes_from_the_operating_system(monkeypatch):
    stream = [os.urandom(10_000_000)]

    def recorded(n):
        taken, stream[0] = stream[0][:n], stream[0][n:]
        assert len(taken) == n
        return taken

    kept = stream[0]
    monkeypatch.setattr("os.urandom", recorded)
    first = discrete_gaussian((1_000,), 2**30)
    stream[0] = kept
    assert np.array_equal(first, discrete_gaussian((1_000,), 2**30))


def test_global_random_state_is_not_used():
    with global_random_state_left_alone():
        discrete_gaussian((4,), 16)
        discrete_gaussian((4,), 16, rng=torch.Generator().manual_seed(1))


def test_torch_keeps_32_bits_of_a_seed():
    """Why the default is not a seeded torch generator: 2**32 seeds can be tried one by one."""
    first, second = (torch.Generator().manual_seed(seed) for seed in (5, 5 + 2**32))
    assert torch.equal(torch.randn(8, generator=first), torch.randn(8, generator=second))


@pytest.mark.parametrize("shape", [(), (3,), (2, 0, 3), (1, 70_000)])
def test_shapes(shape):
    drawn = discrete_gaussian(shape, 16)
    assert drawn.shape == shape
    assert drawn.dtype == np.int64


@pytest.mark.parametrize("sigma", [0, -16, 15, 24, 16.5, 2**40])
def test_impossible_standard_deviations(sigma):
    with pytest.raises(PrivacyParameterError, match="sigma"):
        discrete_gaussian((3,), sigma)


# -- what is accounted for ------------------------------------------------------------------------


def smoothing_error(variance, offset):
    """Relative difference of Σ_k exp(-(k - y)²/2r²) from r sqrt(2π), summed term by term."""
    with mpmath.workdps(400):
        y, variance = mpmath.mpf(offset), mpmath.mpf(variance)
        total = mpmath.nsum(lambda k: mpmath.exp(-((k - y) ** 2) / (2 * variance)), [-500, 500])
        return abs(total / mpmath.sqrt(2 * mpmath.pi * variance) - 1)


@pytest.mark.parametrize("offset", [0.0, 0.25, 0.5, 0.3])
def test_sums_over_whole_numbers_hardly_depend_on_the_centre(offset):
    """Poisson's summation formula, as `noise` uses it: η' = 2.01 exp(-2π²r²) < 2e-137 at r = 4."""
    with mpmath.workdps(400):
        error = smoothing_error(SMOOTHING_VARIANCE, offset)
        assert error <= 2.01 * mpmath.exp(-2 * mpmath.pi**2 * SMOOTHING_VARIANCE)
        assert error < mpmath.mpf("2e-137")
        assert smoothing_error(1, offset) <= 2.01 * mpmath.exp(-2 * mpmath.pi**2)
    assert smoothing_error(1, 0.0) > 2.6e-9  # the bound is no coincidence


def hockey_stick(one, other, epsilon):
    return np.maximum(one - math.exp(epsilon) * other, 0.0).sum()


@pytest.mark.parametrize(("s", "distance"), [(6.0, 3), (6.0, 12), (20.0, 1), (20.0, 55)])
def test_discrete_noise_is_as_private_as_the_continuous_noise_that_is_accounted_for(s, distance):
    """δ(ε) of whole numbers by brute force, against the continuous Gaussian's with std s.

    r² = 2 suffices for a tolerance of 1e-15, and leaves a difference that can be seen.
    """
    from vflsynth.privacy.gaussian_dp import delta_of_gaussian

    sigma = math.sqrt(s**2 + 2.0)
    z = np.arange(-2000, 2001)
    one = np.exp(-(z**2) / (2 * sigma**2))
    other = np.exp(-((z - distance) ** 2) / (2 * sigma**2))
    one, other = one / one.sum(), other / other.sum()
    for rate in (1.0, 0.2):
        mixed = rate * other + (1.0 - rate) * one
        for epsilon in (0.0, 0.1, 0.5, 1.0, 3.0):
            found = max(hockey_stick(mixed, one, epsilon), hockey_stick(one, mixed, epsilon))
            if rate == 1.0:
                bound = delta_of_gaussian(epsilon, distance / s)
            else:
                y = np.linspace(-250.0, 250.0, 1_000_001)
                density = (
                    np.exp(-(y**2) / (2 * s**2)) / (s * math.sqrt(2 * math.pi)) * (y[1] - y[0])
                )
                moved = np.exp(-((y - distance) ** 2) / (2 * s**2))
                moved *= (y[1] - y[0]) / (s * math.sqrt(2 * math.pi))
                moved = rate * moved + (1.0 - rate) * density
                bound = max(
                    hockey_stick(moved, density, epsilon), hockey_stick(density, moved, epsilon)
                )
            assert found <= bound + 1e-9


def test_vectors_of_whole_numbers_are_as_private_as_continuous_ones():
    """Two coordinates, where the privacy loss depends on both, by brute force."""
    from vflsynth.privacy.gaussian_dp import delta_of_gaussian

    s, moved = 5.0, (3, 4)
    z = np.arange(-150, 151)
    log = -(z**2) / (2 * (s**2 + 2.0))
    one = np.exp(np.add.outer(log, log))
    log_x = -((z - moved[0]) ** 2) / (2 * (s**2 + 2.0))
    log_y = -((z - moved[1]) ** 2) / (2 * (s**2 + 2.0))
    other = np.exp(np.add.outer(log_x, log_y))
    one, other = one / one.sum(), other / other.sum()
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        assert hockey_stick(one, other, epsilon) <= delta_of_gaussian(epsilon, 1.0) + 1e-12
