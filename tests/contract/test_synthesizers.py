"""Laws of every synthesizer: whatever it learns and however, it behaves like this."""

import inspect
import random
import re

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from vflsynth.columns import TableTransformer
from vflsynth.datasets import make_party_frames
from vflsynth.exceptions import KeyTypeError, ParameterError
from vflsynth.synthesizers import (
    GaussianCopulaSynthesizer,
    IndependentSynthesizer,
    VertiGANSynthesizer,
    VFLGANSynthesizer,
    WGANGPSynthesizer,
)

GAN = {
    "epochs": 2,
    "batch_size": 16,
    "latent_dim": 4,
    "generator_hidden": (8, 8),
    "discriminator_steps": 2,
    "device": "cpu",
    "verbose": 0,
}
CUT = GAN | {"first_part": (8,), "shared_hidden": (8,)}
# To be extended by every new synthesizer: a name, a class, and parameters that make it fast.
SYNTHESIZERS = {
    "VFLGAN": (VFLGANSynthesizer, CUT),
    "VFLGAN-base": (
        VFLGANSynthesizer,
        CUT | {"private_heads": False, "gradient_penalty": "paper", "generator_average": 0.0},
    ),
    "VFLGAN, last epoch": (
        VFLGANSynthesizer,
        CUT | {"model_selection": "last", "bias": False, "batch_norm_eps": None},
    ),
    "VertiGAN": (VertiGANSynthesizer, GAN | {"discriminator_hidden": (8,)}),
    "WGAN-GP": (WGANGPSynthesizer, GAN | {"discriminator_hidden": (8,)}),
    "Gaussian copula": (GaussianCopulaSynthesizer, {}),
    "independent": (IndependentSynthesizer, {}),
}
N_RECORDS = 61


def make(name, **parameters):
    kind, fast = SYNTHESIZERS[name]
    return kind(**{"random_state": 0} | fast | parameters)


def zoo():
    """Three parties with every dtype, as one would meet them; the index is the key."""
    rng = np.random.default_rng(3)
    keys = pd.Index([f"p{i:03d}" for i in rng.permutation(N_RECORDS)], name="person")
    n = N_RECORDS

    def holes(values):
        return pd.Series(values).mask(rng.random(n) < 0.2).array

    integers = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
    levels = ["low", "middle", "high", "never"]
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), "D")
    numbers = {name: rng.integers(0, 100, n).astype(name) for name in integers}
    numbers |= {
        "float32": rng.normal(size=n).astype("float32"),
        "float64": rng.normal(size=n),
        "float with NaN": np.where(rng.random(n) < 0.3, np.nan, rng.normal(size=n)),
        "zero-inflated": np.where(rng.random(n) < 0.5, 0.0, rng.exponential(size=n)),
    }
    nullable = {
        "Int64": holes(pd.array(rng.integers(0, 50, n), "Int64")),
        "UInt8": holes(pd.array(rng.integers(0, 50, n), "UInt8")),
        "Float64": holes(pd.array(rng.normal(size=n), "Float64")),
        "boolean": holes(pd.array(rng.random(n) < 0.5, "boolean")),
        "string": holes(pd.array(rng.choice(["x", "y", "zz"], n), "string")),
        "bool": rng.random(n) < 0.3,
    }
    labels = {
        7: pd.Categorical(rng.choice(levels[:3], n), levels),
        8: pd.Categorical(rng.choice(levels[:3], n), levels, ordered=True),
        0: days,
        1: days.tz_localize("Europe/Berlin"),
        2: pd.Series(days).mask(rng.random(n) < 0.2).array,
        "object": rng.choice(np.array(["r", "s"], dtype=object), n),
        "constant": np.full(n, 3),
    }
    frames = {"numbers": numbers, "nullable": nullable, "labels": labels}
    return {
        party: pd.DataFrame(columns, index=keys).sample(frac=1, random_state=i)
        for i, (party, columns) in enumerate(frames.items())
    }


@pytest.fixture(scope="module", params=list(SYNTHESIZERS))
def name(request):
    return request.param


@pytest.fixture(scope="module")
def fitted(name):
    return make(name).fit(zoo())


def equal(one, other):
    pd.testing.assert_frame_equal(one, other, check_exact=True)


# -- estimators ---------------------------------------------------------------------------------


def test_init_only_stores_its_arguments(name):
    kind, _ = SYNTHESIZERS[name]
    signature = inspect.signature(kind.__init__).parameters
    marks = {parameter: object() for parameter in signature if parameter != "self"}
    synth = kind(**marks)
    assert synth.get_params(deep=False) == marks
    assert vars(synth) == marks
    assert all(p.kind is p.KEYWORD_ONLY for n, p in signature.items() if n != "self")


def test_clone_and_set_params_round_trip(name):
    synth = make(name, column_kinds={"a": "integer"}, transformer=TableTransformer())
    copied = clone(synth)
    assert repr(copied) == repr(synth)
    assert copied.set_params(**synth.get_params(deep=False)) is copied
    assert copied.get_params(deep=False) == synth.get_params(deep=False)
    with pytest.raises(ValueError, match="Invalid parameter"):
        synth.set_params(epoch=3)


@pytest.mark.parametrize("method", ["sample", "save"])
def test_not_fitted(name, method, tmp_path):
    with pytest.raises(NotFittedError):
        getattr(make(name), method)(*([3] if method == "sample" else [tmp_path / "model"]))


def test_fit_returns_self_and_leaves_its_inputs_alone(name):
    frames, before = zoo(), zoo()
    synth = make(name, column_kinds={"int8": "categorical"}, transformer=TableTransformer())
    parameters = {k: repr(v) for k, v in synth.get_params(deep=True).items()}
    assert synth.fit(frames) is synth
    assert list(frames) == list(before)
    for party, frame in frames.items():
        equal(frame, before[party])
    assert {k: repr(v) for k, v in synth.get_params(deep=True).items()} == parameters
    assert not hasattr(synth.transformer, "spans_")


def test_attributes_are_the_documented_ones(fitted):
    documented = set()
    for kind in type(fitted).__mro__:
        section = (kind.__doc__ or "").partition("Attributes\n    ----------\n")[2]
        documented |= set(re.findall(r"^    (\w+_) : ", section.partition("\n\n    ")[0], re.M))
    actual = {attribute for attribute in vars(fitted) if re.fullmatch(r"[a-z].*_", attribute)}
    assert actual == documented


def test_fit_forgets_the_previous_fit(name):
    frames = make_party_frames(40, 2, random_state=1)
    fresh = make(name).fit(frames, on="record_id")
    again = make(name).fit(zoo())
    again.sample(3)
    again.fit(frames, on="record_id")
    equal(again.sample(9), fresh.sample(9))
    assert list(again.parties_) == ["party_1", "party_2"]
    assert list(again.history_.columns) == list(fresh.history_.columns)


def test_a_failed_fit_keeps_the_model(name):
    synth = make(name).fit(make_party_frames(40, 2, random_state=1), on="record_id")
    before = synth.sample(5, random_state=1)
    with pytest.raises(Exception, match="party"):
        synth.fit({"party": pd.DataFrame({"a": [np.nan] * 40})})
    equal(synth.sample(5, random_state=1), before)


def test_same_random_state_same_bytes_different_seed_different_result(name, fitted):
    same = make(name).fit(zoo())
    equal(same.sample(20), clone(same).fit(zoo()).sample(20))
    drop = {"seconds"}
    history = [synth.history_.drop(columns=drop, errors="ignore") for synth in (same, fitted)]
    equal(*history)
    other = make(name, random_state=1).fit(zoo())
    assert not other.sample(20).equals(make(name).fit(zoo()).sample(20))


@pytest.mark.parametrize("make_state", [np.random.default_rng, np.random.RandomState])
def test_generators_as_random_state(name, make_state):
    frames = make_party_frames(40, 2, random_state=1)
    one, other = (make(name, random_state=make_state(5)).fit(frames, "record_id") for _ in "ab")
    equal(one.sample(5), other.sample(5))
    unseeded = [make(name, random_state=None).fit(frames, "record_id") for _ in "ab"]
    assert not unseeded[0].sample(20).equals(unseeded[1].sample(20))


def test_global_random_state_is_neither_read_nor_changed(name):
    frames = make_party_frames(40, 2, random_state=1)
    results = []
    for seed in (1, 2):
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002 (the global state is what is tested)
        torch.manual_seed(seed)
        before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # noqa: NPY002
        results.append(make(name).fit(frames, on="record_id").sample(9))
        assert random.getstate() == before[0]
        assert np.random.get_state()[1].tolist() == before[1]  # noqa: NPY002
        assert torch.equal(torch.get_rng_state(), before[2])
    equal(*results)


# -- samples ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 7])
def test_samples_look_like_the_party_frames(fitted, n):
    frames = zoo()
    table = fitted.sample(n)
    expected = pd.concat([frame.reset_index(drop=True) for frame in frames.values()], axis=1)
    assert len(table) == n
    assert table.columns.tolist() == expected.columns.tolist()
    assert table.dtypes.tolist() == expected.dtypes.tolist()  # categories and their order, too
    assert isinstance(table.index, pd.RangeIndex)
    assert table.index.name == "person"
    for column in table:
        known = expected[column].dropna()
        if table[column].dtype.kind in "iufM":
            assert table[column].dropna().between(known.min(), known.max()).all()
        else:
            assert set(table[column].dropna()) <= set(known)
    assert not table[["int8", "bool", 7, 0, "object"]].isna().any(axis=None)


def test_n_must_be_a_whole_number(fitted):
    for n in (-1, 2.0, "3", None, True):
        with pytest.raises(
            ParameterError, match=re.escape(f"n must be a whole number ≥ 0, got {n!r}")
        ):
            fitted.sample(n)
    assert len(fitted.sample(np.int64(3))) == 3


def test_two_samples_differ_and_a_seeded_one_repeats(fitted):
    assert not fitted.sample(20).equals(fitted.sample(20))
    equal(fitted.sample(20, random_state=4), fitted.sample(20, random_state=4))
    assert not fitted.sample(20, random_state=4).equals(fitted.sample(20, random_state=5))


def test_a_longer_sample_begins_like_a_shorter_one(fitted):
    equal(fitted.sample(20, random_state=4).head(3), fitted.sample(3, random_state=4))


def test_samples_longer_than_a_block(fitted):
    table = fitted.sample(8_200, random_state=4)
    assert len(table) == 8_200
    equal(table.head(5), fitted.sample(5, random_state=4))
    tail = table.tail(8)
    assert not tail.reset_index(drop=True).equals(table.head(8).reset_index(drop=True))


def test_parts_are_the_table(fitted):
    parts = fitted.sample(9, by_party=True, random_state=4)
    assert list(parts) == ["numbers", "nullable", "labels"]
    equal(pd.concat(parts.values(), axis=1), fitted.sample(9, random_state=4))
    for party, part in parts.items():
        equal(fitted.parties_[party].sample(9, random_state=4), part)


def test_fresh_keys_in_the_index(fitted):
    table = fitted.sample(30, keys=True)
    assert table.index.name == "person"
    assert table.index.is_unique
    assert not table.index.isin(zoo()["numbers"].index).any()
    parts = fitted.sample(30, keys=True, by_party=True)
    for part in parts.values():
        assert part.index.equals(table.index)


def test_fresh_keys_in_the_key_column(name):
    frames = make_party_frames(40, 2, random_state=1)
    synth = make(name).fit(frames, on="record_id")
    table = synth.sample(30, keys=True, random_state=1)
    assert table.columns[0] == "record_id"
    assert table["record_id"].dtype == frames["party_1"]["record_id"].dtype
    assert table["record_id"].is_unique
    for frame in frames.values():
        assert not table["record_id"].isin(frame["record_id"]).any()
    parts = synth.sample(30, keys=True, by_party=True, random_state=1)
    joined = parts["party_1"].merge(parts["party_2"], on="record_id", validate="one_to_one")
    equal(joined, table)
    assert "record_id" not in synth.sample(3).columns


def test_keys_that_have_run_out(name):
    frame = pd.DataFrame({"id": np.arange(100, dtype="int8"), "x": np.arange(100.0)})
    synth = make(name).fit({"a": frame}, on="id")
    assert synth.sample(20, keys=True)["id"].dtype == "int8"
    with pytest.raises(KeyTypeError, match="int8"):
        synth.sample(60, keys=True)


# -- parties ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_parties", [1, 2, 3, 5])
def test_any_number_of_parties(name, n_parties):
    frames = make_party_frames(40, n_parties, random_state=1, n_unmatched=3)
    synth = make(name).fit(frames, on="record_id")
    table = synth.sample(6)
    assert table.shape == (6, 10 * n_parties)
    assert synth.alignment_.n_matched == (40 if n_parties > 1 else 43)


def test_the_order_of_the_parties_changes_no_value(name, fitted):
    frames = zoo()
    turned = make(name).fit(dict(reversed(frames.items())))
    table = make(name).fit(frames).sample(20)
    other = turned.sample(20)
    assert other.columns.tolist() == [
        *frames["labels"].columns,
        *frames["nullable"].columns,
        *frames["numbers"].columns,
    ]
    equal(other[table.columns], table)


def test_the_order_of_rows_changes_no_value(name):
    frames = make_party_frames(40, 2, random_state=1)
    shuffled = {k: v.sample(frac=1, random_state=9) for k, v in frames.items()}
    one, other = (make(name).fit(f, on="record_id").sample(20) for f in (frames, shuffled))
    equal(one, other)


def test_names_of_columns_change_no_value(name):
    frames = make_party_frames(40, 2, random_state=1)
    renamed = {
        k: v.rename(columns={c: f"{c} renamed" for c in v if c != "record_id"})
        for k, v in frames.items()
    }
    one, other = (make(name).fit(f, on="record_id").sample(20) for f in (frames, renamed))
    equal(other.rename(columns=lambda c: c.removesuffix(" renamed")), one)


def test_a_party_whose_columns_are_all_constant(name):
    """Its encoded width is 0."""
    frames = {
        "a": pd.DataFrame({"x": np.full(40, 2.5), "y": ["same"] * 40}),
        "b": pd.DataFrame({"z": np.arange(40)}),
    }
    table = make(name).fit(frames).sample(5)
    assert table["x"].tolist() == [2.5] * 5
    assert table["y"].tolist() == ["same"] * 5


def test_nothing_but_constants(name):
    frames = {p: pd.DataFrame({f"{p}x": np.full(40, 1)}) for p in "ab"}
    assert make(name).fit(frames).sample(3).to_numpy().tolist() == [[1, 1]] * 3


@pytest.mark.parametrize("values", [np.arange(40.0), ["u", "v"] * 20, [True, False] * 20])
def test_a_single_party_with_a_single_column(name, values):
    table = make(name).fit({"a": pd.DataFrame({"x": values})}).sample(5)
    assert table.shape == (5, 1)
    assert table["x"].dtype == pd.Series(values).dtype


def test_declared_kinds_are_used(name):
    frames = make_party_frames(40, 2, random_state=1)
    synth = make(name, column_kinds={"score_1": "continuous"}).fit(frames, on="record_id")
    assert synth.parties_["party_1"].transformer.kinds_["score_1"] == "continuous"
    assert synth.parties_["party_2"].transformer.kinds_["score_2"] == "integer"


# -- artefacts ----------------------------------------------------------------------------------


def test_save_and_load_go_on_with_the_same_samples(name, tmp_path):
    synth = make(name, random_state=None, column_kinds={0: "datetime"}).fit(zoo())
    synth.sample(2)
    synth.save(tmp_path / "model")
    loaded = type(synth).load(tmp_path / "model", device="cpu")
    equal(loaded.history_, synth.history_)
    assert loaded.alignment_ == synth.alignment_
    assert loaded.interrupted_ is False
    assert list(loaded.parties_) == list(synth.parties_)
    equal(loaded.sample(20), synth.sample(20))
    equal(loaded.sample(20, keys=True), synth.sample(20, keys=True))


def test_a_loaded_model_can_be_fitted_again(name, tmp_path):
    """All parameters are saved, the encoding's too."""
    transformer = TableTransformer({"amount_1": "continuous"}, continuous="quantile")
    kinds = {"count_1": "continuous"}
    synth = make(name, transformer=transformer, column_kinds=kinds)
    frames = make_party_frames(40, 2, random_state=1)
    synth.fit(frames, on="record_id").save(tmp_path / "model")
    loaded = type(synth).load(tmp_path / "model", device="cpu")
    assert repr(loaded.get_params()) == repr(synth.get_params())
    equal(
        loaded.fit(frames, on="record_id").sample(9),
        clone(synth).fit(frames, "record_id").sample(9),
    )
