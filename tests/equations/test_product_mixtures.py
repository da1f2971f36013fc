"""Mixtures of products against slow, obvious code, and the fit to tables that are known."""

import math
from dataclasses import astuple, replace
from itertools import combinations, pairwise
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest
import torch

from vflsynth import MixtureSynthesizer, PairwiseTables
from vflsynth._random import RandomStreams
from vflsynth.exceptions import ProtocolError
from vflsynth.learning.products import ProductTerms, unit_grid
from vflsynth.methods.pairwise import party
from vflsynth.methods.pairwise.column_codes import CODE_NORM, Detail, column_code
from vflsynth.methods.pairwise.messages import ColumnTables, StateCodes
from vflsynth.methods.pairwise.party import PairwiseParty
from vflsynth.methods.pairwise.product_mixtures import (
    Evidence,
    ProductMixture,
    StackedCodes,
    fit_product_mixture,
    related_pairs,
    surely_related,
    without_relations,
)
from vflsynth.methods.pairwise.server import PublishPairs
from vflsynth.methods.pairwise.tilts import (
    CATEGORIES,
    GATED,
    ORDERED,
    normal_scores,
    tilt_basis,
    within_states,
)
from vflsynth.privacy import PublicSchema
from vflsynth.privacy.events import NeighbouringRelation
from vflsynth.privacy.histograms import product_sensitivity
from vflsynth.secure.ring import Arithmetic

SIZES = (3, 4, 2)
GRID = unit_grid(float(CODE_NORM**2))  # noise of a record


def mixture(n_components=5, seed=0):
    draw = torch.Generator().manual_seed(seed)
    shares = torch.rand((n_components, 3, 4), generator=draw)
    for column, size in enumerate(SIZES):
        shares[:, column, size:] = 0.0
    weights = torch.rand(n_components, generator=draw)
    return ProductMixture(weights / weights.sum(), shares / shares.sum(-1, keepdim=True))


ONE_HOT = StackedCodes.of([torch.eye(4)] * 3)


def tables_of(model):
    return model.products(ONE_HOT).view(3, 4, 3, 4)


def test_tables_and_marginals_are_sums_over_components():
    model = mixture()
    tables, marginals = tables_of(model), model.marginals()
    for a in range(3):
        for s in range(4):
            one = sum(w * c[a, s] for w, c in zip(model.weights, model.shares))
            assert marginals[a, s] == pytest.approx(float(one), abs=1e-6)
            for b in range(3):
                for t in range(4):
                    both = sum(w * c[a, s] * c[b, t] for w, c in zip(model.weights, model.shares))
                    assert tables[a, s, b, t] == pytest.approx(float(both), abs=1e-6)


def test_products_are_those_of_codes_in_the_tables():
    model = mixture()
    draw = torch.Generator().manual_seed(1)
    codes = [torch.randn((size, n), generator=draw) for size, n in zip(SIZES, (2, 1, 3))]
    tables, ends = tables_of(model), np.cumsum([0, 2, 1, 3])
    found = model.products(StackedCodes.of(codes))
    assert found.shape == (6, 6)
    for a, b in np.ndindex(3, 3):
        expected = codes[a].T @ tables[a, : SIZES[a], b, : SIZES[b]] @ codes[b]
        part = found[ends[a] : ends[a + 1], ends[b] : ends[b + 1]]
        torch.testing.assert_close(part, expected, rtol=0.0, atol=1e-5)


def test_several_mixtures_have_the_products_of_each():
    both = [mixture(seed=seed) for seed in (0, 1)]
    stacked = ProductMixture(
        torch.stack([own.weights for own in both]), torch.stack([own.shares for own in both])
    )
    for number, own in enumerate(both):
        torch.testing.assert_close(stacked.marginals()[number], own.marginals())
        torch.testing.assert_close(stacked.products(ONE_HOT)[number], own.products(ONE_HOT))


def test_columns_apart_keep_their_marginals_and_no_relation():
    model = mixture()
    found = model.apart(torch.tensor([False, True, False]))
    torch.testing.assert_close(found.marginals(), model.marginals())
    before, after, own = tables_of(model), tables_of(found), model.marginals()
    torch.testing.assert_close(after[0, :, 2], before[0, :, 2])
    for other in (0, 2):
        torch.testing.assert_close(after[other, :, 1], torch.outer(own[other], own[1]))


def planted(seed, n_splits, related):
    """Found and held-out products of five columns, of which only some are truly related."""
    draw = torch.Generator().manual_seed(seed)
    sizes, n = (2, 1, 3, 1, 2), 9
    codes = StackedCodes.of([torch.ones(2, size) for size in sizes])
    precision = torch.rand((n, n), generator=draw)
    precision = (precision + precision.T) * (codes.columns[:, None] != codes.columns)
    found, chance = torch.randn((2, n_splits, n, n), generator=draw)
    found = found + found.mT
    true = related[codes.columns][:, codes.columns]
    return codes, precision, found, true * found + 2.0 * (chance + chance.mT)


def lost_squares(codes, precision, found, held_out, kept):
    """Squares that are left, of every pair once, and what the explained part has of them."""
    left, explained, columns = 0.0, 0.0, codes.columns.tolist()
    for split in range(len(found)):
        for i, j in combinations(range(len(columns)), 2):
            expected = float(found[split, i, j]) * kept(columns[i], columns[j])
            left += float(precision[i, j]) * (float(held_out[split, i, j]) - expected) ** 2
            explained += float(precision[i, j]) * expected**2
    return left / len(found), explained / len(found)


@pytest.mark.parametrize("n_splits", [1, 4])
@pytest.mark.parametrize("seed", range(5))
def test_columns_without_relations_are_those_that_held_out_products_are_better_without(
    n_splits, seed
):
    """Against sums over pairs of columns, one column less at a time."""
    related = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0])
    codes, *products = planted(seed, n_splits, torch.outer(related, related))

    def lost(kept):
        return lost_squares(codes, *products, lambda a, b: a in kept and b in kept)

    kept = [*range(5)]
    while True:
        left, explained = lost(kept)
        gains = {}
        for column in kept:
            without = lost([other for other in kept if other != column])
            deviation = math.sqrt(4.0 * (1.0 + 4.0 / n_splits) * (explained - without[1]))
            if deviation > 0.0:
                gains[column] = (left - without[0]) / deviation
        worst = max(gains, key=gains.get, default=None)
        if worst is None or gains[worst] <= 1.0:
            break
        kept.remove(worst)
    nobody = torch.zeros((5, 5), dtype=torch.bool)
    alone = without_relations(Evidence.of(codes, *products), nobody)
    assert np.flatnonzero(~alone).tolist() == kept


@pytest.mark.parametrize("n_splits", [1, 4])
@pytest.mark.parametrize("seed", range(8))
def test_groups_are_related_if_held_out_products_are_better_with_that(n_splits, seed):
    """Against sums over pairs of columns, without the relations of every two groups in turn."""
    groups = torch.tensor([0, 1, 1, 2, 0])
    true = torch.tensor([[1.0, 0.3, 0.0], [0.3, 1.0, 0.0], [0.0, 0.0, 1.0]])
    codes, *products = planted(seed, n_splits, true[groups][:, groups])
    found = related_pairs(Evidence.of(codes, *products), groups)
    assert torch.equal(found, found.T)
    assert found[groups.unsqueeze(1) == groups].all()
    for one, other in combinations(range(3), 2):
        apart = {(a, b) for a, b in np.ndindex(5, 5) if {*groups[[a, b]].tolist()} == {one, other}}
        assert len(apart) > 0
        whole, _ = lost_squares(codes, *products, lambda a, b: True)
        without, _ = lost_squares(codes, *products, lambda a, b, apart=apart: (a, b) not in apart)
        assert {bool(found[a, b]) for a, b in apart} == {whole <= without}


def test_a_column_that_is_surely_related_stays_whatever_the_noise_of_its_other_relations():
    found, shown = torch.full((2, 6, 6), 40.0, dtype=torch.float64)
    shown[:] = 0.0
    sure = torch.zeros((6, 6), dtype=torch.bool)
    assert without_relations(Evidence(found, shown, 2.0), sure).all()
    sure[3, 5] = sure[5, 3] = True
    alone = without_relations(Evidence(found, shown, 2.0), sure)
    assert np.flatnonzero(~alone).tolist() == [3, 5]


def test_chance_makes_any_pair_sure_in_one_of_a_hundred_tables_and_signal_in_all():
    """2,000 tables of noise, with 3 x 2, 3 x 4 or 2 x 4 products a pair."""
    draw = torch.Generator().manual_seed(0)
    codes = StackedCodes.of([torch.ones(2, size) for size in (3, 2, 4)])
    known = codes.columns[:, None] != codes.columns
    precision = known / 0.04
    one_of = 0
    for _ in range(2_000):
        noise = 0.2 * torch.randn(known.shape, generator=draw)
        noise = torch.where(codes.precede(), noise, noise.mT) * known
        sure = surely_related(codes, precision, noise)
        assert torch.equal(sure, sure.T)
        assert not sure.diagonal().any()
        one_of += bool(sure.any())
    assert 8 <= one_of <= 33  # 20 expected, deviation 4.4
    signal = torch.zeros(known.shape)
    signal[codes.columns == 0, 3] = signal[3, codes.columns == 0] = 2.0
    assert surely_related(codes, precision, noise + signal).nonzero().tolist() == [[0, 1], [1, 0]]


def test_codes_of_labels_are_corners_of_a_simplex():
    for n in (2, 3, 8):
        code = column_code(np.full(n, 1 / n), CATEGORIES, Detail(1.0))
        lengths = (code**2).sum(1)
        assert (lengths <= CODE_NORM**2).all()
        assert (lengths > 0.95 * CODE_NORM**2).all()
        products = (code @ code.T)[~np.eye(n, dtype=bool)] / CODE_NORM**2
        np.testing.assert_allclose(products, -1.0 / (n - 1), atol=0.03)


@pytest.mark.parametrize("kind", [ORDERED, GATED])
def test_codes_of_numbers_are_their_scores_and_squares(kind):
    shares = np.array([0.1, 0.2, 0.3, 0.15, 0.25])
    code = column_code(shares, kind, Detail(0.01))
    n_ordered = 5 - (kind == GATED)
    assert code.shape == (5, 2 + (kind == GATED))
    assert CODE_NORM - 3 < np.sqrt((code**2).sum(1).max()) <= CODE_NORM
    basis = tilt_basis(torch.tensor(shares)[None].float(), [kind], 2)[0, :2, :n_ordered].numpy()
    for coordinate, expected in enumerate(basis):
        line = np.polyfit(expected, code[:n_ordered, coordinate], 1)
        assert np.abs(np.polyval(line, expected) - code[:n_ordered, coordinate]).max() < 2.0
        assert line[0] > 0.0
    if kind == GATED:
        assert (code[:n_ordered, 2] < 0).all()
        assert code[n_ordered, 2] > 0


def test_a_state_that_hardly_any_record_has_does_not_make_all_other_codes_alike():
    """As below the lowest number, where a public bound is lower: before, all others were near."""
    shares = np.array([1e-6, 0.27, 0.1, 0.13, 0.1, 0.16, 0.14, 0.1])
    for noise in (0.01, 1.0):
        code = column_code(shares / shares.sum(), ORDERED, Detail(noise))
        usual = column_code(shares[1:] / shares[1:].sum(), ORDERED, Detail(noise))

        def spread(code, of):
            return np.linalg.norm(code - np.average(code, axis=0, weights=of), axis=1)

        far, as_usual = spread(code, shares)[1:].mean(), spread(usual, shares[1:]).mean()
        assert far > 0.6 * as_usual


@pytest.mark.parametrize("kind", [ORDERED, GATED])
def test_where_noise_is_little_few_numbers_have_the_codes_of_labels(kind):
    shares = np.full(4, 0.25)
    labels = column_code(shares, CATEGORIES, Detail(1.0))
    assert np.array_equal(column_code(shares, kind, Detail(0.0045)), labels)
    assert not np.array_equal(column_code(shares, kind, Detail(0.005)), labels)


@pytest.mark.parametrize("kind", [ORDERED, GATED])
def test_where_noise_is_little_many_numbers_have_codes_between_those_of_knots(kind):
    """Against loops over states and knots."""
    shares = np.random.default_rng(0).dirichlet(np.full(32, 3.0))
    code = column_code(shares, kind, Detail(0.001))
    n_ordered = 32 - (kind == GATED)
    masses = (shares[:n_ordered] / shares[:n_ordered].sum()).tolist()
    normal, scores = NormalDist(), []
    for i, mass in enumerate(masses):
        scores.append(normal.inv_cdf(sum(masses[:i]) + mass / 2))
    first = max(scores[0], normal.inv_cdf(0.02))
    last = min(scores[-1], normal.inv_cdf(0.98))
    apart = (last - first) / 3
    expected = np.zeros((32, 4 + (kind == GATED)))
    for state, score in enumerate(scores):
        for knot in range(4):
            away = abs(min(max(score, first), last) - (first + knot * apart)) / apart
            expected[state, knot] = max(0.0, 1.0 - away)
    if kind == GATED:
        expected[31, 4] = 1.0
    np.testing.assert_allclose(expected.sum(1), 1.0)
    expected -= 1.0 / expected.shape[1]
    expected *= CODE_NORM / max(math.sqrt(sum(x * x for x in row)) for row in expected)
    assert code.shape == expected.shape
    np.testing.assert_allclose(code, expected, atol=1.0)


def test_a_spike_leaves_no_knots_without_states():
    shares = np.append(0.9, np.full(20, 0.005))
    code = column_code(shares, ORDERED, Detail(0.001))
    assert 2 <= code.shape[1] <= 4
    assert (np.abs(code - code[0]).max(0) > 0).all()


@pytest.mark.parametrize("kind", [ORDERED, GATED])
def test_where_noise_is_much_all_numbers_have_codes_of_full_length(kind):
    """In the direction of the functions that components differ in, the second ones weighing .6."""
    shares = np.array([0.1, 0.2, 0.3, 0.15, 0.25])
    code = column_code(shares, kind, Detail(0.02))
    n_ordered = 5 - (kind == GATED)
    expected = np.zeros((5, 2 + (kind == GATED)))
    basis = tilt_basis(torch.tensor(shares)[None].float(), [kind], 2)[0, :2, :n_ordered].numpy()
    expected[:n_ordered, :2] = basis.T * [1.0, 0.6]
    if kind == GATED:
        expected[:, 2] = 0.6 * ((np.arange(5) == 4) - 0.25) / math.sqrt(0.25 * 0.75)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(code / CODE_NORM, expected, atol=1.5 / CODE_NORM)


@pytest.mark.parametrize("n_ordered", [1, 2, 3])
def test_few_states_have_codes_however_much_noise_there_is(n_ordered):
    shares = np.full(n_ordered + 1, 1 / (n_ordered + 1))
    for noise in (0.001, 0.01, 1.0):
        code = column_code(shares, GATED, Detail(noise))
        assert len(np.unique(code, axis=0)) == n_ordered + 1
        assert (code**2).sum(1).max() > 0.9 * CODE_NORM**2


@pytest.mark.parametrize("kind", [CATEGORIES, ORDERED])
def test_the_code_of_a_single_state_is_zero(kind):
    assert column_code(np.ones(1), kind, Detail(1.0)).tolist() == [[0]]


def test_a_correlation_of_numbers_has_much_less_noise_than_in_a_table():
    """Of least squares: noise in the coefficient of the first scores' product, per unit of it."""
    shares = np.full(8, 1 / 8)
    score = tilt_basis(torch.tensor(shares)[None].float(), [ORDERED], 2)[0, 0, :8].double().numpy()

    def noise(code):
        means = np.einsum("s,si,s->i", shares, code, score)  # what a score is of the coordinates
        return 1.0 / np.linalg.norm(
            np.outer(means, means) / (np.linalg.norm(code, axis=1).max() ** 2)
        )

    assert noise(np.eye(8)) > 2.2 * noise(column_code(shares, ORDERED, Detail(0.01)))
    assert noise(np.eye(8)) > 3.8 * noise(column_code(shares, ORDERED, Detail(1.0)))


@pytest.mark.parametrize("noise", [0.0, 0.01, 1.0])
@pytest.mark.parametrize("relation", NeighbouringRelation)
def test_a_record_moves_the_products_of_all_pairs_by_their_sensitivity_at_most(relation, noise):
    rng = np.random.default_rng(0)
    shares = [rng.dirichlet(np.ones(n)) + 1e-3 for n in (2, 5, 32, 1, 9)]
    kinds = [CATEGORIES, CATEGORIES, ORDERED, ORDERED, GATED]
    codes = [column_code(own / own.sum(), kind, Detail(noise)) for own, kind in zip(shares, kinds)]

    def products(states):
        of = [code[state] for code, state in zip(codes, states)]
        return np.concatenate([np.outer(a, b).ravel() for a, b in combinations(of, 2)])

    moved = []
    for _ in range(2_000):
        one, other = ([rng.integers(len(code)) for code in codes] for _ in range(2))
        replaced = relation is NeighbouringRelation.REPLACE_ONE
        moved.append(np.linalg.norm(products(one) - (products(other) if replaced else 0)))
    most = CODE_NORM**2 * product_sensitivity(math.comb(5, 2), relation)
    assert 0.3 * most < max(moved) <= most


def test_tilts_of_ordered_states_are_orthonormal_and_of_the_first_degrees():
    marginals = torch.tensor([[0.1, 0.2, 0.3, 0.4, 0.0], [0.3, 0.3, 0.2, 0.1, 0.1]])
    basis = tilt_basis(marginals, [ORDERED, GATED], 2).double()
    for column, (size, shares) in enumerate(
        [(4, marginals[0, :4]), (4, marginals[1, :4] / marginals[1, :4].sum())]
    ):
        rows = basis[column, :2, :size]
        products = rows @ torch.diag(shares.double()) @ rows.T
        torch.testing.assert_close(products, torch.eye(2).double(), rtol=0.0, atol=1e-5)
        torch.testing.assert_close(
            rows @ shares.double(), torch.zeros(2).double(), rtol=0, atol=1e-6
        )
        assert (rows[0].diff() > 0.0).all()  # of the first degree: from low to high
        middle = rows[1]
        assert middle[0] > middle[1]
        assert middle[-1] > middle[-2]
    assert (basis[0, 2:] == 0.0).all()
    assert basis[1, 2].tolist() == [0.0, 0.0, 0.0, 0.0, 1.0]
    of_categories = tilt_basis(marginals, [CATEGORIES, CATEGORIES], 2)
    assert of_categories[0].diagonal().tolist() == [1.0, 1.0, 1.0, 1.0, 0.0]


@pytest.mark.parametrize("degree", [1, 2, 3, 5])
def test_tilts_have_the_degree_that_is_asked_for_or_as_many_as_there_are_states(degree):
    shares = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.5, 0.3, 0.2, 0.0]]).double()
    basis = tilt_basis(shares.float(), [ORDERED, ORDERED], degree).double()
    assert basis.shape[1] == min(degree, 3)
    for tilts, own in zip(basis, shares):
        size = int((own > 0).sum())
        powers = torch.vander(normal_scores(own[:size]), size, increasing=True)
        for number, tilt in enumerate(tilts[: min(degree, size - 1)], start=1):
            of_powers = torch.linalg.solve(powers, tilt[:size])
            assert of_powers[number] > 0.0
            assert (of_powers[number + 1 :].abs() < 1e-5).all()


def column(kind, n_components=6, seed=0):
    """Components' shares of five states, the last one missing, and of 12 cells or 13."""
    draw = torch.Generator().manual_seed(seed)
    n_missing = int(kind == GATED)
    numbers = torch.rand((4, 12), generator=draw, dtype=torch.float64)
    for state in range(4):
        numbers[state, : 3 * state] = numbers[state, 3 * state + 3 :] = 0.0
    cells = torch.block_diag(numbers, torch.ones(n_missing, n_missing, dtype=torch.float64))
    cells /= cells.sum(1, keepdim=True)
    shape = (n_components, 4 + n_missing)
    part = (3.0 * torch.randn(shape, generator=draw, dtype=torch.float64)).softmax(1)
    weights = torch.rand(n_components, generator=draw, dtype=torch.float64)
    weights /= weights.sum()
    return weights, part, weights @ part, cells, kind


@pytest.mark.parametrize("kind", [ORDERED, GATED])
@pytest.mark.parametrize("seed", range(3))
def test_states_of_components_and_cells_of_all_of_them_stay_as_they_are(kind, seed):
    weights, part, shares, cells, _ = given = column(kind, seed=seed)
    found = within_states(*given, 2)
    owner = cells.argmax(0)  # of every cell
    states = torch.stack([found[:, owner == s].sum(1) for s in range(len(cells))], 1)
    torch.testing.assert_close(states, part, rtol=0.0, atol=1e-12)
    torch.testing.assert_close(weights @ found, shares @ cells, rtol=0.02, atol=0.0)
    assert float((found - part @ cells).abs().max()) > 0.02
    if kind == GATED:
        torch.testing.assert_close(found[:, -1], part[:, -1])


@pytest.mark.parametrize("seed", range(3))
def test_shares_within_states_are_the_same_wherever_memory_starts(seed):
    weights, part, shares, cells, kind = column(ORDERED, seed=seed)
    expected = within_states(weights, part, shares, cells, kind, 2)
    for start in range(8):
        moved = torch.empty(start + part.numel(), dtype=part.dtype)[start:].view(part.shape)
        found = within_states(weights, moved.copy_(part), shares, cells, kind, 2)
        assert torch.equal(found, expected)


def test_tilts_within_states_are_those_between_them_fitted_to_both_shares():
    """Against loops over components and cells."""
    weights, part, shares, cells, _ = given = column(ORDERED)
    normal = NormalDist()

    def score(masses):
        middles = [sum(masses[:i]) + masses[i] / 2 for i in range(len(masses))]
        return [normal.inv_cdf(middle) for middle in middles]

    of_cells = (shares @ cells).tolist()
    wanted = torch.zeros(len(part), 12, dtype=torch.float64)
    for s in range(4):
        own = range(3 * s, 3 * s + 3)
        table = np.zeros((len(part), 3))
        for k in range(len(part)):
            ratios = [math.log(float(part[k, t] / shares[t])) for t in range(4)]
            tilt = np.polyfit(score(shares.tolist()), ratios, 2)
            for i, c in enumerate(own):
                table[k, i] = float(cells[s, c]) * math.exp(np.polyval(tilt, score(of_cells)[c]))
            table[k] *= float(weights[k] * part[k, s]) / table[k].sum()
        for _ in range(2_000):
            for i, c in enumerate(own):
                table[:, i] *= of_cells[c] / table[:, i].sum()
            for k in range(len(part)):
                table[k] *= float(weights[k] * part[k, s]) / table[k].sum()
        wanted[:, 3 * s : 3 * s + 3] = torch.from_numpy(table) / weights[:, None]
    torch.testing.assert_close(within_states(*given, 2), wanted, rtol=0.0, atol=2e-3)


def test_cells_of_normal_components_are_found_from_their_states():
    """Four states of normal columns that move and narrow: what is lost within states is back."""
    edges = [-math.inf, *np.linspace(-2.5, 2.5, 39), math.inf]
    components = [NormalDist(mean, std) for mean in (-1.0, 0.0, 1.0) for std in (0.4, 0.8)]
    truth = torch.tensor(
        [[c.cdf(b) - c.cdf(a) for a, b in pairwise(edges)] for c in components],
        dtype=torch.float64,
    )
    weights = torch.full((6,), 1 / 6, dtype=torch.float64)
    both = weights @ truth
    states = ((both.cumsum(0) - both / 2.0) * 4.0).long()
    cells = torch.where(states == torch.arange(4)[:, None], both, 0.0)
    cells /= cells.sum(1, keepdim=True)
    part = truth @ (cells > 0.0).double().T
    found = within_states(weights, part, weights @ part, cells, ORDERED, 2)
    distance = (found - truth).abs().sum(1).mean() / 2.0
    without = (part @ cells - truth).abs().sum(1).mean() / 2.0
    assert distance < without / 2.0


@pytest.mark.parametrize("kind", [CATEGORIES, ORDERED, GATED])
def test_components_without_a_state_or_without_weight_have_shares_all_the_same(kind):
    weights, part, shares, cells, _ = column(ORDERED if kind == CATEGORIES else kind)
    part[0] = torch.eye(part.shape[1])[0]
    part[1, 1] = 0.0
    part[:, 2] = 1e-300
    part /= part.sum(1, keepdim=True)
    weights[2:] = 0.0
    found = within_states(weights, part, shares, cells, kind, 2)
    assert bool((found >= 0.0).all())
    torch.testing.assert_close(found.sum(1), torch.ones(len(part), dtype=torch.float64))
    if kind == CATEGORIES:
        assert torch.equal(found, part @ cells)


def test_one_state_of_numbers_has_nothing_to_continue():
    cells = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    part = torch.tensor([[0.9, 0.1], [0.2, 0.8]], dtype=torch.float64)
    weights = torch.tensor([0.5, 0.5], dtype=torch.float64)
    assert torch.equal(within_states(weights, part, weights @ part, cells, GATED, 2), part @ cells)


def fitted(tables, marginals, noise, sampling=0.0, n_starts=2, seed=1, groups=None):
    draw = torch.Generator().manual_seed(seed)
    starts = torch.randn((n_starts, 32, *marginals.shape), generator=draw)
    splits = torch.randn((4, 12, 12), generator=draw)
    basis = tilt_basis(marginals, [CATEGORIES] * len(marginals), 2)
    noise = noise.view(12, 12)
    drawn = sampling * (noise > 0.0)
    products = tables.view(12, 12)
    groups = torch.zeros(len(marginals), dtype=torch.int64) if groups is None else groups
    return fit_product_mixture(
        marginals, ONE_HOT, products, noise, drawn, basis, starts, splits, groups, 600
    )


def known_cells(sizes=SIZES):
    there = torch.zeros(len(sizes), 4)
    for column, size in enumerate(sizes):
        there[column, :size] = 1.0
    known = torch.einsum("as,bt->asbt", there, there)
    for column in range(len(sizes)):
        known[column, :, column] = 0.0
    return known


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_groups_whose_relations_are_noise_are_independent_in_the_fit(seed):
    """Those of a group's own columns stay: 1 and 2 are related, and 0 is of another party."""
    truth, known = mixture(seed=3).apart(torch.tensor([True, False, False])), known_cells()
    draw = torch.Generator().manual_seed(seed)
    chance = 0.002 * torch.randn((3, 4, 3, 4), generator=draw)
    noisy = tables_of(truth) + (chance + chance.permute(2, 3, 0, 1)) / math.sqrt(2.0) * known
    found, pairs = fitted(
        noisy, truth.marginals(), 4e-6 * known, seed=seed, groups=torch.tensor([0, 1, 1])
    )
    assert pairs.tolist() == [[True, False, False], [False, True, True], [False, True, True]]
    tables, own = tables_of(found), found.marginals()
    for other in (1, 2):
        assert float((tables[0, :, other] - torch.outer(own[0], own[other])).abs().max()) < 2e-3
    apart = torch.outer(own[1], own[2])
    assert float((tables[1, :, 2] - apart).norm()) > 0.7 * float(
        (tables_of(truth)[1, :, 2] - apart).norm()
    )


def test_a_fit_finds_tables_that_are_known_exactly():
    truth, known = mixture(), known_cells()
    found, _ = fitted(tables_of(truth), truth.marginals(), 1e-8 * known)
    assert float(((tables_of(found) - tables_of(truth)) * known).abs().max()) < 2e-3
    assert (found.shares[:, 0, 3] == 0.0).all()  # a state that the column has not got
    torch.testing.assert_close(found.shares.sum(-1), torch.ones(64, 3))


def chance(std):
    """One number for a cell, whichever column of a pair is first."""
    numbers = std * torch.randn((3, 4, 3, 4), generator=torch.Generator().manual_seed(3))
    upper = torch.ones(3, 3).triu(1)[:, None, :, None].bool()
    return torch.where(upper, numbers, numbers.permute(2, 3, 0, 1))


def test_a_mean_of_mixtures_has_the_mean_of_their_tables():
    one, other = mixture(seed=1), mixture(seed=2)
    both = ProductMixture(*map(torch.stack, zip(*map(astuple, (one, other)), strict=True))).mean()
    torch.testing.assert_close(tables_of(both), (tables_of(one) + tables_of(other)) / 2.0)


@pytest.mark.slow
def test_what_three_columns_have_together_depends_less_on_several_starts_than_on_one():
    """Products of two columns do not say it: where a search ends depends on its start."""
    truth, known = mixture(), known_cells()
    noisy, noise = tables_of(truth) + chance(0.01), known * 0.01**2

    def together(found):
        return torch.einsum("k,ka,kb,kc->abc", found.weights, *found.shares.unbind(1))

    def spread(n_starts):
        found = [
            fitted(noisy, truth.marginals(), noise, n_starts=n_starts, seed=seed)[0]
            for seed in range(4)
        ]
        return float(torch.stack([together(one) for one in found]).var(0).sum())

    assert spread(4) < 0.6 * spread(1)


def learned(seen, truth, noise, sampling=0.0):
    """By how much tables that were fitted are off; one search may stop late by chance."""
    known = known_cells()
    fits = [fitted(seen, truth.marginals(), noise, sampling, seed=seed)[0] for seed in range(4)]
    errors = [((tables_of(found) - tables_of(truth)) * known).norm() for found in fits]
    return float(torch.stack(errors).mean())


@pytest.mark.slow
def test_noise_alone_is_not_learned():
    """Where all that is seen is noise, the columns stay about as independent as they began."""
    truth, known, std = mixture(1), known_cells(), 0.05
    noise = chance(std)
    all_of_it = float((noise * known).norm())
    assert learned(tables_of(truth) + noise, truth, known * std**2) < 0.4 * all_of_it


@pytest.mark.slow
def test_which_records_were_drawn_is_not_learned():
    """Noise of the release may be small, and what it is added to be chance."""
    truth, known, std = mixture(1), known_cells(), 0.05
    drawn, noise = tables_of(truth) + chance(std), known * 1e-6
    assert learned(drawn, truth, noise, std**2) < 0.4 * learned(drawn, truth, noise)


def frames(n=600):
    rng = np.random.default_rng(2)
    x = rng.normal(size=n)
    y = 0.9 * x + math.sqrt(0.19) * rng.normal(size=n)
    big = pd.Series(np.where(x > 0, "yes", "no"), dtype=object)
    big[rng.random(n) < 0.2] = None
    return {"a": pd.DataFrame({"x": x, "big": big}), "b": pd.DataFrame({"y": y})}


def model(**privacy):
    schema = PublicSchema({"x": (-5, 5), "y": (-5, 5)}, {"big": ("no", "yes")}, dtypes="given")
    given = {"epsilon": 30.0, "delta": 1e-4, "public_schema": schema} | privacy
    return MixtureSynthesizer(privacy=PairwiseTables(**given), n_components=64, random_state=0)


@pytest.fixture
def few_steps(monkeypatch):
    """Where no test asks how good the fit is."""
    monkeypatch.setattr(Detail, "n_steps", 30)


def test_relations_across_parties_and_missing_values_survive():
    synth = model().fit(frames(), transcript=True)
    table = synth.sample(4_000, random_state=0)
    assert table["x"].corr(table["y"]) > 0.7
    assert table.groupby("big")["y"].mean().diff().iloc[-1] > 0.8
    assert table["big"].isna().mean() == pytest.approx(0.2, abs=0.06)
    assert synth.privacy_ledger_.epsilon() == pytest.approx(30.0, rel=1e-3)
    assert synth.transcript_["bytes"].sum() < 1e6


@pytest.mark.slow
def test_a_relation_goes_on_within_states():
    synth = model(epsilon=1e4).fit(frames(6_000))
    table = synth.sample(60_000, random_state=0)
    inside = table[table["x"].between(0.37, 0.62)]  # inside one of 8 states
    std = 0.25 / math.sqrt(12.0)
    real = 0.9 * std / math.sqrt((0.9 * std) ** 2 + 0.19)
    assert inside["x"].corr(inside["y"]) > 0.5 * real


@pytest.mark.parametrize(("most", "n_states"), [(10_000_000, 32), (600 * 37, 16), (600, 8)])
def test_where_noise_is_little_numbers_have_the_states_that_there_are_bytes_for(
    few_steps, monkeypatch, most, n_states
):
    """And codes of knots, not of labels, though there are no more states than labels have."""
    monkeypatch.setattr(party, "_MOST_TAGS", most)  # 37 halves: the number of records is noisy
    synth = model(epsilon=1e5).fit(frames(), transcript=True)
    crossed = synth.transcript_.set_index(["message", "sender"])["bytes"]
    tags = 8 * 600 * ((n_states + 1) + (2 + 1 + 1))  # by b, of a's numbers and of its labels
    rest = 600 * (4 * 4 + 2)  # masked numbers and places
    assert tags + rest < crossed["MaskedStates", "b"] < tags + rest + 2_000


def test_one_record_more_changes_no_number_of_states(few_steps, monkeypatch):
    """At the edge where the true number of records would give a column one state fewer."""
    monkeypatch.setattr(party, "_MOST_TAGS", 600 * 2 * 18)
    monkeypatch.setattr(party, "estimate_n_records", lambda counts: 600.0)  # what was published
    sizes, codebook = {}, PublishPairs.codebook

    def seen(server, messages):
        sizes[n] = {name: own.sizes.tolist() for name, own in messages.items()}
        return codebook(server, messages)

    monkeypatch.setattr(PublishPairs, "codebook", seen)
    for n in (600, 601):
        model(epsilon=1e5).fit(frames(n))
    assert sizes[600] == sizes[601]


@pytest.mark.parametrize(("n_labels", "kept"), [(16, True), (8, False)])
@pytest.mark.slow
def test_rare_labels_have_relations_of_their_own(n_labels, kept):
    rng = np.random.default_rng(3)
    names = [f"l{i:02}" for i in range(12)]
    label = rng.choice(12, 6_000, p=[0.1] * 7 + [0.06] * 5)
    both = {
        "a": pd.DataFrame({"label": [names[i] for i in label]}),
        "b": pd.DataFrame({"odd": np.where(label % 2 == 1, "yes", "no")}),
    }
    schema = PublicSchema(categories={"label": names, "odd": ["no", "yes"]}, dtypes="given")
    synth = model(epsilon=100.0, public_schema=schema).set_params(n_labels=n_labels).fit(both)
    table = synth.sample(20_000, random_state=0)
    odd = table.groupby("label")["odd"].apply(lambda found: (found == "yes").mean())
    assert (odd["l11"] - odd["l10"] > 0.7) == kept


@pytest.mark.slow
@pytest.mark.parametrize(("n_labels", "kept"), [(12, True), (11, False)])
def test_a_number_of_few_values_goes_with_its_label(n_labels, kept):
    """As an education has a number: rows with another one cannot exist."""
    rng = np.random.default_rng(4)
    names = [f"l{i:02}" for i in range(12)]
    level = rng.choice(12, 6_000, p=[0.1] * 6 + [0.08] * 4 + [0.04] * 2)
    both = {
        "a": pd.DataFrame({"label": [names[i] for i in level]}),
        "b": pd.DataFrame({"number": level}),
    }
    schema = PublicSchema({"number": (0, 11)}, {"label": names}, dtypes="given")
    synth = model(epsilon=100.0, public_schema=schema).set_params(n_labels=n_labels).fit(both)
    table = synth.sample(20_000, random_state=0)
    table = table[~table["label"].isin(names[10:])]  # two share a state if there are eleven
    wrong = table["number"] != table["label"].str[1:].astype(int)
    assert (wrong.mean() < 0.1) == kept


def test_one_column_alone_has_no_pair_and_everything_goes_to_its_histogram():
    only = {"a": frames()["a"][["x"]]}
    synth = model().fit(only)
    (entry,) = synth.privacy_ledger_.entries
    assert entry.purpose == "preprocessing"
    assert synth.sample(2_000)["x"].std() == pytest.approx(1.0, abs=0.2)


def shares(*values):
    return torch.tensor(values, dtype=torch.float64)


def message(**changes):
    whole = ColumnTables(
        "a",
        "server",
        0,
        torch.zeros(4, dtype=torch.int64),
        torch.tensor([2, 3]),
        shares(0.5, 0.5, 0.2, 0.3, 0.5),
        torch.tensor([CATEGORIES, ORDERED]),
        torch.tensor([2, 2]),
        torch.tensor([1, 2, 3, 4, 5, 6, 7, 8, -64, 0]),
        shares(10.0),
    )
    return replace(whole, **changes)


def published(changes):
    server = PublishPairs(None, None, {"a": 2}, 4, 10, GRID, 2, RandomStreams([b""]))
    told = {"a": message(**changes)}
    return server.put_together(told, server.codebook(told), {})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"sizes": torch.tensor([2, 9])}, "says that its columns have"),
        ({"sizes": torch.tensor([0, 3])}, "says that its columns have"),
        ({"counts": torch.zeros(5, dtype=torch.int64)}, "sent 5 counts .*expected 4"),
        (
            {"counts": torch.full((4,), 2**63 - 1)},
            r"sent 4 counts of up to .*expected .* at most 1\.229e\+05",
        ),
        ({"counts": torch.full((4,), -(2**63))}, "sent 4 counts of up to"),
        ({"shares": shares(0.5, 0.5, 0.2, 0.3)}, "sent shares of 4 states"),
        ({"shares": shares(0.5, 0.5, 0.2, 0.3, math.nan)}, "sent a column's states"),
        ({"shares": shares(0.5, 0.5, 0.2, 0.3, 0.6)}, "sent a column's states"),
        ({"shares": shares(1e308, 1e308, 0.2, 0.3, 0.5)}, "sent a column's states"),
        ({"shares": shares(0.5, 0.5, 0.7, -0.2, 0.5)}, "sent a column's states"),
        ({"shares": shares(1.0, 5e-324, 0.2, 0.3, 0.5)}, "sent a column's states"),
        ({"kinds": torch.tensor([0, 3])}, "of kinds"),
        ({"coordinates": torch.tensor([2, 5])}, "sent codes of columns with .* 10 numbers"),
        ({"coordinates": torch.tensor([2, 0])}, "sent codes of columns with .* 10 numbers"),
        ({"codes": torch.zeros(9, dtype=torch.int64)}, "sent codes of columns with .* 9 numbers"),
        ({"codes": torch.full((10,), 65)}, "sent codes of columns from 65 to 65"),
        ({"codes": torch.full((10,), -(2**63))}, "sent codes of columns from -9223372036854775808"),
        ({"codes": torch.full((10,), 64)}, r"sent codes of columns of squared norm 8192; .* 64²"),
        ({"n_records": shares(0.0)}, "says that its histograms have 0 records"),
        ({"n_records": shares(-5.0)}, "says that its histograms have -5 records"),
        ({"n_records": shares(math.nan)}, "says that its histograms have nan records"),
        ({"n_records": shares(1e300)}, "says that its histograms have"),
    ],
)
def test_what_a_party_must_not_send_is_refused_by_name(few_steps, changes, says):
    published({})
    with pytest.raises(ProtocolError, match=f"party 'a'.*{says}"):
        published(changes)


def test_counts_may_have_all_the_noise_that_there_is_room_for():
    steps = int(29 * CODE_NORM**2 / GRID.step)  # 10 records, and 19 standard deviations
    for count in (steps, -steps):
        assert published({"counts": torch.full((4,), count)})["a"].problem() is None


def codes_told(**changes):
    """What a server tells party b, which has the second column."""
    whole = StateCodes(
        "server",
        "b",
        0,
        torch.tensor([2, 3]),
        torch.tensor([1, 2]),
        torch.tensor([1, -1, 3, 4, 5, 6, 7, 8]),
    )
    return replace(whole, **changes)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"sizes": torch.tensor([2, 5])}, "codes of columns with .* states; expected 2 numbers"),
        ({"sizes": torch.tensor([5])}, "codes of columns with .* states; expected 2 numbers"),
        ({"codes": torch.tensor([1, -1, 3, 4, 5, 6, 7])}, "with .* coordinates, 7 numbers"),
        ({"coordinates": torch.tensor([2, 1])}, "with .* coordinates, 8 numbers"),
        ({"codes": torch.tensor([65, -1, 3, 4, 5, 6, 7, 8])}, "codes of columns from -1 to 65"),
        ({"codes": torch.tensor([1, -1, 3, 4, 5, 6, 50, 50])}, "squared norm 5000"),
        ({"codes": torch.tensor([1, -1, 3, 4, 5, 6, 7, 9])}, "its own columns that are not its"),
    ],
)
def test_codes_that_a_server_must_not_send_are_refused(changes, says):
    party = PairwiseParty("b", pd.DataFrame({"y": [1.0]}), None)
    party._terms = ProductTerms({"a": 1, "b": 1}, 4, GRID, Arithmetic(32, 0), [slice(0, 1)])
    party._vectors = [np.array([[3, 4], [5, 6], [7, 8]])]
    party._states, party._secret, party._noise = np.zeros((1, 1), np.int64), bytes(32), None
    with pytest.raises(ProtocolError, match=says):
        party.take_codes(codes_told(**changes))
    with pytest.raises(ProtocolError, match="party 'b' was not told yet what codes are"):
        party.masked_states(0)
    party.take_codes(codes_told())
    assert party.masked_states(0).problem() is None
