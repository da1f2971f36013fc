"""What synthesizers that train in epochs have in common: fitting one or many models."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy.typing as npt
from sklearn.base import clone

from vflsynth._random import RandomState, check_states, secret_from
from vflsynth.exceptions import ParameterError
from vflsynth.mechanisms import Mechanism
from vflsynth.methods.synthesizer import BaseSynthesizer, PartyFrames
from vflsynth.privacy import PrivacyAccount
from vflsynth.run.local import LocalRun, Options
from vflsynth.run.loop import Callback


@dataclass(repr=False, eq=False, kw_only=True)
class TrainedSynthesizer(BaseSynthesizer):
    """Base of what trains in epochs: callbacks, checkpoints, many models at once."""

    structure: Literal["exact", "ignore"] = "exact"
    memory_limit: float | None = None
    device: str = "auto"
    verbose: int = 1
    privacy: Mechanism | None = None

    def fit(
        self,
        party_frames: PartyFrames,
        on: Any = None,
        *,
        callbacks: Sequence[Callback] = (),
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: int = 10,
        resume: str | os.PathLike[str] | None = None,
        transcript: bool = False,
        account: PrivacyAccount | str | os.PathLike[str] | None = None,
        most_hours: float | None = None,
    ) -> Self:
        """Match the parties' records and train.

        Parameters
        ----------
        party_frames, on, transcript, account
            As in `BaseSynthesizer.fit`.
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
        most_hours : float, optional
            A training that takes longer, by its first steps, is refused; one of more than ten
            seconds says how long. Default: no limit.

        Returns
        -------
        self

        Raises
        ------
        PartyDataError, ParameterError, PrivacyBudgetError
            As in `BaseSynthesizer.fit`.
        ArtefactError
            Likewise, and if `resume` is damaged or belongs to another run.
        TimeLimitError
            If training takes more than `most_hours`.
        TrainingDivergedError
            If a loss is no longer finite.
        """
        options = Options(
            most_hours=most_hours,
            callbacks=callbacks,
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            resume=resume,
            transcript=transcript,
            account=account,
            verbose=bool(self.verbose),  # its range is checked with all others
            memory_limit=self.memory_limit,
        )
        self._fit_models([self], party_frames, on, options)
        return self

    def fit_replicas(
        self,
        party_frames: PartyFrames,
        on: Any = None,
        *,
        random_states: Sequence[RandomState],
        replica_rows: npt.ArrayLike | None = None,
        callbacks: Sequence[Callback] = (),
        account: PrivacyAccount | str | os.PathLike[str] | None = None,
    ) -> list[Self]:
        """Train many models at once and return each as a fitted synthesizer of its own.

        Parameters
        ----------
        party_frames, on, random_states, replica_rows, callbacks, account
            As of `VFLGANSynthesizer.fit_replicas`.

        Returns
        -------
        list
            Clones of this one, fitted.
        """
        return self._fit_replicas(
            party_frames, on, random_states, replica_rows, callbacks, account
        )[0]

    def _fit_replicas(
        self,
        party_frames: PartyFrames,
        on: Any,
        random_states: Sequence[RandomState],
        replica_rows: npt.ArrayLike | None,
        callbacks: Sequence[Callback],
        account: PrivacyAccount | str | os.PathLike[str] | None = None,
    ) -> tuple[list[Self], LocalRun]:
        """Train, and return the run as well."""
        check_states(random_states)
        models = [clone(self).set_params(random_state=state) for state in random_states]
        options = Options(
            callbacks=callbacks,
            replica_rows=replica_rows,
            account=account,
            verbose=bool(self.verbose),  # its range is checked with all others
            memory_limit=self.memory_limit,
        )
        return models, self._fit_models(models, party_frames, on, options)

    def estimate_memory(
        self, party_frames: PartyFrames, on: Any = None, *, n_models: int = 1
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
        if self.privacy is not None:
            raise ParameterError("estimate_memory cannot look at records with privacy set")
        secrets = [secret_from(self.random_state)] * n_models
        run = self._local_run(self.method(), party_frames, on, Options(), secrets)
        run.join()
        return run.estimate_memory()
