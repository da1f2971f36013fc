"""DP-SGD's per-example clipping for networks of linear layers, without per-example gradients.

The gradient of one record in a linear layer is the outer product of the layer's input ``a`` and the
gradient ``d`` at its output, so its squared norm is ``|d|² (|a|² + 1)`` (Goodfellow 2015; "ghost
clipping", Li et al. 2022), the 1 standing for the bias. Two passes over the batch give the clipped
sum: one for norms, one matrix product per layer with the rows of ``d`` scaled.

A record's gradient may also be the sum of several such products: that of its score and, where the
gradient penalty is taken between real and fake records, that of the penalty, whose double backward
is an outer product in every layer too (see `vflsynth.networks.mlp`).

Only what depends on the real records is private in a Wasserstein critic. Fakes are computed from
released parameters, and so is a gradient penalty evaluated at fakes: both are added after the
noise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vflsynth.exceptions import PrivacyParameterError
from vflsynth.privacy.noise import gaussian_noise

# Norms are computed from products and sums in floating point; clipping to slightly less than C
# keeps rounding errors from pushing what is clipped above it.
_ROUNDING_MARGIN = 1e-5


@dataclass(frozen=True, slots=True)
class LayerTrace:
    """What one linear layer saw: enough for every per-example gradient of it.

    Parameters
    ----------
    inputs : Tensor, shape (replica, batch, in)
    output_gradients : Tensor, shape (replica, batch, out)
        Gradient of each record's own score with respect to the layer's outputs.
    has_bias : bool
    """

    inputs: Tensor
    output_gradients: Tensor
    has_bias: bool


def per_example_norms(*terms: Sequence[LayerTrace]) -> Tensor:
    """L2 norm of every record's gradient over all parameters of the traced layers.

    Parameters
    ----------
    *terms : sequence of LayerTrace
        What a record's gradient is the sum of; in each term every layer once, in the same order.
        Norms of layers add up in squares.

    Returns
    -------
    Tensor, shape (replica, batch)
        In float64.

    Notes
    -----
    ``|Σ_t a_t d_tᵀ|² = Σ_ts (a_t · a_s)(d_t · d_s)``, where ``a`` has a further entry for the bias.
    """
    squares = []
    for layer in zip(*terms, strict=True):
        square = torch.zeros(layer[0].inputs.shape[:2], dtype=torch.float64)
        square = square.to(layer[0].inputs.device)
        for one, other in itertools.combinations_with_replacement(layer, 2):
            inputs = (one.inputs.double() * other.inputs.double()).sum(-1)
            inputs = inputs + float(one.has_bias and other.has_bias)
            outputs = (one.output_gradients.double() * other.output_gradients.double()).sum(-1)
            square = square + (1.0 if one is other else 2.0) * inputs * outputs
        squares.append(square)
    return torch.stack(squares).sum(0).clamp_min(0.0).sqrt()


def clip_factors(norms: Tensor, max_grad_norm: float) -> Tensor:
    """Factor that brings each gradient to at most the given norm.

    Parameters
    ----------
    norms : Tensor, of any shape
        In float64, of a record's gradient or of whatever else is clipped as one vector.
    max_grad_norm : float
        C, in gradient units.

    Returns
    -------
    Tensor, shaped like ``norms``
        In [0, 1]; 0 where the norm is not finite, so that a record that overflows contributes
        nothing.

    Raises
    ------
    PrivacyParameterError
        If C is not positive.

    Notes
    -----
    Source: Abadi et al. 2016, Algorithm 1: ``1 / max(1, |g| / C)``.
    """
    if not max_grad_norm > 0.0:
        raise PrivacyParameterError("max_grad_norm", max_grad_norm, "a positive number")
    factors = 1.0 / (norms * (1.0 + _ROUNDING_MARGIN) / max_grad_norm).clamp_min(1.0)
    return torch.where(norms.isfinite(), factors, torch.zeros_like(factors))


def clipped_gradient_sum(
    traces: Iterable[LayerTrace], factors: Tensor
) -> list[tuple[Tensor, Tensor | None]]:
    """Sum of the clipped per-example gradients.

    Parameters
    ----------
    traces : iterable of LayerTrace
    factors : Tensor, shape (replica, batch)
        From `clip_factors`; multiply by 0 the rows that only pad a Poisson batch.

    Returns
    -------
    list of (weight, bias)
        Shapes (replica, in, out) and (replica, 1, out), or None without bias; one pair per layer.
    """
    kept = (factors > 0.0).unsqueeze(-1)
    sums: list[tuple[Tensor, Tensor | None]] = []
    for trace in traces:
        gradients = trace.output_gradients * factors.unsqueeze(-1).to(trace.output_gradients.dtype)
        # 0 * inf is not 0: what is left out must be left out on both sides of the product.
        gradients = torch.where(kept, gradients, torch.zeros_like(gradients))
        inputs = torch.where(kept, trace.inputs, torch.zeros_like(trace.inputs))
        bias = gradients.sum(1, keepdim=True) if trace.has_bias else None
        sums.append((torch.bmm(inputs.mT, gradients), bias))
    return sums


def joint_sensitivity(max_grad_norms: Sequence[float]) -> float:
    """L2 sensitivity of several clipped sums over one batch, when a record is added or removed.

    Parameters
    ----------
    max_grad_norms : sequence of float
        Clipping bound of each block, for example one per party and one for the shared
        discriminator.

    Returns
    -------
    float
        ``sqrt(sum(C_i²))``. Every block needs noise in proportion to it.
    """
    return math.hypot(*max_grad_norms)


def noisy_mean(
    gradient_sum: Tensor,
    *,
    sensitivity: float,
    noise_multiplier: float,
    expected_batch_size: float,
    rng: torch.Generator | None = None,
) -> Tensor:
    """Add Gaussian noise to a clipped sum and divide by the expected batch size.

    Parameters
    ----------
    gradient_sum : Tensor
        From `clipped_gradient_sum`.
    sensitivity : float
        Of all blocks together, from `joint_sensitivity`.
    noise_multiplier : float
        Noise standard deviation over ``sensitivity``.
    expected_batch_size : float
        Sample rate times a public number of records. The actual size of a Poisson batch is private.
    rng : torch.Generator, optional
        For tests only; see `gaussian_noise`.

    Returns
    -------
    Tensor, shaped like ``gradient_sum``

    Notes
    -----
    Source: Abadi et al. 2016, Algorithm 1.
    """
    noise = gaussian_noise(
        gradient_sum.shape,
        noise_multiplier * sensitivity,
        rng=rng,
        dtype=gradient_sum.dtype,
        device=gradient_sum.device,
    )
    return (gradient_sum + noise) / expected_batch_size
