"""What is ours in FLARE's daemons: one process per name, jobs as forks, texts it leaves alone."""

import json
import multiprocessing
import os
import signal
import sys
import time
from types import SimpleNamespace

import pytest

from vflsynth._signatures import new_key
from vflsynth.federation import daemon, worker
from vflsynth.federation.consent import propose
from vflsynth.federation.job import Job
from vflsynth.federation.kit import unpacked, write_job

pytest.importorskip("nvflare", reason="needs the extra 'flare'")

from nvflare.fuel.f3 import communicator
from nvflare.fuel.f3.endpoint import Endpoint
from nvflare.fuel.f3.sfm import conn_manager, sfm_conn
from nvflare.fuel.utils import json_scanner, wfconf


def wait_for(condition, seconds=600.0):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


# -- a name is one process's ----------------------------------------------------------------------


class Network:
    """A server, and parties that join it from places; for a process that ends with it."""

    def __init__(self):
        self.said, self.codes = [], []
        say_place = sfm_conn.SfmConnection.send_handshake
        daemon.keep_names("not said")
        sfm_conn.SfmConnection.send_handshake = say_place  # each joins from a place of its own
        daemon.KNOCK_SECONDS = 1.0
        daemon.os = SimpleNamespace(_exit=self.codes.append)
        daemon.sys = SimpleNamespace(stderr=SimpleNamespace(write=self.said.append))
        self.server = communicator.Communicator(Endpoint("server"))
        _, self.url, _ = self.server.start_listener("tcp", {"host": "localhost"})
        self.server.start()

    def refused(self, name):
        return [text for text in self.said if f"{name!r} is connected" in text]

    def held(self, name):
        return list(self.server.conn_manager.get_connections(name) or [])

    def join(self, name, place):
        """Join; return once the name is held by a new connection, or the server refused."""
        before = {*self.held(name)}
        party = communicator.Communicator(Endpoint(name, {daemon._PLACE: place}))
        party.add_connector(self.url, conn_manager.Mode.ACTIVE)
        party.start()
        wait_for(lambda: self.refused(name) or {*self.held(name)} - before)
        return party

    def place(self, name):
        (one,) = self.held(name)
        return one.place


def second_is_told_so_and_the_first_keeps_it(network):
    network.join("party_1", "here")
    network.join("party_1", "there")
    assert "another process uses this kit" in network.refused("party_1")[0]
    assert {*network.codes} == {daemon.REFUSED}
    assert network.place("party_1") == "here"
    assert not network.refused("party_2")
    assert not network.refused("party_3")


def name_is_free_when_its_process_answers_no_more(network):
    first = network.join("party_2", "here")
    first.conn_manager.process_frame = lambda *_: None  # it hangs
    network.join("party_2", "there")
    assert network.place("party_2") == "there"
    assert not network.said


def process_that_dials_again_is_the_same(network):
    network.join("party_3", "here")
    network.join("party_3", "here")
    assert network.place("party_3") == "here"
    assert not network.said


CASES = (
    process_that_dials_again_is_the_same,
    name_is_free_when_its_process_answers_no_more,
    second_is_told_so_and_the_first_keeps_it,
)


def _alone():
    ended = 0
    try:
        network = Network()
        for case in CASES:
            case(network)
            ended += 1
    finally:
        os._exit(ended)


def test_a_name_is_one_process_s():
    """In a process of its own: FLARE's connections leave threads and sockets."""
    process = multiprocessing.get_context("fork").Process(target=_alone)
    process.start()
    process.join()
    assert process.exitcode == len(CASES), "how many cases ended well"


def test_copies_of_a_kit_have_other_places(tmp_path):
    for name in ("kit", "copy"):
        (tmp_path / name).mkdir()
    with daemon.lease(tmp_path / "kit") as one, daemon.lease(tmp_path / "copy") as other:
        assert daemon.place(one) != daemon.place(other)
        assert daemon.place(one) == daemon.place(one)


# -- what FLARE reads of a job --------------------------------------------------------------------


def test_flare_finds_no_variables_of_its_own_in_a_job(tmp_path):
    """Also a signed proposal, which is one pair of braces, and an empty one."""
    job = Job.from_dict({"name": "j", "parties": ["lab", "clinic"], "on": "id"})
    new_key(tmp_path / "key")
    proposal = propose(job, tmp_path / "key")
    folder = write_job(job, tmp_path, proposal)
    for path in folder.glob("*/config/*.json"):
        read = json.loads(path.read_text())
        scanned = json.loads(path.read_text())
        wfconf.resolve_var_refs(json_scanner.JsonScanner(scanned), {"job": "another"})
        assert scanned == read
        (found,) = read.get("workflows") or [e["executor"] for e in read["executors"]]
        assert Job.from_dict(json.loads(unpacked(found["args"]["job"]))) == job
        assert unpacked(found["args"]["proposal"]) == proposal


# -- jobs as forks --------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_job_is_a_fork_that_has_everything_loaded():
    warm = worker.Warm("client")

    def run(statement):
        checked = f"import os, sys; assert 'torch' in sys.modules; {statement}"
        command = [sys.executable, "-m", "timeit", "-n1", "-r1", checked]
        return warm.launch(command, {"OWN": "mine"})

    for statement, code in {
        "assert dict(os.environ) == {'OWN': 'mine'}": 0,
        "raise ValueError": 1,
        "os._exit(3)": 3,
        "os.kill(os.getpid(), 9)": -9,
    }.items():
        forked = run(statement)
        forked.wait()
        assert forked.poll() == code, statement
    sleeper, other = (run("import time; time.sleep(900)") for _ in range(2))
    assert sleeper.poll() is None
    sleeper.terminate()
    sleeper.wait()
    assert sleeper.poll() == -9
    os.kill(warm._process.pid, signal.SIGKILL)  # whoever is left is ended, and FLARE told
    other.wait()
    assert other.poll() == -9
    wait_for(lambda: not os.path.exists(f"/proc/{other.pid}"))
    assert run("") is None


@pytest.mark.slow
def test_workers_end_with_their_daemon():
    warm = worker.Warm("client")
    forked = warm.launch([sys.executable, "-m", "timeit", "-n1", "pass"], {})
    forked.wait()
    warm._channel.shutdown(2)
    warm._process.wait(600)
