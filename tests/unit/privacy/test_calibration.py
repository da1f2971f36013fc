import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.later import later
from tests.unit.privacy.test_events import release
from vflsynth.exceptions import PrivacyBudgetError, PrivacyParameterError, UnsupportedEventError
from vflsynth.privacy import (
    Composition,
    GaussianDPAccountant,
    PLDAccountant,
    RDPAccountant,
    SampledRelease,
    WangAccountant,
    calibrate_noise_multiplier,
)
from vflsynth.privacy.calibration import StepBudget, split_gaussian_budget
from vflsynth.privacy.gaussian_dp import mu_of_gaussian

pytestmark = pytest.mark.usefixtures("tight_accountants")

WITHOUT = (WangAccountant(), WangAccountant("improved"), RDPAccountant())
POISSON = (RDPAccountant(), PLDAccountant())
TARGET = {"epsilon": 1.0, "delta": 5e-4}
ADDED = {"sensitivity": 1.0, "relation": "add_or_remove_one"}


def event(noise, sampler, *, steps=15000, rate=16 / 1599):
    relation = "replace_one" if sampler == "without_replacement" else "add_or_remove_one"
    released = release(noise, sensitivity=1.0, relation=relation)
    return SampledRelease((released,), sampler, rate, steps)


CASES = [(a, "without_replacement") for a in WITHOUT] + [(a, "poisson") for a in POISSON]
cases = pytest.mark.parametrize(
    ("accountant", "sampler"), CASES, ids=[f"{a.name}-{sampler}" for a, sampler in CASES]
)


@cases
@pytest.mark.parametrize("epsilon", [1.0, *later(10.0)])
def test_noise_is_sufficient_and_hardly_more(accountant, sampler, epsilon):
    def event_for(noise):
        return event(noise, sampler)

    noise = calibrate_noise_multiplier(
        event_for, epsilon=epsilon, delta=5e-4, accountant=accountant
    )
    assert accountant.epsilon(event_for(noise), 5e-4) <= epsilon
    # 0.5 % below is not enough: tight up to the coarser bins of the search.
    assert accountant.epsilon(event_for(noise * 0.99), 5e-4) > epsilon


def test_red_wine_needs_the_papers_noise():
    noise = calibrate_noise_multiplier(
        lambda noise: event(noise, "without_replacement"),
        epsilon=10.0,
        delta=5e-4,
        accountant=WangAccountant(),
    )
    assert noise == pytest.approx(1.39, abs=0.005)


@settings(max_examples=6, deadline=None)
@given(
    epsilon=st.floats(0.2, 20.0),
    delta=st.floats(1e-8, 1e-2),
    rate=st.floats(1e-4, 0.2),
    steps=st.integers(1, 30_000),
)
def test_wang_calibration_never_overshoots(epsilon, delta, rate, steps):
    def event_for(noise):
        return event(noise, "without_replacement", rate=rate, steps=steps)

    accountant = WangAccountant()
    noise = calibrate_noise_multiplier(
        event_for, epsilon=epsilon, delta=delta, accountant=accountant
    )
    assert accountant.epsilon(event_for(noise), delta) <= epsilon


def test_noise_calibrated_beside_other_releases_counts_them():
    histograms = release(1.0, **ADDED)

    def alone(noise):
        return event(noise, "poisson", steps=1000)

    def beside(noise):
        return Composition((histograms, alone(noise)))

    target = {"epsilon": 8.0, "delta": 5e-4, "accountant": RDPAccountant()}
    needed = calibrate_noise_multiplier(beside, **target)
    forgetful = calibrate_noise_multiplier(alone, **target)
    assert RDPAccountant().epsilon(beside(forgetful), 5e-4) > 8.3
    assert RDPAccountant().epsilon(beside(needed), 5e-4) <= 8.0


def test_budget_already_spent_cannot_be_met():
    spent = release(0.5, **ADDED)
    with pytest.raises(PrivacyBudgetError, match="out of reach"):
        calibrate_noise_multiplier(
            lambda noise: Composition((spent, event(noise, "poisson"))),
            accountant=RDPAccountant(),
            **TARGET,
        )


def test_no_steps_need_no_noise():
    with pytest.raises(PrivacyBudgetError, match="number of steps"):
        calibrate_noise_multiplier(
            lambda noise: event(noise, "without_replacement", steps=0),
            accountant=WangAccountant(),
            **TARGET,
        )


def test_calibration_refuses_accountants_that_are_not_valid():
    with pytest.raises(UnsupportedEventError):
        calibrate_noise_multiplier(
            lambda noise: event(noise, "poisson"), accountant=WangAccountant(), **TARGET
        )


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.0, 1e-5), (-1.0, 1e-5), (math.inf, 1e-5), (1.0, 0.0), (1.0, 1.0)]
)
def test_targets_out_of_range(epsilon, delta):
    with pytest.raises(PrivacyParameterError):
        calibrate_noise_multiplier(
            lambda noise: event(noise, "poisson"),
            epsilon=epsilon,
            delta=delta,
            accountant=RDPAccountant(),
        )


def test_step_budget_refuses_before_the_step():
    budget = StepBudget(3)
    for _ in range(3):
        budget.take()
    with pytest.raises(PrivacyBudgetError, match="All 3 private steps"):
        budget.take()
    assert budget.taken == 3


@given(
    epsilon=st.floats(0.05, 30.0),
    delta=st.floats(1e-9, 1e-2),
    weights=st.lists(st.floats(0.01, 1.0), min_size=1, max_size=5),
)
def test_split_budget_composes_to_the_target(epsilon, delta, weights):
    shares = {str(i): weight / sum(weights) for i, weight in enumerate(weights)}
    noise = split_gaussian_budget(epsilon, delta, shares)
    releases = tuple(release(value, released=name, **ADDED) for name, value in noise.items())
    spent = GaussianDPAccountant().epsilon(Composition(releases), delta)
    assert spent <= epsilon
    assert spent == pytest.approx(epsilon, rel=1e-6)
    mu = mu_of_gaussian(epsilon, delta)
    for name, share in shares.items():
        assert (1 / noise[name]) ** 2 == pytest.approx(share * mu**2, rel=1e-6)


@pytest.mark.parametrize("shares", [{}, {"a": 0.5}, {"a": 1.5, "b": -0.5}, {"a": 1.0, "b": 0.0}])
def test_shares_must_divide_the_whole(shares):
    with pytest.raises(PrivacyParameterError, match="shares"):
        split_gaussian_budget(1.0, 1e-5, shares)
