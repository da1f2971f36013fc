"""Early stopping: which epoch is kept, by what, and what it tells."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

from tests.callbacks import StopAfter
from tests.later import later
from vflsynth.exceptions import ParameterError
from vflsynth.splitdefense import (
    DIMIPClassifier,
    GAFMClassifier,
    MarvellClassifier,
    RandomizedResponse,
    SplitNNClassifier,
)
from vflsynth.splitdefense.leakage.attacks import transcript_attacks

STOPS = {"active": "bank", "random_state": 0, "monitor": False, "learning_rate": 5e-3}


class Kept:
    """Notes which records a fit holds out."""

    def __init__(self, monkeypatch):
        from vflsynth.splitdefense import method

        made = self.made = []

        class Noted(method.HoldingOut):
            def __init__(self, *arguments, **options):
                super().__init__(*arguments, **options)
                made.append(self)

        monkeypatch.setattr(method, "HoldingOut", Noted)

    @property
    def rows(self):
        return self.made[-1].held_out[0].cpu().numpy()


@pytest.mark.parametrize("privacy", [None, RandomizedResponse(2.0)])
def test_all_parties_keep_the_epoch_with_the_lowest_loss(tables, monkeypatch, privacy):
    """The halves that are kept have that loss on the responses of the held-out records."""
    frames, y = tables
    kept = Kept(monkeypatch)
    model = SplitNNClassifier(label_privacy=privacy, patience=3, **STOPS).fit(frames, y, on="id")
    history = model.history_
    best = history["held_out_loss"].idxmin()
    assert history["chosen"].tolist() == [epoch == best for epoch in history.index]
    assert len(history) == best + 3 < 200
    # The records are matched in the order of their keys, which is that of the bank's rows.
    labels = torch.from_numpy((y == "malignant").to_numpy().astype(np.int64))
    probabilities = model.predict_proba(frames)
    if privacy is not None:
        labels = privacy.transform(labels, 2)
        keep, change = privacy.shares(2)
        probabilities = change + (keep - change) * probabilities
    losses = -np.log(probabilities[np.arange(len(y)), labels.numpy()])
    assert losses[kept.rows].mean() == pytest.approx(history["held_out_loss"].min(), rel=1e-4)
    assert set(kept.rows) | set(kept.made[0].trained_on[0].tolist()) == set(range(len(y)))
    assert len(kept.rows) == 57


def test_held_out_labels_are_in_no_gradient(tables, monkeypatch):
    frames, y = tables
    kept = Kept(monkeypatch)
    options = STOPS | {"epochs": 4, "patience": 4}
    first = SplitNNClassifier(**options).fit(frames, y, on="id")
    other = y.to_numpy().copy()
    other[kept.rows] = np.where(other[kept.rows] == "benign", "malignant", "benign")
    second = SplitNNClassifier(**options).fit(frames, pd.Series(other), on="id")
    assert first.history_["loss"].tolist() == second.history_["loss"].tolist()
    assert (first.history_["held_out_loss"] != second.history_["held_out_loss"]).all()


def test_a_resumed_run_stops_where_the_uninterrupted_one_does(tables, tmp_path):
    frames, y = tables

    def fitted(**options):
        return DIMIPClassifier(patience=3, **STOPS).fit(frames, y, on="id", **options)

    whole = fitted()
    fitted(callbacks=[StopAfter(5)], checkpoint=tmp_path / "run", checkpoint_every=1)
    resumed = fitted(resume=tmp_path / "run")
    assert np.array_equal(resumed.predict_proba(frames), whole.predict_proba(frames))
    assert resumed.history_["chosen"].tolist() == whole.history_["chosen"].tolist()
    again = fitted(resume=tmp_path / "run")  # there is nothing left to train
    assert np.array_equal(again.predict_proba(frames), whole.predict_proba(frames))


def test_replicas_keep_their_own_epochs(tables):
    frames, y = tables
    base = SplitNNClassifier(patience=2, numeric_bins=0, **STOPS)
    privacies = [{}, {"label_privacy": RandomizedResponse(1.0)}]
    many = base.fit_replicas(frames, y, on="id", random_states=[0, 1], parameters=privacies)
    chosen = set()
    for model in many:
        alone = clone(model).fit(frames, y, on="id")
        assert model.history_["chosen"].idxmax() == alone.history_["chosen"].idxmax()
        close = np.abs(model.predict_proba(frames) - alone.predict_proba(frames))
        assert close.max() < 1e-2, "rounding may grow in training, draws may not differ"
        chosen.add(model.history_["chosen"].idxmax())
    assert len(chosen) > 1, "all have the same epoch: nothing is shown"


def test_what_the_papers_publish_trains_to_the_end(tables):
    frames, y = tables
    few = {name: frame[frame["id"] < 1090] for name, frame in frames.items()}
    for kind in (MarvellClassifier, GAFMClassifier, DIMIPClassifier):
        model = kind(active="bank")
        assert (model.patience, model.weight_decay, model.epochs) == (None, 0.0, 50)
    small = SplitNNClassifier(epochs=30, **STOPS).fit(few, y[:90], on="id")
    assert len(small.history_) == 30
    assert "held_out_loss" not in small.history_, "a tenth of 90 records says nothing"


def test_a_loss_that_does_not_exist_is_refused(tables):
    frames, y = tables
    with pytest.raises(ParameterError, match=r"patience cannot be had with GAFM.*patience=None"):
        GAFMClassifier(active="bank", patience=5).fit(frames, y, on="id")
    with pytest.raises(ParameterError, match="class_weight cannot be had with GAFM"):
        GAFMClassifier(active="bank", class_weight="balanced").fit(frames, y, on="id")
    with pytest.raises(ParameterError, match="sample_weight cannot be had with GAFM"):
        GAFMClassifier(active="bank").fit(frames, y, on="id", sample_weight=np.ones(len(y)))
    with pytest.raises(ParameterError, match="validation_fraction"):
        SplitNNClassifier(active="bank", validation_fraction=1.0).fit(frames, y, on="id")


@pytest.mark.parametrize("patience", [None, *later(5)])
def test_a_training_tells_no_more_of_labels_than_their_responses(patience):
    """Where columns tell nothing, no attack is right more often than the response keeps a label."""
    rng = np.random.default_rng(0)
    frames = {name: pd.DataFrame(rng.normal(size=(600, 3))).add_prefix(name) for name in "ab"}
    privacy = RandomizedResponse(2.0)
    classifier = SplitNNClassifier(
        label_privacy=privacy, patience=patience, epochs=12, random_state=0, device="cpu"
    ).fit(frames, rng.integers(0, 2, 600))
    found = transcript_attacks(classifier.evidence_["a"]).query("measure == 'AUC'")["value"]
    error = 3.0 * np.sqrt(1.0 / 12.0 * 4.0 / 600.0)  # three deviations of an AUC of no meaning
    kept = privacy.keep_probability(2)
    assert kept - 2.0 * error < found.max() < kept + error
