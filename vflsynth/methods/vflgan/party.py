"""A party of VFLGAN: its local discriminator, and how it and the generator learn."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import partial
from typing import TypeVar

import pandas as pd
import torch
from torch import Tensor

from vflsynth.exceptions import ProtocolError
from vflsynth.methods.gan.critics import FirstLayerNoise
from vflsynth.methods.gan.discriminator import Judged, LocalDiscriminator
from vflsynth.methods.gan.party import GANParty
from vflsynth.methods.vflgan.messages import (
    DiscriminatorFeatures,
    DiscriminatorGradients,
    FeatureSlopes,
    GeneratorFeatures,
    GeneratorGradients,
    JointSlopes,
    SampledFeatures,
    Shape,
)
from vflsynth.networks.layers import pulled_back
from vflsynth.protocol.channel import SERVER, Message, answers, pack, takes, unpack
from vflsynth.protocol.messages import CutGradients

C = TypeVar("C", DiscriminatorGradients, JointSlopes, GeneratorGradients)


class VFLGANParty(GANParty):
    """A party of VFLGAN: G_i and D_i, their optimisers, and the private randomness.

    Source: VFLGAN §3.2 and Algorithm 1. Sees its own records, the shared secret (through the
    schedule) and the server's messages. Sends what `vflsynth.protocol.messages` lists.
    """

    discriminator: LocalDiscriminator

    descent: Cut

    def __init__(self, name: str, frame: pd.DataFrame, on: Hashable | None) -> None:
        super().__init__(name, frame, on)
        # Fakes of a discriminator step after which the generator moves, with what that needs.
        self._fakes: Tensor | None = None
        # A step, what it waits for, and with what.
        self._pending: tuple[int, type[CutGradients], list[Tensor]] | None = None
        # With the end-to-end penalty: rows, the gradients that came for them, and what the party
        # made of them before it knows the others' part of the slopes.
        self._open: tuple[Tensor, Tensor, Judged] | None = None

    def _new_discriminator(self) -> LocalDiscriminator:
        return LocalDiscriminator(
            self.transformer.width_,
            self.settings.first_part,
            bias=self.settings.bias,
            second_part=self.settings.private_heads,
            penalty=self.settings.gradient_penalty,
            streams=self.streams,
        )

    @answers(Shape)
    def shape(self, step: int) -> Shape:
        """Tell the sizes that the server builds the shared discriminator from."""
        dims = self.transformer.width_, self.settings.first_part[-1]
        return Shape(self.name, SERVER, step, self.schedule.n_records, *dims)

    # -- discriminator step ----------------------------------------------------------------------

    @answers(DiscriminatorFeatures)
    @torch.no_grad()
    def discriminator_features(self, step: int) -> Message:
        """Compute f_i and f~_i (Eq. 11), and what the penalty is taken at."""
        return self.descent.features(self, step)

    @answers(SampledFeatures)
    def sampled_features(self, step: int) -> Message:
        """Compute the same of a Poisson sample, as DP-SGD has it."""
        return self.discriminator_features(step)

    def trace(
        self, step: int, rows: Tensor, reply: type[CutGradients] = DiscriminatorGradients
    ) -> list[Tensor]:
        """Push rows through the first part, and wait for cut gradients of them as the reply.

        Raises ProtocolError if the server still owes the reply to features that it has.
        """
        if self._pending is not None:
            owed, kind = self._pending[:2]
            raise ProtocolError(
                f"party {self.name!r} was asked for features of step {step} before it got "
                f"{kind.__name__} of step {owed}"
            )
        trace = self.discriminator.first_part.trace(rows)
        self._pending = step, reply, trace
        return trace

    @property
    def pending_rows(self) -> Tensor:
        """Rows that wait for cut gradients, some of which get none, (replica, row, encoded)."""
        return torch.empty(0, 0) if self._pending is None else self._pending[2][0]

    def packed(self, label: str, step: int, values: Tensor) -> Tensor:
        """Return features as they leave the party."""
        draw = partial(self.streams.uniform, f"rounding|{label}", step)
        return pack(values, self.settings.wire_precision, draw)

    def unpacked(self, message: C) -> C:
        """Return cut gradients as they were computed, but for rounding."""
        gradients = unpack(message.gradients, self.settings.wire_precision)
        return replace(message, gradients=gradients)

    @takes(DiscriminatorGradients)
    @torch.no_grad()
    def update_discriminator(self, message: DiscriminatorGradients) -> None:
        """Descend L_{D_i} + L_{D_s} (Eqs. 14-16), the latter through the cut gradients.

        With several steps per exchange: as often as the window has steps, on the same records and
        fakes, with cut gradients of its beginning and what is the party's own computed anew; the
        generator moves when it is due. With the end-to-end penalty the steps wait for
        `JointSlopes`.
        """
        message = self.unpacked(message)
        if self.settings.end_to_end:
            trace = self.answered(message, 3 * self.schedule.batch_size)
            self._open = trace[0], message.gradients, self._judge(trace, message.gradients)
            self._pending = message.step, JointSlopes, trace
            return
        window = self.settings.window(message.step, self.schedule.steps_per_epoch)
        batch, for_generator = self.schedule.batch_size, None
        if self.settings.replies_for_generators(window):
            for_generator = message.gradients[:, -batch:]
            message = replace(message, gradients=message.gradients[:, :-batch])
        gradients, rows = message.gradients, self.pending_rows
        losses = self.descent.descend(self, message)
        self._take_steps(
            window,
            rows,
            losses,
            lambda trace: self.descent.descend_at(self, trace, gradients),
            for_generator,
        )

    @answers(FeatureSlopes)
    @torch.no_grad()
    def feature_slopes(self, step: int) -> FeatureSlopes:
        """Compute J_i J_i^T c_i, c_i being the server's derivative at interpolated records."""
        if self._open is None or self._pending is None or self._pending[0] != step:
            raise ProtocolError(
                f"party {self.name!r} was asked for FeatureSlopes of step {step} without "
                "DiscriminatorGradients of it"
            )
        changes = self._open[2].changes[-1][:, -self.schedule.batch_size :]
        return FeatureSlopes(self.name, SERVER, step, self.packed("slopes", step, changes))

    @takes(JointSlopes)
    @torch.no_grad()
    def descend_jointly(self, message: JointSlopes) -> None:
        """Descend as `update_discriminator`, with the slope at joint records penalised.

        Of that the other parties' part is that of the window's beginning.
        """
        window = self.settings.window(message.step, self.schedule.steps_per_epoch)
        batch, for_generator = self.schedule.batch_size, None
        if self.settings.replies_for_generators(window):
            message = self.unpacked(message)
            for_generator = message.gradients
        self.answered(message, batch if for_generator is not None else 0)
        assert self._open is not None
        (rows, gradients, judged), self._open = self._open, None
        self.check_shape("squared slopes", message.squared, tuple(judged.squared.shape[:-1]))
        others = (message.squared.unsqueeze(-1) - judged.squared).clamp_min_(0.0)
        weight = self.settings.gradient_penalty_weight * self.settings.shared_weights[0]
        self._take_steps(
            window,
            rows,
            self.discriminator.settle(judged, others, weight),
            lambda trace: self.discriminator.settle(self._judge(trace, gradients), others, weight),
            for_generator,
        )

    def _judge(self, trace: list[Tensor], gradients: Tensor) -> Judged:
        """Judge rows by gradients of real and fake ones, and of the slope at interpolated ones."""
        cut_gradients, shared = gradients.split_with_sizes(
            [2 * self.schedule.batch_size, self.schedule.batch_size], 1
        )
        weight = self.settings.gradient_penalty_weight
        return self.discriminator.judge(trace, cut_gradients, weight, shared=shared)

    def _take_steps(
        self,
        window: range,
        rows: Tensor,
        losses: tuple[Tensor, Tensor],
        descend: Callable[[list[Tensor]], tuple[Tensor, Tensor]],
        for_generator: Tensor | None,
    ) -> None:
        """Take the steps of a window, of which the first one's gradients are there."""
        for step in window:
            if step != window[0]:
                losses = descend(self.discriminator.first_part.trace(rows))
            self.discriminator_optimizer.step()
            self.losses.add(*losses)
            if for_generator is not None and self.settings.moves_generators(step):
                with torch.enable_grad():
                    fakes = self.fake(window[0], "discriminator")
                trace = self.discriminator.first_part.trace(fakes.detach())
                self._move_generator(fakes, trace, for_generator)

    def judged_fakes(self, step: int) -> Tensor:
        """Generate the fakes of a discriminator step, kept if a step of the generators follows.

        A window of several steps makes them anew, as generators may have moved.
        """
        settings = self.settings
        if settings.steps_per_exchange > 1 or not settings.moves_generators(step):
            return self.fake(step, "discriminator")
        with torch.enable_grad():
            self._fakes = self.fake(step, "discriminator")
        return self._fakes.detach()

    # -- generator step --------------------------------------------------------------------------

    @answers(GeneratorFeatures)
    def generator_features(self, step: int) -> GeneratorFeatures:
        """Compute f~_i for the fakes of discriminator step `step`."""
        if self._fakes is None:
            self._fakes = self.fake(step, "discriminator")
        with torch.no_grad():
            trace = self.trace(step, self._fakes, GeneratorGradients)
        return GeneratorFeatures(self.name, SERVER, step, self.packed("fakes", step, trace[-1]))

    @takes(GeneratorGradients)
    def update_generator(self, message: GeneratorGradients) -> None:
        """Descend L_G (Eqs. 17-19)."""
        message = self.unpacked(message)
        trace = self.answered(message, self.schedule.batch_size)
        assert self._fakes is not None
        self._move_generator(self._fakes, trace, message.gradients)
        self._fakes = None

    def _move_generator(self, fakes: Tensor, trace: list[Tensor], cut_gradients: Tensor) -> None:
        with torch.no_grad():
            upstream = self.discriminator.fake_gradient(trace, cut_gradients)
        optimizer = self.generator_optimizer
        optimizer.set_gradient(pulled_back([fakes], optimizer.parameters, [upstream]))
        optimizer.step()
        self.average_generator()

    def answered(self, message: CutGradients, rows: int) -> list[Tensor]:
        """Return the trace that the cut gradients belong to."""
        if self._pending is None or (message.step, type(message)) != self._pending[:2]:
            raise ProtocolError(
                f"party {self.name!r} got {type(message).__name__} of step {message.step} that it "
                "did not ask for"
            )
        (_, _, trace), self._pending = self._pending, None
        replicas, _, features = trace[-1].shape
        self.check_shape("cut gradients", message.gradients, (replicas, rows, features))
        return trace


class Cut:
    """The plain descent of a discriminator that goes on at the server.

    It is what mechanisms do otherwise with a batch that holds real records.
    """

    def start(self, party: VFLGANParty) -> None:
        """Change what the party was built with."""

    def features(self, party: VFLGANParty, step: int) -> Message:
        """Compute features of the batch, and of interpolated records for the penalty."""
        real, fake = party.real(step), party.judged_fakes(step)
        mixed = torch.lerp(fake, real, party.schedule.interpolation(step))
        trace = party.trace(step, torch.cat([real, fake, mixed], 1))
        sent = trace[-1][:, : party.settings.sent_blocks * party.schedule.batch_size]
        return DiscriminatorFeatures(party.name, SERVER, step, party.packed("features", step, sent))

    def descend(self, party: VFLGANParty, message: CutGradients) -> tuple[Tensor, Tensor]:
        """Set the discriminator's gradients, and return what the party reports: see `Critic`."""
        trace = party.answered(message, 2 * party.schedule.batch_size)
        return self.descend_at(party, trace, message.gradients)

    def descend_at(
        self, party: VFLGANParty, trace: list[Tensor], cut_gradients: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Do so at a trace of the same rows."""
        discriminator, weight = party.discriminator, party.settings.gradient_penalty_weight
        return discriminator.settle(discriminator.judge(trace, cut_gradients, weight))


class FirstLayerCut(FirstLayerNoise, Cut):
    """The plain descent, with a perturbed first layer."""

    def features(self, party: VFLGANParty, step: int) -> Message:
        """Pay for the step, then compute features of the batch."""
        self.budget.take()
        return super().features(party, step)

    def descend(self, party: VFLGANParty, message: CutGradients) -> tuple[Tensor, Tensor]:
        """Clip and perturb the gradient of the first layer."""
        losses = super().descend(party, message)
        self.perturb(party.discriminator.first_part.layers[0])
        return losses
