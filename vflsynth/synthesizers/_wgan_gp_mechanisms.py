"""Noisy gradients for WGAN-GP on the joined table."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import pandas as pd
import torch
from sklearn.base import clone

from vflsynth._random import RandomStreams
from vflsynth.columns import TableTransformer
from vflsynth.exceptions import TooFewRecordsError
from vflsynth.parties import (
    DPSGDGANParty,
    DPSGDSettings,
    GANParty,
    GSWGANParty,
    GSWGANSettings,
    Party,
    Settings,
    VertiGANDPSGDParty,
    VertiGANFirstLayerParty,
    VertiGANServer,
)
from vflsynth.privacy import (
    Discriminators,
    GaussianPrivacy,
    plan_dpsgd_gan,
    plan_gs_wgan,
)
from vflsynth.privacy.discovery import ColumnCounts
from vflsynth.protocol import Channel, Schedule, SubsetSchedule
from vflsynth.synthesizers._joined import columns_of_joined, hand_back_encoding, join
from vflsynth.synthesizers._private_gradients import GradientMechanism, Mechanisms
from vflsynth.synthesizers._vertigan_mechanisms import VertiGANDPSGDMechanism
from vflsynth.synthesizers._vflgan_mechanisms import (
    DPSGD_STEPS,
    FirstLayerMechanism,
    warn_of_no_privacy,
)
from vflsynth.synthesizers.gan import power_of_two
from vflsynth.training import GANAlgorithm, PrivateVertiGAN

Reports = Literal["nothing", "fake scores", "fake scores and penalties"]

RECORDS_PER_SHARD = 60
"""Of GS-WGAN, where the number of shards is not given: that of its authors for MNIST."""

PRETRAINING_STEPS = 1_000
"""Discriminator steps of every shard before GS-WGAN begins; its authors take 10,000."""


class JoinedMechanism(GradientMechanism):
    """Everything that is released is released by the holder of the joined table."""

    def __init__(
        self,
        model: Any,
        privacy: GaussianPrivacy,
        columns: Mapping[str, ColumnCounts],
        noise: torch.Generator | None,
    ) -> None:
        super().__init__(model, privacy, columns_of_joined(columns), noise)

    def make_parties(self, frames: Mapping[str, pd.DataFrame], on: Hashable) -> Sequence[Party]:
        """Make the objects that own the parties' tables, to match their records."""
        return [Party(name, frame, on, TableTransformer()) for name, frame in frames.items()]


class PublishedMechanism(JoinedMechanism):
    """One of a published GAN, accounted for under replace-one: the number of records is public."""

    _reports: Reports

    def make_algorithm(
        self, channel: Channel, settings: Settings, streams: RandomStreams
    ) -> GANAlgorithm:
        """Make the algorithm; the last generators are kept, whatever they are."""
        return PrivateVertiGAN(
            channel,
            VertiGANServer(settings, streams),
            discriminator_steps=self.model.discriminator_steps,
            reports=self._reports,
        )

    def settings(self, n_records: int, widths: Sequence[int]) -> Settings:
        """Sizes and rates, of public numbers and published encodings only."""
        settings: Settings = self.model._settings(n_records, widths)
        return replace(settings, batch_size=self.batch_size, n_evaluation=0)

    def make_schedule(self, secrets: Sequence[bytes]) -> Callable[..., Schedule]:
        """Return what makes the schedule, with `secrets` for batches, shards and their choice."""
        return partial(SubsetSchedule, sampling=RandomStreams(secrets))


class JoinedDPSGDMechanism(JoinedMechanism, VertiGANDPSGDMechanism):
    """Per-record clipping and noise for all parameters of the discriminator, Poisson sampling."""

    _discriminators = Discriminators.JOINED

    def trainees(self, parties: Sequence[Party]) -> Sequence[GANParty]:
        """Join the matched rows, and release what the encoding needs."""
        joined = join(parties, VertiGANDPSGDParty, TableTransformer())
        joined.set_privacy(self._encoding(), self.dpsgd, self.noise)
        return released(parties, joined)


class DPSGDGANMechanism(PublishedMechanism):
    """The published DPSGD-GAN: pairs of real and fake records, batches of fixed size."""

    _reports = "fake scores"

    def agree(self, n_records: int) -> None:
        """Calibrate the noise by the public number of records."""
        model, privacy = self.model, self.privacy
        batch_size = model.batch_size or power_of_two(n_records / 8, 8, 512)
        epochs = model.epochs or max(1, round(DPSGD_STEPS * batch_size / n_records))
        self._count_steps(n_records, batch_size, epochs)
        self.plan = plan_dpsgd_gan(
            privacy, self.columns, sample_rate=batch_size / n_records, steps=self._steps
        )
        self.dpsgd = DPSGDSettings(
            max_grad_norm=privacy.max_grad_norm,
            sensitivity=2.0 * privacy.max_grad_norm,
            noise_multiplier=self.plan.noise_multiplier,
            steps=self._steps,
            learning_rate=model.learning_rate,
            penalty_at_records=True,
        )

    def trainees(self, parties: Sequence[Party]) -> Sequence[GANParty]:
        """Join the matched rows, and release what the encoding needs."""
        joined = join(parties, DPSGDGANParty, TableTransformer())
        joined.set_privacy(self._encoding(), self.dpsgd, self.noise)
        return released(parties, joined)


class GSWGANMechanism(PublishedMechanism):
    """GS-WGAN: discriminators on disjoint shards, noise on what they tell the generator."""

    _reports = "nothing"

    def agree(self, n_records: int) -> None:
        """Deal the shards and calibrate the noise by the public number of records."""
        model, privacy = self.model, self.privacy
        n_shards = privacy.n_shards or max(2, n_records // RECORDS_PER_SHARD)
        size = n_records // n_shards
        batch_size = model.batch_size or power_of_two(size, 8, 32)
        if size < batch_size:
            raise TooFewRecordsError(
                f"{n_records} matched records in {n_shards} shards are fewer than one batch of "
                f"{batch_size} each",
                fix="lower n_shards of the privacy parameters, or batch_size",
            )
        self._count_steps(n_records, batch_size, model._epochs(n_records, batch_size))
        steps = self._steps // model.discriminator_steps
        self.plan = plan_gs_wgan(
            privacy, self.columns, n_shards=n_shards, batch_size=batch_size, steps=steps
        )
        self.sharing = GSWGANSettings(
            n_shards=n_shards,
            max_grad_norm=privacy.max_grad_norm,
            noise_multiplier=self.plan.noise_multiplier,
            steps=steps,
            discriminator_steps=model.discriminator_steps,
            pretraining_steps=PRETRAINING_STEPS,
        )

    def trainees(self, parties: Sequence[Party]) -> Sequence[GANParty]:
        """Join the matched rows, and release what the encoding needs."""
        joined = join(parties, GSWGANParty, TableTransformer())
        joined.set_privacy(self._encoding(), self.sharing, self.noise)
        return released(parties, joined)


class JoinedFirstLayerMechanism(JoinedMechanism, FirstLayerMechanism):
    """The VFLGAN paper's, for the one discriminator; everything else as without privacy."""

    _discriminators = Discriminators.JOINED

    def make_parties(self, frames: Mapping[str, pd.DataFrame], on: Hashable) -> Sequence[Party]:
        """Make the objects that own the parties' tables, to match their records."""
        warn_of_no_privacy()
        transformers = self.model._transformers(frames, on)
        return [Party(name, frame, on, transformers[name]) for name, frame in frames.items()]

    def trainees(self, parties: Sequence[Party]) -> Sequence[GANParty]:
        """Join the matched rows; encodings are fitted to them as without privacy."""
        for party in parties:
            party.prepare()
        kinds = {k: v for party in parties for k, v in party.transformer.kinds_.items()}
        joined = join(
            parties, VertiGANFirstLayerParty, clone(parties[0].transformer).set_params(kinds=kinds)
        )
        joined.noise = self._first_layer_noise()
        joined.prepare()
        return [joined]


def released(
    parties: Sequence[Party], joined: VertiGANDPSGDParty | GSWGANParty
) -> Sequence[GANParty]:
    """Release what the encoding needs, once, and let every party encode by it."""
    joined.prepare()
    hand_back_encoding(parties, joined)
    return [joined]


MECHANISMS: Mechanisms = {
    "kernel_mean_embedding": None,
    "dpsgd": JoinedDPSGDMechanism,
    "first_layer": JoinedFirstLayerMechanism,
    "dpsgd_gan": DPSGDGANMechanism,
    "gs_wgan": GSWGANMechanism,
}
