"""Records that one party alone has: they train its columns, and nobody else learns of them."""

import functools

import numpy as np
import pandas as pd
import pytest
import torch

from tests.callbacks import StopAfter
from tests.later import later
from vflsynth import AutoregressiveSynthesizer, GaussianCopulaSynthesizer
from vflsynth.datasets import make_party_frames
from vflsynth.exceptions import ArtefactError, PublishingWarning

KEY = "record_id"
FAST = {"hidden": 8, "n_features": 16, "device": "cpu", "verbose": 0, "random_state": 0}
FAST |= {"structure": "ignore"}  # which one test asks for
PROTOCOLS = ["bounded", "trained", "one_message"]

pytestmark = [
    pytest.mark.filterwarnings("ignore::vflsynth.exceptions.PublishingWarning"),
    pytest.mark.usefixtures("few_steps", "wide_blocks"),
]


@pytest.fixture(scope="module")
def frames():
    return make_party_frames(40, 3, random_state=2, n_unmatched=25)


def make(**changes):
    return AutoregressiveSynthesizer(**FAST | {"epochs": 3} | changes)


@pytest.fixture(scope="module")
def fitted(frames, few_steps):
    """Models with the records that one party alone has, by protocol, for tests that read them."""
    return functools.cache(lambda protocol: make(protocol=protocol).fit(frames, KEY))


def matched(frames):
    return set.intersection(*(set(frame[KEY]) for frame in frames.values()))


def tensors(synth, party):
    return synth.parties_[party].sampler.tensors()


def same_half(one, other, party):
    mine, theirs = tensors(one, party), tensors(other, party)
    return mine.keys() == theirs.keys() and all(torch.equal(mine[k], theirs[k]) for k in mine)


@pytest.mark.parametrize(
    "make_model", [GaussianCopulaSynthesizer, lambda **_: make(epochs=1, structure="exact")]
)
def test_no_exact_relation_of_theirs_is_learned(make_model):
    """A band that unmatched people alone have must not be in the table of what determines it."""
    rng = np.random.default_rng(0)
    score = np.concatenate([rng.integers(0, 40, 300), rng.integers(60, 100, 300)])
    lab = pd.DataFrame({"id": np.arange(600), "score": score})
    lab["band"] = np.where(score < 50, "low", "high")
    lost = pd.DataFrame({"id": np.arange(9000, 9040), "score": rng.integers(45, 56, 40)})
    more = pd.concat([lost.assign(band="trial"), lab], ignore_index=True)
    clinic = pd.DataFrame({"id": lab["id"], "ill": score + rng.normal(0, 20, 600) > 50})
    model = make_model(random_state=0).fit({"lab": more, "clinic": clinic}, "id")
    assert model.parties_["lab"].preparation.steps
    table = model.sample(3000, random_state=1)
    assert set(table["band"]) == {"low", "high"}
    assert ((table["score"] < 50) == (table["band"] == "low")).all()
    if isinstance(model, GaussianCopulaSynthesizer):
        without = make_model(random_state=0).fit({"lab": lab, "clinic": clinic}, "id")
        assert without.sample(3000, random_state=1).equals(table)


def test_none_of_their_values_is_copied_to_others():
    """Where a column is fixed, matched records get a value like those of other matched ones."""
    rng = np.random.default_rng(0)
    treated = rng.random(640) < 0.1
    treated[600:] = True
    lab = pd.DataFrame({"id": np.arange(640), "age": rng.integers(20, 90, 640)})
    lab["smoking"] = np.where(treated, rng.choice(["now", "once"], 640), "never")
    lab["drug"] = np.where(treated, rng.choice(["abc", "def"], 640), "-").astype(object)
    lab.loc[600:, "drug"] = "trial"
    clinic = pd.DataFrame({"id": np.arange(600), "x": rng.normal(size=600)})
    model = GaussianCopulaSynthesizer(random_state=0).fit({"lab": lab, "clinic": clinic}, "id")
    assert model.parties_["lab"].preparation.steps
    assert set(model.sample(5000)["drug"]) == {"abc", "def", "-"}


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_they_change_their_party_in_whatever_order_they_come(frames, fitted, protocol):
    synth = fitted(protocol)
    shuffled = {name: frame.sample(frac=1.0, random_state=1) for name, frame in frames.items()}
    ignoring = make(protocol=protocol, unmatched="ignore").fit(frames, KEY)
    without = {name: frame[frame[KEY].isin(matched(frames))] for name, frame in frames.items()}
    lacking = make(protocol=protocol).fit(without, KEY)
    other = make(protocol=protocol).fit(shuffled, KEY)
    for name in frames:
        assert same_half(synth, other, name)
        assert not same_half(synth, ignoring, name)
        assert same_half(ignoring, lacking, name)
        # A half has no trace of the flag: it is loaded, sampled and conditioned on as any other.
        shapes = {key: value.shape for key, value in tensors(ignoring, name).items()}
        assert {key: value.shape for key, value in tensors(synth, name).items()} == shapes


@pytest.mark.parametrize("name", ["party_2", *later("party_1", "party_3")])
@pytest.mark.parametrize("protocol", ["bounded", *later("one_message")])
def test_nobody_else_learns_of_them(frames, protocol, name):
    """Other parties' halves and whatever crosses but the likelihoods are the same to the byte."""
    common, synth = matched(frames), make(protocol=protocol, patience=100)
    synth.fit(frames, KEY, transcript=True)
    changed, alone = frames[name].copy(), ~frames[name][KEY].isin(common)
    changed.loc[alone, KEY] = changed.loc[alone, KEY].to_numpy()[::-1]
    other = make(protocol=protocol, patience=100)
    other.fit(frames | {name: changed}, KEY, transcript=True)
    assert [n for n in frames if not same_half(synth, other, n)] == [name]
    kept = {k: v for k, v in tensors(synth, name).items() if not k.startswith("network.")}
    assert all(torch.equal(value, tensors(other, name)[key]) for key, value in kept.items())
    pd.testing.assert_frame_equal(synth.transcript_, other.transcript_)


@pytest.mark.slow
def test_the_same_messages_cross_as_without_them(frames):
    one, other = (
        make(unmatched=unmatched, patience=100).fit(frames, KEY, transcript=True).transcript_
        for unmatched in ("train", "ignore")
    )
    pd.testing.assert_frame_equal(one, other)


def test_a_record_with_a_value_that_no_matched_one_has_is_left_out():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({KEY: np.arange(80), "age": rng.integers(20, 80, 80).astype(float)})
    table["town"] = np.where(rng.random(80) < 0.5, "Ulm", "Bonn")
    other = pd.DataFrame({KEY: np.arange(40), "cost": rng.normal(size=40)})
    odd = table.tail(2).assign(**{KEY: [80, 81]})
    odd["town"], odd["age"] = ["Rome", "Ulm"], [30.0, np.nan]
    tables = {"a": table, "b": other}, {"a": pd.concat([table, odd]), "b": other}
    one, two = (make().fit(own, KEY) for own in tables)
    assert same_half(one, two, "a")


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["bounded", *later("trained", "one_message")])
def test_stopped_and_resumed_equals_unbroken_and_other_records_are_refused(
    frames, fitted, tmp_path, protocol
):
    unbroken, folder = fitted(protocol), tmp_path / "run"
    make(protocol=protocol).fit(
        frames, KEY, callbacks=[StopAfter(2)], checkpoint=folder, checkpoint_every=1
    )
    changed = frames | {"party_2": frames["party_2"].drop(index=_unmatched_row(frames))}
    with pytest.raises(ArtefactError, match="records"):
        make(protocol=protocol).fit(changed, KEY, resume=folder)
    resumed = make(protocol=protocol).fit(frames, KEY, resume=folder)
    assert all(same_half(resumed, unbroken, name) for name in frames)


def _unmatched_row(frames):
    frame = frames["party_2"]
    return frame.index[~frame[KEY].isin(matched(frames))][0]


@pytest.mark.slow
def test_a_replica_equals_the_same_model_trained_alone(frames):
    synth = make(protocol="one_message")
    together = synth.fit_replicas(frames, KEY, random_states=[5, 6])
    for state, model in zip((5, 6), together, strict=True):
        alone = make(protocol="one_message", random_state=state).fit(frames, KEY)
        for name in frames:
            for key, value in tensors(alone, name).items():
                torch.testing.assert_close(tensors(model, name)[key], value, rtol=2e-3, atol=2e-4)


def test_shares_are_those_of_the_matched_records():
    """The others are of another population: a share of .9 is not what comes out."""
    rng = np.random.default_rng(0)
    keys = np.arange(1200)
    first = np.where(keys < 400, rng.random(1200) < 0.2, rng.random(1200) < 0.9)
    table = pd.DataFrame({KEY: keys, "smokes": np.where(first, "yes", "no")})
    table["age"] = rng.integers(20, 80, 1200)
    other = pd.DataFrame({KEY: keys[:400], "cost": rng.normal(size=400)})
    drawn = make(epochs=20, hidden=32).fit({"a": table, "b": other}, KEY).sample(4000)
    real = (table["smokes"][:400] == "yes").mean()
    assert abs((drawn["smokes"] == "yes").mean() - real) < 0.04


def test_the_warning_says_what_becomes_of_them(frames):
    with pytest.warns(PublishingWarning, match="the others train the columns of the party that"):
        make(epochs=1).fit(frames, KEY)
    with pytest.warns(PublishingWarning, match="the others are left out"):
        make(epochs=1, unmatched="ignore").fit(frames, KEY)
