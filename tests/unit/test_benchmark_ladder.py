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
