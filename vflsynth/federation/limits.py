"""How long a node waits for the others, and how much it reads."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vflsynth.protocol.channel import Message

MAX_BYTES = 1 << 28
"""Of a frame, unless a job or a site says otherwise."""

GRACE = 5.0
"""Seconds that a party waits longer than the server, so that the server's reason arrives first."""

_PATIENCE = 2.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How long anybody waits, and how much anybody reads.

    The server waits `exchange` seconds for all parties in an exchange, and `setup` seconds for
    joining, a part of the matching, and encoding. A frame has at most `max_bytes`.
    """

    exchange: float = 60.0
    setup: float = 300.0
    max_bytes: int = MAX_BYTES

    def of(self, kind: type[Message]) -> float:
        """Return the seconds that the server waits for messages of a kind."""
        return self.setup if kind.declared.slow else self.exchange

    @property
    def patience(self) -> float:
        """Seconds after which the server says that it has a frame, and a reply is not ready."""
        return min(_PATIENCE, self.exchange / 4)


_OVERSLEPT = 2.0
"""Seconds by which a busy machine may be late."""


class Pause:
    """A wait that begins now and should take at most some seconds.

    Where its process, or machine, is stopped meanwhile, nobody else is to blame.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds, self._began = seconds, perf_counter()

    def overslept(self) -> float:
        """Return the seconds by which it took longer, 0 if these are few."""
        late = perf_counter() - self._began - self.seconds
        return late if late > _OVERSLEPT else 0.0
