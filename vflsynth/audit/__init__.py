"""Audits: what an attacker would learn about a record from what is published or sent.

Every answer comes with an interval and with the threat model it holds for. An attack that fails
shows that this attack failed, not that a record is safe.
"""

from vflsynth.adversary import (
    DEFAULT_STATISTICS,
    Adversary,
    Correlation,
    Density,
    Extremes,
    Histogram,
    LikelihoodRatio,
    Naive,
    NearestValues,
    Neighbourhood,
    RandomForest,
    RegularisedLogistic,
    SharedValues,
    Statistic,
    TargetedQueries,
)
from vflsynth.audit.canaries import CanaryAudit, audit_with_canaries
from vflsynth.audit.criteria import Criteria, Disclosure
from vflsynth.audit.findings import Attack, Claim, TargetAudit
from vflsynth.audit.game import JoinedTable
from vflsynth.audit.inference import attribute_inference
from vflsynth.audit.questions import audit_disclosure, linkability, singling_out
from vflsynth.audit.results import AuditReport
from vflsynth.audit.schemes import (
    audit_intermediate_features,
    audit_mechanism,
    audit_synthetic_data,
)
from vflsynth.audit.targets import farthest, most_outlying

__all__ = [
    "DEFAULT_STATISTICS",
    "Adversary",
    "Attack",
    "AuditReport",
    "CanaryAudit",
    "Claim",
    "Correlation",
    "Criteria",
    "Density",
    "Disclosure",
    "Extremes",
    "Histogram",
    "JoinedTable",
    "LikelihoodRatio",
    "Naive",
    "NearestValues",
    "Neighbourhood",
    "RandomForest",
    "RegularisedLogistic",
    "SharedValues",
    "Statistic",
    "TargetAudit",
    "TargetedQueries",
    "attribute_inference",
    "audit_disclosure",
    "audit_intermediate_features",
    "audit_mechanism",
    "audit_synthetic_data",
    "audit_with_canaries",
    "farthest",
    "linkability",
    "most_outlying",
    "singling_out",
]
