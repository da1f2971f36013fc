"""Canaries: how they are put in, and what guessing them shows."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from vflsynth.audit.canaries import audit_with_canaries, one_run_epsilon, one_run_p_value
from vflsynth.exceptions import ParameterError
from vflsynth.frames import align_party_frames


def test_the_p_value_is_the_binomial_tail_without_delta():
    assert one_run_p_value(100, 100, 75, math.log(3), 0.0) == pytest.approx(binom.sf(74, 100, 0.75))


@given(r=st.integers(1, 30), v=st.integers(0, 30), epsilon=st.floats(0, 4))
def test_the_p_value_with_delta_is_its_definition(r, v, epsilon):
    v, delta, m = min(v, r), 1e-3, 40
    rate = 1 / (1 + math.exp(-epsilon))
    likely = [binom.pmf(k, r, rate) for k in range(r + 1)]
    alpha = max((sum(likely[v - i : v]) / i for i in range(1, v + 1)), default=0.0)
    expected = min(1.0, sum(likely[v:]) + 2 * m * delta * alpha)
    assert one_run_p_value(m, r, v, epsilon, delta) == pytest.approx(expected, abs=1e-9)


@given(r=st.integers(1, 200), share=st.floats(0, 1), delta=st.sampled_from([0.0, 1e-5, 1e-2]))
def test_the_bound_is_the_largest_epsilon_that_is_contradicted(r, share, delta):
    v = round(share * r)
    bound = one_run_epsilon(200, r, v, delta=delta, p_value=0.05)
    if bound > 0:
        assert one_run_p_value(200, r, v, bound, delta) < 0.05
    assert one_run_p_value(200, r, v, bound + 1e-6, delta) >= 0.05 * (1 - 1e-6)


def test_the_bound_errs_as_seldom_as_it_says():
    """Randomised response on every canary is the worst case of the theorem."""
    rng = np.random.default_rng(0)
    right = rng.binomial(200, math.e / (1 + math.e), size=500)
    bounds = {v: one_run_epsilon(200, 200, v, delta=0.0, p_value=0.05) for v in set(right)}
    assert np.mean([bounds[v] > 1.0 for v in right]) <= 0.07


class Spy:
    """A publisher that keeps what it is given."""

    def __call__(self, party_frames, random_state):
        self.party_frames = {name: frame.copy() for name, frame in party_frames.items()}
        aligned, _, _ = align_party_frames(party_frames, self.on)
        return pd.concat(list(aligned.values()), axis=1)

    def __init__(self, on=None):
        self.on = on


@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
def test_canaries_are_appended_under_fresh_keys_with_their_dtypes(small_frames, relation):
    spy = Spy("record_id")
    audit = audit_with_canaries(spy, small_frames, "record_id", n_canaries=30, relation=relation)
    for name, frame in small_frames.items():
        given_frame = spy.party_frames[name]
        pd.testing.assert_frame_equal(given_frame.head(len(frame)), frame)
        assert given_frame["record_id"].is_unique
        added = len(given_frame) - len(frame)
        assert added == 30 if relation == "replace_one" else 5 < added < 25
        for column in frame:
            values = set(frame[column].dropna())
            if column != "record_id":
                assert set(given_frame[column].dropna()) <= values
    assert audit.relation == relation


@pytest.mark.parametrize("key", ["self", 0])
def test_keys_may_have_any_name(number_frames, key):
    frames = {name: frame.assign(k=range(40)) for name, frame in number_frames.items()}
    frames = {name: frame.rename(columns={"k": key}) for name, frame in frames.items()}
    spy = Spy(key)
    audit_with_canaries(spy, frames, key, n_canaries=40)
    assert {name: list(own) for name, own in spy.party_frames.items()} == {
        name: list(frame) for name, frame in frames.items()
    }


def test_frames_that_are_matched_by_their_index_get_canaries_too(number_frames):
    spy = Spy()
    labelled = {
        name: frame.set_axis([f"p{i}" for i in range(40)]) for name, frame in number_frames.items()
    }
    for frames in (number_frames, labelled):
        audit = audit_with_canaries(spy, frames, n_canaries=40)
        assert audit.n_correct == audit.n_guesses
        assert audit.epsilon > 1


def test_the_number_of_records_tells_nothing_when_one_is_replaced(number_frames):
    """A score that only counts records is at chance."""
    audit = audit_with_canaries(
        lambda frames, state: frames["left"].head(2).assign(c=0.0, d=0.0),
        number_frames,
        n_canaries=200,
        relation="replace_one",
        score=lambda synthetic, candidates, known: np.zeros(len(candidates)),
    )
    assert audit.epsilon == 0.0
    assert "no proof of safety" in str(audit)


def test_own_scores_are_checked(number_frames):
    for score in (
        lambda synthetic, candidates, known: np.zeros(3),
        lambda synthetic, candidates, known: np.full(len(candidates), np.nan),
    ):
        with pytest.raises(ParameterError, match="finite numbers, one per candidate"):
            audit_with_canaries(Spy(), number_frames, n_canaries=10, score=score)


def test_a_synthesizer_of_ours_is_audited_in_one_run(small_frames, tiny):
    audit = audit_with_canaries(tiny, small_frames, "record_id", n_canaries=40)
    content = json.loads(audit.to_json())
    assert content["epsilon"] <= content["epsilon_ceiling"]
    assert content["relation"] == "add_or_remove_one"
    assert len(content["conclusion"]) >= 2


@pytest.mark.parametrize(
    "options", [{"n_canaries": 2}, {"confidence": 2}, {"n_synthetic": 0}, {"relation": "replace"}]
)
def test_bad_parameters_are_refused_by_name(number_frames, options):
    with pytest.raises(ParameterError, match=next(iter(options))):
        audit_with_canaries(Spy(), number_frames, **options)
