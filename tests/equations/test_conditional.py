"""Densities of columns given those before, fixed features, and the bound of a noisy context."""

import math
from copy import deepcopy

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.integrate import quad
from scipy.special import log_softmax, ndtr, softmax
from scipy.stats import norm

from vflsynth._random import RandomStreams
from vflsynth.columns import Ranks, TableTransformer
from vflsynth.methods.autoregressive.conditional import ConditionalNetwork, network_of
from vflsynth.methods.autoregressive.contexts import (
    FixedFeatures,
    bits_of_channel,
    into_ball,
    noise_for_bits,
)
from vflsynth.methods.autoregressive.layout import Layout, seen_columns
from vflsynth.methods.autoregressive.mixtures import (
    N_COMPONENTS,
    mixture_log_density,
    mixture_parameters,
)
from vflsynth.models.samplers import pick

STREAMS = RandomStreams([b"one", b"other"])


@pytest.fixture(scope="module")
def encoded():
    rng = np.random.default_rng(0)
    n = 400
    frame = pd.DataFrame(
        {
            "label": rng.choice(list("abc"), n),
            "x": rng.normal(size=n),
            "gain": np.where(rng.random(n) < 0.6, 0.0, rng.exponential(size=n)),
            "flag": rng.random(n) < 0.3,
            "age": rng.integers(0, 90, n),
        }
    )
    transformer = TableTransformer(continuous="ranks", spike_share=0.1).fit(frame)
    rows = torch.from_numpy(transformer.spread(transformer.transform(frame)))
    layout = Layout(transformer.spans_)
    return layout, rows, *layout.split(rows)


@pytest.fixture(scope="module")
def network(encoded):
    made = ConditionalNetwork(encoded[0], 3, 7, STREAMS)
    with torch.no_grad():
        for parameter in made.parameters():  # away from the start, where outputs hardly vary
            noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
            parameter.add_(0.3 * noise)
    return made


def batch(encoded, n=40):
    _, _, codes, values = encoded
    context = torch.randn(2, n, 3, generator=torch.Generator().manual_seed(2))
    return codes[:n].expand(2, -1, -1), values[:n].expand(2, -1, -1), context


def test_rows_are_split_and_joined(encoded):
    layout, rows, codes, values = encoded
    assert torch.equal(layout.join(codes, values), rows)
    assert [column.n_codes for column in layout.columns] == [3, 1, 2, 2, 1]
    assert layout.numeric == (1, 2, 4)


def test_log_likelihood_is_that_of_slow_code(encoded, network):
    codes, values, context = batch(encoded)
    found = network.log_likelihood(codes, values, context).detach()
    inputs = network.inputs(codes, values, context)
    hidden = network.hidden
    for replica in (0, 1):
        for j, column in enumerate(network.layout.columns):
            first = (network.first * network.mask)[replica].detach().numpy()
            own = slice(j * hidden, (j + 1) * hidden)
            x = inputs[replica].detach().numpy()
            h = np.maximum(
                0, x @ first[:, own] + network.first_bias[replica, 0, own].detach().numpy()
            )
            second = network.second[replica, j].detach().numpy()
            h = h + np.maximum(0, h @ second + network.second_bias[replica, j].detach().numpy())
            out = h @ network.last[replica, j].detach().numpy()
            out = out + network.last_bias[replica, j].detach().numpy()
            for i in range(len(x)):
                code = int(codes[replica, i, j])
                expected = log_softmax(out[i, : column.n_codes])[code]
                if column.value is not None and code == 0:
                    w, m, d = np.split(out[i, network.n_codes :], 3)
                    d = np.log1p(np.exp(d)) + 0.01
                    place = network.layout.numeric.index(j)
                    y = float(values[replica, i, place])
                    for k, earlier in enumerate(network.layout.numeric[:place]):
                        if codes[replica, i, earlier] == 0:
                            slope = network.slopes[replica, k, place].item()
                            y -= slope * float(values[replica, i, k])
                    expected += math.log((softmax(w) * norm.pdf(y, m, d)).sum())
                assert found[replica, j, i] == pytest.approx(expected, abs=2e-4)


def test_columns_are_drawn_from_what_their_likelihood_is_of(encoded, network):
    """What draws a column, which sees nothing of those after it, gives records as likely."""
    codes, values, context = batch(encoded)
    wanted = network.log_likelihood(codes, values, context)
    inputs = network.inputs(codes, values, context)
    for j in range(len(network.layout.columns)):
        before = network.mask[:, j * network.hidden]
        logits, mixture = network.column_outputs(inputs * before, j)
        found = logits.log_softmax(2).gather(2, codes[:, :, j : j + 1]).squeeze(2)
        if j in network.layout.numeric:
            density = mixture_log_density(mixture, values[:, :, network.layout.numeric.index(j)])
            found = found + density * (codes[:, :, j] == 0)
        torch.testing.assert_close(found, wanted[:, j], atol=1e-4, rtol=1e-4)


def test_a_column_knows_nothing_of_those_after_it(encoded, network):
    codes, values, context = batch(encoded)
    before = network.outputs(network.inputs(codes, values, context))
    for j in range(len(network.layout.columns)):
        changed, numbers = codes.clone(), values.clone()
        for later in range(j, len(network.layout.columns)):
            changed[:, :, later] = network.layout.columns[later].n_codes - 1
            if later in network.layout.numeric:
                numbers[:, :, network.layout.numeric.index(later)] += 7.0
        after = network.outputs(network.inputs(changed, numbers, context))
        assert torch.equal(before[:, j], after[:, j])
        if j + 1 < len(network.layout.columns):
            assert not torch.equal(before[:, j + 1], after[:, j + 1])


@pytest.fixture
def without_slopes(network):
    """The same network; columns that see some have no slopes."""
    made = deepcopy(network)
    torch.nn.init.zeros_(made.slopes)
    return made


@pytest.fixture
def few_at_once(encoded, network, monkeypatch):
    """The same network with weights for inputs that a column sees alone, which are all."""
    monkeypatch.setattr("vflsynth.methods.autoregressive.conditional.COLUMNS_AT_ONCE", 2)
    n = len(encoded[0].columns)
    sees = torch.full((n, n), -1)
    for i in range(n):
        sees[i, :i] = torch.arange(i)
    made = ConditionalNetwork(encoded[0], 3, 7, STREAMS, sees)
    other = ("first", "slopes")
    weights = {k: v for k, v in network.state_dict().items() if not k.startswith(other)}
    padded = torch.nn.functional.pad(network.first.detach(), (0, 0, 0, 1))
    by_column = padded.view(2, -1, n, 7).transpose(1, 2)
    weights["first"] = torch.stack([by_column[:, i, made.places[i]] for i in range(n)], 1)
    weights["first_bias"] = network.first_bias.detach().view(2, n, 1, 7)
    made.load_state_dict(weights | {"sees": sees})
    for parameter in made.parameters():
        parameter.grad = torch.zeros_like(parameter)
    return made


def test_columns_that_see_some_are_those_that_see_all_where_some_are_all(
    encoded, without_slopes, few_at_once
):
    _, _, codes, values = encoded
    codes, values = codes[:30].expand(2, -1, -1), values[:30].expand(2, -1, -1)
    context = torch.randn(2, 30, 3, generator=torch.Generator().manual_seed(2))
    shares = torch.linspace(0.01, 0.1, 30)
    network = without_slopes
    wanted = network.log_likelihood(codes, values, context)
    torch.testing.assert_close(few_at_once.log_likelihood(codes, values, context), wanted)
    slow = torch.autograd.grad(-(wanted * shares).sum(), [network.second, *network.tables.values()])
    leaf = context.clone().requires_grad_()
    found, at_context = few_at_once.descend_some(codes, values, leaf, shares)
    torch.testing.assert_close(found, wanted.sum(1).detach())
    for fast, own in zip([few_at_once.second, *few_at_once.tables.values()], slow, strict=True):
        torch.testing.assert_close(fast.grad, own)
    loss = -(few_at_once.log_likelihood(codes, values, leaf) * shares).sum()
    for name, own in few_at_once.named_parameters():
        (gradient,) = torch.autograd.grad(loss, own, retain_graph=True)
        torch.testing.assert_close(own.grad, gradient, msg=name)
    torch.testing.assert_close(at_context, torch.autograd.grad(loss, leaf)[0])


def test_columns_that_see_some_are_drawn_alike(encoded, without_slopes, few_at_once, monkeypatch):
    monkeypatch.setattr("vflsynth.methods.autoregressive.conditional._DRAWN_AT_ONCE", 40)
    n, n_columns, rng = 100, len(encoded[0].columns), torch.Generator().manual_seed(3)
    context = torch.randn(1, n, 3, generator=rng)
    uniforms = torch.rand(2, n, n_columns, generator=rng)
    one = []
    for own in (without_slopes, few_at_once):
        weights = {name: p.detach()[:1].clone() for name, p in own.named_parameters()}
        if own.sees is not None:
            weights["sees"] = own.sees
        one.append(network_of(encoded[0], weights))
    all_at_once, by_parts = (own.draw(context, uniforms) for own in one)
    for a, b in zip(all_at_once, by_parts, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


def test_a_column_sees_the_earlier_ones_that_tell_most_of_it(monkeypatch):
    """Every column follows from the one before the last and the label a third of them back."""
    monkeypatch.setattr("vflsynth.methods.autoregressive.layout.N_SEEN", 3)
    rng, n, n_columns = np.random.default_rng(0), 600, 70
    table = rng.integers(0, 4, (n, n_columns)).astype(float)
    for i in range(2, n_columns):
        kept, third = rng.random(n), i // 3
        table[kept < 0.35, i] = table[kept < 0.35, i - 2]
        table[kept > 0.65, i] = table[kept > 0.65, third]
    labels = np.array(list("abcd"))[table.astype(int)]
    frame = pd.DataFrame(labels, columns=[f"c{i}" for i in range(n_columns)])
    transformer = TableTransformer().fit(frame)
    layout = Layout(transformer.spans_)
    sees = seen_columns(layout, *layout.split(torch.from_numpy(transformer.transform(frame))))
    assert sees.shape == (n_columns, 3)
    for i in range(6, n_columns):
        assert {i - 2, i // 3} <= set(sees[i].tolist())
        assert sees[i].max() < i
    assert sees[0].tolist() == [-1, -1, -1]


def test_replicas_do_not_mix(encoded, network):
    codes, values, context = batch(encoded)
    one = network.log_likelihood(codes, values, context)
    other = context.clone()
    other[1] += 1.0
    assert torch.equal(one[0], network.log_likelihood(codes, values, other)[0])


def test_mixtures_integrate_to_one():
    mixture = torch.randn(4, 3 * N_COMPONENTS, generator=torch.Generator().manual_seed(0)).double()
    for own in mixture:
        total, _ = quad(
            lambda y, own=own: mixture_log_density(own[None], torch.tensor([y])).exp().item(),
            -20, 20, points=mixture_parameters(own)[1].tolist(), limit=400,
        )  # fmt: skip
        assert total == pytest.approx(1.0, abs=1e-6)


def test_drawn_records_have_the_likelihood_s_distribution(encoded, network):
    """Of one context: shares of codes, and of a number that follows them."""
    layout, n = encoded[0], 40_000
    rng = np.random.default_rng(0)
    one = _one(network)
    context = torch.ones(1, n, 3)
    uniforms = torch.from_numpy(rng.random((2, n, len(layout.columns)))).float()
    codes, values, _ = one.draw(context, uniforms)
    found = one.log_likelihood(codes[None, :1], values[None, :1], context[:, :1])
    logits, _ = one.column_outputs(one.inputs(codes[None] * 0, values[None] * 0, context) * 0, 0)
    assert found.shape == (1, len(layout.columns), 1)
    inputs = torch.zeros(1, 1, one.first.shape[1])
    inputs[..., -3:] = 1.0
    shares = one.column_outputs(inputs, 0)[0][0, 0].softmax(-1).detach().numpy()[:3]
    drawn = np.bincount(codes[:, 0].numpy(), minlength=3) / n
    np.testing.assert_allclose(drawn, shares, atol=4 * 0.5 / math.sqrt(n))
    # The second column, a number, given the first: its probability transform is uniform.
    for label in range(3):
        chosen = codes[:, 0] == label
        inputs = one.inputs(codes[None, chosen][:, :1], values[None, chosen][:, :1], context[:, :1])
        inputs = torch.where(one.mask[:, one.hidden] > 0, inputs, 0.0)
        weights, means, deviations = mixture_parameters(one.column_outputs(inputs, 1)[1][0, 0])
        y = values[chosen, 0].double().numpy()[:, None]
        terms = weights.exp().detach().numpy() * norm.cdf(
            y, means.detach().numpy(), deviations.detach().numpy()
        )
        transformed = np.sort(terms.sum(1))
        gap = np.abs(transformed - (np.arange(len(y)) + 0.5) / len(y)).max()
        assert gap < 1.95 / math.sqrt(len(y))  # Kolmogorov-Smirnov, 0.1 %
    assert torch.isfinite(logits).all()


def test_the_calibrated_end_gives_codes_their_shares(encoded, network):
    layout, n = encoded[0], 20_000
    rng = np.random.default_rng(3)
    one = _one(network)
    uniforms = torch.from_numpy(rng.random((2, n, len(layout.columns)))).float()
    context = torch.from_numpy(rng.normal(size=(1, n, 3))).float()
    wanted = [
        torch.tensor([0.2, 0.7, 0.1]),
        torch.ones(1),
        torch.tensor([0.9, 0.1]),
        torch.tensor([1.0, 0.0]) * 0.4 + torch.tensor([0.0, 0.6]),
        torch.ones(1),
    ]
    one.draw(context, uniforms, wanted)
    codes, _, _ = one.draw(context, uniforms)
    for j, shares in enumerate(wanted):
        drawn = np.bincount(codes[:, j].numpy(), minlength=len(shares)) / n
        np.testing.assert_allclose(drawn, shares, atol=0.02)


def _one(network):
    made = ConditionalNetwork(network.layout, 3, network.hidden, RandomStreams([b"x"]))
    made.load_state_dict({k: v[:1] for k, v in network.state_dict().items()})
    return made


def test_nothing_beyond_the_last_possible_state_is_picked():
    shares = torch.tensor([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0]])
    assert pick(shares, torch.tensor([0.9999999, 1.0])).tolist() == [1, 1]
    assert pick(shares, torch.tensor([0.0, 0.0])).tolist() == [0, 1]


def test_features_are_functions_of_a_record_alone(encoded):
    layout, _, codes, values = encoded
    features = FixedFeatures(layout, 50, STREAMS)
    all_at_once = features(codes.expand(2, -1, -1), values.expand(2, -1, -1))
    alone = features(codes[7:8].expand(2, -1, -1), values[7:8].expand(2, -1, -1))
    torch.testing.assert_close(all_at_once[:, 7:8], alone)
    assert all_at_once.shape == (2, len(codes), 50)
    assert 0.5 < all_at_once.std() < 3.0
    other = FixedFeatures(layout, 50, RandomStreams([b"secret"]))
    assert not torch.equal(other.codes, features.codes[:1])


# -- the bound ---------------------------------------------------------------------------------


def information(inputs, shares, noise_std):
    """I(m; m + noise) in bits, of a discrete m, by numeric integration."""

    def density(c):
        return float((shares * norm.pdf(c, inputs, noise_std)).sum())

    def term(c):
        p = density(c)
        return -p * math.log2(p) if p > 0 else 0.0

    reach = 1 + 10 * noise_std
    entropy, _ = quad(term, -reach, reach, limit=500, points=np.unique(inputs)[:50])
    return entropy - 0.5 * math.log2(2 * math.pi * math.e * noise_std**2)


@pytest.mark.parametrize("noise_std", [0.2, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("n_points", [2, 3, 41])
def test_no_distribution_of_records_gets_more_bits_through(noise_std, n_points):
    """Two opposite records, which are the most that one number can tell at high noise; and more."""
    inputs = np.linspace(-1, 1, n_points)
    for shares in (np.full(n_points, 1 / n_points), np.eye(n_points)[[0, -1]].mean(0)):
        told = information(inputs, shares, noise_std)
        assert 0 < told <= bits_of_channel(1, noise_std) + 1e-9


def test_the_bound_would_not_hold_for_numbers_beyond_one():
    inputs = np.array([-3.0, 3.0])
    assert information(inputs, np.full(2, 0.5), 1.0) > bits_of_channel(1, 1.0)


def information_of_two(inputs, noise_std):
    """I(m; m + noise) in bits, of as many equally probable pairs of numbers, on a fine grid."""
    reach = np.abs(inputs).max() + 8 * noise_std
    axis = np.linspace(-reach, reach, 601)
    x, y = np.meshgrid(axis, axis)
    density = np.zeros_like(x)
    for a, b in inputs:
        density += norm.pdf(x, a, noise_std) * norm.pdf(y, b, noise_std) / len(inputs)
    logs = np.log2(np.where(density > 0, density, 1.0))
    entropy = -(density * logs).sum() * (axis[1] - axis[0]) ** 2
    return entropy - math.log2(2 * math.pi * math.e * noise_std**2)


def ring(n_points, radius):
    angles = 2 * np.pi * np.arange(n_points) / n_points
    return radius * np.stack([np.cos(angles), np.sin(angles)], 1)


@pytest.mark.parametrize(
    "noise_std", [0.5, *(pytest.param(std, marks=pytest.mark.slow) for std in (0.2, 1.0, 3.0))]
)
def test_no_records_in_the_ball_get_more_bits_through_than_the_bound(noise_std):
    """Rings at its edge, rings in rings, one number that takes the whole power, and the cube."""
    edge = math.sqrt(2.0)
    rings = [np.zeros((1, 2)), *(ring(round(9 * r) + 1, r * edge) for r in (0.35, 0.7, 1.0))]
    corners = np.array([(a, b) for a in (-1.0, 1.0) for b in (-1.0, 1.0)])
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, 9)] * 2), -1).reshape(-1, 2)
    spread = {
        "opposite": ring(2, edge),
        "edge": ring(24, edge),
        "disc": np.concatenate(rings),
        "corners": corners,
        "cube": grid,
    }
    told = {name: information_of_two(inputs, noise_std) for name, inputs in spread.items()}
    assert all(0 < bits <= bits_of_channel(2, noise_std) + 1e-6 for bits in told.values()), told
    assert max(told["edge"], told["disc"]) > told["cube"]  # what the ball is for


def test_the_bound_would_not_hold_for_records_out_of_the_ball():
    far = ring(24, 3.0 * math.sqrt(2.0))
    assert information_of_two(far, 1.0) > bits_of_channel(2, 1.0)


@pytest.mark.parametrize("context_dim", [1, 2, 6, 64])
@pytest.mark.parametrize("scale", [0.0, 1e-20, 1.0, 1e3, 1e15, 3e38])
def test_contexts_are_in_the_ball_whatever_they_are_made_of(context_dim, scale):
    """In exact arithmetic: rounding must not let a context out of what the bound is about."""
    drawn = torch.randn(5000, context_dim, generator=torch.Generator().manual_seed(0))
    found = into_ball(drawn.clamp(-1, 1) * scale).double()
    assert torch.isfinite(found).all()
    assert (found.square().sum(1) <= context_dim).all()


def test_contexts_use_the_whole_ball():
    total = torch.randn(5000, 6, generator=torch.Generator().manual_seed(0))
    assert into_ball(100.0 * total).square().sum(1).mean() > 0.99 * 6
    torch.testing.assert_close(into_ball(1e-3 * total), 1e-3 * total, rtol=1e-4, atol=0.0)


@pytest.mark.parametrize("bits", [0.01, 4.0, 8.0, 53.0, 128.0])
@pytest.mark.parametrize("context_dim", [1, 6, 64])
def test_noise_for_bits_undoes_the_bound(context_dim, bits):
    assert bits_of_channel(context_dim, noise_for_bits(context_dim, bits)) == pytest.approx(bits)
    assert bits_of_channel(16, 1.0) == 8.0


# -- encoding ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values",
    [
        np.random.default_rng(0).normal(size=3000),
        np.random.default_rng(0).integers(18, 90, 3000),
        np.round(np.random.default_rng(0).lognormal(8, 1, 3000), -1),
        np.r_[np.full(2000, 38.0), np.random.default_rng(0).normal(40, 9, 1000).round(2)],
    ],
    ids=["continuous", "ages", "multiples of ten", "heaped"],
)
def test_normal_scores_decode_to_the_column_s_distribution(values):
    ordered = np.sort(np.asarray(values, dtype=float))
    ranks = Ranks().fit(ordered)
    drawn = np.sort(ranks.unscale(np.random.default_rng(1).normal(size=50_000)))
    points = np.unique(ordered)
    shares = [np.searchsorted(own, points, side="right") / len(own) for own in (drawn, ordered)]
    assert np.abs(shares[0] - shares[1]).max() < 0.012
    spread = ranks.spread(ranks.scale(ordered))
    np.testing.assert_allclose(ranks.unscale(spread), ordered, rtol=1e-9, atol=1e-6)
    uniform = np.sort(ndtr(spread))
    assert np.abs(uniform - (np.arange(len(ordered)) + 0.5) / len(ordered)).max() < 0.002


def test_repeated_values_are_the_only_ones_that_are_decoded():
    values = np.sort(np.random.default_rng(0).choice([10.0, 20.0, 35.0, 40.0, 95.0], 500))
    drawn = Ranks().fit(values).unscale(np.random.default_rng(1).normal(size=5000, scale=3))
    assert set(drawn) == set(values)
