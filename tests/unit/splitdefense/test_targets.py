"""What is predicted: classes, which may be weighted."""

from __future__ import annotations

import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn import config_context
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import (
    GridSearchCV,
    StratifiedKFold,
    cross_val_score,
    cross_validate,
)

from vflsynth.exceptions import OwnTableWarning, ParameterError, PartyDataError, PartyNameError
from vflsynth.splitdefense import (
    AlignedFrames,
    DistanceCorrelation,
    RandomizedResponse,
    SplitNNClassifier,
    aligned,
)
from vflsynth.splitdefense.targets import Classes, record_weights

FAST = {"active": "bank", "epochs": 6, "learning_rate": 5e-3, "random_state": 0, "monitor": False}


def test_balanced_classes_have_the_same_sum_and_weights_are_one_on_average():
    labels = torch.tensor([[0, 0, 0, 1, 2, 2], [0, 1, 1, 1, 1, 2]])
    target = Classes(np.array(list("abc")), labels[0].numpy())
    shares = target.shares(labels)
    balanced = record_weights(labels, None, target.weights("balanced", shares), None)
    for replica in range(2):
        sums = [float(balanced[replica, labels[replica] == c].sum()) for c in range(3)]
        assert sums == pytest.approx([2.0] * 3)
    given = target.weights({"b": 4}, shares)
    assert given[0].tolist() == [1.0, 4.0, 1.0]
    rows = torch.tensor([[0, 3], [0, 1]])
    records = torch.tensor([1.0, 1.0, 1.0, 0.5, 1.0, 1.0])
    found = record_weights(labels, rows, given, records)
    assert found.gather(1, rows).mean(1).tolist() == pytest.approx([1.0, 1.0])
    assert float(found[0, 3] / found[0, 0]) == pytest.approx(2.0)
    assert record_weights(labels, None, None, None) is None


@pytest.mark.parametrize("odd", [np.nan, np.inf, None])
@pytest.mark.parametrize("kind", [np.array, list, pd.array])
def test_no_label_of_an_array_ends_a_fit_that_keeps_labels_private(odd, kind):
    """How a fit ends tells everybody of the label, and ε does not count it."""
    X = np.random.default_rng(0).normal(size=(60, 3))
    y = [odd, *(X[1:, 0] > 0).astype(float)]
    found = SplitNNClassifier(label_privacy=RandomizedResponse(2.0), classes=[0, 1], epochs=1)
    with pytest.warns(OwnTableWarning, match="1 of 60 labels"):
        found.fit(X, kind(y))
    with pytest.raises(ValueError, match=r"NaN|inf"):
        SplitNNClassifier(epochs=1).fit(X, kind(y))


@pytest.mark.parametrize("n_labels", [59, 61])
def test_labels_are_as_many_as_rows_of_a_single_table(n_labels):
    X = np.random.default_rng(0).normal(size=(60, 3))
    for table in (X, pd.DataFrame(X)):
        with pytest.raises(ValueError, match=f"{n_labels} labels for 60 rows"):
            SplitNNClassifier(epochs=1).fit(table, np.arange(n_labels) % 2)


def test_records_of_weight_zero_are_not_learned_from(tables):
    frames, y = tables
    wrong = y.to_numpy().copy()
    weights = np.ones(len(y))
    weights[::3] = 0.0
    wrong[::3] = np.random.default_rng(0).permutation(wrong[::3])
    options = FAST | {"patience": None}
    first = SplitNNClassifier(**options).fit(frames, y, on="id", sample_weight=weights)
    second = SplitNNClassifier(**options).fit(frames, wrong, on="id", sample_weight=weights)
    assert np.array_equal(first.predict_proba(frames), second.predict_proba(frames))


def test_class_weights_move_probabilities(tables):
    frames, y = tables
    plain, heavy = (
        SplitNNClassifier(class_weight=weight, **FAST).fit(frames, y, on="id").predict_proba(frames)
        for weight in (None, {"malignant": 20.0})
    )
    assert heavy[:, 1].mean() > plain[:, 1].mean() + 0.05


def test_weights_that_make_no_sense(tables):
    frames, y = tables

    def fit(weight=None, **options):
        SplitNNClassifier(**(FAST | options)).fit(frames, y, on="id", sample_weight=weight)

    with pytest.raises(ParameterError, match="'cancer', which is no class"):
        fit(class_weight={"cancer": 2.0})
    with pytest.raises(ParameterError, match="must be a number ≥ 0, got -1"):
        fit(class_weight={"benign": -1})
    with pytest.raises(ParameterError, match="mapping or 'balanced'"):
        fit(class_weight="fair")
    with pytest.raises(ParameterError, match=r"shape \(3,\), and y has 569"):
        fit([1, 2, 3])
    with pytest.raises(ParameterError, match="not zero for all"):
        fit(np.zeros(len(y)))
    for options in ({"class_weight": "balanced"}, {"weight": np.ones(len(y))}):
        with pytest.raises(ParameterError, match="label_privacy has no weights"):
            fit(label_privacy=RandomizedResponse(1.0), **options)


# -- tables of parties in scikit-learn's tools -----------------------------------------------------


@pytest.mark.slow
def test_party_frames_are_cross_validated(tables):
    X, labels = aligned(*tables, on="id", active="bank")
    assert X.shape == (569, 30)
    assert set(X) == {"bank", "shop", "web"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of rows that correspond: they do
        SplitNNClassifier(**(FAST | {"epochs": 1})).fit(X, labels)
    numbered = pd.Series(labels)
    for given in (FAST, FAST | {"active": None}):
        scores = cross_val_score(SplitNNClassifier(**given), X, numbered, cv=3)
        assert scores.min() > 0.85, "rows of the parties do not correspond"
    search = GridSearchCV(
        SplitNNClassifier(objective=DistanceCorrelation(), **(FAST | {"epochs": 2})),
        {"objective__defense_weight": [0.0, 100.0]},
        cv=2,
    ).fit(X, labels)
    assert search.best_params_ == {"objective__defense_weight": 0.0}


def test_labels_with_keys_are_aligned_and_only_common_records_stay(tables):
    frames, y = tables
    keyed = pd.Series(y.to_numpy(), index=frames["bank"]["id"]).sample(frac=0.5, random_state=0)
    fewer = frames | {"web": frames["web"].iloc[:400]}
    X, labels = aligned(fewer, keyed, on="id")
    common = [key for key in keyed.index if key in set(fewer["web"]["id"])]
    assert labels.tolist() == keyed[common].tolist()
    for name, frame in fewer.items():
        expected = frame.set_index("id").loc[common].reset_index(drop=True)
        pd.testing.assert_frame_equal(X[name], expected)
    some = X[np.array([3, 1]), ...]
    assert some["shop"].equals(X["shop"].iloc[[3, 1]].reset_index(drop=True))
    with pytest.raises(PartyDataError, match="equally long"):
        AlignedFrames({"a": X["bank"], "b": X["web"][:-1]})
    with pytest.raises(PartyDataError, match="keys of web occur more than once"):
        aligned(frames | {"web": pd.concat([frames["web"]] * 2)}, keyed, on="id")
    with pytest.raises(PartyDataError, match="no record in common"):
        aligned(frames, keyed.set_axis(keyed.index.map(str)), on="id")


def test_labels_with_keys_are_scored_by_them(tables):
    frames, y = tables
    keyed = pd.Series(y.to_numpy(), index=frames["bank"]["id"])
    model = SplitNNClassifier(**FAST | {"active": None}).fit(frames, keyed, on="id")
    expected = model.score(frames, y.to_numpy())  # the first table is the bank's
    assert expected > 0.85
    assert model.score(frames, keyed.sample(frac=1, random_state=0)) == expected
    others = {name: frames[name] for name in ("web", "shop", "bank")}
    assert model.score(others | {"bank": frames["bank"].iloc[::-1]}, keyed) == expected
    with pytest.raises(PartyDataError, match="569 records of party 'label holder'"):
        model.score(frames, y)


def test_labels_with_an_index_are_scored_in_the_order_of_their_table(tables):
    frames, y = tables
    keyed = pd.Series(y.to_numpy(), index=frames["bank"]["id"])
    model = SplitNNClassifier(**FAST).fit(frames, y, on="id")
    assert model.score(frames, y) == model.score(frames, keyed) == model.score(frames, list(y))
    for other in (y, keyed):
        with pytest.raises(PartyDataError, match="neither the table's index nor its keys"):
            model.score(frames, other.sample(frac=1, random_state=0))
    for table in (frames["bank"], frames["bank"].to_numpy()):
        with pytest.raises(PartyDataError, match="pass a mapping of 'bank', "):
            model.predict(table)


def test_weights_are_routed_as_scikit_learn_routes_metadata():
    X = np.random.default_rng(0).normal(size=(40, 2))
    frames = {"a": pd.DataFrame({"x": X[:, 0]}), "b": pd.DataFrame({"y": X[:, 1]})}
    table, labels = aligned(frames, pd.Series((X[:, 0] > 0).astype(int)), active="b")
    plain = SplitNNClassifier(active="b", epochs=1, random_state=0)
    weights = np.where(np.arange(40) % 2, 50.0, 0.01)
    with config_context(enable_metadata_routing=True):
        asked = clone(plain).set_fit_request(sample_weight=True)
        asked.set_score_request(sample_weight=False)
        found = cross_validate(
            asked, table, labels, cv=2, params={"sample_weight": weights}, return_estimator=True
        )["estimator"]
    labels = np.asarray(labels)
    train, _ = next(StratifiedKFold(2).split(table, labels))
    same = clone(plain).fit(table[train], labels[train], sample_weight=weights[train])
    probabilities = [one.predict_proba(table) for one in (found[0], same)]
    np.testing.assert_array_equal(*probabilities)
    other = clone(plain).fit(table[train], labels[train]).predict_proba(table)
    assert not np.array_equal(other, probabilities[0])


def test_scikit_learn_counts_parties_before_any_estimator_sees_them():
    """No estimator can name `aligned` there; the guide does."""

    class Untouched(BaseEstimator):
        def fit(self, X, y):
            pytest.fail("it was asked")

        score = fit

    frames = {"bank": pd.DataFrame({"a": range(60)}), "shop": pd.DataFrame({"b": range(60)})}
    for judge in (cross_val_score, cross_validate):
        with pytest.raises(ValueError, match=r"inconsistent numbers of samples: \[2, 60\]"):
            judge(Untouched(), frames, [0, 1] * 30)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        GridSearchCV(Untouched(), {}).fit(frames, [0, 1] * 30)


@pytest.mark.parametrize("stated", [False, True])
@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        (pd.array([0, 1], dtype="Int64"), "i"),
        (pd.array([2**53, 2**53 + 1], dtype="Int64"), "i"),
        (pd.array([False, True], dtype="boolean"), "b"),
        (np.array([False, True], dtype=object), "b"),
        (np.array([0, 1], dtype=object), "i"),
        (pd.Categorical([0, 1]), "i"),
        (pd.Categorical([False, True]), "b"),
        (pd.Series([0, 1], dtype="int64[pyarrow]"), "i"),
        (["n", "y"], "U"),
    ],
)
def test_predictions_are_labels_as_they_were_given(labels, kind, joined, stated):
    table, y = pd.DataFrame({"a": range(40)}), pd.Series(labels).repeat(20).reset_index(drop=True)
    y = y.tolist() if isinstance(labels, list) else y
    options = {"classes": list(labels)} if stated else {}
    X = table if joined else {"lab": table, "shop": table.rename(columns={"a": "b"})}
    model = SplitNNClassifier(epochs=1, monitor=False, **options).fit(X, y)
    assert model.predict(X).dtype.kind == kind
    assert model.classes_.tolist() == list(labels)
    assert 0.0 <= model.score(X, y) <= 1.0


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        (pd.Series(pd.cut([0.0, 1.0] * 20, 2)), "Interval"),
        (pd.period_range("2020", periods=2, freq="Y").repeat(20), "Period"),
        ([b"a", b"b"] * 20, "bytes"),
        ([Decimal(1), Decimal(2)] * 20, "Decimal"),
        (pd.Series([(1,), (2,)] * 20), "tuple"),
        (pd.date_range("2020", periods=2, tz="UTC").repeat(20), "Timestamp"),
    ],
)
def test_labels_that_no_file_could_hold_are_refused_by_type(labels, kind):
    """scikit-learn took them for numbers of a regression, or a fitted model could not be saved."""
    X = pd.DataFrame({"a": range(40)})
    with pytest.raises(ParameterError, match=f"^y must be text, .* got {kind}. Fix: .*str"):
        SplitNNClassifier(epochs=1).fit(X, labels)
    if kind != "tuple":
        stated = [*pd.unique(pd.Series(labels))]
        with pytest.raises(ParameterError, match=f"^classes must be text, .* got {kind}"):
            SplitNNClassifier(epochs=1, classes=stated).fit(X, labels)


@pytest.mark.parametrize(
    "labels", [[1j, 7j] * 20, np.ones((40, 2)), 3, pd.DataFrame({"y": [7] * 40, "z": 1}), [[7], 7]]
)
def test_what_is_no_column_of_labels_is_refused_and_not_shown(labels):
    """scikit-learn printed all labels."""
    with pytest.raises(ParameterError, match=r"^y must be one column of text, truth") as caught:
        SplitNNClassifier(epochs=1).fit(pd.DataFrame({"a": range(40)}), labels)
    assert "7" not in str(caught.value)


@pytest.mark.parametrize("form", [list, pd.Series, pd.Categorical])
def test_labels_of_several_types_are_refused(form):
    X, mixed = pd.DataFrame({"a": range(40)}), [1, "a"] * 20
    with pytest.raises(ParameterError, match="y must be labels of one type, got int and str"):
        SplitNNClassifier(epochs=1).fit(X, form(mixed))
    with pytest.raises(ParameterError, match="classes must be labels of one type"):
        SplitNNClassifier(epochs=1, classes=[1, "a"]).fit(X, form(["1", "a"] * 20))
    with pytest.raises(ParameterError, match="20 of 40 labels are missing, or none of"):
        SplitNNClassifier(epochs=1, classes=["1", "a"]).fit(X, form(mixed))


def test_one_record_of_matched_tables_is_a_table_of_one_row():
    X = AlignedFrames({"a": pd.DataFrame({"x": [1, 2, 3]}), "b": pd.DataFrame({"z": [4, 5, 6]})})
    assert X[1].shape == (1, 2)
    assert X[np.int64(-1)]["b"]["z"].tolist() == [6]
    assert [name in X for name in ("a", "c", 1)] == [True, False, False]


@pytest.mark.parametrize("active", [["bank"], 5, "nobody"])
def test_an_active_party_that_has_no_table_is_named(active):
    frames = {"bank": pd.DataFrame({"x": [1, 2, 3]})}
    with pytest.raises(PartyNameError, match=r"the active party has no table.* 'bank'"):
        aligned(frames, [0, 1, 0], active=active)
