"""Contexts tell bits: each site counts them by receiver, and stops before there are too many."""

import shutil
from dataclasses import replace

import pytest
import torch

from tests.later import later
from tests.unit.federation.test_every_method import PARAMETERS
from tests.unit.federation.test_fresh_secrets import change_a_value, keeping
from vflsynth.exceptions import ProtocolError, ToldTooMuchError
from vflsynth.federation import trail
from vflsynth.federation.account import TOLD, book, told_bits, told_report
from vflsynth.federation.progress import report_of
from vflsynth.federation.site import Site, Telling
from vflsynth.methods.autoregressive.messages import RecordContexts

pytestmark = pytest.mark.usefixtures("short_searches")

METHOD = "AutoregressiveSynthesizer"


@pytest.fixture
def trial(make_trial):
    def make(n_parties=2, *, telling=None, **more):
        fast = PARAMETERS[METHOD] | more.pop("fast", {})
        made = make_trial(n_parties, method=METHOD, fast=fast, random_state=None, **more)
        for party in made.sites if telling else ():
            made.change(party, telling=telling)
        return made

    return make


def lose_checkpoints(trial):
    for path in trial.folder.glob("*/trial/checkpoints"):
        shutil.rmtree(path)


def contexts(trial):
    sent = trial.server.transcript.messages
    return {m.receiver: m.contexts for m in sent if isinstance(m, RecordContexts)}


def test_an_attempt_that_begins_again_gets_the_same_contexts(trial):
    """A receiver that leaves and comes back had another snapshot each time."""
    made = trial(3)
    made.run(make_server=keeping)
    first = contexts(made)
    assert first["party_3"].shape[-1]
    frame = made.server.transcript.to_frame()
    rows = frame[frame["message"] == "RecordContexts"].set_index("receiver")["contents"]
    assert "bits_per_record = 8" in rows["party_3"], "a transcript says what was told in all"
    lose_checkpoints(made)
    made.finish(make_server=keeping)
    again = contexts(made)
    for name, own in first.items():
        assert torch.equal(own, again[name]), name
    told = told_bits(made.sites["party_1"])
    assert told == pytest.approx({"party_2": 8.0, "party_3": 8.0})
    report = report_of(made.folder / "party_1" / "trial" / "report-002.json")["told"]
    assert report["bits of every record, if receivers pool them"] == pytest.approx(16.0)
    assert told_bits(made.sites["party_3"]) == {}, "it comes last, and tells nothing"


def test_other_features_get_no_second_snapshot(trial):
    """What the receiver sends decides what it is told: with a choice of its own, it asks anew."""
    made = trial()
    made.run()
    lose_checkpoints(made)
    change_a_value(made)
    made.run(make_server=keeping)
    assert isinstance(made.outcome["server"], ProtocolError)
    assert "other records or features were sent in this job already" in str(made.outcome["server"])
    assert not contexts(made)


def test_contexts_with_other_noise_are_booked_whatever_the_server_draws_its_weights_of(trial):
    """With the same weights parties took them for the same, and booked nothing."""
    made = trial(telling=Telling(9.0))
    made.server_site = replace(made.server_site, own=bytes(range(32)))
    made.finish()
    lose_checkpoints(made)
    shutil.rmtree(made.folder / "server")
    made.run()
    assert isinstance(made.outcome["party_1"], ToldTooMuchError)


def test_bits_of_jobs_of_any_name_add_up_to_the_limit(trial):
    """A snapshot is eight bits: the second, which would make them sixteen, is not made."""
    made = trial(telling=Telling(9.0))
    for turn in range(2):
        made.job = replace(made.job, name=f"job-{turn}")
        made.run()
        outcome = made.outcome["party_1"]
        assert (outcome is None) == (turn < 1)
    assert isinstance(outcome, ToldTooMuchError)
    assert "to party_2; together with what was told in 365 days that is 16" in str(outcome)
    for other in ("server", "party_2"):
        said = str(made.outcome[other])
        assert "ToldTooMuchError: the log of site 'party_1' has the details" in said
        assert "16" not in said, "what other jobs were told stays at the site"
    site = made.sites["party_1"]
    assert told_bits(site) == pytest.approx({"party_2": 8.0})
    assert sum(line["event"] == TOLD for line in trail.lines(site.folder)) == 1


def test_receivers_who_pool_stay_within_the_limit(trial):
    made = trial(3, telling=Telling(15.0)).run()
    assert isinstance(made.outcome["party_1"], ToldTooMuchError)


@pytest.mark.parametrize("protocol", ["one_message", *later("trained")])
def test_contexts_without_a_bound_need_a_site_that_says_so(trial, protocol):
    made = trial(telling=Telling(1e6), fast={"protocol": protocol}).run()
    assert isinstance(made.outcome["party_1"], ToldTooMuchError)
    made = trial(fast={"protocol": protocol}, name="allowed").finish()
    report = told_report(made.sites["party_1"])
    assert report["bits of every record, by receiver"] == {"party_2": "inf"}


def test_what_was_told_long_ago_is_forgiven(tmp_path, monkeypatch):
    site = Site("a", tmp_path, telling=Telling(10.0, days=30))
    monkeypatch.setattr("time.strftime", lambda _: "2020-01-01T00:00:00+0000")
    book(site, "one", "s", {"b": 9.0})
    monkeypatch.undo()
    assert told_bits(site) == {}
    book(site, "two", "s", {"b": 9.0})
    book(site, "two", "s", {"b": 9.0})  # the same snapshot
    assert told_bits(site) == {"b": 9.0}
    with pytest.raises(ToldTooMuchError):
        book(site, "three", "s", {"b": 9.0})


def test_a_clock_that_was_set_back_forgives_nothing(tmp_path, monkeypatch):
    site = Site("a", tmp_path, telling=Telling(10.0, days=30))
    trail.append(site.folder, "approved", {})
    monkeypatch.setattr("time.strftime", lambda _: "1970-01-01T00:00:09+0000")
    book(site, "one", "s", {"b": 9.0})
    assert told_bits(site) == {"b": 9.0}
    with pytest.raises(ToldTooMuchError):
        book(site, "two", "s", {"b": 9.0})
    monkeypatch.setattr("time.strftime", lambda _: "2999-01-01T00:00:00+0000")
    trail.append(site.folder, "approved", {})
    assert told_bits(site) == {"b": 9.0}


def test_any_number_of_days_can_be_counted(tmp_path):
    site = Site("a", tmp_path, telling=Telling(10.0, days=10**9))
    book(site, "one", "s", {"b": 9.0})
    assert told_bits(site) == {"b": 9.0}
