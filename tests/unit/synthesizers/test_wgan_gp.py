import numpy as np
import pandas as pd
import pytest

from vflsynth import WGANGPSynthesizer
from vflsynth.datasets import make_party_frames
from vflsynth.exceptions import EmptyColumnError

SMALL = {"batch_size": 20, "epochs": 2, "device": "cpu", "verbose": 0}


@pytest.fixture(scope="module")
def frames():
    return make_party_frames(200, 3, random_state=0, n_unmatched=5)


@pytest.fixture(scope="module")
def synth(frames):
    return WGANGPSynthesizer(**SMALL, random_state=0).fit(frames, on="record_id", transcript=True)


def test_one_discriminator_and_no_messages_but_matching(synth):
    assert [c for c in synth.history_ if c.startswith("wasserstein")] == ["wasserstein_joined"]
    assert set(synth.transcript_["message"]) == {"KeyList", "AlignmentNotice"}


@pytest.mark.slow
def test_learns_relations_across_parties():
    rng = np.random.default_rng(0)
    x = rng.normal(size=600)
    frames = {"a": pd.DataFrame({"x": x}), "b": pd.DataFrame({"y": -x})}
    synth = WGANGPSynthesizer(batch_size=32, epochs=80, device="cpu", verbose=0)
    for model in synth.fit_replicas(frames, random_states=[0, 1, 2]):
        table = model.sample(2000, random_state=0)
        assert table["x"].corr(table["y"]) < -0.5  # seeds lie between -.64 and -.97


def test_errors_name_the_owner(frames):
    broken = frames["party_2"].assign(measure_2=np.nan)
    with pytest.raises(EmptyColumnError, match=r"party_2.*measure_2"):
        WGANGPSynthesizer(**SMALL).fit(frames | {"party_2": broken}, on="record_id")
