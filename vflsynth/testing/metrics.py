"""Laws of metrics: results that can be read, of any tables, and the same again."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import product
from typing import Any, cast

import numpy as np
import pandas as pd

from vflsynth.evaluation import MetricResult, MetricResults, TableMetric, Tables
from vflsynth.testing.laws import (
    Case,
    Check,
    checks_of,
    global_random_state_left_alone,
    require,
)

NASTY_NUMBERS: dict[str, Callable[[int], Any]] = {
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
"""Columns of numbers that break careless code, by the number of rows."""

NASTY_LABELS: dict[str, Callable[[int], Any]] = {
    "ordinary": lambda n: np.where(np.arange(n) % 3 == 0, "a", "b"),
    "single": lambda n: np.full(n, "a"),
    "missing": lambda n: np.full(n, None),
    "half missing": lambda n: np.array([(None, "a")[i % 2] for i in range(n)], dtype=object),
    "all different": lambda n: np.array([f"id {i}" for i in range(n)]),
    "unknown": lambda n: np.full(n, "never seen"),
    "boolean": lambda n: np.arange(n) % 2 == 0,
    "unused levels": lambda n: pd.Categorical(["a"] * n, categories=["z", "a", "y"]),
}
"""Columns of labels that break careless code, by the number of rows."""

NASTY_PARTIES = {"a": ["n0", "n1", "c0", "twin"], "b": ["n2", "c1", "c2", "target"]}
"""Who owns the columns of `nasty_table`."""


def nasty_table(n_rows: int, numbers: Sequence[str], labels: Sequence[str]) -> pd.DataFrame:
    """Return a table of three columns from each of the lists above, a twin column and a target."""
    columns = {f"n{i}": NASTY_NUMBERS[name](n_rows) for i, name in enumerate(numbers)}
    columns |= {f"c{i}": NASTY_LABELS[name](n_rows) for i, name in enumerate(labels)}
    columns["twin"] = columns["n0"]  # collinear with n0
    columns["target"] = np.where(np.arange(n_rows) % 3 == 0, "yes", "no")
    # Labels stay labels even where every value is missing.
    return pd.DataFrame(columns).astype({f"c{i}": object for i in range(3)})


def ordinary_table(n_rows: int = 120, seed: int = 0) -> pd.DataFrame:
    """Return a table of two related numbers and two related labels."""
    rng = np.random.default_rng(seed)
    base = rng.normal(size=n_rows)
    return pd.DataFrame(
        {
            "x": base,
            "y": base + rng.normal(size=n_rows),
            "c": np.where(base > 0, "p", "q"),
            "t": np.where(base + rng.normal(size=n_rows) > 0, "yes", "no"),
        }
    )


class MetricCase(Case[TableMetric]):
    """A metric whose laws are checked."""

    def __str__(self) -> str:
        return f"{type(self.value).__name__} ({self.value.name!r})"

    def results(self, real: pd.DataFrame, synthetic: pd.DataFrame, **known: Any) -> MetricResults:
        """Return what it says of two tables; a target and parties are given."""
        known = {"target": "t", "parties": {"a": ["x", "c"], "b": ["y", "t"]}} | known
        found: Any = self.value.compute(Tables(real, synthetic, random_state=3, **known))
        if isinstance(found, MetricResult):
            return MetricResults([found])
        right = isinstance(found, MetricResults)
        require(right, f"compute() must return a MetricResult or MetricResults, not {found!r}")
        return cast(MetricResults, found)

    @cached_property
    def ordinary(self) -> MetricResults:
        """What it says of ordinary tables."""
        return self.results(ordinary_table(seed=0), ordinary_table(seed=1))


def results_can_be_read(case: MetricCase) -> None:
    """See `require_readable`, for ordinary tables with and without held-out rows."""
    require_readable(case.ordinary)
    held_out = ordinary_table(60, seed=2)
    require_readable(case.results(ordinary_table(seed=0), ordinary_table(seed=1), holdout=held_out))


def ordinary_tables_have_a_value_and_a_baseline(case: MetricCase) -> None:
    """Without what real data score a value says little."""
    values = [result for result in case.ordinary.values() if result.value is not None]
    require(values, f"there is no value: {case.ordinary}")
    for result in values:
        require(result.baseline is not None, f"{result.metric.name} has no baseline")


def tables_are_left_as_they_were(case: MetricCase) -> None:
    """Neither table is changed in place."""
    tables = ordinary_table(seed=0), ordinary_table(seed=1)
    case.results(*tables)
    for seed, table in enumerate(tables):
        require(table.equals(ordinary_table(seed=seed)), "a table was changed in place")


def global_random_state_is_left_alone(case: MetricCase) -> None:
    """Draws come from the tables' random state."""
    with global_random_state_left_alone():
        case.results(ordinary_table(seed=0), ordinary_table(seed=1))


def same_random_state_same_result(case: MetricCase) -> None:
    """To the last digit."""
    again = case.results(ordinary_table(seed=0), ordinary_table(seed=1))
    for name, result in case.ordinary.items():
        first, second = result.to_dict(), again[name].to_dict()
        require(first == second, f"{name} first is {result}, then {again[name]}")


def index_and_order_of_columns_mean_nothing(case: MetricCase) -> None:
    """Rows are rows, and columns are known by name."""
    synthetic = ordinary_table(seed=1)
    odd = synthetic[["t", "c", "y", "x"]].set_index(pd.Index(["same"] * len(synthetic)))
    found = case.results(ordinary_table(seed=0), odd).to_frame()
    require(found.equals(case.ordinary.to_frame()), f"{case.ordinary} becomes {found}")


def order_of_rows_means_nothing(case: MetricCase) -> None:
    """Where rows are chosen at random, a value may move as far as its interval says."""
    order = np.random.default_rng(0).permutation(120)
    shuffled = case.results(
        ordinary_table(seed=0).iloc[order], ordinary_table(seed=1).iloc[order[::-1]]
    )
    for name, result in case.ordinary.items():
        if result.value is None and shuffled[name].value is None:
            continue
        spans = [_span(each) for each in (result, shuffled[name])]
        apart = max(low for low, _ in spans) - min(high for _, high in spans)
        require(apart <= 1e-9 * max(1.0, *map(abs, spans[0])), f"{result} became {shuffled[name]}")


def missing_values_are_no_error(case: MetricCase) -> None:
    """Not even where a column has no value at all in one of the tables."""
    for gone in (0, 1):
        tables = [ordinary_table(seed=0), ordinary_table(seed=1)]
        tables[gone][["x", "c"]] = np.nan
        require_readable(case.results(*tables, categorical=["c"]))


def no_table_is_an_error(case: MetricCase) -> None:
    """Two rows, constants, infinite and huge values, labels that the real table lacks."""
    rng = np.random.default_rng(0)
    for n_rows in product((2, 7, 60), (2, 25)):
        tables = [
            nasty_table(
                n,
                rng.choice(list(NASTY_NUMBERS), 3).tolist(),
                rng.choice(list(NASTY_LABELS), 3).tolist(),
            )
            for n in n_rows
        ]
        known = {"categorical": ["c0", "c1", "c2"], "target": "target", "parties": NASTY_PARTIES}
        try:
            require_readable(case.results(tables[0], tables[1], **known))
        except Exception as error:
            raise AssertionError(f"{error!r} for\n{tables[0]}\nand\n{tables[1]}") from error


def metric_checks(metric: TableMetric) -> list[Check]:
    """Return one check for each law of a metric.

    Examples
    --------
    >>> from vflsynth.evaluation import TableMetric
    >>> class Broken(TableMetric):
    ...     name = "broken"
    ...     def compute(self, tables):
    ...         return 0.5
    >>> for check in metric_checks(Broken()):  # doctest: +ELLIPSIS
    ...     check()
    Traceback (most recent call last):
    ...
    AssertionError: Broken ('broken') breaks the law 'results_can_be_read': compute() must ...
    """
    return checks_of(MetricCase(metric))


def require_readable(results: MetricResults) -> None:
    """Check that results are declared, finite, in range, and inside their intervals.

    They are of any tables; a value may be absent with a reason.
    """
    require(len(results) > 0, "there is no result")
    for name, result in results.items():
        metric = result.metric
        declared = metric.title and metric.baseline and metric.measures.endswith(".")
        require(declared, f"{name} needs a title, a baseline and a sentence in `measures`")
        known = metric.direction in ("lower", "higher", "baseline")
        require(known, f"{name} has the direction {metric.direction!r}")
        require(metric.minimum < metric.maximum, f"{name} has an empty range")
        require(isinstance(result.parts, pd.DataFrame), f"the parts of {name} are no DataFrame")
        if result.value is None:
            require(result.not_applicable, f"{name} has no value, and no reason for it")
            continue
        for what, low, high in (
            ("declared range", metric.minimum, metric.maximum),
            ("interval", *(result.interval or (-math.inf, math.inf))),
        ):
            inside = low - 1e-9 <= result.value <= high + 1e-9
            require(inside, f"{name} is {result.value:g}, outside its {what} {low:g} to {high:g}")
        require(result.interval_method, f"{name} does not say how its interval was made")
        require(len(result.parts), f"{name} does not say in `parts` what it is made of")
        numbers = result.parts.select_dtypes("number").to_numpy(dtype=float, na_value=np.nan)
        require(not np.isinf(numbers).any(), f"the parts of {name} hold infinite numbers")
    try:
        results.to_json()
    except ValueError as error:
        raise AssertionError(f"the results are no strict JSON: {error}") from error


def _span(result: MetricResult) -> tuple[float, float]:
    """Return the interval, or else the value twice; no value is far from all values."""
    value = math.inf if result.value is None else result.value
    return result.interval or (value, value)
