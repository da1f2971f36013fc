import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests import planted
from vflsynth.mechanisms.first_layer import (
    clip_gradient,
    first_layer_sensitivity,
    perturb_gradient,
)


def gradient(scale=1.0, replicas=3):
    rng = torch.Generator().manual_seed(3)
    return [
        scale * torch.randn(replicas, 4, 5, generator=rng),
        scale * torch.randn(replicas, 1, 5, generator=rng),
    ]


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
def test_equation_20_by_hand(scale):
    parts = gradient(scale)
    clipped = clip_gradient(parts, 0.5)
    for replica in range(3):
        flat = torch.cat([part[replica].flatten() for part in parts])
        # Clipping is to slightly less than C, which leaves room for rounding errors.
        expected = flat / max(1.0, flat.norm().item() * (1 + 1e-5) / 0.5)
        actual = torch.cat([part[replica].flatten() for part in clipped])
        torch.testing.assert_close(actual, expected)
        assert actual.double().norm() <= 0.5


def assert_equation_21():
    """One number per coordinate and replica, of std 2σC, in every tensor."""
    zero = [torch.zeros(2, 300, 100), torch.zeros(2, 1, 1000)]
    weight, bias = perturb_gradient(zero, 0.25, 1.39)
    for part in (weight, bias):
        assert part.std().item() == pytest.approx(1.39 * 2 * 0.25, rel=0.1)
        assert not torch.equal(part[0], part[1])
    assert weight.std().item() == pytest.approx(1.39 * 2 * 0.25, rel=0.02)
    for across in (0, 1):  # a scalar per row or per column has means as large as itself
        n = weight[0].shape[across]
        means = weight[0].mean(across)
        assert means.std().item() == pytest.approx(1.39 * 0.5 / n**0.5, rel=0.4)


def test_equation_21_noise_per_coordinate():
    assert_equation_21()


def scalar(replica, *shape):
    return replica, *(1 for _ in shape)


@pytest.mark.parametrize(
    "bug",
    [
        pytest.param(lambda draw, shape: draw(shape, 0.0), id="dropped"),
        pytest.param(lambda draw, shape: draw(shape, 0.5), id="std σC"),
        pytest.param(lambda draw, shape: draw(scalar(*shape)), id="one scalar"),
        pytest.param(lambda draw, shape: draw((*shape[:2], 1)), id="scalar per row"),
        pytest.param(lambda draw, shape: draw((shape[0], 1, shape[2])), id="scalar per column"),
        pytest.param(lambda draw, shape: draw((1, *shape[1:])), id="one for replicas"),
        pytest.param(lambda draw, shape: draw(shape, 1.0 if shape[1] > 1 else 0.0), id="no bias"),
        pytest.param(
            lambda draw, shape: draw(shape, 1.0 if shape[1] == 1 else 0.0), id="no weight"
        ),
    ],
)
def test_planted_bugs_in_equation_21_are_noticed(bug, monkeypatch):
    planted.in_noise(monkeypatch, bug)
    with pytest.raises(AssertionError):
        assert_equation_21()


def test_noise_is_added_to_the_clipped_gradient():
    parts = gradient(10.0)
    quiet = perturb_gradient(parts, 0.5, 1e-9)
    for actual, expected in zip(quiet, clip_gradient(parts, 0.5)):
        torch.testing.assert_close(actual, expected, atol=1e-6, rtol=0)


@given(
    first=st.lists(st.floats(-1e6, 1e6, width=32), min_size=4, max_size=4),
    second=st.lists(st.floats(-1e6, 1e6, width=32), min_size=4, max_size=4),
    bound=st.floats(1e-3, 1e3),
)
def test_any_two_batches_are_within_the_sensitivity(first, second, bound):
    clipped = [clip_gradient([torch.tensor(g).view(1, 2, 2)], bound)[0] for g in (first, second)]
    assert (clipped[0] - clipped[1]).norm() <= first_layer_sensitivity(bound)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e30])
def test_overflow_is_bounded_as_well(bad):
    parts = gradient()
    parts[0][1, 0, 0] = bad
    clipped = clip_gradient(parts, 0.5)
    for part in clipped:
        assert part.isfinite().all()
        assert part[1].double().norm() <= 0.5
    torch.testing.assert_close(clipped[0][0], clip_gradient(gradient(), 0.5)[0][0])
