"""Everything that may cross a party boundary, and how it gets there."""

from vflsynth.protocol.channel import Channel, LocalChannel
from vflsynth.protocol.declaration import (
    MESSAGES,
    SERVER,
    Declaration,
    MadeOf,
    Message,
    Uses,
    When,
    message,
)
from vflsynth.protocol.participant import Participant, answers, takes
from vflsynth.protocol.precision import PRECISIONS, Precision, pack, unpack, unpack_from
from vflsynth.protocol.schedule import (
    HeldOutSchedule,
    PlacedPoissonSchedule,
    PoissonSchedule,
    Schedule,
    SubsetSchedule,
)
from vflsynth.protocol.tensors import Held, holds
from vflsynth.protocol.transcript import Transcript

__all__ = [
    "MESSAGES",
    "PRECISIONS",
    "SERVER",
    "Channel",
    "Declaration",
    "Held",
    "HeldOutSchedule",
    "LocalChannel",
    "MadeOf",
    "Message",
    "Participant",
    "PlacedPoissonSchedule",
    "PoissonSchedule",
    "Precision",
    "Schedule",
    "SubsetSchedule",
    "Transcript",
    "Uses",
    "When",
    "answers",
    "holds",
    "message",
    "pack",
    "takes",
    "unpack",
    "unpack_from",
]
