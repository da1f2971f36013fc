"""VFLGANSynthesizer: party frames in, one synthetic table out."""

from __future__ import annotations

import os
import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal, Self, overload

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from vflsynth import _artefacts as artefacts
from vflsynth._device import resolve_device
from vflsynth._memory import check_memory
from vflsynth._random import RandomState, derive, secret_from
from vflsynth._validation import Choice, Number, Optional, Rule, Sizes, check_parameters
from vflsynth._version import __version__
from vflsynth.exceptions import ArtefactError, ColumnKindError, ParameterError, TooFewRecordsError
from vflsynth.frames import AlignmentReport, check_party_frames
from vflsynth.model import PartyModel
from vflsynth.parties import Settings, VFLGANParty
from vflsynth.protocol import LocalChannel, Transcript
from vflsynth.training import Callback, Session, history_from_json, history_to_json, match_records
from vflsynth.transformers import TableTransformer

PartyFrames = Mapping[str, pd.DataFrame]

_KIND = "vflsynth model"
_DEFAULT_STEPS = 15_000
_MAX_EVALUATION = 16_384
_POSITIVE = Number(0, closed=(False, True))
_RULES: dict[str, Rule] = {
    "latent_dim": Optional(Number(1, whole=True)),
    "generator_hidden": Optional(Sizes()),
    "first_part": Optional(Sizes()),
    "shared_hidden": Optional(Sizes(at_least=0)),
    "private_heads": Choice((True, False)),
    "bias": Choice((True, False)),
    "batch_norm_eps": Optional(_POSITIVE),
    "gumbel_temperature": _POSITIVE,
    "gradient_penalty": Choice(("layerwise", "paper")),
    "gradient_penalty_weight": Number(0),
    "discriminator_steps": Number(1, whole=True),
    "batch_size": Optional(Number(2, whole=True)),
    "epochs": Optional(Number(1, whole=True)),
    "learning_rate": _POSITIVE,
    "generator_average": Number(0, 1, closed=(True, False)),
    "model_selection": Choice(("best", "last")),
    "evaluate_every": Number(1, whole=True),
    "memory_limit": Optional(_POSITIVE),
    "verbose": Number(0, whole=True),
}


class VFLGANSynthesizer(BaseEstimator):  # type: ignore[misc]
    """Vertical federated WGAN-GP with a shared discriminator (VFLGAN).

    Every party trains a private generator and a private local discriminator; a server trains a
    shared discriminator on the parties' intermediate features. The generators are fed the same
    latents, so their outputs are columns of the same synthetic records.

    Parameters
    ----------
    latent_dim : int, optional
        Length l of the latent z. Default: from the encoded width.
    generator_hidden : sequence of int, optional
        Hidden layer sizes of every generator. Default: from the encoded width.
    first_part : sequence of int, optional
        Layer sizes of the first part of every local discriminator; the last one is the width of the
        intermediate features that leave the party. Default: from the encoded width.
    shared_hidden : sequence of int, optional
        Hidden layer sizes of the shared discriminator. Default: the width of the features.
    private_heads : bool, default=True
        False drops the second parts of the local discriminators: VFLGAN-base of the paper's §5.1.2.
    bias : bool, default=True
        Whether hidden and discriminator layers have biases.
    batch_norm_eps : float or None, default=1e-5
        Of the generators' batch normalisation (the reference code has 0.8); None leaves it out.
    gumbel_temperature : float, default=0.2
        Of the straight-through Gumbel-softmax.
    gradient_penalty : {"layerwise", "paper"}, default="layerwise"
        The reference code's five layer-wise terms, or the three terms of Eq. 8.
    gradient_penalty_weight : float, default=10
        λ of Eq. 3.
    discriminator_steps : int, default=5
        T_d: discriminator steps per generator step.
    batch_size : int, optional
        Records per discriminator step. Default: from the number of records.
    epochs : int, optional
        Passes over the records. Default: as many as give about 15,000 discriminator steps.
    learning_rate : float, default=5e-4
        Of Adam, for all networks.
    betas : tuple of float, default=(0.5, 0.999)
        Decay rates of Adam's moments.
    generator_average : float, default=0.999
        Decay per generator step of an exponential average of the generators, which is then what is
        evaluated, kept and sampled from. 0 uses the generators themselves.
    model_selection : {"best", "last"}, default="best"
        Keep the generators of the epoch with the lowest Fréchet distance, or those of the last.
    evaluate_every : int, default=1
        Epochs between evaluations of the Fréchet distance.
    column_kinds : mapping, optional
        Column label to kind, over all parties: "continuous", "integer", "boolean", "categorical",
        "ordered", "datetime". Default: inferred, see `vflsynth.transformers.kinds.infer_kind`.
    transformer : TableTransformer, optional
        Cloned for every party. Default: ``TableTransformer()``.
    memory_limit : float, optional
        Bytes that a fit may take by our estimate. Default: 90 % of what is free now.
    device : str, default="auto"
        "auto" takes a GPU when there is one; else a torch device.
    random_state : int, numpy Generator, RandomState or None, default=None
        Seeds everything; on one CPU the same integer gives the same bytes.
    verbose : int, default=1
        0 shows no progress bar.

    Attributes
    ----------
    parties_ : dict of str to PartyModel
        Each party's half of the model.
    alignment_ : AlignmentReport
        Matched, dropped and duplicated records per party.
    history_ : DataFrame
        One row per epoch: Wasserstein estimates and penalties of the shared and the local
        discriminators, Fréchet distance between the *encoded* real and fake records, whether it
        was the lowest so far (kept), seconds, and which epoch was chosen in the end.
    settings_ : dict
        Sizes and rates after defaults were filled in.
    device_ : str
        Where it was trained.
    interrupted_ : bool
        Whether Ctrl-C ended training early.
    transcript_ : DataFrame or None
        Messages and bytes per boundary, if ``fit(transcript=True)``.

    Notes
    -----
    Source: VFLGAN §3 and Algorithm 1.

    Departs from the paper where its text and code differ or say nothing: Adam instead of plain
    descent (as the code); two penalties by name; standardisation divides by the standard deviation
    (Eq. 22 says variance); the Fréchet distance of model selection is computed from masked records,
    so that nobody sees the joint table (`vflsynth.protocol.messages`).

    Privacy: no differential privacy. The synthetic table, the generators and the intermediate
    features can leak information about single records.

    Examples
    --------
    >>> from vflsynth import VFLGANSynthesizer
    >>> from vflsynth.datasets import make_party_frames
    >>> frames = make_party_frames(200, 2, random_state=0)
    >>> synth = VFLGANSynthesizer(epochs=2, random_state=0, verbose=0).fit(frames, on="record_id")
    >>> synth.sample(3).shape[0]
    3
    """

    def __init__(
        self,
        *,
        latent_dim: int | None = None,
        generator_hidden: Sequence[int] | None = None,
        first_part: Sequence[int] | None = None,
        shared_hidden: Sequence[int] | None = None,
        private_heads: bool = True,
        bias: bool = True,
        batch_norm_eps: float | None = 1e-5,
        gumbel_temperature: float = 0.2,
        gradient_penalty: Literal["layerwise", "paper"] = "layerwise",
        gradient_penalty_weight: float = 10.0,
        discriminator_steps: int = 5,
        batch_size: int | None = None,
        epochs: int | None = None,
        learning_rate: float = 5e-4,
        betas: tuple[float, float] = (0.5, 0.999),
        generator_average: float = 0.999,
        model_selection: Literal["best", "last"] = "best",
        evaluate_every: int = 1,
        column_kinds: Mapping[Any, str] | None = None,
        transformer: TableTransformer | None = None,
        memory_limit: float | None = None,
        device: str = "auto",
        random_state: RandomState = None,
        verbose: int = 1,
    ) -> None:
        self.latent_dim = latent_dim
        self.generator_hidden = generator_hidden
        self.first_part = first_part
        self.shared_hidden = shared_hidden
        self.private_heads = private_heads
        self.bias = bias
        self.batch_norm_eps = batch_norm_eps
        self.gumbel_temperature = gumbel_temperature
        self.gradient_penalty = gradient_penalty
        self.gradient_penalty_weight = gradient_penalty_weight
        self.discriminator_steps = discriminator_steps
        self.batch_size = batch_size
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.betas = betas
        self.generator_average = generator_average
        self.model_selection = model_selection
        self.evaluate_every = evaluate_every
        self.column_kinds = column_kinds
        self.transformer = transformer
        self.memory_limit = memory_limit
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

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
    ) -> list[Self]:
        """Train many models at once and return each as a fitted synthesizer of its own.

        All models share one set of tensor operations, so R small models take far less than R times as
        long as one.

        Parameters
        ----------
        party_frames, on, callbacks
            As in `fit`.
        random_states : sequence
            One per model. A model trained here and one trained alone with the same state draw the same
            numbers and differ by rounding only.
        replica_rows : array of int, shape (model, record), optional
            Positions, among the matched records in key order, that each model is trained on; all
            models get the same number. Default: all records. The encoding is learned from all
            records in any case.

        Returns
        -------
        list of VFLGANSynthesizer
            Clones of this one, fitted.
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
        )

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
    ) -> list[Self]:
        check_parameters(type(self).__name__, self.get_params(deep=False), _RULES)
        frames = check_party_frames(party_frames, on)
        transformers = self._transformers(frames, on)
        parties = [
            VFLGANParty(name, frame, on, transformers[name]) for name, frame in frames.items()
        ]
        record = Transcript() if transcript else None
        channel = LocalChannel(parties, record)

        alignment, minters = match_records(channel, frames, on)
        for party in parties:
            party.prepare()
        rows = _check_rows(replica_rows, len(models), alignment.n_matched)
        n_records = alignment.n_matched if rows is None else rows.shape[1]
        settings = self._settings(n_records, [party.transformer.width_ for party in parties])
        device = resolve_device(self.device)
        check_memory(parties, settings, n_records, len(models), self.memory_limit, device)

        secrets = [secret_from(state) for state in random_states]
        session = Session(
            parties,
            channel,
            settings,
            secrets=secrets,
            n_records=n_records,
            replica_rows=rows,
            discriminator_steps=self.discriminator_steps,
            model_selection=self.model_selection,
            epochs=self._epochs(n_records, settings.batch_size),
            evaluate_every=self.evaluate_every,
            device=device,
        )
        interrupted = session.train(
            callbacks=callbacks,
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            resume=resume,
            verbose=self.verbose > 0,
        )
        if interrupted:
            warnings.warn(
                f"training was interrupted in epoch {len(session.history.records) + 1} of "
                f"{session.plan.n_epochs}; the model so far was kept",
                RuntimeWarning,
                stacklevel=3,
            )
        for replica, model in enumerate(models):
            model.parties_ = {
                party.name: PartyModel.of(party, replica, minters[party.name], on)
                for party in parties
            }
            model.alignment_ = alignment
            model.history_ = session.history.to_frame(replica)
            model.settings_ = {**asdict(settings), "epochs": session.plan.n_epochs}
            model.device_ = str(device)
            model.interrupted_ = interrupted
            model.transcript_ = None if record is None else record.to_frame()
            model._secret = derive(secrets[replica], "samples")
            model._n_samples = 0
        return list(models)

    def _transformers(
        self, frames: Mapping[str, pd.DataFrame], on: Hashable
    ) -> dict[str, TableTransformer]:
        """A transformer for every party, with the kinds that concern its columns."""
        template = TableTransformer() if self.transformer is None else self.transformer
        kinds = dict(template.kinds or {}) | dict(self.column_kinds or {})
        owned = {label: name for name, frame in frames.items() for label in frame if label != on}
        for label in kinds:
            if label not in owned:
                raise ColumnKindError(
                    f"column_kinds says {kinds[label]!r}, but no party has this column",
                    fix="correct the name; the key column has no kind",
                    column=label,
                )
        return {
            name: clone(template).set_params(
                kinds={label: kind for label, kind in kinds.items() if owned[label] == name}
            )
            for name in frames
        }

    def _settings(self, n_records: int, widths: Sequence[int]) -> Settings:
        """Fill in the defaults that depend on the data."""
        batch_size = self.batch_size
        if batch_size is None:
            batch_size = _power_of_two(n_records / 16, 8, 256)
        if n_records < batch_size:
            raise TooFewRecordsError(
                f"{n_records} matched records are fewer than one batch of {batch_size}",
                fix="lower batch_size, or check why so few records matched",
            )
        scale = _power_of_two(2 * max(widths), 32, 256)
        return Settings(
            batch_size=batch_size,
            latent_dim=self.latent_dim or min(128, max(16, sum(widths))),
            generator_hidden=tuple(self.generator_hidden or (scale, scale)),
            first_part=tuple(self.first_part or (scale, scale)),
            shared_hidden=tuple(
                (scale,) if self.shared_hidden is None else self.shared_hidden
            ),
            private_heads=self.private_heads,
            bias=self.bias,
            batch_norm_eps=self.batch_norm_eps,
            gumbel_temperature=self.gumbel_temperature,
            gradient_penalty=self.gradient_penalty,
            gradient_penalty_weight=self.gradient_penalty_weight,
            learning_rate=self.learning_rate,
            betas=(self.betas[0], self.betas[1]),
            generator_average=self.generator_average,
            n_evaluation=min(n_records, _MAX_EVALUATION),
        )

    def _epochs(self, n_records: int, batch_size: int) -> int:
        return self.epochs or max(1, round(_DEFAULT_STEPS * batch_size / n_records))

    # -- sampling --------------------------------------------------------------------------------

    @overload
    def sample(
        self,
        n: int,
        *,
        by_party: Literal[False] = False,
        keys: bool = False,
        random_state: RandomState = None,
    ) -> pd.DataFrame: ...

    @overload
    def sample(
        self,
        n: int,
        *,
        by_party: Literal[True],
        keys: bool = False,
        random_state: RandomState = None,
    ) -> dict[str, pd.DataFrame]: ...

    def sample(
        self,
        n: int,
        *,
        by_party: bool = False,
        keys: bool = False,
        random_state: RandomState = None,
    ) -> pd.DataFrame | dict[str, pd.DataFrame]:
        """Sample synthetic records.

        Parameters
        ----------
        n : int
            Number of records; exactly so many are returned.
        by_party : bool, default=False
            Return one table per party, row i of each being the same record.
        keys : bool, default=False
            Put fresh keys, which no real record has, into the key column (or the index).
        random_state : int, numpy Generator, RandomState or None, default=None
            None continues the sequence that `fit`'s ``random_state`` started: two calls return
            different records, and the same calls after the same fit return the same.

        Returns
        -------
        DataFrame, shape (n, column), or dict of str to DataFrame
            All parties' columns in the order of the party frames, with their original dtypes.

        Raises
        ------
        ParameterError
            If `n` is not a whole number ≥ 0.
        KeyTypeError
            If the keys' type has no room for n fresh ones.
        """
        check_is_fitted(self, "parties_")
        check_parameters("sample", {"n": n}, {"n": Number(0, whole=True)})
        if random_state is None:
            secret = derive(self._secret, f"call {self._n_samples}")
            self._n_samples += 1
        else:
            secret = secret_from(random_state)
        parts = {
            name: model.sample_from_secret(n, secret) for name, model in self.parties_.items()
        }
        if by_party:
            if keys:
                parts = {name: self.parties_[name].add_keys(part) for name, part in parts.items()}
            return parts
        table = pd.concat(list(parts.values()), axis=1)
        return next(iter(self.parties_.values())).add_keys(table) if keys else table

    # -- saving ----------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the model as a directory of JSON and safetensors, written aside and renamed.

        Parameters
        ----------
        path : path-like
            Replaced if it is a saved model; refused if it holds anything else.

        Notes
        -----
        Holds every party's generator and encoding, no record, and no discriminator. To save a
        single party's half use ``parties_[name].save(path)``.
        """
        check_is_fitted(self, "parties_")
        parameters = self.get_params(deep=False)
        for name in ("transformer", "column_kinds"):  # each party's fitted encoding has them
            del parameters[name]
        if not isinstance(self.random_state, (int, np.integer)):
            parameters["random_state"] = None
        content = {
            "class": type(self).__name__,
            "version": __version__,
            "parameters": _plain(parameters),
            "settings": _plain(self.settings_),
            "alignment": asdict(self.alignment_),
            "history": history_to_json(self.history_),
            "device": self.device_,
            "interrupted": self.interrupted_,
            "transcript": None
            if self.transcript_ is None
            else self.transcript_.to_dict("records"),
            "n_samples": self._n_samples,
            "parties": list(self.parties_),
        }
        with artefacts.new_directory(path, _KIND) as root:
            artefacts.write_json(root / "synthesizer.json", content)
            for name, model in self.parties_.items():
                model.write(root / "parties" / name)

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: str = "auto") -> Self:
        """Load a saved model, on a CPU or a GPU whichever it was trained on.

        Parameters
        ----------
        path : path-like
        device : str, default="auto"

        Raises
        ------
        ArtefactError
            If it is no saved model of this class, or a file is missing, extra or changed.
        ArtefactVersionError
            If a newer version wrote it.
        """
        root = artefacts.open_directory(path, _KIND)
        content = artefacts.read_json(root / "synthesizer.json")
        if content.get("class") != cls.__name__:
            raise ArtefactError(f"{root} holds a {content.get('class')}, not a {cls.__name__}")
        try:
            synth = cls(**content["parameters"])
            synth.alignment_ = AlignmentReport(**content["alignment"])
            synth.history_ = history_from_json(content["history"])
            synth.settings_ = content["settings"]
            synth.device_, synth.interrupted_ = content["device"], content["interrupted"]
            synth.transcript_ = (
                None if content["transcript"] is None else pd.DataFrame(content["transcript"])
            )
            synth._n_samples = content["n_samples"]
            names = content["parties"]
        except (KeyError, TypeError, ValueError) as error:
            raise ArtefactError(f"{root} does not describe a {cls.__name__}: {error}") from error
        synth.parties_ = {
            name: PartyModel.read(root / "parties" / name, resolve_device(device))
            for name in names
        }
        synth._secret = derive(secret_from(synth.random_state), "samples")
        return synth


def _power_of_two(value: float, low: int, high: int) -> int:
    """The power of two at or below `value`, within bounds."""
    return max(low, min(high, 1 << max(0, int(value).bit_length() - 1)))


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Tuples as lists, NumPy numbers as Python's."""
    return {
        name: list(value)
        if isinstance(value, (tuple, list))
        else value.item()
        if isinstance(value, np.generic)
        else value
        for name, value in values.items()
    }


def _check_rows(replica_rows: npt.ArrayLike | None, replicas: int, n: int) -> Tensor | None:
    if replica_rows is None:
        return None
    rows = np.asarray(replica_rows)
    if rows.ndim != 2 or len(rows) != replicas or not np.issubdtype(rows.dtype, np.integer):
        raise ParameterError(
            f"replica_rows must be whole numbers of shape ({replicas}, record), got {rows.dtype} "
            f"of shape {rows.shape}"
        )
    if rows.size == 0 or rows.min() < 0 or rows.max() >= n:
        raise ParameterError(f"replica_rows must lie between 0 and {n - 1}")
    return torch.from_numpy(rows.astype(np.int64))
