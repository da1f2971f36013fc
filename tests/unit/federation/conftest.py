"""Runs with every party in a thread of its own, over frames: all but the transport."""

import threading
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from vflsynth._random import derive, secret_from
from vflsynth.datasets import make_party_frames
from vflsynth.federation.job import Job, Site
from vflsynth.federation.party_node import PartyNode
from vflsynth.federation.server_nodes import server_node

pytest.importorskip("private_set_intersection.python", reason="needs the extra 'flare'")

KEY = "record_id"
FAST = {
    "epochs": 4,
    "batch_size": 16,
    "latent_dim": 4,
    "generator_hidden": [8, 8],
    "first_part": [8],
    "shared_hidden": [8],
    "discriminator_steps": 2,
}


class Direct:
    """A link that hands a party's frame to the server's exchange, in this process."""

    def __init__(self, node, name):
        self._node, self._name = node, name

    def exchange(self, frame, timeout):
        return self._node.remote.exchange(self._name, frame)


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
            self.sites[name] = Site(name, folder / name, table, shared=shared, own=own, **exact)
        own = None if root is None else derive(root, "server")
        self.server_site = Site("server", folder / "server", own=own)
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
            except Exception as error:
                self.outcome[name] = error
            else:
                self.outcome[name] = None

        works = {name: (lambda name=name: party(name)) for name in self.sites}
        works["server"] = server.run
        threads = [
            threading.Thread(target=caught, args=item, daemon=True) for item in works.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive(), "a node hangs"
        return self


@pytest.fixture
def make_trial(tmp_path):
    """Make a trial of a fast VFLGAN, with some parameters of the job changed."""

    def make(n_parties=2, *, parameters=None, random_state=0, n_records=40, **job):
        frames = make_party_frames(n_records, n_parties, random_state=2)
        content = {
            "name": "trial",
            "parties": sorted(frames),
            "on": KEY,
            "parameters": FAST | (parameters or {}),
            "exchange_timeout": 5.0,
            "setup_timeout": 10.0,
            "checkpoint_every": 2,
        }
        root = None if random_state is None else secret_from(random_state)
        trial = Trial(tmp_path, frames, Job.from_dict(content | job), root)
        trial.frames = frames
        return trial

    return make


@pytest.fixture
def make_split_trial(tmp_path):
    """Make a trial of a fast split classifier, whose server has the labels."""

    def make(n_parties=2, *, method="SplitNNClassifier", parameters=None, n_records=60, **job):
        frames = make_party_frames(n_records, n_parties + 1, random_state=2)
        *passive, last = frames
        labels = (frames[last].iloc[:, -1].rank() > n_records / 2).astype(int)
        table = pd.DataFrame({KEY: frames.pop(last)[KEY], "label": labels})
        content = {
            "name": "trial",
            "parties": passive,
            "method": method,
            "on": KEY,
            "parameters": {"epochs": 4, "batch_size": 16, "monitor": False} | (parameters or {}),
            "exchange_timeout": 5.0,
            "setup_timeout": 10.0,
            "checkpoint_every": 2,
        }
        root = secret_from(0)
        trial = Trial(tmp_path, frames, Job.from_dict(content | job), root)
        table.to_parquet(tmp_path / "labels.parquet")
        trial.server_site = replace(
            next(iter(trial.sites.values())),
            party="server",
            folder=tmp_path / "server",
            table=tmp_path / "labels.parquet",
            labels="label",
            own=derive(root, "active party"),
        )
        trial.frames, trial.labels = frames, table.set_index(KEY)["label"]
        return trial

    return make
