"""The classifiers as their users meet them: frames of several parties, quitting, saving, errors."""

from __future__ import annotations

import signal
from functools import cache

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.callbacks import CtrlC, StopAfter
from tests.later import later
from vflsynth import registry
from vflsynth.columns import TableTransformer
from vflsynth.exceptions import (
    ArtefactError,
    ColumnNameError,
    MissingKeyError,
    ParameterError,
    PartyDataError,
    PartyNameError,
    TableFileError,
)
from vflsynth.protocol.channel import LocalChannel
from vflsynth.run import local
from vflsynth.splitdefense import (
    DIMIP,
    CutShiftClassifier,
    DIMIPClassifier,
    DistanceCorrelation,
    GAFMClassifier,
    Isotropic,
    LeakageMonitor,
    MaliciousSGD,
    Marvell,
    MarvellClassifier,
    MaxNorm,
    Protection,
    RandomizedResponse,
    SplitNNClassifier,
    column_attacks,
    method,
)
from vflsynth.splitdefense.active import SplitLearning
from vflsynth.splitdefense.leakage import columns

FAST = {"epochs": 12, "learning_rate": 5e-3, "random_state": 0}
CLASSIFIERS = {
    "plain": SplitNNClassifier(active="bank", **FAST),
    "isotropic": SplitNNClassifier(active="bank", protection=Isotropic(1.0), **FAST),
    "max norm": SplitNNClassifier(active="bank", protection=MaxNorm(), **FAST),
    "Marvell": MarvellClassifier(active="bank", **FAST),
    "DIMIP": DIMIPClassifier(active="bank", predictor_steps=2, **FAST),
    "DIMIP, prior": DIMIPClassifier(active="bank", bound="prior", **FAST),
    "distance correlation": SplitNNClassifier(
        active="bank", objective=DistanceCorrelation(), **FAST
    ),
    "label privacy": SplitNNClassifier(
        active="bank", label_privacy=RandomizedResponse(3.0), **FAST
    ),
    "GAFM": GAFMClassifier(active="bank", **(FAST | {"epochs": 60})),
    "GAFM and Marvell": GAFMClassifier(
        active="bank", protection=Marvell(1.0), **(FAST | {"epochs": 60})
    ),
}


def auc(classifier, frames, y, **options):
    probabilities = classifier.predict_proba(frames, **options)
    return roc_auc_score(y == classifier.classes_[1], probabilities[:, 1])


@pytest.fixture(scope="module")
def fitted(tables):
    """Classifiers by name, for tests that only read them."""
    return cache(lambda name: clone(CLASSIFIERS[name]).fit(*tables, on="id"))


LATER = ["max norm", "DIMIP, prior", "GAFM and Marvell"]


@pytest.mark.parametrize("name", [*(n for n in CLASSIFIERS if n not in LATER), *later(*LATER)])
def test_learns_from_parties_with_keys(tables, fitted, name):
    frames, y = tables
    classifier = fitted(name)
    assert list(classifier.classes_) == ["benign", "malignant"]
    assert auc(classifier, frames, y) > 0.9
    probabilities = classifier.predict_proba(frames)
    assert np.allclose(probabilities.sum(1), 1)
    assert abs(probabilities[:, 1].mean() - (y == "malignant").mean()) < 0.1
    assert set(classifier.evidence_) == {"shop", "web"}


def test_rows_of_other_parties_are_matched_by_key(tables):
    frames, y = tables
    classifier = SplitNNClassifier(active="bank", **FAST).fit(frames, y, on="id")
    some = frames["bank"].sample(50, random_state=0)
    expected = classifier.predict_proba(frames)[some.index]
    assert np.allclose(classifier.predict_proba(frames | {"bank": some}), expected)


def test_small_numbers_of_numpy_count_as_python_s(tables):
    """Products of sizes and of epochs overflowed."""
    frames, labels = tables
    sizes = {"bottom_hidden": (200, 9), "intermediate_dim": 100, "batch_size": 200, "epochs": 3}
    small = {"bottom_hidden": (np.uint8(200), np.int8(9)), "intermediate_dim": np.int8(100)}
    small |= {"batch_size": np.uint8(200), "epochs": np.int8(3)}
    own, other = (
        SplitNNClassifier(active="bank", random_state=0, **asked).fit(frames, labels, on="id")
        for asked in (sizes, small)
    )
    np.testing.assert_array_equal(own.predict_proba(frames), other.predict_proba(frames))
    assert other.intermediate_dim.dtype == np.int8


def test_labels_only(tables):
    """The active party has no columns; its labels are found by their keys."""
    frames, y = tables
    keyed = pd.Series(y.to_numpy(), index=frames["bank"]["id"]).sample(frac=1, random_state=0)
    classifier = SplitNNClassifier(**FAST).fit(frames, keyed, on="id")
    assert set(classifier.evidence_) == {"bank", "shop", "web"}
    assert auc(classifier, frames, y) > 0.97
    with pytest.raises(PartyDataError, match="labels without keys"):
        SplitNNClassifier(**FAST).fit(frames, y.to_numpy(), on="id")


def test_standalone(tables):
    """No passive party at all: nothing crosses a boundary."""
    frames, y = tables
    classifier = SplitNNClassifier(active="bank", **FAST)
    classifier.fit({"bank": frames["bank"]}, y, on="id", transcript=True)
    assert auc(classifier, {"bank": frames["bank"]}, y) > 0.9
    assert classifier.evidence_ == {}
    crossed = {"Hello", "Terms", "KeyList", "AlignmentNotice", "EncodedSizes"}
    assert set(classifier.transcript_["message"]) == crossed


def test_only_features_and_cut_gradients_cross(tables):
    classifier = MarvellClassifier(active="bank", **FAST).fit(*tables, on="id", transcript=True)
    found = classifier.transcript_
    before = ["Terms", "AlignmentNotice", "EncodedSizes"]
    to_passive = found[(found["sender"] == "server") & ~found["message"].isin(before)]
    assert set(to_passive["message"]) == {"BottomGradients"}
    assert set(to_passive["contents"]) == {"gradients (1, 256, 16)"}


@pytest.mark.parametrize("fusion", ["sum", "mean"])
def test_parties_that_are_added_get_the_same_noise(tables, fusion, monkeypatch):
    seen = []

    class Spy(LocalChannel):
        def scatter(self, messages):
            seen.append([m.gradients for m in messages.values() if hasattr(m, "gradients")])
            super().scatter(messages)

    monkeypatch.setattr(local, "LocalChannel", Spy)
    classifier = SplitNNClassifier(active="bank", fusion=fusion, protection=Marvell(), **FAST)
    classifier.fit(*tables, on="id")
    pairs = [gradients for gradients in seen if len(gradients) == 2]
    assert len(pairs) > 10
    assert all(a.equal(b) for a, b in pairs)


def test_protection_changes_neither_batches_nor_initial_weights(tables):
    plain, protected = (
        SplitNNClassifier(active="bank", protection=protection, **(FAST | {"epochs": 1}))
        .fit(*tables, on="id")
        .evidence_["shop"]
        for protection in (None, Marvell(4.0))
    )
    assert np.array_equal(plain.random_features, protected.random_features)
    assert not np.array_equal(plain.features, protected.features)


# -- parties that quit ---------------------------------------------------------------------------


def test_party_that_quits(tables):
    frames, y = tables
    classifier = SplitNNClassifier(active="bank", party_dropout={"shop": 0.3}, **FAST)
    classifier.fit(frames, y, on="id")
    left = {name: frame for name, frame in frames.items() if name != "shop"}
    absent = classifier.predict_proba(left, absent={"shop"})
    assert np.array_equal(absent, classifier.predict_proba(left | {"shop": None}))
    assert auc(classifier, left, y, absent={"shop"}) > 0.9
    with pytest.raises(PartyDataError, match="shop"):
        classifier.predict_proba(left)
    assert np.array_equal(absent, classifier.predict_proba(left, absent="shop"))
    with pytest.raises(PartyNameError, match="no such party"):
        classifier.predict_proba(frames, absent={"store"})
    with pytest.raises(PartyNameError, match="party 'store'"):
        classifier.predict_proba(frames, absent="store")


@pytest.mark.slow
def test_dropout_and_heads_help_those_who_stay(digits):
    """DIMIP §5.3: both keep accuracy when the passive party quits; plain training does not."""
    frames, y = digits
    options = {"active": "left", "epochs": 15, "learning_rate": 3e-3, "random_state": 0}
    plain = SplitNNClassifier(**options).fit(frames, y)
    dropout = SplitNNClassifier(party_dropout=0.3, **options).fit(frames, y)
    heads = SplitNNClassifier(absent="multihead", **options).fit(frames, y)
    quit_accuracy = [
        (c.predict(frames, absent={"right"}) == y).mean() for c in (plain, dropout, heads)
    ]
    assert min(c.score(frames, y) for c in (plain, dropout, heads)) > 0.95
    assert min(quit_accuracy[1:]) > quit_accuracy[0] + 0.05


def test_heads_are_limited():
    frames = {f"party {i}": pd.DataFrame({f"x{i}": np.arange(20.0)}) for i in range(5)}
    with pytest.raises(ParameterError, match="limited to 4 parties"):
        SplitNNClassifier(active="party 0", absent="multihead").fit(frames, np.arange(20) % 2)


# -- several classes -----------------------------------------------------------------------------


@pytest.mark.parametrize("objective", [DIMIP(0.05), *later(None, DistanceCorrelation(0.01))])
def test_many_classes(digits, objective):
    classifier = SplitNNClassifier(
        active="left", objective=objective, protection=Isotropic(1.0), **FAST
    ).fit(*digits)
    assert classifier.score(*digits) > 0.85


def test_who_knows_two_classes_only_says_so(digits):
    with pytest.raises(ParameterError, match="Only binary classification is supported by Marvell"):
        MarvellClassifier(active="left").fit(*digits)
    with pytest.raises(ParameterError, match="GAFM"):
        GAFMClassifier(active="left").fit(*digits)


# -- replicas ------------------------------------------------------------------------------------


def test_replicas_are_what_separate_fits_are(tables):
    frames, y = tables
    base = MarvellClassifier(active="bank", **FAST)
    parameters = [{}, {}, {"power_scale": 16.0}]
    many = base.fit_replicas(frames, y, on="id", random_states=[0, 1, 0], parameters=parameters)
    for model in many:
        alone = clone(model).fit(frames, y, on="id")
        close = np.abs(model.predict_proba(frames) - alone.predict_proba(frames))
        assert close.max() < 1e-2, "rounding may grow in training, draws may not differ"
        assert np.median(close) < 1e-4


def test_replicas_share_networks(tables):
    with pytest.raises(ParameterError, match="same networks"):
        SplitNNClassifier(active="bank").fit_replicas(
            *tables, on="id", random_states=[0, 1], parameters=[{}, {"top_hidden": (8,)}]
        )
    with pytest.raises(ParameterError, match="structure of the objective"):
        DIMIPClassifier(active="bank").fit_replicas(
            *tables, on="id", random_states=[0, 1], parameters=[{}, {"predictor_steps": 2}]
        )


# -- scikit-learn --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def joined():
    """One table of breast cancer with its labels, and the columns of two parties."""
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    return X, y, {"bank": list(X.columns[:8]), "shop": list(X.columns[8:])}


def test_grid_search_reaches_into_protections(joined):
    X, y, columns = joined
    base = SplitNNClassifier(
        party_columns=columns, active="bank", protection=Marvell(), **(FAST | {"epochs": 3})
    )
    search = GridSearchCV(base, {"protection__power_scale": [1.0, 400.0]}, cv=2).fit(X, y)
    assert search.best_params_ == {"protection__power_scale": 1.0}
    assert base.protection.power_scale == 4.0, "the search changed the estimator it was given"


def test_a_refit_that_fails_leaves_the_classifier_as_it_was(joined):
    X, y, columns = joined
    classifier = GAFMClassifier(party_columns=columns, epochs=2, random_state=0).fit(X, y)
    before = classifier.predict_proba(X)
    frames = {"bank": X[columns["bank"]], "shop": X[columns["shop"]]}
    with pytest.raises(ColumnNameError):
        classifier.fit(X[columns["bank"]], y)
    with pytest.raises(MissingKeyError):
        classifier.fit(frames, y, on="id")
    with pytest.raises(ParameterError):
        classifier.set_params(pseudo_label_margin="auto").fit(X, np.arange(len(y)) % 3)
    assert (classifier.predict_proba(X) == before).all()
    assert classifier.feature_names_in_.tolist() == list(X)
    assert classifier.pseudo_label_margin_ == 0.05


def test_numbers_too_large_for_single_precision_are_far_out_and_no_more():
    X = pd.DataFrame({"x": np.random.default_rng(0).normal(size=200)})
    classifier = SplitNNClassifier(epochs=2, random_state=0).fit(X, X["x"] > 0)
    far = pd.DataFrame({"x": [1e30, 1e300, -1e30, -1e300]})
    assert classifier.predict_proba(far).argmax(1).tolist() == [1, 1, 0, 0]
    assert np.isfinite(classifier.predict_proba(far)).all()


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("party_columns", ["age"], "must be None or a mapping of party to list of columns, got"),
        ("party_columns", {"shop": "x"}, "must be None or a mapping of party to list of columns"),
        ("party_columns", {"shop": 5}, "must be None or a mapping of party to list of columns"),
        ("malicious", ["shop"], "must be None or a mapping of party to MaliciousSGD, got"),
        ("classes", 5, "cannot be .* Fix: give .*sequence"),
        ("class_weight", [1, 2], "cannot be .* Fix: give .*'balanced'"),
        ("objective", "GAFM", "cannot be .* Fix: give .*an Objective"),
    ],
)
def test_parameters_of_another_type_are_named(name, value, says):
    X = pd.DataFrame({"x": [1.0, 2.0]})
    with pytest.raises(ParameterError, match=f"{name} {says}"):
        SplitNNClassifier(**{name: value}).fit(X, [0, 1])
    with pytest.raises(ParameterError, match="class_weight of 0 must be a number"):
        SplitNNClassifier(class_weight={0: "high"}).fit(X, [0, 1])


def test_replicas_leave_the_classifier_that_they_are_clones_of_as_it_was(joined):
    X, y, columns = joined
    classifier = SplitNNClassifier(party_columns=columns, epochs=2, random_state=0).fit(X, y)
    before = classifier.predict_proba(X)
    (replica,) = classifier.fit_replicas(X[X.columns[::-1]], y, random_states=[1])
    assert replica.feature_names_in_.tolist() == list(X)[::-1]
    with pytest.raises(ColumnNameError):
        classifier.fit_replicas(X[columns["bank"]], y, random_states=[1])
    assert classifier.feature_names_in_.tolist() == list(X)
    assert (classifier.predict_proba(X) == before).all()


def test_last_step_of_a_pipeline(joined):
    X, y, columns = joined
    scaler = StandardScaler().set_output(transform="pandas")
    classifier = MarvellClassifier(party_columns=columns, active="bank", **FAST)
    pipeline = make_pipeline(scaler, classifier).fit(X, y)
    assert pipeline.score(X, y) > 0.9
    assert set(pipeline[-1].evidence_) == {"shop"}


PARTLY_OWNED = {"p": ["c"], "q": ["a"]}


def half_owned_table():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(60, 3)), columns=["a", "b", "c"])
    return table.assign(b="not even a number"), (table["a"] > 0).to_numpy()


def test_columns_that_no_party_gets_are_left_out(tmp_path):
    X, y = half_owned_table()
    classifier = SplitNNClassifier(active="q", party_columns=PARTLY_OWNED, **FAST)
    assert np.isfinite(cross_val_score(classifier, X, y, cv=2)).all()
    classifier.fit(X, y).save(tmp_path / "model")
    assert classifier.n_features_in_ == 2
    assert list(classifier.feature_names_in_) == ["a", "c"]
    expected = classifier.predict_proba(X)
    assert np.array_equal(classifier.predict_proba(X[["a", "c"]]), expected)
    assert np.array_equal(SplitNNClassifier.load(tmp_path / "model").predict_proba(X), expected)
    with pytest.raises(ValueError, match="missing"):
        classifier.predict(X[["a", "b"]])
    for wrong in ({"p": ["z"]}, {"p": ["a", "z"]}):
        with pytest.raises(ColumnNameError, match=r"'p', column 'z': .* has \['a', 'b', 'c'\]"):
            SplitNNClassifier(party_columns=wrong).fit(X, y)


def test_columns_of_an_array_that_no_party_gets_are_left_out():
    X, y = half_owned_table()
    X = X.assign(b=1.0).to_numpy()
    classifier = SplitNNClassifier(active="q", party_columns={"p": [2], "q": [0]}, **FAST)
    assert np.isfinite(cross_val_score(classifier, X, y, cv=2)).all()
    classifier.fit(X, y)
    assert classifier.n_features_in_ == 3
    assert classifier.predict(X).shape == (60,)
    with pytest.raises(ValueError, match="expecting 3"):
        classifier.predict(X[:, :2])


def test_parameters_of_nested_parts():
    classifier = SplitNNClassifier(protection=Marvell())
    classifier.set_params(protection__power_scale=9.0)
    assert classifier.get_params()["protection__power_scale"] == 9.0
    assert clone(classifier).protection.power_scale == 9.0
    with pytest.raises(ParameterError, match=r"Marvell: power_scale .* got -1"):
        MarvellClassifier(power_scale=-1).fit(np.eye(4), [0, 1, 0, 1])


# -- saving and resuming -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Marvell", "GAFM", "label privacy"])
def test_save_and_load(tables, fitted, tmp_path, name):
    frames, _ = tables
    classifier = fitted(name)
    classifier.save(tmp_path / "model")
    loaded = type(classifier).load(tmp_path / "model")
    assert np.array_equal(loaded.predict_proba(frames), classifier.predict_proba(frames))
    assert str(loaded.get_params()) == str(classifier.get_params())
    assert list(loaded.predict(frames)[:5]) == list(classifier.predict(frames)[:5])
    written = b"".join(f.read_bytes() for f in (tmp_path / "model").rglob("*") if f.is_file())
    assert b"malignant" in written
    assert str(frames["bank"].iloc[0, 0]).encode() not in written, "a record was saved"
    with pytest.raises(ArtefactError, match="not a DIMIPClassifier"):
        DIMIPClassifier.load(tmp_path / "model")


def test_a_loaded_classifier_keeps_everything_and_can_be_fitted_to_the_same_bytes(tables, tmp_path):
    classifier = SplitNNClassifier(
        active="bank",
        objective=DistanceCorrelation(0.01),
        protection=Marvell(),
        label_privacy=RandomizedResponse(3.0),
        malicious={"shop": MaliciousSGD(0.01)},
        monitor=LeakageMonitor(every=5),
        party_dropout={"shop": 0.25},
        transformer=TableTransformer(continuous="quantile"),
        bottom_hidden=[8],
        **(FAST | {"epochs": 2}),
    ).fit(*tables, on="id")
    classifier.save(tmp_path / "model")
    loaded = SplitNNClassifier.load(tmp_path / "model")
    assert repr(loaded.get_params()) == repr(classifier.get_params())
    assert loaded.settings_ == classifier.settings_
    loaded.fit(*tables, on="id").save(tmp_path / "again")
    for file in (tmp_path / "model").rglob("*.safetensors"):
        again = tmp_path / "again" / file.relative_to(tmp_path / "model")
        assert again.read_bytes() == file.read_bytes()


def test_a_user_s_class_of_the_same_name_does_not_get_in_the_way(tables, tmp_path):
    classifier = SplitNNClassifier(active="bank", protection=Marvell(2.0), **(FAST | {"epochs": 1}))
    classifier.fit(*tables, on="id").save(tmp_path / "model")

    class Theirs(Protection):
        def protect(self, gradients, context):
            raise AssertionError("a saved model was given another class")

    Theirs.__name__ = Theirs.__qualname__ = "Marvell"
    known = registry._classes["protections"]
    registry.register(Theirs)
    try:
        assert type(SplitNNClassifier.load(tmp_path / "model").protection) is Marvell
    finally:
        del known[registry.full_name(Theirs)]


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_classes_that_are_times_are_saved(tables, tmp_path, unit):
    frames, y = tables
    days = np.where(y == "benign", "2020-02-29", "1969-12-31").astype(f"datetime64[{unit}]")
    classifier = SplitNNClassifier(active="bank", **(FAST | {"epochs": 1}))
    classifier.fit(frames, days, on="id").save(tmp_path / "model")
    loaded = SplitNNClassifier.load(tmp_path / "model")
    assert loaded.classes_.dtype == classifier.classes_.dtype
    assert np.array_equal(loaded.predict(frames), classifier.predict(frames))


def test_resumed_run_is_the_uninterrupted_one(tables, tmp_path):
    frames, y = tables

    def fitted(**options):
        classifier = MarvellClassifier(active="bank", device="cpu", **FAST)  # of equal bytes
        return classifier.fit(frames, y, on="id", **options)

    whole = fitted()
    fitted(callbacks=[StopAfter(5)], checkpoint=tmp_path / "run", checkpoint_every=1)
    resumed = fitted(resume=tmp_path / "run")
    assert np.array_equal(resumed.predict_proba(frames), whole.predict_proba(frames))
    ours, theirs = resumed.evidence_["shop"], whole.evidence_["shop"]
    assert np.array_equal(ours.mean_gradients, theirs.mean_gradients)
    pd.testing.assert_frame_equal(ours.batches, theirs.batches)
    with pytest.raises(ArtefactError, match="belongs to another run"):
        MarvellClassifier(active="bank", power_scale=5.0, **FAST).fit(
            frames, y, on="id", resume=tmp_path / "run"
        )


def test_what_ctrl_c_before_the_first_epoch_leaves_is_said(tables):
    with pytest.warns(RuntimeWarning, match="in epoch 2 of 12; the model so far was kept"):
        SplitNNClassifier(active="bank", **FAST).fit(*tables, on="id", callbacks=[CtrlC()])

    class BeforeTheFirst(SplitLearning):
        def begin(self):
            super().begin()
            signal.raise_signal(signal.SIGINT)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(method, "SplitLearning", BeforeTheFirst)
        with pytest.warns(RuntimeWarning, match="epoch 1 of 12; no epoch was finished") as all_:
            SplitNNClassifier(active="bank", **FAST).fit(*tables, on="id")
    assert all_[0].filename == __file__


# -- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"active": "banc"}, PartyNameError, "there are tables of 'bank', 'shop', 'web'"),
        ({"protection": "marvell"}, ParameterError, "protection cannot be 'marvell'"),
        ({"party_dropout": {"bank": 0.1}}, PartyNameError, "not passive"),
        ({"monitor": LeakageMonitor(every=0)}, ParameterError, "LeakageMonitor: every"),
        ({"monitor": "yes"}, ParameterError, "monitor cannot be 'yes'"),
        ({"betas": (0.9, 1.0)}, ParameterError, "betas must be"),
        ({"device": torch.device("cpu")}, ParameterError, "device must be .* as text"),
    ],
)
def test_options_that_cannot_be_are_named(tables, options, error, words):
    with pytest.raises(error, match=words):
        SplitNNClassifier(**{"active": "bank"} | options).fit(*tables, on="id")


def test_errors_name_the_fix(tables):
    frames, y = tables
    with pytest.raises(PartyDataError, match=r"party 'bank'.*10 labels for 569 rows"):
        SplitNNClassifier(active="bank").fit(frames, y[:10], on="id")
    with pytest.raises(PartyDataError, match="index of y"):
        SplitNNClassifier(active="bank").fit(frames, y.set_axis(y.index + 7), on="id")
    with pytest.raises(ParameterError, match="only one class"):
        SplitNNClassifier(active="bank").fit(frames, np.zeros(len(y)), on="id")
    with pytest.raises(ParameterError, match=r"^on names a key column.*single table"):
        SplitNNClassifier().fit(frames["bank"], y, on="id")
    with pytest.raises(ParameterError, match="GAFM is defined for scalar"):
        GAFMClassifier(active="bank", intermediate_dim=4).fit(frames, y, on="id")
    with pytest.raises(ParameterError, match="that are averaged"):
        GAFMClassifier(active="bank", fusion="sum").fit(frames, y, on="id")
    classifier = SplitNNClassifier(active="bank", **FAST).fit(frames, y, on="id")
    fewer = frames | {"shop": frames["shop"].iloc[5:]}
    with pytest.raises(PartyDataError, match=r"party 'shop'.*5 of the 569 records"):
        classifier.predict_proba(fewer)
    without = frames | {"shop": frames["shop"].drop(columns="id")}
    with pytest.raises(MissingKeyError, match=r"party 'shop', column 'id'.*Fix: add"):
        classifier.predict(without)
    indexed = frames | {"shop": frames["shop"].set_index("id")}
    with pytest.raises(MissingKeyError, match=r"party 'shop', column 'id'.*reset_index"):
        classifier.predict(indexed)
    for party in ("bank", "shop"):
        array = frames | {party: frames[party].to_numpy()}
        with pytest.raises(PartyDataError, match=f"party '{party}'.*DataFrame, got a ndarray"):
            classifier.predict(array)


def test_a_lower_cut_moves_layers_to_the_label_holder(tables, monkeypatch):
    """The same layers, and a bottom model that tells less of labels and more of columns."""
    monkeypatch.setattr(columns, "_STEPS", 1)  # of attacks that are not asked here
    monkeypatch.setattr(columns, "_TREES", 1)
    shifted = CutShiftClassifier(layers=2, active="bank", random_state=0, epochs=3)
    settings = shifted.settings()
    assert (settings.bottom_hidden, settings.intermediate_dim) == ((), 64)
    assert settings.top_hidden == (32, 16, 32)
    shifted.fit(*tables, on="id")
    plain = SplitNNClassifier(active="bank", random_state=0, epochs=3).fit(*tables, on="id")
    linear = [
        column_attacks(model.evidence_["web"]).query("attack == 'ridge inversion'")["value"].max()
        for model in (plain, shifted)
    ]
    assert linear[1] > linear[0]
    with pytest.raises(ParameterError, match="at most 2"):
        CutShiftClassifier(layers=3, active="bank").fit(*tables, on="id")


def test_parameters_of_the_encoding_are_set_where_there_is_none_yet():
    """GridSearchCV over transformer__... ended in an AttributeError."""
    assert SplitNNClassifier().set_params(transformer__rare_records=3).transformer.rare_records == 3
    for owner in ("label_privacy", "monitor", "privacy"):
        with pytest.raises(
            ParameterError, match=f"{owner}__odd: set {owner} to an object that has"
        ):
            SplitNNClassifier().set_params(**{f"{owner}__odd": 3})
    with pytest.raises(ValueError, match="Invalid parameter 'nobody'"):
        SplitNNClassifier().set_params(nobody__odd=3)


def test_a_single_table_may_be_of_another_library():
    pl = pytest.importorskip("polars")
    table = pd.DataFrame({"x": np.arange(60.0), "town": ["Bonn", "Köln"] * 30})
    y = table["x"] > 30
    classifier = SplitNNClassifier(epochs=2, random_state=0).fit(pl.DataFrame(table), y)
    assert classifier.parties_["party"].transformer.kinds_["town"] == "categorical"
    expected = classifier.predict_proba(table)
    assert np.array_equal(classifier.predict_proba(pl.DataFrame(table)), expected)
    with pytest.raises(TableFileError, match=r"LazyFrame has no rows .*Fix: .*collect\(\)"):
        classifier.fit(pl.DataFrame(table).lazy(), y)


def test_a_single_table_is_checked_once(monkeypatch):
    checked = []
    usual = SplitNNClassifier._table

    def counting(self, *args, **options):
        checked.append(self)
        return usual(self, *args, **options)

    monkeypatch.setattr(SplitNNClassifier, "_table", counting)
    X = pd.DataFrame({"x": np.arange(60.0)})
    models = SplitNNClassifier(epochs=1).fit_replicas(X, X["x"] > 30, random_states=[0, 1])
    assert len(checked) == 1
    assert [model.n_features_in_ for model in models] == [1, 1]
    assert [model.feature_names_in_.tolist() for model in models] == [["x"], ["x"]]


@pytest.mark.parametrize(
    ("X", "error", "says"),
    [
        (pd.DataFrame([[1.0, 2.0]] * 4, columns=["x", "x"]), ColumnNameError, "column 'x': .* 2"),
        (pd.DataFrame({"x": np.arange(5.0)}), PartyDataError, "4 labels for 5 rows"),
    ],
)
def test_what_a_single_table_cannot_be_is_said_of_it(X, error, says):
    with pytest.raises(error, match=says):
        SplitNNClassifier(epochs=1).fit(X, [0, 1, 0, 1])
