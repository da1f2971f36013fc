"""The laws that synthesizers, kinds of columns, encoders, mechanisms, metrics and protections obey.

For those who write one of their own, in the spirit of scikit-learn's ``check_estimator``.
"""

from vflsynth.testing.columns import (
    check_column_kind,
    check_encoder,
    column_kind_checks,
    encoder_checks,
)
from vflsynth.testing.laws import Check, parametrize_with_checks
from vflsynth.testing.mechanisms import check_mechanism, mechanism_checks
from vflsynth.testing.metrics import check_metric, metric_checks
from vflsynth.testing.protections import check_protection, protection_checks
from vflsynth.testing.synthesizers import check_synthesizer, synthesizer_checks

__all__ = [
    "Check",
    "check_column_kind",
    "check_encoder",
    "check_mechanism",
    "check_metric",
    "check_protection",
    "check_synthesizer",
    "column_kind_checks",
    "encoder_checks",
    "mechanism_checks",
    "metric_checks",
    "parametrize_with_checks",
    "protection_checks",
    "synthesizer_checks",
]
