"""Algorithm 1 of VFLGAN, from the coordinator's chair."""

from __future__ import annotations

from torch import Tensor

from vflsynth.parties import VFLGANServer
from vflsynth.protocol import IntermediateFeatures
from vflsynth.protocol.channel import Verb
from vflsynth.training.gan import GANAlgorithm


class VFLGAN(GANAlgorithm):
    """What happens in a training step, without a word about how.

    Notes
    -----
    Source: VFLGAN Algorithm 1. The reference code updates the generators after the first of every
    five discriminator steps, the listing after the last; this follows the listing. Both use the
    latents of that step.
    """

    server: VFLGANServer

    def step(self, step: int) -> None:
        """Train the discriminators, and after every T_d steps the generators."""
        self.update_discriminators(step)
        if (step + 1) % self.discriminator_steps == 0:
            self.update_generators(step)

    def update_discriminators(self, step: int) -> None:
        """Train D_1..D_M and D_s, as Algorithm 1 does."""
        features = self.channel.gather(Verb.DISCRIMINATOR_FEATURES, step, IntermediateFeatures)
        cut_gradients = self.server.update_discriminator(step, features)
        self.channel.scatter(Verb.UPDATE_DISCRIMINATOR, cut_gradients)

    def update_generators(self, step: int) -> None:
        """Train G_1..G_M, as Algorithm 1 does."""
        features = self.channel.gather(Verb.GENERATOR_FEATURES, step, IntermediateFeatures)
        cut_gradients = self.server.score_fakes(step, features)
        self.channel.scatter(Verb.UPDATE_GENERATOR, cut_gradients)

    def report(self, epoch: int) -> dict[str, Tensor]:
        """Gather mean losses since the last report by name, each of shape (replica,)."""
        wasserstein, penalty = self.server.losses.pop()
        shared = {"wasserstein_shared": wasserstein, "penalty_shared": penalty}
        return shared | super().report(epoch)
