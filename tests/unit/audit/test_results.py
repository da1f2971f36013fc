"""What an audit says, in numbers and in words."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from vflsynth.adversary.intervals import most_epsilon
from vflsynth.audit import Attack, AuditReport, Claim, Criteria, Disclosure, TargetAudit
from vflsynth.audit.game import THREAT_MODELS
from vflsynth.audit.observers import _as_numbers, weakest_claim
from vflsynth.evaluation import report
from vflsynth.privacy import GaussianRelease, LedgerEntry, NeighbouringRelation, PrivacyLedger


def attack(
    separation: float, n: int = 30, *, training_auc: float = 0.5, name: str = "naive"
) -> Attack:
    """Tell n members from as many others, whose scores are normal and lower by `separation`."""
    rng = np.random.default_rng(0)
    is_member = np.repeat([True, False], n)
    scores = rng.normal(size=2 * n) + separation * is_member
    return Attack.judge(
        name,
        "random forest",
        scores,
        is_member,
        boundary=separation / 2,
        training_scores=scores,
        training_members=is_member,
        training_auc=training_auc,
        delta=0.0,
        confidence=0.95,
        bound_confidence=0.95,
    )


def _audit(*attacks: Attack, claim: Claim | None = None) -> AuditReport:
    target = TargetAudit(17, ("farthest",), "synthetic data", attacks)
    return AuditReport(
        "ASSD", THREAT_MODELS["ASSD"], (target,), 60, 1599, 0.95, claim, 1.0, 1.0, 180
    )


def test_a_successful_attack_is_called_so():
    audit = _audit(attack(6.0), claim=Claim(0.5))
    text = str(audit)
    assert "can tell whether record 17 was used" in text
    assert "contradicts the claimed ε = 0.5" in text
    assert audit.contradicts_claim
    assert audit.targets[0].strongest.epsilon <= audit.epsilon_ceiling


@pytest.mark.parametrize("separation", [0.0, -0.3])
def test_an_attack_that_fails_is_never_called_safety(separation):
    audit = _audit(attack(separation), claim=Claim(1.0))
    for text in (str(audit), audit.to_json(), audit.page().html):
        assert "no proof" in text
        assert "not contradicted; an audit cannot confirm it" in text
        for forbidden in ("no risk", "is safe", "is private", "no leak", "protected"):
            assert forbidden not in text.lower()


def test_the_strongest_attack_is_chosen_by_training_models_only():
    """Choosing by test results would make the best of several failures look like a success."""
    lucky, chosen = attack(2.0, training_auc=0.5), attack(0.0, training_auc=0.6)
    assert _audit(lucky, chosen).targets[0].strongest is chosen


def test_perfect_attacks_reach_the_ceiling():
    audit = _audit(attack(50.0))
    assert audit.targets[0].strongest.epsilon == pytest.approx(audit.epsilon_ceiling)


def test_a_claim_about_other_tables_is_neither_contradicted_nor_supported():
    audit = _audit(attack(6.0), claim=Claim(0.1, relation="replace_one"))
    assert not audit.contradicts_claim
    assert "one record across all parties, replaced) is about other tables" in str(audit)
    assert "contradicts" not in str(audit)


class Model:
    """What a mechanism of which a proof has a gap says."""

    release = GaussianRelease("sum", "a", 2.0, 1.0, NeighbouringRelation.ADD_OR_REMOVE_ONE)
    privacy_ledger_ = PrivacyLedger(
        "m", "c", True, 1e-3, (LedgerEntry("training", release),), condition="conditional on a gap"
    )


def test_what_a_claim_depends_on_is_said_with_it():
    claim = Claim.of_model(Model())
    assert claim.condition == "conditional on a gap"
    audit = _audit(attack(0.0), claim=claim)
    words = "added or removed; CONDITIONAL ON A GAP)"
    assert words in str(audit)
    assert json.loads(audit.to_json())["claim"]["condition"] == "conditional on a gap"
    assert audit.page().html.count(words) >= 3  # facts, picture, conclusion
    plain = Claim(claim.epsilon, claim.delta)
    assert str(plain) == str(claim).replace("; CONDITIONAL ON A GAP", "")


def test_the_claim_of_models_is_conditional_if_that_of_one_is():
    claim = Claim.of_model(Model())
    plain = replace(claim, condition="")
    worlds = [{name: x[None] for name, x in _as_numbers(each).items()} for each in (plain, claim)]
    assert weakest_claim(worlds[:1]) == plain
    assert weakest_claim(worlds) == replace(
        claim, condition="conditional, as the models' ledgers say"
    )


def test_bounds_of_several_targets_hold_at_once():
    """With 5 % for both, each gets 2.5 %."""
    both = _audit(attack(50.0))
    both = replace(both, targets=both.targets * 2)
    assert both.bound_confidence == pytest.approx(0.975)
    assert both.epsilon_ceiling == pytest.approx(most_epsilon(30, 30, confidence=0.975))
    assert "95% confidence in all 2 audits at once" in str(both)


def test_json_has_every_number_and_no_nan():
    content = json.loads(_audit(attack(1.0), claim=Claim(2.0, 1e-5)).to_json())
    found = content["targets"][0]["attacks"][0]
    assert set(found["accuracy"]) == {"value", "low", "high", "confidence"}
    assert found["n_test"] == 60
    assert content["claim"] == {
        "epsilon": 2.0,
        "delta": 1e-5,
        "relation": "add_or_remove_one",
        "condition": "",
    }
    assert content["relation"] == "add_or_remove_one"
    assert content["chance"] == {"accuracy": 0.5, "auc": 0.5, "tpr": {"0.01": 0.01, "0.1": 0.1}}


def test_the_page_stands_alone(tmp_path):
    audit = _audit(attack(1.0), attack(0.5, name="<script>"), claim=Claim(1.0))
    page = audit.page("Audit <b>")
    assert "<script>" not in page.html
    assert "&lt;script&gt;" in page.html
    assert "Audit &lt;b&gt;" in page.html
    assert "http" not in page.html.replace("http-equiv", "")
    assert page.save(tmp_path / "audit.html").read_text(encoding="utf-8") == page.html
    assert audit._repr_html_().startswith("<iframe")
    assert page.html == audit.page("Audit <b>").html


def test_the_audit_joins_the_evaluation_report():
    import pandas as pd

    table = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)), columns=["a", "b"])
    audit = _audit(attack(1.0))
    page = report(table, table, audit=audit).html
    assert str(audit.section()) in page
    assert "What the synthetic table tells about single records" in page


def test_the_headline_and_the_page_tell_what_the_questions_found():
    exposed, not_shown = (
        Disclosure.of_counts("attribute inference", (k, 100), (200, 200), 0.5, 0.95, column)
        for k, column in ((190, 3), (100, "<b>"))
    )
    criteria = Criteria((exposed, not_shown), 200, 200, 0.95)
    audit = replace(_audit(attack(0.0)), criteria=criteria)
    assert audit.headline.endswith("exposes records to attribute inference of 3.")
    assert "no proof" in audit.headline
    answers = json.loads(audit.to_json())["criteria"]
    assert [answer["column"] for answer in answers] == [3, "<b>"]
    assert [answer["shown"] for answer in answers] == [True, False]
    assert answers[0]["excess_low"] > 0.3
    html = audit.page().html
    assert "Not shown to be exposed" in html
    assert "&lt;b&gt;" in html
    assert "<b>" not in html


def test_what_a_claim_allows_at_most():
    fpr, tpr = Claim(np.log(3), 0.1).roc()
    assert tpr[0] == pytest.approx(0.1)
    i = int(np.flatnonzero(np.isclose(fpr, 0.2))[0])
    assert tpr[i] == pytest.approx(min(3 * 0.2 + 0.1, 1 - (1 - 0.2 - 0.1) / 3))
    assert tpr[-1] == 1.0
    assert (np.diff(tpr) >= 0).all()
