"""Runs with every party in a thread of its own, over frames: all but the transport."""

import math
import threading
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd

from vflsynth import PartyModel
from vflsynth._random import derive, secret_from
from vflsynth.federation import exchange
from vflsynth.federation.attempts import server_node
from vflsynth.federation.job import Job
from vflsynth.federation.party_node import PartyNode
from vflsynth.federation.site import Site, Telling
from vflsynth.models.party_model import sample_parties
from vflsynth.testing.synthesizers import sample_apart

UNBOUNDED = Telling(math.inf)
"""Most tests are not about what contexts tell."""


class Dead(BaseException):
    """What ends a party that is killed, without a word to anybody."""


class Clock:
    """The server's clock: it goes as it should, and a test can move it on."""

    def __init__(self):
        self.ahead = 0.0

    def monotonic(self):
        return time.monotonic() + self.ahead


class Direct:
    """A link that hands a party's frame to the server's exchange, in this process."""

    def __init__(self, node, name):
        self._node, self._name = node, name

    def exchange(self, frame, timeout):
        return self._node.remote.exchange(self._name, frame)

    def outwait(self):
        """Let the server wait in vain: all others have answered, and the time is over.

        The timeouts themselves are long, so that a busy machine is not taken for a dead party.
        """
        remote = self._node.remote
        others = [seat for name, seat in remote._seats.items() if name != self._name]
        with remote._changed:
            assert remote._changed.wait_for(lambda: all(seat.answer for seat in others), 600)
            exchange.time.ahead += remote.limits.exchange
            remote._changed.notify_all()
            assert remote._changed.wait_for(lambda: remote._failure, 600)


class Trial:
    """One job at sites of this machine.

    `outcome` has what each node ended with: None, or its error.
    """

    def __init__(self, folder: Path, frames, job: Job, root: bytes | None = None):
        self.folder, self.job = folder, job
        shared = bytes(range(32))
        exact = {} if root is None else {"schedule": derive(root, "shared by the parties")}
        self.sites = {}
        for name, frame in frames.items():
            table = folder / f"{name}.parquet"
            frame.to_parquet(table)
            own = None if root is None else derive(root, f"party {name}")
            self.sites[name] = Site(
                name, folder / name, table, shared=shared, own=own, telling=UNBOUNDED, **exact
            )
        own = None if root is None else derive(root, "server")
        self.server_site = Site("server", folder / "server", own=own, schedule=own)
        self.outcome = {}
        self.nodes = {}

    def change(self, party, **changes):
        self.sites[party] = replace(self.sites[party], **changes)

    def run(self, link=Direct, make_server=server_node, make_party=PartyNode):
        server = self.server = make_server(self.job, self.server_site)

        def party(name):
            node = self.nodes[name] = make_party(self.job, self.sites[name])
            node.run(link(server, name))

        def caught(name, work):
            try:
                work()
            except (Exception, Dead) as error:
                self.outcome[name] = error
            else:
                self.outcome[name] = None

        works = {name: (lambda name=name: party(name)) for name in self.sites}
        works["server"] = server.run
        threads = [
            threading.Thread(target=caught, args=item, daemon=True, name=item[0])
            for item in works.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(600)
            assert not thread.is_alive(), "a node hangs"
        return self


def assert_same(trial, synth):
    """Every site has the bytes of the half that a fit in one process gives it."""
    halves = {}
    for name, half in synth.parties_.items():
        path = trial.folder / name / trial.job.name / "half"
        own = PartyModel.load(path)
        assert own.transformer.to_dict() == half.transformer.to_dict()
        assert own.minter == half.minter
        ours, theirs = own.sampler.tensors(), half.sampler.tensors()
        assert ours.keys() == theirs.keys()
        for key, value in theirs.items():
            assert value.numpy().tobytes() == ours[key].numpy().tobytes(), (name, key)
        halves[name] = own
    theirs = sample_parties(synth.parties_, 20, secret_from(3))
    for name, table in sample_apart(halves, 20, 3).items():
        pd.testing.assert_frame_equal(table, theirs[name])
