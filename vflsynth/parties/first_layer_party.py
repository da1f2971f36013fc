"""Parties with the VFLGAN paper's own privacy mechanism, which does not protect the samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vflsynth.parties.vertigan_party import VertiGANParty
from vflsynth.parties.vflgan_party import VFLGANParty
from vflsynth.privacy import StepBudget
from vflsynth.privacy.first_layer import perturb_gradient
from vflsynth.protocol import IntermediateFeatures


@dataclass(slots=True)
class FirstLayerNoise:
    """The clipping bound, the noise and how many steps the budget pays for.

    Parameters
    ----------
    max_grad_norm : float
    noise_multiplier : float
    budget : StepBudget
    rng : torch.Generator, optional
        For tests only; see `vflsynth.privacy.noise`.
    """

    max_grad_norm: float
    noise_multiplier: float
    budget: StepBudget
    rng: torch.Generator | None = None

    def perturb(self, layer: Sequence[Tensor | None]) -> None:
        """Clip and perturb the gradient of a layer, weight and bias as one vector."""
        raw = [p.grad for p in layer if p is not None and p.grad is not None]
        noisy = perturb_gradient(raw, self.max_grad_norm, self.noise_multiplier, rng=self.rng)
        for gradient, replaced_by in zip(raw, noisy):
            gradient.copy_(replaced_by)


class FirstLayerParty(VFLGANParty):
    """A party of VFLGAN that clips and perturbs the gradient of its discriminator's first layer.

    Parameters
    ----------
    name, frame, on, transformer
        See `Party`.

    Notes
    -----
    Source: VFLGAN §3.4, Eqs. 20 and 21. All other layers learn from raw gradients, and the
    generators through them: see `vflsynth.privacy.first_layer`.
    """

    noise: FirstLayerNoise

    def discriminator_features(self, step: int) -> IntermediateFeatures:
        """Pay for the step, then compute features of the batch."""
        self.noise.budget.take()
        return super().discriminator_features(step)

    def _before_descent(self) -> None:
        """Clip and perturb the gradient of the first layer."""
        self.noise.perturb(self.discriminator.first_part.layers[0])


class VertiGANFirstLayerParty(VertiGANParty):
    """A party of VertiGAN, with the same mechanism for its own discriminator.

    Parameters
    ----------
    name, frame, on, transformer
        See `Party`.

    Notes
    -----
    Source: VFLGAN Table 1, lower half: VertiGAN with this mechanism. Alone, such a party is WGAN-GP
    with it (§5.2.1).
    """

    noise: FirstLayerNoise

    def _descend_discriminator(self, step: int) -> None:
        """Pay for the step, then take it."""
        self.noise.budget.take()
        super()._descend_discriminator(step)

    def _before_descent(self) -> None:
        """Clip and perturb the gradient of the first layer."""
        self.noise.perturb(self.discriminator.layers[0])
