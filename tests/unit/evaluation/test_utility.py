import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import (
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import Ridge
from sklearn.metrics import accuracy_score, f1_score, mean_absolute_error, r2_score
from sklearn.tree import DecisionTreeClassifier

from tests.later import later
from tests.smaller import judge_by_few_trees
from vflsynth.evaluation import utility
from vflsynth.evaluation.train_test import _classification_score, _regression_score
from vflsynth.exceptions import ColumnKindError, ParameterError, PartyDataError

codes = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=50)


@given(codes)
@settings(max_examples=100, deadline=None)
def test_scores_agree_with_scikit_learn(pairs):
    truth, predicted = np.array(pairs).T
    accuracy, f1 = _classification_score(5, truth, predicted)
    assert accuracy == pytest.approx(accuracy_score(truth, predicted))
    assert f1 == pytest.approx(f1_score(truth, predicted, average="macro", zero_division=0))
    if len(set(truth)) > 1:
        r2, error = _regression_score(2.0, truth.astype(float), predicted.astype(float))
        assert r2 == pytest.approx(r2_score(truth, predicted))
        assert error == pytest.approx(mean_absolute_error(truth, predicted) / 2)


FOREST = RandomForestClassifier(n_estimators=20, random_state=0)
"""Of a fifth of the usual trees, where any model would do."""


@pytest.fixture(autouse=True)
def _few_trees(monkeypatch, request):
    """A fifth of the usual trees, but where values are compared with published ones."""
    if not request.node.get_closest_marker("data"):
        judge_by_few_trees(monkeypatch, 20)


def scores(results):
    parts = results["total_difference"].parts
    return parts.set_index(["setting", "score"])["value"]


def test_total_difference_is_the_sum_of_six(cancer):
    columns = [*cancer.columns[:5], "target"]
    half = cancer.sample(frac=0.5, random_state=0)
    results = utility(cancer[columns], half[columns], "target", protocol="paper", model=FOREST)
    table = scores(results)
    expected = sum(
        abs(table[setting, score] - table["TRTR", score])
        for setting in ("TSTS", "TRTS", "TSTR")
        for score in ("accuracy", "macro_f1")
    )
    assert results["total_difference"].value == pytest.approx(expected)
    assert results["train_synthetic_test_real"].value == table["TSTR", "accuracy"]
    assert results["train_synthetic_test_real"].baseline == table["TRTR", "accuracy"]


def test_useless_rows_score_as_guessing_does(cancer):
    rng = np.random.default_rng(0)
    useless = cancer.assign(target=cancer["target"].to_numpy()[rng.permutation(len(cancer))])
    result = utility(cancer, useless, "target")["train_synthetic_test_real"]
    assert result.naive == pytest.approx(0.63, abs=0.06)
    assert result.value < result.naive + 0.1
    assert result.gap_closed < 0.4


def test_fresh_rows_of_the_same_kind_are_nearly_as_good(make):
    real, synthetic, holdout = (make(1500, seed=seed) for seed in range(3))
    results = utility(real, synthetic, "grade", holdout=holdout)
    tstr = results["train_synthetic_test_real"]
    low, high = tstr.interval
    assert low <= tstr.baseline <= high
    assert tstr.value > tstr.naive + 0.1
    assert not tstr.notes


def test_held_out_rows_expose_what_the_papers_protocol_hides(cancer):
    # Copies of the tested rows look better than real rows; with held-out rows they do not.
    real, holdout = cancer.iloc[:300], cancer.iloc[300:]
    tree = DecisionTreeClassifier(random_state=0)
    paper = scores(utility(real, real, "target", protocol="paper", model=tree))
    assert paper["TSTR", "accuracy"] == 1.0 > paper["TRTR", "accuracy"]
    honest = scores(utility(real, real, "target", holdout=holdout, model=tree))
    assert honest["TSTR", "accuracy"] == honest["TRTR", "accuracy"] < 1.0


def test_own_statistics_hide_a_wrong_scale(cancer):
    # The paper's protocol cannot see that a party's columns are all off by a factor.
    wrong = cancer.assign(**{name: cancer[name] * 1000 + 7 for name in cancer.columns[:30]})
    tree = DecisionTreeClassifier(max_depth=3, random_state=0)

    def total(synthetic, protocol):
        results = utility(cancer, synthetic, "target", protocol=protocol, model=tree)
        return results["total_difference"].value

    paper, honest, right = total(wrong, "paper"), total(wrong, "holdout"), total(cancer, "paper")
    assert paper == pytest.approx(right, abs=1e-9)
    assert honest > 5 * right


@pytest.mark.parametrize("model", [None, *later(HistGradientBoostingRegressor()), Ridge()])
def test_regression(cancer, model):
    columns = ["mean radius", "mean texture", "mean smoothness", "mean area"]
    real, holdout = cancer[columns].iloc[:300], cancer[columns].iloc[300:]
    results = utility(real, real, "mean area", holdout=holdout, model=model)
    table = scores(results)
    assert set(table.index.get_level_values("score")) == {"r2", "mean_absolute_error"}
    assert table["TRTR", "r2"] > 0.8
    assert table["TSTR", "r2"] == pytest.approx(table["TRTR", "r2"])
    assert results["train_synthetic_test_real"].naive == pytest.approx(0.0, abs=0.3)


@pytest.mark.slow
def test_labels_may_be_missing_unknown_or_of_another_type(mixed, make):
    synthetic = make(300, seed=1)
    synthetic["grade"] = synthetic["grade"].astype(object).replace("high", "unheard of")
    results = utility(mixed, synthetic, "grade", model=FOREST)
    assert np.isfinite(scores(results)).all()
    gaps = mixed.assign(stage=mixed["stage"])
    notes = utility(gaps, mixed, "stage", model=FOREST)["total_difference"].notes
    assert any("without a target" in note for note in notes)
    floats = mixed.assign(count=mixed["count"].astype("float64"))
    pd.testing.assert_series_equal(
        scores(utility(mixed, mixed, "count", model=FOREST)),
        scores(utility(mixed, floats, "count", model=FOREST)),
    )


def test_a_synthetic_table_of_one_class_is_judged(mixed):
    one_class = mixed[mixed["grade"] == "mid"]
    result = utility(mixed, one_class, "grade")["train_synthetic_test_real"]
    assert result.value == pytest.approx((mixed["grade"] == "mid").mean(), abs=0.1)


def test_what_does_not_apply_says_why(mixed):
    def why(*args, **options):
        return utility(*args, **options)["total_difference"].not_applicable

    assert "no column but the target" in why(mixed[["age"]], mixed[["age"]], "age")
    assert "fewer than 10 rows" in why(mixed, mixed.head(5), "age")
    constant = mixed.assign(grade="mid")
    assert "single value" in why(constant, mixed.assign(grade="low"), "grade")
    with pytest.raises(ParameterError, match="model must be an estimator"):
        utility(mixed, mixed, "grade", model="oracle")
    with pytest.raises(ParameterError, match="protocol must be"):
        utility(mixed.assign(grade="one"), mixed, "grade", protocol="none")  # nothing to learn
    with pytest.raises(ParameterError, match="task must be"):
        utility(mixed, mixed, "grade", task="guess")


def test_random_states_are_of_any_size(mixed):
    for state in (2**32, 2**80):
        assert utility(mixed, mixed, "grade", random_state=state)["total_difference"].value < 1.0
    with pytest.raises(PartyDataError, match=r"named in categorical= \(--categorical\)"):
        utility(mixed, mixed, "grade", categorical=["typo"])


def numbers_table(seed, scale=1.0):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=120)
    return pd.DataFrame({"a": a, "y": scale * (a + 0.3 * rng.normal(size=120))})


SMALL = {"model": RandomForestRegressor(n_estimators=5, random_state=0)}


def test_infinite_targets_are_missing():
    real, wild, holdout = (numbers_table(seed) for seed in range(3))
    wild.loc[0, "y"], real.loc[[1, 2], "y"], holdout.loc[3, "y"] = np.inf, -np.inf, np.nan
    found = utility(real, wild, "y", holdout=holdout, **SMALL)
    dropped = utility(real.drop([1, 2]), wild.drop(0), "y", holdout=holdout.drop(3), **SMALL)
    pd.testing.assert_series_equal(scores(found), scores(dropped))
    notes = found["total_difference"].notes
    assert [note for note in notes if "without a target" in note] == [
        "2 real rows without a target were left out",
        "1 synthetic rows without a target were left out",
        "1 held-out rows without a target were left out",
    ]
    constant = real.assign(y=np.where(np.arange(120) < 5, np.inf, 1.5))
    because = utility(constant, real, "y")["total_difference"].not_applicable
    assert because == "the target has a single value in the real table"


@pytest.mark.parametrize(
    ("protocol", "scale"),
    [
        *(("holdout", scale) for scale in (1e300, 1e150, 1e-200)),
        *later(("paper", 1e300), ("paper", 1e150), ("paper", 1e-200)),
    ],
)
def test_targets_of_any_size_are_judged(scale, protocol):
    found, usual = (
        scores(utility(numbers_table(0, by), numbers_table(1, by), "y", protocol=protocol, **SMALL))
        for by in (scale, 1.0)
    )
    pd.testing.assert_series_equal(found, usual, rtol=1e-3)


def test_one_huge_synthetic_target_is_cut_off_and_noted():
    wild = numbers_table(1)
    wild.loc[0, "y"] = 1e300
    result = utility(numbers_table(0), wild, "y", **SMALL)["train_synthetic_test_real"]
    assert np.isfinite(result.parts["value"]).all()
    assert any("1 synthetic values lie beyond" in note for note in result.notes)


def test_regression_needs_a_target_of_numbers(mixed):
    with pytest.raises(ColumnKindError, match=r"column 'stage': holds text.*task='regression'"):
        utility(mixed, mixed, "stage", task="regression")
    with pytest.raises(ColumnKindError, match="pass task='classification'"):
        utility(mixed, mixed, "grade", task="regression")
    codes = mixed.assign(count=mixed["count"].astype("category"))
    for target in ("count", "smoker"):
        found = utility(codes, codes, target, task="regression", **SMALL)
        assert set(found["total_difference"].parts["score"]) == {"r2", "mean_absolute_error"}


def test_labels_that_are_nearly_all_different_do_not_apply_or_are_judged_quietly():
    # Warnings are errors in tests: scikit-learn would give one per tree.
    names = [f"n{i}" for i in range(120)]
    real = numbers_table(0).assign(y=names)
    because = utility(real, real, "y")["total_difference"].not_applicable
    assert because == "the target has 120 labels in 120 real rows, too few of each to learn from"
    few = real.assign(y=np.where(real["a"] > 0, "n1", "n2"))
    model = RandomForestClassifier(n_estimators=5, random_state=0)
    result = utility(few, real, "y", model=model)["train_synthetic_test_real"]
    assert result.value < 0.2


def test_a_part_of_a_column_that_is_partly_text_is_not_refused():
    # Rows to test on are likely to miss the one number that makes the columns comparable.
    real = numbers_table(0).assign(c=["a"] * 119 + [1])
    synthetic = numbers_table(1).assign(c=1)
    assert utility(real, synthetic, "y", **SMALL)["total_difference"].value > 0


def test_the_table_that_lacks_a_column_is_the_one_named(mixed):
    with pytest.raises(PartyDataError, match="column 'age': the held-out table has no such"):
        utility(mixed, mixed, "grade", holdout=mixed.drop(columns="age"))
    with pytest.raises(ColumnKindError, match="numbers of type int64 in the held-out table"):
        utility(mixed, mixed, "grade", holdout=mixed.assign(stage=1))
    real = numbers_table(0)
    because = utility(real, real, "y", holdout=real.assign(y=1.0))["total_difference"]
    assert because.not_applicable == "the target has a single value in the held-out rows"
    because = utility(real, real.assign(y=1.0), "y")["total_difference"]
    assert because.not_applicable == "the target has a single value in the synthetic rows"


def test_takes_an_ensemble_that_is_not_fitted(mixed):
    """An unfitted ensemble of scikit-learn has no truth value."""
    forest = RandomForestClassifier(n_estimators=5, random_state=0)
    assert "total_difference" in utility(mixed, mixed, "grade", model=forest)


def test_large_tables_are_thinned_and_it_is_said(mixed, make):
    results = utility(mixed, make(500, seed=1), "grade", max_rows=200)
    assert "a random 200 of 600 real rows were used" in results["total_difference"].notes


@pytest.mark.data
@pytest.mark.parametrize(
    ("colour", "accuracy", "f1"), [("red", 0.593, 0.260), ("white", 0.528, 0.205)]
)
def test_the_papers_trtr_is_reproduced(wine, colour, accuracy, f1):
    real = wine(colour)
    table = scores(utility(real, real.head(50), "quality", protocol="paper"))
    assert table["TRTR", "accuracy"] == pytest.approx(accuracy, abs=0.0006)
    assert table["TRTR", "macro_f1"] == pytest.approx(f1, abs=0.0006)
