"""What every message says of itself, once: who sends it, when, and what it is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar, TypeVar, dataclass_transform

from vflsynth.exceptions import ProtocolError
from vflsynth.protocol.tensors import Held, held_by, holds, problem_of

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
        for field in fields(self)[3:]:
            yield field.name, getattr(self, field.name)

    def problem(self) -> str | None:
        """Say which tensor is of another type or shape than its declaration; None if none is."""
        found = problem_of({name: getattr(self, name) for name in self.held}, self.held)
        return found and f"a {type(self).__name__} whose {found}"

    def check(self) -> None:
        """Refuse tensors that are not what their declarations say.

        Raises
        ------
        ProtocolError
            Naming the sender.
        """
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
    when: When,
    contents: str,
    tells: str = "what it contains",
    uses: tuple[Uses, ...] = (),
    slow: bool = False,
    in_process: bool = False,
    masked: bool = False,
) -> Callable[[type[M]], type[M]]:
    """Declare a class of messages; see `Declaration`, and `holds` for fields that are tensors.

    Raises
    ------
    ProtocolError
        If another class has this name, or a tensor has no type and axes.
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
