"""VertiGAN, from the coordinator's chair."""

from __future__ import annotations

from vflsynth.parties import VertiGANServer
from vflsynth.protocol import BackboneGradients
from vflsynth.protocol.channel import Verb
from vflsynth.training.gan import GANAlgorithm


class VertiGAN(GANAlgorithm):
    """One exchange per generator step; the discriminator steps between are the parties' own affair.

    Notes
    -----
    Source: VFLGAN §2.3. As in `VFLGAN`, the generators are updated after the last of every T_d
    discriminator steps, with the latents of that step.
    """

    server: VertiGANServer

    def step(self, step: int) -> None:
        """After every T_d discriminator steps, a generator step."""
        if (step + 1) % self.discriminator_steps == 0:
            self.update_generators(step)

    def update_generators(self, step: int) -> None:
        """Sum the parties' gradients of the backbone (Eq. 5)."""
        gradients = self.channel.gather(Verb.BACKBONE_GRADIENTS, step, BackboneGradients)
        self.channel.scatter(Verb.UPDATE_GENERATOR, self.server.sum_gradients(step, gradients))
