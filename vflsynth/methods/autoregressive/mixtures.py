"""Distributions of one column: codes by shares, numbers by mixtures, and what is known of them."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from vflsynth.models.samplers import Known, pick
from vflsynth.networks.layers import log_softmax, softmax

N_COMPONENTS = 10
"""Gaussians of a numeric column's mixture."""

IMPOSSIBLE = -1e9
"""Logit of codes that a column does not have."""

_SMALLEST_DEVIATION = 0.01
_EDGE = 2.0**-24  # no number is drawn further than 5.3 deviations from a component's mean
_LOG_ROOT_TAU = 0.5 * math.log(2.0 * math.pi)


def mixture_parameters(mixture: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return log weights, means and deviations, each (..., component)."""
    weights, means, deviations = torch.split(mixture, N_COMPONENTS, -1)
    return log_softmax(weights), means, F.softplus(deviations) + _SMALLEST_DEVIATION


def moved(mixture: Tensor, by: Tensor) -> Tensor:
    """Add to the means of mixtures (..., 3 * component)."""
    weights, means, deviations = torch.split(mixture, N_COMPONENTS, -1)
    return torch.cat([weights, means + by, deviations], -1)


def mixture_log_density(mixture: Tensor, values: Tensor) -> Tensor:
    """Compute the log density of numbers, of the shape of `values`."""
    weights, means, deviations = mixture_parameters(mixture)
    scores = (values.unsqueeze(-1) - means) / deviations
    terms = weights - 0.5 * scores.square() - deviations.log() - _LOG_ROOT_TAU
    return terms.logsumexp(-1)


def draw_number(mixture: Tensor, uniforms: Tensor) -> Tensor:
    """Draw from mixtures (record, 3 * component) by uniforms, (record,)."""
    weights, means, deviations = torch.split(mixture, N_COMPONENTS, -1)
    chosen, inside = _component(softmax(weights), uniforms)
    deviation = F.softplus(deviations.gather(1, chosen)) + _SMALLEST_DEVIATION
    drawn: Tensor = means.gather(1, chosen) + deviation * torch.special.ndtri(inside)
    return drawn[:, 0].to(mixture.dtype)


def _component(shares: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Choose components by shares (record, component), and places in them, both (record, 1).

    A uniform number chooses one, and where it lies in the one's share is uniform again.
    """
    shares, places = shares.double(), uniforms.double()
    chosen = pick(shares, places).unsqueeze(1)
    beyond = shares.cumsum(1).gather(1, chosen) - places.unsqueeze(1)
    inside = 1.0 - beyond / shares.gather(1, chosen).clamp_min(1e-300)
    return chosen, inside.clamp(_EDGE, 1.0 - _EDGE)


def restrict(
    known: Known, column: int, place: int | None, logits: Tensor, mixture: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Leave the logits of what a column, whose number has a place or none, may be.

    Returns float64 logits (record, code), where the code is 0 times the probability that the number
    lies where it may, and the log probability (record,) of all that the column may be.
    """
    logs = log_softmax(logits.double())
    logs = logs.masked_fill(logits <= 0.5 * IMPOSSIBLE, -torch.inf)
    if (allowed := known.allowed[column]) is not None:
        allowed = torch.nn.functional.pad(allowed, (0, logs.shape[1] - allowed.shape[1]))
        logs = logs.masked_fill(~allowed, -torch.inf)
    if place is not None and mixture is not None and known.bounded(place):
        inside = _masses(known, place, mixture)[0].sum(1).log()
        logs = torch.cat([logs[:, :1] + inside.unsqueeze(1), logs[:, 1:]], 1)
    return logs, logs.logsumexp(1)


def known_number(known: Known, place: int, mixture: Tensor, uniforms: Tensor) -> Tensor | None:
    """Draw numbers from within their intervals, (record,); None if there is no such bound."""
    if not known.bounded(place):
        return None
    masses, ends = _masses(known, place, mixture)
    _, means, deviations = mixture_parameters(mixture.double())
    total = masses.sum(1, keepdim=True).clamp_min(1e-300)
    chosen, inside = _component(masses / total, uniforms)
    low, high = (end.gather(1, chosen)[:, 0] for end in ends)
    share = low + inside[:, 0] * (high - low)
    drawn = torch.special.ndtri(share.clamp(1e-12, 1.0 - 1e-12))
    drawn = means.gather(1, chosen)[:, 0] + deviations.gather(1, chosen)[:, 0] * drawn
    return torch.minimum(torch.maximum(drawn, known.lower[:, place]), known.upper[:, place])


def _masses(known: Known, place: int, mixture: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Probability of every component inside the interval, and both ends' shares of it."""
    weights, means, deviations = mixture_parameters(mixture.double())
    ends = [
        torch.special.ndtr((own[:, place, None] - means) / deviations)
        for own in (known.lower, known.upper)
    ]
    return weights.exp() * (ends[1] - ends[0]).clamp_min(0.0), ends
