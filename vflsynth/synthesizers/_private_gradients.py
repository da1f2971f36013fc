"""Fitting a GAN with noisy gradients, whatever the mechanism."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from vflsynth._device import resolve_device
from vflsynth._random import RandomState, RandomStreams, secret_from
from vflsynth.exceptions import ParameterError
from vflsynth.frames import check_party_frames, public_key_minters
from vflsynth.parties import GANParty, Party, PublicEncoding, Settings
from vflsynth.privacy import GaussianPrivacy, PrivacyPlan
from vflsynth.privacy.discovery import ColumnCounts, count_columns
from vflsynth.protocol import Channel, LocalChannel, Schedule, Transcript
from vflsynth.synthesizers._fitting import Matched, train_models
from vflsynth.synthesizers._memory import check_memory
from vflsynth.synthesizers.base import PartyFrames
from vflsynth.synthesizers.gan import keep_local_discriminators, multiply_adds
from vflsynth.training import (
    Callback,
    GANAlgorithm,
    Plan,
    check_replica_rows,
    match_records,
)

if TYPE_CHECKING:
    from vflsynth.synthesizers._privately import PrivateGANSynthesizer


class GradientMechanism(ABC):
    """What mechanisms do differently in a fit.

    Parameters
    ----------
    model : PrivateGANSynthesizer
        Parameters checked.
    privacy : GaussianPrivacy
    columns : mapping of party to ColumnCounts
    noise : torch.Generator, optional
        For tests only.
    """

    plan: PrivacyPlan
    batch_size: int
    epochs: int
    steps_per_epoch: int

    def __init__(
        self,
        model: PrivateGANSynthesizer,
        privacy: GaussianPrivacy,
        columns: Mapping[str, ColumnCounts],
        noise: torch.Generator | None,
    ) -> None:
        # Typed loosely: each mechanism is of one synthesizer and reads what only that one has.
        self.model: Any = model
        self.privacy, self.columns, self.noise = privacy, columns, noise

    @abstractmethod
    def make_parties(self, frames: Mapping[str, pd.DataFrame], on: Hashable) -> Sequence[Party]:
        """Make the objects that own the parties' tables and match their records."""

    @abstractmethod
    def agree(self, n_records: int) -> None:
        """Calibrate the noise once the number of records is known."""

    @abstractmethod
    def trainees(self, parties: Sequence[Party]) -> Sequence[GANParty]:
        """Say who trains, with an encoding and what was calibrated; the parties are matched."""

    @abstractmethod
    def settings(self, n_records: int, widths: Sequence[int]) -> Settings:
        """Sizes and rates."""

    @abstractmethod
    def make_schedule(self, secrets: Sequence[bytes]) -> Callable[..., Schedule]:
        """Return what makes the schedule, with `secrets` for the sampling of records."""

    @abstractmethod
    def make_algorithm(
        self, channel: Channel, settings: Settings, streams: RandomStreams
    ) -> GANAlgorithm:
        """Make the algorithm and its server."""

    def _count_steps(self, n_records: int, batch_size: int, epochs: int) -> None:
        self.batch_size, self.epochs = batch_size, epochs
        self.steps_per_epoch = -(-n_records // batch_size)

    @property
    def _steps(self) -> int:
        return self.epochs * self.steps_per_epoch

    def _encoding(self) -> PublicEncoding:
        """Make the encoding, with the histograms' noise if they are paid for."""
        noise_multiplier = self.plan.histogram_noise_multiplier
        return PublicEncoding.of(self.privacy, noise_multiplier, self.columns)


Mechanisms = Mapping[str, type[GradientMechanism] | None]
"""By name what a synthesizer can be fitted with; None: the kernel mean embedding, one release."""


def fit_private_gradients(
    models: Sequence[PrivateGANSynthesizer],
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
    models : sequence of PrivateGANSynthesizer
        With equal, checked parameters. Each gets noise of its own, and each ledger is about one of
        them: whoever publishes several spends the sum.
    privacy : GaussianPrivacy
    random_states, party_frames, on, replica_rows, callbacks, transcript, keep_discriminators
        As in `GANSynthesizer.fit` and `fit_replicas`.
    noise : torch.Generator, optional
        For tests only: the source of noise and sampling, instead of the operating system's.
    """
    model = models[0]
    frames = check_party_frames(party_frames, on, allow_empty_columns=True)
    columns = count_columns(frames, on, privacy.public_schema)
    make = model._mechanisms[privacy.mechanism]
    assert make is not None, "a mechanism with gradients"
    mechanism = make(model, privacy, columns, noise)
    parties = mechanism.make_parties(frames, on)
    record = Transcript() if transcript else None
    channel = LocalChannel(parties, record)
    alignment, minters = match_records(channel, frames, on)
    rows = check_replica_rows(replica_rows, len(models), alignment.n_matched)
    _refuse_repeated_records(rows)
    n_records = alignment.n_matched if rows is None else rows.shape[1]
    mechanism.agree(n_records)
    ledger = mechanism.plan.ledger
    if ledger.covers_synthetic_data:
        minters = public_key_minters({party.name: party.keys for party in parties})
    trainees = mechanism.trainees(parties)
    if trainees is not parties:  # the protocol has no message that may carry their rows
        channel = LocalChannel(trainees)
    widths = [party.transformer.width_ for party in trainees]
    settings = mechanism.settings(n_records, widths)
    check_memory(
        trainees,
        settings,
        n_records,
        len(models),
        model.memory_limit,
        resolve_device(model.device),
        own_rows=rows is not None,
    )

    train_models(
        models,
        Matched(parties, on, alignment, minters, record),
        trainees,
        lambda streams: mechanism.make_algorithm(channel, settings, streams),
        Plan(mechanism.epochs, mechanism.steps_per_epoch, model.evaluate_every),
        settings,
        weights=lambda party: model._weights(party, trainees),
        reported={**asdict(settings), "epochs": mechanism.epochs},
        secrets=[secret_from(state) for state in random_states],
        multiply_adds=len(models) * multiply_adds(settings, widths),
        replica_rows=rows,
        # Not from random_state: amplification by sampling needs batches that nobody can guess.
        make_schedule=mechanism.make_schedule([_entropy(noise) for _ in models]),
        callbacks=callbacks,
    )
    for fitted in models:
        fitted.privacy_ledger_ = ledger
    if keep_discriminators:
        keep_local_discriminators(models, trainees)


def _refuse_repeated_records(rows: Tensor | None) -> None:
    """Refuse a replica that has a record twice: its clipped gradients would be counted as one."""
    if rows is not None and bool((rows.sort(dim=1).values.diff(dim=1) == 0).any()):
        raise ParameterError(
            "replica_rows must not repeat a record in a replica with privacy set: the ledger "
            "counts what one occurrence of a record reveals"
        )


def _entropy(noise: torch.Generator | None) -> bytes:
    """Thirty-two bytes for the sampling of records."""
    if noise is None:
        return os.urandom(32)
    return bytes(torch.randint(256, (32,), generator=noise).tolist())
