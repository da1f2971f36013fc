"""Numbers in fewer bits: how far they move, that they do not on average, and what is refused."""

from contextlib import suppress

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from vflsynth._random import RandomStreams
from vflsynth.exceptions import PayloadRejectedError
from vflsynth.protocol.channel import PRECISIONS, pack, unpack


def uniform(shape, index=0) -> Tensor:
    return RandomStreams([b"0", b"1"]).uniform("rounding", index, shape)


def values(*shape: int) -> Tensor:
    return RandomStreams([b"a", b"b"]).normal("values", 0, shape)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("columns", [1, 127, 128, 129, 300])
def test_what_is_packed_comes_back_but_for_rounding(precision, columns):
    exact = values(5, columns) * torch.tensor([1e-6, 1.0, 1e4, 0.0, 1.0]).view(1, 5, 1)
    found = unpack(pack(exact, precision, uniform), precision)
    assert found.shape == exact.shape
    assert found.dtype == torch.float32
    if precision == "float32":
        assert torch.equal(found, exact)
    elif precision == "float16":
        assert torch.allclose(found, exact, rtol=2**-10, atol=2**-24)
    else:
        step = exact.abs().amax(-1, keepdim=True) / 127
        assert ((found - exact).abs() <= step * 1.0001).all()


def test_rounding_at_random_is_right_on_average():
    exact = values(2, 130)
    draws = [
        unpack(pack(exact, "int8", lambda shape, i=i: uniform(shape, i)), "int8")
        for i in range(400)
    ]
    step = exact.abs().amax(-1, keepdim=True) / 127
    bias = (torch.stack(draws).mean(0) - exact) / step
    assert bias.abs().max() < 5 * 0.5 / 400**0.5
    assert bias.abs().mean() > 1e-4  # nearest would be exact here and there only


def test_int8_is_a_quarter_and_a_scale_for_every_128_numbers():
    packed = pack(values(3, 256), "int8", uniform)
    assert (packed.dtype, packed.shape) == (torch.int8, (2, 3, 256 + 2 * 4))


@given(width=st.integers(1, 600), seed=st.integers(0, 5))
def test_any_bytes_are_numbers_or_refused(width, seed):
    generator = torch.Generator().manual_seed(seed)
    data = torch.randint(-128, 128, (1, 2, width), generator=generator, dtype=torch.int8)
    with suppress(PayloadRejectedError):
        assert torch.isfinite(unpack(data, "int8")).all()


@pytest.mark.parametrize("precision", ["float16", "int8"])
@pytest.mark.parametrize("odd", [float("nan"), float("inf")])
def test_what_is_not_finite_is_refused(precision, odd):
    damaged = values(2, 8)
    damaged[1, 0, 3] = odd
    with pytest.raises(PayloadRejectedError, match="not finite"):
        unpack(pack(damaged, precision, uniform), precision)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_another_type_than_agreed_is_refused(precision):
    for other in set(PRECISIONS) - {precision}:
        with pytest.raises(PayloadRejectedError, match=f"expected torch.{precision}"):
            unpack(pack(values(2, 8), other, uniform), precision)
