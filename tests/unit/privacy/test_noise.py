import random

import numpy as np
import pytest
import torch
from scipy import stats

from vflsynth.privacy.noise import gaussian_noise


def test_every_coordinate_has_noise_of_its_own():
    """The red-wine release adds one scalar to the whole matrix; this test fails for it."""
    noise = gaussian_noise((400, 500), 3.0)
    assert noise.std().item() == pytest.approx(3.0, rel=0.02)
    assert noise.mean(0).std().item() == pytest.approx(3.0 / 400**0.5, rel=0.2)
    assert len(torch.unique(noise)) == noise.numel()


def test_noise_is_gaussian():
    """A Kolmogorov-Smirnov test that fails once in a million runs."""
    sample = gaussian_noise((200_000,), 1.0).numpy()
    assert stats.kstest(sample, "norm").pvalue > 1e-6
    assert np.abs(sample).max() > 3.5


def test_noise_ignores_every_seed_by_default():
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    random.seed(0)
    first = gaussian_noise((4,), 1.0)
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    random.seed(0)
    assert not torch.equal(first, gaussian_noise((4,), 1.0))


def test_global_random_state_is_not_used():
    before = torch.get_rng_state()
    gaussian_noise((4,), 1.0)
    gaussian_noise((4,), 1.0, rng=torch.Generator().manual_seed(1))
    assert torch.equal(before, torch.get_rng_state())


def test_tests_may_inject_a_generator():
    draws = [gaussian_noise((3, 2), 2.0, rng=torch.Generator().manual_seed(7)) for _ in range(2)]
    assert torch.equal(*draws)


def test_torch_keeps_32_bits_of_a_seed():
    """Why the default is not a seeded torch generator: 2**32 seeds can be tried one by one."""
    first, second = (torch.Generator().manual_seed(seed) for seed in (5, 5 + 2**32))
    assert torch.equal(torch.randn(8, generator=first), torch.randn(8, generator=second))


@pytest.mark.parametrize("byte", [b"\x00", b"\xff"])
def test_no_draw_is_infinite(monkeypatch, byte):
    monkeypatch.setattr("os.urandom", lambda n: byte * n)
    assert gaussian_noise((3,), 1.0).abs().max() == pytest.approx(8.2095, abs=1e-3)


def test_shape_dtype_and_no_noise():
    noise = gaussian_noise((2, 0, 3), 1.0, dtype=torch.float32)
    assert noise.shape == (2, 0, 3)
    assert noise.dtype == torch.float32
    assert torch.equal(gaussian_noise((3,), 0.0), torch.zeros(3, dtype=torch.float64))
    assert gaussian_noise((), 1.0).shape == ()
