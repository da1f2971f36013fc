"""VertiGAN: its party, and the coordinator's chair, which WGAN-GP shares."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from vflsynth._random import RandomStreams
from vflsynth.exceptions import ProtocolError
from vflsynth.mechanisms import DPSGD, Discriminators, FirstLayer
from vflsynth.methods.gan.critics import Critic, CriticParty, DPSGDCritic, FirstLayerCritic
from vflsynth.methods.gan.method import GANAlgorithm, GANMethod
from vflsynth.methods.gan.settings import Settings
from vflsynth.methods.vertigan.messages import BackboneGradients, SummedBackboneGradients
from vflsynth.networks.layers import pulled_back
from vflsynth.protocol.channel import (
    SERVER,
    Channel,
    Message,
    answers,
    pack,
    takes,
    unpack,
    unpack_from,
)
from vflsynth.protocol.messages import TrainingReport
from vflsynth.protocol.schedule import Schedule


class VertiGANParty(CriticParty):
    """A party of VertiGAN: G_b, G_hi and D_i, their optimisers, and the private randomness.

    The hidden layers of its generator are the backbone G_b, of which every party has an equal copy:
    they start from the parties' shared secret and take the same steps. The output layer is the
    private head G_hi. Alone, such a party is a plain WGAN-GP.

    Source: VFLGAN §2.3, Eqs. 4 and 5. The paper does not say where the backbone ends; sharing all
    that can be shared ties the parties together as closely as this architecture allows.

    Sees its own records, the shared secret (through the schedule) and summed backbone gradients.
    """

    def build_with(
        self, descent: Critic, settings: Settings, schedule: Schedule, streams: RandomStreams
    ) -> None:
        """Encode the records, and make networks and optimisers."""
        super().build_with(descent, settings, schedule, streams)
        self._backbone = list(self.generator.hidden.parameters())
        self._pending: tuple[Tensor, ...] | None = None

    def _hidden_streams(self) -> RandomStreams:
        """Where the backbone's initial weights come from: the same in every party."""
        return self.schedule.streams.child("backbone")

    @answers(BackboneGradients)
    def backbone_gradients(self, step: int) -> BackboneGradients:
        """Train D_i up to this step; then d(-E[D_i(x~_i)])/dG_b for the latents of the step."""
        self.descent.before_generator_step(self, step)
        self.train_discriminator(step + 1)
        fakes = self.fake(step, "generator")
        with torch.no_grad():
            upstream = self.descent.upstream(self, fakes)
        # In the order of the module: the backbone, then the head.
        parameters = self.generator_optimizer.parameters
        self._pending = pulled_back([fakes], parameters, [upstream])
        own = [g.flatten(1) for g in self._pending[: len(self._backbone)]]
        draw = partial(self.streams.uniform, "rounding", step)
        packed = pack(torch.cat(own, 1).unsqueeze(1), self.settings.wire_precision, draw)
        return BackboneGradients(self.name, SERVER, step, packed.squeeze(1))

    @takes(SummedBackboneGradients)
    def update_generator(self, message: SummedBackboneGradients) -> None:
        """Descend along the summed gradient of G_b (Eq. 5) and the party's own of G_hi (Eq. 4)."""
        if self._pending is None:
            raise ProtocolError(f"party {self.name!r} got backbone gradients it did not ask for")
        own, self._pending = self._pending[len(self._backbone) :], None
        sizes = [weight[0].numel() for weight in self._backbone]
        packed = message.gradients.unsqueeze(1)
        gradients = unpack(packed, self.settings.wire_precision).squeeze(1)
        self.check_shape("backbone gradients", gradients, (len(self.streams.secrets), sum(sizes)))
        summed = [
            part.reshape(weight.shape)
            for part, weight in zip(torch.split(gradients, sizes, dim=1), self._backbone)
        ]
        self.generator_optimizer.set_gradient([*summed, *own])
        self.generator_optimizer.step()
        self.average_generator()

    def report(self, step: int) -> TrainingReport:
        """Finish the epoch's discriminator steps; then the means since the last report."""
        self.train_discriminator(step * self.schedule.steps_per_epoch)
        return super().report(step)


class VertiGAN(GANAlgorithm):
    """One exchange per generator step; the discriminator steps between are the parties' own affair.

    Source: VFLGAN §2.3. As in `VFLGAN`, the generators are updated after the last of every T_d
    discriminator steps, with the latents of that step. The server sees backbone gradients and
    masked records; it adds gradients and has no network.
    """

    def step(self, step: int) -> None:
        """After every T_d discriminator steps, a generator step."""
        if self.settings.moves_generators(step):
            gradients = self.channel.gather(BackboneGradients, step)
            self.channel.scatter(self.sum_gradients(step, gradients))

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


class VertiGANMethod(GANMethod):
    """Vertical GAN with a shared generator backbone and no shared discriminator (VertiGAN)."""

    party = VertiGANParty
    owners = Discriminators.PRIVATE
    plain_descent = Critic
    descents: ClassVar = {DPSGD: DPSGDCritic, FirstLayer: FirstLayerCritic}

    @property
    def asks(self) -> frozenset[type[Message]]:  # type: ignore[override]
        """What the server may ask a party for, besides what every run asks."""
        return super().asks | {BackboneGradients}

    def algorithm(self, channel: Channel, settings: Settings, streams: RandomStreams) -> VertiGAN:
        """Make the algorithm."""
        return VertiGAN(channel, settings, streams, selects=self.selects, reports=self.reports)

    def discriminator_settings(self, scale: int) -> dict[str, Any]:
        """Return sizes of the discriminators."""
        return {
            "first_part": tuple(self.parameters.discriminator_hidden or (scale, scale)),
            "shared_hidden": (),
            "private_heads": True,
            "gradient_penalty": "paper",
        }
