"""What labels are, what a record counts, and from the top model's output to probabilities."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize
from scipy.special import expit, softmax
from torch import Tensor

from vflsynth.exceptions import OwnTableWarning, ParameterError, warn_user
from vflsynth.splitdefense.inputs import Labels, as_labels, check_one_type
from vflsynth.splitdefense.label_privacy import LabelChannel
from vflsynth.splitdefense.objectives.base import Objective
from vflsynth.splitdefense.protections.gradients import Protection
from vflsynth.splitdefense.settings import ClassWeight

Probabilities = npt.NDArray[np.float64]
Scores = npt.NDArray[np.float64]

_RIDGE = 0.05
"""Half the inverse of scikit-learn's ``C=10``: keeps the slope finite where classes separate."""

_LEAST_SHARE = 1e-6  # that the search for a calibration starts from: responses may all be one class


@dataclass(frozen=True, slots=True)
class Calibration:
    """From the top model's output to probabilities.

    `slope` and `intercept` are of the log-odds of class 1, for one output; 1 and 0 leave it as it
    is. A negative slope turns a model round that ranks upside down.
    """

    slope: float = 1.0
    intercept: float = 0.0

    @classmethod
    def learn(
        cls, scores: Scores, labels: npt.NDArray[np.int64], channel: LabelChannel | None = None
    ) -> Self:
        """Fit by logistic regression of training labels on the output, both (record,).

        With a `channel` of one replica, which made these labels of the true ones, the regression is
        through it.
        """
        spread = float(scores.std())
        scaled = torch.tensor((scores - scores.mean()) / (spread if spread > 0.0 else 1.0))
        sign = torch.tensor(2.0 * labels - 1.0)

        def objective(found: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
            at = torch.tensor(found).requires_grad_()
            log_p = torch.nn.functional.logsigmoid(sign * (at[0] * scaled + at[1]))
            if channel is not None:
                log_p = channel.log_probability(log_p.unsqueeze(0))[0]
            loss = _RIDGE * at[0].square() - log_p.sum()
            (gradient,) = torch.autograd.grad(loss, at)
            return float(loss.detach()), gradient.numpy()

        share = min(max(float(labels.mean()), _LEAST_SHARE), 1.0 - _LEAST_SHARE)
        start = np.array([0.0, math.log(share) - math.log1p(-share)])
        found = minimize(objective, start, jac=True, method="L-BFGS-B").x
        slope = float(found[0]) / spread if spread > 0.0 else 0.0
        return cls(slope, float(found[1]) - slope * float(scores.mean()))

    def probabilities(self, scores: Scores) -> Probabilities:
        """Map (record, output) to (record, class)."""
        if scores.shape[1] > 1:
            return softmax(scores, axis=1)
        positive = expit(self.slope * scores[:, 0] + self.intercept)
        return np.stack([1.0 - positive, positive], 1)


@dataclass(frozen=True)
class Classes:
    """Labels that are classes: what users call them, and positions among these.

    The codes are row by row of the active party's table.
    """

    classes: Labels
    codes: npt.NDArray[np.int64]

    @classmethod
    def of(
        cls,
        labels: Labels,
        parts: Sequence[Objective | Protection | None],
        stated: Sequence[Any] | None = None,
        *,
        private: bool = False,
    ) -> Self:
        """Learn the classes, if nobody stated them; refuse parts that are not defined for them.

        In a `private` run labels that are of no stated class count as the first, and whoever has
        them is warned: one label may neither end a run nor add a class. Raises ParameterError.
        """
        if stated is None:
            classes, codes = np.unique(labels, return_inverse=True)
        else:
            check_one_type(known := as_labels(list(stated), "classes"), "classes")
            classes = np.unique(known)
            codes = _codes_of(labels, classes, private)
        if len(classes) < 2:
            raise ParameterError(
                f"{'y has' if stated is None else 'classes have'} only one class, and a classifier "
                "needs at least two. Fix: check which records are common, or state both classes"
            )
        for part in parts:
            if len(classes) > 2 and part is not None and part.binary_only:
                raise ParameterError(
                    f"Only binary classification is supported by {type(part).__name__}, and "
                    f"there are {len(classes)} classes. Isotropic, MaxNorm, RandomizedResponse, "
                    "DIMIP and DistanceCorrelation are defined for any number"
                )
        return cls(classes, codes.astype(np.int64))

    @property
    def n_classes(self) -> int:
        """How many there are."""
        return len(self.classes)

    def shares(self, trained: Tensor) -> Tensor:
        """Shares of the classes among labels (replica, record); (replica, class)."""
        n = self.n_classes
        return torch.stack([torch.bincount(row, minlength=n) / len(row) for row in trained])

    def weights(self, asked: ClassWeight, shares: Tensor) -> Tensor:
        """Say what a record of each class counts, (replica, class).

        Raises ParameterError if a name is not that of a class, or a weight is negative.
        """
        if isinstance(asked, str):
            if asked != "balanced":
                raise ParameterError(f"class_weight must be a mapping or 'balanced', got {asked!r}")
            return 1.0 / (self.n_classes * shares.clamp_min(torch.finfo(shares.dtype).tiny))
        known = dict(zip(self.classes.tolist(), range(self.n_classes)))
        found = torch.ones_like(shares)
        for name, weight in (asked or {}).items():
            if name not in known:
                raise ParameterError(
                    f"class_weight names {name!r}, which is no class of y. Fix: give 'balanced', "
                    "or the classes as y has them"
                )
            if not (isinstance(weight, int | float | np.number) and 0.0 <= weight < np.inf):
                raise ParameterError(f"class_weight of {name!r} must be a number ≥ 0, got {weight}")
            found[:, known[name]] = float(weight)
        return found


def _codes_of(labels: Labels, classes: Labels, private: bool) -> npt.NDArray[np.int64]:
    """Return positions of labels in classes that were stated; see `Classes.of`."""
    places = {label: place for place, label in enumerate(classes.tolist())}
    found = [places.get(label, -1) if isinstance(label, Hashable) else -1 for label in labels]
    codes = np.array(found, np.int64)
    if n_others := int((codes < 0).sum()):
        said = f"{n_others:,} of {len(codes):,} labels are missing, or none of {list(places)}"
        fix = "Fix: correct them, or state their classes"
        if not private:
            raise ParameterError(f"{said}. {fix}")
        warn_user(
            f"{said}: they count as {next(iter(places))!r}. Nobody else is told. {fix}",
            OwnTableWarning,
        )
    return codes.clip(0)


def check_sample_weight(given: Any, n_rows: int) -> npt.NDArray[np.float32] | None:
    """Check what each row of the active party's table counts.

    Raises ParameterError if the weights are not as many as the labels, or not numbers ≥ 0 with a
    positive sum.
    """
    if given is None:
        return None
    try:
        weights = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise ParameterError("sample_weight must be numbers, without gaps") from None
    if weights.ndim == 0:
        weights = np.full(n_rows, weights)
    if weights.shape != (n_rows,):
        raise ParameterError(
            f"sample_weight has shape {weights.shape}, and y has {n_rows} labels; give one each"
        )
    if not np.isfinite(weights).all() or weights.min() < 0.0 or not weights.sum() > 0.0:
        raise ParameterError(
            "sample_weight must be finite and at least 0, and not zero for all records"
        )
    return weights.astype(np.float32)


def record_weights(
    labels: Tensor, rows: Tensor | None, per_class: Tensor | None, per_record: Tensor | None
) -> Tensor | None:
    """Weights of all records, 1 on average over those that are trained on; (replica, record).

    `rows`, (replica, training record), are positions of each replica's own records; by default all.
    Weights count `per_class`, (replica, class), and `per_record`, (record,).
    """
    if per_class is None and per_record is None:
        return None
    weights = torch.ones(labels.shape, device=labels.device)
    if per_class is not None:
        weights = per_class.gather(1, labels)
    if per_record is not None:
        weights = weights * per_record
    own = weights if rows is None else weights.gather(1, rows)
    return weights / own.mean(1, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)


def check_together(classifiers: Sequence[Any], sample_weight: Any) -> None:
    """Refuse what goes around randomised responses."""
    for classifier in classifiers:
        weighted = classifier.class_weight is not None or sample_weight is not None
        if classifier.label_privacy is not None and weighted:
            raise ParameterError(
                "label_privacy has no weights: gradients show them, and ε does not count what "
                "weights tell about labels. Fix: leave class_weight and sample_weight out, and "
                "move the threshold on predict_proba instead"
            )
