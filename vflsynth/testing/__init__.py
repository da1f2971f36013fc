"""The laws that synthesizers, kinds of columns, encoders, mechanisms, metrics and protections obey.

For those who write one of their own, in the spirit of scikit-learn's ``check_estimator``.
"""

from vflsynth.testing.columns import column_kind_checks, encoder_checks
from vflsynth.testing.laws import Check, parametrize_with_checks
from vflsynth.testing.mechanisms import mechanism_checks
from vflsynth.testing.metrics import metric_checks
from vflsynth.testing.protections import protection_checks
from vflsynth.testing.synthesizers import synthesizer_checks

__all__ = [
    "Check",
    "column_kind_checks",
    "encoder_checks",
    "mechanism_checks",
    "metric_checks",
    "parametrize_with_checks",
    "protection_checks",
    "synthesizer_checks",
]
