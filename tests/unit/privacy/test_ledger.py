import dataclasses
import json
import math

import pytest

from vflsynth.exceptions import ArtefactError, ArtefactVersionError, PrivacyParameterError
from vflsynth.privacy import (
    GaussianRelease,
    LedgerEntry,
    PrivacyLedger,
    SampledRelease,
    WangAccountant,
)


def release(noise_multiplier=1.39, party="lab", relation="replace_one"):
    return GaussianRelease(
        released="first-layer gradient",
        party=party,
        noise_multiplier=noise_multiplier,
        sensitivity=0.1875,
        relation=relation,
    )


def training(*releases):
    return SampledRelease(releases, "without_replacement", 16 / 1599, 15000)


@pytest.fixture
def ledger():
    return PrivacyLedger(
        mechanism="first-layer gradients",
        claim="ε bounds the noisy gradients.",
        covers_synthetic_data=False,
        delta=5e-4,
        target_epsilon=10.0,
        entries=(
            LedgerEntry("preprocessing", release(5.0)),
            LedgerEntry("training", training(release(), release(party="taste"))),
        ),
        protected_against=("nobody",),
        not_protected_against=("recipients", "the server"),
        not_covered=("all other layers", "the choice of the epoch"),
        public=("number of records",),
    )


def test_an_auditor_can_recompute_every_number(ledger):
    data = json.loads(json.dumps(ledger.to_dict(), allow_nan=False))
    read = PrivacyLedger.from_dict(data)
    assert read == ledger
    assert read.epsilons() == pytest.approx(data["reported"]["epsilon"])


def with_one_more(ledger, purpose, event):
    return dataclasses.replace(ledger, entries=(*ledger.entries, LedgerEntry(purpose, event)))


def test_infinite_epsilon_survives_json(ledger):
    bare = with_one_more(ledger, "leak", release(0.0))
    assert bare.epsilon() == math.inf
    data = json.loads(json.dumps(bare.to_dict(), allow_nan=False))
    assert set(data["reported"]["epsilon"].values()) == {"infinite"}
    assert PrivacyLedger.from_dict(data) == bare
    assert bare.shares() == {"preprocessing": 0.0, "training": 0.0, "leak": 1.0}
    assert "ε = infinite" in str(bare)


def test_a_changed_event_changes_epsilon(ledger):
    data = ledger.to_dict()
    data["entries"][1]["event"]["steps"] = 1
    assert PrivacyLedger.from_dict(data).epsilon() < 0.5 * ledger.epsilon()


@pytest.mark.parametrize("name", ["format", "entries", "delta", "mechanism", "not_covered"])
def test_truncated_ledgers_are_refused(ledger, name):
    data = ledger.to_dict()
    del data[name]
    with pytest.raises(ArtefactError):
        PrivacyLedger.from_dict(data)


def test_foreign_and_later_ledgers_are_refused(ledger):
    data = ledger.to_dict()
    with pytest.raises(ArtefactError, match="Not a privacy ledger"):
        PrivacyLedger.from_dict(data | {"format": "something else"})
    with pytest.raises(ArtefactVersionError, match="version 99"):
        PrivacyLedger.from_dict(data | {"version": 99})
    with pytest.raises(ArtefactError):
        PrivacyLedger.from_dict(data | {"delta": 2.0})
    with pytest.raises(ArtefactError, match="neither true nor false"):
        PrivacyLedger.from_dict(data | {"covers_synthetic_data": "no"})


def test_joint_total_and_each_party(ledger):
    only_training = dataclasses.replace(ledger, entries=ledger.entries[1:])
    epsilons = only_training.epsilons()
    assert round(epsilons[WangAccountant().name], 2) == 16.06
    assert only_training.epsilon() == min(epsilons.values())
    assert only_training.epsilon_of_party("lab") == only_training.epsilon_of_party("taste")
    assert only_training.epsilon_of_party("lab") == pytest.approx(9.0233, abs=1e-3)
    assert ledger.epsilon_of_party("lab") > only_training.epsilon_of_party("lab")


def test_forgetting_one_party_is_visible(ledger):
    forgotten = dataclasses.replace(ledger, entries=(LedgerEntry("training", training(release())),))
    assert forgotten.epsilon() < ledger.epsilon()
    assert "taste" not in str(forgotten)
    assert forgotten.parties == ("lab",)
    assert ledger.parties == ("lab", "taste")


def test_shares_of_plain_gaussians_are_exact():
    entries = tuple(
        LedgerEntry(name, release(1.0 / math.sqrt(weight), relation="add_or_remove_one"))
        for name, weight in (("histograms", 0.2), ("features", 0.8))
    )
    ledger = PrivacyLedger(
        mechanism="m", claim="c", covers_synthetic_data=True, delta=1e-5, entries=entries
    )
    assert ledger.shares() == pytest.approx({"histograms": 0.2, "features": 0.8})
    assert list(ledger.epsilons()) == ["Gaussian DP, exact"]


def test_one_screen_that_a_data_protection_officer_can_read(ledger):
    text = str(ledger)
    lines = text.splitlines()
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 96
    for expected in (
        "THIS IS NOT A GUARANTEE FOR THE SYNTHETIC DATA",
        "one record across all parties",
        "differ in one record",
        "NOT protected against",
        "NOT covered",
        "all other layers",
        "Wang et al. 2019, classic conversion",
        "15000 steps",
        "asked for: 10",
        "If batches are known",
        "taste: ε = ",
        "number of records",
    ):
        assert expected in " ".join(text.split()), expected


def test_reported_numbers_are_never_rounded_down(ledger):
    one = PrivacyLedger(
        mechanism="m",
        claim="c",
        covers_synthetic_data=True,
        delta=1e-5,
        entries=(LedgerEntry("x", release(1.0)),),
    )
    shown = float(str(one).split("ε = ")[1].split()[0])
    assert one.epsilon() <= shown < one.epsilon() + 0.01


def test_empty_ledger():
    empty = PrivacyLedger(mechanism="m", claim="c", covers_synthetic_data=True, delta=1e-5)
    assert empty.epsilon() == 0.0
    assert "nothing: ε = 0" in str(empty)
    assert PrivacyLedger.from_dict(empty.to_dict()) == empty


def test_a_ledger_has_one_relation_and_a_delta(ledger):
    with pytest.raises(PrivacyParameterError, match="relation"):
        with_one_more(ledger, "other", release(relation="add_or_remove_one"))
    with pytest.raises(PrivacyParameterError, match="delta"):
        dataclasses.replace(ledger, delta=0.0)


def test_noise_and_condition_are_printed_and_kept(ledger):
    said = dataclasses.replace(ledger, noise="drawn exactly", condition="if a gap is closed")
    text = " ".join(str(said).split())
    assert "Noise drawn exactly" in text
    assert "IF A GAP IS CLOSED" in text
    assert PrivacyLedger.from_dict(json.loads(json.dumps(said.to_dict()))) == said
