"""Networks that reset connections and processes that are killed, on NVIDIA FLARE."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from tests.integration.processes import PATIENCE, epoch, job_process, same_bytes, trains
from vflsynth.federation.administrator import Administrator, abort
from vflsynth.federation.reports import KILLED

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
    for name, half in running.in_process(job).parties_.items():
        assert same_bytes(running.half(name, job), half)


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
    program = "import sys; from vflsynth.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "parties", "submit"]
    command += [job_file(job, running.folder / "supervised.toml"), "--admin", federation.admin]
    command += ["--key", running.key, "--attempts", "4", "--timeout", "1800"]

    def beyond(epoch):
        folder = running.folder / "party_1" / job.name / "checkpoints"
        return lambda: any(int(path.name[6:]) > epoch for path in folder.glob("epoch-*"))

    running.administrator.close()  # it would not outlive its server
    began = time.monotonic()
    with (running.folder / "supervised.txt").open("w") as said:
        supervisor = subprocess.Popen(list(map(str, command)), stdout=said, stderr=said)
    running.wait_for(beyond(0))
    os.kill(job_process(running, "party_2"), signal.SIGKILL)
    running.wait_for(beyond(100))
    federation.kill("server")
    federation.start("server")
    code = supervisor.wait()
    running.administrator = Administrator(federation.admin, sorted(running.frames))
    said = (running.folder / "supervised.txt").read_text()
    print(f"{time.monotonic() - began:.0f} s for 300 epochs with two kills\n{said}")
    assert code == 0
    assert said.count("is submitted again") >= 2
    for name, half in running.in_process(job).parties_.items():
        assert same_bytes(running.half(name, job), half)
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
    for name, half in running.in_process(job).parties_.items():
        assert same_bytes(running.half(name, job), half)


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
