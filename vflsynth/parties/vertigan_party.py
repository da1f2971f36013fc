"""A party of VertiGAN: a whole discriminator of its own, and a head on a shared backbone."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from vflsynth._random import RandomStreams
from vflsynth.exceptions import ProtocolError
from vflsynth.networks import Discriminator
from vflsynth.parties.gan_party import GANParty
from vflsynth.parties.settings import Settings, load_network_state, network_state
from vflsynth.protocol import BackboneGradients, Message, Schedule, TrainingReport
from vflsynth.protocol.channel import Verb
from vflsynth.protocol.messages import SERVER


class VertiGANParty(GANParty):
    """A party of VertiGAN: G_b, G_hi and D_i, their optimisers, and the private randomness.

    The hidden layers of its generator are the backbone G_b, of which every party has an equal copy:
    they start from the parties' shared secret and take the same steps. The output layer is the
    private head G_hi. Alone, such a party is a plain WGAN-GP.

    Parameters
    ----------
    name, frame, on, transformer
        See `Party`.

    Notes
    -----
    Source: VFLGAN §2.3, Eqs. 4 and 5. The paper does not say where the backbone ends; sharing all
    that can be shared ties the parties together as closely as this architecture allows.

    Sees its own records, the shared secret (through the schedule) and summed backbone gradients.
    """

    discriminator: Discriminator

    def build(self, settings: Settings, schedule: Schedule, streams: RandomStreams) -> None:
        """Encode the records, and make networks and optimisers."""
        super().build(settings, schedule, streams)
        self.discriminator = Discriminator(
            self.transformer.width_, settings.first_part, bias=settings.bias, streams=streams
        )
        self.discriminator_optimizer = settings.optimizer(self.discriminator)
        self._backbone = list(self.generator.hidden.parameters())
        self._pending: tuple[Tensor, ...] | None = None

    def _hidden_streams(self) -> RandomStreams:
        """Where the backbone's initial weights come from: the same in every party."""
        return self.schedule.streams.child("backbone")

    @torch.no_grad()
    def train_discriminator(self, until: int) -> None:
        """Descend L_{D_i} (Eq. 4), which needs nobody else, for all steps before `until`."""
        for step in range(self.discriminator_optimizer.steps, until):
            self._descend_discriminator(step)

    def _descend_discriminator(self, step: int) -> None:
        """Take one step of D_i."""
        real, fake = self.real(step), self.fake(step, "discriminator")
        mixed = torch.lerp(fake, real, self.schedule.interpolation(step))
        wasserstein, penalty, _ = self.discriminator.critic_gradient(
            torch.cat([real, fake, mixed], 1), self.settings.gradient_penalty_weight
        )
        self._before_descent()
        self.discriminator_optimizer.step()
        self.losses.add(wasserstein, penalty)

    def _before_descent(self) -> None:
        """Change the discriminator's gradient, for mechanisms that do."""

    def _upstream(self, fakes: Tensor) -> Tensor:
        """d(-E[D_i(x~_i)])/dx~_i, which the generator learns from."""
        return self.discriminator.fake_gradient(fakes)

    def backbone_gradients(self, step: int) -> BackboneGradients:
        """Train D_i up to this step; then d(-E[D_i(x~_i)])/dG_b for the latents of the step."""
        self.train_discriminator(step + 1)
        fakes = self.fake(step, "generator")
        with torch.no_grad():
            upstream = self._upstream(fakes)
        # In the order of the module: the backbone, then the head.
        self._pending = torch.autograd.grad(fakes, self.generator_optimizer.parameters, upstream)
        own = [g.flatten(1) for g in self._pending[: len(self._backbone)]]
        return BackboneGradients(self.name, SERVER, step, torch.cat(own, 1))

    def update_generator(self, message: BackboneGradients) -> None:
        """Descend along the summed gradient of G_b (Eq. 5) and the party's own of G_hi (Eq. 4)."""
        if self._pending is None:
            raise ProtocolError(f"party {self.name!r} got backbone gradients it did not ask for")
        own, self._pending = self._pending[len(self._backbone) :], None
        sizes = [weight[0].numel() for weight in self._backbone]
        expected = (len(self.streams.secrets), sum(sizes))
        if message.gradients.shape != expected:
            raise ProtocolError(
                f"party {self.name!r} got backbone gradients of shape "
                f"{tuple(message.gradients.shape)}; expected {expected}"
            )
        summed = [
            part.reshape(weight.shape)
            for part, weight in zip(torch.split(message.gradients, sizes, dim=1), self._backbone)
        ]
        self.generator_optimizer.set_gradient([*summed, *own])
        self.generator_optimizer.step()
        self.average_generator()

    def report(self, step: int) -> TrainingReport:
        """Finish the epoch's discriminator steps; then the means since the last report."""
        self.train_discriminator(step * self.schedule.steps_per_epoch)
        return super().report(step)

    # -- state -----------------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        """Everything that a resumed run needs."""
        optimizer = self.discriminator_optimizer
        return super().state() | network_state("discriminator", self.discriminator, optimizer)

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore `state`."""
        super().load_state(state)
        load_network_state(state, "discriminator", self.discriminator, self.discriminator_optimizer)

    # -- messages --------------------------------------------------------------------------------

    def answer(self, verb: Verb, step: int) -> Message:
        """Compute the message that `verb` asks for at `step`."""
        if verb is Verb.BACKBONE_GRADIENTS:
            return self.backbone_gradients(step)
        return super().answer(verb, step)

    def take(self, verb: Verb, message: Message) -> None:
        """Act on a message from the server."""
        if verb is Verb.UPDATE_GENERATOR and isinstance(message, BackboneGradients):
            self.update_generator(message)
        else:
            super().take(verb, message)
