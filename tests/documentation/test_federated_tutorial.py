"""The tutorial about two hospitals: its own commands, in real processes of NVIDIA FLARE."""

import json
import re
import shlex
import stat
from pathlib import Path

import pandas as pd
import pytest

from tests.integration.processes import assert_same_bytes
from vflsynth import PartyModel, VFLGANSynthesizer
from vflsynth.cli import main
from vflsynth.frames import read_table

pytest.importorskip("nvflare", reason="needs the extra 'flare'")
# Nodes are processes of their own, and are compared with a run in this one.
pytestmark = pytest.mark.usefixtures("full_blocks")

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorials" / "two-hospitals.md"


@pytest.mark.parametrize(("times", "epochs"), [(1, 4), pytest.param(2, 20, marks=pytest.mark.slow)])
def test_the_commands_of_the_tutorial(tmp_path, monkeypatch, capfd, times, epochs):
    """Also twice in a row in one folder, and the model of a run in one process."""
    monkeypatch.chdir(tmp_path)
    text = TUTORIAL.read_text(encoding="utf-8")
    for content in re.findall(r"```toml\n(.*?)```", text, re.S):
        content = content.replace("epochs = 20", f"epochs = {epochs}")
        (tmp_path / re.match(r"# (\S+)", content)[1]).write_text(content)
    commands = re.findall(r"^\$ vflsynth (.*)$", text, re.M)
    assert len(commands) == 5
    for command in commands * times:
        exact = ["--seed", "0", "--timeout", "1800"] if "simulate" in command else []
        assert main([*shlex.split(command), *exact]) == 0, capfd.readouterr()
    assert capfd.readouterr().out.count("server: finished") == times
    files = {"lab": "lab.csv", "clinic": "clinic.parquet"}
    frames = {name: read_table(Path("demo-output", file)) for name, file in files.items()}
    table = pd.read_parquet("synthetic.parquet")
    assert table.shape == (1000, sum(len(frame.columns) for frame in frames.values()) - 1)
    keys = [*Path("kits").rglob("*.key"), *Path("kits").rglob("cert.json")]
    assert len(keys) > 3 * times
    assert {stat.S_IMODE(path.stat().st_mode) for path in keys} == {0o600}

    synth = VFLGANSynthesizer(epochs=epochs, random_state=0, device="cpu", verbose=0)
    synth.fit(frames, "patient_id")
    for name, half in synth.parties_.items():
        assert_same_bytes(PartyModel.load(f"{name}-folder/breast-cancer/half"), half)
    report = json.loads(Path("lab-folder/breast-cancer/report-001.json").read_text())
    left = {row["message"]: row for row in report["left"]}
    arrived = {row["message"]: row for row in report["arrived"]}
    for kind in ("Discriminator", "Generator"):
        steps = arrived[f"{kind}Gradients"]["messages"]
        assert left[f"{kind}Features"]["messages"] == steps > 0
    assert "KeyList" not in left
    assert not any(row["noised"] for row in report["left"])
