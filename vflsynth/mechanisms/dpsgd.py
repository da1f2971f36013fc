"""DP-SGD: every record's gradient of every network is clipped, and their sum is noisy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vflsynth.exceptions import PrivacyParameterError
from vflsynth.mechanisms.base import CLIPPING, Asked, Cover, HistogramMechanism, Plan, Reports
from vflsynth.mechanisms.discriminators import Discriminators
from vflsynth.mechanisms.planning import (
    ARITHMETIC,
    PARTIES_KNOW_BATCHES,
    RECIPIENTS,
    SERVER_SEES_FEATURES,
    SYNTHETIC,
    WHO_JOINS,
    calibrate_training,
    ledger_of,
    sample_rate_of,
)
from vflsynth.privacy.accountants import PLDAccountant
from vflsynth.privacy.discovery import ColumnCounts
from vflsynth.privacy.dpsgd import joint_sensitivity
from vflsynth.privacy.events import GaussianRelease, NeighbouringRelation, SampledRelease, Sampler
from vflsynth.protocol.schedule import Length, default_epochs, power_of_two
from vflsynth.registry import Number, Optional, register

DPSGD_STEPS = 3_000
"""About so many discriminator steps by default: more would each need more noise."""

DISCRIMINATOR_RATE = 10.0
"""Learning rate of the discriminators over that of the generators."""

_COVERS = {
    "SampledFeatures": Cover("training", noised=False),
    "GeneratorFeatures": Cover("training", noised=True),
    "BackboneGradients": Cover("training", noised=True),
    "TrainingReport": Cover("training", noised=True),
    "GeneratorGradients": Cover("training", noised=True),
    "SummedBackboneGradients": Cover("training", noised=True),
    "BottomOutputs": Cover("training", noised=False),
    "AllBottomOutputs": Cover("training", noised=False),
}
_SERVER_SEES_RELEASES = (
    "the server: it sees backbone gradients and mean scores of fakes, which are computed from the "
    "releases"
)
_NOT_PROTECTED = {
    Discriminators.LOCAL_AND_SHARED: (SERVER_SEES_FEATURES, PARTIES_KNOW_BATCHES),
    Discriminators.PRIVATE: (
        "the other parties: they know the batches, and for them ε is that of known batches",
    ),
    Discriminators.JOINED: (WHO_JOINS,),
    Discriminators.SPLIT: (
        "the active party: it sees the bottom models' outputs without noise",
        "the other parties: they see gradients at their outputs without noise",
    ),
}
_SPLIT_MODELS = "the fitted bottom and top models"


@dataclass(frozen=True, kw_only=True)
class DPSGDPlan(Plan):
    """What all owners of discriminators work with.

    `max_grad_norm` bounds each owner's part of a record's gradient, `sensitivity` is that of all
    owners' clipped sums together, and `noise_multiplier` is of every coordinate of every owner.
    """

    max_grad_norm: float
    sensitivity: float
    noise_multiplier: float
    learning_rate: float


@register
@dataclass(repr=False, eq=False, kw_only=True)
class DPSGD(HistogramMechanism):
    """Clipped gradients of single records, and noise on their sum, for all networks.

    Every owner of a discriminator, or of a part of a split classifier, scales the gradient of each
    record's score or loss down to a bound and adds noise to the sum over the batch. Noise is for
    all owners' sums together, as the same record moves all of them. Batches are Poisson samples:
    every record is drawn by itself.

    Parameters
    ----------
    **shared
        See `HistogramMechanism`.
    max_grad_norm : float, default=1.0
        The most that one record may move each owner's networks in a step: its gradient is cut to
        this length (C, in gradient units). Small loses signal, large needs more noise.
    n_records : int, optional
        Public number of records, which may be rough: the sample rate comes from it. Required with
        "add_or_remove_one", where the true number is private; default with "replace_one": the true
        number.

    Notes
    -----
    Source: Abadi et al. 2016; Goodfellow 2015 for the norms (`vflsynth.privacy.dpsgd`).

    Privacy: recipients of the synthetic data and of the generators are protected. VFLGAN's server
    is not, it sees features of real records; VertiGAN's is, it sees what is computed from noisy
    gradients. Parties know each other's batches: against them sampling protects nobody. Of a
    `SplitNNClassifier` recipients of the fitted models are protected, and no party is: outputs of
    the bottom models and gradients at them are exchanged without noise.

    Departs from the paper in that fakes, and the gradient penalty, which is taken between them, are
    added after the noise: they are computed from what was released before. The default is about
    3,000 discriminator steps with an eighth of the records, and ten times the generators' learning
    rate for the discriminators.

    Examples
    --------
    >>> DPSGD(epsilon=10, delta=5e-4, max_grad_norm=2.0, n_records=1600)
    DPSGD(delta=0.0005, epsilon=10, max_grad_norm=2.0, n_records=1600)
    """

    name = "dpsgd"
    sampler = Sampler.POISSON
    rules = HistogramMechanism.rules | {
        "max_grad_norm": CLIPPING,
        "n_records": Optional(Number(2, whole=True)),
    }

    max_grad_norm: float = 1.0
    n_records: int | None = None

    @property
    def reports(self) -> Reports:
        """Mean scores of fakes, and penalties between them."""
        return "fake scores and penalties"

    def plan(self, columns: Mapping[str, ColumnCounts], asked: Asked) -> DPSGDPlan:
        """Calibrate the noise for all owners together; see `Mechanism.plan`."""
        self.check()
        n_records = self.public_number(asked.n_records)
        length = noisy_length(n_records, asked)
        sample_rate = sample_rate_of(length, n_records)
        relation, bound = self.relation, self.max_grad_norm
        owners = asked.owners.owners(columns)
        split = asked.owners is Discriminators.SPLIT
        factor = 2.0 if relation is NeighbouringRelation.REPLACE_ONE else 1.0
        joint = joint_sensitivity([bound] * len(owners))
        models = "bottom and top model" if split else "discriminator"

        def training(noise_multiplier: float) -> SampledRelease:
            releases = tuple(
                GaussianRelease(
                    released=f"clipped per-record gradients of the {network}",
                    party=party,
                    noise_multiplier=noise_multiplier * joint / bound,
                    sensitivity=factor * bound,
                    relation=relation,
                    record_norm=bound,
                )
                for party, network in owners.items()
            )
            return SampledRelease(releases, self.sampler, sample_rate, length.steps)

        noise, histogram_noise, entries = calibrate_training(
            self, columns, training, PLDAccountant()
        )
        private = asked.owners is Discriminators.PRIVATE
        return DPSGDPlan(
            ledger=ledger_of(
                self,
                columns,
                entries,
                words=f"DP-SGD on all {models} parameters",
                protected_against=(
                    f"recipients of {_SPLIT_MODELS}" if split else RECIPIENTS,
                    *((_SERVER_SEES_RELEASES,) if private else ()),
                ),
                not_protected_against=_NOT_PROTECTED[asked.owners],
                not_covered=(ARITHMETIC,),
                public=(
                    "rough number of records",
                    f"sample rate and number of steps{', which classes there are' * split}",
                ),
                products=_SPLIT_MODELS if split else SYNTHETIC,
            ),
            histogram_noise_multiplier=histogram_noise,
            length=length,
            sample_rate=sample_rate,
            covers=_COVERS,
            max_grad_norm=bound,
            sensitivity=factor * joint,
            noise_multiplier=noise,
            learning_rate=DISCRIMINATOR_RATE * asked.learning_rate,
        )

    def public_number(self, n_records: int) -> int:
        """Return the number of records that sample rate and steps may be computed from.

        PrivacyParameterError if nobody stated one, and the true one is private.
        """
        public = self.n_records or super().public_number(n_records)
        if public is not None:
            return public
        raise PrivacyParameterError(
            "n_records",
            None,
            "given for DPSGD where records may be added or removed: their number is private then, "
            "and the sample rate needs a public one, which may be rough. Or set "
            "neighbouring_relation='replace_one', which makes the number public",
        )


def noisy_length(n_records: int, asked: Asked) -> Length:
    """Return the length of training with noisy gradients: fewer and larger batches than without.

    `n_records` is public, and need not be that of `asked`.
    """
    batch_size = asked.batch_size or power_of_two(n_records / 8, 8, 512)
    epochs = asked.epochs or default_epochs(n_records, batch_size, DPSGD_STEPS)
    return Length.of(n_records, batch_size, epochs)
