"""A run across nodes is the run in one process."""

import json

import pandas as pd
import pytest

from vflsynth import PartyModel, VFLGANSynthesizer

KEY = "record_id"


def in_process(trial, **parameters):
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in trial.job.parameters.items()}
    synth = VFLGANSynthesizer(**values | parameters, random_state=0, device="cpu", verbose=0)
    return synth.fit(trial.frames, KEY, transcript=True)


def assert_same(trial, synth):
    for name, half in synth.parties_.items():
        path = trial.folder / name / trial.job.name / "half"
        own = PartyModel.load(path)
        assert own.transformer.to_dict() == half.transformer.to_dict()
        assert own.minter == half.minter
        ours, theirs = own.sampler.tensors(), half.sampler.tensors()
        assert ours.keys() == theirs.keys()
        for key, value in theirs.items():
            assert value.numpy().tobytes() == ours[key].numpy().tobytes(), (name, key)
        pd.testing.assert_frame_equal(own.sample(20, 3), half.sample(20, 3))


@pytest.mark.parametrize("n_parties", [2, 3])
@pytest.mark.parametrize(
    "parameters", [{}, {"gradient_penalty": "paper", "model_selection": "last"}]
)
def test_a_run_over_frames_gives_the_bytes_of_a_run_in_one_process(
    make_trial, n_parties, parameters
):
    trial = make_trial(n_parties, parameters=parameters).run()
    assert set(trial.outcome.values()) == {None}
    synth = in_process(trial)
    assert_same(trial, synth)
    run = json.loads((trial.folder / "server" / "trial" / "run.json").read_text())
    history = synth.history_.drop(columns=["seconds", "chosen"])
    for column in history:
        assert [r[column][0] for r in run["history"]] == history[column].tolist()
