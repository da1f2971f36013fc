"""A site's console: what it shows of a folder, to a browser and to a monitoring system."""

import json
import re
import threading
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPConnection

import pytest

from vflsynth._locks import lock
from vflsynth.cli import main
from vflsynth.exceptions import ParameterError
from vflsynth.federation import trail
from vflsynth.federation.console import METRICS, SiteState, console, metrics, page
from vflsynth.federation.progress import FILE, LOCK
from vflsynth.federation.site import Budget, Site

SAMPLE = re.compile(r'vflsynth_\w+\{(\w+="(\\.|[^"\\\n])*",?)+\} (\+Inf|-?[0-9.e+-]+)')


@pytest.fixture
def site(tmp_path):
    return Site('a "quoted" site', tmp_path / "folder")


@contextmanager
def serving(site):
    with console(site, 0) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield HTTPConnection(*server.server_address, timeout=300)
        server.shutdown()
        thread.join()


def test_what_a_run_leaves_is_shown(make_private_trial):
    trial = make_private_trial().run()
    site = replace(trial.sites["party_1"], folder=trial.folder / "party_1")
    state = SiteState.of(site)
    assert [(job.job, job.outcome) for job in state.jobs] == [("trial", "finished")]
    report = json.loads((site.folder / "trial" / "report-001.json").read_text())
    assert state.epsilon == report["privacy"]["all runs of this folder"]["epsilon"] > 0
    text = metrics(state)
    assert f'vflsynth_epsilon{{party="party_1"}} {state.epsilon!r}\n' in text
    assert f'vflsynth_epsilon_budget{{party="party_1"}} {site.budget.epsilon!r}\n' in text
    assert 'vflsynth_job_attempts_total{party="party_1",job="trial"} 1\n' in text
    shown = page(state)
    assert "finished" in shown
    assert f"{state.epsilon:.3g}" in shown
    assert "CONDITIONAL" not in shown + text


def test_what_an_epsilon_depends_on_is_said_with_it(site):
    spent = {"epsilon": 2.0, "delta": 1e-3, "conditions": ["conditional on a gap"]}
    (site.folder / "job").mkdir(parents=True)
    content = {"outcome": "finished", "privacy": {"all runs of this folder": spent}}
    (site.folder / "job" / "report-001.json").write_text(json.dumps(content))
    state = SiteState.of(site)
    assert "no budget is set; CONDITIONAL ON A GAP" in page(state)
    assert "at the site's delta; CONDITIONAL ON A GAP.\n" in metrics(state)


def test_a_job_that_is_running(site):
    own = site.folder / "job"
    own.mkdir(parents=True)
    (own / "report-001.json").write_text(json.dumps({"outcome": None, "started": "2024-02-29"}))
    found = {"node": "a", "phase": "training", "updated": 0.0, "epoch": 3, "n_epochs": 10}
    found |= {"seconds_left": 600.0, "sent_bytes": 2_500_000, "received_bytes": 10}
    (own / FILE).write_text(json.dumps(found))
    with lock(own / LOCK, "running"):
        state = SiteState.of(site)
        shown, text = page(state), metrics(state)
    assert "job is running" in shown
    assert "3 of 10" in shown
    assert "3/10" in shown
    assert "10 min" in shown
    labels = r'{party="a \"quoted\" site",job="job"}'
    assert f"vflsynth_job_running{labels} 1\n" in text
    assert f"vflsynth_job_sent_bytes_total{labels} 2500000\n" in text
    assert f"vflsynth_job_seconds_left{labels} 600.0\n" in text
    killed = SiteState.of(site)
    assert "did not end: its process was killed" in page(killed)
    assert f"vflsynth_job_failed{labels} 1\n" in metrics(killed)
    assert "seconds_left{" not in metrics(killed)


def test_metrics_are_openmetrics(site):
    trail.append(site.folder, "approved", {})
    state = replace(SiteState.of(replace(site, budget=Budget(1.0, 1e-5))), epsilon=float("inf"))
    lines = metrics(state).split("\n")
    assert lines[-2:] == ["# EOF", ""]
    families = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(families) == len(set(families)) > 5
    samples = [line for line in lines[:-2] if not line.startswith("#")]
    assert all(SAMPLE.fullmatch(line) for line in samples)
    assert samples[-2].endswith(" +Inf")


def test_a_broken_trail_is_shown(site):
    trail.append(site.folder, "approved", {})
    whole = SiteState.of(site)
    path = site.folder / trail.FILE
    path.write_text(path.read_text().replace("approved", "withdrawn"))
    broken = SiteState.of(site)
    assert (whole.trail, broken.trail) == (1, None)
    assert "broken" in page(broken)
    assert "broken" not in page(whole)
    assert metrics(broken) != metrics(whole)


def test_an_error_is_shown_without_its_text_which_may_name_columns(site):
    (site.folder / "job").mkdir(parents=True)
    outcome = {"outcome": "ColumnKindError: column 'ill': has no kind"}
    (site.folder / "job" / "report-001.json").write_text(json.dumps(outcome))
    shown = page(SiteState.of(site))
    assert ">ColumnKindError<" in shown
    assert "column 'ill'" not in shown.replace("&#39;", "'")


@pytest.mark.parametrize("content", ['{"outc', "[]", ""])
def test_files_that_are_damaged_do_not_take_the_page_away(site, content):
    for name, outcome in [("good", "finished"), ("<script>", "<script>alert(1)</script>")]:
        (site.folder / name).mkdir(parents=True)
        report = {"outcome": outcome, "started": "2024-02-29"}
        (site.folder / name / "report-001.json").write_text(json.dumps(report))
        (site.folder / name / FILE).write_text(content)
    (site.folder / "good" / "report-002.json").write_text(content)
    shown = page(SiteState.of(site))
    assert "report-002.json cannot be read" in shown
    assert "<script" not in shown
    assert metrics(SiteState.of(site)).endswith("# EOF\n")


def test_it_is_served_and_nothing_can_be_changed_through_it(site):
    with serving(site) as client:
        client.request("GET", "/")
        reply = client.getresponse()
        text = reply.read().decode()
        assert reply.status == 200
        assert "No job was started here yet." in text
        assert "Content-Security-Policy" in text
        assert (reply.getheader("Refresh"), reply.getheader("Cache-Control")) == ("5", "no-store")
        client.request("GET", "/metrics")
        reply = client.getresponse()
        assert reply.getheader("Content-Type") == METRICS
        assert reply.read().endswith(b"# EOF\n")
        for method, path, status in [
            ("GET", "/../../etc/passwd", 404),
            ("GET", "/vflsynth.toml", 404),
            ("POST", "/", 501),
            ("DELETE", "/metrics", 501),
        ]:
            client.request(method, path)
            reply = client.getresponse()
            reply.read()
            assert reply.status == status
            client.close()


def test_it_answers_to_its_own_names_alone(site):
    """A stranger's page whose name leads here reads nothing, and none shows it in a frame."""
    with serving(site) as client:
        port = client.port
        for host, status in [
            ("evil.example", 421),
            (f"evil.example:{port}", 421),
            ("", 421),
            (f"localhost:{port}", 200),
            (f"127.0.0.1:{port}", 200),
            ("LOCALHOST", 200),
        ]:
            for path in ("/", "/metrics"):
                client.request("GET", path, headers={"Host": host})
                reply = client.getresponse()
                text = reply.read()
                assert reply.status == status, host
                assert (b"No job" in text) <= (status == 200)
                policy = reply.getheader("Content-Security-Policy")
                assert "default-src 'none'" in policy
                assert "frame-ancestors 'none'" in policy
                assert reply.getheader("X-Frame-Options") == "DENY"
                client.close()
    with console(site, 0, names=["site.example"]) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        client = HTTPConnection(*server.server_address, timeout=300)
        client.request("GET", "/metrics", headers={"Host": "site.example:8103"})
        assert client.getresponse().status == 200
        server.shutdown()


def test_a_port_that_is_taken(site, tmp_path, capsys):
    with console(site, 0) as server:
        port = server.server_address[1]
        with pytest.raises(ParameterError, match=f"{port} cannot be served on"):
            console(site, port)
        (tmp_path / "lab.toml").write_text('party = "lab"\nfolder = "lab-folder"\n')
        command = ["parties", "console", str(tmp_path / "lab.toml"), "--port", str(port)]
        assert main(command) == 2
    assert "Fix: another --port" in capsys.readouterr().err
