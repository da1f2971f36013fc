"""`resample=k`: rows that look real stay, the same ones wherever they are put together."""

import pandas as pd
import pytest

from tests.later import later
from vflsynth import (
    DPSGD,
    FirstLayer,
    VertiGANSynthesizer,
    VFLGANSynthesizer,
    WGANGPSynthesizer,
)
from vflsynth._random import secret_from
from vflsynth.datasets import make_party_frames
from vflsynth.exceptions import ParameterError
from vflsynth.methods.gan import resampling
from vflsynth.models import choosing

pytestmark = pytest.mark.usefixtures("wide_blocks")

KEY = "record_id"
SMALL = {
    "epochs": 2,
    "batch_size": 32,
    "generator_hidden": (8,),
    "random_state": 0,
    "resample": 3,
    "verbose": 0,
}


@pytest.fixture(scope="module", autouse=True)
def _short_training():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resampling, "_MOST_STEPS", 100)
        yield


@pytest.fixture(scope="module")
def frames():
    return make_party_frames(80, 2, random_state=0)


@pytest.fixture(scope="module", params=[VFLGANSynthesizer, *later(VertiGANSynthesizer)])
def synth(request, frames):
    return request.param(**SMALL).fit(frames, KEY, transcript=True)


def test_features_cross_once_and_weights_come_back(synth):
    crossed = synth.transcript_.set_index("message")
    assert crossed.loc["RowFeatures", "messages"].tolist() == [1, 1]
    assert crossed.loc["RowFeatures", "bytes"].tolist() == [2 * 80 * 256 * 4] * 2
    assert crossed.loc["RowScorer", "sender"].tolist() == ["server"] * 2


def test_saved_models_choose_the_same_rows(synth, tmp_path):
    rows = synth.sample(30, random_state=1)
    synth.save(tmp_path / "model")
    loaded = type(synth).load(tmp_path / "model")
    pd.testing.assert_frame_equal(loaded.sample(30, random_state=1), rows)
    for half in loaded.parties_.values():
        with pytest.raises(ParameterError, match=r"cannot draw its rows alone: one of 3 stays"):
            half.sample(5)


def test_rows_are_some_of_those_that_are_drawn(synth, monkeypatch):
    """Portions of at most 30 drawn rows, and parties' columns of the same ones."""
    monkeypatch.setattr(choosing, "DRAWN_AT_ONCE", 30)
    rows = synth.sample(25, random_state=1)
    assert rows.index.equals(pd.RangeIndex(25))
    parts = synth.sample(25, random_state=1, by_party=True)
    pd.testing.assert_frame_equal(pd.concat(list(parts.values()), axis=1), rows)
    half = next(iter(synth.parties_.values()))
    secret = next(s for _, _, s in choosing.portions(25, 3, secret_from(1)))
    drawn = half.sample_and_pass_on(30, secret)[0]
    assert len(drawn.merge(rows[list(drawn)].head(10))) == 10


def test_conditions_parts_and_completing_work(synth, tmp_path):
    label = next(c for c in synth.sample(1) if c.startswith("group") or c.startswith("categor"))
    value = synth.sample(50, random_state=0)[label].mode()[0]
    given = synth.sample(5, conditions={label: value}, random_state=0)
    assert (given[label] == value).all()
    assert len(synth.complete(given[[label]])) == 5
    (path,) = synth.sample_to(tmp_path / "rows", 12, random_state=0)
    assert len(pd.read_parquet(path)) == 12


def test_models_at_once_are_scored_each_on_its_own(frames):
    models = VFLGANSynthesizer(**SMALL).fit_replicas(frames, KEY, random_states=[0, 1])
    first, second = (next(iter(m.parties_.values())).sampler.scores for m in models)
    assert not first.weight.equal(second.weight)
    assert all(len(model.sample(10, random_state=0)) == 10 for model in models)


def test_scores_of_other_rows_are_refused(synth):
    half = next(iter(synth.parties_.values()))
    content, tensors = half.sampler.to_dict(), half.sampler.tensors()
    tensors["scores.weight"] = tensors["scores.weight"][1:]
    with pytest.raises(ValueError, match="scores of other rows"):
        type(half.sampler).restore(content, tensors, half.transformer.spans_)


@pytest.mark.parametrize(
    ("make", "privacy", "message"),
    [
        (VFLGANSynthesizer, DPSGD(epsilon=1.0, delta=1e-3), "needs resample=1"),
        (VFLGANSynthesizer, FirstLayer(epsilon=1.0, delta=1e-3), "needs resample=1"),
        (VertiGANSynthesizer, DPSGD(epsilon=1.0, delta=1e-3), "needs resample=1"),
        (WGANGPSynthesizer, None, "resample must be 1"),
    ],
)
def test_what_no_ledger_counts_is_refused(frames, make, privacy, message):
    with pytest.raises(ParameterError, match=message):
        make(**SMALL, privacy=privacy).fit(frames, KEY)
