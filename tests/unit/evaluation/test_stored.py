"""Tables on disk are judged as the same tables in memory, a batch and a column at a time."""

import json

import pandas as pd
import pytest

from vflsynth.cli import main
from vflsynth.cli.judged import _stored_like
from vflsynth.evaluation import evaluate
from vflsynth.evaluation import tables as evaluation_tables
from vflsynth.exceptions import SharedColumnError
from vflsynth.frames import align_party_frames, batches, read_table, stored_table, write_table


@pytest.fixture
def files(make, parties, tmp_path, monkeypatch):
    """Six hundred records of two parties, in different orders, and a synthetic table."""
    for module in ("frames.batches._BATCH", "evaluation.columns.CHUNK_ROWS"):
        monkeypatch.setattr(f"vflsynth.{module}", 100)
    monkeypatch.setattr("vflsynth.evaluation.intervals.CHUNK_ROWS", 100)
    monkeypatch.setattr("vflsynth.evaluation.tables.SAMPLED", 10**6)
    whole = make(600, seed=0)
    whole.insert(0, "id", range(100, 700))
    paths = {}
    for i, (party, labels) in enumerate(parties.items()):
        own = whole[["id", *labels]].sample(580, random_state=i, ignore_index=True)
        paths[party] = tmp_path / f"{party}.parquet"
        write_table(own, paths[party])
    folder = tmp_path / "synthetic"
    folder.mkdir()
    for i in range(4):
        write_table(make(150, seed=7 + i), folder / f"{i}.parquet")
    return paths, folder


def test_figures_are_those_of_the_tables_in_memory(files, parties):
    paths, folder = files
    aligned, _, found = align_party_frames({p: read_table(f) for p, f in paths.items()}, on="id")
    real = pd.concat(list(aligned.values()), axis="columns")
    stored, alignment = stored_table(paths, on="id")
    assert alignment.n_matched == found.n_matched == len(stored)
    assert stored.parties == {party: list(frame) for party, frame in aligned.items()}
    for label in real:
        pd.testing.assert_series_equal(stored[label], real[label])
    synthetic, _ = stored_table({"synthetic": folder})
    options = {"parties": stored.parties}
    expected = evaluate(real, read_table(folder), **options)
    results = evaluate(stored, synthetic, **options)
    assert [*results] == [*expected]
    for name, result in results.items():
        other = expected[name]
        assert result.not_applicable == other.not_applicable
        for mark in ("value", "interval", "baseline", "naive"):
            mine, theirs = getattr(result, mark), getattr(other, mark)
            assert mine == (theirs if theirs is None else pytest.approx(theirs, abs=1e-9)), name
        pd.testing.assert_frame_equal(result.parts, other.parts, atol=1e-9)


def test_a_column_and_a_batch_are_in_memory_at_a_time(files, monkeypatch):
    read = []
    plain = batches.restored
    monkeypatch.setattr(batches, "restored", lambda t, p: read.append(t.shape) or plain(t, p))
    stored, synthetic = stored_table(files[0], on="id")[0], stored_table({"s": files[1]})[0]
    evaluate(stored, synthetic, columns=["age", "grade"])
    assert {columns for rows, columns in read if rows} == {1}
    assert {rows for rows, _ in read} <= {0, len(stored), 580, len(synthetic)} | {*range(101)}


@pytest.mark.slow
@pytest.mark.usefixtures("blank_pictures")
def test_the_command_line_judges_folders_in_batches_and_says_what_was_sampled(
    files, capsys, monkeypatch, tmp_path
):
    paths, folder = files
    monkeypatch.setattr(evaluation_tables, "SAMPLED", 200)
    lab, page = f"lab={paths['lab']}", tmp_path / "page.html"
    said = ["evaluate", "--real", lab, "--synthetic", str(folder), "--json", "-o", str(page)]
    assert main(said) == 0
    found = json.loads(capsys.readouterr().out)
    assert any("200 real" in note for note in found["exact_structure"]["notes"])
    assert not any("200 real" in note for note in found["marginal_distance"]["notes"])
    assert "200 real and 200 synthetic rows were used" in page.read_text()
    assert main([*said, "--contract", str(tmp_path / "absent.toml")]) > 0
    assert "tables are read into memory" in capsys.readouterr().err


def test_a_column_of_two_parties_is_refused(tmp_path):
    for name in ("a", "b"):
        write_table(pd.DataFrame({"x": [1.0, 2.0]}), tmp_path / f"{name}.parquet")
    with pytest.raises(SharedColumnError, match="'a'"):
        stored_table({name: tmp_path / f"{name}.parquet" for name in ("a", "b")})


def test_a_csv_file_beside_folders_is_read_in_their_types(tmp_path):
    frame = pd.DataFrame({"zip": pd.Series([str(100 + i) for i in range(5)]), "x": range(5)})
    (tmp_path / "real").mkdir()
    write_table(frame, tmp_path / "real" / "0.parquet")
    write_table(frame, tmp_path / "made.csv")
    real, _ = stored_table({"lab": tmp_path / "real"})
    made = _stored_like(real, tmp_path / "made.csv")
    assert made["zip"].equals(frame["zip"])
    assert made["x"].equals(frame["x"])
