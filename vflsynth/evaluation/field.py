"""The numbers that published results are given in: Shape, Trend, detection scores.

The definitions are SDMetrics' (Column Shapes, Column Pair Trends, LogisticDetection), as TabSyn,
TabDiff and others report them, computed without it, but for one: beside labels, numbers of both
tables are cut where the real ones are, and not each table's by its own range, so that one far value
does not move all bins; Trend is a little higher for it. 1 is best in all of them.

SDMetrics' own quality and diagnostic reports are an extra (``pip install 'vflsynth[sdmetrics]'``),
because SDMetrics brings dependencies under other licences.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any, Literal, Unpack, get_args

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import make_scorer, roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import RobustScaler

from vflsynth.evaluation.columns import (
    CategoricalColumn,
    Column,
    Floats,
    Integers,
    NumericColumn,
    TableEncoder,
    is_categorical,
    present,
)
from vflsynth.evaluation.marginals import ks_distance
from vflsynth.evaluation.metric import Metric, MetricResult, MetricResults
from vflsynth.evaluation.tables import Compared, TableMetric, Tables, check_max_rows
from vflsynth.exceptions import MissingExtraError, ParameterError

SHAPE = Metric(
    name="shape",
    title="Shape (Column Shapes)",
    direction="higher",
    measures="How alike single columns are distributed, averaged over columns: one minus the "
    "largest gap between cumulative distributions, or minus the share of rows with another label.",
)
TREND = Metric(
    name="trend",
    title="Trend (Column Pair Trends)",
    direction="higher",
    measures="How alike pairs of columns go together, averaged over pairs: one minus half the "
    "difference of Pearson correlations, or minus the share of rows in another cell of the pair's "
    "table, numbers in ten bins.",
)
Detector = Literal["gradient_boosting", "logistic_regression"]
"""Classifiers that published detection scores are of."""

_DETECTION: dict[Detector, Metric] = {
    detector: Metric(
        name=f"detection_score_{detector}",
        title=f"Detection score ({detector.replace('_', ' ')})",
        direction="higher",
        measures="How badly a classifier tells real from synthetic rows: 1 - max(0, 2 AUC - 1), "
        "mean of three folds; 1 is indistinguishable.",
        baseline="rows that cannot be told apart",
    )
    for detector in get_args(Detector)
}
BINS = 10
"""Equal bins, over the real range, of a number in a pair with labels."""

_FOLDS = 3


def shape(real: pd.DataFrame, synthetic: pd.DataFrame, **known: Unpack[Compared]) -> MetricResult:
    """Compute the mean of KSComplement and TVComplement over columns.

    Parameters
    ----------
    real, synthetic, **known
        As in `evaluate`.

    Returns
    -------
    MetricResult
        ``parts`` has one row per column.

    Notes
    -----
    Missing values are left out, as SDMetrics does.

    Examples
    --------
    >>> import pandas as pd
    >>> real = pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0]})
    >>> float(shape(real, real + 2))
    0.5
    """
    return _mean_of(SHAPE, column_shapes, Tables(real, synthetic, **known), least_columns=1)


def trend(real: pd.DataFrame, synthetic: pd.DataFrame, **known: Unpack[Compared]) -> MetricResult:
    """Compute the mean of CorrelationSimilarity and ContingencySimilarity over pairs of columns.

    Parameters
    ----------
    real, synthetic, **known
        As in `evaluate`.

    Returns
    -------
    MetricResult
        ``parts`` has one row per pair.

    Notes
    -----
    A pair of numbers one of which is constant in either table has no correlation and is left out.

    Examples
    --------
    >>> import pandas as pd
    >>> real = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [1.0, 2.0, 3.0]})
    >>> float(trend(real, real.assign(b=real["b"].iloc[::-1].to_numpy())))
    0.0
    """
    return _mean_of(TREND, pair_trends, Tables(real, synthetic, **known), least_columns=2)


def detection_score(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    *,
    detector: Detector = "gradient_boosting",
    max_rows: int | None = None,
    **known: Unpack[Compared],
) -> MetricResult:
    """Compute one minus how well a classifier does at telling the tables apart.

    Parameters
    ----------
    real, synthetic, **known
        As in `evaluate`.
    detector : {"gradient_boosting", "logistic_regression"}
        scikit-learn's histogram gradient boosting with its defaults, in place of the XGBoost of
        published figures; or logistic regression on robustly scaled numbers and one-hot labels.
        The latter is blind: columns drawn independently score 1 on some tables.
    max_rows : int, optional
        Largest number of rows taken from each table. Default: all.

    Returns
    -------
    MetricResult
        ``parts`` has one row per fold.

    Notes
    -----
    Folds are drawn without regard to equal rows, as published code does; `detection_auc`
    keeps them together and is the one to trust on tables with copies.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> real = pd.DataFrame({"a": np.arange(100.0)})
    >>> float(detection_score(real, real + 1000)) < 0.01
    True
    """
    if detector not in _DETECTION:
        raise ParameterError(f"detector must be one of {', '.join(_DETECTION)}, got {detector!r}")
    check_max_rows(max_rows)
    metric = _DETECTION[detector]
    tables = Tables(real, synthetic, **known)
    encoder, rng = tables.encoder, tables.generator(metric.name)
    rows = [
        frame.iloc[np.sort(rng.permutation(len(frame))[: max_rows or len(frame)])]
        for frame in (tables.real, tables.synthetic)
    ]
    if min(map(len, rows)) < 2 * _FOLDS:
        return metric.not_applicable(f"{2 * _FOLDS} rows of each table are needed")
    seed = int(rng.integers(2**31))
    classifier: Any
    if detector == "gradient_boosting":
        features = np.vstack([_codes(encoder, frame) for frame in rows])
        classifier = HistGradientBoostingClassifier(random_state=seed)
    else:
        features = np.vstack([encoder.encode(frame) for frame in rows])
        classifier = make_pipeline(RobustScaler(), LogisticRegression(max_iter=1000))
    is_synthetic = np.repeat([0, 1], [len(frame) for frame in rows])
    folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=seed)
    auc = make_scorer(roc_auc_score, response_method="predict_proba")
    aucs = cross_val_score(classifier, features, is_synthetic, cv=folds, scoring=auc)
    scores = 1.0 - np.maximum(0.0, 2.0 * aucs - 1.0)
    return MetricResult(
        metric,
        float(scores.mean()),
        baseline=1.0,
        interval_method="none: folds share rows",
        parts=pd.DataFrame({"fold": range(_FOLDS), "value": scores}),
        notes=encoder.notes,
    )


Score = Callable[[TableEncoder, pd.DataFrame, pd.DataFrame], pd.DataFrame]


def _mean_of(metric: Metric, score: Score, tables: Tables, *, least_columns: int) -> MetricResult:
    encoder = tables.encoder
    if len(encoder.columns) < least_columns:
        return metric.not_applicable(f"{least_columns} columns are needed")
    parts = score(encoder, tables.real, tables.synthetic)
    if parts["value"].isna().all():
        return metric.not_applicable("no column, or pair of columns, has enough different values")
    halves = tables.halves(metric.name)
    baseline = None if halves is None else float(score(encoder, *halves)["value"].mean())
    return MetricResult(
        metric,
        float(parts["value"].mean()),
        baseline=None if baseline is None or baseline != baseline else baseline,
        interval_method="none: published figures have none",
        parts=parts.dropna(subset=["value"]).reset_index(drop=True),
        notes=encoder.notes,
    )


def column_shapes(
    encoder: TableEncoder, real: pd.DataFrame, synthetic: pd.DataFrame
) -> pd.DataFrame:
    """Return one row per column, with its ``value`` of `shape`."""
    rows = []
    for column in encoder.columns:
        if isinstance(column, NumericColumn):
            one, other = (present(column.standardised(frame)) for frame in (real, synthetic))
            value = 1.0 - ks_distance(one, other) if len(one) or len(other) else np.nan
        else:
            first, second = _labels(column, real), _labels(column, synthetic)
            value = 1.0 - _total_variation(first, second, len(column.labels))
        rows.append({"column": column.name, "value": value})
    return pd.DataFrame(rows)


def pair_trends(encoder: TableEncoder, real: pd.DataFrame, synthetic: pd.DataFrame) -> pd.DataFrame:
    """Return one row per pair of columns, with its ``value`` of `trend`."""
    tables = (real, synthetic)
    numbers = {c.name: [c.standardised(frame) for frame in tables] for c in encoder.numeric}
    codes = {c.name: _pair_codes(c, real, synthetic) for c in encoder.columns}
    rows = []
    for first, second in combinations(codes, 2):
        if first in numbers and second in numbers:
            ours, theirs = map(_correlation, numbers[first], numbers[second])
            value = 1.0 - abs(ours - theirs) / 2.0
        else:
            (*own, n_own), (*other, n_other) = codes[first], codes[second]
            cells = [a * n_other + b for a, b in zip(own, other, strict=True)]
            value = 1.0 - _total_variation(cells[0], cells[1], n_own * n_other)
        rows.append({"column": first, "other_column": second, "value": value})
    return pd.DataFrame(rows, columns=["column", "other_column", "value"])


def _pair_codes(
    column: Column, real: pd.DataFrame, synthetic: pd.DataFrame
) -> tuple[Integers, Integers, int]:
    """Codes of both tables' rows and how many there are; missing values are a code of their own."""
    if isinstance(column, CategoricalColumn):
        return column.codes(real), column.codes(synthetic), len(column.labels)
    # Not standardised, which would round whole numbers off the edges; halved, lest ranges overflow.
    values = [column.values(frame) / 2 for frame in (real, synthetic)]
    known = present(values[0])
    low, high = (known.min(), known.max()) if len(known) else (0.0, 1.0)
    inner = np.linspace(low, high, BINS + 1)[1:-1]
    binned = [
        np.where(np.isnan(own), BINS, np.searchsorted(inner, own, side="right")) for own in values
    ]
    return binned[0], binned[1], BINS + 1


def _labels(column: CategoricalColumn, frame: pd.DataFrame) -> Integers:
    return column.codes(frame[frame[column.name].notna().to_numpy()])


def _codes(encoder: TableEncoder, frame: pd.DataFrame) -> Floats:
    """One feature per column, as trees like it: the number, or the code of the label."""
    return np.column_stack(
        [
            column.standardised(frame) if isinstance(column, NumericColumn) else column.codes(frame)
            for column in encoder.columns
        ]
    ).astype(np.float64)


def _correlation(first: Floats, second: Floats) -> float:
    both = ~(np.isnan(first) | np.isnan(second))
    first, second = first[both], second[both]
    if len(first) < 2 or np.ptp(first) == 0.0 or np.ptp(second) == 0.0:
        return np.nan
    return float(np.corrcoef(first, second)[0, 1])


def _total_variation(first: Integers, second: Integers, size: int) -> float:
    counts = [np.bincount(own.astype(np.int64), minlength=size) for own in (first, second)]
    totals = [own.sum() for own in counts]
    if min(totals) == 0 < max(totals):
        return 1.0  # all are missing in one table
    shares = [own / max(1, total) for own, total in zip(counts, totals)]
    return float(np.abs(shares[0] - shares[1]).sum() / 2.0)


_REPORTS = {
    "QualityReport": Metric(
        name="sdmetrics_quality",
        title="SDMetrics quality score",
        direction="higher",
        measures="How alike single columns and pairs of columns are, as SDMetrics' QualityReport "
        "puts it.",
    ),
    "DiagnosticReport": Metric(
        name="sdmetrics_diagnostic",
        title="SDMetrics diagnostic score",
        direction="higher",
        measures="Whether the synthetic table is a valid table of its kind: columns present, "
        "values within the real ranges and labels, as SDMetrics' DiagnosticReport puts it.",
    ),
}


class SDMetricsReports(TableMetric):
    """SDMetrics' QualityReport and DiagnosticReport, for ``evaluate(..., metrics=[...])``.

    ``"sdmetrics_quality"`` and ``"sdmetrics_diagnostic"``. ``parts`` have one row per score that
    SDMetrics gives: `property`, `column`, `other_column`, `metric`, `value`. It leaves out pairs of
    columns that it finds too weakly related to matter. Not registered: they need the extra
    ``sdmetrics``, and give no interval; MissingExtraError if it is not installed.
    """

    name = "sdmetrics"

    def compute(self, tables: Tables) -> MetricResults:
        """Run both reports."""
        return MetricResults(_run(name, metric, tables) for name, metric in _REPORTS.items())


def _run(report: str, metric: Metric, tables: Tables) -> MetricResult:
    try:
        from sdmetrics.reports import single_table
    except ImportError as error:
        raise MissingExtraError("SDMetricsReports()", "sdmetrics", "sdmetrics") from error
    names = list(tables.columns or ())
    kinds = {str(name): _kind(tables.real[name], name in tables.categorical) for name in names}
    metadata = {"columns": {name: {"sdtype": kind} for name, kind in kinds.items()}}

    def plain(frame: pd.DataFrame) -> pd.DataFrame:
        # SDMetrics wants text names, and cannot be trusted to leave its input alone.
        table = frame[names].reset_index(drop=True).set_axis(list(kinds), axis=1).copy(deep=True)
        for name, kind in kinds.items():
            if kind == "categorical":
                table[name] = table[name].astype(object)
        return table

    def score(first: pd.DataFrame, second: pd.DataFrame) -> tuple[float, pd.DataFrame]:
        made = getattr(single_table, report)()
        made.generate(plain(first), plain(second), metadata, verbose=False)
        details = [
            made.get_details(name).assign(property=name)
            for name in made.get_properties()["Property"]
        ]
        return float(made.get_score()), _parts(details)

    value, parts = score(tables.real, tables.synthetic)
    if value != value:
        return metric.not_applicable("SDMetrics gives no score for these tables")
    halves = tables.halves(metric.name)
    baseline = score(*halves)[0] if halves else None
    return MetricResult(
        metric=metric,
        value=value,
        interval_method="none: SDMetrics gives none",
        baseline=None if baseline is None or baseline != baseline else baseline,
        parts=parts,
    )


def _kind(values: pd.Series[Any], named: bool) -> str:
    if named:
        return "categorical"
    if pd.api.types.is_bool_dtype(values.dtype):
        return "boolean"
    if is_categorical(values):
        return "categorical"
    return "datetime" if pd.api.types.is_datetime64_any_dtype(values.dtype) else "numerical"


def _parts(details: list[pd.DataFrame]) -> pd.DataFrame:
    """One table of all details, whichever columns each property has."""
    names = {
        "property": "property",
        "Column": "column",
        "Column 1": "column",
        "Column 2": "other_column",
        "Metric": "metric",
        "Score": "value",
    }
    kept = [
        detail[[name for name in names if name in detail.columns]].rename(columns=names)
        for detail in details
        if len(detail)
    ]
    parts = pd.concat(kept, ignore_index=True) if kept else pd.DataFrame(columns=["value"])
    return parts.dropna(subset=["value"]).reset_index(drop=True)
