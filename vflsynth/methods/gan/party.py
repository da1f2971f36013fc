"""A party that trains a generator: what all GANs over party frames have in common."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vflsynth._random import RandomStreams
from vflsynth.exceptions import ProtocolError
from vflsynth.learning.base import (
    Known,
    RunningLosses,
    TrainableParty,
    TrainedLearning,
    floats,
    labelled,
    load_network_state,
    move_average,
    network_state,
    section,
)
from vflsynth.learning.messages import MaskedBlocks, MaskedFake, MaskedReal, RowFeatures, RowScorer
from vflsynth.methods.gan.generator import Generator, sample_encoded
from vflsynth.methods.gan.resampling import N_FEATURES, draw_features, feature_blocks
from vflsynth.methods.gan.sampler import GeneratorSampler, Residuals
from vflsynth.methods.gan.settings import Settings
from vflsynth.models.choosing import RowScores, row_features
from vflsynth.networks.layers import FlatAdam
from vflsynth.protocol.channel import SERVER, answers, takes
from vflsynth.protocol.messages import SelectionNotice, TrainingReport
from vflsynth.protocol.schedule import Schedule


class GANParty(TrainableParty):
    """Owns a generator and its average, optimisers, and the private randomness.

    Subclasses make the discriminator with its optimiser, and say how both networks learn.
    """

    discriminator: nn.Module
    discriminator_optimizer: FlatAdam

    def __init__(self, name: str, frame: pd.DataFrame, on: Hashable | None) -> None:
        super().__init__(name, frame, on)
        self.losses = RunningLosses()

    def build_with(
        self, descent: Any, settings: Settings, schedule: Schedule, streams: RandomStreams
    ) -> None:
        """Encode the records, and make networks and optimisers.

        `descent` is how mechanisms have the discriminator descend. The schedule comes from the
        secret shared by the parties; `streams` are the party's own, for initial weights and Gumbel
        noise.
        """
        self.settings, self.schedule, self.streams = settings, schedule, streams
        records = torch.tensor(self.transformer.spread(self.encode())).to(streams.device)
        self.residuals: Residuals | None = None
        if settings.residuals:
            self.residuals, records = Residuals.fit(self.transformer.spans_, records)
        self.records = records
        self.generator = settings.generator.build(
            self.transformer.spans_, streams, self._hidden_streams()
        )
        self.averaged = copy.deepcopy(self.generator) if settings.generator_average else None
        self.generator_optimizer = settings.optimizer(self.generator)
        averaged = [] if self.averaged is None else floats(self.averaged)
        self._averages = averaged, floats(self.generator)
        self.selected = {k: v.clone() for k, v in self.published.state_dict().items()}
        self._masked = MaskedBlocks(self._mask, settings.n_masked_blocks)
        self.judged: list[GeneratorSampler] = []
        self.scored: list[GeneratorSampler] = []
        self.row_weights: dict[int, tuple[Tensor, Tensor]] = {}
        self.discriminator = self._new_discriminator()
        self.discriminator_optimizer = settings.optimizer(self.discriminator)
        self.descent = descent
        descent.start(self)

    @abstractmethod
    def _new_discriminator(self) -> nn.Module: ...

    def _hidden_streams(self) -> RandomStreams:
        """Where the initial weights of the generator's hidden layers come from."""
        return self.streams

    @property
    def published(self) -> Generator:
        """The generator that is evaluated and kept: the averaged one if there is one."""
        return self.generator if self.averaged is None else self.averaged

    def training_records(self, replica: int) -> Tensor:
        """Return the encoded records that a replica trains on, shape (record, encoded)."""
        rows = self.schedule.replica_rows
        return self.records if rows is None else self.records[rows[replica]]

    def real(self, step: int) -> Tensor:
        """Look up the real records of a batch, shape (replica, batch, encoded)."""
        return F.embedding(self.schedule.rows(step), self.records)

    def fake(self, step: int, stream: str) -> Tensor:
        """Generate fakes for a batch's latents, with Gumbel noise from the party's own stream."""
        latent = self.schedule.latent(step)
        gumbel = self.generator.noise(self.streams, f"gumbel.{stream}", step, latent.shape[1])
        return self.generator.forward(latent, gumbel)

    def average_generator(self) -> None:
        """Move the averaged generator, if there is one, towards the current one."""
        if self.averaged is not None:
            decay = self.settings.generator_average
            move_average(*self._averages, self.generator_optimizer.steps, decay)

    # -- evaluation and selection ----------------------------------------------------------------

    @answers(MaskedReal)
    def masked_real(self, step: int) -> MaskedReal:
        """Return a block of the masked training records."""
        return MaskedReal(self.name, SERVER, step, self._masked[step])

    def _mask(self) -> Tensor:
        """Mask all training records, Q [1, x_i]; one replica if all train on the same records."""
        rows = self.schedule.replica_rows
        records = self.records.unsqueeze(0) if rows is None else F.embedding(rows, self.records)
        return self.schedule.rotate(_with_constant(records), reuse=False)

    @answers(MaskedFake)
    def masked_fake(self, step: int) -> MaskedFake:
        """Mask fresh fake records, Q' [1, x~_i]."""
        latent = self.schedule.evaluation_latent(step, self.settings.n_evaluation)
        fake = sample_encoded(self.published, latent, self.streams, step)
        return MaskedFake(
            self.name, SERVER, step, self.schedule.rotate(_with_constant(fake), reuse=True)
        )

    @takes(SelectionNotice)
    def select(self, message: SelectionNotice) -> None:
        """Keep the published generator of the replicas that the server names."""
        for name, value in self.published.state_dict().items():
            chosen = message.keep.view(-1, *[1] * (value.dim() - 1))
            self.selected[name] = torch.where(chosen, value, self.selected[name])

    # -- resampling ------------------------------------------------------------------------------

    def samplers(self) -> list[GeneratorSampler]:
        """Return the generators that were kept, with the marginals of the records if asked for."""
        settings, streams = self.settings, self.streams
        found = GeneratorSampler.of_replicas(
            settings.generator, self.transformer.spans_, self.selected, self.residuals
        )
        if settings.calibrates:
            found = [
                own.calibrated(
                    self.training_records(k),
                    RandomStreams([secret], streams.device),
                    relations=settings.mends,
                )
                for k, (own, secret) in enumerate(zip(found, streams.secrets, strict=True))
            ]
        return found

    @answers(RowFeatures)
    @torch.no_grad()
    def row_features(self, step: int) -> RowFeatures:
        """Compute features of a block of records, and of as many drawn rows."""
        blocks, shared = feature_blocks(self.schedule.n_records), self.schedule.streams
        if not 0 <= step < len(blocks):
            raise ProtocolError(f"block {step} of features was asked for, of {len(blocks)}")
        samplers = self.judged = self.samplers() if step == 0 else self.judged
        order = shared.permutation("judged records", 0, self.schedule.n_records)[:, blocks[step]]
        latents = shared.normal("judged rows", step, (order.shape[1], samplers[0].latent_dim))
        found: list[tuple[Tensor, Tensor]] = []
        for k, (sampler, secret) in enumerate(zip(samplers, self.streams.secrets, strict=True)):
            records = sampler.whole(self.training_records(k))
            own = draw_features(records, self.streams.child("row features"), k)
            private = RandomStreams([secret], self.streams.device).child("judged rows")
            drawn = sampler.draw(latents[k : k + 1], private, step)
            found.append((row_features(records[order[k]], *own), row_features(drawn, *own)))
            self.row_weights[k] = own
        real, fake = (torch.stack(own) for own in zip(*found, strict=True))
        return RowFeatures(self.name, SERVER, step, real, fake)

    @takes(RowScorer)
    def take_scorer(self, message: RowScorer) -> None:
        """Put scores of rows to the generators that are kept."""
        hidden = message.bias.shape[-1]
        self.check_shape("scores", message.first, (len(self.judged), N_FEATURES, hidden))
        for k, sampler in enumerate(self.judged):
            weights = (message.first[k], message.bias[k], message.last[k])
            sampler.scores = RowScores(self.settings.resample, *self.row_weights[k], *weights)
        self.scored = self.judged

    @answers(TrainingReport)
    def report(self, step: int) -> TrainingReport:
        """Report the mean Wasserstein estimate and penalty since the last report."""
        return TrainingReport(self.name, SERVER, step, *self.losses.pop())

    def trained(self) -> Mapping[str, Tensor]:
        """Return the weights of the generators that are kept."""
        return self.selected

    # -- state -----------------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        """Everything that a resumed run needs; randomness is a function of the step."""
        state = network_state("generator", self.generator, self.generator_optimizer)
        state |= network_state("discriminator", self.discriminator, self.discriminator_optimizer)
        state |= labelled("selected", self.selected)
        if self.averaged is not None:
            state |= labelled("averaged", self.averaged.state_dict())
        return state

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore `state`."""
        load_network_state(state, "generator", self.generator, self.generator_optimizer)
        load_network_state(state, "discriminator", self.discriminator, self.discriminator_optimizer)
        self.selected = section(state, "selected")
        if self.averaged is not None:
            self.averaged.load_state_dict(section(state, "averaged"))


class GeneratorLearning(TrainedLearning):
    """A party of a private GAN without its records and its discriminator."""

    def __init__(self, known: Known) -> None:
        super().__init__(known)
        self._spec = known.settings.generator

    def samplers(self) -> Sequence[GeneratorSampler]:
        """Return the generators."""
        return GeneratorSampler.of_replicas(self._spec, self.transformer.spans_, self.trained)


def _with_constant(records: Tensor) -> Tensor:
    """Put a column of ones in front of (replica, n, column)."""
    return F.pad(records, (1, 0), value=1.0)
