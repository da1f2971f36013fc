"""Differential privacy: what is released, what it costs, and the mechanisms that release it.

Events say what was released, accountants turn them into ε or refuse, calibration turns (ε, δ) into
noise, the ledger puts it all on one page. Nothing here trains.
"""

from typing import TYPE_CHECKING

from vflsynth._lazy import lazily

if TYPE_CHECKING:
    from vflsynth.columns.schema import PublicSchema
    from vflsynth.privacy.account import Attempt, Budget, OpenAccount, PrivacyAccount
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
        split_gaussian_budget,
    )
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
else:
    __getattr__ = lazily(__name__)

__all__ = [
    "ACCOUNTANTS",
    "Accountant",
    "Attempt",
    "Budget",
    "Composition",
    "GaussianDPAccountant",
    "GaussianRelease",
    "LedgerEntry",
    "NeighbouringRelation",
    "OpenAccount",
    "PLDAccountant",
    "PrivacyAccount",
    "PrivacyEvent",
    "PrivacyLedger",
    "PublicSchema",
    "RDPAccountant",
    "SampledRelease",
    "Sampler",
    "StepBudget",
    "WangAccountant",
    "calibrate_noise_multiplier",
    "event_from_dict",
    "event_to_dict",
    "split_gaussian_budget",
    "valid_accountants",
]
