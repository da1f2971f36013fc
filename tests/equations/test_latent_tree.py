"""Latent trees (DPLT) against slow, obvious code: counts, information, trees, classes, draws."""

import itertools
import math
from itertools import combinations

import numpy as np
import pytest
import torch

from vflsynth._random import RandomStreams
from vflsynth.methods.latent_tree.method import publish_tree
from vflsynth.methods.latent_tree.model import (
    LatentClasses,
    conditional_shares,
    group_columns,
    group_distribution,
    group_sizes,
    joint_shares,
    merge_cells,
    mutual_information,
    spanning_tree,
    top_down,
)
from vflsynth.methods.latent_tree.sampler import LatentTreeSampler
from vflsynth.privacy.histograms import exact_tables


@pytest.fixture
def rng():
    return np.random.default_rng(4)


def test_tables_count_records_one_by_one(rng):
    one, other = rng.integers(0, 3, 50), rng.integers(0, 4, 50)
    (table,) = exact_tables([one, other], [(0, 1)], [3, 4])
    expected = np.zeros((3, 4))
    for a, b in zip(one, other, strict=True):
        expected[a, b] += 1
    np.testing.assert_array_equal(table, expected)


@pytest.mark.parametrize("n_tables", [1, 3, 6])
def test_a_record_moves_all_tables_together_by_the_root_of_their_number(rng, n_tables):
    codes = [rng.integers(0, 3, 20) for _ in range(2 * n_tables)]
    more = [np.append(column, rng.integers(0, 3)) for column in codes]
    pairs, sizes = [(i, n_tables + i) for i in range(n_tables)], [3] * len(codes)
    before, after = exact_tables(codes, pairs, sizes), exact_tables(more, pairs, sizes)
    moved = math.sqrt(sum(np.sum((a - b) ** 2) for a, b in zip(after, before, strict=True)))
    assert moved == pytest.approx(math.sqrt(n_tables))


def test_mutual_information_by_its_definition(rng):
    joint = rng.dirichlet(np.ones(12)).reshape(3, 4)
    expected = 0.0
    for a in range(3):
        for b in range(4):
            expected += joint[a, b] * math.log(joint[a, b] / (sum(joint[a, :]) * sum(joint[:, b])))
    assert mutual_information(1000.0 * joint) == pytest.approx(expected)
    assert mutual_information(np.diag([10.0, 10.0])) == pytest.approx(math.log(2))
    assert mutual_information(np.full((3, 3), -2.0)) == pytest.approx(0.0)  # noise alone


def test_conditional_shares_row_by_row():
    shares = conditional_shares(np.array([[30.0, 10.0], [0.0, 0.0], [20.0, 20.0]]))
    np.testing.assert_allclose(shares, [[0.75, 0.25], [50 / 80, 30 / 80], [0.5, 0.5]])


@pytest.mark.parametrize("n_nodes", [1, 2, 3, 5])
def test_the_spanning_tree_is_the_best_of_all_trees(rng, n_nodes):
    weights = rng.random((n_nodes, n_nodes))
    weights += weights.T
    edges = list(itertools.combinations(range(n_nodes), 2))

    def is_tree(chosen):
        reached = {0}
        for _ in range(n_nodes):
            reached |= {b for a, b in chosen if a in reached}
            reached |= {a for a, b in chosen if b in reached}
        return len(reached) == n_nodes

    trees = [c for c in itertools.combinations(edges, n_nodes - 1) if is_tree(c)]
    best = max(sum(weights[edge] for edge in tree) for tree in trees)
    parents = spanning_tree(weights)
    assert parents[0] == -1
    found = sum(weights[p, node] for node, p in enumerate(parents) if p >= 0)
    assert found == pytest.approx(best)
    order = top_down(parents)
    assert sorted(order) == list(range(n_nodes))
    assert all(order.index(p) < order.index(node) for node, p in enumerate(parents) if p >= 0)


def test_groups_are_of_public_sizes_and_hold_what_belongs_together(rng):
    assert [group_sizes(n, 3) for n in (1, 3, 4, 8)] == [[1], [3], [2, 2], [3, 3, 2]]
    information = 0.1 * rng.random((6, 6))
    for a, b in itertools.permutations([1, 3, 4], 2):
        information[a, b] = 1.0
    information = (information + information.T) / 2
    groups = group_columns(information, [3, 3])
    assert [sorted(group) for group in groups] == [[1, 3, 4], [0, 2, 5]]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_the_joint_distribution_of_a_chain_is_found_from_its_pairs(rng, order):
    """a - b - c, whichever of the three columns they are."""
    start, first, second = (
        rng.dirichlet(np.ones(2)),
        rng.dirichlet(np.ones(3), 2),
        rng.dirichlet(np.ones(2), 3),
    )
    chain = np.einsum("a,ab,bc->abc", start, first, second)
    joint = np.transpose(chain, order)
    pairs = {
        (a, b): 1000.0 * joint.sum(axis=3 - a - b) for a, b in itertools.combinations(range(3), 2)
    }
    np.testing.assert_allclose(group_distribution(pairs, (0, 1, 2)), joint, atol=1e-9)


def slow_posterior(model, states):
    """Bayes' rule for one cell."""
    weights = []
    for latent, share in enumerate(model.shares):
        weight = share
        for column, state in zip(model.columns, states, strict=True):
            weight *= column[latent, state]
        weights.append(weight)
    return np.array(weights) / sum(weights)


def test_a_record_gets_its_most_probable_class(rng):
    model = LatentClasses(
        rng.dirichlet(np.ones(3)), (rng.dirichlet(np.ones(4), 3), rng.dirichlet(np.ones(2), 3))
    )
    codes = np.stack([rng.integers(0, 4, 30), rng.integers(0, 2, 30)], axis=1)
    expected = [slow_posterior(model, states).argmax() for states in codes]
    np.testing.assert_array_equal(model.assign(codes), expected)
    np.testing.assert_allclose(model.posterior()[2, 1], slow_posterior(model, (2, 1)))


def test_expectation_maximisation_cell_by_cell_and_never_downwards(rng):
    joint = rng.dirichlet(np.ones(24)).reshape(4, 3, 2)
    model = LatentClasses._maximise(joint, rng.dirichlet(np.ones(3), joint.shape))
    likelihoods = []
    for _ in range(20):
        shares, columns = np.zeros(3), [np.zeros((3, n)) for n in joint.shape]
        for states in np.ndindex(joint.shape):
            weight = joint[states] * slow_posterior(model, states)
            shares += weight
            for axis, state in enumerate(states):
                columns[axis][:, state] += weight
        model = LatentClasses._maximise(joint, model.posterior())
        np.testing.assert_allclose(model.shares, shares, atol=1e-9)
        for column, counts in zip(model.columns, columns, strict=True):
            np.testing.assert_allclose(column, counts / counts.sum(1, keepdims=True), atol=1e-7)
        likelihoods.append(np.sum(joint * np.log(model._joint().sum(-1))))
    assert np.all(np.diff(likelihoods) > -1e-9)


def test_latent_classes_find_two_kinds_of_records(rng):
    columns = np.array([[[0.9, 0.1], [0.1, 0.9]]] * 3)
    joint = 0.5 * np.einsum("a,b,c->abc", *columns[:, 0])
    joint += 0.5 * np.einsum("a,b,c->abc", *columns[:, 1])
    model = LatentClasses.fit(joint, 2, rng)
    np.testing.assert_allclose(sorted(model.columns[0][:, 0]), [0.1, 0.9], atol=0.02)
    assert len(set(model.assign(np.array([[0, 0, 0], [1, 1, 1]])))) == 2


def test_cells_are_merged_to_equal_mass_or_by_rarity():
    shares = np.array([0.1, 0.15, 0.25, 0.3, 0.0, 0.2])
    assert merge_cells(shares, 2, ordered=True).tolist() == [0, 0, 0, 1, 1, 1]
    assert merge_cells(shares, 3, ordered=False).tolist() == [2, 2, 1, 0, 2, 2]


@pytest.mark.parametrize("n_groups", [[1], [2], [1, 2]])
def test_the_published_tree_is_that_of_all_parties_codes(rng, n_groups):
    """Without noise: conditional frequencies along the tree, counted record by record."""
    sizes = [[3, 2][:n] for n in n_groups]
    codes = [np.stack([rng.integers(0, s, 400) for s in own], 1) for own in sizes]
    names = {f"party {i}": own for i, own in enumerate(sizes)}
    joined, flat = np.concatenate(codes, 1), [s for own in sizes for s in own]
    index = list(combinations(range(len(flat)), 2)) or [(0, 0)]
    counted = exact_tables(joined.T, index, flat)
    trees = publish_tree(names, dict(zip(index, (t.astype(float) for t in counted), strict=True)))
    tree = trees["party 0"]
    assert [t.first for t in trees.values()] == np.cumsum([0, *n_groups])[:-1].tolist()
    expected = []
    for node, parent in enumerate(tree.parents.tolist()):
        if parent < 0:
            expected += [np.mean(joined[:, node] == state) for state in range(flat[node])]
            continue
        for given in range(flat[parent]):
            rows = joined[joined[:, parent] == given]
            expected += [np.mean(rows[:, node] == state) for state in range(flat[node])]
    np.testing.assert_allclose(tree.shares.numpy(), expected, atol=1e-9)


def test_draws_have_the_distribution_of_the_tree(rng):
    """Frequencies of all cells of two columns against the sum over all latent states."""
    root, child = rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(2), 3)
    bins, categories = rng.dirichlet(np.ones(3), 3), rng.dirichlet(np.ones(3), 2)
    sampler = LatentTreeSampler(
        [-1, 0],
        [torch.from_numpy(root), torch.from_numpy(child)],
        [torch.from_numpy(bins), torch.from_numpy(categories)],
        latent_of=[0, 1],
        bins=[torch.tensor([[-1.5, -0.5, 0.5], [-0.5, 0.5, 1.5]]), None],
        gated=[False, True],
    )
    n = 8_192
    latent = RandomStreams([b"shared"]).latin_hypercube("x", 0, n, 2)
    rows = sampler.draw(latent, RandomStreams([b"secret"]), 0).numpy()
    assert rows.shape == (n, 4)
    cells = np.floor(rows[:, 0] + 1.5).astype(int)  # bins of width 1
    found = np.zeros((3, 3))
    np.add.at(found, (cells, rows[:, 1:].argmax(1)), 1.0 / n)
    expected = np.einsum("a,ab,ac,bd->cd", root, child, bins, categories)
    np.testing.assert_allclose(found, expected, atol=5 * 0.5 / math.sqrt(n))
    within = rows[:, 0] + 1.5 - cells
    assert abs(within.mean() - 0.5) < 5 * math.sqrt(1 / 12 / n)


def test_a_table_has_the_shares_of_its_tree_and_relations_by_chance(rng):
    """Marginals vary by much less than those of independent rows, products of columns as these."""
    shares = torch.from_numpy(rng.dirichlet(np.ones(6)))
    columns = [torch.from_numpy(rng.dirichlet(np.ones(4), 1)).expand(6, -1) for _ in range(2)]
    samplers = [LatentTreeSampler([-1], [shares], [own], [0], [None], [False]) for own in columns]
    n, apart, together = 1000, [], []
    for index in range(40):
        latent = samplers[0].latents(RandomStreams([b"shared"]), index, 8_192)
        one, other = (
            sampler.draw(latent, RandomStreams([name]), index)[:n].double()
            for sampler, name in zip(samplers, (b"A", b"B"), strict=True)
        )
        share, left = one.mean(0), columns[0][0]
        apart.append(float(((share - left).square() / left).sum()) * n)
        expected = torch.outer(left, columns[1][0])
        together.append(float((((one.T @ other) / n - expected).square() / expected).sum()) * n)
    assert np.mean(apart) < 0.1 * 3.0  # of independent rows: 3, and 15 below
    assert 7.0 < np.mean(together) < 11.0  # 9, margins known


def test_missing_numbers_have_their_state():
    sampler = LatentTreeSampler(
        [-1],
        [torch.tensor([1.0])],
        [torch.tensor([[0.0, 0.0, 1.0]])],
        latent_of=[0],
        bins=[torch.tensor([[0.0, 0.5], [0.5, 1.0]])],
        gated=[True],
    )
    rows = sampler.draw(torch.zeros(1, 5, 1), RandomStreams([b"secret"]), 0)
    assert rows.tolist() == [[0.0, 0.0, 1.0]] * 5


def test_bins_of_a_single_value_are_drawn_as_it():
    bins = torch.tensor([[-1.0, 0.25, 0.5], [-0.5, 0.25, 2.0]])
    shares = torch.tensor([[0.25, 0.5, 0.25]])
    sampler = LatentTreeSampler([-1], [torch.ones(1)], [shares], [0], [bins], [False])
    latent = torch.zeros(1, 8_192, 1)
    values = sampler.draw(latent, RandomStreams([b"secret"]), 0)[:, 0].numpy()
    assert (values == 0.25).mean() == pytest.approx(0.5, abs=0.03)
    low, high = values[values < 0.25], values[values > 0.25]
    assert -1.0 <= low.min() < -0.99 < -0.51 < low.max() <= -0.5
    assert 0.5 <= high.min() < 0.51 < 1.98 < high.max() <= 2.0
    again = LatentTreeSampler.restore(sampler.to_dict(), sampler.tensors(), ())
    drawn = again.draw(latent, RandomStreams([b"secret"]), 0)[:, 0].numpy()
    assert np.array_equal(drawn, values)


def test_noisy_shares_are_shares(rng):
    shares = joint_shares(rng.normal(size=(4, 5)) * 10.0)
    assert shares.min() >= 0.0
    assert shares.sum() == pytest.approx(1.0)
