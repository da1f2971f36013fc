"""Noisy gradients for VFLGAN: DP-SGD, and the paper's own mechanism."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

import pandas as pd

from vflsynth._random import RandomStreams
from vflsynth._warnings import warn_user
from vflsynth.columns import TableTransformer
from vflsynth.exceptions import NoPrivacyWarning, PrivacyParameterError
from vflsynth.parties import (
    DPSGDParty,
    DPSGDServer,
    DPSGDSettings,
    FirstLayerNoise,
    FirstLayerParty,
    GANParty,
    Party,
    Settings,
    VertiGANFirstLayerParty,
)
from vflsynth.parties.private_party import NoisyDescentParty
from vflsynth.privacy import (
    Discriminators,
    NeighbouringRelation,
    StepBudget,
    plan_dpsgd,
    plan_first_layer,
)
from vflsynth.privacy.dpsgd import joint_sensitivity
from vflsynth.protocol import Channel, PoissonSchedule, Schedule, Shape, SubsetSchedule
from vflsynth.protocol.channel import Verb
from vflsynth.synthesizers._private_gradients import GradientMechanism, Mechanisms
from vflsynth.synthesizers.gan import power_of_two
from vflsynth.training import DPSGD, GANAlgorithm

DISCRIMINATOR_RATE = 10.0
"""Learning rate of DP-SGD's discriminators over that of the generators."""

DPSGD_STEPS = 3_000


class DPSGDMechanism(GradientMechanism):
    """Per-record clipping and noise for all discriminator parameters, Poisson sampling."""

    _party: ClassVar[type[NoisyDescentParty]] = DPSGDParty
    _discriminators: ClassVar = Discriminators.LOCAL_AND_SHARED

    def make_parties(self, frames: Mapping[str, pd.DataFrame], on: Hashable) -> Sequence[Party]:
        """Make the objects that own the parties' tables and match their records."""
        self._parties = [
            self._party(name, frame, on, TableTransformer()) for name, frame in frames.items()
        ]
        return self._parties

    def agree(self, n_records: int) -> None:
        """Calibrate the noise by public numbers only."""
        privacy, model = self.privacy, self.model
        self.n_public = self._public_number(n_records)
        batch_size = model.batch_size or power_of_two(self.n_public / 8, 8, 512)
        epochs = model.epochs or max(1, round(DPSGD_STEPS * batch_size / self.n_public))
        self._count_steps(self.n_public, batch_size, epochs)
        self.plan = plan_dpsgd(
            privacy,
            self.columns,
            sample_rate=batch_size / self.n_public,
            steps=self._steps,
            discriminators=self._discriminators,
        )
        replaced = 2.0 if privacy.relation is NeighbouringRelation.REPLACE_ONE else 1.0
        bounds = [privacy.max_grad_norm] * len(self._discriminators.owners(self.columns))
        self.dpsgd = DPSGDSettings(
            max_grad_norm=privacy.max_grad_norm,
            sensitivity=replaced * joint_sensitivity(bounds),
            noise_multiplier=self.plan.noise_multiplier,
            steps=self._steps,
            learning_rate=DISCRIMINATOR_RATE * model.learning_rate,
            penalty_at_records=privacy.gradient_penalty_at == "records",
        )

    def trainees(self, parties: Sequence[Party]) -> Sequence[GANParty]:
        """Say who trains, with an encoding and what was calibrated."""
        encoding = self._encoding()
        for party in self._parties:
            party.set_privacy(encoding, self.dpsgd, self.noise)
            party.prepare()
        return self._parties

    def _public_number(self, n_records: int) -> int:
        """Return the number of records that sample rate and steps may be computed from."""
        if self.privacy.n_records is not None:
            return self.privacy.n_records
        if self.privacy.relation is NeighbouringRelation.REPLACE_ONE:
            return n_records
        raise PrivacyParameterError(
            "n_records",
            None,
            "given for the mechanism 'dpsgd' where records may be added or removed: their number "
            "is private then, and the sample rate needs a public one, which may be rough. Or set "
            "neighbouring_relation='replace_one', which makes the number public",
        )

    def settings(self, n_records: int, widths: Sequence[int]) -> Settings:
        """Sizes and rates, of public numbers and published encodings only."""
        settings: Settings = self.model._settings(self.n_public, widths)
        return replace(settings, batch_size=self.batch_size, n_evaluation=0)

    def make_schedule(self, secrets: Sequence[bytes]) -> Callable[..., Schedule]:
        """Return what makes the schedule, with `secrets` for the sampling of records."""
        return partial(
            PoissonSchedule,
            sampling=RandomStreams(secrets),
            sample_rate=self.batch_size / self.n_public,
        )

    def make_algorithm(
        self, channel: Channel, settings: Settings, streams: RandomStreams
    ) -> GANAlgorithm:
        """Make the algorithm and its server; the last generators are kept, whatever they are."""
        shapes = channel.gather(Verb.SHAPE, 0, Shape)
        return DPSGD(
            channel,
            DPSGDServer(settings, shapes, streams, self.dpsgd, self.noise),
            discriminator_steps=self.model.discriminator_steps,
            model_selection="last",
        )


class FirstLayerMechanism(GradientMechanism):
    """The paper's: a perturbed first layer, everything else as without privacy."""

    _party: ClassVar[type[FirstLayerParty | VertiGANFirstLayerParty]] = FirstLayerParty
    _discriminators: ClassVar = Discriminators.LOCAL_AND_SHARED

    def make_parties(self, frames: Mapping[str, pd.DataFrame], on: Hashable) -> Sequence[Party]:
        """Make the objects that own the parties' tables and match their records."""
        warn_of_no_privacy()
        transformers = self.model._transformers(frames, on)
        self._parties = [
            self._party(name, frame, on, transformers[name]) for name, frame in frames.items()
        ]
        return self._parties

    def agree(self, n_records: int) -> None:
        """Calibrate the noise."""
        model = self.model
        batch_size = self.settings(n_records, [1]).batch_size
        self._count_steps(n_records, batch_size, model._epochs(n_records, batch_size))
        self.plan = plan_first_layer(
            self.privacy,
            list(self.columns),
            sample_rate=batch_size / n_records,
            steps=self._steps,
            discriminators=self._discriminators,
        )

    def trainees(self, parties: Sequence[Party]) -> Sequence[GANParty]:
        """Say who trains, with an encoding and what was calibrated."""
        for party in self._parties:
            party.noise = self._first_layer_noise()
            party.prepare()
        return self._parties

    def _first_layer_noise(self) -> FirstLayerNoise:
        return FirstLayerNoise(
            self.privacy.max_grad_norm,
            self.plan.noise_multiplier,
            StepBudget(self._steps),
            self.noise,
        )

    def settings(self, n_records: int, widths: Sequence[int]) -> Settings:
        """Sizes and rates, as without privacy."""
        settings: Settings = self.model._settings(n_records, widths)
        return settings

    def make_schedule(self, secrets: Sequence[bytes]) -> Callable[..., Schedule]:
        """Return what makes the schedule, with `secrets` for the sampling of records."""
        return partial(SubsetSchedule, sampling=RandomStreams(secrets))

    def make_algorithm(
        self, channel: Channel, settings: Settings, streams: RandomStreams
    ) -> GANAlgorithm:
        """Make the algorithm and its server, as without privacy."""
        algorithm: GANAlgorithm = self.model._make_algorithm(channel, settings, streams)
        return algorithm


def warn_of_no_privacy() -> None:
    """Say that the paper's mechanism does not protect the synthetic data."""
    warn_user(
        "the mechanism 'first_layer' does not protect the synthetic data: its epsilon is the "
        "budget of the first-layer gradients only. It is for reproduction and comparison; 'dpsgd' "
        "protects the synthetic data, as does the 'kernel_mean_embedding' of VFLGANSynthesizer",
        NoPrivacyWarning,
    )


MECHANISMS: Mechanisms = {
    "kernel_mean_embedding": None,
    "dpsgd": DPSGDMechanism,
    "first_layer": FirstLayerMechanism,
}
