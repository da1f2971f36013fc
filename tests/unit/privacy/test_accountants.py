"""Units: what the libraries read as a noise multiplier, and what we hand them."""

import json
import math
import sys
from pathlib import Path

import dp_accounting
import pytest
from dp_accounting import pld, rdp

from tests.unit.privacy.test_events import release
from vflsynth.exceptions import MissingExtraError, PrivacyParameterError, UnsupportedEventError
from vflsynth.privacy import (
    Composition,
    GaussianDPAccountant,
    PLDAccountant,
    RDPAccountant,
    SampledRelease,
    WangAccountant,
)
from vflsynth.privacy.accountants import _bound
from vflsynth.privacy.gaussian_dp import epsilon_of_gaussian

pytestmark = pytest.mark.usefixtures("tight_accountants")

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "privacy.json").read_text())


def test_dp_accounting_reads_two_different_units():
    """google/differential-privacy issue 378. If this fails, the library changed its mind."""
    trap = GOLDEN["unit_trap"]
    event = dp_accounting.GaussianDpEvent(trap["noise_multiplier"])
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    by_rdp = rdp.RdpAccountant(neighboring_relation=relation).compose(event)
    by_pld = pld.PLDAccountant(neighboring_relation=relation).compose(event)
    assert round(by_rdp.get_epsilon(trap["delta"]), 4) == trap["rdp_replace"]
    assert round(by_pld.get_epsilon(trap["delta"]), 4) == trap["pld_replace"]


def test_remembered_distributions_compose_like_dp_accounting_s_own_accountant():
    """To the last bit, of parts that are new and of parts that were seen before."""
    own = {"relation": "add_or_remove_one"}
    once = SampledRelease((release(3.0, **own), release(5.0, party="b", **own)), "none", 1.0, 4)
    often = SampledRelease((release(1.5, record_norm=2.0, **own),), "poisson", 0.25, 50)
    always = SampledRelease((release(9.0, **own),), "poisson", 1.0, 3)
    # Too long a distribution to keep.
    little = SampledRelease((release(0.5, **own),), "none", 1.0, 4)
    for parts in ([once, often], [often, once, once], [always, often], [little, often], [once]):
        theirs = pld.PLDAccountant(value_discretization_interval=1e-3)
        for part in parts:
            event = dp_accounting.GaussianDpEvent(part.joint_noise_multiplier)
            if part.sampler == "poisson":
                event = dp_accounting.PoissonSampledDpEvent(part.sample_rate, event)
            theirs.compose(event, part.steps)
        assert PLDAccountant(1e-3).epsilon(Composition(parts), 1e-5) == theirs.get_epsilon(1e-5)


def test_who_released_it_does_not_matter():
    """Only how much; and so parties that release alike are judged once."""
    events = [
        SampledRelease((release(1.0625, party=party, record_norm=1.5),), "poisson", 0.1, 9)
        for party in "ab"
    ]
    misses = _bound.cache_info().misses
    one, other = (PLDAccountant(1e-3).epsilon(event, 1e-5) for event in events)
    assert one == other
    assert _bound.cache_info().misses == misses + 1


def test_poisson_replace_one_needs_the_norm_of_a_record():
    """A histogram has sensitivity sqrt(2), and a record's term has norm 1, not half of that."""
    unknown = SampledRelease((release(2.0, sensitivity=math.sqrt(2.0)),), "poisson", 0.1, 10)
    with pytest.raises(UnsupportedEventError, match="record_norm"):
        PLDAccountant().epsilon(unknown, 1e-5)
    known = SampledRelease(
        (release(2.0, sensitivity=math.sqrt(2.0), record_norm=1.0),), "poisson", 0.1, 10
    )
    assert PLDAccountant().epsilon(known, 1e-5) > 0.0


def test_refusal_names_accountants_that_are_valid():
    event = SampledRelease((release(1.0),), "without_replacement", 0.1, 10)
    with pytest.raises(UnsupportedEventError, match=r"use RDP, dp-accounting or RDP, Wang"):
        PLDAccountant().epsilon(event, 1e-5)


def test_missing_library_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    event = SampledRelease((release(1.03, relation="add_or_remove_one"),), "poisson", 0.1, 10)
    for accountant in (RDPAccountant(), PLDAccountant()):
        with pytest.raises(MissingExtraError, match=r"vflsynth\[privacy\]"):
            accountant.epsilon(event, 1e-5)
    plain = release(2.0)
    assert GaussianDPAccountant().epsilon(plain, 1e-5) < WangAccountant().epsilon(plain, 1e-5)


def test_left_out_orders_do_not_fill_the_log(caplog):
    event = SampledRelease((release(20.0, relation="add_or_remove_one"),), "poisson", 0.5, 1000)
    RDPAccountant().epsilon(event, 1e-5)
    assert not caplog.records


@pytest.mark.parametrize("delta", [1e-6, 1e-10])
def test_any_noise_is_accounted_for_without_replacement(delta):
    """From 1e9 on it was a math domain error; at 1e6, 1e-3 and 1e-6 rounded to an epsilon of 0."""
    found = [
        RDPAccountant().epsilon(
            SampledRelease((release(noise, sensitivity=1.0),), "without_replacement", 1e-3, 10**5),
            delta,
        )
        for noise in (1e3, 1e4, 1e5, 1e6, 1e8, 1e12)
    ]
    assert found == sorted(found, reverse=True)
    assert found[-1] > 0.0


@pytest.mark.parametrize("rate", [1e-4, 1e-6, 1e-7, 1e-8])
@pytest.mark.parametrize("noise", [100.0, 1e3, 1e4])
def test_what_rounding_takes_from_rare_samples_is_added(rate, noise, caplog):
    """At 1e-7 and 1e4, terms were below 0, which the library takes for an epsilon of 0."""
    event = SampledRelease((release(noise, relation="add_or_remove_one"),), "poisson", rate, 10**9)
    found = RDPAccountant().epsilon(event, 1e-12)
    # Many steps that each tell little are one Gaussian release of this mu.
    mu = rate * math.sqrt(10**9 * math.expm1(noise**-2))
    assert found > epsilon_of_gaussian(mu, 1e-12) > 0.0
    assert not caplog.records


@pytest.mark.parametrize("noise", [0.0026, 1e-9])
def test_next_to_no_noise_is_refused_by_name(noise):
    """It overflowed in the library."""
    event = SampledRelease((release(noise, sensitivity=1.0, record_norm=1.0),), "poisson", 0.1, 2)
    with pytest.raises(PrivacyParameterError, match=r"noise_multiplier must be at least 0\.003"):
        PLDAccountant().epsilon(event, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "relation", ["add_or_remove_one", pytest.param("replace_one", marks=pytest.mark.slow)]
)
def test_little_noise_is_accounted_for_with_wide_bins(relation, monkeypatch):
    """It took hours, for numbers that protect nobody; what it says is still no smaller."""
    found = []
    for noise in (0.02, 0.2, 0.499, 0.501):
        sensitivity = 2.0 if relation == "replace_one" else 1.0
        made = release(noise, relation=relation, sensitivity=sensitivity, record_norm=1.0)
        event = SampledRelease((made,), "poisson", 0.125, 20)
        found.append(PLDAccountant().epsilon(event, 1e-5))
        with monkeypatch.context() as patch:
            patch.setattr("vflsynth.privacy.accountants._LITTLE_NOISE", 0.0)
            if noise > 0.1:
                fine = PLDAccountant(2e-4)._epsilon((event,), 1e-5)
                assert fine <= found[-1] * (1 + 1e-6) <= 1.02 * fine
    assert found == sorted(found, reverse=True)


def test_the_discrete_gaussian_of_the_library_is_covered():
    """dp-accounting's own discrete Gaussian of one coordinate, against the continuous one of s."""
    sigma, delta = 20.0, 1e-6
    discrete = pld.privacy_loss_distribution.from_discrete_gaussian_mechanism(
        sigma, sensitivity=10, value_discretization_interval=1e-4, pessimistic_estimate=False
    )
    s = math.sqrt(sigma**2 - 16.0)
    continuous = GaussianDPAccountant().epsilon(release(s / 10.0), delta)
    assert discrete.get_epsilon_for_delta(delta) <= continuous
