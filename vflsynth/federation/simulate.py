"""Server and parties as processes of this machine, on FLARE, with throw-away certificates."""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from vflsynth import _artefacts as artefacts
from vflsynth._locks import lock
from vflsynth._random import derive, secret_from
from vflsynth.exceptions import ProtocolError
from vflsynth.federation import guardian, kit
from vflsynth.federation.administrator import check_installed, submit
from vflsynth.federation.attempts import server_node
from vflsynth.federation.job import Job
from vflsynth.federation.party_node import check_table
from vflsynth.federation.progress import job_state
from vflsynth.federation.site import Site

logger = logging.getLogger("vflsynth")

HOST = "localhost"
_START_SECONDS = 300.0
_STOP_SECONDS = 10.0
_ATTEMPTS = 3
_SPOKEN_EVERY = 3.0


def make_kits(project_file: str, folder: Path) -> Path:
    """Make certificates and start-up kits with FLARE's own tool; return their folder.

    The tool leaves everybody's private keys for all to read, and all of them in one file more.
    """
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    file = folder / "project.yml"
    file.write_text(project_file, encoding="utf-8")
    command = [sys.executable, "-m", "nvflare.cli", "provision", "-p", str(file), "-w", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    kits = folder / kit.PROJECT / "prod_00"
    if done.returncode or not kits.is_dir():
        raise ProtocolError(f"nvflare provision failed: {done.stderr.strip() or done.stdout}")
    kit.hide_keys(folder)
    return kits


def reproducible(job: Job, sites: Mapping[str, Site], random_state: int) -> dict[str, Site]:
    """Give sites the secrets that an estimator with this ``random_state`` uses in one process."""
    root = secret_from(random_state)
    labels = {"server": "active party" if job.has_labels else "server"}
    schedule = derive(root, "shared by the parties")
    return {
        name: replace(
            site,
            own=derive(root, labels.get(name, f"party {name}")),
            schedule=derive(root, labels["server"]) if site.shared is None else schedule,
        )
        for name, site in sites.items()
    }


class Federation:
    """Processes of one federation on this machine, with kits from `make_kits`.

    Sites are of every party, and of the ``"server"``.
    """

    def __init__(self, job: Job, kits: Path, sites: Mapping[str, Site]) -> None:
        check_installed()
        self.job, self.sites = job, dict(sites)
        self.kits = {name: kits / (HOST if name == "server" else name) for name in sites}
        self.admin = kits / kit.ADMIN
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        for name, site in self.sites.items():
            kit.prepare(self.kits[name], site)

    def start(self, name: str) -> None:
        """Start one node's process, in a process group of its own."""
        folder = self.kits[name]
        (folder / "transfer").mkdir(exist_ok=True)
        with (folder / "console.txt").open("ab") as console:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-I", guardian.__file__, *kit.node_command(folder)],
                cwd=folder,
                stdin=subprocess.PIPE,  # closes when this process ends, however it does
                stdout=console,
                stderr=console,
                env=kit.ONE_THREAD | os.environ | {"HOME": str(folder)},
                start_new_session=True,
            )

    def stop(self) -> None:
        """End all processes: parties first."""
        for name in sorted(self.processes, key=lambda name: name == "server"):
            guardian.end(self.processes[name], _STOP_SECONDS)
            self._forget(name)

    def _forget(self, name: str) -> None:
        process = self.processes.pop(name)
        process.wait()
        if process.stdin is not None:
            process.stdin.close()

    @contextmanager
    def running(self) -> Iterator[Federation]:
        """Run all nodes for a while."""
        try:
            for name in sorted(self.sites, key=lambda name: name != "server"):
                self.start(name)
                if name == "server":
                    self._wait_for_port()
            yield self
        finally:
            self.stop()

    def outcomes(self) -> dict[str, str]:
        """Return what every node's last report says."""
        return {
            name: job_state(site.folder, self.job.name).outcome or "is still running"
            for name, site in self.sites.items()
        }

    def _wait_for_port(self) -> None:
        content = json.loads((self.kits["server"] / "startup" / "fed_server.json").read_text())
        host, port = content["servers"][0]["service"]["target"].split(":")
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and self.processes["server"].poll() is None:
            with socket.socket() as probe:
                probe.settimeout(1.0)
                if probe.connect_ex((host, int(port))) == 0:
                    return
            time.sleep(0.1)
        raise ProtocolError(f"the server does not listen on {host}:{port}; see its console.txt")


def free_port() -> int:
    """Find a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def simulate(
    job: Job, sites: Mapping[str, Site], folder: Path, *, seconds: float
) -> dict[str, str]:
    """Run a job with all its nodes as processes of this machine; return how every node ended.

    That is ``"finished"`` or its error. Sites are of every party, and of the ``"server"``. The
    folder gets one for the certificates, start-up kits and logs of every simulation, of which the
    last few are kept. It takes at most `seconds`.

    Raises ParameterError if another simulation is going on in the folder; TableFileError or
    ParameterError if a site's table or file cannot be used, before any process starts.
    """
    check_installed()
    server_node(job, sites["server"])
    for name in job.parties:
        check_table(job, sites[name], job.method_for_node())
        _ = sites[name].the_shared  # an error, if there is none
    with lock(folder / ".lock", "another simulation is going on here. Wait for it, or stop it"):
        kits = make_kits(kit.project(job, HOST, free_port()), _next_attempt(folder))
        # Whoever runs a simulation has all the sites, and starts this job only.
        willing = {name: replace(site, jobs="any", proposers={}) for name, site in sites.items()}
        federation = Federation(job, kits, willing)
        with federation.running():
            logger.info("server and %d parties are running", len(job.parties))
            watch = Watch(sites["server"].folder, job)
            logger.info("%s", submit(job, federation.admin, seconds, watch))
    return federation.outcomes()


class Watch:
    """Says how the server's node is getting on, now and then, by its site's folder."""

    def __init__(self, folder: Path, job: Job) -> None:
        self._folder, self._job, self._spoken, self._last = folder, job, 0.0, ""

    def __call__(self) -> None:
        """Say what is new, if the last words are some seconds old."""
        if time.monotonic() - self._spoken < _SPOKEN_EVERY:
            return
        text = str(job_state(self._folder, self._job.name))
        if text.startswith("running") and text != self._last:
            logger.info("%s", text)
            self._spoken, self._last = time.monotonic(), text


def _next_attempt(folder: Path) -> Path:
    """Make room for another attempt; those of long ago go, with their certificates."""
    before = artefacts.numbered(folder, "attempt-*")
    for number in [*before][: max(0, len(before) + 1 - _ATTEMPTS)]:
        shutil.rmtree(before[number])
    return folder / f"attempt-{1 + max(before, default=0):03d}"
