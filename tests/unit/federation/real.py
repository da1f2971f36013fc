"""Nodes as processes of this machine that exchange frames over sockets, as over FLARE, but soon.

Names are believed here; certificates are the transport's affair. A node can be told to halt at a
point of the run, where the test kills it from outside, or stops it, or lets it go on.
"""

import json
import multiprocessing
import os
import resource
import signal
import socket
import struct
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Client, Listener

from vflsynth.exceptions import VFLSynthError
from vflsynth.federation import matching, participant
from vflsynth.federation.attempts import ServerAttempts, attend
from vflsynth.federation.checkpoints import NodeCheckpoints
from vflsynth.federation.party_node import PartyNode
from vflsynth.federation.progress import Progress
from vflsynth.models import PartyModel

HOST = "localhost"
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload([__name__, "vflsynth.methods", "nacl.bindings"])


class Reached:
    """Halts a node at a point of its run: leaves a file, and waits until that is gone.

    In a black hole it goes on, and its frames go nowhere until then.
    """

    def __init__(self, file, point, act):
        self.file, self.point, self.act, self.done = file, point, act, False

    def __call__(self, point):
        if point != self.point or self.done:
            return
        self.done = True
        if self.act == "memory":
            raise MemoryError
        if self.act == "disk":
            size = 1500 if self.file.name.endswith("server") else 4000  # a checkpoint is larger
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
            return
        self.file.write_text(str(os.getpid()))
        while self.file.exists() and self.act != "hole":
            time.sleep(0.01)


def watch(reached):
    """Call `reached` with all that a node answers, asks, writes or saves."""

    def before(owner, name, point):
        original = getattr(owner, name)

        def wrapped(self, *args, **kwargs):
            reached(point(*args))
            return original(self, *args, **kwargs)

        setattr(owner, name, wrapped)

    before(Progress, "note", lambda kind, step: (kind.__name__, step))
    before(NodeCheckpoints, "write", lambda _, saved: ("checkpoint", saved.epoch))
    before(PartyModel, "save", lambda *_: ("save", 0))


def serve(job, site, port, *halt):
    """Be the server's process."""
    watch(Reached(*halt))
    attempts = ServerAttempts(job, site)
    listener = Listener((HOST, port), backlog=16)

    def answer(connection):
        with suppress(EOFError, OSError), connection:
            name = connection.recv_bytes().decode()
            while True:
                connection.send_bytes(attempts.exchange(name, connection.recv_bytes()))

    def accept():
        while True:
            threading.Thread(target=answer, args=(listener.accept(),), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    with suppress(VFLSynthError):
        attempts.run()
    time.sleep(1.0)  # the last replies


class SocketLink:
    """A party's way to the server; it dials again whenever it was cut off."""

    def __init__(self, port, name):
        self.port, self.name, self.connection, self.hole = port, name, None, None

    def exchange(self, frame, timeout):
        deadline = time.monotonic() + timeout
        if self.hole is not None and self.hole.exists():
            time.sleep(timeout)
            raise TimeoutError("a black hole")
        try:
            if self.connection is None:
                self.connection = Client((HOST, self.port))
                self.connection.send_bytes(self.name.encode())
            self.connection.send_bytes(frame)
            if self.connection.poll(max(0.0, deadline - time.monotonic())):
                return self.connection.recv_bytes()
        except (OSError, EOFError):
            pass
        if self.connection is not None:
            self.connection.close()  # else a late reply would be taken for the next one's
            self.connection = None
        raise TimeoutError("no reply")

    def reset(self):
        """End the connection with a TCP reset, whatever is under way."""
        if self.connection is not None:
            own = socket.socket(fileno=os.dup(self.connection.fileno()))
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            own.close()


def join(job, site, port, *halt):
    """Be a party's process."""
    participant._PAUSE = 0.05
    reached, link = Reached(*halt), SocketLink(port, site.party)
    if reached.act == "reset":
        reached = lambda point: link.reset() if point[0] == halt[1][0] else None  # noqa: E731
    elif reached.act == "hole":
        link.hole = reached.file
    elif reached.act == "clock":
        here = time.time
        time.time = lambda: here() + 3600.0
    elif reached.act == "version":
        matching.__version__ = "9.9"
    watch(reached)
    with suppress(VFLSynthError, MemoryError):
        attend(job, site, link, PartyNode)


class Nodes:
    """All nodes of a trial as processes."""

    def __init__(self, trial):
        self.trial, self.processes = trial, {}
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            self.port = probe.getsockname()[1]

    def file(self, name):
        return self.trial.folder / f"reached-{name}"

    def start(self, name, point=None, act="halt"):
        site = self.trial.server_site if name == "server" else self.trial.sites[name]
        work = serve if name == "server" else join
        process = CONTEXT.Process(
            target=work,
            args=(self.trial.job, site, self.port, self.file(name), point, act),
            daemon=True,
        )
        process.start()
        self.processes[name] = process

    def start_all(self, halting=None, point=None, act="halt"):
        for name in ("server", *self.trial.sites):
            if name == halting:
                self.start(name, point, act)
            else:
                self.start(name)

    def wait_for(self, condition, seconds=600):
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, self.outcomes()
            time.sleep(0.01)

    def halted(self, name):
        self.wait_for(self.file(name).exists)

    def kill(self, name):
        """Kill a node that was halted, as a power failure would."""
        os.kill(self.processes[name].pid, signal.SIGKILL)
        self.processes[name].join()
        self.file(name).unlink(missing_ok=True)

    def signal(self, name, number):
        os.kill(self.processes[name].pid, number)

    def join(self, seconds=600):
        for process in self.processes.values():
            process.join(seconds)
            assert process.exitcode is not None, self.outcomes()

    def close(self):
        for process in self.processes.values():
            if process.is_alive():
                process.kill()
            process.join()

    def outcome(self, name, number):
        path = self.trial.kept(name) / f"report-{number:03d}.json"
        return json.loads(path.read_text())["outcome"] if path.exists() else None

    def outcomes(self):
        """Return the outcomes of every node's attempts."""
        found = {}
        for name in ("server", *self.trial.sites):
            folder = self.trial.kept(name)
            reports = sorted(folder.glob("report-*.json"))
            found[name] = [json.loads(path.read_text())["outcome"] for path in reports]
        return found
