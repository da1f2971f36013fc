"""The loop, its callbacks and its history."""

import io
import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from tests.smaller import narrow
from vflsynth import EarlyStopping, TableTransformer
from vflsynth.datasets import make_party_frames
from vflsynth.exceptions import ParameterError, TimeLimitError, TrainingDivergedError
from vflsynth.learning.base import Duration
from vflsynth.run.loop import EpochState, Progress, Trial
from vflsynth.run.loop import run as run_loop
from vflsynth.run.server_run import history_frame, history_from_json, history_to_json

KEY = "record_id"


@pytest.fixture(scope="module")
def frames():
    made = make_party_frames(40, 2, random_state=2)
    return narrow(made, "measure", "count", "score", "group")


class Watch:
    def __init__(self, stop_after=None):
        self.states, self.stop_after = [], stop_after

    def on_epoch_end(self, state):
        self.states.append(state)
        return state.epoch == self.stop_after


# -- callbacks ----------------------------------------------------------------------------------


def test_callbacks_see_every_epoch_and_its_record(make_vflgan, frames):
    first, second = Watch(), Watch()
    synth = make_vflgan(epochs=3).fit(frames, KEY, callbacks=[first, second])
    for watch in (first, second):
        assert [state.epoch for state in watch.states] == [1, 2, 3]
        assert {(s.n_epochs, s.steps_per_epoch) for s in watch.states} == {(3, 3)}
    distances = [state.record["frechet_distance"][0] for state in first.states]
    assert distances == synth.history_["frechet_distance"].tolist()


def test_all_callbacks_see_the_last_epoch(make_vflgan, frames):
    watches = [Watch(stop_after=2), Watch(), Watch(stop_after=2)]
    synth = make_vflgan().fit(frames, KEY, callbacks=watches)
    assert [len(watch.states) for watch in watches] == [2, 2, 2]
    assert len(synth.history_) == 2


def states(distances, start=1):
    for epoch, distance in enumerate(distances, start):
        record = {} if distance is None else {"frechet_distance": distance}
        yield EpochState(epoch, 99, 1, record)


def stopped_at(stopping, distances):
    return next((s.epoch for s in states(distances) if stopping.on_epoch_end(s)), None)


def test_early_stopping_counts_evaluations_without_improvement():
    assert stopped_at(EarlyStopping(2), [[5.0], [4.0], [4.0], [4.5]]) == 4
    assert stopped_at(EarlyStopping(2), [[5.0], [4.0], [4.0], [3.9], [4.0]]) is None
    assert stopped_at(EarlyStopping(1), [None, [5.0], None, None, [5.0]]) == 5
    assert stopped_at(EarlyStopping(1), [None] * 20) is None


def test_early_stopping_waits_for_the_last_replica():
    assert stopped_at(EarlyStopping(1), [[5.0, 5.0], [6.0, 4.0], [6.0, 4.0]]) == 3


def test_early_stopping_starts_anew_with_every_fit():
    stopping = EarlyStopping(2)
    assert stopped_at(stopping, [[1.0], [2.0], [2.0]]) == 3
    assert stopped_at(stopping, [[9.0], [8.0], [7.0]]) is None


class EverWorse(EarlyStopping):
    def on_epoch_end(self, state):
        return super().on_epoch_end(replace(state, record={"frechet_distance": [state.epoch]}))


def test_early_stopping_in_a_fit(make_vflgan, frames):
    stopping = EverWorse(1)
    synth = make_vflgan().fit(frames, KEY, callbacks=[stopping])
    assert len(synth.history_) == 2
    assert not synth.interrupted_


@pytest.mark.parametrize("wrong", [0, 2.5])
def test_early_stopping_checks_its_parameters(wrong):
    with pytest.raises(ParameterError, match="EarlyStopping: patience"):
        EarlyStopping(wrong)


# -- progress -----------------------------------------------------------------------------------


@pytest.mark.parametrize("verbose", [0, 1])
def test_nothing_is_printed_without_a_terminal(make_vflgan, frames, capfd, verbose):
    make_vflgan(verbose=verbose, epochs=2).fit(frames, KEY)
    assert capfd.readouterr() == ("", "")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_shows_phase_rate_and_distance(monkeypatch, make_vflgan, frames):
    monkeypatch.setattr("sys.stderr", Terminal())
    import sys

    progress = Progress(4, done=1, phase="training on cpu")
    for state in states([[2.5], [1.25], None], start=2):
        progress.on_epoch_end(state)
    progress.close()
    shown = sys.stderr.getvalue()
    assert "training on cpu" in shown
    assert "4/4" in shown
    assert "epoch" in shown
    assert "FD 1.25" in shown
    monkeypatch.setattr("sys.stderr", Terminal())
    make_vflgan(verbose=0, epochs=1).fit(frames, KEY)
    assert sys.stderr.getvalue() == ""


def test_a_log_gets_lines_with_what_is_left(monkeypatch, caplog):
    """At ten seconds or a tenth more time, whichever is later, of however many epochs."""
    clock = [0.0]
    monkeypatch.setattr("vflsynth.run.loop.time.perf_counter", lambda: clock[0])
    with caplog.at_level("INFO", logger="vflsynth"):
        progress = Progress(500, done=0, phase="training")
        for epoch in range(1, 51):
            clock[0] = 50.0 + 4 * epoch  # the first one prepares
            progress.on_epoch_end(EpochState(epoch, 500, 1, {"wasserstein": [0.5]}))
    assert caplog.messages[0] == "epoch 1 of 500, loss 0.5"
    assert caplog.messages[1] == "epoch 4 of 500, loss 0.5, at most 33 min left"
    assert [int(said.split()[1]) for said in caplog.messages[-4:]] == [29, 34, 40, 46]


# -- history and selection ----------------------------------------------------------------------


def test_history_columns_are_the_documented_ones(make_vflgan, frames):
    synth = make_vflgan().fit(frames, KEY)
    documented = re.search(r"history_ : DataFrame\n(.*?)\n    \w", type(synth).__doc__, re.S)[1]
    named = re.findall(r"``([\w*]+)``", documented)
    actual = {re.sub(r"_(shared|party_\d)$", "_*", column) for column in synth.history_}
    assert set(named) == actual
    assert synth.history_.index.name == "epoch"
    assert synth.history_.index.tolist() == [1, 2, 3, 4, 5, 6]
    assert (synth.history_["seconds"] > 0).all()
    assert np.isfinite(synth.history_.to_numpy(dtype=float)).all()


def weights(synth):
    return {
        (name, key): value.clone()
        for name, party in synth.parties_.items()
        for key, value in party.sampler.tensors().items()
    }


def same(one, other):
    return all(torch.equal(value, other[key]) for key, value in one.items())


def test_the_best_epoch_is_kept(make_vflgan, frames):
    """The one with the lowest distance: its weights are those of a run that ended there."""
    transformer = TableTransformer(continuous="standard", rare_records=0, extreme_records=0)
    restless = {"learning_rate": 0.2, "generator_average": 0.0, "epochs": 30}
    restless |= {"transformer": transformer, "generator": "parallel"}
    restless |= {"gradient_penalty": "layerwise", "discriminator_steps": 5}
    for seed in range(10):  # processors round differently, and such a training shows it
        restless |= {"random_state": seed}
        synth = make_vflgan(**restless).fit(frames, KEY)
        history = synth.history_
        best = history["frechet_distance"].idxmin()
        if 1 < best < 30:  # else the test shows nothing
            break
    assert 1 < best < 30
    assert history["chosen"].sum() == 1
    assert history.loc[best, "chosen"]
    until_best = make_vflgan(**restless | {"model_selection": "last"}).fit(
        frames, KEY, callbacks=[Watch(stop_after=best)]
    )
    assert same(weights(synth), weights(until_best))


def test_the_last_epoch_is_kept_when_asked_and_no_masked_record_is_sent(make_vflgan, frames):
    synth = make_vflgan(model_selection="last").fit(frames, KEY, transcript=True)
    assert "frechet_distance" not in synth.history_
    assert synth.history_["chosen"].tolist() == [False] * 5 + [True]
    assert not {"MaskedReal", "MaskedFake"} & set(synth.transcript_["message"])


def test_evaluations_every_few_epochs_and_at_the_end(make_vflgan, frames):
    synth = make_vflgan(evaluate_every=4).fit(frames, KEY, transcript=True)
    distance = synth.history_["frechet_distance"]
    assert distance.notna().tolist() == [False, False, False, True, False, True]
    for kind, number in (("MaskedReal", 1), ("MaskedFake", 2)):
        masked = synth.transcript_.set_index("message").loc[kind, "messages"]
        assert masked.tolist() == [number] * 2
    assert synth.history_.loc[distance.idxmin(), "chosen"]
    every = make_vflgan().fit(frames, KEY).history_["frechet_distance"]
    assert distance.dropna().tolist() == every[distance.notna()].tolist()


def test_at_most_twenty_evaluations_by_default_and_one_at_the_end(make_vflgan, frames):
    for epochs, evaluated in ((20, [*range(1, 21)]), (21, [*range(2, 21, 2), 21])):
        synth = make_vflgan(epochs=epochs, evaluate_every=None).fit(frames, KEY)
        distance = synth.history_["frechet_distance"]
        assert distance.dropna().index.tolist() == evaluated


def test_the_average_is_what_is_kept(make_vflgan, frames):
    averaged, raw = (
        make_vflgan(generator_average=decay, model_selection="last", epochs=3).fit(frames, KEY)
        for decay in (0.999, 0.0)
    )
    assert not same(weights(averaged), weights(raw))
    # Training does not see the average.
    losses = [c for c in raw.history_ if c.startswith(("wasserstein", "penalty"))]
    pd.testing.assert_frame_equal(averaged.history_[losses], raw.history_[losses])


def test_divergence_is_an_error_with_advice(make_vflgan, frames):
    with pytest.raises(
        TrainingDivergedError, match=r"epoch \d: \w+ is not finite\. Lower learning[^;]*$"
    ):
        make_vflgan(learning_rate=1e30, epochs=50).fit(frames, KEY)


def test_history_frames_survive_json():
    history = [
        {"epoch": 1, "loss": [1.0, 2.0], "kept": False, "seconds": 0.5},
        {
            "epoch": 2,
            "loss": [0.5, 3.0],
            "frechet_distance": [1.0, 2.0],
            "kept": [True, False],
            "seconds": 0.25,
        },
    ]
    frame = history_frame(history, 0)
    assert frame["chosen"].tolist() == [False, True]
    assert math.isnan(frame.loc[1, "frechet_distance"])
    assert history_frame(history, 1)["chosen"].tolist() == [False, False]
    records = history_to_json(frame)
    assert records[0]["frechet_distance"] is None
    pd.testing.assert_frame_equal(history_from_json(records), frame)
    nothing = history_frame([])
    pd.testing.assert_frame_equal(history_from_json(history_to_json(nothing)), nothing)


# -- how long it takes --------------------------------------------------------------------------


def test_the_first_steps_tell_how_long_training_takes(monkeypatch, caplog):
    clock = [0.0]
    monkeypatch.setattr("vflsynth.run.loop.time.perf_counter", lambda: clock[0])
    caplog.set_level("INFO", logger="vflsynth")

    class Paced:
        """Warms up; waits for somebody."""

        finished, advice = False, ""
        seconds = (30.0, *[0.5] * 10, 60.0, *[0.5] * 988)

        def begin(self):
            pass

        def step(self, step):
            clock[0] += self.seconds[step]

        def report(self, epoch):
            return {}

        def end_epoch(self, epoch, *, evaluate):
            return {}

    def paced(most_hours):
        run_loop(Paced(), Duration(1, 1_000), [], [], most_hours=most_hours)

    paced(0.17)  # 99.5 s, and 979 further steps of 0.5 s: 0.164 hours
    assert [record.getMessage() for record in caplog.records] == [
        "all epochs take about 10 min on this machine"
    ]
    with pytest.raises(TimeLimitError, match=r"979 further steps of 500 ms.*raise most_hours"):
        paced(0.16)


def test_a_trial_measures_epochs_and_ends_the_training(monkeypatch):
    """Other programs do not count in its own time; what comes before and after counts once."""
    clocks = {"perf_counter": 0.0, "process_time": 0.0}
    for name in clocks:
        monkeypatch.setattr(f"vflsynth.run.loop.time.{name}", lambda name=name: clocks[name])
    alone, beside_others = Trial(6.0, own=True), Trial(6.0)
    ends = []
    for epoch, own in enumerate([5.0, 2.0, 2.0, 2.0], 1):
        clocks["perf_counter"] += 8.0
        clocks["process_time"] += own
        state = EpochState(epoch, 90, 1, {})
        ends.append((alone.on_epoch_end(state), beside_others.on_epoch_end(state)))
    assert ends == [(False, False), (False, True), (False, True), (True, True)]
    alone.look()
    assert (alone.each, alone.of(90), alone.n_epochs) == (2.0, 5.0 + 89 * 2.0, 90)
    clocks["perf_counter"] += 7.0
    beside_others.look()
    assert beside_others.of(90) == 7.0 + 90 * 8.0


def test_a_fit_stops_when_it_takes_longer_than_anybody_waits(make_vflgan, frames):
    assert len(make_vflgan(epochs=2).fit(frames, KEY, most_hours=1.0).history_) == 2
    with pytest.raises(TimeLimitError, match="epochs"):
        make_vflgan(epochs=2).fit(frames, KEY, most_hours=1e-9)
    with pytest.raises(ParameterError, match="most_hours"):
        make_vflgan().fit(frames, KEY, most_hours=0)
