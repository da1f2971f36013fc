"""What every message says of itself, once: who sends it, when, and what it is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar, dataclass_transform

import torch
from torch import Tensor

from vflsynth.exceptions import ProtocolError

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


@dataclass(frozen=True, slots=True)
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
    uses : frozenset of Uses
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
    when: When
    contents: str
    tells: str
    uses: frozenset[Uses] = frozenset()
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
def message(
    *,
    from_party: bool,
    made_of: MadeOf,
    when: When = When.ONCE,
    contents: str,
    tells: str = "what it contains",
    uses: tuple[Uses, ...] = (),
    slow: bool = False,
    in_process: bool = False,
    masked: bool = False,
) -> Callable[[type[M]], type[M]]:
    """Declare a class of messages; see `Declaration`, and `holds` for fields that are tensors.

    Raises ProtocolError if another class has this name, or a tensor has no type and axes.
    """
    declared = Declaration(
        from_party, made_of, when, contents, tells, frozenset(uses), slow, in_process, masked
    )

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
