"""Frames: messages as bytes. JSON for the envelope, safetensors for tensors, nothing that can run.

A frame is ``VFLS``, a version byte, the header's length (4 bytes, little-endian), the header as
JSON and, if there are tensors, one safetensors blob. A party sends one message per frame; the
server's reply holds any number of messages for that party and what it is to compute next, so a
training step costs one exchange.

Decoding accepts what `encode` makes and nothing else: whatever the bytes are, the result is a
`Frame` or a `PayloadRejectedError` (`ProtocolMismatchError` for another version of the protocol).

Every frame has a keyed tag: proof that parties use the same secret, records and batches.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import json
import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, get_type_hints

from pydantic import (
    BaseModel,
    Field,
    PlainValidator,
    ValidationError,
    create_model,
    model_validator,
)
from safetensors.torch import load as load_tensors
from safetensors.torch import save as dump_tensors
from torch import Tensor

from vflsynth._random import derive
from vflsynth.exceptions import (
    MisalignedError,
    PayloadRejectedError,
    ProtocolMismatchError,
    VFLSynthError,
)
from vflsynth.protocol.channel import MESSAGES, Message, Uses
from vflsynth.protocol.messages import Hello
from vflsynth.protocol.schedule import Schedule

PROTOCOL = 5
"""Version of the frames; nodes that speak another one are refused."""

MAX_HEADER = 1 << 24
"""Bytes of what is no tensor, contracts and heads of accounts among it: 66 per private run."""
MAX_MESSAGES = 16
_MAGIC = b"VFLS"
_PREFIX = struct.Struct("<4sBI")


class Status(StrEnum):
    """What a frame says beyond its messages.

    ``AGAIN`` from the server: this attempt is over, begin another with a hello. ``WAIT`` from the
    server: the party's frame has arrived, its reply is not ready yet; from a party: is it now?
    """

    GO = "go"
    WAIT = "wait"
    DONE = "done"
    AGAIN = "again"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class Request:
    """What a party is to compute next."""

    kind: type[Message]
    step: int


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a run was stopped: the error's class, its text, and whose doing at which step."""

    error: str
    text: str
    party: str | None = None
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    """One transfer in one direction.

    Frames of another `run` are refused; the server names the `attempt`, and parties repeat it.
    `number` counts a party's exchanges from 0; the reply carries the number of its question. What
    is sent again has the same number and bytes. The server's frames have a `request` unless the run
    is over, parties' a `tag`: the keyed digest of what parties must agree on. ``Status.ABORT`` and
    ``Status.AGAIN`` have a `reason`.
    """

    run: str
    number: int
    messages: tuple[Message, ...] = ()
    request: Request | None = None
    tag: str = ""
    status: Status = Status.GO
    reason: Reason | None = None
    attempt: str = ""


def encode(frame: Frame, max_bytes: int | None = None) -> bytes:
    """Write a frame; PayloadRejectedError if it is larger than the other node takes."""
    tensors: dict[str, Tensor] = {}
    messages = []
    for i, message in enumerate(frame.messages):
        values: dict[str, Any] = dict(message.contents())
        for name in message.held:
            tensors[f"{i}.{name}"] = values.pop(name).detach().cpu().contiguous()
        envelope = {name: getattr(message, name) for name in ("sender", "receiver", "step")}
        messages.append({"kind": type(message).__name__, **envelope, "values": values})
    reason = frame.reason
    header = json.dumps(
        {
            "run": frame.run,
            "attempt": frame.attempt,
            "number": frame.number,
            "status": frame.status.value,
            "tag": frame.tag,
            "request": frame.request and [frame.request.kind.__name__, frame.request.step],
            "reason": reason and [reason.error, reason.text, reason.party, reason.step],
            "messages": messages,
        },
        allow_nan=False,
    ).encode()
    if len(header) > MAX_HEADER:
        raise PayloadRejectedError(
            f"a header would have {len(header):,} bytes; at most {MAX_HEADER:,} are taken",
            fix="shorter contracts and lists of categories, or a new privacy account",
        )
    body = dump_tensors(tensors) if tensors else b""
    size = _PREFIX.size + len(header) + len(body)
    if max_bytes is not None and size > max_bytes:
        kinds = ", ".join(type(message).__name__ for message in frame.messages)
        raise PayloadRejectedError(
            f"a frame with {kinds} would have {size:,} bytes; at most {max_bytes:,} are taken",
            fix="a larger max_frame_bytes in the job and in every site file",
        )
    return _PREFIX.pack(_MAGIC, PROTOCOL, len(header)) + header + body


def decode(data: bytes, max_bytes: int) -> Frame:
    """Read a frame from bytes that anybody may have written; longer ones are refused before.

    Raises ProtocolMismatchError if it is a frame of another version of the protocol and
    PayloadRejectedError if it is anything else that `encode` would not have written.
    """
    if len(data) > max_bytes:
        raise _rejected(f"a frame of {len(data):,} bytes is larger than {max_bytes:,}")
    if len(data) < _PREFIX.size or data[:4] != _MAGIC:
        raise _rejected("bytes that are not a frame")
    _, version, length = _PREFIX.unpack_from(data)
    if version != PROTOCOL:
        raise ProtocolMismatchError(
            f"a frame of protocol version {version}; this node speaks version {PROTOCOL}",
            fix="install the same version of vflsynth at every site",
        )
    end = _PREFIX.size + length
    if length > MAX_HEADER or end > len(data):
        raise _rejected(f"a header of {length:,} bytes")
    try:
        header = json.loads(
            data[_PREFIX.size : end], parse_constant=_no_constant, parse_float=_finite
        )
    except (ValueError, RecursionError) as error:
        raise _rejected("a header that is not JSON") from error
    try:
        tensors = load_tensors(data[end:]) if len(data) > end else {}
        # Cloned: products round by where memory starts, and these start anywhere in the frame.
        tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    except Exception as error:  # the library has no base class for all that it raises
        raise _rejected("tensors that are not safetensors") from error
    return _frame(header, tensors)


def _rejected(problem: str) -> PayloadRejectedError:
    return PayloadRejectedError(
        f"received {problem}", fix="look at the sender's log; every site needs the same vflsynth"
    )


def _frame(header: Any, tensors: dict[str, Tensor]) -> Frame:
    said = _checked(_Header, header, "header")
    contents, status, reason = said["messages"], said["status"], said["reason"]
    messages = tuple(_message(i, content, tensors) for i, content in enumerate(contents))
    if tensors:
        raise _rejected(f"tensors that belong to no message, such as {min(tensors)[:80]!r}")
    if (status in (Status.ABORT, Status.AGAIN)) != (reason is not None):
        raise _rejected("a reason without an end, or an end without a reason")
    made = said | {"messages": messages, "request": said["request"] and Request(*said["request"])}
    return Frame(**made | {"reason": reason and Reason(*reason)})


def _message(i: int, content: _Content, tensors: dict[str, Tensor]) -> Message:
    kind: type[Message] = content.kind
    values = _checked(_values(kind.__name__), content.values, kind.__name__)
    held: dict[str, Tensor] = {}
    for name in kind.held:
        if (tensor := tensors.pop(f"{i}.{name}", None)) is None:
            raise _rejected(f"a {kind.__name__} without its tensor {name!r}")
        held[name] = tensor
    message = kind(content.sender, content.receiver, content.step, **held, **values)
    if (problem := message.problem()) is not None:
        raise _rejected(problem)
    if not all(bool(t.isfinite().all()) for t in held.values() if t.is_floating_point()):
        raise _rejected(
            f"a {kind.__name__} with values that are not finite: training diverged or the "
            "sender's records are damaged"
        )
    return message


def _kind(name: Any) -> type[Message]:
    """Return a declared kind of message that may leave a process."""
    kind = MESSAGES.get(name) if isinstance(name, str) else None
    if kind is None or kind.declared.in_process:
        raise ValueError(f"unknown kind {str(name)[:80]!r}")
    return kind


def _text(said: Any) -> str:
    if not isinstance(said, str) or len(said) > 4096:  # pydantic's own has no half of a surrogate
        raise ValueError("not a short text")
    return said


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _no_constant(text)


class _Said(BaseModel):
    @model_validator(mode="before")
    @classmethod
    def _nothing_else(cls, said: Any) -> Any:
        """Refuse other keys by the first: pydantic makes an error, a KiB, of each of a million."""
        if isinstance(said, dict) and (others := said.keys() - cls.model_fields.keys()):
            raise ValueError(f"{min(others)[:80]!r} is not permitted")
        return said


_Text = Annotated[str, PlainValidator(_text)]
_Whole = Annotated[int, Field(strict=True, ge=0, lt=1 << 53)]
_OF_TYPE = {int: _Whole, float: Annotated[float, Field(strict=True, ge=0, lt=1 << 53)]}
_Kind = Annotated[Any, PlainValidator(_kind)]


class _Content(_Said):
    kind: _Kind
    sender: _Text
    receiver: _Text
    step: _Whole
    values: dict[Any, Any]


class _Header(_Said):
    run: _Text
    attempt: _Text
    number: _Whole
    status: Status
    tag: _Text
    request: tuple[_Kind, _Whole] | None
    reason: tuple[_Text, _Text, _Text | None, _Whole | None] | None
    messages: Annotated[list[_Content], Field(max_length=MAX_MESSAGES)]


@cache
def _values(name: str) -> type[_Said]:
    """Return the model of what a kind of message has that is no tensor."""
    kind = MESSAGES[name]
    types = get_type_hints(kind)
    plain = [field.name for field in fields(kind)[3:] if field.name not in kind.held]
    said: Any = {own: (_OF_TYPE.get(types[own], dict[Any, Any]), ...) for own in plain}
    return create_model(name, __base__=_Said, **said)


def _checked(model: type[_Said], said: Any, what: str) -> dict[str, Any]:
    try:
        return vars(model.model_validate(said))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join([what, *map(str, first["loc"])])
    raise _rejected(f"a frame whose {place} cannot be: {first['msg']}")


_WORDS = {
    errno.ENOSPC: "its disk is full",
    errno.EDQUOT: "its disk quota is used up",
    errno.EFBIG: "a file became larger than its system allows",
    errno.EROFS: "its disk cannot be written to",
    errno.EIO: "its disk does not work",
    errno.EACCES: "its process may not write to its folder",
    errno.EPERM: "its process may not write to its folder",
    errno.EMFILE: "its process has too many files open",
    errno.ENFILE: "its system has too many files open",
    errno.ENOMEM: "it ran out of memory",
}
_NUMBER = re.compile(r"\(os error (\d+)\)")
"""How libraries in Rust, such as safetensors, say it."""
_MEMORY = ("can't allocate memory", "out of memory")
"""How torch says it."""


def fault_of(error: BaseException | None) -> str | None:
    """Say what of a node's system failed, by an error and its causes; None for something else."""
    while error is not None:
        if isinstance(error, MemoryError):
            return _WORDS[errno.ENOMEM]
        if isinstance(error, OSError) and error.errno in _WORDS:
            return _WORDS[error.errno]
        text = "" if isinstance(error, VFLSynthError) else str(error)  # ours may quote others
        found = _NUMBER.search(text)
        if found and int(found[1]) in _WORDS:
            return _WORDS[int(found[1])]
        if isinstance(error, RuntimeError) and any(words in text.lower() for words in _MEMORY):
            return _WORDS[errno.ENOMEM]
        error = error.__cause__
    return None


class Tags:
    """Makes the tags of one node; the server can compare them and learns nothing from them.

    `shared` is the secret that parties share. `records` is the digest of the matched keys in the
    common order, once they are known; with a `schedule`, batches and latents enter the tags. The
    `secret` is another in every attempt: equal tags would tell that two have the same records.
    """

    def __init__(self, shared: bytes, run: str) -> None:
        self.secret = derive(shared, f"tags|{run}")
        self.records = b""
        self.schedule: Schedule | None = None

    def __call__(self, kind: type[Message], step: int) -> str:
        """Return the tag of an answer."""
        mac = hmac.new(self.secret, f"{kind.__name__}|{step}|".encode(), hashlib.sha256)
        mac.update(self.records)
        schedule = self.schedule
        uses = kind.declared.uses
        if schedule is not None and Uses.ROWS in uses:
            mac.update(schedule.rows(step).cpu().numpy().tobytes())
        if schedule is not None and Uses.LATENTS in uses and schedule.latent_dim:
            mac.update(schedule.latent(step).cpu().numpy().tobytes())
        return mac.hexdigest()[:16]


def check_tags(tags: Mapping[str, str], kind: type[Message], step: int) -> None:
    """Compare the tags, by node, of an exchange of one kind of message.

    Raises MisalignedError if they differ; it names who is odd, if that can be told.
    """
    if len(set(tags.values())) == 1:
        return
    values = list(tags.values())
    common = max(values, key=values.count)
    odd = [name for name, tag in tags.items() if tag != common]
    party = odd[0] if values.count(common) > 1 else None
    who = " and ".join(map(repr, tags)) if party is None else repr(party)
    if kind is Hello:
        problem = "they have different shared secrets"
        fix = "write the same shared secret into every site's file"
    else:
        problem = "they use different records, batches or latents"
        fix = "check that no table changed since the keys were matched, then start again"
    raise MisalignedError(
        f"the keyed tags of {who} do not match in {kind.__name__}: {problem}",
        fix=fix,
        party=party,
        step=step,
    )
