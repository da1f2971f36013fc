"""Judge any synthetic table against a real one, whoever made it.

Every metric takes two DataFrames and returns a `MetricResult` (or several): a value with its
direction, range and interval, what real data score, what a table scores that knows next to nothing,
and its parts as a DataFrame. None of them returns NaN; what cannot be computed is "not applicable,
because ...". `report` makes one HTML page of all of them. A `TableMetric` of your own
joins them.

Nothing in here imports the synthesizer. Metrics that look across parties need real rows of all
parties side by side: they are for whoever may see those.
"""

from vflsynth.evaluation.association import association_errors, associations
from vflsynth.evaluation.coherence import incoherent_rows
from vflsynth.evaluation.detection import detection_auc
from vflsynth.evaluation.drawing import plot_marginals
from vflsynth.evaluation.field import SDMetricsReports, detection_score, shape, trend
from vflsynth.evaluation.frechet import frechet_distance
from vflsynth.evaluation.marginals import average_variation_distance, marginal_distance
from vflsynth.evaluation.metric import Metric, MetricResult, MetricResults, NotApplicableError
from vflsynth.evaluation.neighbours import proximity
from vflsynth.evaluation.page import Report, report
from vflsynth.evaluation.rules import (
    RuleCost,
    RuleViolations,
    exact_structure,
    rule_cost,
    rule_violations,
)
from vflsynth.evaluation.suite import evaluate
from vflsynth.evaluation.support import precision_and_recall
from vflsynth.evaluation.tables import TableMetric, Tables
from vflsynth.evaluation.train_test import utility

__all__ = [
    "Metric",
    "MetricResult",
    "MetricResults",
    "NotApplicableError",
    "Report",
    "RuleCost",
    "RuleViolations",
    "SDMetricsReports",
    "TableMetric",
    "Tables",
    "association_errors",
    "associations",
    "average_variation_distance",
    "detection_auc",
    "detection_score",
    "evaluate",
    "exact_structure",
    "frechet_distance",
    "incoherent_rows",
    "marginal_distance",
    "plot_marginals",
    "precision_and_recall",
    "proximity",
    "report",
    "rule_cost",
    "rule_violations",
    "shape",
    "trend",
    "utility",
]
