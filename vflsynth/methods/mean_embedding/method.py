"""Learning from a noisy kernel mean embedding, from the coordinator's chair."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from vflsynth._random import Purpose, RandomStreams
from vflsynth.learning.base import Algorithm, Duration, Method
from vflsynth.learning.messages import SumShares
from vflsynth.mechanisms import Discriminators, Mechanism
from vflsynth.methods.gan.settings import NEEDS_LESS_MEMORY, Settings, estimate_memory
from vflsynth.methods.mean_embedding.mechanism import MeanEmbeddingPlan
from vflsynth.methods.mean_embedding.messages import MaskedPoints, NoisyHistograms, frequencies_of
from vflsynth.methods.mean_embedding.party import (
    MeanEmbeddingLearning,
    MeanEmbeddingParty,
    seed_of_frequencies,
)
from vflsynth.methods.mean_embedding.server import MeanEmbeddingServer
from vflsynth.privacy.discovery import PublicEncoding
from vflsynth.privacy.histograms import largest_count
from vflsynth.privacy.secure_sums import FeatureSum
from vflsynth.protocol import Channel, Schedule
from vflsynth.protocol.messages import Presence
from vflsynth.secure import blocks_of

STEPS_PER_EPOCH = 100
"""No step reads a record, so an epoch is just a number of steps."""

_BYTES_OF_A_POINT = 10
"""An angle, and what masks it, of one record and frequency."""

_EPOCHS = 25
_BATCH_SIZE = 512
_HIDDEN = (128, 128)
_LEARNING_RATE, _BETAS, _GENERATOR_AVERAGE = 4e-3, (0.9, 0.999), 0.99


class MeanEmbedding(Algorithm):
    """Two releases, an estimate made of both, and training at the server, which sends its result.

    Source: DP-MERF (Harder, Adamczewski and Park 2021), with the parties' generators in place of
    one, and with `mean_embedding.embedding`. The last (averaged) generators are kept: choosing
    among epochs by the records would not be private.
    """

    def __init__(self, channel: Channel, server: MeanEmbeddingServer) -> None:
        super().__init__(channel)
        self.server = server

    @property
    def device(self) -> torch.device:
        """Where the server computes."""
        return self.server.streams.device

    def begin(self) -> None:
        """Release: the only time that records are read. A resumed run has the release."""
        if self.server.released is not None:
            return
        self.server.learn_columns(self.channel.gather(NoisyHistograms, 0))
        self.channel.scatter(self.server.widths())
        for block in range(self.server.n_blocks):
            self.server.add(block, self.channel.gather(MaskedPoints, block))
        self.server.publish(self.channel.gather(SumShares, 0))

    def step(self, step: int) -> None:
        """Move all generators; in the beginning of an epoch, see that all parties are there."""
        epoch, place = divmod(step, STEPS_PER_EPOCH)
        if place == 0:
            self.channel.gather(Presence, epoch + 1)
        self.server.training.step(step)

    def report(self, epoch: int) -> dict[str, Tensor]:
        """Mean squared distance to the release since the last report."""
        return self.server.training.pop_losses()

    def end(self, epoch: int) -> None:
        """Give every party its generator."""
        self.channel.scatter(self.server.weights())

    def state(self) -> dict[str, Tensor]:
        """Return the releases and the generators."""
        return self.server.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore `state`."""
        self.server.load_state(state)


class MeanEmbeddingMethod(Method):
    """Generators that learn from two noisy releases, whatever GAN's parameters they have.

    The generators learn a shrunk estimate of the mean embedding, and after training their numeric
    columns are mapped to the published marginals: post-processing of the two releases.
    """

    party = MeanEmbeddingParty
    learner = MeanEmbeddingLearning
    owners = Discriminators.PRIVATE
    asks = frozenset({NoisyHistograms, MaskedPoints, SumShares, Presence})

    @property
    def embedding(self) -> MeanEmbeddingPlan:
        """The plan of the two releases."""
        plan = self.private_plan
        assert isinstance(plan, MeanEmbeddingPlan)
        return plan

    @property
    def features(self) -> FeatureSum:
        """How the sum of the joint records' features is computed, if all are."""
        plan = self.embedding
        return FeatureSum(plan.noise_std, plan.n_features, len(self.columns), self.n_records)

    @property
    def largest_count(self) -> float:
        """Of a published histogram, with all the noise that there is room for."""
        assert self.privacy is not None
        assert self.privacy.delta is not None, "its check requires one"
        noise_std = PublicEncoding.of(
            self.embedding.histogram_noise_multiplier,
            self.columns,
            relation=self.privacy.relation,
            delta=self.privacy.delta,
        ).noise_std
        assert noise_std is not None, "the mechanism has a round of histograms"
        return largest_count(self.n_records, noise_std)

    def n_blocks(self, settings: Settings) -> int:
        """Return how many blocks of records there are masked points of, at most."""
        features = self.features
        return len(blocks_of(features.n_parties, features.n_records, features.n_frequencies))

    def settings(self, n_records: int, widths: Mapping[str, int]) -> Settings:
        """Fill in defaults: from the encoded widths, which are published, and from no record."""
        parameters = self.parameters
        return Settings(
            batch_size=parameters.batch_size or _BATCH_SIZE,
            latent_dim=parameters.latent_dim or min(128, max(16, sum(widths.values()))),
            generator_hidden=tuple(parameters.generator_hidden or _HIDDEN),
            bias=parameters.bias,
            batch_norm_eps=parameters.batch_norm_eps,
            gumbel_temperature=parameters.gumbel_temperature,
            learning_rate=_LEARNING_RATE,
            betas=_BETAS,
            generator_average=_GENERATOR_AVERAGE,
            # There is no discriminator, and nothing is evaluated on records.
            first_part=(),
            shared_hidden=(),
            private_heads=False,
            gradient_penalty="paper",
            gradient_penalty_weight=0.0,
            n_evaluation=0,
        )

    def duration(self, n_records: int, settings: Settings) -> Duration:
        """Epochs of steps that read no record."""
        return Duration(self.parameters.epochs or _EPOCHS, STEPS_PER_EPOCH)

    def build(
        self,
        party: MeanEmbeddingParty,
        settings: Settings,
        schedule: Schedule,
        streams: RandomStreams,
    ) -> None:
        """Prepare a party's share of the releases."""
        seed, width = seed_of_frequencies(streams), party.transformer.width_
        party.share(
            self.features,
            frequencies_of(seed, width, self.embedding),
            sorted(self.columns),
            schedule.keys.key(Purpose.MASKS),
            self.noise,
            self.n_dummies(party, schedule),
        )

    def algorithm(
        self, channel: Channel, settings: Settings, streams: RandomStreams
    ) -> MeanEmbedding:
        """Make the algorithm, and the server that adds up what is masked, and trains."""
        assert self.privacy is not None
        server = MeanEmbeddingServer(
            channel.names,
            self.features,
            self.embedding,
            settings,
            largest_count=self.largest_count,
            n_steps=self.duration(self.n_records, settings).n_steps,
            relation=self.privacy.relation,
            streams=streams,
        )
        return MeanEmbedding(channel, server)

    @classmethod
    def without_effect(cls, mechanism: type[Mechanism] | None) -> frozenset[str]:
        """Return parameters that are not looked at: those of discriminators and of evaluation."""
        return _WITHOUT_EFFECT

    def multiply_adds(self, settings: Settings, widths: Mapping[str, int]) -> float:
        """Return at least the multiply-adds of the largest layer on a batch."""
        return settings.batch_size * max(*widths.values(), *settings.generator_hidden) ** 2

    needs_less_memory = NEEDS_LESS_MEMORY

    def memory(
        self, party: Any, settings: Settings, n_records: int, replicas: int, *, own_rows: bool
    ) -> int:
        """Estimate the bytes that a party's half of a fit takes at its peak, points included."""
        points = _BYTES_OF_A_POINT * n_records * self.features.n_frequencies
        networks = estimate_memory(party, settings, 0, replicas, own_rows=own_rows)
        return networks + points

    def reported(self, settings: Settings, duration: Duration) -> dict[str, Any]:
        """Return what becomes ``settings_``, without what is about discriminators."""
        own = {k: v for k, v in asdict(settings).items() if k not in _OF_DISCRIMINATORS}
        return {**own, "n_features": self.embedding.n_features, "epochs": duration.n_epochs}


_WITHOUT_EFFECT = frozenset(
    {
        "generator",
        "first_part",
        "shared_hidden",
        "discriminator_hidden",
        "private_heads",
        "shared_weights",
        "gradient_penalty",
        "gradient_penalty_weight",
        "discriminator_steps",
        "learning_rate",
        "betas",
        "resample",
        "generator_average",
        "model_selection",
        "evaluate_every",
        "calibrate_marginals",
        "calibrate_relations",
        "residuals",
        "steps_per_exchange",
        "wire_precision",
    }
)

_OF_DISCRIMINATORS = {
    "first_part",
    "shared_hidden",
    "private_heads",
    "shared_weights",
    "gradient_penalty",
    "gradient_penalty_weight",
    "n_evaluation",
    "n_masked_blocks",
    "generator_head",
    "discriminator_steps",
    "steps_per_exchange",
    "wire_precision",
    "residuals",
}
