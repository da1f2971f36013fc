"""`vflsynth.networks.layers` is torch's, value and gradient, however short the rows are."""

import pytest
import torch

from vflsynth.networks.layers import log_softmax, softmax


@pytest.mark.parametrize(
    "shape", [(7, 1), (5, 2), (2, 3, 15), (2, 3, 4, 16), (0, 3), (3, 40), (2, 0)]
)
@pytest.mark.parametrize(
    ("ours", "theirs"), [(softmax, torch.softmax), (log_softmax, torch.log_softmax)]
)
def test_it_is_torchs(shape, ours, theirs):
    logits = (10 * torch.randn(shape, dtype=torch.float64)).requires_grad_()
    found, expected = ours(logits), theirs(logits, -1)
    torch.testing.assert_close(found, expected)
    weights = torch.randn(shape, dtype=torch.float64)
    one, other = (torch.autograd.grad((weights * out).sum(), logits) for out in (found, expected))
    torch.testing.assert_close(one, other)


def test_impossible_codes_have_no_share():
    shares = softmax(torch.tensor([[0.0, -1e9, -torch.inf]]))
    assert shares.tolist() == [[1.0, 0.0, 0.0]]
