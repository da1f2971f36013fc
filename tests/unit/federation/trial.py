"""Runs with every party in a thread of its own, over frames: all but the transport."""

import json
import math
import threading
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd

from vflsynth import PartyModel
from vflsynth._random import derive, secret_from
from vflsynth.configuration import make_estimator
from vflsynth.federation import exchange
from vflsynth.federation.account import FILE
from vflsynth.federation.attempts import server_node
from vflsynth.federation.job import Job
from vflsynth.federation.limits import MAX_BYTES
from vflsynth.federation.party_node import PartyNode
from vflsynth.federation.sampling import draw_part
from vflsynth.federation.site import Site, Telling
from vflsynth.federation.wire import decode, encode
from vflsynth.models.party_model import sample_parties
from vflsynth.privacy import PrivacyAccount
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
            assert remote._changed.wait_for(lambda: remote.failure, 600)


class Opened(Direct):
    """A link that opens what leaves a party and what reaches it, and may change both."""

    def leaves(self, frame):
        return frame

    def arrives(self, frame):
        return frame

    def exchange(self, data, timeout):
        frame = self.leaves(decode(data, MAX_BYTES))
        reply = super().exchange(encode(frame), timeout)
        return encode(self.arrives(decode(reply, MAX_BYTES)))


class Trial:
    """One job at sites of this machine.

    `outcome` has what each node ended with: None, or its error.
    """

    def __init__(self, folder: Path, frames, job: Job, root: bytes | None = None):
        self.folder, self.frames, self.job = folder, frames, job
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

    def finish(self, *link, **nodes):
        """Run, and see every node end without an error."""
        self.run(*link, **nodes)
        assert set(self.outcome.values()) == {None}, self.outcome
        return self

    def kept(self, node):
        """Where a node keeps what it has of this job."""
        return self.folder / node / self.job.name

    def half(self, party):
        return PartyModel.load(self.kept(party) / "half")

    def report(self, node="server", number=1):
        return json.loads((self.kept(node) / f"report-{number:03d}.json").read_text())

    def account(self, node):
        """What a node's account has, attempt by attempt."""
        path = self.folder / node / FILE
        return PrivacyAccount(path).attempts if path.exists() else ()

    def parts(self, n, request="one", *, keys=None, **options):
        """Draw every site's part of a sample, that of one party with keys."""
        return {
            name: draw_part(self.job, site, n, request, keys=name == keys, **options)
            for name, site in self.sites.items()
        }

    def estimator(self, **parameters):
        """Make what fits the job in one process."""
        synth = make_estimator(self.job.method, self.job.parameters, where="test")
        known = synth.get_params(deep=False)
        quiet = {k: v for k, v in {"device": "cpu", "verbose": 0}.items() if k in known}
        return synth.set_params(random_state=0, **quiet, **parameters)


def assert_same(trial, synth):
    """Every site has the bytes of the half that a fit in one process gives it."""
    halves = {}
    for name, half in synth.parties_.items():
        own = trial.half(name)
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
