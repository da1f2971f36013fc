"""Audits for which there is no time at full length: fewer epochs for all models alike."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, clone

from vflsynth import (
    AutoregressiveSynthesizer,
    GaussianCopulaSynthesizer,
    VertiGANSynthesizer,
    VFLGANSynthesizer,
    WGANGPSynthesizer,
)
from vflsynth.adversary import Naive, RegularisedLogistic
from vflsynth.audit import audit_synthetic_data as audit
from vflsynth.audit import schedule
from vflsynth.audit.game import LeaveOneOutGame
from vflsynth.audit.schedule import Schedule, Shortened
from vflsynth.audit.settings import AuditSettings
from vflsynth.audit.shadow import Shadows
from vflsynth.mechanisms import DPSGD
from vflsynth.privacy import PublicSchema
from vflsynth.release.clauses import NotMeasured
from vflsynth.release.measuring import from_audit

OPTIONS: dict[str, Any] = {
    "targets": [3],
    "statistics": [Naive()],
    "adversaries": [RegularisedLogistic(inverse_penalties=(1.0,), n_folds=3)],
    "verbose": 0,
}
TRAINED: list[int] = []
"""Epochs of the models that were trained, in order."""


class Slow(BaseEstimator):
    """Does nothing for as many epochs as it is told, or two hundred."""

    second = 0.001
    stops = 1000

    def __init__(self, epochs: int | None = None, random_state: int | None = None) -> None:
        self.epochs, self.random_state = epochs, random_state

    def fit(self, party_frames, on=None):
        return self.fit_replicas(party_frames, on, random_states=[self.random_state])[0]

    def fit_replicas(self, party_frames, on=None, *, random_states, callbacks=()):
        most = self.epochs or 200
        for epoch in range(1, min(most, self.stops) + 1):
            schedule.time.sleep(self.second * (1.0 + len(random_states)))
            state = SimpleNamespace(epoch=epoch, n_epochs=most)
            if any(callback.on_epoch_end(state) for callback in callbacks):
                break
        TRAINED.extend([epoch] * len(random_states))
        models = [clone(self).set_params(random_state=state) for state in random_states]
        for model in models:
            model.columns_ = [name for frame in party_frames.values() for name in frame]
        return models

    def sample(self, n):
        rng = np.random.default_rng(self.random_state)
        return pd.DataFrame(rng.normal(size=(n, len(self.columns_))), columns=self.columns_)


@pytest.fixture(autouse=True)
def _nothing_trained():
    TRAINED.clear()


@pytest.mark.slow
def test_all_models_are_shortened_alike_and_everything_says_so(
    own_time, number_frames, caplog, monkeypatch
):
    monkeypatch.setattr(Slow, "second", 0.003)
    with caplog.at_level("INFO", logger="vflsynth"):
        found = audit(Slow(), number_frames, minutes=0.15, disclosure={}, **OPTIONS)
    assert own_time.now < 9.0
    assert found.shortened is not None
    assert 1 <= found.shortened.epochs < found.shortened.usual == 200
    assert 20 <= found.n_models <= 24, "an AUC of .8 takes 12 + 12 test models"
    at_length = TRAINED[-(2 * found.n_models + 1) :]
    assert set(at_length) == {found.shortened.epochs}, "that of the three questions too"
    assert found.criteria is not None
    said = f"at most {found.shortened.epochs} epochs in place of 200"
    for text in (str(found), found.headline, found.page().html, found.section(), caplog.text):
        assert said in text
        assert "trains for longer may leak more" in text
    content = json.loads(found.to_json())["shortened"]
    assert (content["epochs"], content["usual"]) == (found.shortened.epochs, 200)
    assert found.power in content["conclusion"]


def test_who_says_how_many_epochs_gets_them(own_time, number_frames):
    found = audit(Slow(epochs=2), number_frames, minutes=1, n_models=10, **OPTIONS)
    assert found.shortened is None
    assert set(TRAINED) == {2}


def test_where_there_is_time_nothing_changes(own_time, number_frames, monkeypatch):
    monkeypatch.setattr(Slow, "second", 0.0002)
    first, second = (
        audit(Slow(), number_frames, n_models=10, minutes=minutes, **OPTIONS)
        for minutes in (None, 5)
    )
    assert second.shortened is None
    assert "shortened" not in json.loads(second.to_json())
    pd.testing.assert_frame_equal(first.to_frame(), second.to_frame())


def test_an_audit_that_goes_on_trains_for_as_long_as_before(
    own_time, number_frames, tmp_path, monkeypatch
):
    monkeypatch.setattr(Slow, "second", 0.003)
    options = OPTIONS | {"minutes": 0.1, "n_models": 12, "cache": tmp_path}
    first = audit(Slow(), number_frames, **options)
    monkeypatch.setattr(Slow, "second", 0.0)  # by now there would be time for more
    again = audit(Slow(), number_frames, **options)
    assert again.shortened == first.shortened
    assert again.n_trained <= 2 * (again.n_models - first.n_models)
    longer = audit(Slow(), number_frames, **options | {"minutes": 1})
    assert longer.shortened is None


def test_models_of_full_length_that_are_at_hand_are_used(
    own_time, number_frames, tmp_path, monkeypatch
):
    monkeypatch.setattr(Slow, "second", 0.00001)
    audit(Slow(), number_frames, n_models=24, cache=tmp_path, **OPTIONS)
    monkeypatch.setattr(Slow, "second", 0.001)
    found = audit(Slow(), number_frames, n_models=24, minutes=0.05, cache=tmp_path, **OPTIONS)
    assert (found.shortened, found.n_trained) == (None, 0)


@pytest.mark.slow
def test_who_stops_early_by_itself_is_not_planned_with_at_full_length(
    own_time, number_frames, monkeypatch
):
    monkeypatch.setattr(Slow, "second", 0.003)
    monkeypatch.setattr(Slow, "stops", 5)
    found = audit(Slow(), number_frames, minutes=0.15, **OPTIONS)
    assert found.shortened is None
    assert set(TRAINED[-2 * found.n_models :]) == {5}


def test_what_has_no_epochs_stays_as_it_is(number_frames):
    found = audit(GaussianCopulaSynthesizer(), number_frames, n_models=10, minutes=5, **OPTIONS)
    assert found.shortened is None


_PUBLIC = PublicSchema(dtypes="given", bounds=dict.fromkeys("abcd", (-4.0, 4.0)))
_DPSGD = DPSGD(epsilon=9.0, delta=1e-3, public_schema=_PUBLIC, n_records=40)
_GAN: dict[str, Any] = {"latent_dim": 3, "generator_hidden": (4,), "batch_size": 8}


class Watch:
    """Observes nothing of a table."""

    watch_releases = False

    def __init__(self, keep_discriminators):
        self.keep_discriminators = keep_discriminators

    def describe(self):
        return "nothing"

    def observe(self, model, targets):
        return {"size": np.array([float(len(model.sample(2)))])}


@pytest.mark.parametrize(
    "synthesizer",
    [
        pytest.param(VFLGANSynthesizer(**_GAN), id="vflgan"),
        pytest.param(VertiGANSynthesizer(**_GAN), id="vertigan", marks=pytest.mark.slow),
        pytest.param(WGANGPSynthesizer(**_GAN), id="wgan-gp", marks=pytest.mark.slow),
        pytest.param(
            AutoregressiveSynthesizer(hidden=4, patience=500),
            id="bounded",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            AutoregressiveSynthesizer(hidden=4, patience=500, protocol="one_message"),
            id="one message",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            VFLGANSynthesizer(**_GAN, privacy=_DPSGD), id="private", marks=pytest.mark.slow
        ),
    ],
)
def test_every_synthesizer_that_has_epochs_can_be_shortened(
    synthesizer, number_frames, quick_contexts, monkeypatch
):
    """By a clock that goes on by a second at every look: an epoch is as long everywhere."""
    seconds = itertools.count()
    clock = SimpleNamespace(perf_counter=lambda: next(seconds), process_time=lambda: 0)
    monkeypatch.setattr(schedule, "time", clock)
    monkeypatch.setattr("vflsynth.run.loop.time", clock)
    synthesizer.set_params(device="cpu", verbose=0)
    worlds = LeaveOneOutGame(number_frames).worlds([3])
    watch = Watch(
        keep_discriminators=hasattr(synthesizer, "first_part") and not synthesizer.privacy
    )
    planned = Schedule(
        Shadows(synthesizer, worlds, None, watch, AuditSettings(minutes=1.0)),
        started=clock.perf_counter(),
        enough=4,
        learning=lambda n_models: 0.0,
        alone=0,
    )
    shortened = planned.shortened
    assert shortened is not None
    assert planned.run.shadows.synthesizer.epochs == shortened.epochs < shortened.usual
    assert synthesizer.epochs is None


def test_an_audit_of_other_models_does_not_open_the_gate(number_frames):
    found = audit(Slow(epochs=1), number_frames, n_models=10, disclosure={}, **OPTIONS)
    found = replace(found, shortened=Shortened(40, 200))
    for clause, measured in from_audit(found).items():
        assert isinstance(measured, NotMeasured), clause
        assert "at most 40 epochs in place of 200" in measured.because


def test_a_pilot_tells_what_a_block_costs_and_what_each_model_in_it():
    """5 s per block and 2 s per model; where the times say nothing, larger blocks gain little."""
    assert schedule.seconds_per_model({4: 13.0, 1: 7.0}, 25) == pytest.approx(2.0 + 5.0 / 25)
    assert schedule.seconds_per_model({4: 8.0, 1: 1.0}, 25) == pytest.approx(2.0), "never dearer"
    assert 0.2 < schedule.seconds_per_model({4: 8.0, 1: 9.0}, 25) < 2.0
    assert schedule.seconds_per_model({1: 3.0}, 1) == 3.0
