"""Laws of every accountant, over every pair of sampler and relation that it declares."""

import itertools
import math
from dataclasses import replace

import pytest

from vflsynth.exceptions import PrivacyParameterError, UnsupportedEventError
from vflsynth.privacy import (
    ACCOUNTANTS,
    Composition,
    GaussianRelease,
    NeighbouringRelation,
    PLDAccountant,
    SampledRelease,
    Sampler,
    valid_accountants,
)

pytestmark = pytest.mark.usefixtures("tight_accountants")

DELTA = 1e-5
ALL_PAIRS = list(itertools.product(Sampler, NeighbouringRelation))
COARSE = [PLDAccountant(1e-3) if isinstance(a, PLDAccountant) else a for a in ACCOUNTANTS]
SUPPORTED = [(a, *pair) for a in COARSE for pair in sorted(a.supported)]
UNSUPPORTED = [(a, *pair) for a in COARSE for pair in ALL_PAIRS if pair not in a.supported]


def name_of(value):
    return value.name if hasattr(value, "supported") else str(value)


def event(sampler, relation, *, noise=2.0, steps=40, rate=0.02, parties=("a",)):
    factor = 2.0 if relation is NeighbouringRelation.REPLACE_ONE else 1.0
    releases = tuple(
        GaussianRelease(
            released="sum",
            party=party,
            noise_multiplier=noise,
            sensitivity=factor,
            relation=relation,
            record_norm=1.0,
        )
        for party in parties
    )
    return SampledRelease(releases, sampler, 1.0 if sampler is Sampler.NONE else rate, steps)


supported = pytest.mark.parametrize(("accountant", "sampler", "relation"), SUPPORTED, ids=name_of)


@supported
def test_epsilon_falls_with_noise(accountant, sampler, relation):
    values = [
        accountant.epsilon(event(sampler, relation, noise=noise), DELTA)
        for noise in (1.0, 1.5, 4.0, 50.0)
    ]
    assert values == sorted(values, reverse=True)
    assert len(set(values)) == len(values)


@supported
def test_epsilon_rises_with_steps(accountant, sampler, relation):
    values = [
        accountant.epsilon(event(sampler, relation, steps=steps), DELTA) for steps in (1, 10, 100)
    ]
    assert values == sorted(values)
    assert values[-1] > values[0]


@supported
def test_epsilon_falls_with_delta(accountant, sampler, relation):
    values = [accountant.epsilon(event(sampler, relation), delta) for delta in (1e-9, 1e-5, 1e-2)]
    assert values == sorted(values, reverse=True)


@supported
def test_epsilon_rises_with_the_number_of_parties(accountant, sampler, relation):
    one = accountant.epsilon(event(sampler, relation), DELTA)
    two = accountant.epsilon(event(sampler, relation, parties=("a", "b")), DELTA)
    alone = accountant.epsilon(event(sampler, relation, noise=2.0 / math.sqrt(2.0)), DELTA)
    assert two > one
    assert two == pytest.approx(alone, rel=1e-6)


@supported
def test_nothing_released_costs_nothing(accountant, sampler, relation):
    assert accountant.epsilon(Composition(()), DELTA) == 0.0
    assert accountant.epsilon(event(sampler, relation, steps=0), DELTA) == 0.0


@supported
def test_release_without_noise_costs_everything(accountant, sampler, relation):
    assert accountant.epsilon(event(sampler, relation, noise=0.0), DELTA) == math.inf
    together = Composition((event(sampler, relation), event(sampler, relation, noise=0.0, steps=1)))
    assert accountant.epsilon(together, DELTA) == math.inf


@supported
def test_one_of_two_parties_without_noise_costs_everything(accountant, sampler, relation):
    loud = event(sampler, relation).releases[0]
    bare = event(sampler, relation, noise=0.0, parties=("b",)).releases[0]
    both = SampledRelease((loud, bare), sampler, event(sampler, relation).sample_rate, 1)
    assert accountant.epsilon(both, DELTA) == math.inf


@supported
def test_composition_costs_at_least_each_part_and_order_does_not_matter(
    accountant, sampler, relation
):
    parts = (event(sampler, relation), event(Sampler.NONE, relation, noise=5.0, steps=1))
    together = accountant.epsilon(Composition(parts), DELTA)
    assert together > max(accountant.epsilon(part, DELTA) for part in parts)
    swapped = accountant.epsilon(Composition(parts[::-1]), DELTA)
    assert swapped == pytest.approx(together, rel=1e-6)


@supported
def test_sampling_never_costs_more_than_taking_part_in_every_step(accountant, sampler, relation):
    sampled = accountant.epsilon(event(sampler, relation, noise=4.0, steps=20), DELTA)
    always = accountant.epsilon(event(Sampler.NONE, relation, noise=4.0, steps=20), DELTA)
    assert sampled <= always * (1 + 1e-6)


@supported
def test_what_noise_does_not_cover_costs_delta_and_epsilon(accountant, sampler, relation):
    """One table's failures are part of δ; what does not fail is likelier by 1 / (1 - p) than it."""
    bare = event(sampler, relation, steps=1)
    failing, delta = 0.01, 0.03
    (release,) = bare.releases
    found = replace(bare, releases=(replace(release, failure_probability=failing),))
    expected = accountant.epsilon(bare, delta - failing) - math.log(1.0 - failing)
    assert accountant.epsilon(found, delta) == pytest.approx(expected, rel=1e-9)
    assert accountant.epsilon(found, failing) == math.inf


@pytest.mark.parametrize(("accountant", "sampler", "relation"), UNSUPPORTED, ids=name_of)
def test_unsupported_pairs_are_refused(accountant, sampler, relation):
    unsupported = event(sampler, relation)
    assert not accountant.supports(unsupported)
    with pytest.raises(UnsupportedEventError, match=f"{sampler}.*{relation}"):
        accountant.epsilon(unsupported, DELTA)
    hidden = Composition((Composition((event(Sampler.NONE, relation),)), unsupported))
    with pytest.raises(UnsupportedEventError):
        accountant.epsilon(hidden, DELTA)
    with pytest.raises(UnsupportedEventError):  # not even when there is nothing to count
        accountant.epsilon(event(sampler, relation, steps=0), DELTA)


@pytest.mark.parametrize("accountant", COARSE, ids=name_of)
@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, math.nan])
def test_delta_must_be_a_probability(accountant, delta):
    with pytest.raises(PrivacyParameterError, match="delta"):
        accountant.epsilon(Composition(()), delta)


def test_who_is_valid_where():
    names = {
        pair: {type(a).__name__ for a in valid_accountants(event(*pair))} for pair in ALL_PAIRS
    }
    add, replace = NeighbouringRelation
    assert names[Sampler.POISSON, add] == {"RDPAccountant", "PLDAccountant"}
    assert names[Sampler.POISSON, replace] == {"PLDAccountant"}
    assert names[Sampler.WITHOUT_REPLACEMENT, replace] == {"RDPAccountant", "WangAccountant"}
    assert names[Sampler.WITHOUT_REPLACEMENT, add] == set()
    everybody = {type(a).__name__ for a in ACCOUNTANTS}
    assert names[Sampler.NONE, add] == names[Sampler.NONE, replace] == everybody


@pytest.mark.parametrize("accountant", COARSE, ids=name_of)
def test_search_version_is_nowhere_below(accountant):
    for sampler, relation in accountant.supported:
        released = event(sampler, relation)
        search = accountant.for_search(released)
        assert search.epsilon(released, DELTA) >= accountant.epsilon(released, DELTA) - 1e-9
