"""Records drawn from files batch by batch: the same rows, types and counts as in one piece."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import vflsynth.frames.batches as batches
from vflsynth import (
    IndependentSynthesizer,
    MatchOn,
    MixtureSynthesizer,
    PairwiseTables,
    WGANGPSynthesizer,
    load,
)
from vflsynth.cli import main
from vflsynth.exceptions import (
    DuplicateKeyError,
    MissingKeyError,
    ParameterError,
    PublishingWarning,
    TableFileError,
)
from vflsynth.frames import read_records, read_table, write_table

N = 300


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch):
    monkeypatch.setattr(batches, "_BATCH", 7)


@pytest.fixture(scope="module")
def frames():
    rng = np.random.default_rng(0)
    lab = pd.DataFrame(
        {
            "id": rng.permutation(N),
            "glucose": rng.normal(size=N),
            "ward": pd.Categorical(rng.choice(["a", "b"], N), categories=["b", "c", "a"]),
            "when": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 99, N), unit="D"),
        }
    )
    clinic = pd.DataFrame(
        {
            "id": rng.permutation(N + 50),
            "age": pd.array(rng.integers(0, 90, N + 50), dtype="Int64"),
            "note": pd.Series(rng.choice(["NA", "", 'say "no"\n', None], N + 50), dtype="str"),
        }
    )
    return {"lab": lab, "clinic": clinic}


def write(frames, folder, kind):
    files = {}
    for name, frame in frames.items():
        path = files[name] = folder / f"{name}{kind}"
        if kind:
            write_table(frame, path)
            continue
        path.mkdir()
        for i in range(0, len(frame), 90):
            write_table(frame.iloc[i : i + 90].reset_index(drop=True), path / f"{i:03d}.parquet")
    return files


@pytest.mark.parametrize("kind", ["", ".parquet", ".csv", ".csv.gz"])
def test_drawn_rows_are_those_of_the_whole_tables(kind, frames, tmp_path):
    files = write(frames, tmp_path, kind)
    drawn = read_records(files, "id", max_records=60, random_state=1)
    assert set(drawn["lab"]["id"]) == set(drawn["clinic"]["id"])
    for name, path in files.items():
        whole = read_table(path)
        assert drawn.alignment.n_rows[name] == len(whole)
        assert len(drawn[name]) == 60
        expected = whole[whole["id"].isin(drawn[name]["id"])].reset_index(drop=True)
        pd.testing.assert_frame_equal(drawn[name], expected)
    assert (drawn.alignment.n_matched, drawn.alignment.n_used) == (N, 60)


def test_all_records_are_drawn_if_they_are_few_and_others_by_another_seed(frames, tmp_path):
    files = write(frames, tmp_path, ".parquet")
    everybody = read_records(files, "id", max_records=10_000)
    assert len(everybody["lab"]) == N
    first, again, other = (
        set(read_records(files, "id", max_records=60, random_state=seed)["lab"]["id"])
        for seed in (0, 0, 1)
    )
    assert first == again != other


def test_every_record_is_as_likely_to_be_drawn(frames, tmp_path):
    files = write({"lab": frames["lab"][["id", "glucose"]]}, tmp_path, ".parquet")
    counts = np.zeros(N)
    for seed in range(60):
        drawn = read_records(files, "id", max_records=N // 2, random_state=seed)
        counts[drawn["lab"]["id"]] += 1
    # 300 binomial counts of 60 by 1/2, negatively correlated: mean 30, variance 15.
    assert counts.mean() == 30
    assert 11 < counts.var() < 19


def test_types_of_keys_do_not_depend_on_which_are_drawn(tmp_path):
    codes = ["007", *(str(i) for i in range(100, 300))]
    for name in ("a", "b"):
        table = pa.table({"id": codes, name: range(len(codes))})
        pa.csv.write_csv(table, tmp_path / f"{name}.csv")
    files = {name: tmp_path / f"{name}.csv" for name in ("a", "b")}
    drawn = read_records(files, "id", max_records=20, random_state=0)
    assert "007" not in set(drawn["a"]["id"])
    assert drawn["a"]["id"].dtype == read_table(files["a"])["id"].dtype == "str"


def test_row_numbers_of_an_index_are_left_out_of_drawn_rows_too(frames, tmp_path):
    frames["lab"].to_csv(tmp_path / "lab.csv")
    with pytest.warns(PublishingWarning, match="row numbers"):
        drawn = read_records({"lab": tmp_path / "lab.csv"}, "id", max_records=20)
    assert list(drawn["lab"]) == list(frames["lab"])


def test_rows_behind_an_open_quotation_mark_are_not_lost(tmp_path):
    (tmp_path / "lab.csv").write_text('id,ward\n1,a\n2,"b\n3,c\n')
    with pytest.raises(TableFileError, match=r"in row 3 .* never closed"):
        read_records({"lab": tmp_path / "lab.csv"}, "id", max_records=1)


def test_without_a_key_row_i_is_the_same_record(frames, tmp_path):
    halves = {"a": frames["lab"][["glucose"]], "b": frames["lab"][["ward"]]}
    drawn = read_records(write(halves, tmp_path, ".csv"), max_records=9, random_state=0)
    rows = frames["lab"].index[frames["lab"]["glucose"].isin(drawn["a"]["glucose"])]
    assert list(drawn["b"]["ward"]) == list(frames["lab"]["ward"][rows])
    write_table(frames["lab"].set_index("id"), tmp_path / "indexed.parquet")
    with pytest.raises(MissingKeyError, match="has an index"):
        read_records({"a": tmp_path / "indexed.parquet"}, max_records=9)


def test_forms_of_keys_and_files_that_a_description_names(tmp_path):
    (tmp_path / "a.csv").write_text("Nr;x\n A1;1,5\n A2;2,5\n A3;3,5\n")
    (tmp_path / "a.toml").write_text('file = "a.csv"\nseparator = ";"\ndecimal = ","\n')
    (tmp_path / "b.csv").write_text("id,y\na2,1\na3,2\na9,3\n")
    on = MatchOn({"a": "Nr", "b": "id"}, form="strip casefold")
    files = {"a": tmp_path / "a.toml", "b": tmp_path / "b.csv"}
    drawn = read_records(files, on, max_records=9)
    assert drawn["a"]["x"].tolist() == [2.5, 3.5]
    (tmp_path / "a.toml").write_text('file = "a.csv"\none_row_per = "Nr"\n')
    with pytest.raises(TableFileError, match="in batches"):
        read_records(files, on, max_records=9)


def test_a_key_that_is_not_drawn_is_not_minted_and_all_are_reported(frames, tmp_path):
    frames = {name: frame.copy() for name, frame in frames.items()}
    frames["lab"].loc[0, "id"] = 123_456
    drawn = read_records(write(frames, tmp_path, ".parquet"), "id", max_records=50, random_state=3)
    assert 123_456 not in set(drawn["lab"]["id"])
    for kind in (IndependentSynthesizer(random_state=0), WGANGPSynthesizer(epochs=1, verbose=0)):
        synth = kind.fit(drawn, on="id")
        assert synth.sample(3, keys=True)["id"].min() == 1_000_000
        assert synth.alignment_.n_rows == {"lab": N, "clinic": N + 50}
        assert synth.alignment_.n_used == 50
        synth.save(tmp_path / "model")
        assert type(synth).load(tmp_path / "model").alignment_ == synth.alignment_


def test_refused_before_anything_is_learned(frames, tmp_path):
    files = write(frames, tmp_path, ".parquet")
    drawn = read_records(files, "id", max_records=50)
    private = MixtureSynthesizer(privacy=PairwiseTables(epsilon=1.0, delta=1e-6))
    with pytest.raises(ParameterError, match="max_records"):
        private.fit(drawn, on="id")
    with pytest.raises(MissingKeyError, match="absent"):
        read_records(files, "key", max_records=50)
    with pytest.raises(ParameterError, match="max_records"):
        read_records(files, "id", max_records=0)
    write_table(pd.concat([frames["lab"]] * 2), files["lab"])
    with pytest.raises(DuplicateKeyError):
        read_records(files, "id", max_records=50)


def test_the_command_line_draws_by_its_seed(frames, tmp_path, cli):
    files = write(frames, tmp_path, "")
    told = [f"{name}={path}" for name, path in files.items()]
    common = ["--on", "id", "--max-records", "40", "--seed", "0"]
    options = ["--method", "IndependentSynthesizer", "--output", str(tmp_path / "model")]
    assert cli(["fit", *told, *common, *options]).err.count("records matched by") == 1
    synth = load(tmp_path / "model")
    assert (synth.alignment_.n_matched, synth.alignment_.n_used) == (N, 40)
    drawn = read_records(files, "id", max_records=40, random_state=0)
    expected = IndependentSynthesizer(random_state=0).fit(drawn, on="id").sample(20)
    pd.testing.assert_frame_equal(synth.sample(20), expected)


def test_a_file_says_what_is_drawn_and_how_long_training_may_take(frames, tmp_path, capsys):
    told = [f"{name}={path}" for name, path in write(frames, tmp_path, "").items()]
    said = 'method = "WGANGPSynthesizer"\non = "id"\nmax_records = 60\nmost_hours = 1e-9\n'
    (tmp_path / "run.toml").write_text(said + "[parameters]\nepochs = 2\nbatch_size = 16\n")
    command = ["fit", *told, "--config", str(tmp_path / "run.toml"), "--quiet"]
    command += ["--output", str(tmp_path / "model")]
    assert main(command) != 0
    assert "1e-09 hours are allowed" in capsys.readouterr().err
    assert main([*command, "--most-hours", "1"]) == 0
    assert load(tmp_path / "model").alignment_.n_used == 60


def test_a_file_that_grows_between_the_passes_is_no_table(frames, tmp_path, monkeypatch):
    files = write({"lab": frames["lab"]}, tmp_path, ".csv")
    before = batches.align_keys

    def meanwhile(*arguments, **options):
        write_table(pd.concat([frames["lab"]] * 2), files["lab"])
        return before(*arguments, **options)

    monkeypatch.setattr(batches, "align_keys", meanwhile)
    with pytest.raises(TableFileError, match="300 rows when its keys were read, and has 600"):
        read_records(files, "id", max_records=50)
