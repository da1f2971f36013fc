"""Tensors of every message are of the types and shapes it declares, or are refused by name."""

from dataclasses import fields, replace

import pytest
import torch
from torch import Tensor

import vflsynth.splitdefense  # noqa: F401 (declares messages)
from vflsynth.exceptions import PayloadRejectedError, ProtocolError
from vflsynth.federation.wire import Frame, decode, encode
from vflsynth.methods.pairwise.messages import ColumnTables, Mixture
from vflsynth.methods.vflgan.messages import DiscriminatorFeatures
from vflsynth.protocol.channel import (
    MESSAGES,
    SERVER,
    LocalChannel,
    MadeOf,
    Message,
    Participant,
    When,
    holds,
    message,
)

PARTY = "lab"
OTHERS = {"int": 1, "float": 1.0, "dict[str, Any]": {}}
KINDS = [
    kind
    for kind in MESSAGES.values()
    if kind.__module__.startswith("vflsynth.") and not kind.declared.in_process
]
HELD = [(kind, name) for kind in KINDS for name in kind.held]


class Echo(Participant):
    """A party that answers with one message, and remembers what it is told."""

    name = PARTY

    def __init__(self, reply=None):
        self.reply, self.told = reply, []

    def answer(self, kind, step):
        return self.reply

    def take(self, message):
        self.told.append(message)


def honest(kind):
    """A message as it is declared, in which no two axes are equally long by chance."""
    lengths = {}

    def length(axis):
        return axis if isinstance(axis, int) else lengths.setdefault(axis, 3 + len(lengths))

    values = {
        field.name: torch.ones(
            [length(axis) for axis in kind.held[field.name].axes],
            dtype=kind.held[field.name].types[0],
        )
        if field.name in kind.held
        else OTHERS[field.type]
        for field in fields(kind)[3:]
    }
    ends = (PARTY, SERVER) if kind.declared.from_party else (SERVER, PARTY)
    return kind(*ends, 0, **values)


def delivered(told):
    """What arrives in one process."""
    party = Echo(told)
    channel = LocalChannel([party])
    if type(told).declared.from_party:
        return channel.gather(type(told), 0)[PARTY]
    channel.scatter({PARTY: told})
    (found,) = party.told
    return found


def sent(told):
    """What arrives between processes."""
    (found,) = decode(encode(Frame("run", 0, (told,))), 1 << 20).messages
    return found


def refused(told, says):
    whose = f"party '{PARTY}'" if type(told).declared.from_party else "the server"
    with pytest.raises(ProtocolError, match=f"{whose} sent a {says}"):
        delivered(told)
    with pytest.raises(PayloadRejectedError, match=f"received a {says}"):
        sent(told)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_as_declared_arrives(kind):
    told = honest(kind)
    assert delivered(told) is told
    assert sent(told).problem() is None


@pytest.mark.parametrize(("kind", "name"), HELD)
@pytest.mark.parametrize(
    "change",
    [
        lambda value: value.to(torch.complex64),
        lambda value: value.unsqueeze(-1),
        lambda value: value[0],
        lambda value: value.ravel()[0].clone(),
    ],
    ids=["type", "one axis more", "one fewer", "none"],
)
def test_another_type_or_number_of_axes_is_refused_by_name(kind, name, change):
    told = honest(kind)
    changed = replace(told, **{name: change(getattr(told, name))})
    refused(changed, f"{kind.__name__} whose {name} are ")


@pytest.mark.parametrize(("kind", "name"), HELD)
def test_axes_of_one_name_are_equally_long_and_those_with_a_number_have_it(kind, name):
    told = honest(kind)
    for place, axis in enumerate(kind.held[name].axes):
        others = [a for other in kind.held if other != name for a in kind.held[other].axes]
        if not isinstance(axis, int) and axis not in others:
            continue
        value = getattr(told, name)
        short = value.narrow(place, 0, value.shape[place] - 1)
        refused(replace(told, **{name: short}), f"{kind.__name__} whose ")


def test_the_error_says_what_came_and_what_was_expected():
    told = replace(honest(Mixture), weights=torch.ones(4, 1))
    says = r"Mixture whose weights are float32 of shape \(4, 1\); expected float32 of shape \(comp"
    refused(told, says)
    told = replace(honest(ColumnTables), kinds=torch.zeros(9, dtype=torch.int64))
    refused(told, r"ColumnTables whose kinds .* \(9,\); expected int64 of shape \(column=4\)")


def test_a_type_that_no_message_has_is_refused_before_it_is_looked_at():
    """Whether numbers of 8 bits are finite, torch cannot say of every type."""
    told = honest(DiscriminatorFeatures)
    for kind in (torch.float8_e4m3fn, torch.bfloat16, torch.complex64):
        refused(replace(told, features=told.features.to(kind)), "DiscriminatorFeatures whose")


def test_a_message_whose_tensor_may_be_anything_is_not_declared():
    with pytest.raises(ProtocolError, match=r"Loose\.values is a tensor of any kind\. Fix: "):

        @message(from_party=True, made_of=MadeOf.PLANS, when=When.ONCE, contents="")
        class Loose(Message):
            values: Tensor

    assert "Loose" not in MESSAGES


def test_messages_of_other_packages_declare_the_same_way():
    @message(from_party=True, made_of=MadeOf.PLANS, when=When.ONCE, contents="")
    class Strict(Message):
        values: Tensor = holds(torch.int64, "row", 2)

    del MESSAGES["Strict"]
    assert Strict(PARTY, SERVER, 0, torch.zeros(3, 2, dtype=torch.int64)).problem() is None
    assert Strict(PARTY, SERVER, 0, torch.zeros(2, 3, dtype=torch.int64)).problem() is not None
