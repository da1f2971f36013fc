"""Laws of every metric, over ordinary tables and over everything that a table can throw at it."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeClassifier

from vflsynth.evaluation import (
    Metric,
    MetricResult,
    NotApplicableError,
    TableMetric,
    Tables,
    evaluate,
    report,
)
from vflsynth.evaluation.detection import told_apart
from vflsynth.evaluation.suite import (
    AllColumns,
    Copies,
    Detection,
    DiscreteColumns,
    ExactStructure,
    PairsOfColumns,
    SingleColumns,
    TrainAndTest,
    WholeRows,
    all_metrics,
)
from vflsynth.evaluation.train_test import Usefulness
from vflsynth.exceptions import ParameterError
from vflsynth.testing import metric_checks, parametrize_with_checks
from vflsynth.testing.metrics import (
    NASTY_LABELS,
    NASTY_NUMBERS,
    NASTY_PARTIES,
    MetricCase,
    nasty_table,
    ordinary_table,
    require_readable,
)

# One small tree instead of a forest, to keep the many tables below affordable.
TREE = DecisionTreeClassifier(max_depth=3, random_state=0)


class SmallDetection(Detection):
    def compute(self, tables):
        return told_apart(tables, TREE)


class SmallTrainAndTest(TrainAndTest):
    def compute(self, tables):
        return Usefulness(tables, task="classification", model=TREE, max_rows=10_000).measured()


METRICS = {
    "frechet": AllColumns(),
    "marginal": SingleColumns(),
    "association": PairsOfColumns(),
    "avd": DiscreteColumns(),
    "coherence": WholeRows(),
    "structure": ExactStructure(),
    "detection": SmallDetection(),
    "utility": SmallTrainAndTest(),
    "proximity": Copies(),
}
every_metric = pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS.keys())


@parametrize_with_checks({name: metric_checks(metric) for name, metric in METRICS.items()})
def test_laws(check):
    check()


def test_none_is_missing():
    assert {metric.name for metric in all_metrics()} == {m.name for m in METRICS.values()}


@every_metric
def test_ours_have_an_interval(metric):
    results = MetricCase(metric).ordinary.values()
    assert all(result.interval is not None for result in results if result.value is not None)


@st.composite
def nasty_tables(draw):
    rows = draw(st.sampled_from([2, 3, 7, 25, 60]))
    numbers = st.sampled_from(sorted(NASTY_NUMBERS))
    labels = st.sampled_from(sorted(NASTY_LABELS))
    return nasty_table(
        rows,
        draw(st.lists(numbers, min_size=3, max_size=3)),
        draw(st.lists(labels, min_size=3, max_size=3)),
    )


@every_metric
@given(real=nasty_tables(), synthetic=nasty_tables())
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_table_makes_nan(metric, real, synthetic):
    known = {"categorical": ["c0", "c1", "c2"], "target": "target", "parties": NASTY_PARTIES}
    require_readable(MetricCase(metric).results(real, synthetic, **known))


# -- metrics of an outsider, and what the laws find in broken ones ---------------------------------


@dataclass(frozen=True)
class RowRatio(TableMetric):
    """Synthetic rows per real row; `broken` says how it errs."""

    broken: str = ""
    name = "row_ratio"

    declared = Metric(
        name="row_ratio",
        title="Rows per real row",
        direction="baseline",
        minimum=0.0,
        maximum=5.0,
        measures="How many synthetic rows there are per real row.",
        baseline="as many",
    )

    def compute(self, tables: Tables) -> MetricResult:
        value = len(tables.synthetic) / len(tables.real)
        value = min(5.0, value) if self.broken != "range" else value + 5.0
        if self.broken == "order of rows":
            value = float(np.clip(tables.real.iloc[:, 0].map(hash).iloc[0] % 5, 0.0, 5.0))
        if self.broken == "chance":
            value = float(np.random.default_rng().random())
        if self.broken == "global state":
            np.random.rand()  # noqa: NPY002
        if self.broken == "in place":
            tables.synthetic["x"] = 0.0
        if self.broken == "nasty tables" and tables.real.iloc[:, 0].isna().all():
            value = float("nan")
        if self.broken == "index" and not tables.synthetic.index.is_unique:
            value = 0.0
        return MetricResult(
            self.declared,
            value,
            interval=(2.0, 3.0) if self.broken == "interval" else None,
            interval_method="none: counted",
            baseline=None if self.broken == "baseline" else 1.0,
            parts=pd.DataFrame({"rows": [len(tables.synthetic)]}),
        )


def keep_the_laws(metric):
    for check in metric_checks(metric):
        check()


def test_a_metric_of_an_outsider_keeps_the_laws():
    keep_the_laws(RowRatio())


@pytest.mark.parametrize(
    ("broken", "law"),
    [
        ("range", "'results_can_be_read': row_ratio is 6, outside its declared range 0 to 5"),
        ("interval", "'results_can_be_read': row_ratio is 1, outside its interval 2 to 3"),
        ("baseline", "'ordinary_tables_have_a_value_and_a_baseline'"),
        ("in place", "'tables_are_left_as_they_were'"),
        ("global state", "'global_random_state_is_left_alone'"),
        ("chance", "'same_random_state_same_result'"),
        ("index", "'index_and_order_of_columns_mean_nothing'"),
        ("order of rows", "'order_of_rows_means_nothing'"),
        ("nasty tables", "'missing_values_are_no_error': ValueError: row_ratio is not finite"),
    ],
)
def test_the_laws_find_what_is_broken(broken, law):
    with pytest.raises(AssertionError, match=f"RowRatio .'row_ratio'. breaks the law {law}"):
        keep_the_laws(RowRatio(broken))


@pytest.mark.slow
def test_it_is_computed_beside_ours_where_it_is_passed():
    real, synthetic = ordinary_table(60, seed=0), ordinary_table(30, seed=1)
    ours = evaluate(real, synthetic)
    results = evaluate(real, synthetic, metrics=[RowRatio()])
    assert [*results] == [*ours, "row_ratio"]
    assert float(results["row_ratio"]) == 0.5
    with pytest.raises(NotApplicableError):
        float(results["total_difference"])
    pytest.importorskip("matplotlib")
    page = report(real, synthetic, metrics=[RowRatio()])
    assert "How many synthetic rows there are per real row." in page.html


def test_two_results_of_one_name_are_refused():
    with pytest.raises(ParameterError, match="several metrics call a result 'row_ratio'"):
        evaluate(ordinary_table(), ordinary_table(), metrics=[RowRatio(), RowRatio()])
