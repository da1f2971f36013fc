"""GAFM: the prediction as a generator, judged by a discriminator that sees labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from vflsynth.exceptions import ParameterError
from vflsynth.registry import Choice, Number, Optional, Rule, Sizes, register
from vflsynth.splitdefense.objectives.base import Batch, Objective, Surroundings, Task, descend
from vflsynth.splitdefense.settings import SplitSettings

_INSIDE = 1e-6
"""Distance that the penalty's logarithms keep from 0 and 1."""


class GAFMTask(Task):
    """G ("top") and D of GAFM, with the steps of Algorithm 1 by name."""

    calibrated = False

    def __init__(self, members: Sequence[GAFM], around: Surroundings) -> None:
        super().__init__(members, around)
        self.generator = self.network("top", [1, *around.settings.top_hidden, 1])
        self.discriminator = self.network("discriminator", [1, *members[0].discriminator_hidden, 1])
        self.margin = self.of_members("pseudo_label_margin")
        self.penalty_weight = self.of_members("penalty_weight")
        self.gan_weight = self.of_members("gan_weight")
        self.label_noise_std = self.of_members("label_noise_std")
        self.clip = self.of_members("weight_clip")

    def gradients(self, batch: Batch) -> dict[str, Tensor]:
        """Run one iteration of Algorithm 1 at the active party."""
        parties = self.around.parties
        fused = self.around.settings.fuse(batch.contributions(parties)).detach().requires_grad_()
        labels = batch.labels.to(fused.dtype).unsqueeze(-1)
        shape = tuple(labels.shape[1:])
        noise = batch.draws.normal("gafm.label_noise", shape) * self.label_noise_std  # ε
        offset = batch.draws.uniform("gafm.pseudo_labels", shape) * self.margin  # u
        pseudo_labels = 0.5 + offset * (2.0 * labels - 1.0)  # (5)

        self.update_discriminator(labels + noise, fused)
        self.update_generator(fused)
        gradient = self.fused_gradient(pseudo_labels, fused)
        return {name: batch.if_present(name, gradient) for name in parties}

    def update_discriminator(self, labels: Tensor, fused: Tensor) -> None:
        """Ascend L_GAN = E D(Y + ε) - E D(G(Ỹ)), then clip (lines 4-5)."""
        with torch.no_grad():
            predictions = self.generator(fused).sigmoid()
        both = self.discriminator(torch.cat([labels, predictions], 1))
        real, fake = both.squeeze(-1).split(labels.shape[1], 1)
        loss = real.mean(1) - fake.mean(1)
        optimizer = self.networks["discriminator"][1]
        descend(-loss, optimizer)
        with torch.no_grad():
            for parameter in optimizer.parameters:
                parameter.clamp_(-self.clip, self.clip)
        self.means.add({"loss_gan": loss})

    def update_generator(self, fused: Tensor) -> None:
        """Descend -E D(G(Ỹ)) (lines 6-7)."""
        descend(self.adversarial_loss(fused.detach()), self.networks["top"][1])

    def adversarial_loss(self, fused: Tensor) -> Tensor:
        """-E D(G(Ỹ)) per replica, shape (replica,)."""
        scores: Tensor = self.discriminator(self.generator(fused).sigmoid())
        return -scores.mean((1, 2))

    def fused_gradient(self, pseudo_labels: Tensor, fused: Tensor) -> Tensor:
        """f_Norm(∇L_GAN) + γ f_Norm(∇L_penalty) with respect to Ỹ (line 9, Eq. 8)."""
        (adversarial,) = torch.autograd.grad(self.adversarial_loss(fused).sum(), fused)
        inside = fused.clamp(_INSIDE, 1.0 - _INSIDE)
        penalty = -(
            pseudo_labels * inside.log() + (1.0 - pseudo_labels) * (1.0 - inside).log()
        ).mean((1, 2))
        (towards_labels,) = torch.autograd.grad(penalty.sum(), fused)
        self.means.add({"loss_penalty": penalty})
        total: Tensor = self.gan_weight * unit(adversarial)
        return total + self.penalty_weight * unit(towards_labels)


@register
@dataclass(repr=False, eq=False)
class GAFM(Objective):
    """Generative adversarial federated model.

    Parameters
    ----------
    pseudo_label_margin : float or "auto", default=0.05
        Δ: noisy labels lie up to so far beside 1/2, in [0, 0.5]. "auto" chooses it by the paper's
        procedure, see `GAFMClassifier`.
    penalty_weight : float, default=1.0
        γ: weight of the cross-entropy with the noisy labels. 0 is the paper's ablation "GAN only".
    gan_weight : float, default=1.0
        Weight of the adversarial gradient; 0 is the ablation "penalty only".
    label_noise_std : float, default=0.01
        σ: noise on the labels that the discriminator sees.
    weight_clip : float, default=0.1
        c: the discriminator's weights and biases stay within ±c.
    discriminator_hidden : sequence of int, default=(64, 32, 16)

    Notes
    -----
    Source: GAFM Algorithm 1 and Eqs. 3-8.

    Settled here, where the text is silent or contradicts itself: f_Norm divides by the norm over
    the whole batch (over single records only signs would be left); noise and noisy labels are drawn
    per record and step; the fused Ỹ is the mean over parties (appendix B.1); Ỹ comes from the
    bottom models from the first step on, not from N(0, 1), for which the penalty is undefined; the
    discriminator's output is linear.
    """

    binary_only = True
    per_replica = frozenset(
        {"pseudo_label_margin", "penalty_weight", "gan_weight", "label_noise_std", "weight_clip"}
    )
    _rules: ClassVar[dict[str, Rule]] = {
        "pseudo_label_margin": Optional(Number(0, 0.5), "auto"),
        "penalty_weight": Number(0),
        "gan_weight": Choice((0.0, 1.0, 0, 1)),
        "label_noise_std": Number(0),
        "weight_clip": Number(0, closed=(False, True)),
        "discriminator_hidden": Sizes(at_least=0),
    }

    pseudo_label_margin: float | Literal["auto"] = 0.05
    penalty_weight: float = 1.0
    gan_weight: float = 1.0
    label_noise_std: float = 0.01
    weight_clip: float = 0.1
    discriminator_hidden: Sequence[int] = (64, 32, 16)

    def check_architecture(self, settings: SplitSettings) -> None:
        """Ask for scalar outputs between 0 and 1, averaged: a sum leaves the penalty's domain."""
        if not settings.scalar_probability or settings.fusion != "mean":
            raise ParameterError(
                "GAFM is defined for scalar bottom outputs between 0 and 1 that are averaged: set "
                "intermediate_dim=1, bottom_output='sigmoid' and fusion='mean'"
            )

    task = GAFMTask


def unit(gradients: Tensor) -> Tensor:
    """Divide by the norm over the batch (f_Norm of Eq. 8); zero stays zero."""
    norm: Tensor = torch.linalg.vector_norm(gradients, dim=(1, 2), keepdim=True)
    return gradients / norm.clamp_min(torch.finfo(gradients.dtype).tiny)
