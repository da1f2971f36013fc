"""How the server and the parties talk, and what every message says of itself.

A message declares once who sends it, when, and what it is made of.

A participant answers questions and takes messages, each kind by a method of its own; the server
asks and answers it through a channel. A message may hold packed numbers: what a transcript counts
is what crosses, and runs in one process and across processes compute with the same rounded numbers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import (
    Any,
    ClassVar,
    Literal,
    Protocol,
    TypeAlias,
    TypeVar,
    dataclass_transform,
    get_args,
)

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

from vflsynth.exceptions import PayloadRejectedError, ProtocolError

_KEY = "vflsynth tensor"

REAL = torch.float32, torch.float64
"""Of what networks and other models compute."""
PACKED = *REAL, torch.float16, torch.int8
"""The same as senders round it, see `vflsynth.protocol.channel`."""
STEPS = torch.int32, torch.int64
"""Whole numbers of 32 bits or, where sums need more, of 64."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a tensor must be.

    Parameters
    ----------
    types : tuple of torch.dtype
        Any of them.
    axes : tuple of str or int
        Names of the axes, or their lengths; axes of one name are equally long throughout a message.
    """

    types: tuple[torch.dtype, ...]
    axes: tuple[str | int, ...]

    def accepts(self, kind: torch.dtype, shape: torch.Size, lengths: dict[str, int]) -> bool:
        """Say whether a tensor is so; `lengths`, of the axes before it, gets those of its own."""
        if kind not in self.types or len(shape) != len(self.axes):
            return False
        return all(
            length == (axis if isinstance(axis, int) else lengths.setdefault(axis, length))
            for axis, length in zip(self.axes, shape, strict=True)
        )

    def words(self, lengths: Mapping[str, int]) -> str:
        """Say what it must be, with the lengths that are known."""
        known = {axis: f"{axis}={length}" for axis, length in lengths.items()}
        axes = ", ".join(known.get(str(axis), str(axis)) for axis in self.axes)
        return f"{' or '.join(map(_name, self.types))} of shape ({axes})"


def holds(types: torch.dtype | tuple[torch.dtype, ...], *axes: str | int) -> Any:
    """Declare a tensor of a message, see `Held`, in place of a field's default value.

    ``sizes: Tensor = holds(torch.int64, "column")`` is an example.
    """
    kinds = types if isinstance(types, tuple) else (types,)
    return field(metadata={_KEY: Held(kinds, axes)})


def held_by(name: str, declared: tuple[Field[Any], ...]) -> dict[str, Held]:
    """Return what the tensors of a class of messages must be, by field.

    ProtocolError if a field is a tensor and does not say of which type and axes.
    """
    for own in declared:
        if own.type in ("Tensor", "torch.Tensor", Tensor) and _KEY not in own.metadata:
            raise ProtocolError(
                f"{name}.{own.name} is a tensor of any kind. Fix: declare its type and axes, as in "
                f'{own.name}: Tensor = holds(torch.int64, "column")'
            )
    return {own.name: own.metadata[_KEY] for own in declared if _KEY in own.metadata}


@lru_cache(maxsize=1024)
def problem_of(
    message: type[Message], tensors: tuple[tuple[torch.dtype, torch.Size], ...]
) -> str | None:
    """Say which tensor is not what it must be, and what it must be; None if all are.

    Steps send the same types and shapes again and again: what was found is kept.
    """
    lengths: dict[str, int] = {}
    for (name, expected), (kind, shape) in zip(message.held.items(), tensors, strict=True):
        before = dict(lengths)
        if not expected.accepts(kind, shape, lengths):
            return (
                f"a {message.__name__} whose {name} are {_name(kind)} of shape {tuple(shape)}; "
                f"expected {expected.words(before)}"
            )
    return None


def _name(kind: torch.dtype) -> str:
    return str(kind).removeprefix("torch.")


SERVER = "server"
"""Name of the server in `sender` and `receiver`; no party may be called this."""


class MadeOf(StrEnum):
    """What a message is computed from, at the most: each of these may contain those above it."""

    PLANS = "parameters and epochs"
    """Nothing that depends on a table."""
    COLUMNS = "names, types and numbers of columns, numbers of rows"
    KEYS = "record keys"
    NETWORKS = "networks that were trained on records, and fakes"
    RECORDS = "records"


class When(StrEnum):
    """How often the server may ask for a message, or send it."""

    ONCE = "once"
    STEP = "every step"
    EPOCH = "every epoch"
    BLOCK = "every block of records"


class Uses(StrEnum):
    """What the parties draw alike for a message; its keyed tag proves that they did."""

    ROWS = "rows"
    LATENTS = "latents"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What a class of messages says of itself.

    Parameters
    ----------
    from_party : bool
        Whether parties send it to the server; else the server sends it to parties.
    made_of : MadeOf
        Under privacy, what is made of records or of networks may leave a party only if an entry of
        its ledger pays for it, see `vflsynth.mechanisms`.
    when : When
    contents : str
        For the documentation: what is in it, with shapes.
    tells : str
        For the documentation: what an honest-but-curious receiver can learn from it.
    uses : tuple of Uses
    slow : bool
        Whether minutes may pass until it is there, or until the server has done what it does next:
        for every record, to build networks, or to train them.
    in_process : bool
        Whether it may not leave the process: it is not among the kinds that a frame can hold.
    masked : bool
        Whether what its receiver sees is uniformly random, whatever it is made of.
    """

    from_party: bool
    made_of: MadeOf
    when: When = When.ONCE
    contents: str
    tells: str = "what it contains"
    uses: tuple[Uses, ...] = ()
    slow: bool = False
    in_process: bool = False
    masked: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """What every message carries.

    Parameters
    ----------
    sender, receiver : str
        Party names, or ``"server"``.
    step : int
        The discriminator step, generator step, epoch or block of records it belongs to; 0 where
        there is only one.
    """

    declared: ClassVar[Declaration]
    held: ClassVar[Mapping[str, Held]] = MappingProxyType({})

    sender: str
    receiver: str
    step: int

    def contents(self) -> Iterator[tuple[str, object]]:
        """Name and value of everything beyond the envelope."""
        for one in fields(self)[3:]:
            yield one.name, getattr(self, one.name)

    def problem(self) -> str | None:
        """Say which tensor is of another type or shape than its declaration; None if none is."""
        tensors = [getattr(self, name) for name in self.held]
        kinds = tuple([(own.dtype, own.shape) for own in tensors])
        return problem_of(type(self), kinds)  # type: ignore[arg-type]  # classes can be hashed

    def check(self) -> None:
        """Raise ProtocolError, naming the sender, if a tensor is not what its declaration says."""
        if (problem := self.problem()) is not None:
            whose = "the server" if self.sender == SERVER else f"party {self.sender!r}"
            raise ProtocolError(
                f"{whose} sent {problem}. Fix: install the same version of vflsynth at every site"
            )


M = TypeVar("M", bound=Message)

MESSAGES: dict[str, type[Message]] = {}
"""Every class of messages that may cross a party boundary, by name."""


@dataclass_transform(frozen_default=True, field_specifiers=(holds,))
def message(**said: Any) -> Callable[[type[M]], type[M]]:
    """Declare a class of messages; see `Declaration`, and `holds` for fields that are tensors.

    Raises ProtocolError if another class has this name, or a tensor has no type and axes.
    """
    declared = Declaration(**said)

    def declare(cls: type[M]) -> type[M]:
        before = MESSAGES.get(cls.__name__)
        if before is not None and before.__module__ != cls.__module__:
            raise ProtocolError(
                f"{before.__module__} and {cls.__module__} both declare {cls.__name__}"
            )
        made: type[M] = dataclass(frozen=True, slots=True)(cls)
        made.declared = declared
        made.held = held_by(made.__name__, fields(made))
        MESSAGES[made.__name__] = made
        return made

    return declare


BITS = "bits_per_record"
"""A message's bound on what it tells of every record."""


@dataclass(slots=True)
class _Total:
    messages: int = 0
    n_bytes: int = 0
    shapes: set[str] = field(default_factory=set)
    bits: float | None = None
    """Told of every record, by all messages together."""

    def __str__(self) -> str:
        told = set() if self.bits is None else {f"{BITS} = {self.bits:g}"}
        return "; ".join(sorted(self.shapes | told))


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
            (*of, total.messages, total.n_bytes, str(total)) for of, total in self._totals.items()
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


def tell(channel: Channel, kind: Callable[..., Message], step: int, *said: Any) -> None:
    """Send every party the same, in a message to each."""
    channel.scatter({name: kind(SERVER, name, step, *said) for name in channel.names})


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
        values = (numbers * scales.unsqueeze(-1)).flatten(-2)[..., :columns]
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
