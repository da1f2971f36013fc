"""VFLGAN's own mechanism: clip and perturb the gradient of a discriminator's first layer.

It bounds what the *noisy first-layer gradients* reveal. It does not protect the synthetic data:
every other layer is trained on raw records, and the generators learn through them (the paper's
Theorem 1 takes those layers for data-independent). It is here for reproduction and comparison.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from vflsynth.exceptions import PrivacyParameterError
from vflsynth.privacy.dpsgd import clip_factors
from vflsynth.privacy.releases import Grid


def clip_gradient(gradient: Sequence[Tensor], max_grad_norm: float) -> list[Tensor]:
    """Scale a whole-batch gradient, of parts (replica, ...), down to C, one norm per replica.

    A gradient that is not finite becomes zero: no clip factor could bound it. Source: VFLGAN §3.4,
    Eq. 20. The norm is that of the *batch* gradient, so the sensitivity is 2C whatever one record
    does to it, and the batch size does not help.
    """
    squares = [part.double().square().flatten(1).sum(1) for part in gradient]
    factor = clip_factors(torch.stack(squares).sum(0).sqrt(), max_grad_norm)  # (replica,)
    clipped = []
    for part in gradient:
        own = factor.view(-1, *[1] * (part.dim() - 1))
        scaled = part * own.to(part.dtype)
        clipped.append(torch.where(own > 0.0, scaled, torch.zeros_like(part)))  # 0 * inf is not 0
    return clipped


def perturb_gradient(
    gradient: Sequence[Tensor],
    max_grad_norm: float,
    noise_multiplier: float,
    *,
    rng: torch.Generator | None = None,
) -> list[Tensor]:
    """Clip a whole-batch gradient and add discrete Gaussian noise to every coordinate.

    The noise has standard deviation ``noise_multiplier * 2 * max_grad_norm``; `rng` is for tests
    only. Source: VFLGAN §3.4, Eq. 21, noise as printed. Departs from the reference code, whose
    red-wine scripts add one scalar to the whole matrix: then every projection orthogonal to the
    all-ones vector is released exactly.
    """
    grid = Grid.of(noise_multiplier * first_layer_sensitivity(max_grad_norm))
    return [grid.release_tensor(part, rng=rng) for part in clip_gradient(gradient, max_grad_norm)]


def first_layer_sensitivity(max_grad_norm: float) -> float:
    """L2 sensitivity of a clipped batch gradient when one record is replaced: 2C."""
    if not max_grad_norm > 0.0:
        raise PrivacyParameterError("max_grad_norm", max_grad_norm, "a positive number")
    return 2.0 * max_grad_norm
