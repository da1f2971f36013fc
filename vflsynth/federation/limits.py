"""How long a node waits for the others, and how much it reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vflsynth.protocol import Message

MAX_BYTES = 1 << 28
"""Of a frame, unless a job or a site says otherwise."""

GRACE = 5.0
"""Seconds that a party waits longer than the server, so that the server's reason arrives first."""

_PATIENCE = 2.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How long anybody waits, and how much anybody reads.

    Parameters
    ----------
    exchange : float, default=60.0
        Seconds that the server waits for all parties in an exchange.
    setup : float, default=300.0
        The same for joining, matching and encoding.
    max_bytes : int, default=256 MiB
        Of a frame.
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
