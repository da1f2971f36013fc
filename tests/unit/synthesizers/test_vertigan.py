import numpy as np
import pandas as pd
import pytest
import torch

from tests.crossing import EVERY_RUN
from vflsynth import VertiGANSynthesizer, VFLGANSynthesizer
from vflsynth.datasets import make_party_frames
from vflsynth.exceptions import ParameterError, ProtocolError
from vflsynth.methods.vertigan.messages import SummedBackboneGradients
from vflsynth.methods.vertigan.method import VertiGANParty

SMALL = {
    "latent_dim": 4,
    "generator_hidden": (8, 8),
    "batch_size": 16,
    "epochs": 2,
    "verbose": 0,
    "structure": "ignore",  # which nobody asks for here
    "device": "cpu",
}


@pytest.fixture(scope="module")
def frames():
    return make_party_frames(100, 2, random_state=0)


def test_only_backbone_gradients_cross_in_training(frames):
    synth = VertiGANSynthesizer(**SMALL, random_state=0).fit(
        frames, on="record_id", transcript=True
    )
    counts = synth.transcript_.groupby("message")["messages"].sum()
    assert set(counts.index) == EVERY_RUN | {
        "BackboneGradients",
        "SummedBackboneGradients",
        "SelectionNotice",
        "TrainingReport",
    }
    # 2 epochs of 7 steps make 2 generator steps: each party sends and receives once in each.
    assert counts["BackboneGradients"] == counts["SummedBackboneGradients"] == 2 * 2
    weights = (4 * 8 + 8) + 8 * 8 + 2 * 8  # no bias before batch normalisation
    contents = synth.transcript_.set_index("message")["contents"]
    for kind in ("BackboneGradients", "SummedBackboneGradients"):
        assert contents[kind].tolist() == [f"gradients (1, {weights})"] * 2


def test_fewer_steps_per_epoch_than_discriminator_steps(frames):
    """The party finishes an epoch's discriminator steps before it reports."""
    synth = VertiGANSynthesizer(
        **SMALL | {"batch_size": 100, "epochs": 6}, discriminator_steps=4, random_state=0
    ).fit(frames, on="record_id")
    assert len(synth.history_) == 6
    assert np.isfinite(synth.history_.to_numpy(dtype=float)).all()


@pytest.mark.slow
def test_learns_what_each_party_has_but_not_what_relates_them():
    """Column x of both parties is the same: VFLGAN sees it, VertiGAN cannot."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 600))
    frames = {
        "a": pd.DataFrame({"x": x, "x_again": x + 0.3 * rng.normal(size=600)}),
        "b": pd.DataFrame({"x_b": x, "y": y}),
    }
    parameters = {"batch_size": 32, "epochs": 300, "model_selection": "last", "device": "cpu"}
    within, across = {}, {}
    for cls in (VertiGANSynthesizer, VFLGANSynthesizer):
        models = cls(**parameters, verbose=0).fit_replicas(frames, random_states=range(5))
        correlations = [model.sample(4000, random_state=0).corr() for model in models]
        within[cls] = np.mean([c.loc["x", "x_again"] for c in correlations])
        across[cls] = np.mean([c.loc["x", "x_b"] for c in correlations])
    assert within[VFLGANSynthesizer] > 0.8
    assert within[VertiGANSynthesizer] > 0.8
    assert across[VFLGANSynthesizer] > 0.8
    assert abs(across[VertiGANSynthesizer]) < 0.4


def test_rejects_parameters(frames):
    with pytest.raises(ParameterError, match=r"VertiGANSynthesizer: discriminator_hidden.*\(0,\)"):
        VertiGANSynthesizer(discriminator_hidden=(0,)).fit(frames, on="record_id")


def test_party_refuses_gradients_it_did_not_ask_for(frames):
    party = VertiGANParty("a", frames["party_1"], "record_id")
    party._pending = None
    with pytest.raises(ProtocolError, match="did not ask for"):
        party.take(SummedBackboneGradients("server", "a", 0, torch.zeros(1, 3)))
