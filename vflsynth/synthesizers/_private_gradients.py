"""Fitting VFLGAN with noisy gradients: DP-SGD, and the paper's own mechanism."""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy.typing as npt
import pandas as pd
import torch

from vflsynth._device import resolve_device
from vflsynth._random import RandomState, RandomStreams, secret_from
from vflsynth.exceptions import NoPrivacyWarning, PrivacyParameterError
from vflsynth.frames import check_party_frames, public_key_minters
from vflsynth.parties import (
    DPSGDParty,
    DPSGDServer,
    DPSGDSettings,
    FirstLayerParty,
    PublicEncoding,
    Settings,
    VFLGANParty,
    VFLGANServer,
)
from vflsynth.privacy import (
    GaussianPrivacy,
    NeighbouringRelation,
    PrivacyPlan,
    PublicSchema,
    plan_dpsgd,
    plan_first_layer,
)
from vflsynth.privacy.dpsgd import joint_sensitivity
from vflsynth.privacy.histograms import histogram_sensitivity
from vflsynth.protocol import (
    LocalChannel,
    PoissonSchedule,
    Schedule,
    Shape,
    SubsetSchedule,
    Transcript,
)
from vflsynth.protocol.channel import Verb
from vflsynth.synthesizers._fitting import fill_models, train_to_the_end
from vflsynth.synthesizers._memory import check_memory
from vflsynth.synthesizers.base import PartyFrames
from vflsynth.synthesizers.gan import (
    keep_local_discriminators,
    largest_product,
    power_of_two,
)
from vflsynth.training import (
    DPSGD,
    VFLGAN,
    Callback,
    Plan,
    Session,
    check_replica_rows,
    match_records,
)
from vflsynth.transformers import TableTransformer

if TYPE_CHECKING:
    from vflsynth.synthesizers.vflgan import VFLGANSynthesizer

_Party = TypeVar("_Party", bound=VFLGANParty)

DISCRIMINATOR_RATE = 10.0
"""Learning rate of DP-SGD's discriminators over that of the generators."""

_DPSGD_STEPS = 3_000


class GradientMechanism(ABC):
    """What the two mechanisms do differently in a fit.

    Parameters
    ----------
    model : VFLGANSynthesizer
        Parameters checked.
    privacy : GaussianPrivacy
    columns : mapping of party to its columns
    noise : torch.Generator, optional
        For tests only.
    """

    plan: PrivacyPlan
    batch_size: int
    epochs: int
    steps_per_epoch: int

    def __init__(
        self,
        model: VFLGANSynthesizer,
        privacy: GaussianPrivacy,
        columns: Mapping[str, Sequence[Hashable]],
        noise: torch.Generator | None,
    ) -> None:
        self.model, self.privacy, self.columns, self.noise = model, privacy, columns, noise

    @abstractmethod
    def make_parties(
        self, frames: Mapping[str, pd.DataFrame], on: Hashable
    ) -> Sequence[VFLGANParty]:
        """Make the objects that own the parties' tables."""

    @abstractmethod
    def agree(self, n_records: int) -> None:
        """Calibrate the noise once the number of records is known, and tell the parties."""

    @abstractmethod
    def settings(self, n_records: int, widths: Sequence[int]) -> Settings:
        """Sizes and rates."""

    @abstractmethod
    def make_schedule(self, secrets: Sequence[bytes]) -> Callable[..., Schedule]:
        """Return what makes the schedule, with `secrets` for the sampling of records."""

    @abstractmethod
    def make_algorithm(
        self, channel: LocalChannel, settings: Settings, streams: RandomStreams
    ) -> VFLGAN:
        """Make the algorithm and its server."""

    def _count_steps(self, n_records: int, batch_size: int, epochs: int) -> None:
        self.batch_size, self.epochs = batch_size, epochs
        self.steps_per_epoch = -(-n_records // batch_size)

    @property
    def _steps(self) -> int:
        return self.epochs * self.steps_per_epoch


class DPSGDMechanism(GradientMechanism):
    """Per-record clipping and noise for all discriminator parameters, Poisson sampling."""

    def make_parties(self, frames: Mapping[str, pd.DataFrame], on: Hashable) -> list[DPSGDParty]:
        """Make the objects that own the parties' tables."""
        self.parties = [
            DPSGDParty(name, frame, on, TableTransformer()) for name, frame in frames.items()
        ]
        return self.parties

    def agree(self, n_records: int) -> None:
        """Calibrate the noise by public numbers only, and tell the parties."""
        privacy, model = self.privacy, self.model
        self.n_public = self._public_number(n_records)
        batch_size = model.batch_size or power_of_two(self.n_public / 8, 8, 512)
        epochs = model.epochs or max(1, round(_DPSGD_STEPS * batch_size / self.n_public))
        self._count_steps(self.n_public, batch_size, epochs)
        self.plan = plan_dpsgd(
            privacy, self.columns, sample_rate=batch_size / self.n_public, steps=self._steps
        )
        n_columns = sum(map(len, self.columns.values()))
        counts = self.plan.histogram_noise_multiplier
        encoding = PublicEncoding(
            privacy.public_schema or PublicSchema(),
            privacy.n_bins,
            None if counts is None else counts * histogram_sensitivity(n_columns, privacy.relation),
        )
        replaced = 2.0 if privacy.relation is NeighbouringRelation.REPLACE_ONE else 1.0
        owners = len(self.columns) + 1  # and the server
        self.dpsgd = DPSGDSettings(
            max_grad_norm=privacy.max_grad_norm,
            sensitivity=replaced * joint_sensitivity([privacy.max_grad_norm] * owners),
            noise_multiplier=self.plan.noise_multiplier,
            steps=self._steps,
            learning_rate=DISCRIMINATOR_RATE * model.learning_rate,
            penalty_at_records=privacy.gradient_penalty_at == "records",
        )
        for party in self.parties:
            party.set_privacy(encoding, self.dpsgd, self.noise)

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
        settings = self.model._settings(self.n_public, widths)
        return replace(settings, batch_size=self.batch_size, n_evaluation=0)

    def make_schedule(self, secrets: Sequence[bytes]) -> Callable[..., Schedule]:
        """Return what makes the schedule, with `secrets` for the sampling of records."""
        return partial(
            PoissonSchedule,
            sampling=RandomStreams(secrets),
            sample_rate=self.batch_size / self.n_public,
        )

    def make_algorithm(
        self, channel: LocalChannel, settings: Settings, streams: RandomStreams
    ) -> VFLGAN:
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

    def make_parties(
        self, frames: Mapping[str, pd.DataFrame], on: Hashable
    ) -> list[FirstLayerParty]:
        """Make the objects that own the parties' tables."""
        warnings.warn(
            "the mechanism 'first_layer' does not protect the synthetic data: its epsilon is the "
            "budget of the first-layer gradients only. It is for reproduction and comparison; "
            "'kernel_mean_embedding' and 'dpsgd' protect the synthetic data",
            NoPrivacyWarning,
            stacklevel=5,
        )
        transformers = self.model._transformers(frames, on)
        self.parties = [
            FirstLayerParty(name, frame, on, transformers[name]) for name, frame in frames.items()
        ]
        return self.parties

    def agree(self, n_records: int) -> None:
        """Calibrate the noise, and tell the parties."""
        model, privacy = self.model, self.privacy
        batch_size = self._ordinary(n_records, [1]).batch_size
        self._count_steps(n_records, batch_size, model._epochs(n_records, batch_size))
        self.plan = plan_first_layer(
            privacy, list(self.columns), sample_rate=batch_size / n_records, steps=self._steps
        )
        for party in self.parties:
            party.set_privacy(
                privacy.max_grad_norm, self.plan.noise_multiplier, self._steps, self.noise
            )

    def _ordinary(self, n_records: int, widths: Sequence[int]) -> Settings:
        return self.model._settings(n_records, widths)

    def settings(self, n_records: int, widths: Sequence[int]) -> Settings:
        """Sizes and rates, as without privacy."""
        return self._ordinary(n_records, widths)

    def make_schedule(self, secrets: Sequence[bytes]) -> Callable[..., Schedule]:
        """Return what makes the schedule, with `secrets` for the sampling of records."""
        return partial(SubsetSchedule, sampling=RandomStreams(secrets))

    def make_algorithm(
        self, channel: LocalChannel, settings: Settings, streams: RandomStreams
    ) -> VFLGAN:
        """Make the algorithm and its server."""
        shapes = channel.gather(Verb.SHAPE, 0, Shape)
        return VFLGAN(
            channel,
            VFLGANServer(settings, shapes, streams),
            discriminator_steps=self.model.discriminator_steps,
            model_selection=self.model.model_selection,
        )


MECHANISMS: Mapping[str, type[GradientMechanism]] = {
    "dpsgd": DPSGDMechanism,
    "first_layer": FirstLayerMechanism,
}


def fit_private_gradients(
    models: Sequence[VFLGANSynthesizer],
    privacy: GaussianPrivacy,
    random_states: Sequence[RandomState],
    party_frames: PartyFrames,
    on: Hashable,
    *,
    replica_rows: npt.ArrayLike | None = None,
    callbacks: Sequence[Callback] = (),
    transcript: bool = False,
    keep_discriminators: bool = False,
    noise: torch.Generator | None = None,
) -> None:
    """Match records, train with noisy gradients, and fill in the models.

    Parameters
    ----------
    models : sequence of VFLGANSynthesizer
        With equal, checked parameters. Each gets noise of its own, and each ledger is about one of
        them: whoever publishes several spends the sum.
    privacy : GaussianPrivacy
    random_states, party_frames, on, replica_rows, callbacks, transcript, keep_discriminators
        As in `GANSynthesizer.fit` and `fit_replicas`.
    noise : torch.Generator, optional
        For tests only: the source of noise and sampling, instead of the operating system's.
    """
    model = models[0]
    device = resolve_device(model.device)
    frames = check_party_frames(party_frames, on)
    columns = {name: [c for c in frame.columns if c != on] for name, frame in frames.items()}
    mechanism = MECHANISMS[privacy.mechanism](model, privacy, columns, noise)
    parties = mechanism.make_parties(frames, on)
    record = Transcript() if transcript else None
    channel = LocalChannel(parties, record)
    alignment, minters = match_records(channel, frames, on)
    if privacy.mechanism == "dpsgd":
        minters = public_key_minters({party.name: party.keys for party in parties})
    rows = check_replica_rows(replica_rows, len(models), alignment.n_matched)
    n_records = alignment.n_matched if rows is None else rows.shape[1]
    mechanism.agree(n_records)
    for party in parties:
        party.prepare()
    widths = [party.transformer.width_ for party in parties]
    settings = mechanism.settings(n_records, widths)
    check_memory(
        parties,
        settings,
        n_records,
        len(models),
        model.memory_limit,
        device,
        own_rows=rows is not None,
    )

    def build(schedule: Schedule, streams: RandomStreams) -> VFLGAN:
        for party in parties:
            party.build(settings, schedule, streams.child(f"party {party.name}"))
        return mechanism.make_algorithm(channel, settings, streams.child("server"))

    session = Session(
        parties,
        build,
        Plan(mechanism.epochs, mechanism.steps_per_epoch, model.evaluate_every),
        settings=asdict(settings),
        secrets=[secret_from(state) for state in random_states],
        n_records=n_records,
        replica_rows=rows,
        device=device,
        # Not from random_state: amplification by sampling needs batches that nobody can guess.
        make_schedule=mechanism.make_schedule([_entropy(noise) for _ in models]),
    )
    interrupted = train_to_the_end(
        session,
        len(models) * largest_product(settings, widths),
        callbacks=callbacks,
        checkpoint=None,
        checkpoint_every=1,
        resume=None,
        verbose=model.verbose > 0,
    )
    fill_models(
        models,
        session,
        {party.name: (party, party.selected) for party in parties},
        settings,
        {**asdict(settings), "epochs": mechanism.epochs},
        on=on,
        alignment=alignment,
        minters=minters,
        interrupted=interrupted,
        transcript=record,
    )
    for fitted in models:
        fitted.privacy_ledger_ = mechanism.plan.ledger
    if keep_discriminators:
        keep_local_discriminators(models, parties)


def _entropy(noise: torch.Generator | None) -> bytes:
    """Thirty-two bytes for the sampling of records."""
    if noise is None:
        return os.urandom(32)
    return bytes(torch.randint(256, (32,), generator=noise).tolist())
