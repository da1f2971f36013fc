"""What a system's errors mean, in words that may be told to everybody: they hold no data."""

from __future__ import annotations

import errno
import re

from vflsynth.exceptions import VFLSynthError

_WORDS = {
    errno.ENOSPC: "its disk is full",
    errno.EDQUOT: "its disk quota is used up",
    errno.EFBIG: "a file became larger than its system allows",
    errno.EROFS: "its disk cannot be written to",
    errno.EIO: "its disk does not work",
    errno.EACCES: "its process may not write to its folder",
    errno.EPERM: "its process may not write to its folder",
    errno.EMFILE: "its process has too many files open",
    errno.ENFILE: "its system has too many files open",
    errno.ENOMEM: "it ran out of memory",
}
_NUMBER = re.compile(r"\(os error (\d+)\)")
"""How libraries in Rust, such as safetensors, say it."""
_MEMORY = ("can't allocate memory", "out of memory")
"""How torch says it."""


def fault_of(error: BaseException | None) -> str | None:
    """Say what of a node's system failed, by an error and its causes; None for something else."""
    while error is not None:
        if isinstance(error, MemoryError):
            return _WORDS[errno.ENOMEM]
        if isinstance(error, OSError) and error.errno in _WORDS:
            return _WORDS[error.errno]
        text = "" if isinstance(error, VFLSynthError) else str(error)  # ours may quote others
        found = _NUMBER.search(text)
        if found and int(found[1]) in _WORDS:
            return _WORDS[int(found[1])]
        if isinstance(error, RuntimeError) and any(words in text.lower() for words in _MEMORY):
            return _WORDS[errno.ENOMEM]
        error = error.__cause__
    return None
