"""VertiGAN and WGAN-GP from the coordinator's chair, and which mechanisms they can have."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import torch

from vflsynth._random import RandomStreams
from vflsynth.exceptions import ProtocolError
from vflsynth.mechanisms import DPSGD, Discriminators, FirstLayer
from vflsynth.methods.gan.critics import (
    Critic,
    DPSGDCritic,
    FirstLayerCritic,
    FirstLayerNoise,
)
from vflsynth.methods.gan.method import GANAlgorithm, GANMethod
from vflsynth.methods.gan.server import GANServer
from vflsynth.methods.gan.settings import Settings
from vflsynth.methods.vertigan.messages import BackboneGradients, SummedBackboneGradients
from vflsynth.methods.vertigan.party import VertiGANParty
from vflsynth.protocol import SERVER, Channel, Message, pack, unpack_from


class VertiGANServer(GANServer):
    """The server of VertiGAN: it adds gradients and has no network.

    Source: VFLGAN §2.3. Sees backbone gradients and masked records.
    """

    def sum_gradients(
        self, step: int, received: Mapping[str, BackboneGradients]
    ) -> dict[str, SummedBackboneGradients]:
        """Sum of the parties' gradients of G_b (Eq. 5), the same for each of them."""
        precision = self.settings.wire_precision
        gradients = {name: received[name].gradients for name in sorted(received)}
        shapes = {name: tuple(gradient.shape) for name, gradient in gradients.items()}
        if len(set(shapes.values())) > 1:
            raise ProtocolError(f"the parties' backbones differ: gradients of shapes {shapes}")
        unpacked = [
            unpack_from(received[name], gradient.unsqueeze(1), precision)
            for name, gradient in gradients.items()
        ]
        draw = partial(self.streams.uniform, "rounding", step)
        total = pack(torch.stack(unpacked).sum(0), precision, draw).squeeze(1)
        return {name: SummedBackboneGradients(SERVER, name, step, total) for name in gradients}


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
