"""GS-WGAN's mechanism by itself: what is clipped, which noise is added, what a shard can change."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vflsynth.methods.wgan_gp.gs_wgan import (
    batch_sensitivity,
    clip_rows,
    sanitised_gradients,
)


def gradients(scale=1.0, batch=6):
    rng = torch.Generator().manual_seed(1)
    return scale * torch.randn(1, batch, 4, generator=rng)


C = 0.5 / (1 + 1e-5)  # to which 0.5 clips: the rest is room for rounding errors


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
def test_every_fake_is_clipped_by_itself(scale):
    clipped = clip_rows(gradients(scale), 0.5)
    for row, original in zip(clipped[0], gradients(scale)[0]):
        torch.testing.assert_close(row, original / max(1.0, original.norm().item() / C))


def test_noise_is_claimed_in_every_coordinate():
    """Fails if the noise is dropped, is a scalar per fake, or is that of a single fake."""
    batch, dim = 800, 800  # a spread of 800 means is known within 2.5 %
    noisy = sanitised_gradients(torch.zeros(1, batch, dim), 0.5, 1.5)
    std = 1.5 * 2.0 * 0.5 * math.sqrt(batch)
    assert noisy.std().item() == pytest.approx(std, rel=0.02)
    assert noisy.mean(-1).std().item() == pytest.approx(std / math.sqrt(dim), rel=0.2)
    assert noisy.mean(1).std().item() == pytest.approx(std / math.sqrt(batch), rel=0.2)


def test_noise_is_added_to_the_clipped_gradients():
    quiet = sanitised_gradients(gradients(10.0), 0.5, 1e-9)
    torch.testing.assert_close(quiet, clip_rows(gradients(10.0), 0.5), atol=1e-6, rtol=0)


rows = st.lists(st.floats(-1e6, 1e6, width=32), min_size=4, max_size=4)


@given(batch=st.integers(1, 5), data=st.data(), bound=st.floats(1e-3, 1e3), opposite=st.booleans())
def test_any_two_discriminators_are_within_the_sensitivity(batch, data, bound, opposite):
    """Another record in a shard may change its discriminator in any way, for all fakes at once."""
    one = torch.tensor([[data.draw(rows) for _ in range(batch)]])
    other = -one if opposite else torch.tensor([[data.draw(rows) for _ in range(batch)]])
    moved = (clip_rows(one, bound) - clip_rows(other, bound)).norm()
    assert moved <= batch_sensitivity(bound, batch)


def test_the_sensitivity_is_reached():
    one = 7.0 * torch.ones(1, 9, 4)
    moved = (clip_rows(one, 0.5) - clip_rows(-one, 0.5)).norm().item()
    assert moved == pytest.approx(batch_sensitivity(0.5, 9), rel=2e-5)  # clipped to a little less
    assert moved > 2.0 * 0.5  # of a single fake, as published


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_gradient_that_overflows_becomes_zero(bad):
    dirty = gradients()
    dirty[0, 2, 1] = bad
    clipped = clip_rows(dirty, 0.5)
    assert not clipped[0, 2].any()
    torch.testing.assert_close(clipped[0, 3:], clip_rows(gradients(), 0.5)[0, 3:])
