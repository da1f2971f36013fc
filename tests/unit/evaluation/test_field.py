"""Shape, Trend, detection scores and rules, against slow and obvious code, and SDMetrics."""

import datetime as dt

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ks_2samp

from tests.later import later
from vflsynth.evaluation import (
    RuleCost,
    RuleViolations,
    SDMetricsReports,
    Tables,
    detection_score,
    evaluate,
    rule_cost,
    rule_violations,
    shape,
    trend,
)
from vflsynth.exceptions import ParameterError


@pytest.fixture
def pair():
    rng = np.random.default_rng(0)

    def table(n, shift):
        x = rng.normal(size=n) + shift
        label = np.where(rng.random(n) < 0.5 + shift / 4, "a", "b")
        return pd.DataFrame({"x": x, "y": x + rng.normal(size=n), "label": label})

    return table(4000, 0.0), table(3000, 0.5)


def test_shape_is_the_mean_of_complements(pair):
    real, synthetic = pair
    shares = [frame["label"].value_counts(normalize=True) for frame in pair]
    expected = [
        1 - ks_2samp(real["x"], synthetic["x"]).statistic,
        1 - ks_2samp(real["y"], synthetic["y"]).statistic,
        1 - (shares[0] - shares[1]).abs().sum() / 2,
    ]
    found = shape(*pair)
    np.testing.assert_allclose(found.parts["value"], expected)
    assert float(found) == pytest.approx(np.mean(expected))
    assert found.baseline > float(found)


def test_trend_of_numbers_and_of_labels(pair):
    real, _ = pair
    values = trend(*pair).parts.set_index(["column", "other_column"])["value"]
    correlations = [frame["x"].corr(frame["y"]) for frame in pair]
    assert values["x", "y"] == pytest.approx(1 - abs(correlations[0] - correlations[1]) / 2)
    edges = np.linspace(real["x"].min(), real["x"].max(), 11)
    edges[0], edges[-1] = -np.inf, np.inf
    tables = [
        pd.crosstab(pd.cut(f["x"], edges, labels=False), f["label"], normalize=True) for f in pair
    ]
    difference = tables[0].sub(tables[1], fill_value=0).abs().sum().sum() / 2
    assert values["x", "label"] == pytest.approx(1 - difference)


def test_sdmetrics_agrees(pair):
    results = SDMetricsReports().compute(Tables(*pair))
    theirs = results["sdmetrics_quality"].parts.groupby("property")["value"].mean()
    assert float(shape(*pair)) == pytest.approx(theirs["Column Shapes"], abs=2e-3)
    from sdmetrics.column_pairs import ContingencySimilarity

    whole = pair[0].assign(x=(3 * pair[0]["x"] + 5).round().clip(0, 10))[["x", "label"]]
    halves = whole.iloc[::2], whole.iloc[1::2]
    of_pair = ContingencySimilarity.compute(*halves, ["x"], 10)
    assert trend(*halves).parts["value"][0] == pytest.approx(of_pair)


@pytest.mark.parametrize("detector", [*later("gradient_boosting"), "logistic_regression"])
def test_detectors_find_what_is_there_and_nothing_else(pair, detector):
    real, synthetic = pair
    rng = np.random.default_rng(1)
    order = rng.permutation(len(real))
    alike = detection_score(real.iloc[order[:2000]], real.iloc[order[2000:]], detector=detector)
    shifted = detection_score(real, synthetic, detector=detector)
    apart = detection_score(real, synthetic.assign(x=50.0), detector=detector)
    assert float(alike) > 0.85 > float(shifted) > float(apart)
    assert float(apart) < 0.01
    assert len(shifted.parts) == 3


def test_logistic_regression_is_blind_to_relations(pair):
    real, _ = pair
    shuffled = real.assign(y=np.random.default_rng(0).permutation(real["y"]))
    assert float(detection_score(real, shuffled, detector="logistic_regression")) > 0.9
    assert float(detection_score(real, shuffled)) < 0.8


def test_an_unknown_detector_is_refused(pair):
    with pytest.raises(ParameterError, match="detector must be one of"):
        detection_score(*pair, detector="eye")


def test_what_a_rule_costs_is_what_rows_lose():
    rng = np.random.default_rng(0)
    real = pd.DataFrame({"a": rng.normal(size=2000), "b": rng.normal(size=2000)})
    real["c"] = real["a"] + real["b"]
    drawn = real.sample(frac=1, random_state=1).assign(c=3 * rng.normal(size=2000) + 1)
    drawn = drawn.reset_index(drop=True)
    found = rule_cost(real, drawn, ["c == a + b", "a > 0"])
    parts = found.parts.set_index("rule")
    computed, filtered, every = (parts.loc[rule] for rule in ("c == a + b", "a > 0", "all rules"))
    assert computed["broken"] == computed["changed"] == 1.0
    assert computed["left_out"] == 0.0
    before, after = shape(real, drawn), shape(real, real)
    gained = float(after) - float(before)
    assert computed["shape_change"] == pytest.approx(gained, abs=1e-3)  # values are rounded
    assert computed["trend_change"] > 0.1
    assert filtered["left_out"] == filtered["broken"] == (drawn["a"] <= 0).mean()
    assert filtered["changed"] == 0.0
    kept = drawn[drawn["a"] > 0]
    assert filtered["shape_change"] == pytest.approx(float(shape(real, kept)) - float(before))
    assert filtered["shape_change"] < -0.1
    assert float(found) == pytest.approx(-every["shape_change"])
    assert rule_cost(real, drawn, []).value is None
    assert rule_cost(real, drawn, ["a > 99"]).value is None


@pytest.mark.slow
def test_rules_are_metrics_among_others(pair):
    real, synthetic = pair
    rules = ["x > 0"]
    metrics = [RuleViolations(rules), RuleCost(rules, synthetic)]
    found = evaluate(real, synthetic, metrics=metrics)
    assert float(found["rule_violations"]) == pytest.approx((synthetic["x"] <= 0).mean())
    assert found["rule_cost"].parts["rule"].tolist() == ["x > 0", "all rules"]


def test_rules_count_rows_once(pair):
    real, synthetic = pair
    rules = {"x": lambda t: t["x"] > 0, "y": lambda t: t["y"] > 0}
    found = rule_violations(real, synthetic, rules)
    broken = (synthetic["x"] <= 0) | (synthetic["y"] <= 0)
    assert float(found) == pytest.approx(broken.mean())
    assert found.baseline == pytest.approx(((real["x"] <= 0) | (real["y"] <= 0)).mean())
    assert found.parts["rule"].tolist() == ["x", "y"]
    assert rule_violations(real, synthetic, {}).value is None


def test_a_detector_sees_times_as_others_do():
    rng = np.random.default_rng(0)

    def table(first):
        return pd.DataFrame(
            {
                "x": rng.normal(size=200),
                "t": [dt.time(int(hour)) for hour in rng.integers(first, first + 8, 200)],
            }
        )

    assert float(detection_score(table(0), table(16))) < 0.05


@pytest.mark.parametrize(
    "says",
    [
        lambda frame: pd.Series([np.nan] * len(frame)),
        lambda frame: ["False"] * len(frame),
        lambda frame: (frame["a"] < 3)[:5],
        lambda frame: pd.array([True, None] * (len(frame) // 2), dtype="boolean"),
    ],
)
def test_a_rule_says_of_every_row_whether_it_is_kept(says):
    frame = pd.DataFrame({"a": range(50)})
    with pytest.raises(ParameterError, match="rule 'r' must say of each of 50 rows"):
        rule_violations(frame, frame, {"r": says})


def test_a_column_that_is_missing_in_one_table_has_no_shape_in_common():
    real = pd.DataFrame({"c": ["x", "y"] * 50, "n": np.arange(100.0)})
    for gone in ({"c": None}, {"n": np.nan}):
        assert shape(real, real.assign(**gone)).value == pytest.approx(0.5)
