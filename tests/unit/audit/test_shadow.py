"""Shadow models: seeds, blocks, workers, interruption, cache."""

from __future__ import annotations

import json
import logging
import os
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import BaseEstimator

from vflsynth import GaussianCopulaSynthesizer
from vflsynth.audit import shadow
from vflsynth.audit.game import LeaveOneOutGame, World, train
from vflsynth.audit.kept import Store
from vflsynth.audit.settings import AuditSettings
from vflsynth.audit.shadow import ShadowRun, Shadows
from vflsynth.datasets import make_party_frames
from vflsynth.exceptions import ParameterError

DRAWS: list[int] = []
"""Seeds of the toy models that were trained, in order."""


class Toy(BaseEstimator):
    """A model that is its seed."""

    most: int | None = None
    """Models that can be trained before somebody presses Ctrl-C."""

    def __init__(self, factor: float = 1.0, random_state: int | None = None) -> None:
        self.factor, self.random_state = factor, random_state

    def fit(self, party_frames: Any, on: Any = None) -> Toy:
        if self.most is not None and len(DRAWS) >= self.most:
            raise KeyboardInterrupt
        DRAWS.append(self.random_state)
        self.n_ = len(next(iter(party_frames.values())))
        return self

    def sample(self, n: int) -> pd.DataFrame:
        return pd.DataFrame({"seed": [self.factor * self.random_state] * n})


class Watch(shadow.Observer):
    """Observes a model's seed and the size of its world."""

    def describe(self) -> str:
        return "seeds"

    def observe(self, model, targets):
        return {"seed": model.sample(1)["seed"].to_numpy(float), "n": np.array([model.n_], float)}


@pytest.fixture(autouse=True)
def _no_draws():
    DRAWS.clear()


@pytest.fixture
def worlds(number_frames) -> list[World]:
    return LeaveOneOutGame(number_frames).worlds([3, 5])


def _run(synthesizer, worlds, **options):
    return run(synthesizer, worlds, None, Watch(), **{"n_models": 4} | options)


def run(synthesizer, worlds, on, observer, **options):
    settings = AuditSettings(**{"verbose": 0} | options)
    found = ShadowRun(Shadows(synthesizer, worlds, on, observer, settings))
    found.train()
    return found


def test_worlds_differ_in_the_target_only(small_frames):
    game = LeaveOneOutGame(small_frames, "record_id")
    target = game.table.index[11]
    full, without = game.worlds([target])
    for name, frame in small_frames.items():
        pd.testing.assert_frame_equal(full.party_frames[name], frame)
        pd.testing.assert_frame_equal(
            without.party_frames[name], frame[frame["record_id"] != target]
        )


def test_every_model_has_a_seed_of_its_own(worlds):
    found = _run(Toy(), worlds).observations
    seeds = np.concatenate([found[world.name]["seed"] for world in worlds])
    assert len(set(seeds.ravel())) == 12
    assert [found[world.name]["n"][0, 0] for world in worlds] == [40, 39, 39]


def test_seeds_do_not_depend_on_blocks_other_worlds_or_how_many(worlds):
    reference = _run(Toy(), worlds, n_models=6).observations
    for options in ({"block_size": 4}, {"n_models": 3}):
        found = _run(Toy(), worlds, **({"n_models": 6} | options)).observations
        for name, values in found.items():
            n = len(values["seed"])
            np.testing.assert_array_equal(values["seed"], reference[name]["seed"][:n])
    alone = _run(Toy(), worlds[2:], n_models=6).observations[worlds[2].name]
    np.testing.assert_array_equal(alone["seed"], reference[worlds[2].name]["seed"])
    other = _run(Toy(), worlds, n_models=6, random_state=1).observations
    assert (other[worlds[0].name]["seed"] != reference[worlds[0].name]["seed"]).all()


def test_a_full_disk_leaves_no_piece_of_an_observation(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        Store(tmp_path, "key").remember("numbers", {"mean": 1.0})
    assert [*(tmp_path / "key").iterdir()] == []


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
def test_who_was_asked_about_is_for_the_owner_of_a_cache(tmp_path):
    Store(tmp_path / "cache", "key").write(0, {"probability of 'P0017'": np.zeros(2)})
    folder = tmp_path / "cache" / "key"
    assert b"P0017" in (folder / "model-00000.safetensors").read_bytes()
    assert folder.stat().st_mode & 0o077 == 0


def test_an_interrupted_run_continues_where_it_stopped(worlds, tmp_path, monkeypatch):
    reference = _run(Toy(), worlds).observations
    DRAWS.clear()
    with monkeypatch.context() as interruption:
        interruption.setattr(Toy, "most", 5)
        with pytest.raises(KeyboardInterrupt):
            _run(Toy(), worlds, cache=tmp_path)
    finished = len(list(tmp_path.rglob("*.safetensors")))
    assert finished == 5
    DRAWS.clear()
    again = _run(Toy(), worlds, cache=tmp_path)
    assert again.n_trained == 12 - finished == len(DRAWS)
    for name, values in again.observations.items():
        np.testing.assert_array_equal(values["seed"], reference[name]["seed"])


def test_a_finished_run_trains_nothing_and_a_longer_one_only_the_rest(worlds, tmp_path):
    first = _run(Toy(), worlds, cache=tmp_path)
    assert (first.n_trained, len(DRAWS)) == (12, 12)
    assert _run(Toy(), worlds, cache=tmp_path).n_trained == 0
    longer = _run(Toy(), worlds, cache=tmp_path, n_models=6)
    assert longer.n_trained == 6
    for name, values in longer.observations.items():
        np.testing.assert_array_equal(values["seed"][:4], first.observations[name]["seed"])


def test_other_parameters_data_or_seeds_are_trained_anew(worlds, number_frames, tmp_path):
    _run(Toy(), worlds, cache=tmp_path)
    assert _run(Toy(factor=2.0), worlds, cache=tmp_path).n_trained == 12
    assert _run(Toy(), worlds, cache=tmp_path, random_state=1).n_trained == 12
    changed = {name: frame.copy() for name, frame in number_frames.items()}
    changed["left"].iloc[0, 0] += 1e-9
    worlds = LeaveOneOutGame(changed).worlds([3, 5])
    assert _run(Toy(), worlds, cache=tmp_path).n_trained == 12


def test_a_damaged_file_is_trained_again(worlds, tmp_path, caplog):
    reference = _run(Toy(), worlds, cache=tmp_path).observations
    damaged = sorted(tmp_path.rglob("*.safetensors"))[2]
    damaged.write_bytes(damaged.read_bytes()[:-3])
    with caplog.at_level(logging.WARNING, "vflsynth"):
        again = _run(Toy(), worlds, cache=tmp_path)
    assert again.n_trained == 1
    assert "damaged" in caplog.text
    for name, values in again.observations.items():
        np.testing.assert_array_equal(values["seed"], reference[name]["seed"])


def test_the_cache_holds_numbers_only(worlds, tmp_path):
    """Nothing that could run code, and no record."""
    _run(Toy(), worlds, cache=tmp_path)
    for file in tmp_path.rglob("*"):
        if file.is_file():
            header = file.read_bytes()
            length = int.from_bytes(header[:8], "little")
            assert set(json.loads(header[8 : 8 + length])) <= {"seed", "n", "__metadata__"}


def test_a_function_has_no_cache(worlds, tmp_path):
    with pytest.raises(ParameterError, match="get_params"):
        _run(lambda frames, state: None, worlds, cache=tmp_path)


def test_functions_are_publishers(number_frames):
    def publish(party_frames, random_state):
        return pd.DataFrame({"seed": [random_state]})

    models = train(publish, number_frames, None, [7, 8])
    assert [model.sample(99)["seed"].item() for model in models] == [7, 8]


def test_half_trained_models_are_refused(number_frames, tiny, monkeypatch):
    """Ctrl-C makes `fit_replicas` return what there is; that is no shadow model."""
    monkeypatch.setattr("vflsynth.run.server_run.run", lambda *_: True)
    with pytest.warns(RuntimeWarning, match="interrupted"), pytest.raises(KeyboardInterrupt):
        train(tiny, number_frames, None, [1, 2])


def test_training_leaves_the_number_of_threads_alone(worlds):
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        _run(Toy(), worlds)
        assert torch.get_num_threads() == threads + 1
    finally:
        torch.set_num_threads(threads)


@pytest.mark.slow
def test_workers_blocks_and_a_single_process_agree(tiny, full_blocks):
    """Real models as replicas: the same up to the rounding of other numbers of replicas."""
    frames = make_party_frames(60, 2, random_state=0)  # workers ask for 50 records, as users do
    worlds = LeaveOneOutGame(frames, "record_id").worlds([frames["party_1"].iloc[0, 0]])

    def means(**options):
        return run(tiny, worlds, "record_id", Means(), n_models=4, **options).observations

    reference = means(block_size=2)
    with joblib.parallel_config(backend="loky", n_jobs=2):
        parallel = means(block_size=2)
    larger = means(block_size=3)
    for name, values in reference.items():
        np.testing.assert_array_equal(values["means"], parallel[name]["means"])
        np.testing.assert_allclose(values["means"], larger[name]["means"], rtol=1e-2, atol=1e-2)


class Means(shadow.Observer):
    """Observes the mean of a numeric column."""

    def describe(self) -> str:
        return "means"

    def observe(self, model, targets):
        return {"means": model.sample(50)[["measure_1", "measure_2"]].mean().to_numpy()}


class Blind(Means):
    """Fails as soon as a model is there."""

    def observe(self, model, targets):
        raise RuntimeError("nothing is observed")


def test_memory_is_estimated_before_anything_is_trained(small_frames, tiny, caplog):
    worlds = LeaveOneOutGame(small_frames, "record_id").worlds([small_frames["party_1"].iloc[0, 0]])
    options = {"n_models": 2, "block_size": 2, "verbose": 0}
    result = run(tiny, worlds, "record_id", Means(), **options)
    estimated = tiny.estimate_memory(small_frames, "record_id", n_models=2)
    assert result.memory == pytest.approx(estimated + 400 * 2**20, rel=0.01)
    with caplog.at_level(logging.INFO, "vflsynth"), pytest.raises(RuntimeError, match="observed"):
        run(tiny, worlds, "record_id", Blind(), **options)
    assert "GiB" in caplog.text


def test_single_fits_say_nothing_and_the_log_is_as_before(small_frames, tiny, caplog):
    worlds = LeaveOneOutGame(small_frames, "record_id").worlds([small_frames["party_1"].iloc[0, 0]])
    with caplog.at_level(logging.INFO, "vflsynth"):
        run(tiny, worlds, "record_id", Means(), n_models=2, verbose=0)
        assert len(caplog.messages) == 1
        logging.getLogger("vflsynth").info("still here")
    assert caplog.messages[-1] == "still here"


@pytest.mark.slow
def test_blocks_shrink_to_fit_into_memory(small_frames, tiny, monkeypatch):
    worlds = LeaveOneOutGame(small_frames, "record_id").worlds([small_frames["party_1"].iloc[0, 0]])
    one, two = (tiny.estimate_memory(small_frames, "record_id", n_models=n) for n in (1, 2))
    room = (400 * 2**20 + one + 2.5 * (two - one)) / 0.8
    monkeypatch.setattr("vflsynth.audit.shadow.available_memory", lambda device: room)
    result = run(tiny, worlds, "record_id", Means(), n_models=6, verbose=0)
    assert result.block_size == 3


@pytest.mark.filterwarnings("error:less than two thirds")
def test_nothing_is_said_of_what_a_shadow_model_would_publish():
    """Forty models of tables that have few records in common warned forty times."""
    frames = make_party_frames(60, 2, random_state=0, n_unmatched=60)
    assert len(train(GaussianCopulaSynthesizer(), frames, "record_id", [0, 1])) == 2
