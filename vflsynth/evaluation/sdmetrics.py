"""SDMetrics' quality and diagnostic reports, to compare with numbers published elsewhere.

An extra (``pip install 'vflsynth[sdmetrics]'``), because SDMetrics brings dependencies under other
licences. The same quantities under other names: our marginal distance is one minus its KSComplement
or TVComplement where no value is missing, and our two-way AVD one minus its ContingencySimilarity.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from vflsynth.evaluation.columns import is_categorical
from vflsynth.evaluation.metric import Metric, MetricResult, MetricResults
from vflsynth.evaluation.tables import TableMetric, Tables
from vflsynth.exceptions import MissingExtraError


def _declared(kind: str, measures: str) -> Metric:
    return Metric(
        name=f"sdmetrics_{kind}",
        title=f"SDMetrics {kind} score",
        direction="higher",
        measures=measures,
    )


SDMETRICS_QUALITY = _declared(
    "quality",
    "How alike single columns and pairs of columns are, as SDMetrics' QualityReport puts it.",
)
SDMETRICS_DIAGNOSTIC = _declared(
    "diagnostic",
    "Whether the synthetic table is a valid table of its kind: columns present, values within the "
    "real ranges and labels, as SDMetrics' DiagnosticReport puts it.",
)


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
        return MetricResults(
            [
                _run("QualityReport", SDMETRICS_QUALITY, tables),
                _run("DiagnosticReport", SDMETRICS_DIAGNOSTIC, tables),
            ]
        )


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
