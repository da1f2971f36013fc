"""The README is short, its table is measured, its links lead somewhere, its first command works."""

import re
from pathlib import Path

import pytest

from vflsynth.contract import read_contract
from vflsynth.frames import read_table

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_is_short():
    assert len(re.sub(r"<!--.*?-->", "", README).split()) < 900


def test_its_table_of_five_is_filled_in_from_the_results():
    table = re.search(r"\| what \| measured \|.*?\n\n", README, re.S)[0]
    assert len(table.strip().splitlines()) == 2 + 5
    assert len(re.findall(r"<!--= .+? -->[\d.]+<!--/-->", table)) >= 9


def test_its_links_lead_somewhere():
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if "://" not in link]
    assert len(links) > 10
    assert not [link for link in links if not (ROOT / link.partition("#")[0]).exists()]


@pytest.mark.usefixtures("blank_pictures")
def test_demo_leaves_a_table_and_a_report(tmp_path, monkeypatch, cli):
    out = tmp_path / "demo"
    monkeypatch.setattr("vflsynth.cli.evaluate.run", lambda _: 0)  # the release says the same
    result, messages = cli(["demo", "--output", str(out), "--epochs", "2"])
    assert read_table(out / "synthetic.parquet").shape == (386, 31)
    assert (out / "release" / "internal" / "report.html").stat().st_size > 10_000
    assert read_contract(out / "contract.toml").rules
    assert re.search("^Fails ", result, re.M), "two epochs give no table to publish"
    assert not (out / "release" / "public").exists()
    assert "TSTR" in result
    assert "TRTR" in result
    assert len(re.findall(r"^\$ vflsynth", messages, re.M)) == 5
