"""Networks that reset connections and processes that are killed, on NVIDIA FLARE."""

import json
import os
import re
import select
import signal
import socket
import struct
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration import test_flare
from tests.integration.test_flare import Running, same_bytes
from vflsynth.federation.guardian import descendants
from vflsynth.federation.kit import project
from vflsynth.federation.simulate import HOST, make_kits

pytest.importorskip("nvflare", reason="needs the extra 'flare'")


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
            pair = near, socket.create_connection((HOST, self.target))
            self.pairs.append(pair)
            threading.Thread(target=self._pass, args=pair, daemon=True).start()

    @staticmethod
    def _pass(near, far):
        with suppress(OSError, ValueError):
            while True:
                for ready in select.select([near, far], [], [])[0]:
                    data = ready.recv(1 << 16)
                    if not data:
                        return
                    (far if ready is near else near).sendall(data)

    def reset(self):
        """Have every connection end with a TCP reset."""
        pairs, self.pairs = self.pairs, []
        for end in (end for pair in pairs for end in pair):
            with suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RD)  # wakes up who waits in select
                end.close()
        return len(pairs)


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """Parties that reach the server through a proxy only."""
    folder, proxies = tmp_path_factory.mktemp("faults"), []

    def provision(job, where, port):
        proxies.append(Proxy(port))
        content = json.loads(project(job, HOST, port))
        for participant in content["participants"]:
            if participant["type"] == "client":
                participant["connect_to"] = {"host": HOST, "port": proxies[0].port}
        return make_kits(json.dumps(content), where)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(test_flare, "provision", provision)
        running = Running(folder)
    running.proxy = proxies[0]
    with running.open():
        yield running


def trains(running, name):
    checkpoints = running.folder / "party_1" / name / "checkpoints"
    return lambda: checkpoints.exists() and any(checkpoints.iterdir())


def job_process(running, party):
    """Return the pid of a party's process of the job, below its daemon."""
    for pid in descendants(running.federation.processes[party].pid):
        with suppress(OSError):
            if b"worker_process" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
    return None


@pytest.mark.timeout(300)
def test_connections_that_are_reset_end_no_run(running):
    """And the models are those of a run in one process, byte for byte."""
    job = running.job("resets", epochs=40)
    job_id = running.submit(job)
    running.wait_for(trains(running, "resets"), 120)
    for _ in range(2):
        assert running.outcome("server", "resets") is None
        assert running.proxy.reset() >= 2
        time.sleep(3)
    assert running.administrator.wait(job_id, 200) == "FINISHED:COMPLETED"
    for name, half in running.in_process(job).parties_.items():
        assert same_bytes(running.half(name, job), half)


def killed(running, name):
    """Kill the process of a job at party_2; return the outcomes once FLARE has ended the job."""
    job_id = running.job_id
    os.kill(job_process(running, "party_2"), signal.SIGKILL)
    running.administrator.wait(job_id, 60)
    return {node: running.outcome(node, name) for node in running.sites}


@pytest.mark.timeout(300)
def test_a_killed_process_is_named_in_every_report(running):
    running.job_id = running.submit(running.job("killed", epochs=100_000))
    running.wait_for(trains(running, "killed"), 120)
    outcomes = killed(running, "killed")
    for node in ("server", "party_1"):
        assert "PartyLostError: party 'party_2', step" in outcomes[node]
        assert "the process of party_2 is gone" in outcomes[node]
    path = running.folder / "party_2" / "killed" / "report-001.json"
    assert "its process was killed" in json.loads(path.read_text())["note"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_process_that_is_killed_before_anything_ran_is_named_in_the_servers_log(running):
    """FLARE then kills the server's own process of the job, whose report has no outcome."""
    running.job_id = running.submit(running.job("early", epochs=100_000))
    running.wait_for(lambda: job_process(running, "party_2"), 120)
    outcomes = killed(running, "early")
    log = (running.federation.kits["server"] / "log.txt").read_text()
    assert re.search(rf"Failing job {running.job_id} due to reported failure from party_2", log)
    assert "finished" not in outcomes.values()


@pytest.mark.timeout(300)
def test_a_job_that_nobody_approved_is_refused_and_says_so_everywhere(running):
    site = replace(running.sites["party_2"], jobs="approved")
    local = running.federation.kits["party_2"] / "local" / "vflsynth.toml"
    site.write(local)
    job = running.job("unapproved", epochs=1)
    try:
        assert running.administrator.wait(running.submit(job), 120) != "FINISHED:COMPLETED"
        for node in running.sites:
            said = running.outcome(node, job.name)
            assert f"job 'unapproved' with digest {job.digest} is not approved" in said, node
    finally:
        running.sites["party_2"].write(local)
