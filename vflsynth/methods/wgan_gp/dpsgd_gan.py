"""DPSGD-GAN: one clipped gradient per pair of a real and a fake record, on one joined table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vflsynth.mechanisms.base import CLIPPING, Asked, Cover, HistogramMechanism, Reports
from vflsynth.mechanisms.dpsgd import DPSGDPlan, noisy_length
from vflsynth.mechanisms.planning import WHO_JOINS, calibrate_training, ledger_of, sample_rate_of
from vflsynth.privacy.accountants import RDPAccountant
from vflsynth.privacy.discovery import ColumnCounts
from vflsynth.privacy.events import GaussianRelease, NeighbouringRelation, SampledRelease, Sampler
from vflsynth.registry import register

_COVERS = {
    "BackboneGradients": Cover("training", noised=True),
    "TrainingReport": Cover("training", noised=True),
}


@register
@dataclass(repr=False, eq=False, kw_only=True)
class DPSGDGAN(HistogramMechanism):
    """Clipped gradients of pairs of a real and a fake record, in batches of fixed size.

    The whole loss of a pair, its penalty included, has one gradient, which is scaled down to a
    bound; noise is added to the sum over the batch. Of one joined table only.

    Parameters
    ----------
    **shared
        See `HistogramMechanism`; the neighbouring relation is "replace_one".
    max_grad_norm : float, default=1.0
        Clipping bound C, in gradient units, of a pair's gradient.

    Notes
    -----
    Source: Zhang, Ji and Wang 2018, in the form that the VFLGAN paper accounts for (§5.2.1).

    Privacy: recipients of the synthetic data and of the generators are protected. Whoever joins the
    tables is not: it sees all of them.

    Departs from the paper, which also groups parameters, adapts the clipping bound to public
    records and starts from them: there are none here. The default is about 3,000 discriminator
    steps with an eighth of the records.
    """

    name = "dpsgd_gan"
    sampler = Sampler.WITHOUT_REPLACEMENT
    default_relation = NeighbouringRelation.REPLACE_ONE
    rules = HistogramMechanism.rules | {"max_grad_norm": CLIPPING}

    max_grad_norm: float = 1.0

    @property
    def reports(self) -> Reports:
        """Mean scores of fakes; a penalty at records would be one more release."""
        return "fake scores"

    def plan(self, columns: Mapping[str, ColumnCounts], asked: Asked) -> DPSGDPlan:
        """Calibrate the noise for the holder of the joined table; see `Mechanism.plan`."""
        self.check()
        (holder,) = columns
        length = noisy_length(asked.n_records, asked)
        sample_rate = sample_rate_of(length, asked.n_records)
        bound = self.max_grad_norm

        def training(noise_multiplier: float) -> SampledRelease:
            release = GaussianRelease(
                released="clipped gradients of pairs of a real and a fake record, penalty included",
                party=holder,
                noise_multiplier=noise_multiplier,
                sensitivity=2.0 * bound,
                relation=self.relation,
                record_norm=bound,
            )
            return SampledRelease((release,), self.sampler, sample_rate, length.steps)

        noise, histogram_noise, entries = calibrate_training(
            self, columns, training, RDPAccountant()
        )
        return DPSGDPlan(
            ledger=ledger_of(
                self,
                columns,
                entries,
                words="DP-SGD on pairs of real and fake records (DPSGD-GAN)",
                not_protected_against=(WHO_JOINS,),
                public=("sample rate and number of steps",),
            ),
            histogram_noise_multiplier=histogram_noise,
            length=length,
            covers=_COVERS,
            max_grad_norm=bound,
            sensitivity=2.0 * bound,
            noise_multiplier=noise,
            learning_rate=asked.learning_rate,
        )
