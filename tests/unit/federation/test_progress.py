"""How a job is going, at a site."""

import json
import logging
import time

import pytest

from tests.later import later
from tests.unit.federation.trial import Opened
from vflsynth.cli import main
from vflsynth.federation import progress
from vflsynth.federation.attempts import server_node
from vflsynth.federation.progress import FEWER_EXCHANGES, Progress, job_state, sentence
from vflsynth.federation.simulate import Watch
from vflsynth.learning.base import Duration
from vflsynth.methods.vflgan.messages import DiscriminatorFeatures
from vflsynth.protocol.channel import SERVER, Transcript
from vflsynth.protocol.messages import BlindedKeys, Hello
from vflsynth.reporting import duration_text


@pytest.fixture
def clock(monkeypatch):
    class Standing:
        now = 1000.0

        def time(self):
            return self.now

        monotonic = time

    clock = Standing()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def test_what_is_written_and_how_long_it_will_take(tmp_path, clock):
    of_training = Duration(0, 0)
    noted = Progress(tmp_path, "lab", lambda: of_training, Transcript())

    def found():
        return json.loads((tmp_path / progress.FILE).read_text())

    noted.note(Hello, 0)
    assert found()["phase"] == "joining"
    noted.note(BlindedKeys, 0)  # another phase is written at once
    assert found()["phase"] == "matching"
    of_training = Duration(n_epochs=10, steps_per_epoch=6)
    noted.note(DiscriminatorFeatures, 12)  # resumed at the third epoch
    assert (found()["epoch"], found()["n_epochs"], found()["seconds_left"]) == (3, 10, None)
    clock.now += 0.5
    noted.note(DiscriminatorFeatures, 13)
    assert found()["seconds_left"] is None  # not more than once a second
    clock.now += 7.5
    noted.note(DiscriminatorFeatures, 20)  # a second for a step, 40 to go
    assert found()["epoch"] == 4
    assert found()["seconds_left"] == pytest.approx(40)
    assert sentence(found()).startswith("training, epoch 4 of 10, about 40 s left; 0.0 MB sent")


def test_a_server_says_once_what_helps_where_each_step_takes_long(tmp_path, clock, caplog):
    trained = Duration(n_epochs=100, steps_per_epoch=300)
    noted = Progress(tmp_path, "server", lambda: trained, Transcript(), FEWER_EXCHANGES)
    noted.note(DiscriminatorFeatures, 0)
    for step, seconds in ((10, 2.0), (100, 40.0), (200, 40.0)):
        clock.now += seconds
        noted.note(DiscriminatorFeatures, step)
    (said,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert said.startswith("server: a step takes 420 ms, and training about 3.5 h more. If parties")


def test_only_a_run_that_may_exchange_less_is_told_so(make_trial):
    for steps, advice in ((1, FEWER_EXCHANGES), (2, None)):
        trial = make_trial(parameters={"steps_per_exchange": steps})
        assert server_node(trial.job, trial.server_site).progress.advice == advice


@pytest.mark.parametrize(
    ("penalty", "steps"),
    [("end_to_end", 3), *later(("end_to_end", 1), ("layerwise", 3), ("layerwise", 1))],
)
def test_exchanges_are_counted_before_they_are_made(make_trial, steps, penalty):
    chosen = {"steps_per_exchange": steps, "gradient_penalty": penalty, "evaluate_every": 4}
    trial = make_trial(parameters=chosen)
    trial.run()
    server = trial.server
    told = server.method.exchanges(server.settings, server.duration.n_steps)
    made = server.remote._seats["party_1"].number
    others = 12  # until training begins, reports of four epochs, an evaluation and the end
    assert told <= made <= told + others, (told, made)


def test_a_run_whose_messages_travel_for_days_stops_before_it_trains(make_trial, caplog):
    """By the round trip that was measured as parties joined; every node is told what to do."""

    class Far(Opened):
        def leaves(self, frame):
            time.sleep(0.01)  # on the way
            return frame

    trial = make_trial(most_hours=1e-5)
    caplog.set_level("INFO", "vflsynth")
    trial.run(Far)
    assert 0.01 <= trial.server.remote.round_trip < 5.0
    assert "exchanges, each of which takes" in caplog.text
    for node in ("server", "party_1", "party_2"):
        text = str(trial.outcome[node])
        assert "and the job agrees to 1e-05 hours" in text
        assert "steps_per_exchange = 5" in text
        assert "most_hours" in text
    assert not trial.server.history


def test_a_run_whose_messages_are_slow_stops_after_its_first_steps(make_trial, monkeypatch):
    """The round trip of an empty message does not tell what a batch of features takes."""

    class Clock:
        on_the_way = 0.0

        process_time = staticmethod(time.process_time)

        def perf_counter(self):
            return time.perf_counter() + self.on_the_way

    class Narrow(Opened):
        def leaves(self, frame):
            kinds = {type(message) for message in frame.messages}
            clock.on_the_way += 100.0 * (DiscriminatorFeatures in kinds)
            return frame

    clock = Clock()
    monkeypatch.setattr("vflsynth.run.loop.time", clock)
    trial = make_trial(most_hours=0.1).run(Narrow)
    for node in ("server", "party_1", "party_2"):
        text = str(trial.outcome[node])
        assert "further steps of" in text
        assert "0.1 hours are allowed" in text
        assert FEWER_EXCHANGES in text
    assert not trial.server.history


@pytest.mark.parametrize(
    ("seconds", "text"), [(3, "3 s"), (99, "99 s"), (150, "2 min"), (7200, "2.0 h")]
)
def test_times_are_readable(seconds, text):
    assert duration_text(seconds) == text


def state(trial, node):
    return str(job_state(trial.folder / node, trial.job.name))


def test_every_node_says_what_it_does_and_how_it_ended(make_trial):
    seen = {}

    class Looking(Opened):
        def leaves(self, frame):
            for message in frame.messages:
                if isinstance(message, DiscriminatorFeatures) and message.step == 5:
                    for node in ("server", self._name):
                        seen[node] = state(trial, node)
            return frame

    trial = make_trial()
    assert state(trial, "server") == "no attempt yet"
    trial.run(Looking)
    assert seen.keys() == {"server", "party_1", "party_2"}
    for text in seen.values():
        assert text.startswith("running: ")
        assert " MB sent, " in text
    for node in seen:
        assert state(trial, node).endswith(": finished")
        content = json.loads((trial.kept(node) / progress.FILE).read_text())
        assert content["phase"] == "training"
        assert content["sent_bytes"] > 0
        assert content["received_bytes"] > 0


def test_a_process_that_was_killed_is_not_running(make_trial):
    trial = make_trial(parameters={"epochs": 1}).run()
    path = trial.kept("party_1") / "report-002.json"
    path.write_text(json.dumps({"outcome": None, "started": "2020-02-29T00:00:00"}))
    assert state(trial, "party_1") == (
        "not running; attempt 2 of 2020-02-29T00:00:00: did not end: its process was killed"
    )


def test_the_commands(make_trial, tmp_path, cli):
    trial = make_trial(parameters={"epochs": 1})
    trial.sites["party_1"].write(tmp_path / "party_1.toml")
    content = trial.job.to_dict() | {"parameters": {"epochs": 1}}
    lines = [f"{k} = {json.dumps(v)}" for k, v in content.items() if not isinstance(v, dict | None)]
    (tmp_path / "job.toml").write_text("\n".join(lines))
    arguments = ["parties", "status", str(tmp_path / "job.toml"), str(tmp_path / "party_1.toml")]
    assert cli(arguments).out == "party_1: no attempt yet\n"
    trial.run()
    assert cli(arguments).out.endswith(": finished\n")
    kit = tmp_path / "kit"
    (kit / "some-job").mkdir(parents=True)
    assert main(["parties", "logs", str(kit)]) == 3
    (kit / "log.txt").write_text("1\n2\n3\n")
    (kit / "some-job" / "log.txt").write_text("of the job\n")
    shown = cli(["parties", "logs", str(kit), "-n", "2"]).out
    assert "log.txt:\n2\n3\n" in shown
    assert "of the job" in shown


def test_whoever_waits_is_told_what_is_new(make_trial, caplog, monkeypatch):
    """It looks whenever the server has written how it is getting on, whatever the threads do."""
    monkeypatch.setattr("vflsynth.federation.simulate._SPOKEN_EVERY", 0.0)
    trial = make_trial()
    watch = Watch(trial.folder / SERVER, trial.job)

    class Looking(logging.Handler):
        def emit(self, record):
            if record.getMessage().startswith(f"{SERVER}: "):
                watch()

    looking = Looking()
    caplog.set_level("INFO", "vflsynth")
    logging.getLogger("vflsynth").addHandler(looking)
    try:
        trial.run()
    finally:
        logging.getLogger("vflsynth").removeHandler(looking)
    watch()
    told = [r.getMessage() for r in caplog.records if r.getMessage().startswith("running: ")]
    phases = [text.removeprefix("running: ").split(";")[0].split(",")[0] for text in told]
    assert phases[:3] == ["joining", "matching", "encoding"]
    assert phases[-1].startswith("training")


def test_asking_leaves_nothing_where_it_is_asked(make_trial):
    trial = make_trial(parameters={"epochs": 1}).run()
    lock = trial.kept("party_1") / progress.LOCK
    lock.unlink()
    assert state(trial, "party_1").endswith("finished")
    assert not lock.exists()


def test_asking_does_not_keep_a_node_from_starting(make_trial):
    """A question takes the lock for a moment."""
    trial = make_trial(parameters={"epochs": 1})
    trial.run()
    for _ in range(50):
        state(trial, "party_1")

    class Asking(Opened):
        def leaves(self, frame):
            state(trial, self._name)
            return frame

    trial.finish(Asking)
