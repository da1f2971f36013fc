"""The laws that whatever is registered obeys: synthesizers, columns, mechanisms, metrics, attacks.

For those who write one of their own, in the spirit of scikit-learn's ``check_estimator``.
"""

from vflsynth.testing.attacks import adversary_checks, statistic_checks
from vflsynth.testing.columns import column_kind_checks, encoder_checks
from vflsynth.testing.laws import Check, parametrize_with_checks
from vflsynth.testing.mechanisms import mechanism_checks
from vflsynth.testing.metrics import metric_checks
from vflsynth.testing.protections import protection_checks
from vflsynth.testing.synthesizers import synthesizer_checks

__all__ = [
    "Check",
    "adversary_checks",
    "column_kind_checks",
    "encoder_checks",
    "mechanism_checks",
    "metric_checks",
    "parametrize_with_checks",
    "protection_checks",
    "statistic_checks",
    "synthesizer_checks",
]
