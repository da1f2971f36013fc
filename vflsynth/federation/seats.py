"""What the server knows of a party, and which of its frames is next."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from vflsynth.exceptions import PartyLostError, PayloadRejectedError
from vflsynth.federation.wire import Frame, Request, Status
from vflsynth.protocol import SERVER, Message

_TRIPS = 3


@dataclass(slots=True)
class Seat:
    """What the server knows of a party at any moment.

    `number` is that of the exchange that is going on or was the last, which began at `since` with
    the frame `received`; `first` is the digest of the party's hello. `answer` has the message of
    the exchange and its tag, `outgoing` what goes with the next reply, `reply` the reply once it is
    there. `told` says whether the party knows why the run was stopped, and `trips` in how many
    seconds it came back when it was asked to, as it joined.
    """

    name: str
    number: int = -1
    received: bytes = b""
    first: bytes = b""
    since: float = 0.0
    told: bool = False
    answer: tuple[Message, str] | None = None
    outgoing: list[Message] = field(default_factory=list)
    reply: bytes | None = None
    trips: list[float] = field(default_factory=list)
    asked_back: float | None = None

    def asks_back(self, arrived: float, now: float) -> bool:
        """Whether a party that joins is to send its hello again at once: that takes a round trip.

        A frame that is lost takes longer, so the shortest of several counts.
        """
        if self.asked_back is not None:
            self.trips.append(arrived - self.asked_back)
        self.asked_back = now if len(self.trips) < _TRIPS else None
        return self.asked_back is not None

    def is_old(self, frame: Frame, data: bytes) -> bool:
        """Whether a frame, or a later one, is there already; networks repeat and reorder them."""
        if frame.status is Status.WAIT or frame.number == self.number:
            return frame.number <= self.number and (
                frame.status is Status.WAIT or data == self.received
            )
        if frame.number == 0 and self.number > 0:
            return digest(data) == self.first
        return 0 < frame.number < self.number

    def check(self, frame: Frame, asked: Request) -> None:
        """Refuse a frame that is not the next one, or not what the party was asked for.

        Raises PartyLostError if the party begins anew; PayloadRejectedError.
        """
        if frame.number == 0 and self.number >= 0:
            raise PartyLostError(
                "joined again in the middle of the run: its process was restarted",
                fix="nothing where a run begins again by itself; else start the same job again: it "
                "resumes from the last common checkpoint",
                party=self.name,
                step=asked.step,
            )
        envelope = [(type(m), m.sender, m.receiver, m.step) for m in frame.messages]
        expected = (asked.kind, self.name, SERVER, asked.step)
        if frame.number != self.number + 1 or envelope != [expected]:
            said = ", ".join(f"{k.__name__} of step {s} from {who!r}" for k, who, _, s in envelope)
            raise PayloadRejectedError(
                f"sent frame {frame.number} with {said or 'nothing'}; expected frame "
                f"{self.number + 1} with {asked.kind.__name__} of step {asked.step}",
                fix="install the same version of vflsynth at every site and start the job again",
                party=self.name,
                step=asked.step,
            )

    def take(self, frame: Frame, data: bytes, now: float) -> None:
        """Put a frame's message where the algorithm finds it."""
        (message,) = frame.messages
        self.number, self.received, self.reply = frame.number, data, None
        self.answer, self.since = (message, frame.tag), now
        if frame.number == 0:
            self.first = digest(data)


def digest(data: bytes) -> bytes:
    """Return what a frame is remembered by."""
    return hashlib.sha256(data).digest()
