"""A party of VFLGAN: its generator, its local discriminator, and how they learn."""

from __future__ import annotations

import copy
from collections.abc import Hashable

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vflsynth._random import RandomStreams
from vflsynth.exceptions import ProtocolError
from vflsynth.networks import Generator, LocalDiscriminator
from vflsynth.parties.party import Party
from vflsynth.parties.settings import RunningLosses, Settings
from vflsynth.protocol import (
    CutGradients,
    IntermediateFeatures,
    MaskedRecords,
    Message,
    Schedule,
    SelectionNotice,
    Shape,
    TrainingReport,
)
from vflsynth.protocol.channel import Verb
from vflsynth.protocol.messages import SERVER
from vflsynth.transformers import TableTransformer


class VFLGANParty(Party):
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

    def __init__(
        self, name: str, frame: pd.DataFrame, on: Hashable | None, transformer: TableTransformer
    ) -> None:
        super().__init__(name, frame, on, transformer)
        self._pending: list[Tensor] | None = None
        self.losses = RunningLosses()

    def build(self, settings: Settings, schedule: Schedule, streams: RandomStreams) -> None:
        """Make networks and optimisers.

        Parameters
        ----------
        settings : Settings
        schedule : Schedule
            From the secret shared by the parties.
        streams : RandomStreams
            The party's own: initial weights and Gumbel noise.
        """
        self.settings, self.schedule, self.streams = settings, schedule, streams
        self._records = torch.from_numpy(self.encode()).to(streams.device)
        self.generator = Generator(
            settings.latent_dim,
            settings.generator_hidden,
            self.transformer.spans_,
            bias=settings.bias,
            temperature=settings.gumbel_temperature,
            batch_norm_eps=settings.batch_norm_eps,
            streams=streams,
        )
        self.discriminator = LocalDiscriminator(
            self.transformer.width_,
            settings.first_part,
            bias=settings.bias,
            second_part=settings.private_heads,
            penalty=settings.gradient_penalty,
            streams=streams,
        )
        self.averaged = copy.deepcopy(self.generator) if settings.generator_average else None
        self.generator_optimizer = settings.optimizer(self.generator)
        self.discriminator_optimizer = settings.optimizer(self.discriminator)
        self.selected = {k: v.clone() for k, v in self.published.state_dict().items()}

    @property
    def published(self) -> Generator:
        """The generator that is evaluated and kept: the averaged one if there is one."""
        return self.generator if self.averaged is None else self.averaged

    # -- discriminator step ----------------------------------------------------------------------

    @torch.no_grad()
    def discriminator_features(self, step: int) -> IntermediateFeatures:
        """f_i and f~_i (Eq. 11), and features of interpolated records for the layer-wise penalty."""
        schedule = self.schedule
        real = F.embedding(schedule.rows(step), self._records)  # (replica, batch, encoded)
        fake = self._fake(schedule.latent(step), "gumbel.discriminator", step)
        mixed = torch.lerp(fake, real, schedule.interpolation(step))
        trace = self.discriminator.first_part.trace(torch.cat([real, fake, mixed], 1))
        self._pending = trace
        sent = trace[-1][:, : self.settings.sent_blocks * schedule.batch_size]
        return IntermediateFeatures(self.name, SERVER, step, sent)

    @torch.no_grad()
    def update_discriminator(self, message: CutGradients) -> None:
        """Descend L_{D_i} + L_{D_s} (Eqs. 14-16), the latter through the cut gradients."""
        trace = self._answered(message, 2 * self.schedule.batch_size)
        wasserstein, penalty = self.discriminator.write_gradient(
            trace, message.gradients, self.settings.gradient_penalty_weight
        )
        self.discriminator_optimizer.step()
        self.losses.add(wasserstein, penalty)

    # -- generator step --------------------------------------------------------------------------

    def generator_features(self, step: int) -> IntermediateFeatures:
        """f~_i for the latents of discriminator step `step`, with fresh Gumbel noise."""
        self._fakes = self._fake(self.schedule.latent(step), "gumbel.generator", step)
        with torch.no_grad():
            self._pending = self.discriminator.first_part.trace(self._fakes)
        return IntermediateFeatures(self.name, SERVER, step, self._pending[-1])

    def update_generator(self, message: CutGradients) -> None:
        """Descend L_G (Eqs. 17-19)."""
        trace = self._answered(message, self.schedule.batch_size)
        with torch.no_grad():
            upstream = self.discriminator.fake_gradient(trace, message.gradients)
        optimizer = self.generator_optimizer
        optimizer.set_gradient(torch.autograd.grad(self._fakes, optimizer.parameters, upstream))
        optimizer.step()
        if self.averaged is not None:
            # A short average at first, so that it forgets the random start.
            n = optimizer.steps
            decay = min(self.settings.generator_average, (1 + n) / (10 + n))
            torch._foreach_lerp_(_floats(self.averaged), _floats(self.generator), 1.0 - decay)

    # -- evaluation and selection ----------------------------------------------------------------

    def masked_real(self, step: int) -> MaskedRecords:
        """Q [1, x_i] over all training records; one replica if all train on the same records."""
        rows = self.schedule.replica_rows
        records = self._records.unsqueeze(0) if rows is None else F.embedding(rows, self._records)
        return MaskedRecords(
            self.name, SERVER, step, self.schedule.rotate(_with_constant(records), reuse=False)
        )

    def masked_fake(self, step: int) -> MaskedRecords:
        """Q' [1, x~_i] over fresh fake records."""
        latent = self.schedule.evaluation_latent(step, self.settings.n_evaluation)
        fake = sample_encoded(self.published, latent, self.streams, step)
        return MaskedRecords(
            self.name, SERVER, step, self.schedule.rotate(_with_constant(fake), reuse=True)
        )

    def select(self, message: SelectionNotice) -> None:
        """Keep the published generator of the replicas that the server names."""
        for name, value in self.published.state_dict().items():
            chosen = message.keep.view(-1, *[1] * (value.dim() - 1))
            self.selected[name] = torch.where(chosen, value, self.selected[name])

    def report(self, step: int) -> TrainingReport:
        """Mean Wasserstein estimate and penalty since the last report."""
        return TrainingReport(self.name, SERVER, step, *self.losses.pop())

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
            case Verb.MASKED_REAL:
                return self.masked_real(step)
            case Verb.MASKED_FAKE:
                return self.masked_fake(step)
            case Verb.REPORT:
                return self.report(step)
            case _:
                return super().answer(verb, step)

    def take(self, verb: Verb, message: Message) -> None:
        """Act on a message from the server."""
        match verb, message:
            case Verb.UPDATE_DISCRIMINATOR, CutGradients():
                self.update_discriminator(message)
            case Verb.UPDATE_GENERATOR, CutGradients():
                self.update_generator(message)
            case Verb.SELECT, SelectionNotice():
                self.select(message)
            case _:
                super().take(verb, message)

    # -- internals -------------------------------------------------------------------------------

    def _fake(self, latent: Tensor, stream: str, step: int) -> Tensor:
        shape = self.generator.activation.noise_shape(latent.shape[1])
        gumbel = None if shape is None else self.streams.gumbel(stream, step, shape)
        fake: Tensor = self.generator(latent, gumbel)
        return fake

    def _answered(self, message: CutGradients, rows: int) -> list[Tensor]:
        """The trace that the cut gradients belong to."""
        if self._pending is None:
            raise ProtocolError(f"party {self.name!r} got cut gradients it did not ask for")
        trace, self._pending = self._pending, None
        expected = trace[-1][:, :rows].shape
        if message.gradients.shape != expected:
            raise ProtocolError(
                f"party {self.name!r} got cut gradients of shape {tuple(message.gradients.shape)}; "
                f"expected {tuple(expected)}"
            )
        return trace


@torch.no_grad()
def sample_encoded(
    generator: Generator, latent: Tensor, streams: RandomStreams, index: int
) -> Tensor:
    """Encoded fake rows of a generator in evaluation mode, shape (replica, n, encoded).

    Parameters
    ----------
    generator : Generator
    latent : Tensor, shape (replica, n, latent)
    streams : RandomStreams
        The party's own, for Gumbel noise.
    index : int
        Which draw of the stream.
    """
    generator.eval()
    shape = generator.activation.noise_shape(latent.shape[1])
    gumbel = None if shape is None else streams.gumbel("gumbel.evaluation", index, shape)
    rows: Tensor = generator(latent, gumbel)
    generator.train()
    return rows


def _with_constant(records: Tensor) -> Tensor:
    """Put a column of ones in front of (replica, n, column)."""
    return F.pad(records, (1, 0), value=1.0)


def _floats(module: nn.Module) -> list[Tensor]:
    """Parameters and running statistics, in a fixed order, without gradients."""
    return [value for value in module.state_dict().values() if value.is_floating_point()]
