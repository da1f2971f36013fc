"""Audits: what an attacker would learn about a record from what is published or sent.

Every answer comes with an interval and with the threat model it holds for. An attack that fails
shows that this attack failed, not that a record is safe.
"""

from vflsynth.audit.attacks import ATTACKS, attack_auc
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

__all__ = [
    "ATTACKS",
    "Attack",
    "AuditReport",
    "CanaryAudit",
    "Claim",
    "Criteria",
    "Disclosure",
    "JoinedTable",
    "TargetAudit",
    "attack_auc",
    "attribute_inference",
    "audit_disclosure",
    "audit_intermediate_features",
    "audit_mechanism",
    "audit_synthetic_data",
    "audit_with_canaries",
    "linkability",
    "singling_out",
]
