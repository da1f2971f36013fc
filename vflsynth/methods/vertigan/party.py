"""A party of VertiGAN: a whole discriminator of its own, and a head on a shared backbone."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from vflsynth._random import RandomStreams
from vflsynth.exceptions import ProtocolError
from vflsynth.methods.gan.critics import Critic, CriticParty
from vflsynth.methods.gan.settings import Settings
from vflsynth.methods.vertigan.messages import BackboneGradients, SummedBackboneGradients
from vflsynth.protocol import SERVER, Schedule, answers, pack, takes, unpack
from vflsynth.protocol.messages import TrainingReport


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
        self._pending = torch.autograd.grad(fakes, self.generator_optimizer.parameters, upstream)
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
        expected = (len(self.streams.secrets), sum(sizes))
        packed = message.gradients.unsqueeze(1)
        gradients = unpack(packed, self.settings.wire_precision).squeeze(1)
        if gradients.shape != expected:
            raise ProtocolError(
                f"party {self.name!r} got backbone gradients of shape "
                f"{tuple(gradients.shape)}; expected {expected}"
            )
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
