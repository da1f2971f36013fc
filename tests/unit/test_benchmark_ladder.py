"""The ladder takes a table and samples that anybody gives it."""

import numpy as np
import pytest

from benchmarks import ladder
from vflsynth.datasets import make_party_frames


@pytest.fixture
def name(tmp_path, monkeypatch):
    monkeypatch.setattr(ladder, "_OWN", {})
    frames = make_party_frames(240, 2, random_state=0)
    one, other = frames.values()
    table = one.merge(other, on="record_id").drop(columns="record_id")
    table["grade"] = np.where(np.arange(240) % 3 == 0, "a", "b")
    table.to_csv(tmp_path / "mine.csv", index=False)
    return ladder.own_table(tmp_path / "mine.csv", "grade", 2)


@pytest.mark.slow
def test_a_table_and_samples_from_files_become_rows(name, tmp_path):
    fitted = ladder.measure(name, "copula", 0)
    ladder.split(name)[1].to_csv(tmp_path / "theirs.csv", index=False)
    copied = ladder.rescore(name, tmp_path / "theirs.csv", 0)
    assert copied["shape"] == pytest.approx(1.0)
    assert 0.0 < fitted["shape"] < 1.0
    shown = ladder.show([name], {(name, "copula"): [fitted], (name, "theirs"): [copied]})
    assert [line.split()[0] for line in shown.splitlines()] == ["mine", "copula", "theirs"]
    assert "1.000" in shown.splitlines()[2]


def test_the_target_must_be_with_the_second_party(tmp_path):
    (tmp_path / "mine.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="one of the columns of B"):
        ladder.own_table(tmp_path / "mine.csv", "a", 1)


def test_pairs_of_columns_are_held_against_the_rival():
    def row(detection, tstr):
        return [{"detection": detection, "tstr": tstr, "trend_across": 0.9}]

    found = {("mine", "pairwise tables, ε 3"): row(0.71, 0.67)}
    assert "AIM" not in ladder.show(["mine"], found)
    found["mine", "AIM, joined table, ε 3"] = row(0.70, 0.68)
    shown = ladder.show(["mine"], found).splitlines()[-1]
    assert shown == (
        "  pairwise tables, ε 3: trees 0.710 (AIM's +0.02: MISSED), TSTR 0.670 (AIM's -0.02: met), "
        "relations across 0.900 (AIM's -0.01: met)"
    )
    found["mine", "AIM, joined table, ε 3"] = row(0.69, 0.70)
    shown = ladder.show(["mine"], found).splitlines()[-1]
    assert "trees 0.710 (AIM's +0.02: met), TSTR 0.670 (AIM's -0.02: MISSED)" in shown
