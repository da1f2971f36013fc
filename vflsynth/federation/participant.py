"""The party's end: a loop that answers what the server asks, within what the party agreed to."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from vflsynth.exceptions import (
    ExchangeError,
    PartyLostError,
    PayloadRejectedError,
    ProtocolError,
    RunAbortedError,
    RunInterruptedError,
    ToldTooMuchError,
    VFLSynthError,
)
from vflsynth.federation.limits import GRACE, Limits, Pause
from vflsynth.federation.wire import Frame, Reason, Request, Status, decode, encode, fault_of
from vflsynth.protocol.channel import SERVER, Message, Participant, Transcript, When
from vflsynth.protocol.messages import Hello

logger = logging.getLogger("vflsynth")

_ON_THE_WAY = 3.0
"""Seconds that a frame and its reply may take; then the frame is sent again."""
_SLOWEST = 1e6
"""Bytes per second of the slowest network in which a long frame arrives before it is sent again."""
_PAUSE = 0.5
"""Seconds between attempts if the transport says at once that it cannot reach the server."""


class Link(Protocol):
    """What a party needs of a transport."""

    def exchange(self, frame: bytes, timeout: float) -> bytes:
        """Send a frame to the server and return its reply.

        Raises TimeoutError if there is none within `timeout` seconds, or the server cannot be
        reached; the frame is then sent again; RunAbortedError if the transport knows that the run
        is over.
        """
        ...


class Rules:
    """What a server may ask of a party, and how often; a party's protection against its server.

    It asks messages of each kind for rising steps below the number that `steps` has.
    """

    def __init__(self, steps: dict[type[Message], int]) -> None:
        self._steps = dict(steps)
        self._last: dict[type[Message], int] = {}
        self._taken: set[type[Message]] = set()

    def allow(
        self, steps: dict[type[Message], int], done: Mapping[type[Message], int] | None = None
    ) -> None:
        """Allow kinds of messages whose number of steps is known only later.

        Steps below those of `done` were answered before, in an attempt that this one goes on from.
        """
        self._steps |= steps
        for kind, first in (done or {}).items():
            self._last[kind] = max(self.last(kind), first - 1)

    def check(self, request: Request) -> None:
        """Refuse what was not agreed to (ProtocolError)."""
        kind, step = request.kind, request.step
        if not self.last(kind) < step < self._steps.get(kind, 0):
            raise ProtocolError(
                f"the server asked for {kind.__name__} of step {step}, which is not part of this "
                "run, or was asked before. Nothing was sent"
            )
        self._last[kind] = step

    def last(self, kind: type[Message]) -> int:
        """Return the last step that a kind of message was asked for; -1 if there is none."""
        return self._last.get(kind, -1)

    def receive(self, message: Message) -> None:
        """Refuse what a server sends once, such as the terms, if it comes again (ProtocolError)."""
        kind = type(message)
        if kind.declared.when is When.ONCE and kind in self._taken:
            raise ProtocolError(f"the server sent {kind.__name__} twice")
        self._taken.add(kind)


def take_part(
    party: Participant,
    link: Link,
    rules: Rules,
    *,
    run: str,
    tag: Callable[[type[Message], int], str],
    limits: Limits,
    transcript: Transcript | None = None,
) -> None:
    """Answer the server until the run is over.

    `tag` makes the keyed digest, for a kind of message and a step, of what all parties must agree
    on. The limits are the server's; the party waits a little longer. A transcript records what
    leaves and what arrives. Raises PartyLostError if the server does not answer in time;
    RunAbortedError if another node stopped the run; PayloadRejectedError if the server's frame is
    not what it must be.
    """
    request: Request | None = Request(Hello, 0)
    number, attempt = 0, ""
    transcript = transcript or Transcript()  # that nobody reads
    try:
        while request is not None:
            rules.check(request)
            message = party.answer(request.kind, request.step)
            signed = tag(request.kind, request.step)
            frame = Frame(run, number, (message,), tag=signed, attempt=attempt)
            transcript.record(message)
            reply = _ask(link, frame, request, limits)
            for delivery in reply.messages:
                if delivery.receiver != party.name or delivery.sender != SERVER:
                    raise _odd(f"a message for {delivery.receiver!r}", request)
                transcript.record(delivery)
                rules.receive(delivery)
                party.take(delivery)
            if (reply.request is None) != (reply.status is Status.DONE):
                raise _odd("an order that neither goes on nor ends", request)
            request, number, attempt = reply.request, number + 1, reply.attempt
    except (RunAbortedError, PartyLostError):
        raise
    except Exception as error:
        say_why(link, run, number, party.name, request, error)
        raise


def _ask(link: Link, frame: Frame, request: Request, limits: Limits) -> Frame:
    """Send a frame until the server has it, and ask until the reply is there.

    A network that loses a frame or a reply, or is down for a while, costs time and no run.
    """
    timeout = limits.of(request.kind) + 2 * GRACE
    deadline = time.monotonic() + timeout
    data, attempts, reply = encode(frame, limits.max_bytes), 0, None
    poll = encode(Frame(frame.run, frame.number, status=Status.WAIT, attempt=frame.attempt))
    while reply is None or reply.status is Status.WAIT:
        left = deadline - time.monotonic()
        if left <= 0:
            raise PartyLostError(
                f"no reply from the server to {request.kind.__name__} within {timeout:g} s, in "
                f"{attempts} attempts",
                fix="look at the server's log; once it runs, start the same job again: it resumes "
                "from the last checkpoint that all nodes have",
                step=request.step,
            )
        attempts += 1
        try:
            one = limits.patience + _ON_THE_WAY + len(data) / _SLOWEST
            pause = Pause(min(left, one))
            answer = link.exchange(data, pause.seconds)
        except TimeoutError as error:
            logger.debug("%s; sending it again", error)
            deadline += pause.overslept()
            time.sleep(min(left, _PAUSE))
            continue
        reply = _read(answer, frame, request, limits)
        if frame.number:  # a hello is sent as it is: a server that was restarted has none
            data = poll
    return reply


def _read(data: bytes, frame: Frame, request: Request, limits: Limits) -> Frame:
    try:
        reply = decode(data, limits.max_bytes)
    except ExchangeError as error:
        problem = f"the server's frame: {error.problem}"
        raise type(error)(problem, fix=error.fix, step=request.step) from error
    if reply.reason is not None:
        why = reply.reason
        kind = RunInterruptedError if reply.status is Status.AGAIN else RunAbortedError
        raise kind(
            f"the run was stopped: {why.error}: {why.text}",
            fix="do what the message says; this site keeps its last checkpoint",
            step=request.step,
        )
    of_another = frame.attempt not in ("", reply.attempt)
    if (reply.run, reply.number) != (frame.run, frame.number) or of_another:
        raise _odd(f"a reply to exchange {reply.number} of run {reply.run!r}", request)
    return reply


def _odd(what: str, request: Request) -> PayloadRejectedError:
    return PayloadRejectedError(
        f"the server sent {what} in answer to {request.kind.__name__}",
        fix="install the same version of vflsynth at every site",
        step=request.step,
    )


def say_why(
    link: Link, run: str, number: int, name: str, request: Request | None, error: Exception
) -> None:
    """Tell the server at which exchange this party stops; details, maybe data, stay in its log."""
    logger.error("%s", error)
    text = details = f"the log of site {name!r} has the details"
    # What this site told in other jobs, and how much it may, is not for those of this one.
    if isinstance(error, ExchangeError) and not isinstance(error, ToldTooMuchError):
        text = error.problem
    if (why := fault_of(error)) is not None:
        text = f"{why}; {details}"
    step = None if request is None else request.step
    reason = Reason(type(error).__name__, text, name, step)
    frame = encode(Frame(run, number, status=Status.ABORT, reason=reason))
    deadline = time.monotonic() + GRACE
    while (left := deadline - time.monotonic()) > 0:
        try:
            link.exchange(frame, left / 2)
            return
        except TimeoutError:
            time.sleep(min(left, _PAUSE))
        except (OSError, VFLSynthError):
            break
    logger.error("the server could not be told that this site stops")
