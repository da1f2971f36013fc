"""Marvell: the noise problem and its solution, against reference values and a general solver."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import LinearConstraint, minimize
from scipy.stats import norm

from vflsynth._random import HiddenStreams
from vflsynth.exceptions import TrainingDivergedError
from vflsynth.splitdefense import Marvell
from vflsynth.splitdefense.leakage.base import auc, guess_auc
from vflsynth.splitdefense.protections.gradients import Context, Draws
from vflsynth.splitdefense.protections.marvell import (
    auc_bound,
    auc_gaussian,
    solve_noise_variances,
)

# (u, v, d, g, p, P) -> (λ1 of class 0, λ2 of 0, λ1 of 1, λ2 of 1), sum KL
REFERENCE = [
    ((1, 1, 1, 1, 0.5, 1), (1, 0, 1, 0), 0.5),
    ((0, 0, 1, 1, 0.3, 4), (3.946161502, 0, 4.125623162, 0), 0.2488883396),
    ((0, 0, 8, 2, 0.3, 8), (7.892323004, 0, 8.251246323, 0), 0.2488883396),
    ((0.1, 0.2, 1, 1, 0.4, 4), (4.004229098, 0, 3.993656353, 0), 0.241285577),
    ((0.05, 0.1, 16, 1, 0.4, 4), (3.538833231, 0.049547301, 3.576935881, 0), 0.2757523466),
    ((0.1, 0.05, 16, 1, 0.4, 4), (3.646251064, 0, 3.784792238, 0.04972207765), 0.2641828631),
    ((0.02, 0.02, 64, 1, 0.1, 2), (1.965529389, 0, 2.310235503, 0), 0.4792333893),
    ((0.001, 0.5, 32, 1, 0.2, 4), (0.2652735591, 0.152733111, 0, 0), 27.26069386),
    ((0.01, 0.011, 4, 1, 0.02, 1e-4), (0, 0, 0.005, 0), 81.37613636),
]
TINY = (
    3.229033590534426e-15,
    3.0662190349955726e-15,
    128,
    5.015613264502392e-10,
    0.253936767578125,
    2328365.0213796967,
)

problems = st.tuples(
    st.floats(0, 10),  # u
    st.floats(0, 10),  # v
    st.sampled_from([1, 2, 4, 16, 128, 1600]),
    st.floats(1e-3, 10),  # g
    st.floats(0.02, 0.98),
    st.floats(1e-3, 100),
)


def variances(problem):
    found = solve_noise_variances(*problem)
    return np.array(
        [
            found.along_negative,
            found.across_negative,
            found.along_positive,
            found.across_positive,
        ]
    )


def sum_kl(variances, problem):
    """KL(P1||P0) + KL(P0||P1) of the perturbed Gaussians, from their definition."""
    u, v, d, g, _, _ = problem
    along_0, across_0, along_1, across_1 = variances
    a0, a1, b0, b1 = along_0 + u, along_1 + v, across_0 + u, across_1 + v

    def kl(mean2, a, b, a_other, b_other):
        first = a / a_other - 1 + mean2 / a_other + math.log(a_other / a)
        return 0.5 * (first + (d - 1) * (b / b_other - 1 + math.log(b_other / b)))

    return kl(g, a1, b1, a0, b0) + kl(g, a0, b0, a1, b1)


@pytest.mark.parametrize(("problem", "expected", "kl"), REFERENCE)
def test_reference_values(problem, expected, kl):
    assert variances(problem) == pytest.approx(expected, abs=1e-8)
    assert solve_noise_variances(*problem).sum_kl == pytest.approx(kl, rel=1e-8)


def test_reference_value_at_tiny_scale():
    assert variances(TINY) == pytest.approx([2328365.021, 0, 2328365.021, 0], abs=1e-3)
    assert solve_noise_variances(*TINY).sum_kl == pytest.approx(0, abs=1e-12)


@given(problems)
def test_all_power_is_used(problem):
    _, _, d, _, p, power = problem
    along_0, across_0, along_1, across_1 = variances(problem)
    used = p * (along_1 + (d - 1) * across_1) + (1 - p) * (along_0 + (d - 1) * across_0)
    assert used == pytest.approx(power, rel=1e-9)
    assert min(along_0, across_0, along_1, across_1) >= 0
    tolerance = 1e-9 * (1 + power)
    assert along_0 >= across_0 - tolerance
    assert along_1 >= across_1 - tolerance


@given(problems)
def test_swapping_the_classes_swaps_the_noise(problem):
    u, v, d, g, p, power = problem
    swapped = variances((v, u, d, g, 1 - p, power))
    assert variances(problem) == pytest.approx(swapped[[2, 3, 0, 1]], rel=1e-6, abs=1e-9)


@given(problems, st.floats(1e-8, 1e8))
def test_scale_of_the_gradients_does_not_matter(problem, scale):
    u, v, d, g, p, power = problem
    scaled = (scale * u, scale * v, d, scale * g, p, scale * power)
    expected = scale * variances(problem)
    assert variances(scaled) == pytest.approx(expected, rel=1e-6, abs=1e-9 * scale * (1 + power))


@given(problems, st.floats(1.01, 10))
def test_more_power_leaves_less_information(problem, factor):
    more = (*problem[:5], problem[5] * factor)
    less_leak, leak = solve_noise_variances(*more).sum_kl, solve_noise_variances(*problem).sum_kl
    assert less_leak <= leak * (1 + 1e-9)


@given(problems)
def test_sum_kl_is_that_of_the_gaussians(problem):
    u, v, *_ = problem
    if min(u, v) < 1e-6:
        return  # the definition divides by the variances across
    expected = sum_kl(variances(problem), problem)
    assert solve_noise_variances(*problem).sum_kl == pytest.approx(expected, rel=1e-7, abs=1e-9)


def slsqp(problem, rng, starts=3):
    """The four-variable problem (15) by a general solver, best of several starts."""
    _, _, d, _, p, power = problem
    weights = np.array([1 - p, (1 - p) * (d - 1), p, p * (d - 1)])
    constraints = [
        LinearConstraint(weights, power, power),
        LinearConstraint([[1, -1, 0, 0], [0, 0, 1, -1]], 0, np.inf),
    ]
    best = math.inf
    for _ in range(starts):
        share = rng.dirichlet([1, 1])
        start = np.array([share[0] * power / (1 - p), 0, share[1] * power / p, 0]) / 2
        start += power / (2 * max(1, d))
        found = minimize(
            lambda x: sum_kl(np.maximum(x, 0), problem),
            start,
            bounds=[(0, None)] * 4,
            constraints=constraints,
            method="SLSQP",
            options={"maxiter": 300, "ftol": 1e-12},
        )
        feasible = np.maximum(found.x, 0)
        if abs(weights @ feasible - power) < 1e-6 * power:
            best = min(best, sum_kl(feasible, problem))
    return best


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::UserWarning")
@pytest.mark.parametrize("n", [40, pytest.param(400, marks=pytest.mark.slow)])
def test_never_worse_than_a_general_solver(n):
    rng = np.random.default_rng(0)
    solved = 0
    for _ in range(n):
        d = int(rng.choice([1, 2, 4, 16, 128]))
        g = 10 ** rng.uniform(-3, 1)
        u, v = g * 10 ** rng.uniform(-2.5, 0.5, size=2)
        problem = (u, v, d, g, rng.uniform(0.02, 0.98), g * 10 ** rng.uniform(-1.5, 1.5))
        general = slsqp(problem, rng)
        solved += math.isfinite(general)
        assert solve_noise_variances(*problem).sum_kl <= general * (1 + 1e-5) + 1e-9, problem
    assert solved > n / 2, "the comparison compares with nothing"


@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0, 4.0, 10.0])
def test_without_spread_half_the_records_positive(scale):
    """u = v = 0, p = 1/2: sum KL is 1/s exactly."""
    assert solve_noise_variances(0, 0, 5, 3.0, 0.5, 3.0 * scale).sum_kl == pytest.approx(1 / scale)


def test_no_power_no_noise():
    found = solve_noise_variances(0.1, 0.2, 4, 1.0, 0.3, 0.0)
    assert (found.along_negative, found.across_positive) == (0.0, 0.0)
    assert math.isinf(solve_noise_variances(0.0, 0.2, 4, 1.0, 0.3, 0.0).sum_kl)


def test_bound_and_gaussian_estimate():
    assert auc_bound(0.5) == pytest.approx(0.7911, abs=5e-5)
    assert auc_bound(4.0) == auc_bound(math.inf) == 1.0
    assert auc_gaussian(0.5) == pytest.approx(norm.cdf(0.5), abs=1e-12)
    for kl in np.linspace(0.01, 3.9, 50):
        assert auc_gaussian(kl) <= auc_bound(kl)


# -- the protection ------------------------------------------------------------------------------


def protect(gradients, labels, power_scale=4.0, step=0, memory=None):
    streams = HiddenStreams([b"marvell"] * len(gradients))
    context = Context(labels, 2, Draws(streams, step), {} if memory is None else memory)
    return Marvell(power_scale).protect(gradients, context), context


def two_classes(n=40_000, p=0.4, dim=1, spread=0.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.rand(1, n, generator=generator) < p).long()
    gradients = spread * torch.randn(1, n, dim, generator=generator)
    gradients[..., 0] += labels - p
    return gradients * 1e-4, labels


@pytest.mark.parametrize("power_scale", [1.0, 4.0, 16.0])
def test_what_a_scalar_cut_leaks_is_known(power_scale):
    """GAFM's figures for Marvell follow from s = 1: Phi(1/2) = .691, total variation .383."""
    gradients, labels = two_classes(p=0.5)
    sent, _ = protect(gradients, labels, power_scale)
    positive = labels == 1
    middle = 0.5 * (sent[positive].mean() + sent[~positive].mean())
    hard = guess_auc(sent[..., 0] >= middle, positive)
    soft = auc(sent[..., 0], positive)
    assert float(hard) == pytest.approx(norm.cdf(0.5 / power_scale**0.5), abs=0.01)
    assert float(soft) == pytest.approx(norm.cdf((2 * power_scale) ** -0.5), abs=0.01)


@pytest.mark.parametrize("dim", [1, 4, 32])
@pytest.mark.parametrize("power_scale", [0.25, 1.0, 4.0])
def test_no_attack_beats_the_bound(dim, power_scale):
    """Theorem 1 on Gaussians; the exact likelihood ratio is the strongest attack there is."""
    gradients, labels = two_classes(dim=dim, spread=0.3, p=0.3)
    sent, context = protect(gradients, labels, power_scale)
    positive = (labels == 1)[0]
    first, second = (sent[0][m].double() for m in (positive, ~positive))

    def log_density(rows, sample):
        a, b = sample[:, 0].var(), sample[:, 1:].var() if dim > 1 else torch.tensor(1.0)
        across = rows[:, 1:].square().sum(1) / b + (dim - 1) * b.log()
        return -0.5 * ((rows[:, 0] - sample[:, 0].mean()) ** 2 / a + a.log() + across)

    rows = sent[0].double()
    ratio = log_density(rows, first) - log_density(rows, second)
    found = float(auc(ratio.unsqueeze(0), positive.unsqueeze(0)))
    assert found <= float(context.log["auc_bound"]) + 0.01
    assert found > 0.52, "an attack that finds nothing proves nothing"


def test_noise_is_unbiased_and_has_the_power():
    gradients, labels = two_classes(n=2000, dim=16, spread=0.5)
    sent = torch.stack([protect(gradients, labels, step=step)[0] for step in range(400)])
    noise = (sent - gradients).double()
    positive = labels[0] == 1
    distance = (gradients[0][positive].mean(0) - gradients[0][~positive].mean(0)).square().sum()
    assert float(noise.square().sum(-1).mean()) == pytest.approx(4 * float(distance), rel=0.01)
    standard_error = noise.std(0).mean() / 400**0.5
    assert float(noise.mean(0).abs().mean()) < 1.5 * float(standard_error)


def test_a_batch_of_one_class_is_not_sent_clean():
    gradients, labels = two_classes(n=64, spread=0.1)
    memory = {}
    protect(gradients, labels, memory=memory)
    usual = float(protect(gradients, labels, memory=memory)[0].std())
    alone, _ = protect(gradients, torch.ones_like(labels), memory=memory)
    assert float((alone - gradients).abs().min()) > 0
    assert float((alone - gradients).std()) == pytest.approx(usual, rel=0.5)
    nothing_remembered, _ = protect(gradients, torch.ones_like(labels))
    largest = float(gradients.abs().max())
    assert float((nothing_remembered - gradients).std()) == pytest.approx(2 * largest, rel=0.3)


def test_no_bound_is_claimed_where_none_holds():
    labels = torch.tensor([[1, 1, 1, 0, 0, 0]])
    spread = torch.tensor([[[3.0], [-3.0], [0.0], [1.0], [-1.0], [0.0]]])
    sent, context = protect(spread, labels)  # equal means: the norm tells the classes apart
    assert torch.equal(sent, spread)
    variances = 6.0, 2.0 / 3.0
    assert float(context.log["sum_kl"]) == pytest.approx(
        0.5 * (variances[0] / variances[1] + variances[1] / variances[0] - 2.0), rel=1e-6
    )
    assert float(context.log["auc_bound"]) > 0.9
    _, unknown = protect(spread, torch.ones_like(labels))
    assert float(unknown.log["auc_bound"]) == float(unknown.log["auc_gaussian"]) == 1.0
    _, nothing = protect(torch.zeros_like(spread), labels)
    assert float(nothing.log["auc_bound"]) == 0.5


def test_edge_cases_are_finite():
    zero = torch.zeros(1, 8, 3)
    labels = torch.tensor([[0, 1] * 4])
    assert torch.equal(protect(zero, labels)[0], zero)
    same = torch.ones(1, 8, 3)
    assert torch.equal(protect(same, labels)[0], same)
    one_positive = torch.randn(1, 8, 3, generator=torch.Generator().manual_seed(0))
    only = torch.tensor([[1] + [0] * 7])
    assert bool(torch.isfinite(protect(one_positive, only)[0]).all())
    with pytest.raises(TrainingDivergedError, match="not finite"):
        protect(torch.full((1, 8, 3), torch.nan), labels)


def test_replicas_do_not_mix():
    gradients, labels = two_classes(n=50, dim=4, spread=0.2)
    alone, _ = protect(gradients, labels)
    both, _ = protect(torch.cat([gradients, 100 * gradients]), labels.expand(2, -1))
    assert torch.allclose(both[0], alone[0], rtol=1e-5)
    assert torch.allclose(both[1], 100 * alone[0], rtol=1e-4)
