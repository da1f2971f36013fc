"""VertiGANSynthesizer: the system that VFLGAN is measured against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from vflsynth.mechanisms import DPSGD, FirstLayer
from vflsynth.methods.gan.estimator import GANSynthesizer
from vflsynth.methods.vertigan.method import VertiGANMethod
from vflsynth.registry import Optional, Rule, Sizes, register


@register
@dataclass(repr=False, eq=False, kw_only=True)
class VertiGANSynthesizer(GANSynthesizer):
    """Vertical GAN with a shared generator backbone and no shared discriminator (VertiGAN).

    Every party trains a private head on a backbone that all parties have in common, against a
    private discriminator. Only gradients of the backbone cross a boundary. No discriminator ever
    sees columns of two parties, so nothing teaches the generators how columns of two parties are
    related: that is the difference from `VFLGANSynthesizer`, with which it shares everything else.

    Parameters
    ----------
    {latent_dim, generator_hidden}
    discriminator_hidden : sequence of int, optional
        Hidden layer sizes of every discriminator. Default: from the encoded width.
    {bias, batch_norm_eps, gumbel_temperature, gradient_penalty_weight}
    discriminator_steps : int, default=5
        How often discriminators move per step of the generators (T_d); it needs no exchange.
    {batch_size, epochs, learning_rate, betas, generator_average, model_selection}
    {evaluate_every, calibrate_marginals, resample, wire_precision, column_kinds, contract}
    {structure, transformer, memory_limit, device, random_state, verbose}
    privacy : Mechanism, optional
        Differential privacy (Notes): `DPSGD` or `FirstLayer`. With `DPSGD`, `batch_size` is the
        expected number of real records in a batch, `learning_rate` is that of the generators and a
        tenth of the discriminators', and the default is about 3,000 steps.
        {no effect}

    Attributes
    ----------
    {parties_, alignment_}
    history_ : DataFrame
        One row per epoch: Wasserstein estimates and penalties of the discriminators, Fréchet
        distance between the *encoded* real and fake records of all parties, seconds. With `DPSGD`
        `fake_score_*` instead of Wasserstein estimates, and no distance.
    {settings_, device_, interrupted_, transcript_, privacy_ledger_}

    Notes
    -----
    Source: VFLGAN §2.3, Eqs. 4 and 5, which describes Jiang, Zhang, Wang and Oprea: "Distributed
    synthesis of vertically partitioned data" (PETS 2023). Neither paper has public code for it.

    Departs from the text where it is silent: the backbone is all hidden layers of the generator and
    the private head its output layer; Adam and the schedule are `VFLGANSynthesizer`'s, as is model
    selection by masked records. The penalty is Eq. 4's, of whole discriminators.

    Privacy: without `privacy`, none. With `DPSGD` every party publishes noisy
    histograms of its columns and, at every step, the noisy sum of clipped per-record gradients of
    all its discriminator's parameters over a Poisson sample that all parties draw alike; noise is
    for the joint sensitivity of all of them. Generators, backbone and reports are computed from
    these alone. So is all that the server sees after matching, where `VFLGANSynthesizer` shows it
    features; the other parties know the samples. `FirstLayer`, the VFLGAN paper's (Table 1),
    perturbs the first layer of every party's discriminator: layers above it are trained on raw
    records, and private heads and shared backbone learn through them, so it gives the synthetic
    table no guarantee and warns. The VFLGAN paper counts the budget of one party's gradients; the
    ledger counts all parties'. Noise and samples come from the operating system whatever
    `random_state` is, so that two fits differ and each spends the whole budget anew.
    `save` leaves out alignment, transcript and running times.

    Examples
    --------
    >>> from vflsynth import VertiGANSynthesizer
    >>> from vflsynth.datasets import make_party_frames
    >>> frames = make_party_frames(200, 2, random_state=0)
    >>> synth = VertiGANSynthesizer(epochs=2, random_state=0, verbose=0)
    >>> synth.fit(frames, on="record_id").sample(3).shape[0]
    3
    """

    _rules: ClassVar[Mapping[str, Rule]] = {"discriminator_hidden": Optional(Sizes())}
    methods: ClassVar = dict.fromkeys((None, DPSGD, FirstLayer), VertiGANMethod)

    discriminator_hidden: Sequence[int] | None = None
