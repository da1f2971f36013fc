"""The papers' budgets, VFLGAN Eq. 1 and Prop. 2-4, and the exact Gaussian curve."""

import json
import math
from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.later import later
from vflsynth.privacy import (
    Composition,
    GaussianDPAccountant,
    GaussianRelease,
    NeighbouringRelation,
    PLDAccountant,
    RDPAccountant,
    SampledRelease,
    Sampler,
    WangAccountant,
)
from vflsynth.privacy.accountants import _wang_table, wang_rdp
from vflsynth.privacy.events import without_amplification
from vflsynth.privacy.gaussian_dp import (
    delta_of_gaussian,
    epsilon_of_gaussian,
    mu_of_gaussian,
)

pytestmark = pytest.mark.usefixtures("tight_accountants")

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "privacy.json").read_text())
ADD, REPLACE = NeighbouringRelation.ADD_OR_REMOVE_ONE, NeighbouringRelation.REPLACE_ONE


def release(noise_multiplier, relation, party="a", *, norm=None, sensitivity=1.0):
    return GaussianRelease(
        released="gradient",
        party=party,
        noise_multiplier=noise_multiplier,
        sensitivity=sensitivity,
        relation=relation,
        record_norm=norm,
    )


def paper_event(case, parties=("a",), *, noise_multiplier=None):
    sigma = noise_multiplier or case["noise_multiplier"]
    return SampledRelease(
        releases=tuple(release(sigma, REPLACE, party) for party in parties),
        sampler=Sampler.WITHOUT_REPLACEMENT,
        sample_rate=case["batch_size"] / case["n_records"],
        steps=case["steps"],
    )


@pytest.mark.parametrize("case", GOLDEN["wang"], ids=lambda case: case["name"])
def test_budgets_of_the_papers(case):
    digits = 3 if case["name"] == "GS-WGAN" else 2
    epsilon = WangAccountant().epsilon(paper_event(case), case["delta"])
    assert round(epsilon, digits) == case["epsilon"]


@pytest.mark.parametrize(
    "case",
    [case for case in GOLDEN["wang"] if "epsilon_of_two_parties" in case],
    ids=lambda case: case["name"],
)
def test_joint_budgets_of_both_parties(case):
    accountant = WangAccountant()
    joint = accountant.epsilon(paper_event(case, ("a", "b")), case["delta"])
    assert joint == pytest.approx(case["epsilon_of_two_parties"], abs=0.0101)
    # Two parties with sqrt(2) times the noise are one with the noise as stated.
    louder = paper_event(case, ("a", "b"), noise_multiplier=case["noise_multiplier"] * 2**0.5)
    assert accountant.epsilon(louder, case["delta"]) == pytest.approx(case["epsilon"], abs=0.0051)


def test_composing_the_parties_as_if_their_batches_were_independent_claims_too_little():
    case = GOLDEN["wang"][0]
    one = paper_event(case)
    claimed = WangAccountant().epsilon(Composition((one, one)), case["delta"])
    joint = WangAccountant().epsilon(paper_event(case, ("a", "b")), case["delta"])
    assert round(claimed, 2) == 15.75
    assert claimed < joint


@pytest.mark.parametrize("row", GOLDEN["red_wine_large_noise"])
def test_the_wang_bound_has_a_floor(row):
    event = paper_event(GOLDEN["wang"][0], noise_multiplier=row["noise_multiplier"])
    assert WangAccountant().epsilon(event, 5e-4) == pytest.approx(row["epsilon"], abs=0.0051)


def test_nothing_is_amplified_for_somebody_who_knows_the_batches():
    event = without_amplification(paper_event(GOLDEN["wang"][0]))
    epsilon = GaussianDPAccountant().epsilon(event, 5e-4)
    assert epsilon == pytest.approx(GOLDEN["red_wine_known_batches"]["epsilon"], rel=0.02)
    assert epsilon <= WangAccountant().epsilon(event, 5e-4)


def slow_wang_rdp(sigma, q, order):
    """Proposition 4 with ε(∞) = ∞, term by term in arbitrary precision."""
    with mpmath.workdps(60):
        sigma, q = mpmath.mpf(sigma), mpmath.mpf(q)

        def base(alpha):
            return alpha / (2 * sigma**2)

        total = 1 + q**2 * mpmath.binomial(order, 2) * min(
            4 * (mpmath.exp(base(2)) - 1), 2 * mpmath.exp(base(2))
        )
        for j in range(3, order + 1):
            total += 2 * q**j * mpmath.binomial(order, j) * mpmath.exp((j - 1) * base(j))
        return float(min(mpmath.log(total) / (order - 1), base(order)))


@given(sigma=st.floats(0.1, 200.0), rate=st.floats(1e-6, 1.0), index=st.integers(0, 30))
def test_proposition_4_equals_its_slow_form(sigma, rate, index):
    order = int(_wang_table()[0][index])
    assert wang_rdp(sigma, rate)[index] == pytest.approx(
        slow_wang_rdp(sigma, rate, order), rel=1e-6, abs=1e-14
    )


def test_proposition_4_at_the_sparse_orders():
    orders = _wang_table()[0]
    for index in (254, 270, len(orders) - 1):
        fast = wang_rdp(30.0, 1e-3)[index]
        assert fast == pytest.approx(slow_wang_rdp(30.0, 1e-3, int(orders[index])), rel=1e-6)


def test_classic_conversion_is_equation_1():
    """ε = ε'(α) T + log(1/δ) / (α - 1), by hand for red wine at the best order 3."""
    expected = 15000 * slow_wang_rdp(1.39, 16 / 1599, 3) + math.log(1 / 5e-4) / 2
    assert WangAccountant().epsilon(paper_event(GOLDEN["wang"][0]), 5e-4) == pytest.approx(expected)


@pytest.mark.parametrize(
    "row", [*GOLDEN["dp_accounting"]["rows"][1:], *later(GOLDEN["dp_accounting"]["rows"][0])]
)
def test_dp_accounting_table(row):
    table = GOLDEN["dp_accounting"]
    rate, steps, delta = table["batch_size"] / table["n_records"], table["steps"], table["delta"]
    sigma = row["noise_multiplier"]

    def event(relation, sampler, noise_multiplier, norm=None):
        one = release(noise_multiplier, relation, norm=norm, sensitivity=2.0 if norm else 1.0)
        return SampledRelease((one,), sampler, rate, steps)

    poisson = event(ADD, Sampler.POISSON, sigma)
    without = event(REPLACE, Sampler.WITHOUT_REPLACEMENT, sigma)
    # The table's unit under replace-one is std / C; ours is std / (2C): half the number.
    replace = event(REPLACE, Sampler.POISSON, sigma / 2.0, norm=1.0)
    assert round(RDPAccountant().epsilon(poisson, delta), 4) == row["rdp_poisson_add_remove"]
    assert round(PLDAccountant().epsilon(poisson, delta), 4) == row["pld_poisson_add_remove"]
    assert (
        round(RDPAccountant().epsilon(without, delta), 4) == row["rdp_without_replacement_replace"]
    )
    assert (
        round(PLDAccountant().epsilon(replace, delta), 4) == row["pld_poisson_replace_std_over_c"]
    )


@pytest.mark.parametrize(
    "case",
    [*GOLDEN["wang"][:2], *later(*GOLDEN["wang"][2:7])],
    ids=lambda case: case["name"],
)
def test_order_of_the_bounds(case):
    """Poisson PLD ≤ Poisson RDP ≤ dp-accounting without replacement ≤ Wang improved ≤ classic.

    The first two are for another relation, where the same noise over sensitivity protects more.
    """
    without = paper_event(case)
    poisson = SampledRelease(
        (release(case["noise_multiplier"], ADD),),
        Sampler.POISSON,
        without.sample_rate,
        without.steps,
    )
    epsilons = [
        PLDAccountant(1e-3).epsilon(poisson, case["delta"]),
        RDPAccountant().epsilon(poisson, case["delta"]),
        RDPAccountant().epsilon(without, case["delta"]),
        WangAccountant("improved").epsilon(without, case["delta"]) + 1e-9,
        WangAccountant("classic").epsilon(without, case["delta"]) + 1e-9,
    ]
    assert epsilons == sorted(epsilons)


def test_poisson_replace_one_dominates_add_or_remove_one():
    """The same std and clip: replacing is removing and adding, so ε must be larger."""
    add = SampledRelease((release(2.0, ADD, norm=1.0),), Sampler.POISSON, 0.01, 1000)
    replace = SampledRelease(
        (release(1.0, REPLACE, norm=1.0, sensitivity=2.0),), Sampler.POISSON, 0.01, 1000
    )
    pld = PLDAccountant(1e-3)
    assert pld.epsilon(add, 1e-5) < pld.epsilon(replace, 1e-5)


# ---------------------------------------------------------------- the Gaussian curve


def slow_delta(epsilon, mu):
    with mpmath.workdps(80):
        epsilon, mu = mpmath.mpf(epsilon), mpmath.mpf(mu)
        first = mpmath.ncdf(-epsilon / mu + mu / 2)
        return float(first - mpmath.exp(epsilon) * mpmath.ncdf(-epsilon / mu - mu / 2))


@given(epsilon=st.floats(0.0, 50.0), mu=st.floats(0.01, 20.0))
def test_analytic_gaussian_formula_equals_arbitrary_precision(epsilon, mu):
    assert delta_of_gaussian(epsilon, mu) == pytest.approx(
        slow_delta(epsilon, mu), rel=1e-8, abs=1e-300
    )


@given(mu=st.floats(0.01, 50.0), delta=st.floats(1e-12, 0.3))
def test_both_inverses_are_on_the_safe_side_and_tight(mu, delta):
    epsilon = epsilon_of_gaussian(mu, delta)
    assert delta_of_gaussian(epsilon, mu) <= delta
    if epsilon > 0.0:
        assert delta_of_gaussian(epsilon * (1 - 1e-9), mu) > delta * (1 - 1e-6)
    back = mu_of_gaussian(epsilon, delta)
    assert delta_of_gaussian(epsilon, back) <= delta
    assert epsilon == 0.0 or back == pytest.approx(mu, rel=1e-6)


@given(st.lists(st.floats(0.5, 20.0), min_size=1, max_size=6), st.floats(1e-8, 1e-2))
def test_composition_of_gaussians_is_exact(noise_multipliers, delta):
    event = Composition(tuple(release(sigma, ADD) for sigma in noise_multipliers))
    mu = math.sqrt(sum(1 / sigma**2 for sigma in noise_multipliers))
    exact = GaussianDPAccountant().epsilon(event, delta)
    assert exact == pytest.approx(epsilon_of_gaussian(mu, delta), rel=1e-9)


@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_every_accountant_agrees_with_the_exact_value_for_plain_gaussians(relation):
    """Also the test of units: an accountant that reads sigma as std / C fails under replace-one."""
    event = Composition((release(4.0, relation), release(3.0, relation)))
    exact = GaussianDPAccountant().epsilon(event, 1e-5)
    assert PLDAccountant().epsilon(event, 1e-5) == pytest.approx(exact, rel=1e-3)
    for accountant in (RDPAccountant(), WangAccountant("improved"), WangAccountant()):
        assert exact <= accountant.epsilon(event, 1e-5) <= 1.35 * exact


def test_monte_carlo_lower_bound_stays_below_the_poisson_claim():
    """A tester at the best threshold cannot beat (ε, δ): the claim survives a simulated attack."""
    rng = np.random.default_rng(0)
    sigma, rate, steps, n = 1.5, 0.5, 3, 400_000
    noise_only = rng.normal(0, sigma, (n, steps))
    with_record = noise_only + (rng.random((n, steps)) < rate)

    def privacy_loss(outputs):
        ratio = 1 - rate + rate * np.exp((2 * outputs - 1) / (2 * sigma**2))
        return np.log(ratio).sum(1)

    event = SampledRelease((release(sigma, ADD),), Sampler.POISSON, rate, steps)
    delta = 0.01
    claim = PLDAccountant().epsilon(event, delta)
    reached, false = privacy_loss(with_record), privacy_loss(noise_only)
    bounds = [
        math.log((np.mean(reached > t) - delta) / max(np.mean(false > t), 1 / n))
        for t in np.linspace(0.2, 1.2, 20)
        if np.mean(reached > t) > 5 * delta
    ]
    assert max(bounds) <= claim + 0.02
    # Not vacuous: two thirds of the claim are reached.
    assert max(bounds) >= 0.66 * claim
