"""Channels: how the coordinator asks the parties and answers them.

The algorithms are written against `Channel` from the coordinator's chair and cannot tell whether
the parties live in the same process. Parties know the plan, so a request is only a verb and a step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol, TypeVar

from vflsynth.exceptions import ProtocolError
from vflsynth.protocol.messages import SERVER, Message
from vflsynth.protocol.transcript import Transcript

M = TypeVar("M", bound=Message)


class Verb(StrEnum):
    """What a party can be asked for, or told."""

    HELLO = "hello"
    KEYS = "keys"
    BLIND_KEYS = "blind_keys"
    REBLIND_KEYS = "reblind_keys"
    ALIGN = "align"
    ENCODED_SIZE = "encoded_size"
    TERMS = "terms"
    BUILD = "build"
    SHAPE = "shape"
    DISCRIMINATOR_FEATURES = "discriminator_features"
    UPDATE_DISCRIMINATOR = "update_discriminator"
    GENERATOR_FEATURES = "generator_features"
    BACKBONE_GRADIENTS = "backbone_gradients"
    UPDATE_GENERATOR = "update_generator"
    BOTTOM_OUTPUT = "bottom_output"
    UPDATE_BOTTOM_MODEL = "update_bottom_model"
    ALL_BOTTOM_OUTPUTS = "all_bottom_outputs"
    MASKED_REAL = "masked_real"
    MASKED_FAKE = "masked_fake"
    COPULA_LOADINGS = "copula_loadings"
    NOISY_HISTOGRAMS = "noisy_histograms"
    INDEPENDENT_PROJECTIONS = "independent_projections"
    RECORD_PROJECTIONS = "record_projections"
    FAKE_PROJECTIONS = "fake_projections"
    LATENT_CODES = "latent_codes"
    LATENT_TREE = "latent_tree"
    SELECT = "select"
    CHECKPOINT = "checkpoint"
    REPORT = "report"


class Participant(Protocol):
    """A party as a channel sees it: a name, and answers to verbs."""

    name: str

    def answer(self, verb: Verb, step: int) -> Message:
        """Compute the message that `verb` asks for at `step`."""
        ...

    def take(self, verb: Verb, message: Message) -> None:
        """Act on a message from the server."""
        ...


class Channel(Protocol):
    """What the coordinator needs of a transport."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parties it reaches, sorted."""
        ...

    def gather(self, verb: Verb, step: int, kind: type[M]) -> dict[str, M]:
        """Ask every party; return their messages by party name, in name order."""
        ...

    def scatter(self, verb: Verb, messages: Mapping[str, Message]) -> None:
        """Send each party its message."""
        ...


def addressed(messages: Mapping[str, Message], name: str) -> Message:
    """Return the server's message to a party; refuse to deliver somebody else's."""
    message = messages[name]
    if message.receiver != name or message.sender != SERVER:
        raise ProtocolError(
            f"a message from {message.sender!r} to {message.receiver!r} was about to be "
            f"delivered to party {name!r}"
        )
    return message


class LocalChannel:
    """Parties in this process: messages are passed as they are.

    Parameters
    ----------
    parties : sequence of Participant
    transcript : Transcript, optional
        Records every message.

    Raises
    ------
    ProtocolError
        If a party answers with another kind of message, for another step, or in another's name.
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

    def gather(self, verb: Verb, step: int, kind: type[M]) -> dict[str, M]:
        """Ask every party; return their messages by party name, in name order."""
        replies: dict[str, M] = {}
        for name, party in self._parties.items():
            message = party.answer(verb, step)
            if (
                not isinstance(message, kind)
                or message.sender != name
                or message.receiver != SERVER
                or message.step != step
            ):
                raise ProtocolError(
                    f"party {name!r} answered {verb.value!r} of step {step} with "
                    f"{type(message).__name__} of step {message.step} from {message.sender!r}; "
                    f"expected {kind.__name__}"
                )
            if self._transcript is not None:
                self._transcript.record(message)
            replies[name] = message
        return replies

    def scatter(self, verb: Verb, messages: Mapping[str, Message]) -> None:
        """Send each party its message."""
        for name, party in self._parties.items():
            message = addressed(messages, name)
            if self._transcript is not None:
                self._transcript.record(message)
            party.take(verb, message)
