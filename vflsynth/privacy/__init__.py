"""Differential privacy: what is released, what it costs, and the mechanisms that release it.

Events say what was released, accountants turn them into ε or refuse, calibration turns (ε, δ) into
noise, the ledger puts it all on one page. Nothing here trains.
"""

from typing import TYPE_CHECKING

from vflsynth._lazy import lazily

if TYPE_CHECKING:
    from vflsynth.columns.schema import PublicSchema
    from vflsynth.privacy.account import Budget, PrivacyAccount
    from vflsynth.privacy.accountants import (
        ACCOUNTANTS,
        Accountant,
        GaussianDPAccountant,
        PLDAccountant,
        RDPAccountant,
        WangAccountant,
        valid_accountants,
    )
    from vflsynth.privacy.calibration import calibrate_noise_multiplier
    from vflsynth.privacy.events import (
        Composition,
        GaussianRelease,
        NeighbouringRelation,
        PrivacyEvent,
        SampledRelease,
        Sampler,
    )
    from vflsynth.privacy.ledger import LedgerEntry, PrivacyLedger
else:
    __getattr__ = lazily(__name__)

__all__ = [
    "ACCOUNTANTS",
    "Accountant",
    "Budget",
    "Composition",
    "GaussianDPAccountant",
    "GaussianRelease",
    "LedgerEntry",
    "NeighbouringRelation",
    "PLDAccountant",
    "PrivacyAccount",
    "PrivacyEvent",
    "PrivacyLedger",
    "PublicSchema",
    "RDPAccountant",
    "SampledRelease",
    "Sampler",
    "WangAccountant",
    "calibrate_noise_multiplier",
    "valid_accountants",
]
