"""Interrupted and resumed, a run ends with the same bytes as if it had never stopped."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pandas as pd
import pytest

from tests.callbacks import StopAfter
from tests.later import later
from tests.smaller import narrow
from vflsynth import VFLGANSynthesizer
from vflsynth import _artefacts as artefacts
from vflsynth.datasets import make_party_frames
from vflsynth.exceptions import ArtefactError
from vflsynth.run.local import KIND, check_same_run
from vflsynth.testing.kept import find_record, halves_of

KEY = "record_id"


@pytest.fixture(scope="module")
def frames():
    """Columns of four types: what a run goes on from does not depend on more."""
    made = make_party_frames(60, 2, random_state=2)
    return narrow(made, "measure", "count", "score", "group")


KINDS = pytest.mark.parametrize(
    "make_gan", ["average, best", *later("VertiGAN", "last")], indirect=True
)


def assert_same(one, other):
    """Same halves, same history but for the clock, same samples."""
    assert halves_of(one) == halves_of(other)
    pd.testing.assert_frame_equal(
        one.history_.drop(columns="seconds"), other.history_.drop(columns="seconds")
    )
    pd.testing.assert_frame_equal(one.sample(20, random_state=1), other.sample(20, random_state=1))


@KINDS
def test_stopped_and_resumed_equals_unbroken(make_gan, frames, tmp_path):
    """Everything but the seconds: optimisers and the server, too."""
    unbroken = make_gan().fit(frames, KEY, checkpoint=tmp_path / "a", checkpoint_every=1)
    stopped = make_gan().fit(
        frames, KEY, checkpoint=tmp_path / "b", checkpoint_every=2, callbacks=[StopAfter(3)]
    )
    assert len(stopped.history_) == 3
    assert not stopped.interrupted_
    resumed = make_gan().fit(frames, KEY, resume=tmp_path / "b", checkpoint=tmp_path / "c")
    assert_same(resumed, unbroken)
    files = sorted(f.relative_to(tmp_path / "a") for f in (tmp_path / "a").rglob("*.safetensors"))
    assert len(files) == 3
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "c" / file).read_bytes()

    def epoch(name):
        return json.loads((tmp_path / name / "progress.json").read_text())["epoch"]

    assert epoch("b") == 2  # the one resumed from is left alone, unless it goes on itself
    for name in "bc":  # of a finished run, no more is trained
        assert_same(make_gan().fit(frames, KEY, resume=tmp_path / name), unbroken)
        assert epoch(name) == 6


def test_how_often_checkpoints_are_written(make_vflgan, frames, tmp_path, monkeypatch):
    written = []
    write = artefacts.write_json

    def watch(path, content):
        if path.name == "progress.json":
            written.append(content["epoch"])
        write(path, content)

    monkeypatch.setattr(artefacts, "write_json", watch)
    make_vflgan(epochs=7).fit(frames, KEY, checkpoint=tmp_path / "run", checkpoint_every=3)
    assert written == [3, 6, 7]


def test_a_checkpoint_is_never_half_written(make_vflgan, frames, tmp_path, monkeypatch):
    write, calls, short = artefacts.write_tensors, [], make_vflgan(epochs=3)

    def fail_in_the_second(path, tensors):
        calls.append(path)
        if len(calls) == 5:  # two parties and the server make three a checkpoint
            raise OSError("disk full")
        write(path, tensors)

    monkeypatch.setattr(artefacts, "write_tensors", fail_in_the_second)
    with pytest.raises(ArtefactError, match="disk full"):
        short.fit(frames, KEY, checkpoint=tmp_path / "run", checkpoint_every=1)
    monkeypatch.undo()
    artefacts.open_directory(tmp_path / "run", KIND)
    assert json.loads((tmp_path / "run" / "progress.json").read_text())["epoch"] == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["run"]
    resumed = make_vflgan(epochs=3).fit(frames, KEY, resume=tmp_path / "run")
    assert_same(resumed, make_vflgan(epochs=3).fit(frames, KEY))


@pytest.mark.parametrize("name", ["checkpoint", "resume"])
def test_an_empty_path_is_not_no_path(make_vflgan, frames, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ArtefactError):
        make_vflgan().fit(frames, KEY, **{name: ""})
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]


def test_a_target_that_cannot_be_used_is_refused_before_training(make_vflgan, frames, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    seen = []

    class Watch:
        def on_epoch_end(self, state):
            seen.append(state.epoch)

    with pytest.raises(ArtefactError, match="choose another path"):
        make_vflgan().fit(frames, KEY, checkpoint=tmp_path, callbacks=[Watch()])
    assert seen == []


# -- what is refused ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kept(make_vflgan, frames, tmp_path_factory):
    path, stop = tmp_path_factory.mktemp("kept") / "run", [StopAfter(2)]
    make_vflgan().fit(frames, KEY, checkpoint=path, checkpoint_every=1, callbacks=stop)
    return path


@pytest.fixture
def checkpoint(kept, tmp_path):
    return shutil.copytree(kept, tmp_path / "run")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"epochs": 7}, "epochs was 6 and is 7"),
        ({"learning_rate": 1e-3}, "learning_rate was"),
        ({"betas": (0.9, 0.99)}, r"betas was \[0.0, 0.9\] and is \[0.9, 0.99\]"),
        *later(({"model_selection": "last"}, "model_selection was 'best' and is 'last'")),
        ({"random_state": 1}, "random_state was"),
        ({"random_state": None}, "integer random_state"),
        ({"column_kinds": {"count_1": "continuous"}}, "encoded widths|records"),
    ],
)
def test_other_parameters_are_refused(make_vflgan, frames, checkpoint, change, named):
    with pytest.raises(ArtefactError, match=named):
        make_vflgan(**change).fit(frames, KEY, resume=checkpoint)


def test_other_records_of_the_same_shape_are_refused(make_vflgan, frames, checkpoint):
    changed = {name: frame.copy() for name, frame in frames.items()}
    column = changed["party_2"]["measure_2"]
    changed["party_2"]["measure_2"] = column.to_numpy()[::-1]
    with pytest.raises(
        ArtefactError, match=r"party_2\.safetensors belongs to another run: records was"
    ):
        make_vflgan().fit(changed, KEY, resume=checkpoint)
    shuffled = {name: frame.sample(frac=1, random_state=1) for name, frame in frames.items()}
    make_vflgan().fit(shuffled, KEY, resume=checkpoint)  # the same records in another order


def test_fewer_records_and_other_parties_are_refused(make_vflgan, frames, checkpoint):
    fewer = {name: frame[frame[KEY] > frame[KEY].min()] for name, frame in frames.items()}
    with pytest.raises(ArtefactError, match="n_records was 60 and is 59"):
        make_vflgan().fit(fewer, KEY, resume=checkpoint)
    renamed = {f"{name} renamed": frame for name, frame in frames.items()}
    others = "another run, of 'party_1', 'party_2', 'server' and not of 'party_1 renamed'"
    with pytest.raises(ArtefactError, match=others):
        make_vflgan().fit(renamed, KEY, resume=checkpoint)


def test_another_algorithm_is_refused(frames, checkpoint):
    from vflsynth import VertiGANSynthesizer

    with pytest.raises(ArtefactError, match="method was 'VFLGANMethod' and is 'VertiGANMethod'"):
        VertiGANSynthesizer(random_state=0, verbose=0).fit(frames, KEY, resume=checkpoint)


def test_an_entry_that_is_absent_is_not_one_that_is_none(tmp_path):
    check_same_run(tmp_path, {"a": None, "b": [1]}, {"b": (1,), "a": None}, "Stop")
    with pytest.raises(ArtefactError, match=r"run: a was absent and is None\. Stop"):
        check_same_run(tmp_path, {}, {"a": None}, "Stop")
    with pytest.raises(ArtefactError, match="a was None and is absent"):
        check_same_run(tmp_path, {"a": None}, {}, "Stop")


def test_a_damaged_checkpoint_is_refused(make_vflgan, frames, checkpoint):
    server = checkpoint / "server.safetensors"
    server.write_bytes(server.read_bytes()[:-4])
    with pytest.raises(ArtefactError, match=r"server\.safetensors"):
        make_vflgan().fit(frames, KEY, resume=checkpoint)
    with pytest.raises(ArtefactError, match="does not exist"):
        make_vflgan().fit(frames, KEY, resume=checkpoint.parent / "nothing")


def test_a_saved_model_is_no_checkpoint(make_vflgan, frames, tmp_path):
    make_vflgan(epochs=1).fit(frames, KEY).save(tmp_path / "model")
    with pytest.raises(ArtefactError, match="saved 'vflsynth model', not a saved"):
        make_vflgan().fit(frames, KEY, resume=tmp_path / "model")


def test_a_tampered_checkpoint_with_right_digests(make_vflgan, frames, checkpoint):
    """Whoever changes a file can change its digest."""
    for name, content in {
        "progress.json": b"[]",
        "server.safetensors": b"\x02\0\0\0\0\0\0\0{}",
        "parties/party_1.safetensors": (checkpoint / "server.safetensors").read_bytes(),
    }.items():
        original = (checkpoint / name).read_bytes()
        for data in (content, original):
            (checkpoint / name).write_bytes(data)
            manifest = json.loads((checkpoint / "manifest.json").read_text())
            manifest["files"][name] = artefacts.file_digest(checkpoint / name)
            (checkpoint / "manifest.json").write_text(json.dumps(manifest))
            if data is content:
                with pytest.raises(ArtefactError):
                    make_vflgan().fit(frames, KEY, resume=checkpoint)


# -- Ctrl-C -------------------------------------------------------------------------------------


class Interrupt:
    """What the user does, once or twice, at the end of an epoch."""

    def __init__(self, epoch, times=1):
        self.epoch, self.times = epoch, times

    def on_epoch_end(self, state):
        if state.epoch == self.epoch:
            for _ in range(self.times):
                signal.raise_signal(signal.SIGINT)


@KINDS
def test_one_interrupt_keeps_the_model_and_says_so(make_gan, frames):
    before = signal.getsignal(signal.SIGINT)
    with pytest.warns(RuntimeWarning, match="interrupted in epoch 4 of 6; the model so far"):
        synth = make_gan().fit(frames, KEY, callbacks=[Interrupt(3)])
    assert signal.getsignal(signal.SIGINT) is before
    assert synth.interrupted_
    assert len(synth.history_) == 3
    stopped = make_gan().fit(frames, KEY, callbacks=[StopAfter(3)])
    pd.testing.assert_frame_equal(synth.sample(9), stopped.sample(9))


def test_two_interrupts_end_the_run(make_vflgan, frames):
    with pytest.raises(KeyboardInterrupt):
        make_vflgan().fit(frames, KEY, callbacks=[Interrupt(2, times=2)])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@KINDS
def test_interrupted_in_the_first_epoch(make_gan, frames, monkeypatch, tmp_path):
    """No epoch is finished and nothing was selected: the model is the start of training."""
    from vflsynth.methods.gan.method import GANAlgorithm

    begin = GANAlgorithm.begin

    def interrupt(self):
        begin(self)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(GANAlgorithm, "begin", interrupt)
    with pytest.warns(RuntimeWarning, match="in epoch 1 of 6; no epoch was finished") as caught:
        synth = make_gan().fit(frames, KEY)
    assert not any("was kept" in str(warning.message) for warning in caught)
    assert synth.history_.empty
    assert len(synth.sample(5)) == 5
    synth.save(tmp_path / "model")
    loaded = type(synth).load(tmp_path / "model", device="cpu")
    assert loaded.interrupted_
    pd.testing.assert_frame_equal(loaded.sample(5), synth.sample(5))


CHILD = """
import sys, time, warnings
from vflsynth import VFLGANSynthesizer
from vflsynth.datasets import make_party_frames

class Slow:
    def on_epoch_end(self, state):
        print("epoch", state.epoch, flush=True)
        time.sleep(0.3 if state.epoch > 2 else 0.0)

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    synth = VFLGANSynthesizer(
        epochs=30, batch_size=16, generator_hidden=(8,), first_part=(8,), shared_hidden=(),
        random_state=0, device="cpu", verbose=0,
    ).fit(
        make_party_frames(60, 2, random_state=2), "record_id", callbacks=[Slow()],
        checkpoint=sys.argv[1], checkpoint_every=2,
    )
print("interrupted" if synth.interrupted_ else "finished", len(synth.sample(3)))
print(*[w.message for w in caught if "interrupted" in str(w.message)])
"""


@pytest.mark.slow
def test_a_real_interrupt_of_a_real_process(tmp_path):
    checkpoint = tmp_path / "run"
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CHILD), str(checkpoint)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    try:
        for line in child.stdout:
            if line == "epoch 4\n":
                child.send_signal(signal.SIGINT)
                break
        rest = child.stdout.read()
        assert child.wait() == 0
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    assert "interrupted 3\n" in rest
    assert "the model so far was kept" in rest

    parameters = {
        "epochs": 30,
        "batch_size": 16,
        "generator_hidden": (8,),
        "first_part": (8,),
        "shared_hidden": (),
        "random_state": 0,
        "device": "cpu",
        "verbose": 0,
    }
    frames = make_party_frames(60, 2, random_state=2)
    resumed = VFLGANSynthesizer(**parameters).fit(frames, KEY, resume=checkpoint)
    assert_same(resumed, VFLGANSynthesizer(**parameters).fit(frames, KEY))


def test_a_checkpoint_holds_no_record(make_vflgan, frames, checkpoint):
    """It holds networks; the records are only a keyed digest."""
    encoded = {}
    for name, party in make_vflgan(epochs=1).fit(frames, KEY).parties_.items():
        table = frames[name].drop(columns=KEY)
        encoded[name] = party.transformer.transform(table)
    for file in checkpoint.rglob("*.safetensors"):
        tensors = [tensor.numpy() for tensor in artefacts.read_tensors(file).values()]
        assert not any(len(frames["party_1"]) in tensor.shape for tensor in tensors)
        for records in encoded.values():
            assert find_record(tensors, records) is None
    text = (checkpoint / "progress.json").read_text()
    for frame in frames.values():
        assert not any(
            repr(float(value)) in text for value in frame.filter(like="measure").iloc[:, 0]
        )
        assert not any(re.search(rf"(?<![\d.]){key}(?!\d)", text) for key in frame[KEY])
