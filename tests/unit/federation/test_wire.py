"""Frames: what is written is read back, and whatever else arrives is refused by name."""

import json
import struct
from operator import attrgetter

import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save

from vflsynth.exceptions import ExchangeError, PayloadRejectedError, ProtocolMismatchError
from vflsynth.federation.wire import PROTOCOL, Frame, Reason, Request, Status, decode, encode
from vflsynth.methods.vflgan.messages import (
    DiscriminatorFeatures,
    DiscriminatorGradients,
    GeneratorFeatures,
    Shape,
)
from vflsynth.protocol.channel import MESSAGES
from vflsynth.protocol.messages import (
    AlignmentNotice,
    BlindedKeys,
    Hello,
    KeyList,
    SelectionNotice,
    TrainingReport,
)

LIMIT = 1 << 20


def features(value=1.5, shape=(1, 4, 3)):
    return DiscriminatorFeatures("lab", "server", 7, torch.full(shape, value))


SEAL = torch.arange(32, dtype=torch.uint8)


def up(message=None, **changes):
    parts = {"run": "r1", "number": 3, "tag": "ab12"}
    return Frame(**parts | {"messages": (message or features(),)} | changes)


def same(one, other):
    about = attrgetter("run", "number", "tag", "status", "request", "reason")
    assert about(one) == about(other)
    for message, again in zip(one.messages, other.messages, strict=True):
        kind = attrgetter("__class__", "sender", "receiver", "step")
        assert kind(message) == kind(again)
        for (name, value), (name_2, value_2) in zip(
            message.contents(), again.contents(), strict=True
        ):
            assert name == name_2
            if isinstance(value, torch.Tensor):
                assert value.dtype == value_2.dtype
                assert torch.equal(value, value_2)
            else:
                assert value == value_2


@pytest.mark.parametrize(
    "frame",
    [
        up(),
        up(Shape("lab", "server", 0, 100, 7, 16)),
        up(Hello("lab", "server", 0, {"version": "1", "rows": 5, "nested": [1, {"a": None}]})),
        up(SelectionNotice("server", "lab", 4, torch.tensor([True]))),
        up(BlindedKeys("lab", "server", 0, torch.zeros(5, 32, dtype=torch.uint8), SEAL)),
        up(TrainingReport("lab", "server", 1, torch.ones(1), torch.zeros(1))),
        up(DiscriminatorGradients("server", "lab", 7, torch.randn(1, 0, 3))),
        Frame("r1", 0, request=Request(GeneratorFeatures, 12)),
        Frame("r1", 9, status=Status.DONE),
        Frame("r1", 9, status=Status.ABORT, reason=Reason("PartyLostError", "gone", "lab", 3)),
        Frame("r1", 9, status=Status.ABORT, reason=Reason("PartyLostError", "gone \udce4")),
        up(messages=(features(), features(2.0))),
    ],
)
def test_a_frame_is_read_as_it_was_written(frame):
    same(decode(encode(frame), LIMIT), frame)


def test_every_float_arrives_with_its_bits():
    values = torch.randn(1, 50, 7)
    (message,) = decode(encode(up(features().__class__("a", "b", 1, values))), LIMIT).messages
    assert message.features.numpy().tobytes() == values.numpy().tobytes()


def test_a_slice_is_sent_as_its_values():
    part = torch.randn(1, 5, 6).split(2, -1)[1]
    (message,) = decode(encode(up(DiscriminatorFeatures("a", "b", 1, part))), LIMIT).messages
    assert torch.equal(message.features, part)


def test_lists_of_keys_cannot_be_written():
    assert {name for name, kind in MESSAGES.items() if kind.declared.in_process} == {
        "KeyList",
        "AlignmentNotice",
    }
    for message in (
        KeyList("lab", "server", 0, pd.Index([1, 2])),
        AlignmentNotice("server", "lab", 0, pd.Index([1, 2])),
    ):
        with pytest.raises(TypeError):
            encode(up(message))


def test_a_frame_is_little_more_than_its_tensors():
    assert len(encode(up(features(shape=(1, 64, 128))))) - 64 * 128 * 4 < 600


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_values_that_are_not_finite_are_refused(value):
    with pytest.raises(PayloadRejectedError, match="not finite"):
        decode(encode(up(features(value))), LIMIT)


def test_a_frame_that_is_too_large_is_refused():
    data = encode(up(features(shape=(1, 100, 100))))
    assert decode(data, len(data))
    with pytest.raises(PayloadRejectedError, match=f"{len(data):,} bytes is larger"):
        decode(data, len(data) - 1)


def test_a_header_that_nobody_would_take_is_not_sent():
    said = Hello("lab", "server", 0, {"heads": ["f" * 64] * 40_000})  # of 40,000 private runs
    assert decode(encode(up(said)), 1 << 28)
    with pytest.raises(PayloadRejectedError, match="at most 16,777,216"):
        encode(up(Hello("lab", "server", 0, {"heads": ["f" * 64] * 260_000})))


def test_another_version_is_named():
    data = bytearray(encode(up()))
    data[4] = PROTOCOL + 1
    with pytest.raises(ProtocolMismatchError, match=f"version {PROTOCOL + 1}"):
        decode(bytes(data), LIMIT)


def parts(frame=None):
    data = encode(frame or up())
    (length,) = struct.unpack_from("<I", data, 5)
    return json.loads(data[9 : 9 + length]), data[9 + length :]


def assembled(header, body):
    text = json.dumps(header).encode()
    return struct.pack("<4sBI", b"VFLS", PROTOCOL, len(text)) + text + body


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda h: h.pop("tag"), "header"),
        (lambda h: h.update(more=1), "header.*'more' is not permitted"),
        (lambda h: h.update(number=-1), "number.*greater than or equal to 0"),
        (lambda h: h.update(number=True), "number.*valid integer"),
        (lambda h: h.update(number=1.0), "number.*valid integer"),
        (lambda h: h.update(number=1 << 60), "number.*less than 9007199254740992"),
        (lambda h: h.update(run="x" * 5000), "run.*short text"),
        (lambda h: h.update(run=None), "run.*short text"),
        (lambda h: h.update(status="stop"), "status.*'go', 'wait'"),
        (lambda h: h.update(status="abort"), "reason"),
        (lambda h: h.update(reason=["a", "b", None, None]), "reason"),
        (lambda h: h.update(request=["fly", 1]), "unknown kind"),
        (lambda h: h.update(request=["Shape"]), "request.1.*required"),
        (lambda h: h.update(request=["KeyList", 0]), "unknown kind"),
        (lambda h: h.update(messages={}), "messages.*valid list"),
        (lambda h: h.update(messages=h["messages"] * 20), "messages.*at most 16 items"),
        (lambda h: h.update(messages=[]), "belong to no message"),
        (lambda h: h["messages"][0].update(kind="KeyList"), "unknown kind"),
        (lambda h: h["messages"][0].update(kind="os.system"), "unknown kind"),
        (lambda h: h["messages"][0].update(kind="Shape"), "Shape.*n_records.*required"),
        (lambda h: h["messages"][0].update(kind="DiscriminatorGradients"), "without its tensor"),
        (
            lambda h: h["messages"][0].update(values={"features": 1}),
            "Features.*'features'.*not permitted",
        ),
        (lambda h: h["messages"][0].update(values=None), "messages.0.values.*valid dictionary"),
        (lambda h: h["messages"][0].update(kind=5), "unknown kind"),
        (lambda h: h["messages"][0].update(kind="AlignmentNotice"), "unknown kind"),
        (lambda h: h["messages"][0].update(verb="shape"), "message"),
        (lambda h: h["messages"][0].pop("step"), "message"),
    ],
)
def test_a_header_that_is_not_ours_is_refused_by_name(change, named):
    header, body = parts()
    change(header)
    with pytest.raises(PayloadRejectedError, match=named):
        decode(assembled(header, body), LIMIT)


def test_other_tensors_are_refused():
    header, _ = parts()
    with pytest.raises(PayloadRejectedError, match="bfloat16"):
        decode(assembled(header, save({"0.features": torch.ones(1, 2, 2).bfloat16()})), LIMIT)
    extra = save({"0.features": torch.ones(1, 2, 2), "1.features": torch.ones(1, 2, 2)})
    with pytest.raises(PayloadRejectedError, match="belong to no message"):
        decode(assembled(header, extra), LIMIT)


# -- any bytes at all -----------------------------------------------------------------------------


def never_crashes(data):
    try:
        frame = decode(data, LIMIT)
    except ExchangeError as error:
        text = str(error)
    else:
        text = "Next:" if isinstance(frame, Frame) else ""
    assert "Next:" in text


@given(st.binary(max_size=400))
def test_any_bytes(data):
    never_crashes(data)


@given(st.binary(max_size=200), st.binary(max_size=200), st.integers(0, 2**32 - 1))
def test_any_bytes_behind_a_true_prefix(header, body, length):
    never_crashes(struct.pack("<4sBI", b"VFLS", PROTOCOL, len(header)) + header + body)
    never_crashes(struct.pack("<4sBI", b"VFLS", PROTOCOL, length) + header + body)


TRUE = encode(up())


@given(st.lists(st.tuples(st.integers(0, len(TRUE) - 1), st.integers(0, 255)), max_size=6))
def test_a_true_frame_with_changed_bytes(changes):
    data = bytearray(TRUE)
    for position, value in changes:
        data[position] = value
    never_crashes(bytes(data))


@given(st.integers(0, len(TRUE)), st.binary(max_size=20))
def test_a_true_frame_cut_or_continued(end, more):
    never_crashes(TRUE[:end])
    never_crashes(TRUE[:end] + more)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=10,
)
FIELDS = ["run", "number", "status", "tag", "request", "reason", "messages"]


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, JSON)))
def test_a_header_of_any_json(changes):
    header, body = parts()
    never_crashes(assembled(header | changes, body))


@given(
    st.fixed_dictionaries(
        {}, optional=dict.fromkeys(("kind", "sender", "receiver", "step", "values"), JSON)
    )
    | st.fixed_dictionaries({"kind": st.sampled_from(sorted(MESSAGES)), "values": JSON})
)
def test_a_message_of_any_json(changes):
    header, body = parts()
    header["messages"][0] |= changes
    never_crashes(assembled(header, body))


def test_a_number_that_no_float_holds_is_refused():
    data = encode(Frame("r", 0, (Hello("a", "server", 0, {"of": 1.5}),)))
    header = data[9:].replace(b"1.5", b"1e999")
    with pytest.raises(PayloadRejectedError, match="not JSON"):
        decode(struct.pack("<4sBI", b"VFLS", PROTOCOL, len(header)) + header, LIMIT)


def test_deep_nesting_is_refused():
    text = b"[" * 100_000
    with pytest.raises(PayloadRejectedError):
        decode(struct.pack("<4sBI", b"VFLS", PROTOCOL, len(text)) + text, LIMIT)


def test_a_header_that_announces_more_than_there_is_takes_no_memory():
    with pytest.raises(PayloadRejectedError, match="header of 4,294,967,295 bytes"):
        decode(struct.pack("<4sBI", b"VFLS", PROTOCOL, 2**32 - 1), LIMIT)
