"""Ghost norms and clipped sums against one record at a time, torch.func and Opacus' definition."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from vflsynth._random import RandomStreams
from vflsynth.exceptions import PrivacyParameterError
from vflsynth.mechanisms.noisy_descent import layer_traces
from vflsynth.methods.gan.critics import penalty_traces
from vflsynth.networks import MLP
from vflsynth.privacy.dpsgd import (
    LayerTrace,
    clip_factors,
    clipped_gradient_sum,
    gradient_grid,
    joint_sensitivity,
    noisy_mean,
    per_example_norms,
    rounded_gradient_sum,
)
from vflsynth.privacy.releases import Grid


def network(dims, replicas, seed=0, bias=True):
    rng = torch.Generator().manual_seed(seed)
    weights = [
        torch.randn(replicas, a, b, generator=rng, dtype=torch.float64)
        for a, b in zip(dims, dims[1:])
    ]
    biases = [
        torch.randn(replicas, 1, b, generator=rng, dtype=torch.float64) if bias else None
        for b in dims[1:]
    ]
    return weights, biases


def batch(replicas, size, dim, seed=1, scale=1.0):
    rng = torch.Generator().manual_seed(seed)
    return scale * torch.randn(replicas, size, dim, generator=rng, dtype=torch.float64)


def mlp_of(weights, biases, *, activate_last=False):
    """The package's network with these weights: what is clipped in training."""
    streams = RandomStreams([bytes([r]) * 32 for r in range(len(weights[0]))])
    dims = [weights[0].shape[1], *(weight.shape[2] for weight in weights)]
    made = MLP(
        dims, bias=biases[0] is not None, activate_last=activate_last, streams=streams, name="n"
    ).to(weights[0].dtype)
    for (weight, bias), w, b in zip(made.layers, weights, biases, strict=True):
        weight.data = w.detach()
        if bias is not None:
            bias.data = b.detach()
    return made


@torch.no_grad()
def traces_of(weights, biases, inputs, *, activate_last=False):
    made = mlp_of(weights, biases, activate_last=activate_last)
    trace = made.trace(inputs)
    return layer_traces(made, trace, made.cotangents(trace, torch.ones_like(trace[-1])))


def score(parameters, record, n_layers, activate_last):
    """One record, one replica, ordinary torch: the slow obvious code."""
    hidden = record
    for i in range(n_layers):
        hidden = hidden @ parameters[f"w{i}"]
        if f"b{i}" in parameters:
            hidden = hidden + parameters[f"b{i}"]
        if i < n_layers - 1 or activate_last:
            hidden = F.leaky_relu(hidden, 0.2)
    return hidden.sum()


def parameters_of(weights, biases, replica):
    named = {f"w{i}": w[replica].clone() for i, w in enumerate(weights)}
    return named | {f"b{i}": b[replica, 0].clone() for i, b in enumerate(biases) if b is not None}


def loop_of_clipped_gradients(weights, biases, inputs, bound, activate_last):
    """Sum over records of g * min(1, C / |g|), one record and one replica at a time."""
    norms = torch.zeros(inputs.shape[:2], dtype=inputs.dtype)
    sums = [
        {name: torch.zeros_like(v) for name, v in parameters_of(weights, biases, r).items()}
        for r in range(inputs.shape[0])
    ]
    for replica in range(inputs.shape[0]):
        for k in range(inputs.shape[1]):
            named = parameters_of(weights, biases, replica)
            for value in named.values():
                value.requires_grad_()
            record_score = score(named, inputs[replica, k], len(weights), activate_last)
            gradients = torch.autograd.grad(record_score, list(named.values()))
            norm = math.sqrt(sum(g.square().sum().item() for g in gradients))
            norms[replica, k] = norm
            for name, g in zip(named, gradients):
                sums[replica][name] += g * min(1.0, bound / norm if norm else 1.0)
    return norms, sums


@settings(max_examples=25, deadline=None)
@given(
    dims=st.lists(st.integers(1, 6), min_size=2, max_size=4),
    replicas=st.integers(1, 3),
    size=st.integers(0, 5),
    bound=st.floats(0.05, 50.0),
    bias=st.booleans(),
    activate_last=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_clipped_sum_equals_one_record_at_a_time(
    dims, replicas, size, bound, bias, activate_last, seed
):
    weights, biases = network(dims, replicas, seed, bias)
    inputs = batch(replicas, size, dims[0], seed)
    traces = traces_of(weights, biases, inputs, activate_last=activate_last)
    norms = per_example_norms(traces)
    # Clipping is to slightly less than C, which leaves room for rounding errors.
    expected_norms, expected = loop_of_clipped_gradients(
        weights, biases, inputs, bound / (1.0 + 1e-5), activate_last
    )
    torch.testing.assert_close(norms, expected_norms)
    sums = clipped_gradient_sum(traces, clip_factors(norms, bound))
    for i, (weight, bias_sum) in enumerate(sums):
        for replica in range(replicas):
            torch.testing.assert_close(weight[replica], expected[replica][f"w{i}"])
            if bias_sum is not None:
                torch.testing.assert_close(bias_sum[replica, 0], expected[replica][f"b{i}"])


@torch.no_grad()
def test_networks_chain_like_one_network():
    """A local first part under a shared discriminator: norms over both are those of the whole."""
    weights, biases = network([4, 6, 5, 1], 2)
    inputs = batch(2, 7, 4)
    lower = mlp_of(weights[:1], biases[:1], activate_last=True)
    upper = mlp_of(weights[1:], biases[1:])
    below = lower.trace(inputs)
    above = upper.trace(below[-1])
    slopes = upper.cotangents(above, torch.ones_like(above[-1]))
    lower_slopes = lower.cotangents(below, upper.input_gradient(slopes))
    traces = [*layer_traces(lower, below, lower_slopes), *layer_traces(upper, above, slopes)]
    whole = traces_of(weights, biases, inputs)
    torch.testing.assert_close(per_example_norms(traces), per_example_norms(whole))


@settings(max_examples=25, deadline=None)
@given(size=st.integers(0, 4), bias=st.booleans(), weight=st.floats(0.1, 20.0))
def test_norms_of_several_terms_equal_torch_func(size, bias, weight):
    """A pair's whole loss, with the double backward of its penalty, one pair at a time."""
    weights, biases = network([3, 5, 4, 1], 1, bias=bias)
    real, fake, mixed = (batch(1, size, 3, seed) for seed in (1, 2, 3))
    network_ = mlp_of(weights, biases)

    def loss(parameters, x, z, between):
        def value(record):
            return score(parameters, record, 3, False)

        slope = torch.func.grad(value)(between)
        return value(z) - value(x) + weight * (slope.norm() - 1.0).square()

    with torch.no_grad():
        terms = []
        for inputs, sign in ((real, -1.0), (fake, 1.0)):
            trace = network_.trace(inputs)
            slopes = network_.cotangents(trace, torch.full_like(trace[-1], sign))
            terms.append(layer_traces(network_, trace, slopes))
        trace = network_.trace(mixed)
        slopes = network_.cotangents(trace, torch.ones_like(trace[-1]))
        terms.append(penalty_traces(network_, trace, slopes, weight))
        norms = per_example_norms(*terms)
    parameters = parameters_of(weights, biases, 0)
    expected = torch.zeros(size, dtype=torch.float64)
    for k in range(size):
        found = torch.func.grad(loss)(parameters, real[0, k], fake[0, k], mixed[0, k])
        expected[k] = math.sqrt(sum(g.square().sum().item() for g in found.values()))
    torch.testing.assert_close(norms[0], expected)


def as_vector(sums):
    return torch.cat([part[0].flatten() for pair in sums for part in pair if part is not None])


@settings(deadline=None)
@given(
    record=st.lists(st.floats(-(2.0**60), 2.0**60, width=32), min_size=3, max_size=3),
    bound=st.sampled_from([1e-3, 1.0, 100.0]),
    noise=st.sampled_from([1e-6, 0.02, 0.7, 1.0, 50.0, 1e4]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_one_record_moves_the_sum_by_at_most_c(record, bound, noise, dtype):
    """Neighbouring tables: with and without an arbitrary, also adversarial, record, to the bit."""
    weights, biases = network([3, 8, 1], 1)
    weights, biases = [w.to(dtype) for w in weights], [b.to(dtype) for b in biases]
    others = batch(1, 4, 3).to(dtype)
    tables = [others, torch.cat([others, torch.tensor(record, dtype=dtype).view(1, 1, 3)], 1)]
    grid, vectors = gradient_grid(noise * bound, bound), []
    for table in tables:
        sums = rounded_gradient_sum([traces_of(weights, biases, table)], bound, grid)
        vectors.append(as_vector(sums).tolist())
    moved = sum((one - other) ** 2 for one, other in zip(*vectors))
    assert moved <= int(bound / grid.step) ** 2


def terms_of_pairs(size, seed, scale=1.0, weight=10.0):
    """A pair's score and penalty, which partly cancel; two replicas."""
    weights, biases = network([3, 5, 4, 1], 2, seed)
    made = mlp_of(weights, biases)
    with torch.no_grad():
        trace = made.trace(batch(2, size, 3, seed, scale))
        judged = layer_traces(made, trace, made.cotangents(trace, -torch.ones_like(trace[-1])))
        trace = made.trace(batch(2, size, 3, seed + 1, scale))
        slopes = made.cotangents(trace, torch.ones_like(trace[-1]))
        return [judged, penalty_traces(made, trace, slopes, weight)]


def rows_of(terms, rows):
    return [
        [LayerTrace(t.inputs[:, rows], t.output_gradients[:, rows], t.has_bias) for t in term]
        for term in terms
    ]


@settings(max_examples=25, deadline=None)
@given(
    n_terms=st.integers(1, 2),
    size=st.integers(1, 6),
    seed=st.integers(0, 1000),
    noise=st.sampled_from([1e-9, 0.02, 1.0, 1e3]),
    scale=st.sampled_from([1e-3, 1.0, 1e6]),
)
def test_rounded_sums_add_up_exactly_and_no_record_is_longer_than_c(
    n_terms, size, seed, noise, scale
):
    bound = 0.7
    terms, grid = terms_of_pairs(size, seed, scale)[:n_terms], gradient_grid(noise * bound, bound)
    together = as_vector(rounded_gradient_sum(terms, bound, grid)).tolist()
    single = []
    for k in range(size):
        own = rounded_gradient_sum(rows_of(terms, slice(k, k + 1)), bound, grid)
        single.append(as_vector(own).tolist())
        assert sum(value**2 for value in single[-1]) <= int(bound / grid.step) ** 2
    assert together == [sum(values) for values in zip(*single)]


@pytest.mark.parametrize("n_terms", [1, 2])
@pytest.mark.parametrize("bound", [0.01, 1.0, 1e6])
def test_rounded_sums_are_close_to_clipped_sums(n_terms, bound):
    """Nothing is left out, and roundings are small against the bound."""
    terms, grid = terms_of_pairs(40, 3)[:n_terms], gradient_grid(bound, bound)
    rounded = as_vector(rounded_gradient_sum(terms, bound, grid)).double() * grid.step
    factors = clip_factors(per_example_norms(*terms), bound * (1.0 if n_terms == 1 else 1 - 2**-10))
    exact = torch.zeros_like(rounded)
    for term in terms:
        parts = clipped_gradient_sum(term, factors)
        parts = [(w, torch.zeros_like(w[:, :1]) if b is None else b) for w, b in parts]
        exact += as_vector(parts)
    assert (rounded - exact).abs().max() < 40 * 2e-5 * bound


def test_whole_numbers_of_a_large_batch_are_exact():
    """Sums beyond 2**53, where doubles would round: in parts, which integers add up."""
    inputs = torch.full((1, 5_000, 3), 0.57735, dtype=torch.float64)
    trace = LayerTrace(inputs, torch.ones(1, 5_000, 1, dtype=torch.float64), False)
    grid = gradient_grid(1e-3, 1.0)
    ((together, bias),) = rounded_gradient_sum([[trace]], 1.0, grid)
    ((one, _),) = rounded_gradient_sum(rows_of([[trace]], slice(0, 1)), 1.0, grid)
    assert bias is None
    assert together.tolist() == [[[5_000 * value] for (value,) in one[0].tolist()]]
    assert int(together.max()) > 2**49


def test_terms_that_cancel_beyond_all_measure_are_left_out():
    """What rounding would decide: the sum is short, its terms are a million times longer."""
    one = LayerTrace(torch.ones(1, 1, 3).double(), torch.full((1, 1, 2), 1e6).double(), False)
    other = LayerTrace(one.inputs, -one.output_gradients + 1e-3, False)
    ((total, _),) = rounded_gradient_sum([[one], [other]], 1.0, gradient_grid(1.0, 1.0))
    assert not total.any()


def test_there_is_no_grid_with_next_to_no_noise():
    with pytest.raises(PrivacyParameterError, match="noise_multiplier"):
        gradient_grid(1e-13, 1.0)


def test_no_rounding_error_exceeds_the_bound():
    rng = torch.Generator().manual_seed(0)
    inputs, outputs = (torch.randn(2_000, 1, dim, generator=rng) for dim in (5, 7))
    trace = LayerTrace(inputs, 10.0 * outputs, True)  # replicas of one record each
    ((weight, bias),) = clipped_gradient_sum([trace], clip_factors(per_example_norms([trace]), 0.7))
    flat = torch.cat([weight.double().flatten(1), bias.double().flatten(1)], dim=1)
    assert (flat.norm(dim=1) <= 0.7).all()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e200])
def test_a_record_that_overflows_contributes_nothing(bad):
    weights, biases = network([3, 4, 1], 1)
    clean = batch(1, 4, 3)
    dirty = clean.clone()
    dirty[0, 2] = bad
    kept = clean[:, [0, 1, 3]]
    vectors = []
    for table in (dirty, kept):
        traces = traces_of(weights, biases, table)
        factors = clip_factors(per_example_norms(traces), 1.0)
        vectors.append(as_vector(clipped_gradient_sum(traces, factors)))
    if math.isfinite(bad):  # finite input, norm overflows to infinity
        assert per_example_norms(traces_of(weights, biases, dirty))[0, 2].isinf()
    torch.testing.assert_close(*vectors)


def test_joint_sensitivity_of_blocks():
    assert joint_sensitivity([3.0, 4.0]) == 5.0
    assert joint_sensitivity([2.0] * 3) == pytest.approx(2.0 * math.sqrt(3.0))


def test_noisy_mean():
    """std = σ S / expected batch size in every coordinate; the signal is divided as well."""
    rng = torch.Generator().manual_seed(0)
    signal = torch.full((1, 400, 500), 64.0)
    grid = Grid.of(6.0)
    signal = (signal / grid.step).long()
    noisy = noisy_mean(signal, grid, expected_batch_size=128.0, rng=rng)
    assert noisy.mean().item() == pytest.approx(0.5, abs=1e-3)
    assert noisy.std().item() == pytest.approx(3.0 * 2.0 / 128.0, rel=0.01)
    assert noisy[0].mean(0).std().item() == pytest.approx(6.0 / 128.0 / 20.0, rel=0.2)


@pytest.mark.parametrize("bound", [0.0, -1.0, math.nan])
def test_clipping_bound_must_be_positive(bound):
    with pytest.raises(PrivacyParameterError, match="max_grad_norm"):
        clip_factors(torch.ones(1, 1), bound)


def test_a_record_whose_gradient_is_infinite_adds_nothing_to_a_sum():
    gradients = torch.tensor([[[1.0, 2.0], [torch.inf, 3.0]]])
    trace = LayerTrace(torch.ones(1, 2, 3), gradients, True)
    ((weight, bias),) = clipped_gradient_sum([trace], torch.tensor([[1.0, 0.0]]))
    torch.testing.assert_close(weight, torch.tensor([[[1.0, 2.0]] * 3]))
    torch.testing.assert_close(bias, torch.tensor([[[1.0, 2.0]]]))
