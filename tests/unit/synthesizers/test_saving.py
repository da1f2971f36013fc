"""Saved models: what they hold, each party's half, and what a tampered one can do: nothing."""

import hashlib
import json
import re
import shutil

import pandas as pd
import pytest
import torch

from tests.later import later
from vflsynth import IndependentSynthesizer, PartyModel, VFLGANSynthesizer
from vflsynth.datasets import make_party_frames
from vflsynth.exceptions import ArtefactError, ArtefactVersionError, ParameterError
from vflsynth.testing.kept import find_record, numbers_in

N_RECORDS = 97  # a prime that no layer has
KEY = "record_id"


@pytest.fixture(scope="module")
def frames():
    made = make_party_frames(N_RECORDS, 2, random_state=2)
    # No key is a number that a model holds for other reasons.
    return {name: frame.assign(**{KEY: frame[KEY] + 7_654_000}) for name, frame in made.items()}


@pytest.fixture(scope="module")
def synth(frames):
    return VFLGANSynthesizer(
        epochs=2,
        batch_size=16,
        latent_dim=4,
        generator_hidden=(8, 8),
        first_part=(8,),
        shared_hidden=(8,),
        random_state=0,
        device="cpu",
        verbose=0,
    ).fit(frames, KEY, transcript=True)


@pytest.fixture
def saved(synth, tmp_path):
    synth.save(tmp_path / "model")
    return tmp_path / "model"


def test_transcript_and_settings_are_kept(synth, saved):
    loaded = VFLGANSynthesizer.load(saved)
    pd.testing.assert_frame_equal(loaded.transcript_, synth.transcript_)
    assert loaded.settings_["batch_size"] == 16
    assert loaded.settings_["generator_hidden"] == [8, 8]
    assert loaded.device_ == "cpu"
    assert loaded.get_params() == synth.get_params()


def test_devices_are_only_names(saved):
    """Nothing in the files depends on where the model was trained."""
    content = json.loads((saved / "synthesizer.json").read_text())
    content["device"] = "cuda:0"
    (saved / "synthesizer.json").write_text(json.dumps(content))
    rewrite_digests(saved)
    loaded = VFLGANSynthesizer.load(saved, device="cpu")
    assert loaded.device_ == "cuda:0"
    assert loaded.parties_["party_1"].sampler.device.type == "cpu"


def test_a_device_that_cannot_be_saved_is_refused_before_training(frames):
    with pytest.raises(ParameterError, match=r"VFLGANSynthesizer: device must be .* as text"):
        VFLGANSynthesizer(device=torch.device("cpu")).fit(frames, KEY)


def test_another_class_is_named(saved):
    with pytest.raises(ArtefactError, match=r"holds a VFLGANSynthesizer, not.*vflsynth.load"):
        IndependentSynthesizer.load(saved)


# -- halves -------------------------------------------------------------------------------------


def test_each_party_saves_its_half_and_samples_matching_rows(synth, tmp_path):
    joined = synth.sample(300, random_state=11)
    parts = []
    for name, party in synth.parties_.items():
        party.save(tmp_path / name)
        parts.append(PartyModel.load(tmp_path / name).sample(300, random_state=11))
    pd.testing.assert_frame_equal(pd.concat(parts, axis=1), joined)
    assert parts[0].columns.tolist() == [c for c in joined if c.endswith("_1")]


def test_a_half_knows_nothing_of_the_other(synth, tmp_path):
    synth.parties_["party_1"].save(tmp_path / "half")
    text = "".join(file.read_text(errors="replace") for file in (tmp_path / "half").rglob("*.*"))
    assert "measure_1" in text
    others = [column for column in synth.sample(1) if column.endswith("_2")]
    assert others
    assert not any(column in text for column in others)  # weights may hold any two bytes


def test_a_half_is_not_a_model_and_a_model_is_not_a_half(synth, saved, tmp_path):
    synth.parties_["party_1"].save(tmp_path / "half")
    with pytest.raises(ArtefactError, match="party model"):
        VFLGANSynthesizer.load(tmp_path / "half")
    with pytest.raises(ArtefactError, match="vflsynth model"):
        PartyModel.load(saved)


def test_a_half_samples_the_edges(synth):
    party = synth.parties_["party_1"]
    assert len(party.sample(0)) == 0
    assert not party.sample(9).equals(party.sample(9))  # fresh entropy without a random_state


# -- what is in it ------------------------------------------------------------------------------


def test_no_training_row_and_nothing_of_the_table_s_length(synth, frames, saved):
    arrays = list(numbers_in(saved))
    assert len(arrays) > 50
    for array in arrays:
        assert N_RECORDS not in array.shape
    for name, party in synth.parties_.items():
        table = frames[name].drop(columns=KEY)
        raw = table[[f"{c}_{name[-1]}" for c in ("measure", "amount", "count")]].to_numpy(float)
        encoded = party.transformer.transform(table)
        for records in (raw, raw[:, :2], encoded):
            assert find_record(arrays, records) is None
    keys = {str(key) for frame in frames.values() for key in frame[KEY]}
    for file in saved.rglob("*.json"):
        assert not keys & set(re.findall(r"\w+", file.read_text()))


# -- damage -------------------------------------------------------------------------------------


def rewrite_digests(path):
    """What whoever tampers with a file would do."""
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["files"] = {
        file.relative_to(path).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in path.rglob("*")
        if file.is_file() and file.name != "manifest.json"
    }
    (path / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("name", ["synthesizer.json", "parties/party_1/sampler.safetensors"])
def test_damaged_files_are_refused(saved, name):
    original = (saved / name).read_bytes()
    for damaged in (
        original[:-1],
        original[:40],
        b"",
        original + b" ",
        original.replace(b"1", b"2"),
    ):
        (saved / name).write_bytes(damaged)
        with pytest.raises(ArtefactError, match=name):
            VFLGANSynthesizer.load(saved)
    (saved / name).unlink()
    with pytest.raises(ArtefactError, match=name):
        VFLGANSynthesizer.load(saved)


@pytest.mark.parametrize(("version", "fix"), [(99, "Upgrade"), (1, "Fit again")])
def test_other_versions_are_refused(saved, version, fix):
    manifest = json.loads((saved / "manifest.json").read_text())
    (saved / "manifest.json").write_text(json.dumps(manifest | {"format_version": version}))
    with pytest.raises(ArtefactVersionError, match=fix):
        VFLGANSynthesizer.load(saved)


@pytest.mark.parametrize(
    "names", [["../../secret"], ["party_1"], [], ["party_1", "party_3"], "party_1"]
)
def test_parties_outside_of_the_model_are_refused(saved, names):
    """A party's name becomes a path."""
    shutil.copytree(saved / "parties" / "party_1", saved.parent / "secret")
    content = json.loads((saved / "synthesizer.json").read_text())
    (saved / "synthesizer.json").write_text(json.dumps(content | {"parties": names}))
    rewrite_digests(saved)
    with pytest.raises(ArtefactError):
        VFLGANSynthesizer.load(saved)


def test_sizes_are_checked_before_they_are_allocated(saved):
    path = saved / "parties" / "party_1" / "party.json"
    content = json.loads(path.read_text())
    content["sampler"]["hidden"] = [10**6, 10**6]  # 4 TB
    path.write_text(json.dumps(content))
    rewrite_digests(saved)
    with pytest.raises(ArtefactError, match="too few weights"):
        VFLGANSynthesizer.load(saved)


def paths_in(content, path=()):
    yield path
    if isinstance(content, (dict, list)):
        items = content.items() if isinstance(content, dict) else enumerate(content)
        for key, value in items:
            yield from paths_in(value, (*path, key))


def changed(content, path, value):
    """A copy with one entry replaced, or removed if `value` is the class `KeyError`."""
    content = json.loads(json.dumps(content))
    if not path:
        return value
    place = content
    for key in path[:-1]:
        place = place[key]
    if value is KeyError:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return content


@pytest.mark.parametrize("name", ["synthesizer.json", "parties/party_2/party.json"])
@pytest.mark.parametrize("n_changes", [60, *later(300)])
def test_any_other_content_is_a_model_or_an_artefact_error(saved, name, n_changes, rng):
    """With right digests, after random changes. Never another error, never execution."""
    original = json.loads((saved / name).read_text())
    paths = list(paths_in(original))
    assert len(paths) > 100
    values = [KeyError, None, -1, 10**12, 1.5, "x", "../..", True, [], {}, [None], {"float": "nan"}]
    refused = 0
    for _ in range(n_changes):
        path, value = paths[rng.integers(len(paths))], values[rng.integers(len(values))]
        if not path and value is KeyError:
            continue
        (saved / name).write_text(json.dumps(changed(original, path, value)))
        rewrite_digests(saved)
        try:
            VFLGANSynthesizer.load(saved, device="cpu")
        except ArtefactError:
            refused += 1
    assert refused
