import sys

import numpy as np
import pandas as pd
import pytest

from vflsynth.evaluation import (
    average_variation_distance,
    marginal_distance,
    sdmetrics_diagnostic,
    sdmetrics_quality,
)
from vflsynth.exceptions import MissingExtraError


def test_without_the_extra_the_error_says_what_to_install(mixed, monkeypatch):
    monkeypatch.setitem(sys.modules, "sdmetrics", None)
    for run in (sdmetrics_quality, sdmetrics_diagnostic):
        with pytest.raises(MissingExtraError, match=r"pip install 'vflsynth\[sdmetrics\]'"):
            run(mixed, mixed)


@pytest.fixture
def sdmetrics():
    return pytest.importorskip("sdmetrics", reason="the extra 'sdmetrics' is not installed")


@pytest.fixture
def whole(make):
    """Two tables without missing values: SDMetrics drops those, and we do not."""
    columns = ["age", "smoker", "count", "grade"]
    return tuple(make(rows, seed=seed)[columns] for rows, seed in ((600, 0), (450, 1)))


def test_marginal_distances_agree(sdmetrics, whole):
    theirs = sdmetrics_quality(*whole).parts
    theirs = theirs[theirs["property"] == "Column Shapes"].set_index("column")
    ours = marginal_distance(*whole).parts.set_index("column")
    assert set(theirs["metric"]) == {"KSComplement", "TVComplement"}
    for name in ours.index:
        assert theirs.loc[name, "metric"][:2].lower() == ours.loc[name, "measure"]
        assert 1 - theirs.loc[name, "value"] == pytest.approx(ours.loc[name, "value"])


def test_contingency_similarity_agrees(sdmetrics, whole):
    from sdmetrics.column_pairs import ContingencySimilarity

    real, synthetic = (frame[["smoker", "grade"]].astype(object) for frame in whole)
    theirs = ContingencySimilarity.compute(real, synthetic)
    assert 1 - theirs == pytest.approx(average_variation_distance(real, synthetic).value)


def test_reports_have_a_baseline_and_leave_the_tables_alone(sdmetrics, mixed, make):
    synthetic = make(300, seed=1)
    copies = mixed.copy(deep=True), synthetic.copy(deep=True)
    for run in (sdmetrics_quality, sdmetrics_diagnostic):
        result = run(mixed, synthetic)
        assert 0.8 < result.value <= 1.0
        assert 0.8 < result.baseline <= 1.0
        assert not result.parts["value"].isna().any()
    pd.testing.assert_frame_equal(mixed, copies[0])
    pd.testing.assert_frame_equal(synthetic, copies[1])


def test_a_bad_table_scores_lower(sdmetrics, whole):
    real, synthetic = whole
    bad = synthetic.assign(age=synthetic["age"] + 1000, grade="low")
    assert sdmetrics_quality(real, bad).value < sdmetrics_quality(real, synthetic).value - 0.2
    assert sdmetrics_diagnostic(real, bad).value < 1.0


def test_names_may_be_anything(sdmetrics):
    real = pd.DataFrame({1: np.arange(20.0), ("a", 2): ["x", "y"] * 10})
    assert sdmetrics_quality(real, real).value == pytest.approx(1.0)
