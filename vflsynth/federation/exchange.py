"""The server's end: a channel whose parties are reached by frames, and answer when they can.

Parties dial, the server never does: a party posts its answer as a frame and the reply, which waits
until every party has answered, brings what the server sends back and what to compute next. A
training step is therefore one exchange, and the algorithms see an ordinary `Channel`.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from vflsynth.exceptions import (
    ExchangeError,
    PartyLostError,
    PartyStoppedError,
    PayloadRejectedError,
    ProtocolMismatchError,
    RunAbortedError,
    RunInterruptedError,
    VFLSynthError,
)
from vflsynth.federation.limits import GRACE, Limits, Pause
from vflsynth.federation.wire import (
    Frame,
    Reason,
    Request,
    Status,
    check_tags,
    decode,
    encode,
    fault_of,
)
from vflsynth.protocol.channel import SERVER, Message, Transcript, addressed
from vflsynth.protocol.messages import Hello

logger = logging.getLogger("vflsynth")

M = TypeVar("M", bound=Message)

_SOON, _LOOK = 0.2, 1.0


class RemoteChannel:
    """Reaches parties that post frames of one run.

    An active party, which is the server and shares the secret, has its `own_tag`. `note` is told
    what is asked of the parties. `attempt` is new in every attempt; `heals` tells parties that a
    run in which one was lost may begin again; `measures` has them say hello as often as it takes to
    know the way to them. `gone` has digests of hellos of former attempts: a network may bring them
    late. `failure` is why the run was stopped, if it was; `stopped` what was said after it was
    interrupted: it will not begin again.

    `gather` and `scatter` are called by one thread, the algorithm's; `exchange` by those of the
    transport, with a sender whose identity the transport has verified. Every wait ends: after
    `Limits` the run is stopped, and whoever waits or asks afterwards gets the reason.
    """

    def __init__(
        self,
        names: Sequence[str],
        run: str,
        limits: Limits | None = None,
        transcript: Transcript | None = None,
        note: Callable[[type[Message], int], None] | None = None,
    ) -> None:
        self._note = note or (lambda kind, step: None)
        self.own_tag: Callable[[type[Message], int], str] | None = None
        self._seats = {name: Seat(name) for name in sorted(names)}
        self._run, self._transcript = run, transcript or Transcript()
        self.limits = limits or Limits()
        self._changed = threading.Condition()
        self._request, self._opened = Request(Hello, 0), False
        self._asked = time.monotonic()
        self.failure: VFLSynthError | None = None
        self._done = False
        self.attempt = os.urandom(8).hex()
        self.heals = self.interrupted = self.measures = False
        self.gone: frozenset[bytes] = frozenset()
        self.stopped: Exception | None = None

    @property
    def greeted(self) -> frozenset[bytes]:
        """Digests of all hellos of this attempt, and of those before it."""
        return self.gone | {seat.first for seat in self._seats.values()}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parties it reaches, sorted."""
        return tuple(self._seats)

    @property
    def all_told(self) -> bool:
        """Whether every party has heard why the run was stopped."""
        return all(seat.told for seat in self._seats.values())

    @property
    def round_trip(self) -> float | None:
        """Seconds to the farthest party and back; None before all joined."""
        trips = [seat.trips for seat in self._seats.values()]
        return max(map(min, trips)) if all(trips) else None

    @property
    def step(self) -> int:
        """The step of what the parties were asked for last."""
        return self._request.step

    # -- the algorithm's side --------------------------------------------------------------------

    def gather(self, kind: type[M], step: int) -> dict[str, M]:
        """Ask every party; return their messages by party name, in name order.

        Raises PartyLostError if a party does not answer in time; MisalignedError if the parties'
        tags differ; ExchangeError if a party's frame was refused, or a party stopped.
        """
        request = Request(kind, step)
        self._note(kind, step)
        with self._changed:
            if self._opened:
                self._release(request)
            self._opened = True  # every party begins with its hello, unasked
            deadline = self._asked + self.limits.of(kind)
            while any(seat.answer is None for seat in self._seats.values()):
                if self.failure is not None:
                    raise self.failure
                left = deadline - time.monotonic()
                if left <= 0:
                    raise self._lost(kind, step)
                pause = Pause(min(left, _LOOK))
                self._changed.wait(pause.seconds)
                late = pause.overslept()
                deadline += late
                for seat in self._seats.values():
                    seat.since += late
            answers = {name: seat.answer for name, seat in self._seats.items() if seat.answer}
        tags = {name: tag for name, (_, tag) in answers.items()}
        if self.own_tag is not None:
            tags[SERVER] = self.own_tag(kind, step)
        check_tags(tags, kind, step)
        messages: dict[str, M] = {}
        for name, (message, _) in answers.items():
            assert isinstance(message, kind), "its seat takes nothing else"
            self._transcript.record(message)
            messages[name] = message
        return messages

    def scatter(self, messages: Mapping[str, Message]) -> None:
        """Send each party its message, with the reply to the exchange that is going on."""
        for name, seat in self._seats.items():
            message = addressed(messages, name)
            self._transcript.record(message)
            seat.outgoing.append(message)

    def finish(self) -> None:
        """Let the parties go, with whatever is still to be delivered."""
        with self._changed:
            self._release(None)
            self._done = True

    def abort(self, error: BaseException) -> None:
        """Stop the run: every party that waits or asks from now on gets the reason."""
        with self._changed:
            if self.interrupted and isinstance(error, PartyStoppedError):
                self.stopped = error
            if self.failure is None and not self._done:
                why = fault_of(error)
                if isinstance(error, VFLSynthError) and not why:
                    self.failure = error
                else:
                    self.failure = RunAbortedError(
                        f"the server stopped with {type(error).__name__}"
                        + (f": {why}" if why else ""),
                        fix="look at the server's log",
                    )
                self.interrupted = self.heals and isinstance(error, PartyLostError)
            self._changed.notify_all()

    def _release(self, request: Request | None) -> None:
        """Reply to every party: deliveries, and what to do next."""
        for seat in self._seats.values():
            status = Status.DONE if request is None else Status.GO
            frame = Frame(
                self._run,
                seat.number,
                tuple(seat.outgoing),
                request=request,
                status=status,
                attempt=self.attempt,
            )
            seat.reply = encode(frame, self.limits.max_bytes)
            seat.answer, seat.outgoing = None, []
        if request is not None:
            self._request, self._asked = request, time.monotonic()
        self._changed.notify_all()

    def _lost(self, kind: type[Message], step: int) -> PartyLostError:
        silent = [name for name, seat in self._seats.items() if seat.answer is None]
        return PartyLostError(
            f"no {kind.__name__} within {self.limits.of(kind):g} s from "
            + ", ".join(map(repr, silent)),
            fix=f"restart {' and '.join(silent)}, then start the same job again: it resumes from "
            "the last checkpoint that all nodes have",
            party=silent[0],
            step=step,
        )

    # -- the transport's side --------------------------------------------------------------------

    def exchange(self, sender: str, data: bytes) -> bytes:
        """Take a party's frame and return the reply, when there is one.

        The sender is who the transport knows from its certificate, not who the frame says. A frame
        comes back in any case; with the reason if the run was stopped.
        """
        arrived = time.monotonic()
        try:
            number = self._accept(sender, data)
        except ExchangeError as error:
            logger.error("%s", error)
            if sender in self._seats and not isinstance(error, RunAbortedError):
                self.abort(error)
            if self.interrupted and isinstance(error, PartyLostError):
                with self._changed:  # its hello is for the next attempt: it is sent again, soon
                    self._changed.wait(min(_SOON, self.limits.patience))
                return self._wait(0)
            return self._tell(sender, error)
        with self._changed:
            if (
                self.measures
                and number == 0
                and self._seats[sender].asks_back(arrived, time.monotonic())
            ):
                return self._wait(0)
        return self._await_reply(sender, number)

    def _accept(self, sender: str, data: bytes) -> int:
        """Check a frame and put its message on the party's seat; return the frame's number."""
        seat = self._seats.get(sender)
        if seat is None:
            raise ProtocolMismatchError(
                f"is not one of the parties of this run, which are {', '.join(self._seats)}",
                fix="name the party in the job, or use the certificate of one of them",
                party=sender,
            )
        try:
            frame = decode(data, self.limits.max_bytes)
        except ExchangeError as error:
            raise type(error)(error.problem, fix=error.fix, party=sender, step=self.step) from error
        with self._changed:
            if frame.run != self._run:
                # A process that was left over from another run must not stop this one.
                raise RunAbortedError(
                    f"belongs to run {frame.run!r}; this is run {self._run!r}",
                    fix="stop the old process and start the site again",
                    party=sender,
                )
            self._check_attempt(frame, data, sender)
            if seat.is_old(frame, data):
                return frame.number  # sent again: computed once, answered as often as asked
            if frame.reason is not None:
                said = f"{frame.reason.error}: {frame.reason.text}"
                raise PartyStoppedError(
                    f"stopped with {' '.join(said.split())}",  # one line of a log, not several
                    fix="mend what the message names at that site, then start the same job again",
                    party=sender,
                    step=frame.reason.step,
                )
            if self._done:
                raise RunAbortedError(
                    "joined when the run was over already",
                    fix="start the same job again: it resumes from the last checkpoint, and this "
                    "site gets its half",
                    party=sender,
                )
            seat.check(frame, self._request)
            seat.take(frame, data, time.monotonic())
            self._changed.notify_all()
        return frame.number

    def _check_attempt(self, frame: Frame, data: bytes, sender: str) -> None:
        """Have whoever belongs to another attempt begin again, as the server may have been."""
        of_another = frame.attempt != self.attempt if frame.attempt else digest(data) in self.gone
        if of_another and frame.reason is None:
            raise RunInterruptedError(
                "the server began another attempt of this run",
                fix="nothing: this site begins again from the last checkpoint that all nodes have",
                party=sender,
            )

    def _await_reply(self, sender: str, number: int) -> bytes:
        """Return the reply when it is there; after a while, that it is not."""
        seat = self._seats[sender]
        with self._changed:
            now = time.monotonic()
            over = seat.since + self.limits.of(self._request.kind) + GRACE
            enough = min(over, now + self.limits.patience)
            while seat.reply is None and seat.number == number:
                if self.failure is not None:
                    return self._tell(sender, self.failure)
                left = enough - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            if seat.number == number and seat.reply is not None:
                return seat.reply
            if seat.number != number or time.monotonic() < over:
                return self._wait(number)
        return self._refusal(
            PartyLostError(
                "the server did not finish the step in time", fix="look at the server's log"
            )
        )

    def _wait(self, number: int) -> bytes:
        return encode(Frame(self._run, number, status=Status.WAIT, attempt=self.attempt))

    def _tell(self, sender: str, error: VFLSynthError) -> bytes:
        if sender in self._seats:
            self._seats[sender].told = True
        return self._refusal(error)

    def _refusal(self, error: VFLSynthError) -> bytes:
        party, step = getattr(error, "party", None), getattr(error, "step", None)
        reason = Reason(type(error).__name__, str(error)[:2000], party, step)
        again = isinstance(error, RunInterruptedError) or (
            self.interrupted and error is self.failure
        )
        status = Status.AGAIN if again else Status.ABORT
        return encode(Frame(self._run, 0, status=status, reason=reason, attempt=self.attempt))


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
