import json
import math

import pandas as pd
import pytest

from vflsynth.evaluation import Metric, MetricResult, MetricResults, NotApplicableError

DISTANCE = Metric("distance", "Distance", "lower", "How far.", 0.0, math.inf, "halves", "noise")
SCORE = Metric("score", "Score", "higher", "How well.", -math.inf, 1.0, "real", "guessing")


@pytest.mark.parametrize(
    ("metric", "value", "baseline", "naive", "expected"),
    [
        (DISTANCE, 0.1, 0.1, 2.1, 1.0),
        (DISTANCE, 2.1, 0.1, 2.1, 0.0),
        (DISTANCE, 1.1, 0.1, 2.1, 0.5),
        (DISTANCE, 9.0, 0.1, 2.1, 0.0),  # worse than naive
        (DISTANCE, 0.0, 0.1, 2.1, 1.0),  # better than real
        (SCORE, 0.8, 0.9, 0.5, 0.75),
        (SCORE, 0.8, 0.5, 0.5, None),  # no ruler: real rows are no better than guessing
        (SCORE, 0.8, 0.4, 0.5, None),
        (DISTANCE, 1.0, None, 2.0, None),
    ],
)
def test_gap_closed_is_the_place_between_naive_and_real(metric, value, baseline, naive, expected):
    result = MetricResult(metric, value=value, baseline=baseline, naive=naive)
    assert result.gap_closed == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_a_result_is_never_nan(broken):
    for numbers in (
        {"value": broken},
        {"value": 0.0, "interval": (0.0, broken)},
        {"value": 0.0, "baseline": broken},
        {"value": 0.0, "naive": broken},
    ):
        with pytest.raises(ValueError, match="not finite"):
            MetricResult(DISTANCE, **numbers)


def test_a_result_has_a_value_or_a_reason():
    with pytest.raises(ValueError, match="either"):
        MetricResult(DISTANCE)
    with pytest.raises(ValueError, match="either"):
        MetricResult(DISTANCE, value=1.0, not_applicable="it rains")


def test_what_does_not_apply_says_why():
    result = DISTANCE.not_applicable("the table has no rows")
    assert str(result) == "Distance: not applicable, because the table has no rows"
    with pytest.raises(NotApplicableError, match="because the table has no rows"):
        float(result)


def test_json_is_strict_and_keeps_parts():
    parts = pd.DataFrame({"column": ["a", 3], "value": [0.5, math.nan], "n": [1, 2]})
    results = MetricResults([MetricResult(DISTANCE, value=0.5, parts=parts)])
    read = json.loads(results.to_json())["distance"]
    assert read["parts"] == [
        {"column": "a", "value": 0.5, "n": 1},
        {"column": 3, "value": None, "n": 2},
    ]
    assert read["range"] == [0.0, None]
    assert read["direction"] == "lower"


def test_frame_has_one_row_per_metric():
    results = MetricResults(
        [MetricResult(DISTANCE, value=0.5, interval=(0.4, 0.6)), SCORE.not_applicable("no target")]
    )
    frame = results.to_frame()
    assert list(frame.index) == ["distance", "score"]
    assert frame.loc["distance", "upper"] == 0.6
    assert frame.loc["score", "not_applicable"] == "no target"
