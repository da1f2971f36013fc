"""Many models at once are the same models as one at a time."""

import numpy as np
import pandas as pd
import pytest
import torch

from vflsynth import VFLGANSynthesizer
from vflsynth.datasets import make_party_frames
from vflsynth.exceptions import ParameterError
from vflsynth.frames import align_party_frames

KEY = "record_id"
FAST = {
    "batch_size": 16,
    "latent_dim": 4,
    "generator_hidden": (8, 8),
    "first_part": (8,),
    "shared_hidden": (8,),
    "discriminator_steps": 2,
    "device": "cpu",
    "verbose": 0,
    "structure": "ignore",  # which nobody asks for here
}


@pytest.fixture(scope="module")
def frames():
    return make_party_frames(48, 2, random_state=2)


def make(**changes):
    return VFLGANSynthesizer(**FAST | changes)


def assert_close(one, other):
    """Equal but for the rounding of float32 in batched products, amplified by Adam."""
    for name, party in one.parties_.items():
        tensors = other.parties_[name].sampler.tensors()
        for key, value in party.sampler.tensors().items():
            torch.testing.assert_close(value, tensors[key], rtol=2e-4, atol=2e-5, msg=key)
    columns = [c for c in one.history_ if c not in ("seconds", "chosen")]
    pd.testing.assert_frame_equal(
        one.history_[columns], other.history_[columns], rtol=1e-3, atol=1e-5
    )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        pytest.param({"gradient_penalty": "paper", "private_heads": False}, marks=pytest.mark.slow),
        pytest.param(
            {"batch_norm_eps": None, "bias": False, "generator_average": 0.0},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_replica_equals_the_same_model_trained_alone(frames, changes):
    """18 discriminator steps, 9 generator steps."""
    synth = make(epochs=6, model_selection="last", **changes)
    together = synth.fit_replicas(frames, KEY, random_states=[5, 6])
    for state, model in zip((5, 6), together, strict=True):
        assert model.random_state == state
        assert_close(model, make(**synth.get_params() | {"random_state": state}).fit(frames, KEY))
    assert not hasattr(synth, "parties_")


@pytest.mark.slow
def test_replicas_select_their_own_best_epoch(frames):
    restless = {"learning_rate": 0.002, "generator_average": 0.0}
    synth = make(epochs=30, model_selection="best", evaluate_every=1, **restless)
    together = synth.fit_replicas(frames, KEY, random_states=[0, 1, 2, 3])
    assert len({tuple(model.history_["chosen"]) for model in together}) > 1
    for model in together:
        distance = model.history_["frechet_distance"]
        assert model.history_["chosen"].idxmax() == distance.idxmin()


def test_each_replica_is_trained_on_its_own_rows(frames):
    """A model on some rows is the model of a fit on just these records, with their encoding."""
    rows = np.array([np.arange(0, 32), np.arange(16, 48)])
    synth = make(epochs=3, random_state=3, model_selection="last")
    first, second = synth.fit_replicas(frames, KEY, random_states=[3, 3], replica_rows=rows)
    assert not first.sample(20, random_state=0).equals(second.sample(20, random_state=0))

    # The same through other rows: a table in which the second half's records come twice.
    alone = synth.fit_replicas(frames, KEY, random_states=[3], replica_rows=rows[1:])
    assert_close(second, alone[0])
    # Rows count the matched records in key order, whatever the tables' own order.
    shuffled = {name: frame.sample(frac=1, random_state=1) for name, frame in frames.items()}
    again = synth.fit_replicas(shuffled, KEY, random_states=[3], replica_rows=rows[1:])
    assert_close(again[0], alone[0])


def test_left_out_records_do_not_matter(frames):
    """Changing a record that no replica uses changes nothing, if the encoding stays."""
    aligned, _, _ = align_party_frames(frames, KEY)
    aligned = {name: frame[[c for c in frame if "measure" in c]] for name, frame in aligned.items()}
    changed = {name: frame.copy() for name, frame in aligned.items()}
    for frame in changed.values():  # swapped, so that mean and spread of the column stay
        frame.iloc[[40, 41]] = frame.iloc[[41, 40]].to_numpy()
    synth = make(epochs=4)
    rows = [list(range(32))]
    one, other = (
        synth.fit_replicas(f, random_states=[0], replica_rows=rows)[0].sample(9)
        for f in (aligned, changed)
    )
    pd.testing.assert_frame_equal(one, other)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[0, 1]] * 3, r"shape \(2, record\)"),
        ([0, 1], r"shape \(2, record\)"),
        ([[0.0, 1.0]] * 2, "whole numbers"),
        ([[0, 48]] * 2, "between 0 and 47"),
        ([[0, -1]] * 2, "between 0 and 47"),
        ([[], []], "whole numbers|between"),
    ],
)
def test_wrong_rows_are_refused(frames, rows, message):
    with pytest.raises(ParameterError, match=message):
        make().fit_replicas(frames, KEY, random_states=[0, 1], replica_rows=rows)


def test_no_states_are_refused(frames):
    with pytest.raises(ParameterError, match=r"random_states must be a list .* got 3"):
        make().fit_replicas(frames, KEY, random_states=3)
    with pytest.raises(ParameterError, match="random_states is empty"):
        make().fit_replicas(frames, KEY, random_states=[])
