"""How the server and the parties talk.

A participant answers questions and takes messages, each kind by a method of its own; the server
asks and answers it through a channel. A message may hold packed numbers: what a transcript counts
is what crosses, and runs in one process and across processes compute with the same rounded numbers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, TypeVar, get_args

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

from vflsynth.exceptions import PayloadRejectedError, ProtocolError
from vflsynth.protocol.declaration import SERVER, M, Message

BITS = "bits_per_record"
"""A message's bound on what it tells of every record."""


@dataclass(slots=True)
class _Total:
    messages: int = 0
    n_bytes: int = 0
    shapes: set[str] = field(default_factory=set)
    bits: float | None = None

    @property
    def told(self) -> set[str]:
        """What receivers were told of every record, by all messages together."""
        return set() if self.bits is None else {f"{BITS} = {self.bits:g}"}


class Transcript:
    """Counts messages and bytes per (kind, sender, receiver); memory does not grow with time.

    Parameters
    ----------
    keep_messages : bool, default=False
        Also keep every message, in order, in `messages`. For tests and audits.
    """

    def __init__(self, *, keep_messages: bool = False) -> None:
        self.messages: list[Message] | None = [] if keep_messages else None
        self._totals: dict[tuple[str, str, str], _Total] = {}

    def record(self, message: Message) -> None:
        """Add one message."""
        key = (type(message).__name__, message.sender, message.receiver)
        total = self._totals.setdefault(key, _Total())
        total.messages += 1
        for name, value in message.contents():
            n_bytes, shape = _size(value)
            total.n_bytes += n_bytes
            if name == BITS and isinstance(value, float):  # those of snapshots add up
                total.bits = (total.bits or 0.0) + value
                continue
            total.shapes.add(f"{name} {shape}")
        if self.messages is not None:
            self.messages.append(message)

    def bytes_of(self, node: str) -> tuple[int, int]:
        """Return how many bytes a node sent and received."""
        sent = sum(t.n_bytes for (_, sender, _), t in self._totals.items() if sender == node)
        got = sum(t.n_bytes for (_, _, receiver), t in self._totals.items() if receiver == node)
        return sent, got

    def to_frame(self) -> pd.DataFrame:
        """One row per kind of message and boundary: how many, how many bytes, which shapes."""
        rows = [
            {
                "message": kind,
                "sender": sender,
                "receiver": receiver,
                "messages": total.messages,
                "bytes": total.n_bytes,
                "contents": "; ".join(sorted(total.shapes | total.told)),
            }
            for (kind, sender, receiver), total in self._totals.items()
        ]
        return pd.DataFrame(
            rows, columns=["message", "sender", "receiver", "messages", "bytes", "contents"]
        )


def _size(value: object) -> tuple[int, str]:
    if isinstance(value, Tensor):
        return value.numel() * value.element_size(), str(tuple(value.shape))
    if isinstance(value, pd.Index):
        return int(value.memory_usage(deep=True)), f"({len(value)},)"
    if isinstance(value, Mapping):
        return len(json.dumps(value).encode()), "JSON"
    return 8, f"= {value:g}" if isinstance(value, float) else "scalar"


Marked = TypeVar("Marked", bound=Callable[..., Any])


def answers(kind: type[Message]) -> Callable[[Marked], Marked]:
    """Mark a method ``(self, step) -> message`` as what answers a question for this kind."""
    return _mark("_answers", kind)


def takes(kind: type[Message]) -> Callable[[Marked], Marked]:
    """Mark a method ``(self, message) -> None`` as what acts on messages of this kind."""
    return _mark("_takes", kind)


def _mark(mark: str, kind: type[Message]) -> Callable[[Marked], Marked]:
    def marked(method: Marked) -> Marked:
        setattr(method, mark, kind)
        return method

    return marked


class Participant:
    """Anything with a name that a channel reaches.

    Subclasses mark methods with `answers` and `takes`. A method that overrides a marked one is
    asked in its place, and need not be marked again.
    """

    name: str
    _by_question: ClassVar[dict[type[Message], str]] = {}
    _by_message: ClassVar[dict[type[Message], str]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        asked, taken = {}, {}
        for base in reversed(cls.__mro__):
            for name, member in vars(base).items():
                if (kind := getattr(member, "_answers", None)) is not None:
                    asked[kind] = name
                if (kind := getattr(member, "_takes", None)) is not None:
                    taken[kind] = name
        cls._by_question, cls._by_message = asked, taken

    def answer(self, kind: type[Message], step: int) -> Message:
        """Compute the message of this kind for `step`; ProtocolError if there is no answer."""
        method = self._by_question.get(kind)
        if method is None:
            raise ProtocolError(f"party {self.name!r} cannot answer {kind.__name__}")
        found: Message = getattr(self, method)(step)
        return found

    def take(self, message: Message) -> None:
        """Act on a message from the server; ProtocolError if it is not expected."""
        method = self._by_message.get(type(message))
        if method is None:
            raise ProtocolError(f"party {self.name!r} cannot take {type(message).__name__}")
        getattr(self, method)(message)


class Channel(Protocol):
    """What the coordinator needs of a transport."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parties it reaches, sorted."""

    def gather(self, kind: type[M], step: int) -> dict[str, M]:
        """Ask every party; return their messages by party name, in name order."""

    def scatter(self, messages: Mapping[str, Message]) -> None:
        """Send each party its message."""


def addressed(messages: Mapping[str, Message], name: str) -> Message:
    """Return the server's message to a party; refuse to deliver somebody else's."""
    message = messages[name]
    if message.receiver != name or message.sender != SERVER:
        raise ProtocolError(
            f"a message from {message.sender!r} to {message.receiver!r} was about to be delivered "
            f"to party {name!r}"
        )
    return message


class LocalChannel:
    """Parties in this process: messages are passed as they are.

    Parameters
    ----------
    parties : sequence of Participant
    transcript : Transcript, optional
        Records every message.
    """

    def __init__(
        self, parties: Sequence[Participant], transcript: Transcript | None = None
    ) -> None:
        self._parties = {party.name: party for party in sorted(parties, key=lambda p: p.name)}
        self._transcript = transcript

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parties it reaches, sorted."""
        return tuple(self._parties)

    def gather(self, kind: type[M], step: int) -> dict[str, M]:
        """Ask every party; return their messages by party name, in name order.

        Raises ProtocolError if an answer is not what was asked for, or not as it is declared.
        """
        replies: dict[str, M] = {}
        for name, party in self._parties.items():
            message = party.answer(kind, step)
            if (
                not isinstance(message, kind)
                or message.sender != name
                or message.receiver != SERVER
                or message.step != step
            ):
                raise ProtocolError(
                    f"party {name!r} answered a question for {kind.__name__} of step {step} with "
                    f"{type(message).__name__} of step {message.step} from {message.sender!r}"
                )
            message.check()
            if self._transcript is not None:
                self._transcript.record(message)
            replies[name] = message
        return replies

    def scatter(self, messages: Mapping[str, Message]) -> None:
        """Send each party its message; refuse one for somebody else, or not as it is declared."""
        for name, party in self._parties.items():
            message = addressed(messages, name)
            message.check()
            if self._transcript is not None:
                self._transcript.record(message)
            party.take(message)


Precision: TypeAlias = Literal["float32", "float16", "int8"]
PRECISIONS: tuple[str, ...] = get_args(Precision)

_BLOCK, _SCALE = 128, 4
"""Numbers that share a scale, and its bytes."""
_LARGEST = 127.0


def pack(
    values: Tensor, precision: Precision, uniform: Callable[[tuple[int, ...]], Tensor]
) -> Tensor:
    """Round numbers.

    Parameters
    ----------
    values : Tensor of float32, shape (replica, row, column)
    precision : {"float32", "float16", "int8"}
        "int8" has a scale for every 128 numbers of a row, and rounds up or down at random so that
        the mean is right (stochastic rounding).
    uniform : callable
        Draws from [0, 1) of shape (replica, *shape), given the shape; asked for "int8" only.

    Returns
    -------
    Tensor
        Of this type; for "int8" each row's numbers are followed by the bytes of its scales.
    """
    if precision == "float32":
        return values
    if precision == "float16":
        return values.half()
    rows, columns = values.shape[1:]
    blocks = -(-columns // _BLOCK)
    padded = F.pad(values, (0, blocks * _BLOCK - columns)).reshape(-1, rows, blocks, _BLOCK)
    scales = padded.abs().amax(-1, keepdim=True) / _LARGEST
    draws = uniform((rows, blocks, _BLOCK))
    # What is not finite makes a scale that is not, which `unpack` refuses.
    rounded = torch.floor(torch.nan_to_num(padded / scales) + draws).clamp(-_LARGEST, _LARGEST)
    numbers = rounded.to(torch.int8).flatten(-2)[..., :columns]
    return torch.cat([numbers, scales.squeeze(-1).contiguous().view(torch.int8)], -1)


def unpack(packed: Tensor, precision: Precision) -> Tensor:
    """Return the numbers that `pack` rounded to.

    Parameters
    ----------
    packed : Tensor, shape (replica, row, column), with the bytes of scales
    precision : {"float32", "float16", "int8"}

    Returns
    -------
    Tensor of float32
        Of any shape: whoever takes it checks that.

    Raises PayloadRejectedError if it is of another type, or was packed and cannot be read or is
    not finite.
    """
    exact = precision == "float32" and packed.dtype == torch.float64  # of networks in double
    if packed.dtype != getattr(torch, precision) and not exact:
        raise _refused(f"numbers of {packed.dtype} came; expected torch.{precision}")
    if precision == "float32":
        return packed
    if precision == "float16":
        values = packed.float()
    else:
        blocks = -(-packed.shape[-1] // (_BLOCK + _SCALE))
        columns = packed.shape[-1] - blocks * _SCALE
        if packed.dim() != 3 or columns < 1:
            raise _refused(f"int8 numbers of shape {tuple(packed.shape)} came, without scales")
        scales = packed[..., columns:].contiguous().view(torch.float32)
        numbers = F.pad(packed[..., :columns].float(), (0, blocks * _BLOCK - columns))
        numbers = numbers.reshape(*scales.shape, _BLOCK)
        values = (numbers * scales.unsqueeze(-1)).flatten(-2)
        values = values[..., :columns]
    if not bool(torch.isfinite(values).all()):
        raise PayloadRejectedError(
            "numbers came that are not finite: training diverged, or they were damaged",
            fix="lower learning_rate, or use a higher wire_precision",
        )
    return values


def unpack_from(message: Message, packed: Tensor, precision: Precision) -> Tensor:
    """Return the numbers of a message, see `unpack`; the error says whose they are."""
    try:
        return unpack(packed, precision)
    except PayloadRejectedError as error:
        raise PayloadRejectedError(
            error.problem, fix=error.fix, party=message.sender, step=message.step
        ) from error


def _refused(problem: str) -> PayloadRejectedError:
    return PayloadRejectedError(
        problem, fix="give all parties the same settings and version of vflsynth"
    )
