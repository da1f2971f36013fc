"""NVIDIA FLARE on this machine: real processes, real certificates, the README's own commands."""

import json
import re
import shlex
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from vflsynth import PartyModel, VFLGANSynthesizer
from vflsynth.cli import main
from vflsynth.datasets import load_breast_cancer_parties, make_party_frames
from vflsynth.federation.job import Job, Site
from vflsynth.federation.kit import write_job
from vflsynth.federation.simulate import Administrator, Federation, free_port, provision

pytest.importorskip("nvflare", reason="needs the extra 'flare'")

KEY = "record_id"
EXCHANGE = 15.0  # seconds; a machine with other work must make a step within it


def section():
    text = (Path(__file__).parents[2] / "README.md").read_text()
    return re.search(r"## Run it between organisations\n(.*?)\n## ", text, re.S)[1]


def same_bytes(half, other):
    ours, theirs = half.sampler.tensors(), other.sampler.tensors()
    return ours.keys() == theirs.keys() and all(
        value.numpy().tobytes() == theirs[name].numpy().tobytes() for name, value in ours.items()
    )


@pytest.mark.timeout(600)
def test_the_commands_of_the_readme(tmp_path, monkeypatch, capfd):
    """Everything in the section's files and console, and the model of a run in one process."""
    monkeypatch.chdir(tmp_path)
    for content in re.findall(r"```toml\n(.*?)```", section(), re.S):
        (tmp_path / re.match(r"# (\S+)", content)[1]).write_text(content)
    frames = load_breast_cancer_parties()
    for name, frame in frames.items():
        frame.to_parquet(f"{name}.parquet")
    commands = re.findall(r"^\$ vflsynth (.*)$", section(), re.M)
    assert len(commands) == 4
    for command in commands:
        exact = ["--seed", "0", "--timeout", "300"] if "simulate" in command else []
        assert main([*shlex.split(command), *exact]) == 0, capfd.readouterr()
    assert "server: finished" in capfd.readouterr().out
    table = pd.read_parquet("synthetic.parquet")
    assert table.shape == (1000, sum(len(frame.columns) for frame in frames.values()) - 1)

    synth = VFLGANSynthesizer(epochs=20, random_state=0, device="cpu", verbose=0)
    synth.fit(frames, "patient_id")
    for name, half in synth.parties_.items():
        assert same_bytes(PartyModel.load(f"{name}-folder/breast-cancer/half"), half)
    report = json.loads(Path("lab-folder/breast-cancer/report-001.json").read_text())
    left = {row["message"]: row for row in report["left"]}
    steps = sum(row["messages"] for row in report["arrived"] if row["message"] == "CutGradients")
    assert left["IntermediateFeatures"]["messages"] == steps
    assert "KeyList" not in left
    assert not any(row["noised"] for row in report["left"])


class Running:
    """A federation of two parties that tests submit jobs to."""

    def __init__(self, folder):
        self.folder = folder
        frames = make_party_frames(40, 2, random_state=2)
        self.sites = {"server": Site("server", folder / "server")}
        for name, frame in frames.items():
            frame.to_parquet(folder / f"{name}.parquet")
            table = folder / f"{name}.parquet"
            self.sites[name] = Site(name, folder / name, table, shared=bytes(range(32)))
        kits = provision(self.job("any"), folder / "fed", free_port())
        self.federation = Federation(self.job("any"), kits, self.sites)

    def job(self, name, **parameters):
        small = {"batch_size": 16, "generator_hidden": [8], "first_part": [8], "latent_dim": 4}
        return Job.from_dict(
            {
                "name": name,
                "parties": ["party_1", "party_2"],
                "on": KEY,
                "parameters": small | parameters,
                "exchange_timeout": EXCHANGE,
                "setup_timeout": 90.0,
                "checkpoint_every": 5,
            }
        )

    def outcome(self, node, name, number=1):
        path = self.folder / node / name / f"report-{number:03d}.json"
        return json.loads(path.read_text())["outcome"] if path.exists() else None

    def submit(self, job, change=lambda folder: None):
        folder = write_job(job, self.folder / "jobs")
        change(folder)
        return self.administrator.submit(folder)

    def wait_for(self, condition, seconds):
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"not within {seconds} s"
            time.sleep(0.1)


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    running = Running(tmp_path_factory.mktemp("federation"))
    with running.federation.running():
        running.administrator = Administrator(running.federation.admin, ["party_1", "party_2"])
        yield running
        running.administrator.close()


def with_code(folder):
    (folder / "party" / "custom").mkdir()
    (folder / "party" / "custom" / "thief.py").write_text("print('here')\n")


def of_another_class(folder):
    path = folder / "party" / "config" / "config_fed_client.json"
    text = path.read_text()
    path.write_text(text.replace("vflsynth.federation.flare.PartyExecutor", "subprocess.Popen"))
    assert path.read_text() != text


@pytest.mark.timeout(300)
@pytest.mark.parametrize("change", [with_code, of_another_class])
def test_foreign_code_is_refused(running, change):
    job = running.job(f"foreign-{change.__name__}", epochs=1)
    job_id = running.submit(job, change)
    status = running.administrator.wait(job_id, 120)
    assert status != "FINISHED:COMPLETED"
    assert running.outcome("party_1", job.name) is None  # nothing of ours ran either
    logs = "".join(p.read_text() for p in running.folder.rglob("log.txt"))
    assert ("BYOC not permitted" if change is with_code else "not in allow_list") in logs


@pytest.mark.timeout(300)
def test_another_secret(running):
    """And the reason reaches every node."""
    site = running.sites["party_2"]
    local = running.federation.kits["party_2"] / "local" / "vflsynth.toml"
    replace(site, shared=bytes(32)).write(local)
    try:
        job = running.job("another-secret", epochs=1)
        status = running.administrator.wait(running.submit(job), 120)
    finally:
        site.write(local)
    assert status != "FINISHED:COMPLETED"
    for node in ("server", "party_1", "party_2"):
        assert "different shared secrets" in running.outcome(node, job.name)


@pytest.mark.timeout(300)
def test_a_party_that_is_killed(running):
    """Within the exchange timeout and ten seconds every other node says who, when, what next."""
    federation, job = running.federation, running.job("killed", epochs=100_000)
    job_id = running.submit(job)
    checkpoints = running.folder / "party_1" / "killed" / "checkpoints"
    running.wait_for(lambda: checkpoints.exists() and any(checkpoints.iterdir()), 120)
    federation.kill("party_2")
    died = time.monotonic()
    running.wait_for(
        lambda: all(running.outcome(node, "killed") for node in ("server", "party_1")),
        EXCHANGE + 10,
    )
    print(f"the last node knew after {time.monotonic() - died:.1f} s")
    for node in ("server", "party_1"):
        outcome = running.outcome(node, "killed")
        assert re.search(r"party 'party_2', step \d+: no answer|party 'party_2'", outcome)
        assert "Next:" in outcome
    assert running.administrator.wait(job_id, 60) != "FINISHED:COMPLETED"
    federation.start("party_2")
