import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2_contingency

from vflsynth.evaluation import association_errors, associations


def slow_pearson(a, b):
    both = pd.DataFrame({"a": a, "b": b}).dropna()
    return np.corrcoef(both["a"], both["b"])[0, 1]


def slow_cramers_v(a, b):
    table = pd.crosstab(a, b).to_numpy()
    n, (rows, columns) = table.sum(), table.shape
    phi = chi2_contingency(table, correction=False)[0] / n
    phi = max(0, phi - (rows - 1) * (columns - 1) / (n - 1))
    rows, columns = (k - (k - 1) ** 2 / (n - 1) for k in (rows, columns))
    return np.sqrt(phi / (min(rows, columns) - 1))


def slow_correlation_ratio(labels, values):
    both = pd.DataFrame({"c": labels, "x": values}).dropna()
    groups = [group["x"].to_numpy() for _, group in both.groupby("c", observed=True)]
    n, k, centre = len(both), len(groups), both["x"].mean()
    between = sum(len(group) * (group.mean() - centre) ** 2 for group in groups)
    explained = between / ((both["x"] - centre) ** 2).sum()
    return np.sqrt(max(0, 1 - (1 - explained) * (n - 1) / (n - k)))


@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(8, 200), missing=st.floats(0, 0.5))
@settings(max_examples=25, deadline=None)
def test_matrices_agree_with_slow_code(seed, rows, missing):
    rng = np.random.default_rng(seed)
    base = rng.normal(size=rows)
    frame = pd.DataFrame(
        {
            "x": base + rng.normal(size=rows),
            "y": 1e6 - 50 * base + rng.normal(size=rows),
            "c": np.where(base > 0, "p", "q").astype(object),
            "d": np.where(base + rng.normal(size=rows) > 0.3, "r", "s").astype(object),
        }
    )
    for name in frame:
        frame[name] = frame[name].mask(rng.random(rows) < missing)
    found = associations(frame, frame)
    slow = {("x", "y"): slow_pearson, ("c", "d"): slow_cramers_v}
    for i, a in enumerate(found.names):
        for j, b in enumerate(found.names[:i]):
            both = frame[[a, b]].dropna()
            if len(both) < 6 or (both.nunique() < 2).any():
                continue
            numeric = {"x", "y"} & {a, b}
            if len(numeric) == 1:
                labels = ({a, b} - numeric).pop()
                expected = slow_correlation_ratio(frame[labels], frame[numeric.pop()])
            else:
                expected = slow[tuple(sorted((a, b)))](frame[a], frame[b])
            assert found.real[i, j] == pytest.approx(expected, abs=1e-6)
            assert found.real[j, i] == found.real[i, j]


def test_no_error_for_equal_tables(mixed, parties):
    results = association_errors(mixed, mixed.sample(frac=1, random_state=0), parties=parties)
    assert [result.value for result in results.values()] == pytest.approx([0, 0, 0], abs=1e-9)


def test_re_pairing_the_parties_is_an_error_across_only(mixed, parties):
    order = np.random.default_rng(0).permutation(len(mixed))
    lab = mixed[parties["lab"]].iloc[order].reset_index(drop=True)
    results = association_errors(
        mixed, pd.concat([mixed[parties["clinic"]], lab], axis=1), parties=parties
    )
    assert results["association_error_within"].value == pytest.approx(0.0, abs=1e-9)
    across = results["association_error_across"]
    # What independent parties lose is what the naive mark says, up to chance.
    assert across.value == pytest.approx(across.naive, rel=0.3)
    assert across.value > 2 * across.baseline
    assert set(across.parts["scope"]) == {"across"}
    assert len(across.parts) == 3 * 4


def test_an_opposite_relation_is_as_wrong_as_can_be():
    real = pd.DataFrame({"a": np.arange(50.0), "b": np.arange(50.0)})
    results = association_errors(real, real.assign(b=-real["b"]))
    assert results["association_error"].value == pytest.approx(2.0)


def test_what_cannot_be_judged_says_why(mixed, parties):
    without = association_errors(mixed, mixed)
    assert without["association_error"].value is not None
    assert without["association_error_across"].not_applicable == "no parties were given"
    single = association_errors(mixed[["age"]], mixed[["age"]])
    assert single["association_error"].not_applicable == "a single column has no relations"
    one_party = association_errors(mixed, mixed, parties={"all": list(mixed)})
    assert (
        one_party["association_error_across"].not_applicable == "no two columns are across parties"
    )
    apart = pd.DataFrame({"a": [1.0, 2.0, np.nan, np.nan], "b": [np.nan, np.nan, 1.0, 2.0]})
    assert "two real rows" in association_errors(apart, apart)["association_error"].not_applicable


def test_a_relation_that_the_synthetic_table_cannot_show_counts_in_full():
    real = pd.DataFrame({"a": np.arange(60.0), "b": np.arange(60.0)})
    for lost in (np.nan, 3.0):
        result = association_errors(real, real.assign(b=lost))["association_error"]
        assert result.value == pytest.approx(1.0)


def test_pairs_are_listed_worst_first(mixed, make):
    parts = association_errors(mixed, make(300, seed=3))["association_error"].parts
    assert len(parts) == 7 * 6 / 2
    assert parts["error"].is_monotonic_decreasing
    assert set(parts["measure"]) == {"pearson", "cramers_v", "correlation_ratio"}
