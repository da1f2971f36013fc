"""Split classifiers with DP-SGD: what is clipped, how noisy it is, what the ledger says."""

import copy
import importlib
import math
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from vflsynth.exceptions import (
    OwnTableWarning,
    ParameterError,
    PartyNameError,
    PrivacyBudgetError,
    PublishingWarning,
)
from vflsynth.federation.job import check_combination
from vflsynth.frames import read_records
from vflsynth.mechanisms import DPSGD
from vflsynth.privacy import Budget, PrivacyAccount, PublicSchema, Sampler
from vflsynth.splitdefense import (
    DIMIP,
    MaxNorm,
    RandomizedResponse,
    SplitNNClassifier,
)
from vflsynth.splitdefense.leakage.monitor import LeakageMonitor

SCHEMA = PublicSchema(bounds=dict.fromkeys("abcd", (-4.0, 4.0)), dtypes="given")
PUBLIC = {"delta": 1e-5, "n_records": 300, "public_schema": SCHEMA, "preprocessing_share": 0.0}
COLUMNS = {"clinic": ["a", "b"], "lab": ["c", "d"]}


def table(n: int = 300, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 4)).clip(-4, 4), columns=list("abcd"))
    return X, (X["a"] + X["c"] + 0.3 * rng.normal(size=n) > 0).to_numpy().astype(int)


def classifier(mechanism: DPSGD | None = None, **options: object) -> SplitNNClassifier:
    mechanism = mechanism or DPSGD(noise_multiplier=1.0, **PUBLIC)
    defaults = {
        "party_columns": COLUMNS,
        "classes": [0, 1],
        "privacy": mechanism,
        "epochs": 2,
        "batch_size": 50,
        "bottom_hidden": (6,),
        "intermediate_dim": 3,
        "top_hidden": (4,),
        "random_state": 0,
    }
    return SplitNNClassifier(**(defaults | options))


@pytest.fixture
def private():
    """Not imported where tests are collected, by every process: it takes long."""
    return importlib.import_module("vflsynth.splitdefense.private")


@pytest.fixture
def recorded(monkeypatch, private):
    """What every owner clips in every step: gradients per record, and the sum on the grid."""
    found: list[dict[str, object]] = []

    class Recording(private.ExactDPOptimizer):
        def clip_and_accumulate(self) -> None:
            samples = torch.cat([s.flatten(1) for s in self.grad_samples], 1).double()
            super().clip_and_accumulate()
            total = torch.cat([p.summed_grad.flatten() for p in self.params])
            found.append({"optimizer": self, "samples": samples.clone(), "total": total.clone()})

    monkeypatch.setattr(private, "ExactDPOptimizer", Recording)
    return found


def test_gradients_are_those_of_each_records_own_loss(monkeypatch, private):
    """Of all owners, one record at a time, by one network that is not split."""
    owners, batches = {}, []
    original = private.PrivateDescent.step

    def step(self, n_records: int) -> None:
        samples = [p.grad_sample[:n_records].clone() for p in self.parameters]
        weights = [p.detach().clone() for p in self.parameters]
        owners.setdefault(id(self), []).append((samples, weights))
        original(self, n_records)

    def gradients(self, batch) -> dict[str, torch.Tensor]:
        batches.append((batch.labels[0, : batch.n_records].clone(), None))
        return plain(self, batch)

    inputs = []
    forward = private.PerRecordModule.forward

    def seen(self, values: torch.Tensor) -> torch.Tensor:
        inputs.append((id(self), values.detach().clone()))
        return forward(self, values)

    plain = private.PrivateCrossEntropy.gradients
    monkeypatch.setattr(private.PrivateDescent, "step", step)
    monkeypatch.setattr(private.PrivateCrossEntropy, "gradients", gradients)
    monkeypatch.setattr(private.PerRecordModule, "forward", seen)
    classifier(epochs=1).fit(*table())

    (samples_top, weights_top), *_ = next(
        own for own in owners.values() if own[0][1][0].shape[1] == 6
    )
    bottoms = [own[0] for own in owners.values() if own[0][1][0].shape[1] != 6]
    records = [values[0] for _, values in inputs[:2]]
    labels = batches[0][0]

    def network(weights: list[torch.Tensor], values: torch.Tensor) -> torch.Tensor:
        first, bias, second, bias2 = (w[0] for w in weights)
        hidden = nn.functional.leaky_relu(values @ first + bias, 0.01)
        return hidden @ second + bias2

    everything = [*(w for _, w in bottoms), weights_top]
    leaves = [[w.clone().requires_grad_() for w in own] for own in everything]
    found = [s for s, _ in bottoms] + [samples_top]
    for row in range(3):
        features = torch.cat(
            [network(own, x[row : row + 1]) for own, x in zip(leaves, records)], -1
        )
        logit = network(leaves[-1], features)[0, 0]
        loss = nn.functional.binary_cross_entropy_with_logits(logit, labels[row].float())
        expected = torch.autograd.grad(loss, [w for own in leaves for w in own])
        ours = [sample[row] for own in found for sample in own]
        for one, other in zip(ours, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_every_owner_clips_to_c_and_noise_is_for_all_of_them(recorded):
    clf = classifier(DPSGD(noise_multiplier=1.7, max_grad_norm=0.2, **PUBLIC)).fit(*table())
    assert len(recorded) == 3 * 12  # owners times steps
    for step in recorded:
        optimizer, samples = step["optimizer"], step["samples"]
        norms = samples.norm(dim=1, keepdim=True)
        clipped = samples * (0.2 / norms).clamp_max(1.0)
        total = step["total"].double() * optimizer.grid.step
        torch.testing.assert_close(total, clipped.sum(0), rtol=1e-3, atol=1e-4)
        assert optimizer.grid.noise_std == pytest.approx(1.7 * 0.2 * math.sqrt(3), rel=1e-6)
    assert any(bool((step["samples"].norm(dim=1) > 0.2).any()) for step in recorded)
    [entry] = clf.privacy_ledger_.entries
    assert [r.party for r in entry.event.releases] == ["clinic", "lab", "active party"]
    for release in entry.event.releases:
        assert release.sensitivity * release.noise_multiplier == pytest.approx(
            1.7 * 0.2 * math.sqrt(3)
        )


def test_filling_rows_count_for_nothing(recorded):
    classifier(epochs=3).fit(*table())
    sizes = {len(step["samples"]) for step in recorded}
    assert len(sizes) > 3  # Poisson samples
    assert all(15 < size < 90 for size in sizes)  # 50 expected: 1e-7 are beyond


def test_batches_are_poisson_samples_of_a_public_number_and_all_epochs_are_trained(recorded):
    X, y = table(280)
    clf = classifier(epochs=3).fit(X, y)  # n_records says 300
    [entry] = clf.privacy_ledger_.entries
    assert entry.event.sampler is Sampler.POISSON
    assert (entry.event.sample_rate, entry.event.steps) == (50 / 300, 18)
    assert clf.settings_["batch_size"] == 50
    assert clf.settings_["n_held_out"] == 0
    assert list(clf.history_.columns) == []


def test_it_learns_and_says_what_is_not_covered(tmp_path):
    X, y = table(900)
    mechanism = DPSGD(epsilon=8.0, delta=1e-4, n_records=900, public_schema=SCHEMA)
    clf = classifier(mechanism, epochs=12, batch_size=90, learning_rate=0.01).fit(X, y)
    assert clf.score(*table(500, seed=1)) > 0.8
    assert 7.5 < clf.privacy_ledger_.epsilon() <= 8.0
    text = " ".join(str(clf.privacy_ledger_).split())
    assert "recipients of the fitted bottom and top models" in text
    assert "the active party: it sees the bottom models' outputs without noise" in text
    assert "the other parties: they see gradients at their outputs without noise" in text
    assert "which classes there are" in text
    assert "synthetic" not in text
    clf.save(tmp_path / "model")
    loaded = SplitNNClassifier.load(tmp_path / "model")
    assert loaded.alignment_ is None
    clf.transcript_ = pd.DataFrame({"messages": [900]})
    copied = copy.copy(clf)
    assert (copied.alignment_, copied.transcript_) == (None, None)
    assert loaded.privacy_ledger_.epsilon() == clf.privacy_ledger_.epsilon()
    assert np.array_equal(loaded.predict_proba(X), clf.predict_proba(X))


def test_an_active_party_with_columns_owns_two_networks():
    clf = classifier(active="lab").fit(*table())
    [entry] = clf.privacy_ledger_.entries
    words = {(r.party, r.released.rpartition(" of the ")[2]) for r in entry.event.releases}
    assert words == {
        ("clinic", "bottom model"),
        ("lab", "bottom model"),
        ("active party", "top model"),
    }


def test_no_party_may_be_called_like_the_owner_of_the_top_model():
    X, y = table()
    columns = {"active party": ["a", "b"], "lab": ["c", "d"]}
    with pytest.raises(PartyNameError, match="kept for what is above all parties"):
        classifier(party_columns=columns).fit(X, y)


def test_three_classes():
    X, y = table()
    clf = classifier(classes=[0, 1, 2]).fit(X, y + (X["b"] > 1.0))
    assert clf.predict_proba(X).shape == (300, 3)


def test_an_account_is_booked_before_training(tmp_path):
    account = PrivacyAccount.create(tmp_path / "account.json", Budget(2.5, 1e-5))
    clf = classifier(DPSGD(epsilon=2.0, **PUBLIC))
    clf.fit(*table(), account=account)
    assert 1.9 < account.epsilon(1e-5) <= 2.0
    with pytest.raises(PrivacyBudgetError):
        clf.fit(*table(), account=account)


@pytest.mark.parametrize(
    "options",
    [
        {"classes": None},
        {"protection": MaxNorm()},
        {"objective": DIMIP()},
        {"label_privacy": RandomizedResponse()},
        {"class_weight": "balanced"},
        {"numeric_bins": 8},
        {"monitor": LeakageMonitor()},
        {"absent": "multihead"},
        {"patience": 3},
        {"validation_fraction": 0.2},
    ],
    ids=lambda options: next(iter(options)),
)
def test_what_would_spoil_the_guarantee_is_refused_by_name(options):
    with pytest.raises(ParameterError, match=next(iter(options))):
        classifier(**options).fit(*table())


@pytest.mark.parametrize("option", ["checkpoint", "resume"])
def test_checkpoints_are_refused_as_those_of_synthesizers_are(tmp_path, option):
    """Nine epochs at epsilon 1000, and the last of them at 1 after a resume, were a ledger of 1."""
    X, y = table()
    with pytest.raises(ParameterError, match=f"does not support {option}"):
        classifier().fit(X, y, **{option: tmp_path / "checkpoint"})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_no_value_of_an_array_or_label_ends_a_fit(odd):
    """Arrays were checked as scikit-learn does, which tells of one record; tables were not."""
    X, y = (np.array(part, dtype=float) for part in table())
    X[0, 0] = y[0] = odd
    schema = PublicSchema(bounds=dict.fromkeys(range(4), (-4.0, 4.0)), dtypes="given")
    columns = {"clinic": [0, 1], "lab": [2, 3]}
    found = classifier(epochs=1, party_columns=columns)
    found.set_params(privacy__public_schema=schema)
    for kind in (np.array, np.ndarray.tolist):
        with pytest.warns(OwnTableWarning, match="1 of 300 labels"):
            found.fit(kind(X), kind(y))
    assert found.predict(X[1:]).shape == (299,)


def test_records_that_were_drawn_are_refused_as_by_synthesizers(tmp_path):
    """One more or less in a table changes two of a fixed number, and the ledger counts one."""
    X, y = table()
    for name, columns in COLUMNS.items():
        X[columns].rename_axis("id").reset_index().to_parquet(tmp_path / f"{name}.parquet")
    files = {name: tmp_path / f"{name}.parquet" for name in COLUMNS}
    drawn = read_records(files, "id", max_records=100, random_state=0)
    labels = pd.Series(y)[drawn["lab"]["id"].to_numpy()]
    with pytest.raises(ParameterError, match="does not go with max_records"):
        classifier(party_columns=None).fit(drawn, labels, "id")


def test_weights_replicas_and_processes_are_refused():
    X, y = table()
    with pytest.raises(ParameterError, match="sample_weight"):
        classifier().fit(X, y, sample_weight=np.ones(len(y)))
    with pytest.raises(ParameterError, match="trained alone"):
        classifier().fit_replicas(X, y, random_states=[0, 1])
    plain, private = {"privacy": None}, {"privacy": classifier().privacy}
    with pytest.raises(ParameterError, match="same privacy"):  # the second had no noise
        classifier(numeric_bins=0).fit_replicas(
            X, y, random_states=[0, 1], parameters=[plain, private]
        )
    with pytest.raises(ParameterError, match="in one process"):
        check_combination(classifier(monitor=False), across_processes=True)


@pytest.mark.parametrize("of_parties", [False, True])
def test_one_value_decides_neither_whether_it_trains_nor_a_type(of_parties):
    """A record with the only value of a column decided whether the fit was refused."""
    X, y = table()
    X["a"], X["b"] = np.nan, X["b"].astype(object)
    model = classifier(party_columns=None if of_parties else COLUMNS)
    given = {name: X[columns] for name, columns in COLUMNS.items()} if of_parties else X
    model.privacy.set_params(
        public_schema=PublicSchema(
            bounds=dict.fromkeys("abcd", (-4.0, 4.0)), dtypes=dict.fromkeys("abcd", "float64")
        )
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PublishingWarning)
        model.fit(given, y)
    assert np.isfinite(model.predict_proba(given)).all()
