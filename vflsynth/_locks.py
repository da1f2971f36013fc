"""Locks on folders: one process at a time, and none is left behind by a process that dies."""

from __future__ import annotations

import fcntl
import logging
import time
from pathlib import Path
from typing import TextIO

from vflsynth.exceptions import ParameterError

logger = logging.getLogger("vflsynth")

_UNSAID = 2.0
"""Seconds to wait without a word."""

_PATIENCE = 0.5
"""Seconds: whoever asks whether a folder is in use has its lock for a moment."""


def lock(path: Path, problem: str, patience: float = _PATIENCE) -> TextIO:
    """Lock a file, which is made with its folder; closing it, as ``with`` does, unlocks it.

    Waits for it some seconds of patience. Raises ParameterError with the `problem`, what it means
    if another process, or another part of this one, has it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("a")
    asked = time.monotonic()
    deadline, said = asked + patience, False
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if (now := time.monotonic()) > deadline:
                file.close()
                raise ParameterError(f"{path.parent}: {problem}") from error
            if not said and now > asked + _UNSAID:
                logger.info(
                    "%s: %s. Waiting for it, %.0f s at most", path.parent, problem, patience
                )
                said = True
            time.sleep(0.02)
        else:
            return file


def is_locked(path: Path) -> bool:
    """Whether somebody has a lock at this moment; its folder may be one to read only."""
    if not path.exists():
        return False
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False
