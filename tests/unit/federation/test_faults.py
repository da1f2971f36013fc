"""What a system's errors mean."""

import errno

import pytest

from vflsynth.exceptions import ArtefactError, PartyLostError
from vflsynth.federation.wire import fault_of


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "its disk is full"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "its disk quota is used up"),
        (MemoryError(), "it ran out of memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "out of memory"),
        (RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB"), "out of memory"),
        (Exception("I/O error: No space left on device (os error 28)"), "its disk is full"),
        (OSError(errno.ENOENT, "No such file"), None),
        (ValueError("a value, out of memory of man"), None),
        (PartyLostError("killed, or ran out of memory", fix="look"), None),
        (ArtefactError("patient (os error 28)"), None),
    ],
)
def test_what_failed_is_named_and_nothing_else_is_taken_for_it(error, words):
    found = fault_of(error)
    assert found is None if words is None else words in found


def test_what_caused_an_error_counts():
    caused = ArtefactError("checkpoint cannot be written")
    caused.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    assert fault_of(caused) == "its disk is full"
    assert fault_of(None) is None
