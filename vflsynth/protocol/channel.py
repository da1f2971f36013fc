"""Channels: how the coordinator asks the parties and answers them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from vflsynth.exceptions import ProtocolError
from vflsynth.protocol.declaration import SERVER, M, Message
from vflsynth.protocol.participant import Participant
from vflsynth.protocol.transcript import Transcript


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

        Raises
        ------
        ProtocolError
            If an answer is not what was asked for, or not as it is declared.
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
        """Send each party its message.

        Raises
        ------
        ProtocolError
            If a message is for somebody else, or not as it is declared.
        """
        for name, party in self._parties.items():
            message = addressed(messages, name)
            message.check()
            if self._transcript is not None:
                self._transcript.record(message)
            party.take(message)
