"""WGANGPSynthesizer: what could be had if the tables could be joined."""

from __future__ import annotations

from typing import ClassVar

from vflsynth.mechanisms import DPSGD, Discriminators, FirstLayer
from vflsynth.methods.gan.critics import DPSGDGANCritic
from vflsynth.methods.vertigan.estimator import VertiGANSynthesizer
from vflsynth.methods.vertigan.method import VertiGANMethod
from vflsynth.methods.wgan_gp.dpsgd_gan import DPSGDGAN
from vflsynth.methods.wgan_gp.gs_wgan import GSWGAN, GSWGANCritic
from vflsynth.registry import Choice, register


class WGANGPMethod(VertiGANMethod):
    """WGAN-GP: VertiGAN with one party, who holds the joined table."""

    owners = Discriminators.JOINED
    descents: ClassVar = VertiGANMethod.descents | {
        DPSGDGAN: DPSGDGANCritic,
        GSWGAN: lambda plan, _, noise: GSWGANCritic(plan, noise),
    }


@register
class WGANGPSynthesizer(VertiGANSynthesizer):
    """Centralised WGAN-GP, the upper bound: it joins the party frames.

    Joining is the very thing that one may not do; this class exists to show what not doing it
    costs. All matched rows of all parties are put side by side in one table, on which one generator
    and one discriminator are trained.

    Parameters
    ----------
    {latent_dim}
    generator_hidden, discriminator_hidden
        As of `VertiGANSynthesizer`, of which there is one of each.
    {bias, batch_norm_eps, gumbel_temperature, gradient_penalty_weight, discriminator_steps}
    {batch_size, epochs, learning_rate, betas, generator_average, model_selection}
    {evaluate_every, calibrate_marginals, column_kinds, contract, structure, transformer}
    {memory_limit, device, random_state, verbose}
    wire_precision : {"float32"}
        Nothing is sent to anybody.
    resample : {1}
        Whoever may join the tables can choose rows by any classifier.
    privacy : Mechanism, optional
        Differential privacy for the synthetic table. `DPSGD` and `FirstLayer` are those of
        `VFLGANSynthesizer`, with one discriminator to clip. `DPSGDGAN` and `GSWGAN` are the
        published ones. With `DPSGDGAN` the default is about 3,000 steps with an eighth of the
        records. With `GSWGAN` `batch_size` is also the number of fakes whose gradients are released
        at each generator step; default: the largest power of two that is at most a shard's number
        of records, between 8 and 32.
        {no effect}

    Attributes
    ----------
    {parties_, alignment_, settings_, device_, interrupted_, transcript_}
    history_ : DataFrame
        As of `VertiGANSynthesizer`, and with `DPSGD` as of `VFLGANSynthesizer`. `DPSGDGAN` has
        ``fake_score_joined``, `GSWGAN` no loss at all; both have ``seconds`` and ``chosen``.
    {privacy_ledger_}

    Notes
    -----
    Source: Gulrajani et al. 2017; VFLGAN Eq. 3 and §5.1.2; §5.2.1 for the mechanisms.

    WGAN-GP is VertiGAN with a single party: Eq. 4 is Eq. 3, and the sum of Eq. 5 has one term.
    ``tests/equations/test_wgan_gp.py`` compares it with plain WGAN-GP.

    Afterwards every party gets its columns' part of the output layer and a copy of the hidden
    layers, so `parties_`, ``sample(by_party=True)`` and saving are as for all other synthesizers.
    `transcript_` shows the matching only: the protocol has no message that may carry the rows.

    Privacy: without `privacy`, none. With it, recipients of the synthetic table are protected as
    the ledger says; whoever joins the tables sees all of them.

    Examples
    --------
    >>> from vflsynth import WGANGPSynthesizer
    >>> from vflsynth.datasets import make_party_frames
    >>> frames = make_party_frames(200, 2, random_state=0)
    >>> synth = WGANGPSynthesizer(epochs=2, random_state=0, verbose=0).fit(frames, on="record_id")
    >>> synth.sample(3).shape[0]
    3
    """

    _rules: ClassVar = {
        **VertiGANSynthesizer._rules,
        "wire_precision": Choice(("float32",)),
        "resample": Choice((1,)),
    }
    joins: ClassVar = True
    methods: ClassVar = dict.fromkeys((None, DPSGD, FirstLayer, DPSGDGAN, GSWGAN), WGANGPMethod)
