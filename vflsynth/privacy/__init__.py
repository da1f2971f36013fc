"""Differential privacy: what is released, what it costs, and the mechanisms that release it.

Events say what was released, accountants turn them into ε or refuse, calibration turns (ε, δ) into
noise, the ledger puts it all on one page. Mechanisms are pure functions; nothing here trains.
"""

from vflsynth.columns.schema import PublicSchema
from vflsynth.privacy.accountants import (
    ACCOUNTANTS,
    Accountant,
    GaussianDPAccountant,
    PLDAccountant,
    RDPAccountant,
    WangAccountant,
    valid_accountants,
)
from vflsynth.privacy.calibration import (
    StepBudget,
    calibrate_noise_multiplier,
    max_steps,
    split_gaussian_budget,
)
from vflsynth.privacy.discriminators import Discriminators
from vflsynth.privacy.events import (
    Composition,
    GaussianRelease,
    NeighbouringRelation,
    PrivacyEvent,
    SampledRelease,
    Sampler,
    event_from_dict,
    event_to_dict,
)
from vflsynth.privacy.ledger import LedgerEntry, PrivacyLedger
from vflsynth.privacy.parameters import GaussianPrivacy
from vflsynth.privacy.plan import (
    PrivacyPlan,
    plan_dpsgd,
    plan_first_layer,
    plan_mean_embedding,
)
from vflsynth.privacy.plan_wgan import plan_dpsgd_gan, plan_gs_wgan

__all__ = [
    "ACCOUNTANTS",
    "Accountant",
    "Composition",
    "Discriminators",
    "GaussianDPAccountant",
    "GaussianPrivacy",
    "GaussianRelease",
    "LedgerEntry",
    "NeighbouringRelation",
    "PLDAccountant",
    "PrivacyEvent",
    "PrivacyLedger",
    "PrivacyPlan",
    "PublicSchema",
    "RDPAccountant",
    "SampledRelease",
    "Sampler",
    "StepBudget",
    "WangAccountant",
    "calibrate_noise_multiplier",
    "event_from_dict",
    "event_to_dict",
    "max_steps",
    "plan_dpsgd",
    "plan_dpsgd_gan",
    "plan_first_layer",
    "plan_gs_wgan",
    "plan_mean_embedding",
    "split_gaussian_budget",
    "valid_accountants",
]
