"""Laws of every metric, over ordinary tables and over everything that a table can throw at it."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeClassifier

from vflsynth.evaluation import (
    MetricResult,
    MetricResults,
    association_errors,
    average_variation_distance,
    detection_auc,
    frechet_distance,
    marginal_distance,
    proximity,
    utility,
)


def quick_utility(real, synthetic, **options):
    """Predict the last column with one small tree, to keep the many tables below affordable."""
    tree = DecisionTreeClassifier(max_depth=3, random_state=0)
    target = list(real.columns)[-1]
    return utility(real, synthetic, target, model=tree, task="classification", **options)


def quick_detection(real, synthetic, **options):
    tree = DecisionTreeClassifier(max_depth=3, random_state=0)
    return detection_auc(real, synthetic, classifier=tree, **options)


METRICS = {
    "frechet": frechet_distance,
    "marginal": marginal_distance,
    "association": association_errors,
    "avd": average_variation_distance,
    "detection": quick_detection,
    "utility": quick_utility,
    "proximity": proximity,
}
every_metric = pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS.keys())


def results_of(metric, real, synthetic, **options):
    found = metric(real, synthetic, **options)
    return MetricResults([found]) if isinstance(found, MetricResult) else found


def assert_readable(results):
    """A result is declared, finite, in range and inside its interval, or says why it is absent."""
    assert len(results) > 0
    for result in results.values():
        metric = result.metric
        assert metric.title
        assert metric.measures.endswith(".")
        assert metric.baseline
        assert metric.direction in ("lower", "higher", "baseline")
        assert metric.minimum < metric.maximum
        assert isinstance(result.parts, pd.DataFrame)
        if result.value is None:
            assert result.not_applicable
            continue
        assert math.isfinite(result.value)
        assert metric.minimum - 1e-9 <= result.value <= metric.maximum + 1e-9
        assert result.interval_method
        if result.interval is not None:
            low, high = result.interval
            assert low - 1e-9 <= result.value <= high + 1e-9
        assert len(result.parts)
        numeric = result.parts.select_dtypes("number")
        assert not np.isinf(numeric.to_numpy(dtype=float, na_value=np.nan)).any()
    json.loads(results.to_json(), parse_constant=lambda name: pytest.fail(f"{name} in JSON"))


def table(rows=120, seed=0):
    rng = np.random.default_rng(seed)
    base = rng.normal(size=rows)
    return pd.DataFrame(
        {
            "x": base,
            "y": base + rng.normal(size=rows),
            "c": np.where(base > 0, "p", "q"),
            "t": np.where(base + rng.normal(size=rows) > 0, "yes", "no"),
        }
    )


@every_metric
def test_ordinary_tables(metric):
    real, synthetic = table(seed=0), table(seed=1)
    copies = real.copy(deep=True), synthetic.copy(deep=True)
    results = results_of(metric, real, synthetic)
    assert_readable(results)
    pd.testing.assert_frame_equal(real, copies[0])
    pd.testing.assert_frame_equal(synthetic, copies[1])
    headline = [result for result in results.values() if result.value is not None]
    assert headline
    assert all(result.baseline is not None for result in headline)
    assert all(result.interval is not None for result in headline)


@every_metric
def test_same_seed_same_result(metric):
    first = results_of(metric, table(seed=0), table(seed=1), random_state=3)
    again = results_of(metric, table(seed=0), table(seed=1), random_state=3)
    assert first.to_json() == again.to_json()


@every_metric
def test_global_random_state_is_left_alone(metric):
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    metric(table(seed=0), table(seed=1))
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


@every_metric
def test_the_index_and_the_order_of_columns_mean_nothing(metric):
    real, synthetic = table(seed=0), table(seed=1)
    odd = synthetic[["t", "c", "y", "x"]].set_index(pd.Index(["same"] * len(synthetic)))
    plain = results_of(metric, real, synthetic).to_frame()
    pd.testing.assert_frame_equal(plain, results_of(metric, real, odd).to_frame())


NASTY = {
    "ordinary": lambda n: np.linspace(0, 1, n),
    "constant": lambda n: np.full(n, 7.0),
    "nearly constant": lambda n: np.r_[np.zeros(n - 1), 1.0],
    "missing": lambda n: np.full(n, np.nan),
    "nearly missing": lambda n: np.r_[np.full(n - 1, np.nan), 1.0],
    "half missing": lambda n: np.where(np.arange(n) % 2, np.nan, np.arange(n)),
    "huge": lambda n: 1e308 * np.linspace(-1, 1, n),
    "tiny": lambda n: np.linspace(1e-308, 2e-308, n),
    "infinite": lambda n: np.where(np.arange(n) % 3 == 0, np.inf, np.arange(n)),
    "far": lambda n: 1e15 + np.arange(n) % 2,
    "nullable": lambda n: pd.array([None if i % 4 == 0 else i for i in range(n)], dtype="Int64"),
}
NASTY_LABELS = {
    "ordinary": lambda n: np.where(np.arange(n) % 3 == 0, "a", "b"),
    "single": lambda n: np.full(n, "a"),
    "missing": lambda n: np.full(n, None),
    "half missing": lambda n: np.where(np.arange(n) % 2 == 0, None, "a"),
    "all different": lambda n: np.array([f"id {i}" for i in range(n)]),
    "unknown": lambda n: np.full(n, "never seen"),
    "boolean": lambda n: np.arange(n) % 2 == 0,
    "unused levels": lambda n: pd.Categorical(["a"] * n, categories=["z", "a", "y"]),
}


@st.composite
def nasty_tables(draw):
    rows = draw(st.sampled_from([2, 3, 7, 25, 60]))
    numbers = st.sampled_from(sorted(NASTY))
    labels = st.sampled_from(sorted(NASTY_LABELS))
    names = (
        draw(st.lists(numbers, min_size=3, max_size=3)),
        draw(st.lists(labels, min_size=3, max_size=3)),
    )
    columns = {f"n{i}": NASTY[name](rows) for i, name in enumerate(names[0])}
    columns |= {f"c{i}": NASTY_LABELS[name](rows) for i, name in enumerate(names[1])}
    columns["twin"] = columns["n0"]  # collinear with n0
    columns["target"] = np.where(np.arange(rows) % 3 == 0, "yes", "no")
    frame = pd.DataFrame(columns)
    # Labels stay labels even where every value is missing.
    return frame.astype({f"c{i}": object for i in range(3)})


PARTIES = {"a": ["n0", "n1", "c0", "twin"], "b": ["n2", "c1", "c2", "target"]}


@every_metric
@given(real=nasty_tables(), synthetic=nasty_tables())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_table_makes_nan(metric, real, synthetic):
    labels = {"categorical": ["c0", "c1", "c2"]}
    parties = {"parties": PARTIES} if metric in (frechet_distance, association_errors) else {}
    assert_readable(results_of(metric, real, synthetic, **labels, **parties))


@every_metric
@pytest.mark.parametrize("side", ["real", "synthetic"])
def test_all_missing_on_one_side(metric, side):
    real, synthetic = table(seed=0), table(seed=1)
    gone = {"real": real, "synthetic": synthetic}[side]
    gone[["x", "c"]] = np.nan
    assert_readable(results_of(metric, real, synthetic, categorical=["c"]))
