"""From the top model's output to what is predicted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize
from scipy.special import expit, softmax

from vflsynth.splitdefense.label_privacy import LabelChannel

Probabilities = npt.NDArray[np.float64]
Scores = npt.NDArray[np.float64]

_RIDGE = 0.05
"""Half the inverse of scikit-learn's ``C=10``: keeps the slope finite where classes separate."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """From the top model's output to probabilities, or to numbers of the target's unit.

    `slope` and `intercept` are of the log-odds of class 1, for one output, or of the number; 1 and
    0 leave it as it is. A negative slope turns a model round that ranks upside down.
    """

    slope: float = 1.0
    intercept: float = 0.0

    @classmethod
    def learn(
        cls,
        scores: Scores,
        labels: npt.NDArray[np.int64],
        channel: LabelChannel | None = None,
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

        share = float(labels.mean())
        start = np.array([0.0, math.log(share) - math.log1p(-share)])
        found = minimize(objective, start, jac=True, method="L-BFGS-B").x
        slope = float(found[0]) / spread if spread > 0.0 else 0.0
        return cls(slope, float(found[1]) - slope * float(scores.mean()))

    def probabilities(self, scores: Scores) -> Probabilities:
        """Map (record, output) to (record, class)."""
        if scores.shape[1] > 1:
            found: Probabilities = softmax(scores, axis=1)
            return found
        positive = expit(self.slope * scores[:, 0] + self.intercept)
        return np.stack([1.0 - positive, positive], 1)

    def numbers(self, scores: Scores) -> Scores:
        """Map (record, 1) to numbers in the target's unit, (record,)."""
        return self.slope * scores[:, 0] + self.intercept
