"""Columns without any value: an error, but in private fits, which must not tell."""

import numpy as np
import pandas as pd
import pytest

from vflsynth import (
    DPSGDGAN,
    GSWGAN,
    DPLTSynthesizer,
    LatentTree,
    VFLGANSynthesizer,
    WGANGPSynthesizer,
)
from vflsynth.exceptions import EmptyColumnError
from vflsynth.mechanisms import DPSGD, FirstLayer
from vflsynth.privacy import PublicSchema

pytestmark = pytest.mark.usefixtures("short_searches")

N = 60
SCHEMA = PublicSchema(
    dtypes="given",
    bounds={"age": (0, 100), "dose": (0, 9), "visits": (0, 9)},
    categories={
        "ill": (False, True),
        "grade": ("low", "high"),
        "smoker": (False, True),
        "town": ("a", "b"),
    },
)
EMPTY = ["dose", "visits", "grade", "smoker", "town"]
SMALL = {"epochs": 1, "batch_size": 8, "device": "cpu", "random_state": 0, "verbose": 0}


@pytest.fixture
def frames():
    """Most columns have no value, in every dtype that can say so."""
    rng = np.random.default_rng(0)
    nothing = [None] * N
    return {
        "lab": pd.DataFrame(
            {
                "age": rng.uniform(20, 80, N),
                "dose": np.full(N, np.nan),
                "grade": pd.Categorical(nothing, ["low", "high"], ordered=True),
            }
        ),
        "clinic": pd.DataFrame(
            {
                "ill": rng.random(N) < 0.5,
                "visits": pd.array(nothing, "Int64"),
                "smoker": pd.array(nothing, "boolean"),
                "town": pd.Series(nothing, dtype=object),
            }
        ),
    }


def gan(kind, mechanism, **parameters):
    def make(epsilon):
        values = {"n_bins": 8, "epsilon": epsilon, "delta": 1e-3, "public_schema": SCHEMA}
        return kind(privacy=mechanism(**values | parameters), **SMALL)

    return make


def dplt(epsilon):
    privacy = LatentTree(epsilon=epsilon, delta=1e-3, public_schema=SCHEMA, n_bins=8)
    return DPLTSynthesizer(privacy=privacy, random_state=0)


GIVEN = {"epsilon": None, "noise_multiplier": 3.0}  # to calibrate it takes longer than to fit
PRIVATE = {
    "dpsgd": gan(VFLGANSynthesizer, DPSGD, n_records=N, **GIVEN),
    "joined dpsgd": gan(WGANGPSynthesizer, DPSGD, n_records=N, **GIVEN),
    "dpsgd_gan": gan(WGANGPSynthesizer, DPSGDGAN, **GIVEN),
    "gs_wgan": gan(WGANGPSynthesizer, GSWGAN, n_shards=2, **GIVEN),
    "DPLT": dplt,
}


@pytest.mark.parametrize("method", PRIVATE)
def test_private_fits_do_not_tell_that_a_column_has_no_value(frames, method):
    """Whether it has one may depend on a single record, and an error would have no noise."""
    table = PRIVATE[method](3.0).fit(frames).sample(100, random_state=0)
    assert list(table) == [column for frame in frames.values() for column in frame]
    for frame in frames.values():
        pd.testing.assert_series_equal(table[list(frame)].dtypes, frame.dtypes)


def test_with_little_noise_the_histograms_say_that_all_is_missing(frames):
    synth = dplt(500.0).fit(frames)
    columns = {
        label: column
        for party in synth.parties_.values()
        for label, column in party.transformer.transformers_.items()
    }
    assert min(columns[label].histogram_.missing_share for label in EMPTY) > 0.9


def test_private_fits_do_not_tell_that_no_matched_record_has_a_value(frames):
    lab = frames["lab"].assign(dose=[3.0] * 10 + [np.nan] * (N - 10), key=range(N))
    clinic = frames["clinic"].assign(key=range(10, N + 10))
    synth = dplt(3.0).fit({"lab": lab, "clinic": clinic}, on="key")
    assert len(synth.sample(10)) == 10


def test_fits_without_privacy_do(frames):
    with pytest.raises(EmptyColumnError, match="'dose'"):
        VFLGANSynthesizer(**SMALL).fit(frames)
    privacy = FirstLayer(epsilon=1.0, delta=1e-3)
    with (
        pytest.warns(match="does not protect the synthetic data"),
        pytest.raises(EmptyColumnError, match="'dose'"),
    ):
        VFLGANSynthesizer(privacy=privacy, **SMALL).fit(frames)
