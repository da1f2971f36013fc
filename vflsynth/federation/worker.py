"""Processes of jobs that are ready before a job comes.

Half of what a short job costs is loading libraries. So a node's daemon starts one process that
loads them, holds no job and listens to nobody else; each job is a fork of it, which shares its
memory until it writes. It is run as a file, ``python -P worker.py KIND``, with a socket of the
daemon's as its standard input, and ends with the daemon. Importing this module loads FLARE only
where a launcher is made.
"""

from __future__ import annotations

import gc
import importlib
import json
import logging
import os
import runpy
import select
import shlex
import signal
import socket
import subprocess
import sys
import threading
import traceback
from contextlib import suppress
from typing import Any

MODULES = {
    "client": "nvflare.private.fed.app.client.worker_process",
    "server": "nvflare.private.fed.app.server.runner_process",
}
"""What FLARE runs for a job, by the kind of node."""
_LIBRARIES = (
    "vflsynth.federation.flare",
    "vflsynth.federation.active_node",
    "nacl.bindings",
    "pyarrow.parquet",
    "safetensors.torch",
    "scipy.stats",
)
_KILLED = -int(signal.SIGKILL)
_LOOK = 0.2


class Forked:
    """A job's process, as FLARE's `ProcessHandle` wants to have it."""

    def __init__(self, pid: int) -> None:
        self.pid, self.ended = pid, threading.Event()
        self.code: int | None = None

    def end(self, code: int) -> None:
        """Take note of how it ended."""
        self.code = code
        self.ended.set()

    def poll(self) -> int | None:
        """Return its exit code, None while it runs."""
        return self.code

    def wait(self) -> None:
        """Wait for its end."""
        self.ended.wait()

    def terminate(self) -> None:
        """Kill it with all that it started."""
        if self.code is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)


class Warm:
    """The daemon's end: asks a process that has loaded everything for forks of itself."""

    def __init__(self, kind: str) -> None:
        own, other = socket.socketpair()
        command = [sys.executable, "-P", "-u", __file__, kind]
        self._process = subprocess.Popen(command, stdin=other.fileno())
        other.close()
        self._channel, self._lines = own, own.makefile("r", encoding="utf-8")
        self._lock, self._forked = threading.Lock(), threading.Event()
        self._running: dict[int, Forked] = {}
        self._last: Forked | None = None
        threading.Thread(target=self._listen, daemon=True).start()

    def launch(self, command: list[str], environment: dict[str, str]) -> Forked | None:
        """Run what ``python -m`` would; None if there is nobody to fork any more.

        The first waits until everything is loaded: what is asked for would be run in any case.
        """
        with self._lock:
            self._forked.clear()
            self._last = None
            try:
                self._channel.sendall(json.dumps([command, environment]).encode() + b"\n")
            except OSError:
                return None
            self._forked.wait()
            return self._last

    def _listen(self) -> None:
        with suppress(OSError, ValueError):
            for line in self._lines:
                pid, code = json.loads(line)
                if code is None:
                    if pid:
                        self._running[pid] = self._last = Forked(pid)
                    self._forked.set()
                else:
                    self._running.pop(pid).end(code)
        self._process.wait()
        self._lines.close()
        self._channel.close()
        self._forked.set()  # nobody answers any more, or says how jobs end
        for process in self._running.values():
            process.terminate()
            process.end(_KILLED)


WARM: Warm | None = None
"""That of this process, if it is a daemon."""


def __getattr__(name: str) -> Any:
    """Make ``ClientLauncher`` and ``ServerLauncher``, which a kit's resources name."""
    kind = name.removesuffix("Launcher").lower()
    if kind not in MODULES or not name.endswith("Launcher"):
        raise AttributeError(name)
    folder = "nvflare.app_common.job_launcher"
    cold = importlib.import_module(f"{folder}.{kind}_process_launcher")
    of_process = importlib.import_module(f"{folder}.process_launcher").ProcessHandle

    class Launcher(getattr(cold, f"{kind.title()}ProcessJobLauncher")):  # type: ignore[misc]
        """Starts a job's process as a fork; from nothing where that cannot be had."""

        def launch_job(self, job_meta: dict[str, Any], fl_ctx: Any) -> Any:
            from nvflare.apis.fl_constant import FLContextKey
            from nvflare.utils.job_launcher_utils import get_credential_env

            if WARM is not None:
                command = shlex.split(self.get_command(job_meta, fl_ctx), True)
                secret = get_credential_env(fl_ctx.get_prop(FLContextKey.JOB_PROCESS_ARGS) or {})
                forked = WARM.launch(command, {**os.environ, **secret})
                if forked is not None:
                    return of_process(process_adapter=forked)
            return super().launch_job(job_meta, fl_ctx)

    Launcher.__name__ = Launcher.__qualname__ = f"{kind.title()}Launcher"
    return Launcher


def load(kind: str) -> None:
    """Import what a job's process imports; its own module is run by every fork."""
    importlib.import_module(MODULES[kind])
    del sys.modules[MODULES[kind]]
    for name in _LIBRARIES:
        with suppress(ImportError):  # the job says what it lacks
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a fork would write to all of it


def serve(channel: socket.socket) -> tuple[list[str], dict[str, str]] | None:
    """Fork for every line that comes; return its command in a fork, None when the daemon is gone.

    A line is answered with the fork's pid, 0 if there is none, and with pid and exit code once it
    has ended.
    """
    waiting = b""
    children: set[int] = set()
    while True:
        ready, _, _ = select.select([channel], [], [], _LOOK if children else None)
        if ready:
            data = channel.recv(1 << 16)
            if not data:
                return None
            waiting += data
        while b"\n" in waiting:
            line, waiting = waiting.split(b"\n", 1)
            try:
                pid = os.fork()
            except OSError:  # there is no room for another process
                channel.sendall(b"[0, null]\n")
                continue
            if not pid:
                os.setsid()
                channel.close()
                command, environment = json.loads(line)
                return command, environment
            children.add(pid)
            channel.sendall(f"[{pid}, null]\n".encode())
        for pid in list(children):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                children.discard(pid)
                channel.sendall(f"[{pid}, {os.waitstatus_to_exitcode(status)}]\n".encode())


def main() -> None:
    """Load, wait, and become a job in every fork."""
    channel = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    load(sys.argv[1])
    asked = serve(channel)
    if asked is None:
        return
    command, environment = asked
    os.environ.clear()
    os.environ.update(environment)
    sys.orig_argv = command
    module = command.index("-m") + 1
    sys.argv = command[module:]
    code: Any = 0
    try:
        runpy.run_module(command[module], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
        code = 1
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    # To take everything apart takes a second, and a thread that hangs would keep the process.
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    main()
