"""Distributions of one column: codes by shares, numbers by mixtures, and what is known of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from vflsynth.networks.softmax import log_softmax

N_COMPONENTS = 10
"""Gaussians of a numeric column's mixture."""

IMPOSSIBLE = -1e9
"""Logit of codes that a column does not have."""

_SMALLEST_DEVIATION = 0.01
_LOG_ROOT_TAU = 0.5 * math.log(2.0 * math.pi)


def mixture_parameters(mixture: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return log weights, means and deviations, each (..., component)."""
    weights, means, deviations = torch.split(mixture, N_COMPONENTS, -1)
    return log_softmax(weights), means, F.softplus(deviations) + _SMALLEST_DEVIATION


def mixture_log_density(mixture: Tensor, values: Tensor) -> Tensor:
    """Compute the log density of numbers, of the shape of `values`."""
    weights, means, deviations = mixture_parameters(mixture)
    scores = (values.unsqueeze(-1) - means) / deviations
    terms = weights - 0.5 * scores.square() - deviations.log() - _LOG_ROOT_TAU
    return terms.logsumexp(-1)


def pick(shares: Tensor, places: Tensor) -> Tensor:
    """Choose the states that places in the unit interval stand for.

    Parameters
    ----------
    shares : Tensor, shape (row or 1, state)
    places : Tensor, shape (row,)

    Returns
    -------
    int64 Tensor, shape (row,)
    """
    # Not beyond the last state that has any share, whatever rounding does.
    last = shares.shape[1] - 1 - (shares.flip(1) > 0.0).float().argmax(1)
    levels = places.unsqueeze(int(len(shares) != 1)).contiguous()
    found = torch.searchsorted(shares.cumsum(1), levels, right=True).flatten()
    return torch.minimum(found, last)


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of records that are completed.

    Parameters
    ----------
    allowed : sequence of Tensor of bool, shape (record or 1, code), or None
        By column, which codes the records may have; None where nothing is known.
    lower, upper : Tensor of float64, shape (record or 1, numeric column)
        Between which the number lies where the code is 0.
    """

    allowed: Sequence[Tensor | None]
    lower: Tensor
    upper: Tensor

    def restrict(
        self, column: int, place: int | None, logits: Tensor, mixture: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Leave the logits of what a column may be.

        Parameters
        ----------
        column : int
        place : int or None
            Of its number, if it has one.
        logits : Tensor, shape (record, code)
        mixture : Tensor or None, shape (record, 3 * component)

        Returns
        -------
        logits : Tensor of float64, shape (record, code)
            Where the code is 0, times the probability that the number lies where it may.
        log_mass : Tensor of float64, shape (record,)
            Log probability of all that the column may be.
        """
        logs = log_softmax(logits.double())
        logs = logs.masked_fill(logits <= 0.5 * IMPOSSIBLE, -torch.inf)
        if (allowed := self.allowed[column]) is not None:
            allowed = torch.nn.functional.pad(allowed, (0, logs.shape[1] - allowed.shape[1]))
            logs = logs.masked_fill(~allowed, -torch.inf)
        if place is not None and mixture is not None and self._bounded(place):
            inside = self._masses(place, mixture)[0].sum(1).log()
            logs = torch.cat([logs[:, :1] + inside.unsqueeze(1), logs[:, 1:]], 1)
        return logs, logs.logsumexp(1)

    def number(self, place: int, mixture: Tensor, uniforms: tuple[Tensor, Tensor]) -> Tensor | None:
        """Draw numbers from within their intervals, (record,); None if there is no such bound.

        Parameters
        ----------
        place : int
        mixture : Tensor, shape (record, 3 * component)
        uniforms : tuple of Tensor, shape (record,)
            Choose components, and places in them.
        """
        if not self._bounded(place):
            return None
        masses, ends = self._masses(place, mixture)
        _, means, deviations = mixture_parameters(mixture.double())
        total = masses.sum(1, keepdim=True).clamp_min(1e-300)
        chosen = pick(masses / total, uniforms[0]).unsqueeze(1)
        low, high = (end.gather(1, chosen)[:, 0] for end in ends)
        share = low + uniforms[1].double() * (high - low)
        drawn = torch.special.ndtri(share.clamp(1e-12, 1.0 - 1e-12))
        drawn = means.gather(1, chosen)[:, 0] + deviations.gather(1, chosen)[:, 0] * drawn
        return torch.minimum(torch.maximum(drawn, self.lower[:, place]), self.upper[:, place])

    def _bounded(self, place: int) -> bool:
        return bool((self.lower[:, place] > -torch.inf).any()) or bool(
            (self.upper[:, place] < torch.inf).any()
        )

    def _masses(self, place: int, mixture: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Probability of every component inside the interval, and both ends' shares of it."""
        weights, means, deviations = mixture_parameters(mixture.double())
        ends = [
            torch.special.ndtr((own[:, place, None] - means) / deviations)
            for own in (self.lower, self.upper)
        ]
        return weights.exp() * (ends[1] - ends[0]).clamp_min(0.0), ends
