"""A zip code with more levels than one one-hot code has: every kind of model, conditions, files."""

import numpy as np
import pandas as pd
import pytest

from tests.distances import total_variation
from tests.later import later
from vflsynth import (
    AutoregressiveSynthesizer,
    GaussianCopulaSynthesizer,
    IndependentSynthesizer,
    VFLGANSynthesizer,
    WGANGPSynthesizer,
    load,
)
from vflsynth.contract import ColumnContract, Contract, PartyContract

pytestmark = pytest.mark.usefixtures("wide_blocks")

LABELS = [f"{i:05d}" for i in range(300)]
ZIP = {"column_kinds": {"zip": "categorical"}, "random_state": 0}
FAST = {"device": "cpu", "verbose": 0}


@pytest.fixture(scope="module")
def frames() -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(0)
    times = 5 + 20 * (np.arange(300) % 17 == 0)  # some are frequent, at different places of groups
    codes = rng.permutation(np.repeat(np.arange(300), times))
    n = len(codes)
    zips = pd.Series([LABELS[c] for c in codes]).mask(rng.random(n) < 0.02)
    rare = zips.value_counts().loc[lambda c: c < 5].index
    zips = zips.mask(zips.isin(rare), "00000")
    return {
        "agency": pd.DataFrame({"id": range(n), "zip": zips, "age": rng.integers(18, 90, n)}),
        "bank": pd.DataFrame({"id": range(n), "income": np.exp(codes / 100 + rng.normal(size=n))}),
    }


@pytest.fixture(scope="module")
def autoregressive(frames, quick_contexts):
    synth = AutoregressiveSynthesizer(hidden=8, n_features=16, epochs=2, **FAST, **ZIP)
    return synth.fit(frames, on="id")


def test_probabilities_of_all_levels_add_up_to_one(frames, autoregressive) -> None:
    levels = frames["agency"]["zip"].drop_duplicates()
    logs = autoregressive.log_prob(levels.to_frame(), n_draws=2)
    assert logs.isna().sum() == 0
    assert np.exp(logs).sum() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.slow
def test_levels_come_out_as_often_as_they_are_held(frames, autoregressive) -> None:
    real = frames["agency"]["zip"]
    drawn = autoregressive.sample(150_000)["zip"]  # whose standard error is .0007
    assert set(drawn.dropna()) == set(real.dropna())
    assert total_variation(real.fillna("none"), drawn.fillna("none")) < 0.08
    probable = np.exp(autoregressive.log_prob(pd.DataFrame({"zip": ["00000"]}))).iloc[0]
    assert probable == pytest.approx((drawn == "00000").mean(), abs=0.003)


def test_conditions_and_completion_know_levels(autoregressive) -> None:
    some = autoregressive.sample(40, conditions={"zip": ["00017", "00299", None]})
    assert set(some["zip"].fillna("none")) <= {"00017", "00299", "none"}
    asked = pd.DataFrame({"zip": ["00033", None] * 10, "income": [1.0, 20.0] * 10})
    done = autoregressive.complete(asked)
    assert done["zip"].notna().all()
    assert (done["zip"][::2] == "00033").all()


def test_files_draw_the_same(autoregressive, tmp_path) -> None:
    expected = autoregressive.sample(50, random_state=3)
    autoregressive.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    pd.testing.assert_frame_equal(loaded.sample(50, random_state=3), expected)


@pytest.mark.slow
def test_a_replica_equals_the_model_alone(frames) -> None:
    small = {"protocol": "one_message", "hidden": 4, "n_features": 8, "epochs": 1}
    synth = AutoregressiveSynthesizer(**small, **FAST, **ZIP)
    together = synth.fit_replicas(frames, "id", random_states=[5, 6])
    alone = synth.set_params(random_state=6).fit(frames, "id")
    one, other = (m.sample(200, random_state=0)["zip"] for m in (together[1], alone))
    assert (one.fillna("") == other.fillna("")).mean() > 0.98  # they differ by rounding


@pytest.mark.parametrize(
    "synth",
    [
        VFLGANSynthesizer(epochs=1, **FAST, **ZIP),
        GaussianCopulaSynthesizer(**ZIP),
        IndependentSynthesizer(**ZIP),
        *later(WGANGPSynthesizer(epochs=1, **FAST, **ZIP)),
    ],
    ids=lambda synth: type(synth).__name__,
)
def test_other_models_have_their_levels_right(frames, synth, tmp_path) -> None:
    real = frames["agency"]["zip"]
    synth.fit(frames, on="id")
    drawn = synth.sample(20_000, random_state=0)["zip"]
    assert set(drawn.dropna()) <= set(real.dropna())
    assert total_variation(real.fillna("none"), drawn.fillna("none")) < 0.1
    synth.save(tmp_path / "model")
    one, other = (m.sample(500, random_state=0)["zip"] for m in (synth, load(tmp_path / "model")))
    pd.testing.assert_series_equal(one, other)


def test_a_contract_publishes_a_public_list(frames) -> None:
    listed = [f"{i:05d}" for i in range(0, 900)]
    column = ColumnContract(kind="categorical", categories=listed)
    contract = Contract({"agency": PartyContract({"zip": column})})
    table = frames["agency"].copy()
    table.loc[:7, "zip"] = [f"{i:05d}" for i in range(400, 880, 60)]  # of one record each
    synth = IndependentSynthesizer(contract=contract, random_state=0)
    drawn = synth.fit(frames | {"agency": table}, on="id").sample(300_000)["zip"]
    assert set(drawn.dropna()) <= set(listed)
    counts = drawn.value_counts()
    assert counts[counts.index > "00400"].max() < 20  # as nobody's; by itself it has 160
    assert len(counts) > 800
    assert total_variation(table["zip"].fillna("none"), drawn.fillna("none")) < 0.05
