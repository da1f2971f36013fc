"""Plans of the published mechanisms for GANs over one joined table.

As in `vflsynth.privacy.plan`, a plan depends on public sizes only; the number of records is one,
because both mechanisms are accounted for under replace-one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from vflsynth.privacy.accountants import RDPAccountant
from vflsynth.privacy.discovery import ColumnCounts
from vflsynth.privacy.discriminators import WHO_JOINS
from vflsynth.privacy.events import GaussianRelease, SampledRelease
from vflsynth.privacy.gs_wgan import batch_sensitivity
from vflsynth.privacy.parameters import GaussianPrivacy
from vflsynth.privacy.plan import PrivacyPlan, plan_training


def plan_dpsgd_gan(
    privacy: GaussianPrivacy,
    columns: Mapping[str, ColumnCounts],
    *,
    sample_rate: float,
    steps: int,
) -> PrivacyPlan:
    """Plan the published DP-SGD of a WGAN-GP: pairs of records, batches of fixed size.

    Parameters
    ----------
    privacy : GaussianPrivacy
    columns : mapping of the holder of the joined table to ColumnCounts
    sample_rate : float
        Batch size over number of records.
    steps : int
        Discriminator steps.

    Returns
    -------
    PrivacyPlan
    """
    (holder,) = columns
    bound = privacy.max_grad_norm

    def training(noise_multiplier: float) -> SampledRelease:
        release = GaussianRelease(
            released="clipped gradients of pairs of a real and a fake record, penalty included",
            party=holder,
            noise_multiplier=noise_multiplier,
            sensitivity=2.0 * bound,
            relation=privacy.relation,
            record_norm=bound,
        )
        return SampledRelease((release,), privacy.sampler, sample_rate, steps)

    return _plan(privacy, columns, training, "DP-SGD on pairs of real and fake records (DPSGD-GAN)")


def plan_gs_wgan(
    privacy: GaussianPrivacy,
    columns: Mapping[str, ColumnCounts],
    *,
    n_shards: int,
    batch_size: int,
    steps: int,
) -> PrivacyPlan:
    """Plan GS-WGAN: one shard's discriminator, drawn at random, answers for a batch of fakes.

    Parameters
    ----------
    privacy : GaussianPrivacy
    columns : mapping of the holder of the joined table to ColumnCounts
    n_shards : int
        K, discriminators on disjoint shards of equal size.
    batch_size : int
        B, fakes per generator step.
    steps : int
        *Generator* steps: discriminators are not released.

    Returns
    -------
    PrivacyPlan
        Its noise multiplier is over the sensitivity of all B gradients of a step together, see
        `vflsynth.privacy.gs_wgan`.
    """
    (holder,) = columns

    def training(noise_multiplier: float) -> SampledRelease:
        release = GaussianRelease(
            released=f"clipped gradients at {batch_size} fakes, from one of {n_shards} "
            "discriminators on disjoint shards",
            party=holder,
            noise_multiplier=noise_multiplier,
            sensitivity=batch_sensitivity(privacy.max_grad_norm, batch_size),
            relation=privacy.relation,
        )
        return SampledRelease((release,), privacy.sampler, 1.0 / n_shards, steps)

    return _plan(
        privacy,
        columns,
        training,
        "sanitised generator gradients (GS-WGAN)",
        not_covered=(
            "what earlier draws of shards tell: ε takes every draw for independent of all that was "
            "released before (the published proof's gap, see vflsynth.privacy.gs_wgan)",
        ),
    )


def _plan(
    privacy: GaussianPrivacy,
    columns: Mapping[str, ColumnCounts],
    training: Callable[[float], SampledRelease],
    mechanism: str,
    not_covered: tuple[str, ...] = (),
) -> PrivacyPlan:
    privacy.validate()
    return plan_training(
        privacy,
        columns,
        training,
        RDPAccountant(),
        mechanism=mechanism,
        not_protected_against=(WHO_JOINS,),
        public=("sample rate and number of steps",),
        not_covered=not_covered,
    )
