"""The classifiers: the papers' methods as presets of one base class."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, ClassVar, Literal, Self, Unpack

import numpy as np
import numpy.typing as npt

from vflsynth.splitdefense.base import BaseSplitClassifier, Shared
from vflsynth.splitdefense.fitting import RunOptions, Trained
from vflsynth.splitdefense.margin import best_margin, margin_trials
from vflsynth.splitdefense.objectives import DIMIP, GAFM, CrossEntropy, Objective
from vflsynth.splitdefense.protections import Isotropic, Marvell, MaxNorm, Protection


class SplitNNClassifier(BaseSplitClassifier):
    """Split learning with any objective and any protection; by default plain and unprotected.

    Parameters
    ----------
    objective : Objective, optional
        Default: ``CrossEntropy()``.
    protection : Protection, optional
        Of passive parties' cut gradients. Default: none, and labels leak completely.
    **shared
        See `BaseSplitClassifier`.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from vflsynth.splitdefense import Marvell, SplitNNClassifier
    >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    >>> clf = SplitNNClassifier(protection=Marvell(4.0), epochs=20, random_state=0).fit(X, y)
    >>> clf.score(X, y) > 0.9
    True
    """

    def __init__(
        self,
        *,
        objective: Objective | None = None,
        protection: Protection | None = None,
        **shared: Unpack[Shared],
    ) -> None:
        super().__init__(**shared)
        self.objective = objective
        self.protection = protection

    def _objective(self) -> Objective:
        return CrossEntropy() if self.objective is None else self.objective

    def _protection(self) -> Protection | None:
        return self.protection


class IsotropicClassifier(BaseSplitClassifier):
    """Split learning with isotropic Gaussian noise on the cut gradients.

    Parameters
    ----------
    power_scale : float, default=25.0
        See `Isotropic`.
    **shared
        See `BaseSplitClassifier`.
    """

    def __init__(self, *, power_scale: float = 25.0, **shared: Unpack[Shared]) -> None:
        super().__init__(**shared)
        self.power_scale = power_scale

    def _protection(self) -> Protection:
        return Isotropic(self.power_scale)


class MaxNormClassifier(BaseSplitClassifier):
    """Split learning with noise that hides the norms of the cut gradients.

    Parameters
    ----------
    **shared
        See `BaseSplitClassifier`.
    """

    def __init__(self, **shared: Unpack[Shared]) -> None:
        super().__init__(**shared)

    def _protection(self) -> Protection:
        return MaxNorm()


class MarvellClassifier(BaseSplitClassifier):
    """Marvell: noise on the cut gradients that is optimal against attacks on one message.

    Parameters
    ----------
    power_scale : float, default=4.0
        See `Marvell`.
    **shared
        See `BaseSplitClassifier`.

    Notes
    -----
    Two classes only. `history_` has the bound on one message's AUC per epoch and party.
    """

    def __init__(self, *, power_scale: float = 4.0, **shared: Unpack[Shared]) -> None:
        super().__init__(**shared)
        self.power_scale = power_scale

    def _protection(self) -> Protection:
        return Marvell(self.power_scale)


class DIMIPClassifier(BaseSplitClassifier):
    """DIMIP: bottom models that are of little use for a classifier of the passive party's own.

    Parameters
    ----------
    defense_weight, predictor_steps, bound, regularizer, predictor_hidden
        See `DIMIP`.
    protection : Protection, optional
        On top.
    **shared
        See `BaseSplitClassifier`.
    """

    def __init__(
        self,
        *,
        defense_weight: float = 0.05,
        predictor_steps: int = 1,
        bound: Literal["vclub", "prior"] = "vclub",
        regularizer: bool = True,
        predictor_hidden: Sequence[int] = (64, 32),
        protection: Protection | None = None,
        **shared: Unpack[Shared],
    ) -> None:
        super().__init__(**shared)
        self.defense_weight = defense_weight
        self.predictor_steps = predictor_steps
        self.bound = bound
        self.regularizer = regularizer
        self.predictor_hidden = predictor_hidden
        self.protection = protection

    def _objective(self) -> Objective:
        return DIMIP(
            self.defense_weight,
            self.predictor_steps,
            self.bound,
            self.regularizer,
            self.predictor_hidden,
        )

    def _protection(self) -> Protection | None:
        return self.protection


class GAFMClassifier(BaseSplitClassifier):
    """GAFM: cut gradients of an adversarial loss and of noisy labels, which partly cancel.

    Parameters
    ----------
    pseudo_label_margin, penalty_weight, gan_weight, label_noise_std, weight_clip
        See `GAFM`.
    discriminator_hidden : sequence of int, default=(64, 32, 16)
    protection : Protection, optional
        On top; the authors propose Marvell.
    **shared
        See `BaseSplitClassifier`. GAFM needs scalar bottom outputs in (0, 1) that are added, so the
        defaults are ``intermediate_dim=1``, ``bottom_output="sigmoid"``, ``fusion="mean"`` and
        ``top_hidden=(32, 16)``.

    Attributes
    ----------
    pseudo_label_margin_ : float
        The margin that was trained with: the one given, or with "auto" the one chosen.
    margins_ : DataFrame or None
        With "auto": ``train_auc``, ``leak_auc`` and their ``ratio`` of every margin tried, means
        over trainings on random tenths of the training records. None without.

    Other attributes are those of `BaseSplitClassifier`.

    Notes
    -----
    The generator learns which way up to rank from nothing but the distribution of its outputs, so
    its raw output ranks upside down for many seeds. The active party fits the probabilities' slope
    and intercept to the training labels, which `predict_proba` applies.
    """

    _defaults: ClassVar[Shared] = {
        "intermediate_dim": 1,
        "bottom_output": "sigmoid",
        "fusion": "mean",
        "top_hidden": (32, 16),
    }

    def __init__(
        self,
        *,
        pseudo_label_margin: float | Literal["auto"] = 0.05,
        penalty_weight: float = 1.0,
        gan_weight: float = 1.0,
        label_noise_std: float = 0.01,
        weight_clip: float = 0.1,
        discriminator_hidden: Sequence[int] = (64, 32, 16),
        protection: Protection | None = None,
        **shared: Unpack[Shared],
    ) -> None:
        super().__init__(**(self._defaults | shared))
        self.pseudo_label_margin = pseudo_label_margin
        self.penalty_weight = penalty_weight
        self.gan_weight = gan_weight
        self.label_noise_std = label_noise_std
        self.weight_clip = weight_clip
        self.discriminator_hidden = discriminator_hidden
        self.protection = protection

    def _train(
        self,
        models: Sequence[Self],
        X: Any,
        y: Any,
        on: Hashable,
        replica_rows: npt.ArrayLike | None,
        options: RunOptions,
    ) -> Trained:
        for replica, model in enumerate(models):
            model.margins_ = None
            if model.pseudo_label_margin == "auto":
                own = None if replica_rows is None else np.asarray(replica_rows)[replica]
                model.margins_ = margin_trials(model, X, y, on, own)
                model.pseudo_label_margin_ = best_margin(model.margins_)
            else:
                model.pseudo_label_margin_ = model.pseudo_label_margin
        return super()._train(models, X, y, on, replica_rows, options)

    def _objective(self) -> Objective:
        margin = self.pseudo_label_margin
        if margin == "auto":  # chosen before training; until then the objective says "auto"
            margin = getattr(self, "pseudo_label_margin_", margin)
        return GAFM(
            margin,
            self.penalty_weight,
            self.gan_weight,
            self.label_noise_std,
            self.weight_clip,
            self.discriminator_hidden,
        )

    def _protection(self) -> Protection | None:
        return self.protection
