import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vflsynth.exceptions import PrivacyParameterError
from vflsynth.methods.mean_embedding.embedding import (
    embedding_distance,
    mean_embedding_sensitivity,
    project_records,
    random_features,
    random_frequencies,
)
from vflsynth.privacy import NeighbouringRelation
from vflsynth.privacy.secure_sums import FeatureSum
from vflsynth.secure import RotationParty, RotationServer, angles_of, largest_product, points
from vflsynth.secure.rotations import squared_radius

ADD, REPLACE = NeighbouringRelation
FREQUENCIES = random_frequencies(5, 40, (2.0, 4.0), np.random.default_rng(0))

coordinates = st.lists(st.floats(-1e6, 1e6), min_size=5, max_size=5)


def units(projections):
    """Sum of parties' records, exactly, without noise; the k-th record has the k-th dithers."""
    n_records, n_frequencies = projections[0].shape
    arithmetic = FeatureSum(1.0, 2 * n_frequencies, len(projections), n_records).arithmetic
    names = [str(i) for i in range(len(projections))]
    parties = [
        RotationParty(name, angles_of(own), names, b"secret", arithmetic)
        for name, own in zip(names, projections, strict=True)
    ]
    server = RotationServer(names, n_records, n_frequencies, arithmetic)
    for block in range(len(server.blocks)):
        server.add(block, {p.name: p.mask(block) for p in parties})
    none = np.zeros(2 * n_frequencies, np.int64)
    return server.totals({p.name: p.shares(none) for p in parties}) >> arithmetic.shift


def of_table(rows):
    """For a table whose columns 0-1 are one party's and 2-4 another's."""
    table = torch.tensor(rows, dtype=torch.float64).reshape(-1, 5)
    parts = [(table[:, :2], FREQUENCIES[:2]), (table[:, 2:], FREQUENCIES[2:])]
    return units([project_records(own, of) for own, of in parts])


def features(in_units, n_features=40):
    """Sum of features from exact units."""
    made = FeatureSum(1.0, n_features, 1, 1)
    return made.features(in_units << made.arithmetic.shift)


LONGEST = largest_product(2) * math.sqrt(20)


@given(st.lists(coordinates, max_size=5), coordinates)
def test_adding_any_record_moves_the_sum_by_at_most_one(rows, record):
    """Exactly at most 1, in whole numbers, and as much as two of the shortest points do."""
    moved = sum(int(d) ** 2 for d in of_table([*rows, record]) - of_table(rows))
    shortest = int((np.abs(points(2)) ** 2).round().min())
    assert 20 * shortest**2 <= moved <= (mean_embedding_sensitivity(ADD) * LONGEST) ** 2
    assert shortest >= 0.87 * squared_radius(2)


def test_a_record_moves_the_sum_by_as_much_as_points_are_long():
    """On average over records, for their turns are any: .96 of what the ledger allows."""
    records = 10.0 * np.random.default_rng(6).normal(size=(300, 5))
    moved = np.mean([np.square(of_table(record).astype(float)).sum() for record in records])
    expected = (np.abs(points(2)) ** 2).mean() ** 2 * 20
    assert moved == pytest.approx(expected, rel=0.005)
    assert math.sqrt(expected) / LONGEST > 0.96


@given(st.lists(coordinates, max_size=5), coordinates, coordinates)
def test_replacing_any_record_stays_within_the_sensitivity(rows, record, other):
    moved = sum(int(d) ** 2 for d in of_table([*rows, record]) - of_table([*rows, other]))
    assert moved <= (mean_embedding_sensitivity(REPLACE) * LONGEST) ** 2


def test_the_grid_accounts_for_the_noise_of_one_party():
    """Noise over sensitivity, both in units, is what the ledger has, to 3 in 10^5 above it."""
    for multiplier in (0.01, 0.7, 3.0, 200.0):
        for relation in (ADD, REPLACE):
            sensitivity = mean_embedding_sensitivity(relation)
            made = FeatureSum(multiplier * sensitivity, 40, 3, 1000)
            most = largest_product(3)
            ratio = made.grid.noise_std / (sensitivity * most * math.sqrt(20))
            assert multiplier < ratio < multiplier * (1 + 2e-4)
            assert made.grid.step * 2**made.arithmetic.shift == 1.0
            expected = ratio * sensitivity * 3**0.5
            assert 1.0 < made.joint_noise_std / expected < 1.06


@pytest.mark.parametrize("multiplier", [1e-9, 1e-3, 6e4, 7e4, 1e5, 1e12])
def test_sums_fit_however_much_noise_there_is(multiplier):
    made = FeatureSum(multiplier, 2000, 5, 10**6)
    arithmetic, norm = made.arithmetic, largest_product(5) * math.sqrt(1000)
    assert made.grid.sigma**2 >= (multiplier * norm / made.grid.step) ** 2 + 16
    assert (arithmetic.shift < 0) == (multiplier * norm >= 2.0**36)
    unit = arithmetic.in_steps(np.ones(1, np.uint64))
    assert unit.tolist() == [int(1 / made.grid.step)]


def test_a_record_contributes_the_same_whatever_the_others_are():
    """To the bit: its place, and the number of others, must not decide a rounding."""
    rng = np.random.default_rng(8)
    table = torch.from_numpy(rng.normal(size=(2100, 37))).float()
    frequencies = random_frequencies(37, 402, (2.0, 4.0), rng).float()
    whole = project_records(table, frequencies)
    for rows in (slice(0, 1), slice(1, 4), slice(1, 2100), slice(1023, 1026), slice(77, 1500)):
        assert torch.equal(project_records(table[rows], frequencies), whole[rows])
        assert (angles_of(whole)[rows] == angles_of(whole[rows])).all()


def test_projections_are_those_of_the_records():
    rng = np.random.default_rng(9)
    table = torch.from_numpy(rng.normal(size=(50, 37)).clip(-12, 12))
    frequencies = random_frequencies(37, 40, (2.0,), rng)
    found = project_records(table, frequencies).double()
    torch.testing.assert_close(found, table @ frequencies, atol=1e-4, rtol=0.0)
    assert project_records(table[:0], frequencies).shape == (0, 20)


def test_opposite_records_reach_the_sensitivity_under_replacement():
    """Projections that differ by π in every frequency: cos and sin change sign."""
    one = units([torch.zeros(1, 20)])
    other = units([torch.full((1, 20), math.pi, dtype=torch.float64)])
    moved = np.linalg.norm(one - other) / (mean_embedding_sensitivity(REPLACE) * LONGEST)
    assert 0.95 < moved <= 1.0


def test_sum_equals_the_features_of_the_joint_table_one_by_one():
    rows = np.random.default_rng(1).normal(size=(9, 5))
    expected = np.zeros(40)
    for row in rows:
        for k in range(20):
            angle = sum(row[j] * FREQUENCIES[j, k].item() for j in range(5))
            expected[k] += math.sqrt(2 / 40) * math.cos(angle)
            expected[20 + k] += math.sqrt(2 / 40) * math.sin(angle)
    found = features(of_table(rows.tolist())).numpy()
    np.testing.assert_allclose(found, expected, atol=5 * 3 / math.sqrt(149 * 6 * 20))


def test_gradients_are_those_of_an_unbiased_estimate():
    """Of ``||E phi||² - 2 E phi · target``: products of two different fakes, one by one."""
    target = torch.randn(20, dtype=torch.float64)
    projections = torch.randn(2, 7, 10, dtype=torch.float64, requires_grad=True)
    distance, gradient = embedding_distance(projections.detach(), target)
    features = torch.cat([projections.cos(), projections.sin()], -1) * 0.1**0.5
    loss = torch.zeros(())
    for replica in features:
        loss = loss - 2.0 * (replica.mean(0) @ target)
        for i in range(7):
            for j in range(7):
                if i != j:
                    loss = loss + (replica[i] @ replica[j]) / (7 * 6)
    (expected,) = torch.autograd.grad(loss, projections)
    torch.testing.assert_close(gradient, expected)
    torch.testing.assert_close(distance, (features.mean(1) - target).square().sum(1).detach())


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
    shuffled = [left, rng.permutation(right)]
    aligned, redrawn, shuffled = (
        features(of_table(np.hstack(parts).tolist()))
        for parts in ([left, right], parties(), shuffled)
    )
    assert (aligned - shuffled).norm() > 3.0 * (aligned - redrawn).norm()


def test_what_does_not_fit_is_refused():
    rng = np.random.default_rng(0)
    for n_features, bandwidths in ((7, (1.0,)), (0, (1.0,)), (8, ()), (8, (1.0, 0.0))):
        with pytest.raises(PrivacyParameterError):
            random_frequencies(3, n_features, bandwidths, rng)


def test_frequencies_are_divided_evenly_over_bandwidths():
    frequencies = random_frequencies(2000, 6, (1.0, 10.0, 100.0), np.random.default_rng(5))
    np.testing.assert_allclose(frequencies.std(0), [1.0, 0.1, 0.01], rtol=0.1)
