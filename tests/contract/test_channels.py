"""Laws of every channel: it delivers what was asked for, and refuses everything else."""

from dataclasses import replace

import pandas as pd
import pytest
import torch

from vflsynth.exceptions import ProtocolError
from vflsynth.methods.vflgan.messages import (
    DiscriminatorFeatures,
    DiscriminatorGradients,
    GeneratorFeatures,
    Shape,
)
from vflsynth.protocol.channel import LocalChannel, Transcript
from vflsynth.protocol.messages import KeyList


class Echo:
    """A party that answers with what it was given, and remembers what it was told."""

    def __init__(self, name, replies=None):
        self.name, self.replies, self.told = name, replies or {}, []

    def answer(self, kind, step):
        return self.replies[kind]

    def take(self, message):
        self.told.append(message)


ROWS = torch.zeros(1, 2, 3)
CHANNELS = {"local": LocalChannel}  # a channel over processes joins here


@pytest.fixture(params=list(CHANNELS))
def make_channel(request):
    return CHANNELS[request.param]


def shape(sender="a", receiver="server", step=3):
    return Shape(sender, receiver, step, 100, 5, 8)


def test_gather_asks_every_party_in_name_order(make_channel):
    parties = [Echo(name, {Shape: shape(name)}) for name in ("b", "c", "a")]
    channel = make_channel(parties)
    assert channel.names == ("a", "b", "c")
    replies = channel.gather(Shape, 3)
    assert list(replies) == ["a", "b", "c"]
    assert all(reply == shape(name) for name, reply in replies.items())


def test_tensors_and_keys_arrive_as_they_were_sent(make_channel):
    features = torch.randn(2, 5, 3)
    keys = pd.Index(["x", "y"], name="id")
    party = Echo(
        "a",
        {
            DiscriminatorFeatures: DiscriminatorFeatures("a", "server", 0, features),
            KeyList: KeyList("a", "server", 0, keys),
        },
    )
    channel = make_channel([party])
    sent = channel.gather(DiscriminatorFeatures, 0)["a"].features
    assert torch.equal(sent, features)
    assert channel.gather(KeyList, 0)["a"].keys.equals(keys)


@pytest.mark.parametrize(
    "reply",
    [
        shape(sender="b"),
        shape(receiver="b"),
        shape(step=4),
        DiscriminatorGradients("a", "server", 3, torch.zeros(1)),
    ],
    ids=["another sender", "another receiver", "another step", "another kind"],
)
def test_a_wrong_reply_is_refused_by_name(make_channel, reply):
    with pytest.raises(ProtocolError, match="party 'a' answered a question for Shape of step 3 "):
        make_channel([Echo("a", {Shape: reply})]).gather(Shape, 3)


def test_a_reply_of_the_same_base_is_another_kind(make_channel):
    """Features of fakes are no answer to a question for features of records."""
    reply = GeneratorFeatures("a", "server", 3, torch.zeros(1))
    with pytest.raises(ProtocolError, match="DiscriminatorFeatures of step 3 with GeneratorFeat"):
        make_channel([Echo("a", {DiscriminatorFeatures: reply})]).gather(DiscriminatorFeatures, 3)


def test_scatter_gives_each_party_its_own(make_channel):
    parties = [Echo("a"), Echo("b")]
    messages = {
        name: DiscriminatorGradients("server", name, 1, torch.full((1, 1, 1), float(i)))
        for i, name in enumerate("ab")
    }
    make_channel(parties).scatter(messages)
    for party in parties:
        (message,) = party.told
        assert type(message) is DiscriminatorGradients
        assert message.receiver == party.name
        assert torch.equal(message.gradients, messages[party.name].gradients)


@pytest.mark.parametrize("wrong", [{"receiver": "b"}, {"sender": "b"}])
def test_a_message_for_someone_else_is_not_delivered(make_channel, wrong):
    party = Echo("a")
    message = replace(DiscriminatorGradients("server", "a", 1, torch.zeros(1)), **wrong)
    with pytest.raises(ProtocolError, match="party 'a'"):
        make_channel([party]).scatter({"a": message})
    assert party.told == []


def test_a_tensor_that_is_not_as_declared_is_not_delivered(make_channel):
    party = Echo("a", {DiscriminatorFeatures: DiscriminatorFeatures("a", "server", 0, ROWS[0])})
    with pytest.raises(
        ProtocolError, match="party 'a' sent a DiscriminatorFeatures whose features"
    ):
        make_channel([party]).gather(DiscriminatorFeatures, 0)
    message = DiscriminatorGradients("server", "a", 1, ROWS.long())
    with pytest.raises(ProtocolError, match="the server sent a DiscriminatorGradients whose grad"):
        make_channel([party]).scatter({"a": message})
    assert party.told == []


def test_everything_is_recorded_once(make_channel):
    transcript = Transcript(keep_messages=True)
    channel = make_channel([Echo("a", {Shape: shape()})], transcript)
    channel.gather(Shape, 3)
    channel.scatter({"a": DiscriminatorGradients("server", "a", 3, torch.zeros(1, 2, 4))})
    assert [type(message) for message in transcript.messages] == [Shape, DiscriminatorGradients]
    totals = transcript.to_frame().set_index("message")
    assert totals.loc["Shape", ["sender", "receiver", "messages", "bytes"]].tolist() == [
        "a",
        "server",
        1,
        24,
    ]
    assert totals.loc["DiscriminatorGradients", "bytes"] == 2 * 4 * 4
    assert totals.loc["DiscriminatorGradients", "contents"] == "gradients (1, 2, 4)"
