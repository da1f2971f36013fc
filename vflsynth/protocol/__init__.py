"""Everything that may cross a party boundary, and how it gets there."""

from vflsynth.protocol.channel import Channel, LocalChannel, Participant, Transcript, answers, takes
from vflsynth.protocol.declaration import (
    MESSAGES,
    SERVER,
    Declaration,
    Held,
    MadeOf,
    Message,
    Uses,
    When,
    holds,
    message,
)
from vflsynth.protocol.precision import PRECISIONS, Precision, pack, unpack, unpack_from
from vflsynth.protocol.schedule import (
    HeldOutSchedule,
    PoissonSchedule,
    Schedule,
    SubsetSchedule,
)

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
