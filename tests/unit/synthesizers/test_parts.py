"""Samples in parts: the same bytes for any number of workers, interrupted or not."""

import joblib
import pandas as pd
import pyarrow.dataset
import pytest

from vflsynth import IndependentSynthesizer
from vflsynth.datasets import make_party_frames
from vflsynth.exceptions import ArtefactError, KeyTypeError, ParameterError
from vflsynth.methods import parts

KEY = "record_id"


@pytest.fixture(scope="module")
def model():
    frames = make_party_frames(200, 2, random_state=0)
    return IndependentSynthesizer(random_state=0).fit(frames, on=KEY)


def sampled(model, folder, **changes):
    options = {"n": 250, "part_rows": 100, "random_state": 3} | changes
    paths = model.sample_to(folder, **options)
    return [path.read_bytes() for path in paths]


def test_parts_hold_as_many_records_as_were_asked_for(model, tmp_path):
    paths = model.sample_to(tmp_path / "out", 250, part_rows=100, keys=True, random_state=3)
    assert [path.name for path in paths] == [f"part-0000{k}.parquet" for k in range(3)]
    table = pyarrow.dataset.dataset(tmp_path / "out").to_table().to_pandas()
    assert len(table) == table[KEY].nunique() == 250
    assert list(table) == list(model.sample(1, keys=True))
    one, other = (pd.read_parquet(path).drop(columns=KEY) for path in paths[:2])
    assert not one.equals(other)


def test_keys_that_run_out_are_found_out_before_any_part(tmp_path):
    frames = make_party_frames(60, 2, random_state=0)
    small = {name: own.astype({KEY: "int8"}) for name, own in frames.items()}
    few = IndependentSynthesizer(random_state=0).fit(small, on=KEY)
    with pytest.raises(KeyTypeError):
        few.sample_to(tmp_path / "out", 250, part_rows=100, keys=True)
    assert not list((tmp_path / "out").glob("*.parquet"))


@pytest.mark.parametrize("jobs", [0, 1.5, "all"])
def test_a_number_of_workers_is_none_or_not_zero(model, tmp_path, jobs):
    with pytest.raises(ParameterError, match="n_jobs must be a whole number but 0"):
        sampled(model, tmp_path / "out", n_jobs=jobs)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "backend", ["threading", pytest.param("loky", marks=pytest.mark.slow, id="processes")]
)
def test_any_number_of_workers_writes_the_same_bytes(model, tmp_path, backend):
    one = sampled(model, tmp_path / "one", n_jobs=1)
    with joblib.parallel_config(backend):
        assert sampled(model, tmp_path / "two", n_jobs=2) == one


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_two_workers_of_a_dask_cluster_write_the_same_bytes(model, tmp_path):
    """By joblib's own registration of dask's backend: nothing here knows of it."""
    distributed = pytest.importorskip("distributed", reason="dask is not installed")
    one = sampled(model, tmp_path / "one", n_jobs=1)
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, processes=True
    )
    with cluster, distributed.Client(cluster) as client, joblib.parallel_config("dask"):
        assert sampled(model, tmp_path / "two", n_jobs=-1) == one
        ran = client.run(lambda: "vflsynth.methods.parts" in __import__("sys").modules)
    assert len(ran) == 2
    assert any(ran.values())


def test_an_interrupted_sample_is_continued_to_the_same_bytes(model, tmp_path, monkeypatch):
    whole = sampled(model, tmp_path / "whole")
    write, written = parts.write_table, []

    def until_the_second(table, path):
        if len(written) == 1:
            raise KeyboardInterrupt
        written.append(path)
        write(table, path)

    monkeypatch.setattr(parts, "write_table", until_the_second)
    with pytest.raises(KeyboardInterrupt):
        sampled(model, tmp_path / "out")
    drawn = []
    monkeypatch.setattr(parts, "write_table", lambda t, p: drawn.append(p) or write(t, p))
    assert sampled(model, tmp_path / "out") == whole
    assert written[0] not in drawn
    assert len(drawn) == 2


def test_the_model_s_own_sample_is_continued_and_the_next_is_another(model, tmp_path):
    first = sampled(model, tmp_path / "first", random_state=None)
    (tmp_path / "first" / "part-00001.parquet").unlink()
    assert sampled(model, tmp_path / "first", random_state=None) == first
    assert sampled(model, tmp_path / "second", random_state=None) != first


@pytest.mark.parametrize("changes", [{"n": 251}, {"random_state": 4}, {"keys": True}])
def test_a_folder_of_another_sample_is_refused(model, tmp_path, changes):
    sampled(model, tmp_path)
    with pytest.raises(ArtefactError, match="another sample"):
        sampled(model, tmp_path, **changes)


def test_a_folder_of_another_model_of_the_same_seed_is_refused(model, tmp_path):
    whole = sampled(model, tmp_path / "out")
    other = IndependentSynthesizer(random_state=0)
    other.fit(make_party_frames(200, 2, random_state=1), on=KEY)
    with pytest.raises(ArtefactError, match="another sample"):
        sampled(other, tmp_path / "out")
    model.save(tmp_path / "model")
    (tmp_path / "out" / "part-00001.parquet").unlink()
    assert sampled(type(model).load(tmp_path / "model"), tmp_path / "out") == whole


def test_a_folder_of_something_else_is_refused(model, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ArtefactError, match="not empty"):
        sampled(model, tmp_path)
    with pytest.raises(ArtefactError, match=r"mine.txt is a file. Fix: name a folder"):
        sampled(model, tmp_path / "mine.txt")
