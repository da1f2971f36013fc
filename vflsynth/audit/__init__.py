"""Audits: what an attacker would learn about a record from what is published or sent.

Every answer comes with an interval and with the threat model it holds for. An attack that fails
shows that this attack failed, not that a record is safe.
"""

from vflsynth.audit.adversary import Adversary, RandomForest, RegularisedLogistic
from vflsynth.audit.results import Attack, AuditReport, Claim, TargetAudit
from vflsynth.audit.schemes import audit_intermediate_features, audit_synthetic_data
from vflsynth.audit.statistics import (
    DEFAULT_STATISTICS,
    Correlation,
    Histogram,
    Naive,
    Neighbourhood,
    Statistic,
)
from vflsynth.audit.targets import farthest, most_outlying

__all__ = [
    "DEFAULT_STATISTICS",
    "Adversary",
    "Attack",
    "AuditReport",
    "Claim",
    "Correlation",
    "Histogram",
    "Naive",
    "Neighbourhood",
    "RandomForest",
    "RegularisedLogistic",
    "Statistic",
    "TargetAudit",
    "audit_intermediate_features",
    "audit_synthetic_data",
    "farthest",
    "most_outlying",
]
