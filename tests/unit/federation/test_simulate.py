"""What `vflsynth parties simulate` does around its processes; no FLARE is started here."""

import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from tests.unit.federation.trial import Direct
from vflsynth import _locks as locks
from vflsynth._locks import lock
from vflsynth.cli import main
from vflsynth.exceptions import ParameterError, ProtocolError
from vflsynth.federation import administrator, guardian, simulate

pytest.importorskip("nvflare", reason="needs the extra 'flare'")

JOB = 'name = "j"\nparties = ["clinic", "lab"]\non = "patient_id"\n[parameters]\nepochs = 1\n'
SITE = 'party = "{0}"\ntable = "{1}"\nfolder = "{0}-folder"\n[secrets]\nshared = "{2}"\n'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A job whose tables are those of the demo."""
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--only-tables"]) == 0
    (tmp_path / "job.toml").write_text(JOB)
    for party, table in {"lab": "lab.csv", "clinic": "clinic.parquet"}.items():
        text = SITE.format(party, f"demo-output/{table}", "ab" * 32)
        (tmp_path / f"{party}.toml").write_text(text)
    return tmp_path


@pytest.fixture
def started(monkeypatch):
    """Attempts that came as far as certificates."""
    attempts = []

    def make_kits(project_file, where):
        attempts.append(where.name)
        where.mkdir(parents=True)
        raise ParameterError("far enough")

    monkeypatch.setattr(simulate, "make_kits", make_kits)
    return attempts


@pytest.mark.slow
def test_every_attempt_has_a_folder_and_the_last_few_are_kept(folder, started, cli):
    for _ in range(5):
        assert "far enough" in cli(["parties", "simulate", "job.toml"], 2).err
    assert started == [f"attempt-{i:03d}" for i in range(1, 6)]
    assert sorted(p.name for p in (folder / "kits").glob("attempt*")) == started[-3:]


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ("table", 3, "there is no file"),
        ("key", 3, "patient_id"),
        ("kind", 3, "'nothing'"),
        ("secret", 2, "secret"),
        ("no secret", 2, "no shared secret"),
        ("labels", 2, "is the site file of 'lab'"),
    ],
)
def test_what_no_node_could_use_is_found_before_any_starts(
    folder, started, cli, change, code, words
):
    site = folder / "clinic.toml"
    match change:
        case "table":
            (folder / "demo-output" / "clinic.parquet").unlink()
        case "key":
            (folder / "job.toml").write_text(JOB.replace("patient_id", "patient"))
        case "kind":
            site.write_text(site.read_text() + '[column_kinds]\nnothing = "continuous"\n')
        case "secret":
            site.write_text(site.read_text().replace("ab" * 32, "ab"))
        case "no secret":
            site.write_text(site.read_text().partition("[secrets]")[0])
        case "labels":
            site.write_text(site.read_text().replace('party = "clinic"', 'party = "lab"'))
    assert words in cli(["parties", "simulate", "job.toml"], code).err
    assert not started


def test_one_simulation_at_a_time(folder, started, cli):
    with lock(folder / "kits" / ".lock", "the test's"):
        said = cli(["parties", "simulate", "job.toml"], 2).err
    assert "another simulation is going on here" in said
    assert not started
    cli(["parties", "simulate", "job.toml"], 2)
    assert started == ["attempt-001"]


def test_the_same_job_does_not_run_twice_in_the_same_folders(make_trial):
    class Twice(Direct):
        seen = ()

        def exchange(self, frame, timeout):
            if not Twice.seen:
                Twice.seen = ("once",)
                with pytest.raises(ParameterError, match="running in this folder already"):
                    trial.nodes[self._name].run(self)
                with pytest.raises(ParameterError, match="running in this folder already"):
                    type(trial.server)(trial.job, trial.server_site).run()
            return super().exchange(frame, timeout)

    trial = make_trial(parameters={"epochs": 1})
    trial.finish(Twice)
    reports = list(trial.kept("party_1").glob("report-*"))
    assert len(reports) == 1


def test_a_lock_ends_with_its_process(tmp_path):
    code = (
        "import fcntl, sys, time\n"
        f"f = open({str(tmp_path / 'lock')!r}, 'a')\n"
        "fcntl.flock(f, fcntl.LOCK_EX)\nprint('has it', flush=True)\ntime.sleep(900)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"has it\n"
        with pytest.raises(ParameterError, match="taken"):
            locks.lock(tmp_path / "lock", "taken")
        other.kill()
    locks.lock(tmp_path / "lock", "taken").close()


class Failing:
    """An administrator whose jobs fail until the third."""

    submitted = 0

    def __init__(self, *anything):
        pass

    def close(self):
        pass

    def of_name(self, name):
        return []

    def is_lost(self, job_id):
        return False

    def submit(self, folder):
        assert (folder / "meta.json").is_file()
        Failing.submitted += 1
        return str(Failing.submitted)

    def wait(self, job_id, *anything):
        return "FINISHED:COMPLETED" if job_id == "3" else "FINISHED:EXECUTION_EXCEPTION"

    def said(self, job_id):
        return ""


@pytest.fixture
def submit(folder, monkeypatch, cli):
    """Submit the job anew to an administrator; what is printed and said."""
    monkeypatch.setattr(administrator, "_PAUSE", 0.0)

    def submit(kind, *options, code=0):
        Failing.submitted = 0
        monkeypatch.setattr(administrator, "Administrator", kind)
        return cli(["parties", "submit", "job.toml", "--admin", "kit", *options], code)

    return submit


@pytest.mark.parametrize(("attempts", "code", "submitted"), [(1, 4, 1), (2, 4, 2), (5, 0, 3)])
def test_a_job_that_fails_is_submitted_again_as_often_as_asked(submit, attempts, code, submitted):
    submit(Failing, "--attempts", str(attempts), code=code)
    assert Failing.submitted == submitted


def test_a_server_that_is_lost_meanwhile_is_asked_again(submit):
    """And a job that it still has is waited for, not submitted twice."""

    class Lost(Failing):
        running = ["1"]  # noqa: RUF012

        def of_name(self, name):
            assert name == "j"
            return self.running if Failing.submitted else []

        def wait(self, job_id, *anything):
            if Failing.submitted == 1 and self.running:
                Lost.running = []
                raise ProtocolError("the server was lost")
            return super().wait(job_id)

    assert "the server was lost" in submit(Lost, code=4).err
    Lost.running = ["1"]
    submit(Lost, "--attempts", "5")
    assert Failing.submitted == 3


def test_the_submitter_hears_why(submit):
    """By the server's own words, whatever FLARE makes of its processes' ends."""

    class Speaking(Failing):
        words = "ParameterError: this job is running in this folder already"

        def said(self, job_id):
            return self.words

    assert "running in this folder already; FLARE says" in submit(Speaking, code=4).err
    Speaking.words = administrator.FINISHED
    submit(Speaking)
    Speaking.of_name = lambda self, name: ["1"]
    assert "is running already, as 1. Fix:" in submit(Speaking, code=2).err


def test_what_the_server_logged_of_an_end_is_found():
    asked = object.__new__(administrator.Administrator)
    line = f"2026 - vflsynth - ERROR - {administrator.OUTCOME}"

    class Session:
        log = ""

        def get_job_logs(self, job_id):
            return {"logs": {"server": self.log}}

        def get_job_meta(self, job_id):
            return {"job_deploy_detail": ["server: OK", "lab: not in allow_list"]}

    asked._session = Session()
    assert asked.said("1") == "lab: not in allow_list"
    Session.log = f"more\n{line}RunAbortedError: first\nelse\n{line}its disk is full\nend"
    assert asked.said("1") == "its disk is full"
    asked._session = None
    assert asked.said("1") == ""


def test_a_job_of_a_server_that_ended_is_not_waited_for(submit):
    """FLARE keeps saying that it is running."""
    waited = []

    class Stale(Failing):
        def of_name(self, name):
            return ["stale"] if Failing.submitted else []

        def is_lost(self, job_id):
            return job_id == "stale"

        def wait(self, job_id, *anything):
            waited.append(job_id)
            return administrator.LOST if job_id == "1" else super().wait(job_id)

    submit(Stale, "--attempts", "5")
    assert waited == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("status", "scheduled", "listed", "lost"),
    [
        ("RUNNING", 99.0, [], True),
        ("DISPATCHED", 99.0, ["other"], True),
        ("RUNNING", 99.0, ["job"], False),  # which the server took up again
        ("RUNNING", 101.0, [], False),  # which is being started
        ("SUBMITTED", None, [], False),
        ("FINISHED:COMPLETED", 99.0, [], False),
    ],
)
def test_what_a_server_ran_before_it_was_started_again_is_lost(status, scheduled, listed, lost):
    class Session:
        def get_job_meta(self, job_id):
            return {"status": status, "last_schedule_time": scheduled}

        def get_system_info(self):
            jobs = [SimpleNamespace(job_id=job_id) for job_id in listed]
            return SimpleNamespace(server_info=SimpleNamespace(start_time=100.0), job_info=jobs)

    asked = object.__new__(administrator.Administrator)
    asked._session = Session()
    assert asked.is_lost("job") == lost


def test_a_job_that_takes_too_long_is_stopped(submit):
    stopped = []

    class Slow(Failing):
        def wait(self, job_id, seconds, *anything):
            raise TimeoutError(f"job {job_id} is still RUNNING after {seconds:g} s")

        def abort(self, job_id):
            stopped.append(job_id)

    assert "is still RUNNING after 5 s" in submit(Slow, "--timeout", "5", code=4).err
    assert stopped == ["1"]
    with pytest.raises(SystemExit, match="2"):
        submit(Slow, "--attempts", "0")


def test_an_abort_waits_for_the_end_and_leaves_out_what_is_lost(folder, monkeypatch, cli):
    """While a job begins or ends, FLARE refuses to stop it."""
    asked = []

    class Begins(Failing):
        def of_name(self, name):
            return ["stale", "2"]

        def is_lost(self, job_id):
            return job_id == "stale"

        def abort(self, job_id):
            asked.append(job_id)
            if len(asked) < 3:
                raise RuntimeError(f"server internal error: Job {job_id} is not running.")

        def wait(self, job_id, seconds, watch):
            while len(asked) < 3:
                watch()

    monkeypatch.setattr(administrator, "Administrator", Begins)
    said = cli(["parties", "abort", "job.toml", "--admin", "kit"]).out
    assert asked == ["2"] * 3
    assert said.startswith("1 runs of job")


# -- processes that are left ----------------------------------------------------------------------

SLEEPER = (
    "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(900)'])"
)
STARTER = """
import subprocess, sys, time
guarded = subprocess.Popen([sys.executable, "-I", {guardian!r}, sys.executable, "-c", {sleeper!r}],
                           stdin=subprocess.PIPE)
print(guarded.pid, flush=True)
time.sleep(900)
"""


def running_below(pid):
    return [p for p in [pid, *guardian.descendants(pid)] if os.path.exists(f"/proc/{p}")]


def test_nothing_is_left_of_a_simulation_that_is_killed():
    """Not even what the processes started by it have started."""
    code = STARTER.format(guardian=guardian.__file__, sleeper=SLEEPER)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as simulation:
        pid = int(simulation.stdout.readline())
        deadline = time.monotonic() + 300
        while len(pids := running_below(pid)) < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(pids) == 3
        os.kill(simulation.pid, signal.SIGKILL)
    deadline = time.monotonic() + 300
    while any(os.path.exists(f"/proc/{p}") for p in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [p for p in pids if os.path.exists(f"/proc/{p}")]


@pytest.mark.parametrize(
    ("refusals", "asked", "error"),
    [(2, 3, None), (99, 12, "no answer"), ("a bad kit", 1, "a bad kit")],
)
def test_a_busy_server_is_asked_again_and_a_bad_kit_is_not(monkeypatch, refusals, asked, error):
    """In the words of what went wrong last."""
    from nvflare.apis.fl_exception import FLCommunicationError

    calls, pauses = [], []

    def session(*kit, timeout):
        calls.append(kit)
        if isinstance(refusals, str):
            raise ValueError(refusals)
        if len(calls) <= refusals:
            raise FLCommunicationError("no answer")
        return "a session"

    monkeypatch.setattr("nvflare.fuel.flare_api.flare_api.new_secure_session", session)
    monkeypatch.setattr(administrator, "time", SimpleNamespace(sleep=pauses.append))
    if error is None:
        assert administrator._logged_in("kit") == "a session"
    else:
        with pytest.raises(ProtocolError, match=f"cannot be reached with kit: {error}"):
            administrator._logged_in("kit")
    assert (len(calls), len(pauses)) == (asked, asked - 1)


@pytest.mark.parametrize("ends", ["later", "Ctrl-C"])
def test_a_session_is_closed_when_a_party_is_not_there(tmp_path, monkeypatch, caplog, ends):
    """Else FLARE's threads keep the process, which has said its error, for ever."""
    closed, clock = [], iter(range(0, 10_000, 50))

    def info():
        if ends == "Ctrl-C":
            raise KeyboardInterrupt
        return SimpleNamespace(client_info=[SimpleNamespace(name="lab")])

    session = SimpleNamespace(
        set_timeout=lambda _: None, close=lambda: closed.append(True), get_system_info=info
    )
    (tmp_path / "startup").mkdir()
    (tmp_path / "startup" / "fed_admin.json").touch()
    monkeypatch.setattr(administrator, "check_certificate", lambda *_: "")
    monkeypatch.setattr(administrator, "_logged_in", lambda _: session)
    times = SimpleNamespace(sleep=lambda _: None, monotonic=lambda: next(clock))
    monkeypatch.setattr(administrator, "time", times)
    caplog.set_level("INFO")
    with pytest.raises((ProtocolError, KeyboardInterrupt), match=r"^clinic did not join|^$"):
        administrator.Administrator(tmp_path, ["lab", "clinic"])
    assert closed == [True]
    assert caplog.messages == ([] if ends == "Ctrl-C" else ["waiting for the nodes of clinic"])


def test_a_kit_that_is_no_administrators_is_not_a_server_that_is_lost(folder, capsys):
    assert main(["parties", "submit", "job.toml", "--admin", "nowhere"]) == 3
    assert "nowhere is not the start-up kit of an administrator" in capsys.readouterr().err


def test_a_job_whose_server_said_how_it_ended_is_not_waited_for_long(monkeypatch):
    """FLARE waits ten minutes for a node that is gone, as if it might still come back."""
    clock, stopped = [0.0], []

    def logs(job_id):
        line = f"2026 - vflsynth - INFO - {administrator.OUTCOME}{administrator.FINISHED}"
        return {"logs": {"server": line if clock[0] > 100 else "a line without one"}}

    def passes(seconds):
        clock[0] += seconds

    def abort(job_id):
        stopped.append(clock[0])
        if len(stopped) == 1:
            raise RuntimeError("not now")

    waiting = administrator.Administrator.__new__(administrator.Administrator)
    waiting._session = SimpleNamespace(get_job_logs=logs, abort_job=abort)
    waiting.is_lost = lambda _: False
    waiting.status = lambda _: "FINISHED:ABORTED" if len(stopped) > 1 else "RUNNING"
    times = SimpleNamespace(sleep=passes, monotonic=lambda: clock[0])
    monkeypatch.setattr(administrator, "time", times)
    assert waiting.wait("1", 1000.0) == "FINISHED:ABORTED"
    assert 130 < stopped[0] < 165 < clock[0] < 200
    assert waiting.said("1") == administrator.FINISHED
