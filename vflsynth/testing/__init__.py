"""Laws that extensions keep, to be checked by those who write one of their own."""

from vflsynth.testing.laws import Check
from vflsynth.testing.metrics import check_metric, metric_checks

__all__ = ["Check", "check_metric", "metric_checks"]
