"""Signals, which only the main thread may say what to do at."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def handling(number: int, handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    """Have a signal handled so for a while; in another thread, as it is handled anyway."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, previous)
