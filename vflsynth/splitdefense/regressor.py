"""The regressor: the same networks and messages, for labels that are numbers."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.base import RegressorMixin

from vflsynth.registry import register
from vflsynth.splitdefense.estimator import BaseSplitEstimator
from vflsynth.splitdefense.fitted import Tables
from vflsynth.splitdefense.leakage.monitor import LeakageMonitor
from vflsynth.splitdefense.objectives import SquaredError
from vflsynth.splitdefense.protections import Protection
from vflsynth.splitdefense.targets import Numbers


@register
@dataclass(repr=False, eq=False, kw_only=True)
class SplitNNRegressor(RegressorMixin, BaseSplitEstimator):  # type: ignore[misc]
    """Split learning of numbers: the top model minimises the squared error.

    Parameters
    ----------
    protection : Protection, optional
        Of passive parties' cut gradients: one that looks at gradients only, such as `Isotropic` or
        `MaxNorm`. Default: none, and the targets leak.
    **shared
        See `BaseSplitEstimator`. What knows classes is refused: ``label_privacy``,
        ``class_weight``, and ``monitor``, whose default here is False.

    Notes
    -----
    Nothing here has a guarantee for targets. Randomised responses, Marvell, GAFM, DIMIP and
    distance correlation are defined for classes, and no attack on numbers is measured.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from vflsynth.splitdefense import SplitNNRegressor
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> columns = {"clinic": ["age", "sex", "bmi", "bp"], "lab": [f"s{i}" for i in range(1, 7)]}
    >>> model = SplitNNRegressor(party_columns=columns, active="clinic", random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.4
    True
    """

    registry_group: ClassVar[str] = "regressors"
    target = Numbers
    default_objective = SquaredError

    protection: Protection | None = None
    monitor: LeakageMonitor | bool = False

    def predict(self, X: Tables, *, absent: str | Collection[str] = ()) -> npt.NDArray[np.float64]:
        """Predict numbers in the target's unit; see `BaseSplitClassifier.predict_proba`."""
        features = self._features(X, absent)
        return self.top_.numbers(features)
