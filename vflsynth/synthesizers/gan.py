"""Fitting a GAN over party frames: what VFLGAN shares with the systems it is compared with."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar, Literal, Self

import numpy.typing as npt
import pandas as pd
from sklearn.base import clone
from torch import Tensor, nn

from vflsynth._device import resolve_device
from vflsynth._random import RandomState, RandomStreams, secret_from
from vflsynth._validation import Choice, Number, Optional, Pair, Rule, Sizes, check_parameters
from vflsynth.columns import TableTransformer
from vflsynth.exceptions import ParameterError, TooFewRecordsError
from vflsynth.frames import check_party_frames
from vflsynth.networks.layers import one_replica
from vflsynth.parties import GANParty, Party, Settings
from vflsynth.protocol import Channel, LocalChannel, Transcript
from vflsynth.synthesizers._fitting import Matched, train_models
from vflsynth.synthesizers._memory import check_memory, estimate_memory
from vflsynth.synthesizers.base import BaseSynthesizer, PartyFrames
from vflsynth.training import (
    Callback,
    GANAlgorithm,
    Plan,
    check_replica_rows,
    match_records,
)

_POSITIVE = Number(0, closed=(False, True))
RULES: dict[str, Rule] = {
    "latent_dim": Optional(Number(1, whole=True)),
    "generator_hidden": Optional(Sizes()),
    "bias": Choice((True, False)),
    "batch_norm_eps": Optional(_POSITIVE),
    "gumbel_temperature": _POSITIVE,
    "gradient_penalty_weight": Number(0),
    "discriminator_steps": Number(1, whole=True),
    "batch_size": Optional(Number(2, whole=True)),
    "epochs": Optional(Number(1, whole=True)),
    "learning_rate": _POSITIVE,
    "betas": Pair(Number(0, 1, closed=(True, False))),
    "generator_average": Number(0, 1, closed=(True, False)),
    "model_selection": Choice(("best", "last")),
    "evaluate_every": Number(1, whole=True),
    "memory_limit": Optional(_POSITIVE),
    "verbose": Number(0, whole=True),
}


_DEFAULT_STEPS = 15_000
_MAX_EVALUATION = 16_384


class GANSynthesizer(BaseSynthesizer):
    """Base of the GANs: parameters they share, fitting one or many models.

    Subclasses document the parameters, add their own with rules for them, and make the parties and
    the algorithm.
    """

    _rules: ClassVar[Mapping[str, Rule]] = RULES

    latent_dim: int | None
    generator_hidden: Sequence[int] | None
    bias: bool
    batch_norm_eps: float | None
    gumbel_temperature: float
    gradient_penalty_weight: float
    discriminator_steps: int
    batch_size: int | None
    epochs: int | None
    learning_rate: float
    betas: tuple[float, float]
    generator_average: float
    model_selection: Literal["best", "last"]
    evaluate_every: int
    memory_limit: float | None
    device: str
    verbose: int
    local_discriminators_: dict[str, nn.Module]

    @abstractmethod
    def _make_party(
        self, name: str, frame: pd.DataFrame, on: Hashable, transformer: TableTransformer
    ) -> GANParty:
        """Make the object that owns one party's table."""

    @abstractmethod
    def _make_algorithm(
        self, channel: Channel, settings: Settings, streams: RandomStreams
    ) -> GANAlgorithm:
        """Make the algorithm and its server, once all parties are built."""

    @abstractmethod
    def _discriminator_settings(self, scale: int) -> dict[str, Any]:
        """Return the discriminators' settings; `scale` is a layer size that suits the data."""

    def _trainees(
        self, parties: Sequence[GANParty], channel: LocalChannel
    ) -> tuple[Sequence[GANParty], LocalChannel]:
        """Say who trains once records are matched, and how they are reached: every party."""
        return parties, channel

    def _weights(self, party: Party, trainees: Sequence[GANParty]) -> dict[str, Tensor]:
        """Return the state of the generator of a party's columns, for all replicas."""
        (own,) = (trainee for trainee in trainees if trainee.name == party.name)
        return own.selected

    # -- fitting ---------------------------------------------------------------------------------

    def fit(
        self,
        party_frames: PartyFrames,
        on: Hashable = None,
        *,
        callbacks: Sequence[Callback] = (),
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: int = 10,
        resume: str | os.PathLike[str] | None = None,
        transcript: bool = False,
    ) -> Self:
        """Match the parties' records and train.

        Parameters
        ----------
        party_frames : mapping of str to DataFrame
            One table per party; never modified, never joined.
        on : hashable, optional
            Key column of every table. Default: the index.
        callbacks : sequence of Callback
            Called after every epoch; one that returns True ends training.
        checkpoint : path-like, optional
            Directory for a checkpoint, rewritten every `checkpoint_every` epochs. It holds all
            parties' networks and belongs to whoever runs this process.
        checkpoint_every : int, default=10
        resume : path-like, optional
            Continue from this checkpoint, and go on writing it unless `checkpoint` says otherwise.
            The same tables and parameters are needed, and on a CPU the result is the same, byte for
            byte, as that of a run that was never interrupted.
        transcript : bool, default=False
            Count every message that crosses a boundary, in `transcript_`.

        Returns
        -------
        self

        Raises
        ------
        PartyDataError
            One of its children for every way in which tables can be unusable.
        ParameterError
            If a parameter is out of range.
        ArtefactError
            If `resume` is damaged or belongs to another run.
        TrainingDivergedError
            If a loss is no longer finite.
        """
        (fitted,) = self._train(
            [self],
            [self.random_state],
            party_frames,
            on,
            replica_rows=None,
            callbacks=callbacks,
            checkpoint=checkpoint if checkpoint is not None else resume,
            checkpoint_every=checkpoint_every,
            resume=resume,
            transcript=transcript,
        )
        return fitted

    def fit_replicas(
        self,
        party_frames: PartyFrames,
        on: Hashable = None,
        *,
        random_states: Sequence[RandomState],
        replica_rows: npt.ArrayLike | None = None,
        callbacks: Sequence[Callback] = (),
        keep_discriminators: bool = False,
    ) -> list[Self]:
        """Train many models at once and return each as a fitted synthesizer of its own.

        All models share one set of tensor operations, so R small models take far less than R times
        as long as one.

        Parameters
        ----------
        party_frames, on, callbacks
            As in `fit`.
        random_states : sequence
            One per model. A model trained here and one trained alone with the same state draw the
            same numbers and differ by rounding only.
        replica_rows : array of int, shape (model, record), optional
            Positions, among the matched records in key order, that each model is trained on; all
            models get the same number. Default: all records. The encoding is learned from all
            records in any case.
        keep_discriminators : bool, default=False
            Give every model ``local_discriminators_``, a dict of party name to network as training
            left it, for audits. They stay in memory: `save` never writes them.

        Returns
        -------
        list
            Clones of this one, fitted.

        Raises
        ------
        PartyDataError, TrainingDivergedError
            As in `fit`.
        ParameterError
            As in `fit`; or if there is no random state, or `replica_rows` does not fit.
        """
        if not len(random_states):
            raise ParameterError("random_states is empty; give one state per model")
        models = [clone(self).set_params(random_state=state) for state in random_states]
        return self._train(
            models,
            random_states,
            party_frames,
            on,
            replica_rows=replica_rows,
            callbacks=callbacks,
            checkpoint=None,
            checkpoint_every=1,
            resume=None,
            transcript=False,
            keep_discriminators=keep_discriminators,
        )

    def estimate_memory(
        self, party_frames: PartyFrames, on: Hashable = None, *, n_models: int = 1
    ) -> int:
        """Estimate the memory of a fit in bytes, without training.

        Parameters
        ----------
        party_frames, on
            As in `fit`.
        n_models : int, default=1
            Models that `fit_replicas` is to train at once, each on rows of its own.

        Returns
        -------
        int
            Rough, and of networks and encoded records only: a process that has loaded this package
            takes a few hundred MiB more.
        """
        parties, channel, matched = self._prepare(party_frames, on, transcript=False)
        trainees, _ = self._trainees(parties, channel)
        widths = [party.transformer.width_ for party in trainees]
        n_records = matched.alignment.n_matched
        settings = self._settings(n_records, widths)
        return sum(
            estimate_memory(party, settings, n_records, n_models, own_rows=n_models > 1)
            for party in trainees
        )

    def _prepare(
        self, party_frames: PartyFrames, on: Hashable, *, transcript: bool
    ) -> tuple[list[GANParty], LocalChannel, Matched]:
        """Check everything, match the records and fit the encodings; nothing is encoded yet."""
        check_parameters(type(self).__name__, self.get_params(deep=False), self._rules)
        resolve_device(self.device)
        frames = check_party_frames(party_frames, on)
        transformers = self._transformers(frames, on)
        parties = [
            self._make_party(name, frame, on, transformers[name]) for name, frame in frames.items()
        ]
        record = Transcript() if transcript else None
        channel = LocalChannel(parties, record)
        alignment, minters = match_records(channel, frames, on)
        for party in parties:
            party.prepare()
        return parties, channel, Matched(parties, on, alignment, minters, record)

    def _train(
        self,
        models: Sequence[Self],
        random_states: Sequence[RandomState],
        party_frames: PartyFrames,
        on: Hashable,
        *,
        replica_rows: npt.ArrayLike | None,
        callbacks: Sequence[Callback],
        checkpoint: str | os.PathLike[str] | None,
        checkpoint_every: int,
        resume: str | os.PathLike[str] | None,
        transcript: bool,
        keep_discriminators: bool = False,
    ) -> list[Self]:
        rule = {"checkpoint_every": Number(1, whole=True)}
        check_parameters("fit", {"checkpoint_every": checkpoint_every}, rule)
        secrets = [secret_from(state) for state in random_states]
        parties, channel, matched = self._prepare(party_frames, on, transcript=transcript)
        n_records = matched.alignment.n_matched
        rows = check_replica_rows(replica_rows, len(models), n_records)
        n_records = n_records if rows is None else rows.shape[1]
        trainees, channel = self._trainees(parties, channel)
        widths = [party.transformer.width_ for party in trainees]
        settings = self._settings(n_records, widths)
        check_memory(
            trainees,
            settings,
            n_records,
            len(models),
            self.memory_limit,
            resolve_device(self.device),
            own_rows=rows is not None,
        )
        epochs = self._epochs(n_records, settings.batch_size)
        train_models(
            models,
            matched,
            trainees,
            lambda streams: self._make_algorithm(channel, settings, streams),
            Plan(epochs, -(-n_records // settings.batch_size), self.evaluate_every),
            settings,
            weights=lambda party: self._weights(party, trainees),
            reported={**asdict(settings), "epochs": epochs},
            secrets=secrets,
            multiply_adds=len(models) * multiply_adds(settings, widths),
            replica_rows=rows,
            callbacks=callbacks,
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            resume=resume,
        )
        if keep_discriminators:
            keep_local_discriminators(models, trainees)
        return list(models)

    def _settings(self, n_records: int, widths: Sequence[int]) -> Settings:
        """Fill in the defaults that depend on the data."""
        batch_size = self.batch_size
        if batch_size is None:
            batch_size = power_of_two(n_records / 16, 8, 256)
        if n_records < batch_size:
            raise TooFewRecordsError(
                f"{n_records} matched records are fewer than one batch of {batch_size}",
                fix="lower batch_size, or check why so few records matched",
            )
        scale = power_of_two(2 * max(widths), 32, 256)
        return Settings(
            batch_size=batch_size,
            latent_dim=self.latent_dim or min(32, max(16, sum(widths))),
            generator_hidden=tuple(self.generator_hidden or (scale, scale)),
            bias=self.bias,
            batch_norm_eps=self.batch_norm_eps,
            gumbel_temperature=self.gumbel_temperature,
            gradient_penalty_weight=self.gradient_penalty_weight,
            learning_rate=self.learning_rate,
            betas=(self.betas[0], self.betas[1]),
            generator_average=self.generator_average,
            n_evaluation=min(n_records, _MAX_EVALUATION),
            **self._discriminator_settings(scale),
        )

    def _epochs(self, n_records: int, batch_size: int) -> int:
        return self.epochs or max(1, round(_DEFAULT_STEPS * batch_size / n_records))


def keep_local_discriminators(
    models: Sequence[GANSynthesizer], trainees: Sequence[GANParty]
) -> None:
    """Give every model its replica of the discriminators as training left them."""
    for replica, model in enumerate(models):
        model.local_discriminators_ = {
            party.name: one_replica(party.discriminator, replica) for party in trainees
        }


def multiply_adds(settings: Settings, widths: Sequence[int]) -> int:
    """Multiply-adds of the largest layer on a batch of real, fake and interpolated records."""
    networks = [
        (len(widths) * settings.first_part[-1], *settings.shared_hidden),
        *((settings.latent_dim, *settings.generator_hidden, width) for width in widths),
        *((width, *settings.first_part) for width in widths),
    ]
    products = (a * b for dims in networks for a, b in zip(dims[:-1], dims[1:]))
    return 3 * settings.batch_size * max(products)


def power_of_two(value: float, low: int, high: int) -> int:
    """Round down to a power of two, within bounds."""
    return max(low, min(high, 1 << max(0, int(value).bit_length() - 1)))
