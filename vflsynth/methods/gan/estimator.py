"""What the GANs over party frames have in common: parameters, fitting one or many models."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy.typing as npt

from vflsynth._random import RandomState
from vflsynth.methods.parameters import check_combination
from vflsynth.methods.synthesizer import PartyFrames
from vflsynth.methods.trained import TrainedSynthesizer
from vflsynth.networks.layers import one_replica
from vflsynth.privacy import PrivacyAccount
from vflsynth.protocol.channel import Precision
from vflsynth.run.loop import Callback


@dataclass(repr=False, eq=False, kw_only=True)
class GANSynthesizer(TrainedSynthesizer):
    """Base of the GANs: parameters they share, fitting one or many models.

    Subclasses document the parameters, add their own with rules for them, and say which method they
    have.
    """

    latent_dim: int | None = None
    generator_hidden: Sequence[int] | None = None
    bias: bool = True
    batch_norm_eps: float | None = 1e-5
    gumbel_temperature: float = 1.0
    gradient_penalty_weight: float = 10.0
    discriminator_steps: int = 5
    batch_size: int | None = None
    epochs: int | None = None
    learning_rate: float = 5e-4
    betas: tuple[float, float] | None = None
    generator_average: float = 0.999
    model_selection: Literal["best", "last"] = "last"
    evaluate_every: int | None = None
    calibrate_marginals: bool = True
    resample: int = 1
    wire_precision: Precision = "float32"

    def fit_replicas(
        self,
        party_frames: PartyFrames,
        on: Any = None,
        *,
        random_states: Sequence[RandomState],
        replica_rows: npt.ArrayLike | None = None,
        callbacks: Sequence[Callback] = (),
        account: PrivacyAccount | str | os.PathLike[str] | None = None,
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
            records in any case. With `privacy` ε is about the records that are there: that another
            one would move them all by a position is not counted.
        account : PrivacyAccount or path-like, optional
            As in `fit`. Every model's steps are booked, and what all models share, such as the
            histograms that encode columns, once. Each model's ledger counts that model alone, and
            says so.
        keep_discriminators : bool, default=False
            Give every model ``local_discriminators_``, a dict of party name to network as training
            left it, and ``local_residuals_``, by which encoded records become what it judges, for
            audits. They stay in memory: `save` never writes them.

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
        PrivacyBudgetError, ArtefactError
            As in `fit`, of `account`.
        """
        if keep_discriminators:
            check_combination(self, keep_discriminators=True)
        models, run = self._fit_replicas(
            party_frames, on, random_states, replica_rows, callbacks, account
        )
        if keep_discriminators:
            for replica, model in enumerate(models):
                model.local_discriminators_ = {
                    name: one_replica(node.discriminator, replica)
                    for name, node in run.parties.items()
                }
                model.local_residuals_ = {
                    name: node.residuals
                    for name, node in run.parties.items()
                    if node.residuals is not None
                }
        return models
