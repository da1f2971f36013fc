"""Statistics against slow, obvious code."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pandas as pd
import pytest

from vflsynth.adversary import Correlation, Extremes, Histogram, Naive, NearestValues, Neighbourhood
from vflsynth.adversary.encoding import nearest_distances
from vflsynth.exceptions import ParameterError


@pytest.fixture
def known() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "x": rng.normal(size=30),
            "label": rng.choice(["p", "q", "r"], size=30),
            "y": rng.normal(size=30) ** 2,
        }
    )


@pytest.fixture
def table() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "x": rng.normal(size=20),
            "label": rng.choice(["p", "q"], size=20, p=[0.8, 0.2]),
            "y": rng.normal(size=20),
        }
    )


def test_naive_is_mean_median_variance_and_label_counts(known, table):
    found = Naive().fit(known).measure(table, known.head(1))
    expected = []
    for name in ("x", "label", "y"):
        if name == "label":
            counts = table[name].value_counts()
            codes = {"p": 0, "q": 1, "r": 2}
            expected += [codes[counts.idxmax()], codes[counts.idxmin()], counts.size]
        else:
            expected += [table[name].mean(), table[name].median(), table[name].var()]
    np.testing.assert_allclose(found, expected)


def test_naive_tells_the_share_of_missing_values_where_some_are_known(known, table):
    with_gaps = known.assign(x=known["x"].where(known.index > 2))
    features = Naive().fit(with_gaps).measure(table.assign(x=np.nan), known.head(1))
    assert features[:4].tolist() == [0.0, 0.0, 0.0, 1.0]


def test_correlation_is_that_of_pandas_with_one_hot_labels(known, table):
    wide = pd.DataFrame(
        {
            "x": table["x"],
            **{level: (table["label"] == level).astype(float) for level in ("p", "q", "r", "new")},
            "y": table["y"],
        }
    )
    with np.errstate(invalid="ignore"):
        matrix = wide.corr().fillna(0.0).to_numpy()
    expected = matrix[np.triu_indices(6, k=1)]
    found = Correlation().fit(known).measure(table, known.head(1))
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_histogram_bins_are_those_of_numpy_and_stay_in_order(known, table):
    inside = table.assign(
        x=table["x"].clip(known["x"].min(), known["x"].max()),
        y=table["y"].clip(known["y"].min(), known["y"].max()),
    )
    found = Histogram(5).fit(known).measure(inside, known.head(1))
    limits = {name: (known[name].min(), known[name].max()) for name in ("x", "y")}
    expected = np.concatenate(
        [
            np.histogram(inside["x"], 5, limits["x"])[0],
            [(inside["label"] == level).sum() for level in ("p", "q", "r", "new")],
            np.histogram(inside["y"], 5, limits["y"])[0],
        ]
    )
    np.testing.assert_allclose(found, expected / 20)


def test_values_beyond_the_known_extremes_count_in_the_outermost_bins(known, table):
    found = Histogram(5).fit(known).measure(table.assign(x=[-1e300, *[1e300] * 19]), known.head(1))
    np.testing.assert_allclose(found[:5], [1 / 20, 0, 0, 0, 19 / 20])


def test_extremes_are_the_ends_of_columns_and_what_lies_beyond_the_target(known, table):
    target = known.iloc[[4]]
    gaps = table.assign(y=table["y"].where(table.index > 17))  # two numbers are left
    found = Extremes().fit(known).measure(gaps, target)
    expected = []
    for name in ("x", "label", "y"):
        if name == "label":
            expected += [(table[name] == target[name].item()).mean()]
            continue
        values = sorted(gaps[name].dropna())
        ends = [values[min(i, len(values) - 1)] for i in range(3)]
        ends += [values[max(-1 - i, -len(values))] for i in range(3)]
        expected += [(v - known[name].mean()) / known[name].std(ddof=0) for v in ends]
        wanted = target[name].item()
        expected += [sum(v >= wanted for v in values) / 20, sum(v <= wanted for v in values) / 20]
    np.testing.assert_allclose(found, expected)


def test_nearest_values_are_those_of_single_columns(known, table):
    target = known.iloc[[4]]
    x, y = (target[name].item() for name in "xy")
    gaps = table.assign(x=table["x"].where(table.index > 2), y=[y, y, *table["y"][2:]])
    found = NearestValues().fit(known).measure(gaps, target)
    distances = [abs(v - x) / known["x"].std(ddof=0) for v in gaps["x"].dropna()]
    label = (gaps["label"] == target["label"].item()).mean()
    expected = [np.log(min(distances) + 1e-3), 0.0, label, np.log(1e-3), 2 / 20]
    np.testing.assert_allclose(found, expected)


def test_nearest_values_of_what_is_missing_are_the_missing_ones(known, table):
    target = known.iloc[[4]].assign(x=np.nan)
    fitted = NearestValues().fit(known.assign(x=known["x"].where(known.index > 4)))
    gaps = table.assign(x=table["x"].where(table.index > 2), y=np.nan)
    found = fitted.measure(gaps, target)
    assert found[:2].tolist() == [0.0, 3 / 20]
    assert np.isfinite(found).all()
    assert found[-1] == 0.0, "a missing value is not the target's"


def test_neighbourhood_holds_the_smallest_distances(known, table, monkeypatch):
    target = known.iloc[[4]]
    fitted = Neighbourhood().fit(known)
    found = fitted.measure(table, target)
    distances = np.sqrt(
        ((table["x"] - target["x"].item()) / known["x"].std(ddof=0)) ** 2
        + ((table["y"] - target["y"].item()) / known["y"].std(ddof=0)) ** 2
        + 2 * (table["label"] != target["label"].item())
    )
    np.testing.assert_allclose(found, np.sort(distances)[:5])
    monkeypatch.setattr("vflsynth.adversary.statistics._BLOCK_ROWS", 7)
    np.testing.assert_array_equal(fitted.measure(table, target), found)


def test_numeric_columns_can_be_read_as_labels(known):
    codes = known.assign(y=np.arange(30) % 3)
    assert len(Correlation().fit(codes).measure(codes, codes.head(1))) == 6 * 5 / 2
    fitted = Correlation().fit(codes, categorical=["y"])
    assert len(fitted.measure(codes, codes.head(1))) == 9 * 8 / 2


def test_a_single_bin_is_refused():
    with pytest.raises(ParameterError, match="at least"):
        Histogram(1)


def test_distances_are_in_memory_a_block_at_a_time(monkeypatch):
    monkeypatch.setattr("vflsynth.adversary.encoding._BLOCK_ELEMENTS", 2000)
    points, others = np.ones((500, 13)), np.zeros((2000, 13))
    tracemalloc.start()
    try:
        assert nearest_distances(points, others) == pytest.approx(13**0.5)
        assert tracemalloc.get_traced_memory()[1] < points.shape[0] * len(others)  # of 8 bytes each
    finally:
        tracemalloc.stop()
