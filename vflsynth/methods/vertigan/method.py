"""VertiGAN and WGAN-GP from the coordinator's chair, and which mechanisms they can have."""

from __future__ import annotations

from typing import Any, ClassVar

from vflsynth._random import RandomStreams
from vflsynth.mechanisms import DPSGD, Discriminators, FirstLayer
from vflsynth.methods.gan.critics import (
    Critic,
    DPSGDCritic,
    FirstLayerCritic,
    FirstLayerNoise,
)
from vflsynth.methods.gan.method import GANAlgorithm, GANMethod
from vflsynth.methods.gan.settings import Settings
from vflsynth.methods.vertigan.messages import BackboneGradients
from vflsynth.methods.vertigan.party import VertiGANParty
from vflsynth.methods.vertigan.server import VertiGANServer
from vflsynth.protocol import Channel, Message


class VertiGAN(GANAlgorithm):
    """One exchange per generator step; the discriminator steps between are the parties' own affair.

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
        gradients = self.channel.gather(BackboneGradients, step)
        self.channel.scatter(self.server.sum_gradients(step, gradients))


class VertiGANMethod(GANMethod):
    """Vertical GAN with a shared generator backbone and no shared discriminator (VertiGAN)."""

    party = VertiGANParty
    owners = Discriminators.PRIVATE
    plain_descent = Critic
    descents: ClassVar = {
        DPSGD: DPSGDCritic,
        FirstLayer: lambda plan, _, noise: FirstLayerCritic(FirstLayerNoise(plan, noise)),
    }

    @property
    def asks(self) -> frozenset[type[Message]]:  # type: ignore[override]
        """What the server may ask a party for, besides what every run asks."""
        return super().asks | {BackboneGradients}

    def algorithm(self, channel: Channel, settings: Settings, streams: RandomStreams) -> VertiGAN:
        """Make the algorithm and a server that adds gradients."""
        return VertiGAN(
            channel,
            VertiGANServer(settings, streams),
            discriminator_steps=self.parameters.discriminator_steps,
            model_selection=self.parameters.model_selection if self.selects else "last",
            reports=self.reports,
        )

    def discriminator_settings(self, scale: int) -> dict[str, Any]:
        """Return sizes of the discriminators."""
        return {
            "first_part": tuple(self.parameters.discriminator_hidden or (scale, scale)),
            "shared_hidden": (),
            "private_heads": True,
            "gradient_penalty": "paper",
        }
