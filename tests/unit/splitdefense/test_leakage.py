"""Attacks and report: they find what is there, find nothing where nothing is, and never certify."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm
from sklearn.base import clone
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from vflsynth.columns.base import OutputSpan
from vflsynth.exceptions import ParameterError
from vflsynth.splitdefense import (
    MID,
    DistanceCorrelation,
    LeakageMonitor,
    MarvellClassifier,
    RandomizedResponse,
    SplitNNClassifier,
    column_attacks,
    leakage_report,
)
from vflsynth.splitdefense.leakage import columns, monitor
from vflsynth.splitdefense.leakage.attacks import transcript_attacks
from vflsynth.splitdefense.leakage.base import (
    BATCH_ATTACKS,
    BATCH_MEASURES,
    auc,
    batch_measures,
    class_medians,
    fold,
    guess_auc,
    total_variation,
)
from vflsynth.splitdefense.leakage.monitor import Evidence, LeakageRecord, pooled, residual


@pytest.fixture(autouse=True, scope="module")
def _short_attacks(short_attacks):
    """What gradient matching and bottom models completed by descent find is not asked here."""


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


# -- scores --------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=40))
def test_auc_is_scikit_learns(pairs):
    scores = torch.tensor([float(s) for s, _ in pairs])
    positive = torch.tensor([p for _, p in pairs])
    if bool(positive.all()) or not bool(positive.any()):
        assert bool(torch.isnan(auc(scores, positive)))
        return
    expected = roc_auc_score(positive.numpy(), scores.numpy())
    assert float(auc(scores, positive)) == pytest.approx(expected, abs=1e-6)
    guess = scores > 0
    balanced = balanced_accuracy_score(positive.numpy(), guess.numpy())
    assert float(guess_auc(guess, positive)) == pytest.approx(balanced, abs=1e-6)


@pytest.mark.parametrize("share", [0.394, 0.221, 0.5])
def test_median_threshold_on_a_separable_gradient(share):
    """1 - (1/2 - p) / (2 (1 - p)): the .91, .82 and 1.00 of GAFM's table 1."""
    n = 10_000
    positive = (torch.arange(n) < round(share * n)).unsqueeze(0)
    gradients = torch.where(positive, -1.0, 1.0).unsqueeze(-1) + torch.linspace(0, 0.5, n).view(
        1, n, 1
    )
    found = dict(zip(BATCH_ATTACKS, batch_measures(gradients, gradients, positive)[:, 0].tolist()))
    assert found["median_threshold"] == pytest.approx(
        1 - (0.5 - share) / (2 * (1 - share)), abs=1e-3
    )
    for attack in ("mean_threshold", "mean", "direction"):
        assert found[attack] == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("dim", [1, 6])
def test_batch_attacks_on_known_gradients(dim):
    positive = torch.rand(1, 4000, generator=generator()) < 0.4
    noise = torch.randn(1, 4000, dim, generator=generator(1))
    leaky = 1e-3 * noise
    leaky[..., 0] += positive.float() - 0.4
    nothing = dict(zip(BATCH_ATTACKS, batch_measures(noise, noise, positive)[:, 0].tolist()))
    everything = dict(zip(BATCH_ATTACKS, batch_measures(leaky, leaky, positive)[:, 0].tolist()))
    assert max(nothing.values()) < 0.56, nothing
    assert min(v for k, v in everything.items() if k != "median_threshold") > 0.99, everything


def test_only_the_hint_is_clean():
    positive = torch.rand(1, 4000, generator=generator()) < 0.4
    clean = torch.zeros(1, 4000, 6)
    clean[..., 0] = positive.float() - 0.4
    sent = clean + torch.randn(clean.shape, generator=generator(1))
    first = int(positive[0].nonzero()[0])
    cosine = torch.nn.functional.cosine_similarity(sent[0], clean[0, first], dim=1)
    expected = roc_auc_score(positive[0].numpy(), cosine.numpy())
    found = dict(zip(BATCH_ATTACKS, batch_measures(sent, clean, positive)[:, 0].tolist()))
    assert found["cosine"] == pytest.approx(expected, abs=1e-4)
    unaware = batch_measures(sent, sent, positive)[:, 0].tolist()
    for attack, value in zip(BATCH_ATTACKS, unaware):
        assert (value == pytest.approx(found[attack], abs=1e-6)) == (attack != "cosine"), attack


def test_batch_attacks_follow_rotations_and_signs():
    positive = torch.rand(1, 500, generator=generator()) < 0.4
    gradients = torch.randn(1, 500, 4, generator=generator(1)) + positive.unsqueeze(-1)
    rotation = torch.linalg.qr(torch.randn(4, 4, generator=generator(2)))[0]
    turned = -gradients @ rotation
    medians = {"median"}  # taken per coordinate
    for name, a, b in zip(
        BATCH_MEASURES,
        batch_measures(gradients, gradients, positive)[:, 0],
        batch_measures(turned, turned, positive)[:, 0],
    ):
        assert name in medians or float(a) == pytest.approx(float(b), abs=5e-3), name


@pytest.mark.parametrize("shift", [0.0, 1.0, 3.0])
def test_histogram_distance_has_no_bias(shift):
    """Two normals: 2 Phi(shift / 2) - 1. A plain histogram of as many records reads .10 for 0."""
    positive = torch.rand(400, 1028, generator=generator()) < 0.4
    scores = torch.randn(400, 1028, generator=generator(1)) + shift * positive
    found = total_variation(scores, positive)
    truth = 2 * norm.cdf(shift / 2) - 1
    noise = float(found.std()) / 400**0.5
    assert float(found.mean()) < truth + 4 * noise
    assert float(found.mean()) > truth - 0.04 - 4 * noise, "errs low, but not by much"
    monotone = total_variation(scores.exp(), positive)
    assert torch.allclose(monotone, found), "only the order counts"
    one = total_variation(scores[0], positive[0])
    assert float(one) == pytest.approx(float(found[0]))


@pytest.mark.parametrize("n_positive", [1, 2, 4, 64])
def test_histogram_distance_has_no_bias_where_a_class_is_rare(n_positive):
    """A half that has no record of a class says nothing, and not that the classes differ."""
    positive = torch.rand(4000, 128, generator=generator()).argsort(1) < n_positive
    found = total_variation(torch.randn(4000, 128, generator=generator(1)), positive)
    found = found[~found.isnan()]
    if n_positive == 1:
        assert not len(found)
    else:
        assert abs(float(found.mean())) < 4 * float(found.std()) / len(found) ** 0.5


@pytest.mark.parametrize("n", [16, 32, 64])
def test_histogram_distance_of_small_batches_sees_classes_that_do_not_overlap(n):
    positive = torch.rand(400, n, generator=generator()).argsort(1) < n // 2
    scores = positive + 0.1 * torch.rand(400, n, generator=generator(1))
    assert float(total_variation(scores, positive).nanmean()) > 0.99
    positive = torch.rand(400, n, generator=generator()) < 0.5  # one bin then has both
    scores = positive + 0.1 * torch.rand(400, n, generator=generator(1))
    assert float(total_variation(scores, positive).nanmean()) > 0.8


@pytest.mark.parametrize("n", [7, 8, 32])
def test_medians_of_attacks_are_medians(n):
    """Of an even number of values, the mean of the middle ones."""
    gradients = torch.randn(2, n, 3, generator=generator())
    positive = torch.arange(n).expand(2, n) < n // 2
    expected = [np.median(gradients[:, own].numpy(), axis=1) for own in (~positive[0], positive[0])]
    assert np.allclose(class_medians(gradients, positive).numpy(), np.stack(expected, 1))
    leak = torch.where(positive, -1.0, 1.0).unsqueeze(-1) + torch.linspace(0, 0.5, n).view(1, n, 1)
    found = dict(zip(BATCH_ATTACKS, batch_measures(leak, leak, positive)[:, 0].tolist()))
    assert n % 2 or found["median_threshold"] == 1.0


def test_histogram_distance_of_ties():
    positive = torch.arange(100) < 50
    assert float(total_variation(torch.zeros(100), positive)) == 0.0
    assert float(total_variation(positive.float(), positive)) == 1.0
    assert bool(total_variation(torch.zeros(100), positive & False).isnan())


# -- the monitor ---------------------------------------------------------------------------------


def record(n_records=10, dim=2, n_replicas=2, **options):
    return LeakageRecord(
        LeakageMonitor(**{"every": 1} | options),
        labels=torch.arange(n_records) % 2,
        dim=dim,
        n_replicas=n_replicas,
        n_classes=2,
        scalar_probability=False,
        steps_per_epoch=1,
    )


def test_running_sums_are_what_a_log_would_give():
    kept = record()
    log = {}
    for step in range(30):
        rows = torch.stack([torch.randperm(10, generator=generator(s))[:6] for s in (step, -step)])
        sent = torch.randn(2, 6, 2, generator=generator(step))
        kept.add(step, rows, sent, sent, sent)
        for replica in range(2):
            scaled = sent[replica] / sent[replica].square().mean().sqrt()
            for row, value in zip(rows[replica].tolist(), scaled):
                log.setdefault((replica, row), []).append(value)
    for replica in range(2):
        found = kept.per_record(replica)
        mean, last = found["mean_gradients"], found["last_gradients"]
        for row in range(10):
            values = torch.stack(log[replica, row])
            assert mean[row] == pytest.approx(values.mean(0).numpy(), abs=1e-5)
            assert last[row] == pytest.approx(values[-1].numpy(), abs=1e-6)
    assert list(kept.batches(0)["epoch"]) == list(range(1, 31))


def test_signs_and_snapshots_are_kept_and_resumed():
    kept, sent, snapshots = record(n_replicas=1), [], {}
    for step in range(5):
        outputs, gradients = torch.randn(2, 1, 10, 2, generator=generator(step)).unbind()
        kept.add(step, torch.arange(10)[None], outputs, gradients, gradients)
        unit = gradients.square().mean().sqrt()
        sent.append(residual(gradients / unit, outputs, scalar_probability=False)[0].sign())
        snapshots[step + 1] = outputs[0]
    resumed = record(n_replicas=1)
    resumed.load_state(kept.state())
    for one in (kept, resumed):
        found = one.per_record(0)
        assert found["signs"] == pytest.approx(torch.stack(sent).mean(0).numpy())
        expected = torch.cat([snapshots[epoch] for epoch in (1, 2, 4)], 1).numpy()
        assert (found["snapshots"] == expected).all()


def test_taking_note_of_many_messages_at_once_changes_nothing(monkeypatch):
    kept = {}
    monkeypatch.setattr(monitor, "EARLY_EPOCHS", 4)
    for block in (1, 10**9):
        monkeypatch.setattr(monitor, "_BLOCK", block)
        kept[block] = record(every=2)
        for step in range(9):
            rows = torch.stack([torch.randperm(10, generator=generator(s)) for s in (step, -step)])
            features, sent = torch.randn(2, 2, 10, 2, generator=generator(step)).unbind()
            kept[block].add(step, rows, features, sent, sent)
    one_by_one, together = kept.values()
    for replica in range(2):
        found = together.per_record(replica)
        for name, expected in one_by_one.per_record(replica).items():
            if name in ("snapshots", "last_gradients", "last_features"):
                assert (found[name] == expected).all()
            else:  # an average
                assert found[name] == pytest.approx(expected, abs=1e-5)
        pd.testing.assert_frame_equal(together.batches(replica), one_by_one.batches(replica))


def test_single_class_batches_are_left_out():
    kept = record(n_replicas=1)
    rows = torch.arange(6).unsqueeze(0)
    sent = torch.randn(1, 6, 2, generator=generator())
    kept.add(0, 2 * (rows % 3), sent, sent, sent)
    kept.add(1, rows, sent, sent, sent)
    assert list(kept.batches(0)["epoch"]) == [2]


def test_residual_takes_out_what_outputs_explain():
    outputs = torch.rand(1, 400, 1, generator=generator())
    labels = (torch.rand(1, 400, 1, generator=generator(1)) < 0.5).float()
    explained = outputs**3 - 2 * outputs
    gradients = explained + 1e-3 * labels
    left = residual(gradients, outputs, scalar_probability=False)
    assert float(auc(left[..., 0], labels[..., 0] == 1)) == 1.0
    assert float(fold(auc(gradients[..., 0], labels[..., 0] == 1))) < 0.6


def test_outputs_of_few_different_records_are_no_singular_matrix():
    rng = torch.Generator().manual_seed(0)
    for _ in range(200):
        which = torch.randint(5, (60,), generator=rng)
        outputs = torch.randn(1, 5, 32, generator=rng)[:, which]
        gradients = torch.randn(1, 60, 32, generator=rng)
        left = residual(gradients, outputs, scalar_probability=False)
        assert left.square().sum() < gradients.square().sum()


def test_a_batch_of_one_record_is_explained_but_for_the_ridge():
    left = residual(torch.ones(2, 1, 3), torch.randn(2, 1, 3), scalar_probability=False)
    assert left.isfinite().all()
    assert left.abs().max() < 1e-2


# -- the report ----------------------------------------------------------------------------------


OPTIONS = {"active": "bank", "epochs": 25, "learning_rate": 3e-3, "random_state": 0}


@pytest.fixture(scope="module")
def fitted(tables):
    return SplitNNClassifier(**OPTIONS).fit(*tables, on="id")


@pytest.fixture(scope="module")
def plain(fitted):
    return leakage_report(fitted)


@pytest.fixture(scope="module")
def reports(tables, plain):
    protected = {
        "Marvell": MarvellClassifier(power_scale=16.0, **OPTIONS),
        "label privacy": SplitNNClassifier(label_privacy=RandomizedResponse(0.1), **OPTIONS),
    }
    others = {name: leakage_report(c.fit(*tables, on="id")) for name, c in protected.items()}
    return {"plain": plain, **others}


@pytest.mark.slow
def test_report_shows_each_method_failing_where_it_fails(reports):
    plain = reports["plain"].to_frame()
    message = plain[(plain["sees"] == "one message") & (plain["attack"] == "direction")]
    assert (message["value"] > 0.95).all()

    marvell = reports["Marvell"]
    found = marvell.to_frame().query("measure != 'balanced accuracy'")
    found = found.drop_duplicates(["party", "sees", "attack", "knows"])
    found = found.set_index(["party", "sees", "attack", "knows"])["value"]
    for party in ("shop", "web"):
        one = found[party, "one message", "direction", "set up with all labels"]
        averaged = found[party, "whole training", "averaging", "40 labels"]
        alone = found[party, "whole training", "forward output", "40 labels"]
        assert one < 0.68, "a message is protected"
        assert averaged > alone, "averaging over epochs undoes it"
    assert any("says nothing about several messages" in s for s in marvell.sentences)

    private = reports["label privacy"].to_frame()
    gradients = private[(private["sees"] == "whole training") & (private["knows"] == "no label")]
    looks_at_outputs = "forward output|joint|posterior|simulation"
    gradients = gradients[~gradients["attack"].str.contains(looks_at_outputs)]
    assert (gradients["value"] < 0.62).all(), "ε = .1 leaves nothing to find"


@pytest.mark.parametrize("seed", [None, -1, 2**70])
def test_a_seed_is_a_whole_number(plain, seed):
    with pytest.raises(ParameterError, match="leakage_report: random_state must be"):
        leakage_report(plain.classifier, random_state=seed)


def test_gradients_that_an_objective_made_noisy_are_not_called_unperturbed(plain):
    noisy = copy.copy(plain.classifier).set_params(objective=MID())
    assert noisy.evidence_ == {}  # which has labels, and goes into no copy and no pickle
    noisy.evidence_ = plain.classifier.evidence_
    reports = plain, dataclasses.replace(plain, classifier=noisy)
    said = ["Neither gradients nor labels were perturbed." in r.sentences for r in reports]
    assert said == [True, False]


def test_headline_does_not_round_a_gain_to_nothing(plain):
    frame = plain.to_frame().assign(disclosed=0.0, verdict="held")
    assert "None of the attacks" in dataclasses.replace(plain, frame=frame).headline
    frame.loc[frame["attack"] == "averaging", "disclosed"] = 0.14
    headline = dataclasses.replace(plain, frame=frame).headline
    assert "less than 15%" in headline
    assert "averaging (whole training) 14%" in headline


def test_the_first_sentence_names_the_worst_column_beside_labels(plain):
    first = plain.headline.split(". ")[0]
    frame = plain.to_frame().query("sees == 'outputs at the cut' and column != ''")
    worst = frame.loc[frame["disclosed"].idxmax()]
    assert "attacks disclose labels" in first
    assert f"{worst['column']!r} of {worst['party']} is read best" in first
    assert f"{worst['attack']}, {worst['knows']} known" in first


def test_gradients_at_the_first_layer_tell_labels_too(plain):
    frame = plain.to_frame().query("sees == 'first layer'")
    assert set(frame["attack"]) == {"norm", "cosine"}
    assert frame.query("attack == 'cosine'")["value"].min() > 0.8


def test_the_card_shows_the_attack_that_came_nearest(plain):
    """Nothing is disclosed by any of them, but one is not as far from it as the others."""
    frame = plain.to_frame().assign(disclosed=0.0, verdict="held", gain=-0.4)
    rows = frame.index[frame["sees"] == "one message"]
    frame.loc[rows[3], "gain"] = -0.01
    page = dataclasses.replace(plain, frame=frame)
    nearest = frame.loc[rows[3]]
    assert f"{nearest['measure']} of {nearest['attack']} at {nearest['party']};" in page.html


def assert_outputs_are_shown(report):
    assert "Without any gradient, outputs of" in report.headline
    assert "Do a party&#39;s outputs alone tell labels?" in report.html
    own = report.to_frame().query("sees == 'own outputs'")
    assert set(own["party"]) == {"shop", "web", "all passive parties together"}
    assert "baseline" not in set(own["verdict"])


def test_outputs_alone_reach_the_headline_and_a_card(plain):
    assert_outputs_are_shown(plain)


def assert_it_never_certifies(report):
    text = " ".join([report.headline, *report.sentences, report.html]).lower()
    assert "certifies nothing" in text
    for word in ("is safe", "is secure", "guaranteed", "no risk"):
        assert word not in text


def test_report_never_certifies(plain):
    assert_it_never_certifies(plain)


@pytest.mark.slow
def test_neither_do_reports_of_protected_classifiers(reports):
    for report in reports.values():
        assert_outputs_are_shown(report)
        assert_it_never_certifies(report)


def hidden(n: int = 1500, share: float = 0.12, apart: float = 6.0) -> Evidence:
    """Averaged gradients whose classes are apart where little is left of a much larger noise."""
    rng = np.random.default_rng(0)
    labels = (rng.random(n) < share).astype(np.int64)
    noise = rng.normal(size=(n, 4)) * [30.0, 10.0, 1.0, 1.0]
    gradients = (noise + apart * labels[:, None] * [0, 0, 1, 0]).astype(np.float32)
    blind = rng.normal(size=(n, 4)).astype(np.float32)
    return Evidence(
        "party", labels, 2, blind, blind, blind, gradients, blind, blind, blind, blind, blind,
        blind[:, :0], gradients, blind, (), pd.DataFrame(columns=["epoch", *BATCH_MEASURES]),
    )  # fmt: skip


def test_joint_attacks_find_what_neither_outputs_nor_gradients_tell():
    """Both have the same large noise, their difference is the label; noise alone tells nothing."""
    rng = np.random.default_rng(3)
    one = hidden()
    noise = rng.normal(size=(len(one.labels), 1)) * 5.0
    rest = rng.normal(size=noise.shape) * 0.2
    told = dataclasses.replace(
        one,
        features=noise.astype(np.float32),
        mean_gradients=(noise + rest + 2.0 * one.labels[:, None]).astype(np.float32),
    )
    for evidence, least, most in ((told, 0.95, 1.0), (hidden(apart=0.0), 0.5, 0.6)):
        found = transcript_attacks(evidence).query("knows == 'no label'")
        found = found.set_index("attack")["value"]
        assert found["forward output"] < 0.6
        assert found["averaging"] < 0.65
        for attack in ("joint mixture, averaging", "joint mixture of directions, averaging"):
            assert least <= found[attack] <= most, attack


def test_a_posterior_tells_more_than_either_of_its_parts():
    rng = np.random.default_rng(4)
    one = hidden(share=0.5)
    labels = one.labels[:, None]
    kept = (labels == 1) ^ (rng.random(labels.shape) > 0.73)  # a randomised label
    outputs = 2.0 * labels + rng.normal(size=labels.shape)
    evidence = dataclasses.replace(
        one,
        features=outputs.astype(np.float32),
        mean_gradients=(kept + 0.05 * rng.normal(size=labels.shape)).astype(np.float32),
    )
    found = transcript_attacks(evidence).query("knows == 'no label'").set_index("attack")["value"]
    best = roc_auc_score(one.labels, 2.0 * outputs + np.log(0.73 / 0.27) * (2.0 * kept - 1.0))
    parts = found[["forward output", "averaging", "mixture, averaging"]]
    assert parts.max() + 0.01 < found["posterior, averaging"]
    assert found["posterior, averaging"] == pytest.approx(best, abs=0.01)


def crossed(leak: float, n: int = 900) -> Evidence:
    """Columns (a number, three categories), of which outputs may be a linear function."""
    rng = np.random.default_rng(5)
    codes = rng.integers(3, size=n)
    encoded = np.column_stack([rng.normal(size=n), np.eye(3)[codes]]).astype(np.float32)
    mixed = leak * encoded @ rng.normal(size=(4, 6)) + 0.1 * rng.normal(size=(n, 6))
    spans = (
        OutputSpan(0, 1, "identity", "age", "value"),
        OutputSpan(1, 3, "softmax", "town", "category"),
    )
    outputs = mixed.astype(np.float32)
    blind = rng.normal(size=(n, 2)).astype(np.float32)
    return dataclasses.replace(
        hidden(n), encoded=encoded, snapshots=outputs, features=outputs, beside=blind, spans=spans
    )


@pytest.mark.slow
def test_columns_are_read_where_outputs_tell_them_and_nowhere_else(monkeypatch):
    monkeypatch.setattr(columns, "_STEPS", 300)
    monkeypatch.setattr(columns, "_TREES", 40)
    told = column_attacks(crossed(1.0)).set_index(["attack", "knows", "measure"])
    kept = column_attacks(crossed(0.0))
    for attack in ("ridge inversion", "boosted trees", "generative regression"):
        assert told["gain"][attack, "400 records", "R²"] > 0.75, attack
    for attack in ("attribute inference", "boosted trees", "generative regression"):
        assert told["gain"][attack, "400 records", "accuracy"] > 0.4, attack
    assert told["gain"]["ridge inversion", "40 records", "R²"] > 0.75
    assert told["column"]["attribute inference", "400 records", "accuracy"] == "town"
    assert kept["gain"].max() < 0.06
    monkeypatch.setattr(columns, "_STEPS", 1)  # there is nothing to find
    monkeypatch.setattr(columns, "_TREES", 1)
    few = column_attacks(crossed(1.0, n=300))
    assert few.query("knows == '400 records'")["gain"].isna().all()


def test_a_mixture_finds_what_the_first_direction_does_not():
    found = transcript_attacks(hidden()).query("knows == 'no label'").set_index("attack")["value"]
    assert found["averaging"] < 0.6
    assert found["mixture, averaging"] > 0.95
    assert found["mixture, residual"] < 0.6, "there is nothing in them"


def test_rare_classes_are_judged_by_more_than_accuracy():
    """One class in eight: naming the other one is right in 88 %."""
    few = transcript_attacks(hidden(apart=2.0)).query("attack == 'averaging'")
    few = few[few["knows"].str.endswith("labels")].set_index("measure")
    assert few["gain"]["AUC"] > 0.2
    assert few["gain"]["balanced accuracy"] > 0.2
    assert few["baseline"][["AUC", "balanced accuracy"]].between(0.4, 0.6).all()


@pytest.mark.slow
def test_parties_that_pool_what_they_have_know_more():
    """Each has noise of its own beside the same difference."""
    rng = np.random.default_rng(1)
    one = hidden(share=0.5)
    labels = one.labels[:, None]
    members = [
        dataclasses.replace(
            one,
            mean_gradients=(rng.normal(size=(1500, 1)) + 1.5 * labels).astype(np.float32),
            last_features=one.last_features[:, :1],
        )
        for _ in range(5)
    ]
    alone, together = (
        transcript_attacks(e).set_index(["attack", "knows"])["value"]["averaging", "no label"]
        for e in (members[0], pooled(members, "all"))
    )
    assert alone == pytest.approx(norm.cdf(1.5 / np.sqrt(2)), abs=0.03)
    assert together == pytest.approx(norm.cdf(1.5 * np.sqrt(5) / np.sqrt(2)), abs=0.03)


@pytest.mark.slow
def test_same_evidence_same_bytes(fitted, plain):
    assert leakage_report(fitted).html == plain.html


def test_report_is_one_page_without_network(plain, tmp_path):
    html = plain.save(tmp_path / "leak.html").read_text(encoding="utf-8")
    for outside in ("http://", "https://", "<script"):
        assert outside not in html
    assert html.count("<img") == 4
    for row in plain.to_frame().itertuples():
        assert row.attack in html


def test_report_needs_evidence(tables):
    frames, y = tables
    silent = SplitNNClassifier(active="bank", monitor=False, epochs=1).fit(frames, y, on="id")
    with pytest.raises(ParameterError, match="monitor=True"):
        leakage_report(silent)
    told = SplitNNClassifier(active="bank", classes=[0, 1], epochs=1, random_state=0)
    with pytest.raises(ParameterError, match="have one label"):
        leakage_report(told.fit(frames, np.zeros_like(y), on="id"))


def small_report(labels, **columns):
    rng = np.random.default_rng(0)
    frames = {
        "active": pd.DataFrame({"a": rng.normal(size=len(labels))}),
        "tom & jerry's": pd.DataFrame({"b": rng.normal(size=len(labels))}).assign(**columns),
    }
    classifier = SplitNNClassifier(active="active", epochs=2, random_state=0).fit(frames, labels)
    return leakage_report(classifier)


@pytest.fixture(scope="module")
def constant():
    """The report of a passive party whose only column does not vary."""
    return small_report(np.arange(60) % 2, b=1.0)


def test_party_names_are_escaped(constant):
    assert "tom &amp; jerry" in constant.html
    assert "tom & jerry" not in constant.html


def test_columns_without_variation_are_no_floor(constant):
    frame = constant.to_frame()
    assert frame[["value", "baseline", "gain"]].notna().all(axis=None)
    assert "not applicable" not in set(frame["verdict"])
    assert "Verdict" in constant.html


def test_the_only_column_of_a_party_is_attacked():
    found = small_report(np.arange(100) % 2).to_frame().query("attack == 'ridge inversion'")
    assert set(found["knows"]) == {"40 records", "400 records"}
    assert found.query("knows == '40 records'")["value"].notna().all()


@pytest.mark.filterwarnings("ignore:The number of unique classes")
def test_attacks_that_nothing_is_left_to_measure_on_are_not_applicable():
    """At most 40 records: all labels are known. All distinct: no known class comes again."""
    few, distinct = small_report(np.arange(30) % 2), small_report(np.arange(60))
    for report in (few, distinct):
        frame = report.to_frame()
        left_out = frame["verdict"] == "not applicable"
        assert left_out.equals(frame["gain"].isna())
        with_labels = frame["knows"].str.contains("labels|records")
        with_labels &= frame["sees"] != "one message"
        few_enough = frame["attack"].str.contains("mixture|posterior")
        assert (with_labels | few_enough)[left_out].all()
        assert set(frame[frame["knows"].str.fullmatch(r"\d+ labels")]["verdict"]) == {
            "not applicable"
        }
        for text in (report.html, report.headline, *report.sentences):
            assert ">nan<" not in text
            assert " nan" not in text
        assert "Not applicable" in report.html
    halves = [r.to_frame().query("knows == 'half of the labels'") for r in (few, distinct)]
    assert "not applicable" not in set(halves[0]["verdict"])
    assert set(halves[1]["verdict"]) == {"not applicable"}
    assert any("was not measured" in sentence for sentence in distinct.sentences)


@pytest.mark.slow
def test_many_classes(digits):
    options = {"active": "left", "epochs": 8, "learning_rate": 5e-3, "random_state": 0}
    plain = SplitNNClassifier(**options).fit(*digits)
    quiet = SplitNNClassifier(objective=DistanceCorrelation(0.5), **options).fit(*digits)
    assert set(plain.evidence_["right"].batches.columns) == {"epoch", *BATCH_MEASURES}
    told = [
        transcript_attacks(c.evidence_["right"]).query("attack == 'forward output'")["value"]
        for c in (plain, quiet)
    ]
    assert told[1].iloc[1] < told[0].iloc[1], "the objective makes outputs tell less"


def test_random_labels_leak_nothing_but_gradients():
    """The two anchors: outputs that cannot know labels are at chance, gradients of them are not."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(600, 4)), rng.integers(0, 2, 600)
    classifier = SplitNNClassifier(epochs=4, bottom_hidden=(4,), random_state=0).fit(X, y)
    found = transcript_attacks(classifier.evidence_["party"]).set_index(["attack", "knows"])
    assert found["value"]["forward output", "no label"] < 0.62
    assert found["value"]["averaging", "no label"] > 0.95
    assert found["value"]["residual", "no label"] > 0.95


@pytest.mark.slow
def test_an_attacker_who_simulates_needs_no_true_label():
    """What is chosen on labels made up reads labels that outputs cannot know."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 4)), rng.integers(0, 2, 400)
    classifier = SplitNNClassifier(epochs=4, bottom_hidden=(4,), random_state=0).fit(X, y)
    evidence = classifier.evidence_["party"]
    found = transcript_attacks(evidence, classifier=classifier).query("knows == 'no label'")
    simulated = found[found["attack"].str.contains("simulation")]
    assert len(simulated) == 2
    assert simulated["value"].min() > 0.9
    named = clone(classifier).set_params(label_privacy=RandomizedResponse(5.0), classes=["a", "b"])
    named.fit(X, np.where(y, "b", "a"))
    found = transcript_attacks(named.evidence_["party"], classifier=named)
    assert found["attack"].str.contains("simulation").sum() == 2, "made-up labels are numbers"
    blind = dataclasses.replace(evidence, labels=rng.integers(0, 2, len(evidence.labels)))
    kept = transcript_attacks(blind, classifier=classifier)
    assert kept[kept["attack"].str.contains("simulation")]["value"].max() < 0.6
