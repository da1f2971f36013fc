import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vflsynth.evaluation import average_variation_distance, marginal_distance
from vflsynth.evaluation.marginals import ks_distance
from vflsynth.exceptions import ParameterError

values = st.lists(st.integers(-5, 5) | st.floats(-5, 5), min_size=1, max_size=40)


@given(values, values)
@settings(max_examples=100, deadline=None)
def test_ks_agrees_with_its_definition(a, b):
    a, b = np.array(a, dtype=float), np.array(b, dtype=float)
    expected = max(abs((a <= at).mean() - (b <= at).mean()) for at in (*a, *b))
    assert ks_distance(a, b) == pytest.approx(expected)


def test_ks_of_nothing():
    some, nothing = np.array([1.0]), np.array([])
    assert (ks_distance(nothing, nothing), ks_distance(some, nothing)) == (0.0, 1.0)


def test_total_variation_by_hand():
    real = pd.DataFrame({"c": ["a"] * 6 + ["b"] * 4})
    synthetic = pd.DataFrame({"c": ["a"] * 3 + ["b"] * 4 + ["z"] * 2 + [None]})
    assert marginal_distance(real, synthetic).value == pytest.approx(0.3)


def test_equal_tables_have_no_distance(mixed):
    result = marginal_distance(mixed, mixed.sample(frac=1, random_state=0))
    assert result.value == 0.0
    assert (result.parts["value"] == 0.0).all()


def test_disjoint_columns_are_at_distance_one():
    real = pd.DataFrame({"x": np.arange(50.0), "c": ["a"] * 50})
    result = marginal_distance(real, pd.DataFrame({"x": np.arange(50.0) + 99, "c": ["b"] * 50}))
    assert result.value == 1.0


def test_a_lost_share_of_missing_values_counts():
    real = pd.DataFrame({"x": [1.0, 2.0, np.nan, np.nan] * 20})
    filled = pd.DataFrame({"x": [1.0, 2.0, 1.0, 2.0] * 20})
    assert marginal_distance(real, filled).value == pytest.approx(0.5)
    assert marginal_distance(real, real * np.nan).value == 1.0


def test_the_baseline_is_what_real_samples_score(make):
    # Halves of 1,000 rows are samples of 500: two such samples must score about the same.
    result = marginal_distance(make(1000, seed=0), make(1000, seed=1))
    fresh = [marginal_distance(make(500, seed=s), make(500, seed=s + 50)).value for s in range(20)]
    assert result.baseline == pytest.approx(np.mean(fresh), rel=0.3)
    low, high = result.interval
    assert low <= result.value <= high


def slow_avd(real, synthetic, columns):
    a, b = (
        frame.value_counts(columns, normalize=True, dropna=False) for frame in (real, synthetic)
    )
    return a.sub(b, fill_value=0.0).abs().sum() / 2


def test_avd_agrees_with_slow_code(mixed, make):
    names = ["smoker", "grade", "stage"]
    real, synthetic = (
        frame[names].astype(object).fillna("gone") for frame in (mixed, make(400, seed=1))
    )
    pairs = [names[:2], names[1:], [names[0], names[2]]]
    with pytest.raises(ParameterError, match="at least 1, not 0"):
        average_variation_distance(real, synthetic, ways=0)
    for ways, groups in ((1, [[name] for name in names]), (2, pairs), (3, [names])):
        expected = np.mean([slow_avd(real, synthetic, group) for group in groups])
        result = average_variation_distance(real, synthetic, ways=ways)
        assert result.value == pytest.approx(expected)
        assert len(result.parts) == len(groups)


def test_avd_of_independent_labels_is_its_naive_mark(make):
    real = make(4000, seed=0)[["smoker", "grade"]]
    rng = np.random.default_rng(0)
    shuffled = real.assign(grade=real["grade"].to_numpy()[rng.permutation(len(real))])
    result = average_variation_distance(real, shuffled)
    assert result.value == pytest.approx(result.naive, abs=0.03)
    assert result.value > 5 * result.baseline


def test_avd_of_numbers_does_not_apply(cancer):
    result = average_variation_distance(cancer, cancer)
    assert "1 discrete column(s), and 2 are needed" in str(result)
