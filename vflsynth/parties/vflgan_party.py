"""A party of VFLGAN: its local discriminator, and how it and the generator learn."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import pandas as pd
import torch
from torch import Tensor

from vflsynth._random import RandomStreams
from vflsynth.columns import TableTransformer
from vflsynth.exceptions import ProtocolError
from vflsynth.networks import LocalDiscriminator
from vflsynth.parties.gan_party import GANParty
from vflsynth.parties.settings import Settings, load_network_state, network_state
from vflsynth.protocol import CutGradients, IntermediateFeatures, Message, Schedule, Shape
from vflsynth.protocol.channel import Verb
from vflsynth.protocol.messages import SERVER


class VFLGANParty(GANParty):
    """A party of VFLGAN: G_i and D_i, their optimisers, and the private randomness.

    Parameters
    ----------
    name, frame, on, transformer
        See `Party`.

    Notes
    -----
    Source: VFLGAN §3.2 and Algorithm 1. Sees its own records, the shared secret (through the
    schedule) and the server's messages. Sends what `vflsynth.protocol.messages` lists.
    """

    discriminator: LocalDiscriminator

    def __init__(
        self, name: str, frame: pd.DataFrame, on: Hashable | None, transformer: TableTransformer
    ) -> None:
        super().__init__(name, frame, on, transformer)
        self._pending: tuple[int, list[Tensor]] | None = None  # a step, and what it waits with

    def build(self, settings: Settings, schedule: Schedule, streams: RandomStreams) -> None:
        """Encode the records, and make networks and optimisers."""
        super().build(settings, schedule, streams)
        self.discriminator = LocalDiscriminator(
            self.transformer.width_,
            settings.first_part,
            bias=settings.bias,
            second_part=settings.private_heads,
            penalty=settings.gradient_penalty,
            streams=streams,
        )
        self.discriminator_optimizer = settings.optimizer(self.discriminator)

    # -- discriminator step ----------------------------------------------------------------------

    @torch.no_grad()
    def discriminator_features(self, step: int) -> IntermediateFeatures:
        """Compute f_i and f~_i (Eq. 11), and features of interpolated records for the penalty."""
        schedule = self.schedule
        real, fake = self.real(step), self.fake(step, "discriminator")
        mixed = torch.lerp(fake, real, schedule.interpolation(step))
        trace = self.discriminator.first_part.trace(torch.cat([real, fake, mixed], 1))
        self._pending = step, trace
        sent = trace[-1][:, : self.settings.sent_blocks * schedule.batch_size]
        return IntermediateFeatures(self.name, SERVER, step, sent)

    @torch.no_grad()
    def update_discriminator(self, message: CutGradients) -> None:
        """Descend L_{D_i} + L_{D_s} (Eqs. 14-16), the latter through the cut gradients."""
        trace = self._answered(message, 2 * self.schedule.batch_size)
        wasserstein, penalty = self.discriminator.write_gradient(
            trace, message.gradients, self.settings.gradient_penalty_weight
        )
        self._before_descent()
        self.discriminator_optimizer.step()
        self.losses.add(wasserstein, penalty)

    def _before_descent(self) -> None:
        """Change the discriminator's gradient, for mechanisms that do."""

    # -- generator step --------------------------------------------------------------------------

    def generator_features(self, step: int) -> IntermediateFeatures:
        """Compute f~_i for the latents of discriminator step `step`, with fresh Gumbel noise."""
        self._fakes = self.fake(step, "generator")
        with torch.no_grad():
            trace = self.discriminator.first_part.trace(self._fakes)
        self._pending = step, trace
        return IntermediateFeatures(self.name, SERVER, step, trace[-1])

    def update_generator(self, message: CutGradients) -> None:
        """Descend L_G (Eqs. 17-19)."""
        trace = self._answered(message, self.schedule.batch_size)
        with torch.no_grad():
            upstream = self.discriminator.fake_gradient(trace, message.gradients)
        optimizer = self.generator_optimizer
        optimizer.set_gradient(torch.autograd.grad(self._fakes, optimizer.parameters, upstream))
        optimizer.step()
        self.average_generator()

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
        match verb:
            case Verb.DISCRIMINATOR_FEATURES:
                return self.discriminator_features(step)
            case Verb.GENERATOR_FEATURES:
                return self.generator_features(step)
            case Verb.SHAPE:
                dims = self.transformer.width_, self.settings.first_part[-1]
                return Shape(self.name, SERVER, step, self.schedule.n_records, *dims)
            case _:
                return super().answer(verb, step)

    def take(self, verb: Verb, message: Message) -> None:
        """Act on a message from the server."""
        match verb, message:
            case Verb.UPDATE_DISCRIMINATOR, CutGradients():
                self.update_discriminator(message)
            case Verb.UPDATE_GENERATOR, CutGradients():
                self.update_generator(message)
            case _:
                super().take(verb, message)

    def _answered(self, message: CutGradients, rows: int) -> list[Tensor]:
        """Return the trace that the cut gradients belong to."""
        if self._pending is None or message.step != self._pending[0]:
            raise ProtocolError(
                f"party {self.name!r} got cut gradients of step {message.step} that it did not ask "
                "for"
            )
        (_, trace), self._pending = self._pending, None
        expected = trace[-1][:, :rows].shape
        if message.gradients.shape != expected:
            raise ProtocolError(
                f"party {self.name!r} got cut gradients of shape {tuple(message.gradients.shape)}; "
                f"expected {tuple(expected)}"
            )
        return trace
