import pytest
import torch

from vflsynth.columns import OutputSpan
from vflsynth.methods.gan.sampler import Residuals

SPANS = (
    OutputSpan(0, 1, "identity", "a", "value"),
    OutputSpan(1, 1, "identity", "b", "value"),
    OutputSpan(2, 1, "identity", "c", "value", gate=3),
    OutputSpan(3, 2, "softmax", "c", "state"),
    OutputSpan(5, 1, "identity", "d", "value", bound=3.0),
)


@pytest.fixture
def records():
    rng = torch.Generator().manual_seed(0)
    a, noise, jump = torch.randn(3, 2000, generator=rng)
    b = 0.8 * a + 0.01 * noise + jump * (torch.rand(2000, generator=rng) < 0.1)
    there = (torch.rand(2000, generator=rng) < 0.7).float()
    c = (b - a) * there
    return torch.stack([a, b, c, there, 1.0 - there, a.clamp(-2.0, 2.0)], 1)


def test_what_most_records_agree_in_is_spread_over_the_whole_scale(records):
    made, seen = Residuals.fit(SPANS, records)
    a, b = records[:, 0], records[:, 1]
    assert torch.equal(seen[:, 0], a)
    assert float(made.weights[1, 0]) == pytest.approx(0.8, abs=0.005)  # not drawn by the few
    assert float(seen[:, 1].std()) == pytest.approx(1.0, abs=0.01)
    near = (b - 0.8 * a).abs() < 0.01
    assert float(seen[near, 1].std()) > 0.4


def test_restoring_undoes_it_but_for_knots(records):
    made, seen = Residuals.fit(SPANS, records)
    back = made.put_together(seen)
    errors = (back - records).abs()
    assert float(errors[:, 1].quantile(0.9)) < 1e-3
    torch.testing.assert_close(back[:, 3:], records[:, 3:])
    absent = records[:, 3] == 0.0
    assert not back[absent, 2].any()
    assert not seen[absent, 2].any()


def test_what_training_sees_can_be_made_of_encoded_rows(records):
    made, seen = Residuals.fit(SPANS, records)
    again = made.take_out(records)
    assert float((again - seen).abs().quantile(0.99)) < 0.05
    assert float((records - seen)[:, 1].abs().median()) > 0.3  # which plain rows are not


def test_bounded_and_unexplained_numbers_stay_as_they_are(records):
    records[:, 1] = torch.randn(2000, generator=torch.Generator().manual_seed(1))
    records[:, 2] = records[:, 3] * torch.randn(2000, generator=torch.Generator().manual_seed(2))
    made, seen = Residuals.fit(SPANS, records)
    assert not made.weights.any()
    torch.testing.assert_close(seen, records)
    torch.testing.assert_close(made.put_together(seen), records)


def test_they_are_saved_whole_and_others_are_refused(records):
    made, seen = Residuals.fit(SPANS, records)
    again = Residuals.restore(made.tensors(), SPANS)
    assert torch.equal(again.put_together(seen), made.put_together(seen))
    with pytest.raises(ValueError, match="there are 4 maps"):
        Residuals.restore(made.tensors(), SPANS[:1])
    late = made.tensors()
    late["weights"] = late["weights"].clone()
    late["weights"][0, 1] = 1.0
    with pytest.raises(ValueError, match="columns before it"):
        Residuals.restore(late, SPANS)
