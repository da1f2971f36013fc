"""Networks that reset connections and processes that are killed, on NVIDIA FLARE."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from tests.integration.processes import PATIENCE, epoch, job_process, trains
from vflsynth.federation.administrator import Administrator, abort
from vflsynth.federation.daemon import REFUSED
from vflsynth.federation.kit import node_command
from vflsynth.federation.trail import KILLED

pytest.importorskip("nvflare", reason="needs the extra 'flare'")


@pytest.mark.slow
def test_connections_that_are_reset_end_no_run(running):
    """And the models are those of a run in one process, byte for byte."""
    job = running.job("resets", epochs=35)
    job_id = running.submit(job)
    running.wait_for(trains(running, "resets"))
    for _ in range(2):
        assert running.outcome("server", "resets") is None
        assert running.proxy.reset() >= 2
        # A checkpoint every five epochs: between the next one and that after it, all was new.
        after = min(epoch(running, "resets") + 10, 35)
        running.wait_for(lambda after=after: epoch(running, "resets") >= after)
    assert running.administrator.wait(job_id, PATIENCE) == "FINISHED:COMPLETED"
    running.assert_as_in_one_process(job)


def killed(running, name):
    """Kill the process of a job at party_2; return the outcomes once FLARE has ended the job."""
    job_id = running.job_id
    os.kill(job_process(running, "party_2"), signal.SIGKILL)
    running.administrator.wait(job_id, PATIENCE)
    return {node: running.outcome(node, name) for node in running.sites}


@pytest.mark.slow
def test_a_killed_process_is_named_in_every_report(running):
    running.job_id = running.submit(running.job("process-killed", epochs=100_000))
    running.wait_for(trains(running, "process-killed"))
    outcomes = killed(running, "process-killed")
    for node in ("server", "party_1"):
        assert "PartyLostError: party 'party_2', step" in outcomes[node]
        assert "the process of party_2 is gone" in outcomes[node]
    path = running.folder / "party_2" / "process-killed" / "report-001.json"
    assert "its process was killed" in json.loads(path.read_text())["note"]


@pytest.mark.slow
def test_a_process_that_is_killed_before_anything_ran_is_named_in_the_servers_log(running):
    """FLARE then kills the server's own process of the job, whose report has no outcome."""
    running.job_id = running.submit(running.job("early", epochs=100_000))
    running.wait_for(lambda: job_process(running, "party_2"))
    outcomes = killed(running, "early")
    log = (running.federation.kits["server"] / "log.txt").read_text()
    assert re.search(rf"Failing job {running.job_id} due to reported failure from party_2", log)
    assert "finished" not in outcomes.values()


@pytest.mark.slow
def test_a_job_that_nobody_approved_is_refused_and_says_so_everywhere(running):
    site = replace(running.sites["party_2"], jobs="approved")
    local = running.federation.kits["party_2"] / "local" / "vflsynth.toml"
    site.write(local)
    job = running.job("unapproved", epochs=1)
    try:
        assert running.administrator.wait(running.submit(job), PATIENCE) != "FINISHED:COMPLETED"
        for node in running.sites:
            said = running.outcome(node, job.name)
            assert f"job 'unapproved' with digest {job.digest} is not approved" in said, node
    finally:
        running.sites["party_2"].write(local)


@pytest.mark.slow
def test_a_job_that_is_aborted_stops_everywhere(running):
    job = running.job("aborted", epochs=100_000)
    job_id = running.submit(job)
    running.wait_for(trains(running, "aborted"))
    assert abort(job, running.federation.admin) == 1
    assert running.administrator.wait(job_id, PATIENCE) != "FINISHED:COMPLETED"
    for node in running.sites:
        running.wait_for(lambda node=node: running.outcome(node, "aborted"))
    assert abort(job, running.federation.admin) == 0


def submitted(running, job, *options):
    """Submit a job as people do; return the process, whose words are in a file of the job's."""
    program = "import sys; from vflsynth.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "parties", "submit"]
    command += [job_file(job, running.folder / f"{job.name}.toml")]
    command += ["--admin", running.federation.admin, "--key", running.key, *options]
    with (running.folder / f"{job.name}.txt").open("a") as said:
        return subprocess.Popen(list(map(str, command)), stdout=said, stderr=said)


@pytest.mark.slow
def test_a_copy_of_a_kit_is_refused_and_told_so_and_the_run_goes_on(running):
    """As on another machine: the server has the name in use, and says from where."""
    kit, copy = running.federation.kits["party_2"], running.folder / "copy-of-party_2"
    shutil.copytree(kit, copy, ignore=shutil.ignore_patterns("*-*-*-*-*", "daemon.lock"))
    job = running.job("copied", epochs=60)
    job_id = running.submit(job)
    running.wait_for(trains(running, job.name))
    for _ in range(2):
        second = subprocess.run(node_command(copy), cwd=copy, capture_output=True, text=True)
        assert second.returncode == REFUSED
        assert "another process uses this kit: 'party_2' is connected from" in second.stderr
    assert running.administrator.wait(job_id, PATIENCE) == "FINISHED:COMPLETED"
    log = (running.federation.kits["server"] / "log.txt").read_text()
    assert "another process uses this kit: 'party_2'" in log
    running.assert_as_in_one_process(job)


@pytest.mark.slow
def test_the_submitter_of_a_job_hears_why_it_ended(running):
    """One that is running is not submitted twice; where two race, the second hears the server."""
    job = running.job("twice", epochs=100_000)
    job_id = running.submit(job)
    running.wait_for(trains(running, job.name))
    assert submitted(running, job).wait() == 2
    said = (running.folder / "twice.txt").read_text()
    assert f"job 'twice' is running already, as {job_id}" in said
    again = running.submit(job)
    running.administrator.wait(again, PATIENCE)
    assert "this job is running in this folder already" in running.administrator.said(again)
    assert abort(job, running.federation.admin) == 1
    running.administrator.wait(job_id, PATIENCE)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of its sockets
def test_the_processes_of_a_job_end_when_the_server_is_gone(running):
    """A minute after the report is written: the server's own limits are the job's."""
    job = replace(running.job("orphan", epochs=100_000), exchange_timeout=10.0, setup_timeout=20.0)
    running.submit(job)
    running.wait_for(trains(running, job.name))
    pids = [job_process(running, party) for party in running.frames]
    running.administrator.close()
    running.federation.kill("server")
    gone = time.monotonic()
    running.wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))
    took = time.monotonic() - gone
    print(f"the last process of the job ended {took:.0f} s after its server")
    assert all("PartyLostError" in running.outcome(party, job.name) for party in running.frames)
    running.federation.start("server")
    running.administrator = Administrator(running.federation.admin, sorted(running.frames))
    assert took < 10.0 + 10.0 + 20.0 + 10.0 + 60.0 + 60.0  # the last for a busy machine


def job_file(job, path):
    """Write a job as people do."""
    content = {name: value for name, value in job.to_dict().items() if value is not None}
    parameters = content.pop("parameters")
    lines = [f"{name} = {json.dumps(value)}" for name, value in content.items()]
    lines += ["[parameters]", *(f"{name} = {json.dumps(v)}" for name, v in parameters.items())]
    path.write_text("\n".join(lines))
    return path


@pytest.mark.slow
def test_a_supervisor_brings_a_run_to_its_end_whoever_is_killed(running):
    """First a party's process of the job, then the server with all that it started."""
    job, federation = running.job("supervised", epochs=300), running.federation
    running.administrator.close()  # it would not outlive its server
    began = time.monotonic()
    supervisor = submitted(running, job, "--attempts", "4", "--timeout", "1800")
    running.wait_for(trains(running, job.name))
    os.kill(job_process(running, "party_2"), signal.SIGKILL)
    running.wait_for(lambda: epoch(running, job.name) > 100)
    federation.kill("server")
    federation.start("server")
    code = supervisor.wait()
    running.administrator = Administrator(federation.admin, sorted(running.frames))
    said = (running.folder / "supervised.txt").read_text()
    print(f"{time.monotonic() - began:.0f} s for 300 epochs with two kills\n{said}")
    assert code == 0
    assert said.count("is submitted again") >= 2
    running.assert_as_in_one_process(job)
    outcomes = [running.outcome("server", job.name, number) for number in (1, 2, 3)]
    assert "the process of party_2 is gone" in outcomes[0]
    assert outcomes[1:] == [KILLED, "finished"]


@pytest.mark.slow
def test_a_party_that_hangs_joins_the_same_job_again(running):
    """FLARE does not notice; the run begins again by itself, from the last checkpoint."""
    job = running.job("hangs", epochs=150, restarts=1)
    job_id = running.submit(job)
    running.wait_for(trains(running, job.name))
    running.federation.signal("party_2", signal.SIGSTOP)
    running.wait_for(lambda: running.outcome("server", job.name))
    running.federation.signal("party_2", signal.SIGCONT)
    assert "'party_2'" in running.outcome("server", job.name)
    assert running.administrator.wait(job_id, PATIENCE) == "FINISHED:COMPLETED"
    running.assert_as_in_one_process(job)


HOSTILE = """
import sys
if "worker.py" in " ".join(sys.orig_argv):
    from vflsynth.federation import participant
    participant.encode = lambda *anything: b"x" * 1_900_000_000
"""


@pytest.mark.slow
def test_a_frame_of_two_gigabytes_takes_no_memory_at_the_server(running, tmp_path, monkeypatch):
    """From a party that knows no limits: it is refused by the size that it is said to have."""
    (tmp_path / "sitecustomize.py").write_text(HOSTILE)
    path = running.federation.kits["party_2"] / "local" / "comm_config.json"
    before = path.read_text()
    path.write_text(json.dumps(json.loads(before) | {"streaming_max_blob_size": 1 << 40}))
    running.federation.kill("party_2")
    try:
        with monkeypatch.context() as patch:
            patch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
            running.federation.start("party_2")
        running.wait_for(lambda: len(running.administrator.clients()) == 2)
        job = replace(running.job("too-large", epochs=1), setup_timeout=45.0)
        job_id, used = running.submit(job), []

        def ended():
            used.append(running.memory())
            return running.outcome("server", job.name)

        running.wait_for(lambda: job_process(running, "party_2"))
        running.wait_for(ended)
        assert "'party_2'" in running.outcome("server", job.name)
        most = {node: round(max(each[node] for each in used)) for node in used[0]}
        least = {node: round(min(each[node] for each in used)) for node in used[0]}
        print("MiB, at least and at most:", least, most)
        (log,) = (running.federation.kits["party_2"] / job_id).glob("log.txt")
        assert "exceeds configured limit" in log.read_text()
        assert most["party_2"] > 1_800  # the frame was made
        assert most["server"] < 1_200  # two processes with torch
        running.administrator.wait(job_id, PATIENCE)
    finally:
        path.write_text(before)
        running.federation.kill("party_2")
        running.federation.start("party_2")
        running.wait_for(lambda: len(running.administrator.clients()) == 2)
