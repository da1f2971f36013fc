"""A party of VFLGAN with the paper's own privacy mechanism, which does not protect the samples."""

from __future__ import annotations

from collections.abc import Hashable

import pandas as pd
import torch

from vflsynth.parties.vflgan_party import VFLGANParty
from vflsynth.privacy import StepBudget
from vflsynth.privacy.first_layer import perturb_gradient
from vflsynth.protocol import IntermediateFeatures
from vflsynth.transformers import TableTransformer


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

    def __init__(
        self, name: str, frame: pd.DataFrame, on: Hashable | None, transformer: TableTransformer
    ) -> None:
        super().__init__(name, frame, on, transformer)
        self._noise: torch.Generator | None = None

    def set_privacy(
        self,
        max_grad_norm: float,
        noise_multiplier: float,
        steps: int,
        noise: torch.Generator | None = None,
    ) -> None:
        """Learn the clipping bound, the noise and how many steps the budget pays for."""
        self.max_grad_norm, self.noise_multiplier = max_grad_norm, noise_multiplier
        self.budget, self._noise = StepBudget(steps), noise

    def discriminator_features(self, step: int) -> IntermediateFeatures:
        """Pay for the step, then compute features of the batch."""
        self.budget.take()
        return super().discriminator_features(step)

    def _before_descent(self) -> None:
        """Clip and perturb the gradient of the first layer, weight and bias as one vector."""
        first = self.discriminator.first_part.layers[0]
        raw = [p.grad for p in first if p is not None and p.grad is not None]
        noisy = perturb_gradient(raw, self.max_grad_norm, self.noise_multiplier, rng=self._noise)
        for gradient, replaced_by in zip(raw, noisy):
            gradient.copy_(replaced_by)
