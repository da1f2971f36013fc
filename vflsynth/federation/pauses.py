"""Waits whose process, or machine, may be stopped meanwhile: nobody else is to blame then."""

from __future__ import annotations

from time import perf_counter

_OVERSLEPT = 2.0
"""Seconds by which a busy machine may be late."""


class Pause:
    """A wait that begins now and should take at most some seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self._began = seconds, perf_counter()

    def overslept(self) -> float:
        """Return the seconds by which it took longer, 0 if these are few."""
        late = perf_counter() - self._began - self.seconds
        return late if late > _OVERSLEPT else 0.0
