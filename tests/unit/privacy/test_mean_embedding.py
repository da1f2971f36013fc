import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vflsynth.exceptions import PrivacyParameterError, ProtocolError
from vflsynth.privacy import NeighbouringRelation
from vflsynth.privacy.mean_embedding import (
    feature_sum,
    mean_embedding_sensitivity,
    project_records,
    random_features,
    random_frequencies,
)
from vflsynth.privacy.releases import Grid

ADD, REPLACE = NeighbouringRelation
FREQUENCIES = random_frequencies(5, 40, (2.0, 4.0), np.random.default_rng(0))

GRID = Grid.of(3.0)

coordinates = st.lists(st.floats(-1e6, 1e6), min_size=5, max_size=5)


def steps(rows):
    """Sum for a table whose columns 0-1 are one party's and 2-4 another's, in steps."""
    table = torch.tensor(rows, dtype=torch.float64).reshape(-1, 5)
    parts = [(table[:, :2], FREQUENCIES[:2]), (table[:, 2:], FREQUENCIES[2:])]
    return feature_sum([project_records(own, of) for own, of in parts], GRID)


def total(rows):
    return torch.from_numpy(steps(rows) * GRID.step)


@given(st.lists(coordinates, max_size=5), coordinates)
def test_adding_any_record_moves_the_sum_by_at_most_one(rows, record):
    """Exactly at most 1, in whole numbers, and next to 1."""
    moved = sum(int(d) ** 2 for d in steps([*rows, record]) - steps(rows))
    longest = mean_embedding_sensitivity(ADD) / GRID.step
    assert 0.999999 * longest**2 < moved <= longest**2


@given(st.lists(coordinates, max_size=5), coordinates, coordinates)
def test_replacing_any_record_stays_within_the_sensitivity(rows, record, other):
    moved = sum(int(d) ** 2 for d in steps([*rows, record]) - steps([*rows, other]))
    assert moved <= (mean_embedding_sensitivity(REPLACE) / GRID.step) ** 2


def test_a_record_contributes_the_same_whatever_the_others_are():
    """To the bit: its place, and the number of others, must not decide a rounding."""
    rng = np.random.default_rng(8)
    table = torch.from_numpy(rng.normal(size=(2100, 37))).float()
    frequencies = random_frequencies(37, 402, (2.0, 4.0), rng).float()
    whole = project_records(table, frequencies)
    for rows in (slice(0, 1), slice(1, 4), slice(1, 2100), slice(1023, 1026), slice(77, 1500)):
        assert torch.equal(project_records(table[rows], frequencies), whole[rows])
    single = sum(feature_sum([whole[k : k + 1]], GRID) for k in range(900, 1150))
    assert np.array_equal(feature_sum([whole[900:1150]], GRID), single)


def test_projections_are_those_of_the_records():
    rng = np.random.default_rng(9)
    table = torch.from_numpy(rng.normal(size=(50, 37)).clip(-12, 12))
    frequencies = random_frequencies(37, 40, (2.0,), rng)
    found = project_records(table, frequencies).double()
    torch.testing.assert_close(found, table @ frequencies, atol=1e-4, rtol=0.0)
    assert project_records(table[:0], frequencies).shape == (0, 20)


def test_opposite_records_reach_the_sensitivity_under_replacement():
    """Projections that differ by π in every frequency: cos and sin change sign."""
    one = feature_sum([torch.zeros(1, 20)], GRID)
    other = feature_sum([torch.full((1, 20), math.pi, dtype=torch.float64)], GRID)
    moved = np.linalg.norm((one - other) * GRID.step)
    assert moved == pytest.approx(mean_embedding_sensitivity(REPLACE))


def test_sum_equals_the_features_of_the_joint_table_one_by_one():
    rows = np.random.default_rng(1).normal(size=(9, 5))
    expected = np.zeros(40)
    for row in rows:
        for k in range(20):
            angle = sum(row[j] * FREQUENCIES[j, k].item() for j in range(5))
            expected[k] += math.sqrt(2 / 40) * math.cos(angle)
            expected[20 + k] += math.sqrt(2 / 40) * math.sin(angle)
    np.testing.assert_allclose(total(rows.tolist()).numpy(), expected, atol=1e-4)


def test_sum_in_blocks_equals_sum_at_once():
    projections = torch.from_numpy(np.random.default_rng(2).normal(size=(9001, 8)))
    found = torch.from_numpy(feature_sum([projections], GRID) * GRID.step)
    torch.testing.assert_close(found, random_features(projections).sum(0), atol=1e-4, rtol=0.0)


def test_features_approximate_the_mixture_of_gaussian_kernels():
    rng = np.random.default_rng(3)
    bandwidths = (1.0, 3.0)
    frequencies = random_frequencies(4, 200_000, bandwidths, rng)
    x, y = torch.from_numpy(rng.normal(size=(2, 4)))
    kernel = np.mean([math.exp(-((x - y).norm().item() ** 2) / (2 * s**2)) for s in bandwidths])
    product = (random_features(x @ frequencies) @ random_features(y @ frequencies)).item()
    assert product == pytest.approx(kernel, abs=0.01)


def test_features_keep_leading_dimensions():
    assert random_features(torch.zeros(3, 7, 20)).shape == (3, 7, 40)


def test_cross_party_structure_is_in_the_sum():
    """Joining the same columns differently changes the sum more than drawing new records does."""
    rng = np.random.default_rng(4)

    def parties():
        left = rng.normal(size=(5000, 2))
        return left, np.hstack([left, rng.normal(size=(5000, 1))])

    left, right = parties()
    aligned = total(np.hstack([left, right]).tolist())
    redrawn = total(np.hstack(parties()).tolist())
    shuffled = total(np.hstack([left, rng.permutation(right)]).tolist())
    assert (aligned - shuffled).norm() > 3.0 * (aligned - redrawn).norm()


def test_what_does_not_fit_is_refused():
    with pytest.raises(ProtocolError, match="shapes"):
        feature_sum([torch.zeros(3, 4), torch.zeros(2, 4)], GRID)
    with pytest.raises(ProtocolError, match="finite"):
        feature_sum([torch.zeros(3, 4), torch.full((3, 4), math.nan)], GRID)
    rng = np.random.default_rng(0)
    for n_features, bandwidths in ((7, (1.0,)), (0, (1.0,)), (8, ()), (8, (1.0, 0.0))):
        with pytest.raises(PrivacyParameterError):
            random_frequencies(3, n_features, bandwidths, rng)


def test_frequencies_are_divided_evenly_over_bandwidths():
    frequencies = random_frequencies(2000, 6, (1.0, 10.0, 100.0), np.random.default_rng(5))
    np.testing.assert_allclose(frequencies.std(0), [1.0, 0.1, 0.01], rtol=0.1)
