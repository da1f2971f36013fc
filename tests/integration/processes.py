"""A federation of real processes on NVIDIA FLARE, which tests submit jobs to."""

import json
import os
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

from cryptography import x509
from cryptography.hazmat.primitives import hashes

from vflsynth import PartyModel, VFLGANSynthesizer
from vflsynth._signatures import new_key
from vflsynth.datasets import make_party_frames
from vflsynth.federation import simulate
from vflsynth.federation.administrator import Administrator
from vflsynth.federation.consent import propose
from vflsynth.federation.guardian import descendants, send
from vflsynth.federation.job import Job
from vflsynth.federation.kit import PROJECT, definitions, write_job
from vflsynth.federation.simulate import HOST, free_port, reproducible
from vflsynth.federation.site import Site

KEY = "record_id"
EXCHANGE = 40.0  # seconds; a machine with other work must make a step within it
PATIENCE = 1800.0  # for what happens soon where nothing else runs


def assert_same_bytes(half, other):
    ours, theirs = half.sampler.tensors(), other.sampler.tensors()
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert value.numpy().tobytes() == theirs[name].numpy().tobytes(), name


class Federation(simulate.Federation):
    """Nodes that a power failure ends, or a signal stops, with the processes that they started."""

    def kill(self, name):
        self.signal(name, signal.SIGKILL)
        self._forget(name)

    def signal(self, name, number):
        process = self.processes[name]
        for pid in [process.pid, *descendants(process.pid)]:
            send(pid, number)


class Authority:
    """Makes kits as organisations do: no private key leaves the folder that it is made in."""

    def __init__(self, job, folder, port):
        self.folder, self._one_packs = folder, threading.Lock()
        files = definitions(job, HOST, port)
        folder.mkdir(parents=True)
        for name, text in files.items():
            (folder / name).write_text(text)
        self.names = [name[:-4] for name in files if name != "profile.yml"]
        self._nvflare("cert", "init", "--profile", folder / "profile.yml", "-o", folder / "ca")
        root = x509.load_pem_x509_certificate((folder / "ca" / "rootCA.pem").read_bytes())
        self.digest = root.fingerprint(hashes.SHA256()).hex(":").upper()

    def _nvflare(self, *words):
        command = [sys.executable, "-m", "nvflare.cli", *map(str, words)]
        home = {"HOME": str(self.folder)}
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | home)
        assert done.returncode == 0, (words, done.stdout, done.stderr)

    def issue(self, name, time="first"):
        """Have somebody ask for a certificate, sign it, and pack the kit; return all kits."""
        own, profile = self.folder / time / f"{name}-request", self.folder / "profile.yml"
        self._nvflare("cert", "request", "-p", self.folder / f"{name}.yml", "--out", own)
        (asked,) = own.glob("*.request.zip")
        assert not any(entry.endswith(".key") for entry in ZipFile(asked).namelist())
        signed, ca = self.folder / time / f"{name}.signed.zip", self.folder / "ca"
        self._nvflare("cert", "approve", asked, "-c", ca, "--profile", profile, "--out", signed)
        where = "--request-dir", own, "-w", self.folder / time
        with self._one_packs:  # all in one workspace
            self._nvflare("package", signed, *where, "--fingerprint", self.digest)
        return self.folder / time / PROJECT / "prod_00"

    def issue_all(self):
        """Do so for everybody."""
        with ThreadPoolExecutor(2) as pool:
            (kits,) = set(pool.map(self.issue, self.names))
        return kits


class Proxy:
    """Passes bytes between parties and the server, until it is told to reset connections."""

    def __init__(self, target):
        self.target, self.pairs = target, []
        self.listener = socket.create_server((HOST, 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            near, _ = self.listener.accept()
            try:
                pair = near, socket.create_connection((HOST, self.target))
            except OSError:  # the server is away for a while
                near.close()
                continue
            self.pairs.append(pair)
            threading.Thread(target=self._pass, args=pair, daemon=True).start()

    @staticmethod
    def _pass(near, far):
        with suppress(OSError, ValueError):
            while True:
                for ready in select.select([near, far], [], [])[0]:
                    data = ready.recv(1 << 16)
                    if not data:  # the other end learns of it too, as without a proxy
                        near.shutdown(socket.SHUT_RDWR)
                        far.shutdown(socket.SHUT_RDWR)
                        return
                    (far if ready is near else near).sendall(data)

    def reset(self):
        """Have every connection end with a TCP reset."""
        pairs, self.pairs = self.pairs, []
        for end in (end for pair in pairs for end in pair):
            with suppress(OSError):  # who was told by the other end already
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RD)  # wakes up who waits in select
            end.close()
        return len(pairs)


class Running:
    """A federation that tests submit jobs to; its secrets are those of ``random_state=0``."""

    def __init__(self, folder, n_parties=2, kind="VFLGANSynthesizer"):
        self.folder, self.kind = folder, kind
        frames = self.frames = make_party_frames(60, n_parties, random_state=2)
        sites = {"server": Site("server", folder / "server")}
        if kind.endswith("Classifier"):
            last = frames.popitem()[1]
            self.labels = (last.set_index(KEY).iloc[:, -1].rank() > 20).astype(int).rename("label")
            self.labels.reset_index().to_parquet(folder / "labels.parquet")
            labels = {"table": folder / "labels.parquet", "labels": "label"}
            sites["server"] = replace(sites["server"], shared=bytes(range(32)), **labels)
        for name, frame in frames.items():
            frame.to_parquet(folder / f"{name}.parquet")
            table = folder / f"{name}.parquet"
            sites[name] = Site(name, folder / name, table, shared=bytes(range(32)))
        self.key = folder / "proposer.pem"
        signed = {"jobs": "signed", "proposers": {"tests": new_key(self.key)}}
        sites = {name: replace(site, **signed) for name, site in sites.items()}
        self.sites = reproducible(self.job("any"), sites, 0)
        port = free_port()
        self.authority = Authority(self.job("any"), folder / "fed", port)
        self.kits = self.authority.issue_all()
        self.proxy = Proxy(port)
        for name in frames:
            self.through_proxy(self.kits / name)
        self.federation = Federation(self.job("any"), self.kits, self.sites)

    def through_proxy(self, kit):
        """Have a party reach the server through the proxy only."""
        path = kit / "startup" / "fed_client.json"
        target, proxy = (f"{HOST}:{port}" for port in (self.proxy.target, self.proxy.port))
        path.write_text(path.read_text().replace(target, proxy))

    def job(self, name, restarts=0, **parameters):
        small = {"batch_size": 16, "monitor": False} if self.kind.endswith("Classifier") else {}
        if self.kind == "VFLGANSynthesizer":
            small = {"batch_size": 16, "generator_hidden": [8], "latent_dim": 4}
            small |= {"first_part": [8]} if "privacy" not in parameters else {}
        return Job.from_dict(
            {
                "name": name,
                "method": self.kind,
                "parties": sorted(self.frames),
                "on": KEY,
                "parameters": small | parameters,
                "exchange_timeout": EXCHANGE,
                "setup_timeout": 900.0,
                "checkpoint_every": 5,
                "restarts": restarts,
                "most_hours": 1e6,
            }
        )

    def assert_as_in_one_process(self, job):
        """Every party's half has the bytes of a fit in this process."""
        values = {k: tuple(v) if isinstance(v, list) else v for k, v in job.parameters.items()}
        synth = VFLGANSynthesizer(**values, random_state=0, device="cpu", verbose=0)
        for name, half in synth.fit(self.frames, KEY).parties_.items():
            assert_same_bytes(self.half(name, job), half)

    def half(self, name, job):
        return PartyModel.load(self.folder / name / job.name / "half")

    @contextmanager
    def open(self):
        with self.federation.running():
            self.administrator = Administrator(self.federation.admin, sorted(self.frames))
            yield self
            self.administrator.close()

    def outcome(self, node, name, number=1):
        path = self.folder / node / name / f"report-{number:03d}.json"
        return json.loads(path.read_text())["outcome"] if path.exists() else None

    def submit(self, job, change=lambda folder: None):
        folder = write_job(job, self.folder / "jobs", propose(job, self.key))
        change(folder)
        return self.administrator.submit(folder)

    def wait_for(self, condition):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"not within {PATIENCE} s"
            time.sleep(0.1)

    def memory(self):
        """Return the MiB that each node's processes have in memory."""
        found = {}
        for node, process in self.federation.processes.items():
            pids = [process.pid, *descendants(process.pid)]
            pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
            found[node] = pages * resource.getpagesize() / 2**20
        return found


def trains(running, name, party="party_1"):
    checkpoints = running.folder / party / name / "checkpoints"
    return lambda: checkpoints.exists() and any(checkpoints.iterdir())


def epoch(running, name):
    """Return the last epoch that a party has a checkpoint of, 0 if there is none."""
    checkpoints = running.folder / "party_1" / name / "checkpoints"
    return max((int(path.name[6:]) for path in checkpoints.glob("epoch-*")), default=0)


def job_process(running, party):
    """Return the pid of a party's process of the job, a fork of its daemon's worker."""
    for pid in descendants(running.federation.processes[party].pid):
        with suppress(OSError):
            if b"worker.py" in Path(f"/proc/{pid}/cmdline").read_bytes() and descendants(pid):
                return descendants(pid)[0]
    return None
