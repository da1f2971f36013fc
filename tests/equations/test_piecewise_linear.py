"""Gorishniy et al. 2022, Eq. 1: how far a number is through each interval of its column."""

import numpy as np
import pytest
import torch

from vflsynth.splitdefense.settings import PiecewiseLinear

N_BINS = 4


@pytest.fixture(scope="module")
def records():
    rng = np.random.default_rng(0)
    skewed, ties = rng.exponential(size=50), rng.integers(0, 3, 50)
    return torch.tensor(np.column_stack([skewed, ties == 1, ties, np.zeros(50)])).float()


def test_each_interval_says_how_far_a_value_is_through_it(records):
    encoding = PiecewiseLinear.learn(records, N_BINS, 2)
    beyond = torch.tensor([[-1e6, 0.0, 7.0, 0.0], [1e6, 1.0, -7.0, 0.0]])
    asked = torch.cat([records, beyond])
    found = encoding(asked.expand(2, -1, -1))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0, :, :4], asked)

    expected = []
    for column in (0, 2):  # the others have two values, or one
        values = records[:, column].numpy()
        edges = sorted(set(np.quantile(values, [0.1, 0.3, 0.5, 0.7, 0.9]).astype(np.float32)))
        for low, high in zip(edges[:-1], edges[1:]):
            expected.append([min(max((v - low) / (high - low), 0), 1) for v in asked[:, column]])
    assert found[0, :, 4:].numpy() == pytest.approx(np.array(expected).T, abs=1e-6)


def test_no_interval_ends_at_the_value_of_one_record(records):
    encoding = PiecewiseLinear.learn(records[:, :1], N_BINS, 1)
    assert encoding.low.min() > records[:, 0].min()
    assert encoding.high.max() < records[:, 0].max()


def test_what_has_two_values_is_left_alone(records):
    assert PiecewiseLinear.learn(records[:, [1, 3]], N_BINS, 1) is None
    assert PiecewiseLinear.learn(records[:, :0], N_BINS, 1) is None
