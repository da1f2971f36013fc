import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vflsynth.exceptions import ArtefactError, PrivacyParameterError
from vflsynth.privacy import (
    Composition,
    GaussianRelease,
    NeighbouringRelation,
    SampledRelease,
    Sampler,
)
from vflsynth.privacy.events import (
    event_from_dict,
    event_to_dict,
    released_by,
    without_amplification,
)

positive = st.floats(1e-6, 1e6)


def releases(relation):
    return st.builds(
        GaussianRelease,
        released=st.text(max_size=10),
        party=st.sampled_from(["a", "b", "server"]),
        noise_multiplier=st.floats(0, 1e6),
        sensitivity=positive,
        relation=st.just(relation),
    )


def sampled(relation):
    return st.builds(
        SampledRelease,
        releases=st.lists(releases(relation), min_size=1, max_size=3).map(tuple),
        sampler=st.sampled_from([Sampler.POISSON, Sampler.WITHOUT_REPLACEMENT]),
        sample_rate=st.floats(1e-6, 1.0),
        steps=st.integers(0, 10**6),
    )


def events(relation):
    return st.recursive(
        releases(relation) | sampled(relation),
        lambda inner: st.lists(inner, max_size=3).map(lambda parts: Composition(tuple(parts))),
        max_leaves=6,
    )


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(NeighbouringRelation).flatmap(events))
def test_json_round_trip(event):
    text = json.dumps(event_to_dict(event), allow_nan=False)
    assert event_from_dict(json.loads(text)) == event


@pytest.mark.parametrize(
    "data",
    [
        {},
        [],
        None,
        {"kind": "laplace"},
        {"kind": "composition"},
        {"kind": "gaussian_release", "released": "x"},
        {
            "kind": "sampled_release",
            "releases": [],
            "sampler": "none",
            "sample_rate": 1,
            "steps": 1,
        },
        {"kind": "composition", "events": [3]},
        {
            "kind": "gaussian_release",
            "released": "x",
            "party": "a",
            "noise_multiplier": -1,
            "sensitivity": 1,
            "relation": "replace_one",
            "record_norm": None,
            "unit": "u",
        },
    ],
)
def test_foreign_dictionaries_are_refused(data):
    with pytest.raises(ArtefactError):
        event_from_dict(data)


def release(noise_multiplier=1.0, party="a", **changes):
    values = {
        "released": "x",
        "party": party,
        "noise_multiplier": noise_multiplier,
        "sensitivity": 2.0,
        "relation": "replace_one",
    }
    return GaussianRelease(**(values | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"noise_multiplier": -0.1},
        {"noise_multiplier": math.inf},
        {"noise_multiplier": math.nan},
        {"sensitivity": 0.0},
        {"sensitivity": math.nan},
        {"record_norm": 0.0},
        {"record_norm": 0.9},  # cannot explain a sensitivity of 2 under replace-one
    ],
)
def test_numbers_out_of_range(changes):
    with pytest.raises(PrivacyParameterError):
        release(**changes)


@pytest.mark.parametrize(
    ("sampler", "rate", "steps"),
    [
        ("none", 0.5, 1),
        ("poisson", 0.0, 1),
        ("poisson", 1.1, 1),
        ("poisson", 0.5, -1),
        ("poisson", 0.5, math.inf),
        ("poison", 0.5, 1),
    ],
)
def test_sampling_out_of_range(sampler, rate, steps):
    with pytest.raises(PrivacyParameterError):
        SampledRelease((release(),), sampler, rate, steps)


def test_relations_and_units_cannot_be_mixed():
    other = release(relation="add_or_remove_one")
    with pytest.raises(PrivacyParameterError, match="relation"):
        Composition((release(), other))
    with pytest.raises(PrivacyParameterError, match="relation"):
        SampledRelease((release(), other), "poisson", 0.5, 1)
    with pytest.raises(PrivacyParameterError, match="unit"):
        Composition((release(), Composition((release(unit="one household"),))))


def test_joint_noise_multiplier_is_that_of_the_concatenated_vector():
    """Scaled to unit noise, blocks that move by 1/σ_k together move by the root of squares."""
    event = SampledRelease((release(2.0), release(3.0, "b")), "poisson", 0.1, 1)
    assert event.joint_noise_multiplier == pytest.approx(1 / math.sqrt(1 / 4 + 1 / 9))
    equal = SampledRelease((release(2.0), release(2.0, "b")), "poisson", 0.1, 1)
    assert equal.joint_noise_multiplier == pytest.approx(2.0 / math.sqrt(2.0))


def test_record_noise_multiplier():
    known = release(2.0, record_norm=1.0)  # std 4, norm 1
    assert SampledRelease((known,), "poisson", 0.1, 1).joint_record_noise_multiplier == 4.0
    unknown = SampledRelease((known, release(2.0)), "poisson", 0.1, 1)
    assert unknown.joint_record_noise_multiplier is None


def test_released_by_keeps_one_party():
    event = Composition(
        (release(2.0, "b"), SampledRelease((release(), release(2.0, "b")), "poisson", 0.1, 5))
    )
    only = released_by(event, "a")
    assert only == Composition((SampledRelease((release(),), "poisson", 0.1, 5),))
    assert released_by(event, "nobody") == Composition(())


def test_without_amplification_keeps_steps():
    event = SampledRelease((release(),), "without_replacement", 0.1, 5)
    (part,) = without_amplification(event).events
    assert (part.sampler, part.sample_rate, part.steps) == (Sampler.NONE, 1.0, 5)
