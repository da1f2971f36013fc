"""Runs a command, and ends it with all that it started when whoever wanted it is gone.

It is run as a file by a bare Python, ``python -I guardian.py COMMAND...``, with a pipe as its
standard input: when the pipe's other end closes, be it by a kill, nobody is there any more.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

_GRACE = 5.0


def descendants(pid: int) -> list[int]:
    """Find all descendants of a process."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(folder.name))
    found, waiting = [], [pid]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found += children
        waiting += children
    return found


def send(pid: int, number: int) -> None:
    """Send a signal to a process, if it is still there."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def end(process: subprocess.Popen[bytes], seconds: float) -> None:
    """End a process and all that it started: with a request first, then without asking."""
    pids = [process.pid, *descendants(process.pid)]
    for pid in pids:
        send(pid, signal.SIGCONT)
        send(pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    for pid in pids:
        send(pid, signal.SIGKILL)
    process.wait()


def main() -> int:
    """Run the command that the arguments are."""
    process = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)

    def watch() -> None:
        while os.read(0, 1 << 10):
            pass
        end(process, _GRACE)

    # Whoever ends the command by a signal sends it to the command too.
    signal.signal(signal.SIGTERM, lambda *_: None)
    threading.Thread(target=watch, daemon=True).start()
    while process.poll() is None:
        time.sleep(0.2)
    return process.returncode


if __name__ == "__main__":
    sys.exit(main())
