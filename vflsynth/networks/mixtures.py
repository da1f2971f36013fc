"""Distributions of one column: codes by shares, numbers by mixtures, and what is known of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

N_COMPONENTS = 10
"""Gaussians of a numeric column's mixture."""

_SMALLEST_DEVIATION = 0.01
_LOG_ROOT_TAU = 0.5 * math.log(2.0 * math.pi)


def mixture_parameters(mixture: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return log weights, means and deviations, each (..., component)."""
    weights, means, deviations = torch.split(mixture, N_COMPONENTS, -1)
    return weights.log_softmax(-1), means, F.softplus(deviations) + _SMALLEST_DEVIATION


def mixture_log_density(mixture: Tensor, values: Tensor) -> Tensor:
    """Compute the log density of numbers, of the shape of `values`."""
    weights, means, deviations = mixture_parameters(mixture)
    scores = (values.unsqueeze(-1) - means) / deviations
    terms = weights - 0.5 * scores.square() - deviations.log() - _LOG_ROOT_TAU
    return terms.logsumexp(-1)


def pick(shares: Tensor, places: Tensor) -> Tensor:
    """Choose the state that a place in the unit interval stands for, per row of (row, state)."""
    # Not beyond the last state that has any share, whatever rounding does.
    last = shares.shape[1] - 1 - (shares.flip(1) > 0.0).float().argmax(1)
    return torch.minimum((shares.cumsum(1) <= places.unsqueeze(1)).sum(1), last)


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of records that are completed.

    Parameters
    ----------
    codes : Tensor of int64, shape (record, column)
        -1 where nothing is known of a column.
    lower, upper : Tensor of float64, shape (record, numeric column)
        Between which the number lies where the code is 0.
    """

    codes: Tensor
    lower: Tensor
    upper: Tensor

    def give_code(self, column: int, logits: Tensor, codes: Tensor) -> Tensor:
        """Write a column's known codes into `codes`; return their log probabilities."""
        known = self.codes[:, column] >= 0
        own = self.codes[:, column].clamp_min(0)
        found = logits.double().log_softmax(-1).gather(1, own.unsqueeze(1))[:, 0]
        codes[:, column] = torch.where(known, own, codes[:, column])
        return torch.where(known, found, 0.0)

    def give_number(
        self,
        column: int,
        place: int,
        mixture: Tensor,
        codes: Tensor,
        values: Tensor,
        uniforms: tuple[Tensor, Tensor],
    ) -> Tensor:
        """Draw known numbers from within their intervals; return the intervals' log masses."""
        known = (self.codes[:, column] >= 0) & (codes[:, column] == 0)
        weights, means, deviations = mixture_parameters(mixture.double())
        ends = [
            torch.special.ndtr((own[:, place, None] - means) / deviations)
            for own in (self.lower, self.upper)
        ]
        masses = weights.exp() * (ends[1] - ends[0]).clamp_min(0.0)
        total = masses.sum(1)
        chosen = pick(masses / total.clamp_min(1e-300).unsqueeze(1), uniforms[0]).unsqueeze(1)
        low, high = (end.gather(1, chosen)[:, 0] for end in ends)
        share = low + uniforms[1].double() * (high - low)
        drawn = torch.special.ndtri(share.clamp(1e-12, 1.0 - 1e-12))
        drawn = means.gather(1, chosen)[:, 0] + deviations.gather(1, chosen)[:, 0] * drawn
        drawn = torch.minimum(torch.maximum(drawn, self.lower[:, place]), self.upper[:, place])
        values[:, place] = torch.where(known, drawn.to(values.dtype), values[:, place])
        return torch.where(known, total.clamp_min(1e-300).log(), 0.0)
