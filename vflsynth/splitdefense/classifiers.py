"""The classifiers: the papers' methods as presets of one base class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Unpack

from vflsynth.registry import register
from vflsynth.splitdefense.base import BaseSplitClassifier
from vflsynth.splitdefense.objectives import DIMIP, Objective
from vflsynth.splitdefense.protections import Isotropic, Marvell, MaxNorm, Protection
from vflsynth.splitdefense.settings import AS_PUBLISHED, Shared


@register
class SplitNNClassifier(BaseSplitClassifier):
    """Split learning with any objective and any protection; by default plain and unprotected.

    Parameters
    ----------
    objective : Objective, optional
        Default: ``CrossEntropy()``.
    protection : Protection, optional
        Of passive parties' cut gradients. Default: none, and labels leak completely.
    **shared
        See `BaseSplitEstimator`.

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


@register
class IsotropicClassifier(BaseSplitClassifier):
    """Split learning with isotropic Gaussian noise on the cut gradients.

    Parameters
    ----------
    power_scale : float, default=25.0
        See `Isotropic`.
    **shared
        See `BaseSplitEstimator`. Trains as published: 50 epochs,
        nothing held out, no weight decay, numbers as they are.
    """

    _defaults = AS_PUBLISHED

    def __init__(self, *, power_scale: float = 25.0, **shared: Unpack[Shared]) -> None:
        super().__init__(**(self._defaults | shared))
        self.power_scale = power_scale

    def make_protection(self) -> Protection:
        """Return what is done to gradients before they are sent."""
        return Isotropic(self.power_scale)


@register
class MaxNormClassifier(BaseSplitClassifier):
    """Split learning with noise that hides the norms of the cut gradients.

    Parameters
    ----------
    **shared
        See `BaseSplitEstimator`. Trains as published: 50 epochs,
        nothing held out, no weight decay, numbers as they are.
    """

    _defaults = AS_PUBLISHED

    def __init__(self, **shared: Unpack[Shared]) -> None:
        super().__init__(**(self._defaults | shared))

    def make_protection(self) -> Protection:
        """Return what is done to gradients before they are sent."""
        return MaxNorm()


@register
class MarvellClassifier(BaseSplitClassifier):
    """Marvell: noise on the cut gradients that is optimal against attacks on one message.

    Parameters
    ----------
    power_scale : float, default=4.0
        See `Marvell`.
    **shared
        See `BaseSplitEstimator`. Trains as published: 50 epochs,
        nothing held out, no weight decay, numbers as they are.

    Notes
    -----
    Two classes only. `history_` has the bound on one message's AUC per epoch and party.
    """

    _defaults = AS_PUBLISHED

    def __init__(self, *, power_scale: float = 4.0, **shared: Unpack[Shared]) -> None:
        super().__init__(**(self._defaults | shared))
        self.power_scale = power_scale

    def make_protection(self) -> Protection:
        """Return what is done to gradients before they are sent."""
        return Marvell(self.power_scale)


@register
class DIMIPClassifier(BaseSplitClassifier):
    """DIMIP: bottom models that are of little use for a classifier of the passive party's own.

    Parameters
    ----------
    defense_weight, predictor_steps, bound, regularizer, predictor_hidden
        See `DIMIP`.
    protection : Protection, optional
        On top.
    **shared
        See `BaseSplitEstimator`. Trains as published: 50 epochs,
        nothing held out, no weight decay, numbers as they are.
    """

    _defaults = AS_PUBLISHED

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
        super().__init__(**(self._defaults | shared))
        self.defense_weight = defense_weight
        self.predictor_steps = predictor_steps
        self.bound = bound
        self.regularizer = regularizer
        self.predictor_hidden = predictor_hidden
        self.protection = protection

    def make_objective(self) -> Objective:
        """Return what is minimised."""
        return DIMIP(
            self.defense_weight,
            self.predictor_steps,
            self.bound,
            self.regularizer,
            self.predictor_hidden,
        )
