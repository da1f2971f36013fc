"""What a whole fit sends and what everybody holds afterwards: nothing but what is declared."""

import gc
import json
from collections.abc import Mapping
from dataclasses import fields
from types import FunctionType, ModuleType

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from tests.crossing import EVERY_RUN
from tests.later import later
from vflsynth import VFLGANSynthesizer
from vflsynth._random import derive, secret_from
from vflsynth.learning import Party
from vflsynth.protocol.channel import MESSAGES, Declaration, Message, Transcript
from vflsynth.protocol.schedule import Schedule
from vflsynth.run import local
from vflsynth.testing.kept import find_record


class Watched(VFLGANSynthesizer):
    """Lets a test look at the objects that a fit makes and forgets."""

    def _local_run(self, *arguments):
        self.run = super()._local_run(*arguments)
        return self.run

    @property
    def watched(self):
        """The parties, by name."""
        return {name: node.party for name, node in self.run.parties.items()}

    @property
    def server(self):
        return self.run.algorithm.server


@pytest.fixture(scope="module", params=["end_to_end", *later("layerwise", "paper")])
def watched(request):
    from vflsynth.datasets import make_party_frames

    kept = []

    def transcript():
        kept.append(Transcript(keep_messages=True))
        return kept[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "Transcript", transcript)
        synth = Watched(
            epochs=2,
            batch_size=16,
            generator_hidden=(8,),
            first_part=(6,),
            shared_hidden=(5,),
            discriminator_steps=2,
            model_selection="best",
            gradient_penalty=request.param,
            random_state=0,
            device="cpu",
            verbose=0,
        )
        frames = make_party_frames(61, 3, random_state=0, n_unmatched=4)
        synth.fit(frames, on="record_id", transcript=True)
    return synth, kept[0], frames


def objects_reachable_from(root):
    """Every object that can be reached, but by what functions share with their modules."""
    seen, queue = {}, [root]
    while queue:
        item = queue.pop()
        if id(item) not in seen and not isinstance(item, (type, ModuleType)):
            seen[id(item)] = item
            is_function = isinstance(item, FunctionType)
            queue += item.__closure__ or () if is_function else gc.get_referents(item)
    return list(seen.values())


def numbers_of(value):
    """The numbers in a message's field, those in JSON values and those written as text included."""
    if isinstance(value, Tensor):
        return value.numpy()
    return np.array(list(numbers_in_json(value)), dtype=float)


def numbers_in_json(value):
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from numbers_in_json(item)
    else:
        try:
            yield float(value)
        except ValueError:
            assert isinstance(value, str)


def test_numbers_in_json_are_found():
    assert numbers_of({"a": [1, {"b": "2.5"}], "c": "no"}).tolist() == [1.0, 2.5]


def test_the_walk_finds_what_is_hidden():
    secret = b"found me"
    hidden = {"a": [lambda: secret]}
    assert any(item is secret for item in objects_reachable_from(hidden))


def test_only_declared_messages_and_fields_cross(watched):
    synth, transcript, frames = watched
    jointly = {"FeatureSlopes", "JointSlopes"} if synth.gradient_penalty == "end_to_end" else set()
    for message in transcript.messages:
        assert type(message) is MESSAGES[type(message).__name__]
        assert not hasattr(message, "__dict__")  # slots: no field can be smuggled in
        assert {message.sender, message.receiver} <= {"server", *frames}
        assert "server" in {message.sender, message.receiver}
        assert (message.receiver == "server") is message.declared.from_party
    assert {type(message).__name__ for message in transcript.messages} == EVERY_RUN | {
        "Shape",
        "DiscriminatorFeatures",
        "DiscriminatorGradients",
        "GeneratorFeatures",
        "GeneratorGradients",
        "MaskedReal",
        "MaskedFake",
        "SelectionNotice",
        "TrainingReport",
        *jointly,
    }


def test_totals_equal_hand_counts(watched):
    """61 records in batches of 16: 4 steps an epoch, 2 generator steps among them; 2 epochs."""
    synth, transcript, _ = watched
    penalty = synth.gradient_penalty
    totals = transcript.to_frame().set_index(["message", "sender", "receiver"])
    jointly, blocks = penalty == "end_to_end", 2 if penalty == "paper" else 3
    selections = int((synth.history_["frechet_distance"].cummin().diff() < 0).sum()) + 1
    for name, party in synth.watched.items():
        width = party.transformer.width_
        up, down = (name, "server"), ("server", name)
        for kind in ("Hello", "KeyList", "EncodedSize"):
            assert totals.loc[(kind, *up), "messages"] == 1
        for kind in ("Terms", "AlignmentNotice", "EncodedSizes"):
            assert totals.loc[(kind, *down), "messages"] == 1
        assert totals.loc[("EncodedSize", *up), "bytes"] == 8
        sent = {type(m).__name__: m for m in transcript.messages if name in (m.sender, m.receiver)}
        for kind, way, told in (
            ("Hello", up, sent["Hello"].facts),
            ("Terms", down, sent["Terms"].terms),
            ("EncodedSizes", down, {n: p.transformer.width_ for n, p in synth.watched.items()}),
        ):
            assert totals.loc[(kind, *way), "bytes"] == len(json.dumps(told))
        assert totals.loc[("Shape", *up), ["messages", "bytes"]].tolist() == [1, 24]
        for kind, way, steps, rows in (
            ("DiscriminatorFeatures", up, 8, blocks * 16),
            ("DiscriminatorGradients", down, 8, (3 if jointly else 2) * 16),
            ("GeneratorFeatures", up, 4, 16),
            ("GeneratorGradients", down, 4, 16),
            ("MaskedReal", up, 1, None),
            ("MaskedFake", up, 2, None),
        ):
            each = 4 * 6 * rows if rows else 61 * (width + 1) * 4
            counted = totals.loc[(kind, *way), ["messages", "bytes"]].tolist()
            assert counted == [steps, steps * each]
        if jointly:
            counted = totals.loc[("FeatureSlopes", *up), ["messages", "bytes"]].tolist()
            assert counted == [8, 8 * 4 * 6 * 16]
            counted = totals.loc[("JointSlopes", *down), ["messages", "bytes"]].tolist()
            assert counted == [8, 8 * 4 * 16]  # one number per record
        assert totals.loc[("TrainingReport", *up), ["messages", "bytes"]].tolist() == [2, 2 * 8]
        assert totals.loc[("SelectionNotice", *down), ["messages", "bytes"]].tolist() == [
            selections,
            selections,
        ]
    assert len(totals) == (17 if jointly else 15) * len(synth.watched)
    pd.testing.assert_frame_equal(transcript.to_frame(), synth.transcript_)


def test_no_message_holds_a_record(watched):
    """Neither as it is in the table nor as it is encoded."""
    synth, transcript, frames = watched
    raw = {
        name: party.matched().select_dtypes(["float64", "float32", "int64"]).fillna(0.0).to_numpy()
        for name, party in synth.watched.items()
    }
    sent = []
    keys = pd.concat([frame["record_id"] for frame in frames.values()])
    for message in transcript.messages:
        for _, value in message.contents():
            if isinstance(value, pd.Index):
                assert value.isin(keys).all()
            else:
                sent.append(numbers_of(value))
    for name, party in synth.watched.items():
        assert find_record(sent, raw[name][:, :3]) is None
        assert find_record(sent, party.records.numpy()) is None
    # The search finds a record where there is one.
    party = synth.watched["party_2"]
    planted = torch.cat([torch.rand(7), party.records[5], torch.rand(2)])
    assert find_record([*sent, planted.numpy()], party.records.numpy()) == 5


def test_the_server_holds_no_record_and_no_shared_secret(watched):
    synth, _, _ = watched
    held = objects_reachable_from(synth.server)
    root = secret_from(0)
    forbidden = {root, derive(root, "shared by the parties")}
    forbidden |= {derive(root, f"party {name}") for name in synth.watched}
    assert not any(isinstance(item, bytes) and item in forbidden for item in held)
    assert any(isinstance(item, bytes) and item == derive(root, "server") for item in held)
    assert not any(isinstance(item, (pd.DataFrame, Schedule, Party)) for item in held)
    storages = {party.records.untyped_storage().data_ptr() for party in synth.watched.values()}
    assert not any(
        isinstance(item, Tensor) and item.untyped_storage().data_ptr() in storages for item in held
    )


def test_a_party_holds_no_one_elses_table(watched):
    synth, _, frames = watched
    for name, party in synth.watched.items():
        held = objects_reachable_from(party)
        others = [frame for other, frame in frames.items() if other != name]
        columns = {column for frame in others for column in frame if column != "record_id"}
        for item in held:
            assert not isinstance(item, Party) or item is party
            if isinstance(item, pd.DataFrame):
                assert not columns & set(item.columns)
        others_records = {
            other.records.untyped_storage().data_ptr()
            for other in synth.watched.values()
            if other is not party
        }
        assert not any(
            isinstance(item, Tensor) and item.untyped_storage().data_ptr() in others_records
            for item in held
        )
        root = secret_from(0)
        labels = ["server", "samples", *(f"party {other}" for other in frames if other != name)]
        secrets = {root, *(derive(root, label) for label in labels)}
        assert not any(isinstance(item, bytes) and item in secrets for item in held)


def test_every_message_says_what_it_is():
    """The declarations are the protocol: the documentation's tables are made from them."""
    for name, kind in MESSAGES.items():
        assert issubclass(kind, Message)
        assert kind.__name__ == name
        assert [field.name for field in fields(kind)[:3]] == ["sender", "receiver", "step"]
        assert isinstance(kind.declared, Declaration)
        assert kind.declared.contents
        assert kind.declared.tells
