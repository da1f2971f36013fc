"""Fitting by a noisy kernel mean embedding: the default of the differentially private mode."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch

from vflsynth._device import resolve_device
from vflsynth._random import secret_from
from vflsynth.columns import TableTransformer
from vflsynth.frames import AlignmentReport, check_party_frames, public_key_minters
from vflsynth.parties import (
    MeanEmbeddingParty,
    MeanEmbeddingServer,
    MeanEmbeddingSettings,
    Party,
    PublicEncoding,
    Settings,
)
from vflsynth.privacy import GaussianPrivacy, PrivacyPlan, plan_mean_embedding
from vflsynth.privacy.discovery import ColumnCounts, count_columns
from vflsynth.privacy.mean_embedding import mean_embedding_sensitivity
from vflsynth.protocol import LocalChannel, Transcript
from vflsynth.synthesizers._fitting import Matched, train_models
from vflsynth.synthesizers._joined import JOINED, columns_of_joined, hand_back_encoding, join
from vflsynth.synthesizers.base import PartyFrames
from vflsynth.training import Callback, MeanEmbedding, Plan, match_records

if TYPE_CHECKING:
    from vflsynth.synthesizers._privately import PrivateGANSynthesizer

STEPS_PER_EPOCH = 100
"""No step reads a record, so an epoch is just a number of steps."""

_EPOCHS = 25
_BATCH_SIZE = 512
_HIDDEN = (128, 128)
_LEARNING_RATE, _BETAS, _GENERATOR_AVERAGE = 4e-3, (0.9, 0.999), 0.99


def agree(
    privacy: GaussianPrivacy,
    columns: Mapping[str, ColumnCounts],
    n_steps: int,
    *,
    holder: str | None = None,
) -> tuple[MeanEmbeddingSettings, PrivacyPlan]:
    """Calibrate the noise, by numbers of columns alone, and say what the parties work with."""
    plan = plan_mean_embedding(privacy, columns, holder=holder)
    embedding = MeanEmbeddingSettings(
        PublicEncoding.of(privacy, plan.histogram_noise_multiplier, columns),
        n_features=privacy.n_features,
        bandwidths=tuple(privacy.bandwidths),
        n_steps=n_steps,
    )
    return embedding, plan


def make_parties(
    privacy: GaussianPrivacy,
    frames: Mapping[str, pd.DataFrame],
    on: Hashable,
    n_steps: int,
    noise: torch.Generator | None,
) -> tuple[list[MeanEmbeddingParty], PrivacyPlan]:
    """Calibrate the noise by names of columns alone, and make the parties that will add it."""
    columns = count_columns(frames, on, privacy.public_schema)
    embedding, plan = agree(privacy, columns, n_steps)
    parties = [
        MeanEmbeddingParty(name, frame, on, TableTransformer(), embedding, noise)
        for name, frame in frames.items()
    ]
    return parties, plan


def match_and_join(
    privacy: GaussianPrivacy,
    frames: Mapping[str, pd.DataFrame],
    on: Hashable,
    n_steps: int,
    noise: torch.Generator | None,
    record: Transcript | None,
) -> tuple[list[Party], list[MeanEmbeddingParty], PrivacyPlan, AlignmentReport]:
    """Do as `make_parties`, for one holder of all matched rows, who releases the histograms."""
    columns = count_columns(frames, on, privacy.public_schema)
    embedding, plan = agree(privacy, columns_of_joined(columns), n_steps, holder=JOINED)
    owners = [Party(name, frame, on, TableTransformer()) for name, frame in frames.items()]
    alignment, _ = match_records(LocalChannel(owners, record), frames, on)
    make = partial(MeanEmbeddingParty, embedding=embedding, noise=noise)
    joined = join(owners, make, TableTransformer())
    joined.prepare()
    return owners, [joined], plan, alignment


def make_server(
    privacy: GaussianPrivacy,
    plan: PrivacyPlan,
    device: torch.device,
    noise: torch.Generator | None = None,
) -> MeanEmbeddingServer:
    """Make the server that adds noise to the joint records' features."""
    return MeanEmbeddingServer(
        noise_std=plan.noise_multiplier * mean_embedding_sensitivity(privacy.relation),
        relation=privacy.relation,
        device=device,
        noise=noise,
    )


def fit_mean_embedding(
    model: PrivateGANSynthesizer,
    privacy: GaussianPrivacy,
    party_frames: PartyFrames,
    on: Hashable,
    *,
    callbacks: Sequence[Callback] = (),
    transcript: bool = False,
    noise: torch.Generator | None = None,
) -> None:
    """Release histograms and the mean embedding, train the generators on them, fill in `model`.

    The generators learn a shrunk estimate of the mean embedding, and after training their numeric
    columns are mapped to the published marginals: post-processing of the two releases.

    Parameters
    ----------
    model : PrivateGANSynthesizer
        Parameters checked.
    privacy : GaussianPrivacy
    party_frames, on, callbacks, transcript
        As in `VFLGANSynthesizer.fit`.
    noise : torch.Generator, optional
        For tests only: the source of the noise, instead of the operating system's.
    """
    device = resolve_device(model.device)
    frames = check_party_frames(party_frames, on, allow_empty_columns=True)
    plan = plan_of(model)
    n_steps = plan.n_epochs * plan.steps_per_epoch
    record = Transcript() if transcript else None
    owners: Sequence[Party]
    if model._joins:
        owners, parties, privacy_plan, alignment = match_and_join(
            privacy, frames, on, n_steps, noise, record
        )
        channel = LocalChannel(parties)  # the protocol has no message that may carry rows
    else:
        parties, privacy_plan = make_parties(privacy, frames, on, n_steps, noise)
        owners, channel = parties, LocalChannel(parties, record)
        alignment, _ = match_records(channel, frames, on)
        for party in parties:
            party.prepare()
    minters = public_key_minters({party.name: party.keys for party in owners})
    widths = [party.transformer.width_ for party in parties]
    settings = settings_of(model, widths)
    server = make_server(privacy, privacy_plan, device, noise)

    def finish() -> None:
        for party in parties:
            party.map_quantiles()
        if model._joins:
            hand_back_encoding(owners, parties[0])

    train_models(
        [model],
        Matched(owners, on, alignment, minters, record),
        parties,
        lambda _: MeanEmbedding(channel, server),
        plan,
        settings,
        weights=lambda party: model._weights(party, parties),
        reported=_reported(settings, privacy, plan.n_epochs),
        secrets=[secret_from(model.random_state)],
        multiply_adds=multiply_adds(settings, widths),
        finish=finish,
        callbacks=callbacks,
    )
    model.privacy_ledger_ = privacy_plan.ledger


def plan_of(model: PrivateGANSynthesizer) -> Plan:
    """Say how long to train."""
    return Plan(model.epochs or _EPOCHS, STEPS_PER_EPOCH)


def multiply_adds(settings: Settings, widths: Sequence[int]) -> int:
    """Return at least the multiply-adds of the largest layer on a batch."""
    return settings.batch_size * max(*widths, *settings.generator_hidden) ** 2


def settings_of(model: PrivateGANSynthesizer, widths: Sequence[int]) -> Settings:
    """Fill in defaults: from the encoded widths, which are published, and from no record."""
    return Settings(
        batch_size=model.batch_size or _BATCH_SIZE,
        latent_dim=model.latent_dim or min(128, max(16, sum(widths))),
        generator_hidden=tuple(model.generator_hidden or _HIDDEN),
        bias=model.bias,
        batch_norm_eps=model.batch_norm_eps,
        gumbel_temperature=model.gumbel_temperature,
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


_OF_DISCRIMINATORS = {
    "first_part",
    "shared_hidden",
    "private_heads",
    "gradient_penalty",
    "gradient_penalty_weight",
    "n_evaluation",
}


def _reported(settings: Settings, privacy: GaussianPrivacy, epochs: int) -> dict[str, Any]:
    own = {k: v for k, v in asdict(settings).items() if k not in _OF_DISCRIMINATORS}
    return {**own, "n_features": privacy.n_features, "epochs": epochs}
