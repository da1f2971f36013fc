"""The classifiers: the papers' methods as presets of one base class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from vflsynth.exceptions import ParameterError
from vflsynth.mechanisms import DPSGD, Mechanism
from vflsynth.registry import Number, Rule, register
from vflsynth.splitdefense.estimator import BaseSplitClassifier
from vflsynth.splitdefense.method import SplitMethod
from vflsynth.splitdefense.objectives.base import Objective
from vflsynth.splitdefense.objectives.information import DIMIP
from vflsynth.splitdefense.protections.gradients import Protection
from vflsynth.splitdefense.protections.marvell import Marvell
from vflsynth.splitdefense.settings import AS_PUBLISHED, SplitSettings


@dataclass(repr=False, eq=False, kw_only=True)
class PublishedClassifier(BaseSplitClassifier):
    """A classifier of a paper, which trains as it was published."""

    numeric_bins: int | None = AS_PUBLISHED["numeric_bins"]
    epochs: int = AS_PUBLISHED["epochs"]
    patience: int | None = AS_PUBLISHED["patience"]
    weight_decay: float = AS_PUBLISHED["weight_decay"]


@register
@dataclass(repr=False, eq=False, kw_only=True)
class SplitNNClassifier(BaseSplitClassifier):
    """Split learning with any objective and any protection; by default plain and unprotected.

    Parameters
    ----------
    objective : Objective, optional
        Default: ``CrossEntropy()``.
    protection : Protection, optional
        Of passive parties' cut gradients. Default: none, and labels leak completely. `Isotropic`
        and `MaxNorm` are the baselines of Marvell's paper, which trains them with ``epochs=50``,
        ``patience=None``, ``weight_decay=0.0`` and ``numeric_bins=0``.
    privacy : DPSGD, optional
        Train with differential privacy (extra ``opacus``), on cross-entropy alone: ``batch_size``
        is then that of Poisson samples, all ``epochs`` are trained, and no record is held out.
    **shared
        See `BaseSplitClassifier`.

    Notes
    -----
    Privacy: with `privacy` the unit is one record, all parties' columns and the label together. ε
    is about the fitted bottom and top models: it protects against those who get them and were not
    part of the training. Every party cuts its own part of each record's gradient to
    ``max_grad_norm``, and the active party that of the top model, so that the whole is at most
    ``max_grad_norm * sqrt(parties + 1)`` long; noise is in proportion to that.

    It does not protect parties from each other: outputs of the bottom models and gradients at them
    cross the boundary without noise, as in every split training, and are not covered. Which classes
    there are is public. The ledger, ``privacy_ledger_``, says all of this. All parties are in one
    process.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from vflsynth.splitdefense import Marvell, SplitNNClassifier
    >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    >>> clf = SplitNNClassifier(protection=Marvell(4.0), epochs=20, random_state=0).fit(X, y)
    >>> clf.score(X, y) > 0.9
    True
    """

    methods: ClassVar[Mapping[type[Mechanism] | None, type[SplitMethod]]] = {
        None: SplitMethod,
        DPSGD: SplitMethod,
    }

    objective: Objective | None = None
    protection: Protection | None = None
    privacy: DPSGD | None = None


@register
@dataclass(repr=False, eq=False, kw_only=True)
class CutShiftClassifier(BaseSplitClassifier):
    """Split learning whose cut is so many layers lower: they move to the label holder.

    Parameters
    ----------
    layers : int, default=1
        How many of the bottom models' layers are above the cut, at most as many as they have hidden
        ones.
    protection : Protection, optional
        On top.
    **shared
        See `BaseSplitClassifier`, for the network before the cut is moved.

    Notes
    -----
    Source: arXiv 2603.18680. What is left at a passive party has learned less of labels and is of
    little use as a classifier of its own. It tells the label holder all the more of the columns: a
    bottom model of one layer sends linear functions of them, and nothing between the cut and the
    first layer above bends them.
    """

    _rules: ClassVar[Mapping[str, Rule]] = {
        **BaseSplitClassifier._rules,
        "layers": Number(0, whole=True),
    }

    layers: int = 1
    protection: Protection | None = None

    def settings(self) -> SplitSettings:
        """Return sizes with the cut moved."""
        found = super().settings()
        sizes = (*found.bottom_hidden, found.intermediate_dim)
        below = len(sizes) - self.layers
        if below < 1:
            raise ParameterError(
                f"layers={self.layers} leaves nothing below the cut: the bottom models have "
                f"{len(sizes)} layers. Fix: at most {len(sizes) - 1}, or a longer bottom_hidden"
            )
        return replace(
            found,
            bottom_hidden=sizes[: below - 1],
            intermediate_dim=sizes[below - 1],
            top_hidden=(*sizes[below:], *found.top_hidden),
        )


@register
@dataclass(repr=False, eq=False, kw_only=True)
class MarvellClassifier(PublishedClassifier):
    """Marvell: noise on the cut gradients that is optimal against attacks on one message.

    Parameters
    ----------
    power_scale : float, default=4.0
        See `Marvell`.
    **shared
        See `BaseSplitClassifier`. Trains as published: 50 epochs,
        nothing held out, no weight decay, numbers as they are.

    Notes
    -----
    Two classes only. `history_` has the bound on one message's AUC per epoch and party.
    """

    power_scale: float = 4.0

    def make_protection(self) -> Protection:
        """Return what is done to gradients before they are sent."""
        return Marvell.of(self)


@register
@dataclass(repr=False, eq=False, kw_only=True)
class DIMIPClassifier(PublishedClassifier):
    """DIMIP: bottom models that are of little use for a classifier of the passive party's own.

    Parameters
    ----------
    defense_weight, predictor_steps, bound, regularizer, predictor_hidden
        See `DIMIP`.
    protection : Protection, optional
        On top.
    **shared
        See `MarvellClassifier`: trains as published, too.
    """

    defense_weight: float = 0.05
    predictor_steps: int = 1
    bound: Literal["vclub", "prior"] = "vclub"
    regularizer: bool = True
    predictor_hidden: Sequence[int] = (64, 32)
    protection: Protection | None = None

    def make_objective(self) -> Objective:
        """Return what is minimised."""
        return DIMIP.of(self)
