"""DP-SGD's per-example clipping for networks of linear layers, without per-example gradients.

The gradient of one record in a linear layer is the outer product of the layer's input ``a`` and the
gradient ``d`` at its output, so its squared norm is ``|d|² (|a|² + 1)`` (Goodfellow 2015; "ghost
clipping", Li et al. 2022), the 1 standing for the bias. Two passes over the batch give the clipped
sum: one for norms, one matrix product per layer with the rows of ``d`` scaled.

A record's gradient may also be the sum of several such products. That of DPSGD-GAN's pairs of a
real and a fake record has the scores of both, and the gradient penalty between them, whose double
backward is an outer product in every layer too (see `vflsynth.networks.layers`).

What is published is a sum of whole numbers (`vflsynth.privacy.releases`). A clipped gradient stays
an outer product when it is rounded: both factors are rounded to whole numbers of so few digits that
doubles hold their products and the sum over a batch exactly, in whatever order they are added.

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
from vflsynth.privacy.releases import Grid

# Norms are computed from products and sums in floating point; clipping to slightly less than C
# keeps rounding errors from pushing what is clipped above it.
_ROUNDING_MARGIN = 1e-5

# Steps of gradients are finer than others', as two factors share the digits, but at most so many
# make up the clipping bound.
_RESOLUTION, _MOST_DIGITS = 34, 40

# Doubles hold whole numbers up to 2**53.
_EXACT = 2.0**53

# Several outer products may cancel, and then roundings of each count for more: their sum is clipped
# to so much less. What is longer on the grid all the same is left out, and so is what has a term
# that is so many times longer than the bound.
_SUM_MARGIN, _LONGEST_TERM = 2.0**-10, 64.0
_NORM_MARGIN = 2.0**-38  # relative error of a squared norm that is computed in doubles: 2**-43


@dataclass(frozen=True, slots=True)
class LayerTrace:
    """What one linear layer saw: enough for every per-example gradient of it.

    `output_gradients`, (replica, batch, out), are of each record's own score with respect to the
    layer's outputs; `inputs` have shape (replica, batch, in).
    """

    inputs: Tensor
    output_gradients: Tensor
    has_bias: bool


def per_example_norms(*terms: Sequence[LayerTrace]) -> Tensor:
    """L2 norm of every record's gradient over all traced layers, float64 (replica, batch).

    A gradient is the sum of `terms`, in each of which every layer is once, in the same order:
    ``|Σ_t a_t d_tᵀ|² = Σ_ts (a_t · a_s)(d_t · d_s)``, where ``a`` has a further entry for the bias.
    Norms of layers add up in squares.
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
    """Factor in [0, 1] that brings each gradient, of a norm in float64, to at most C.

    0 where the norm is not finite, so that a record that overflows contributes nothing. Source:
    Abadi et al. 2016, Algorithm 1: ``1 / max(1, |g| / C)``.
    """
    if not max_grad_norm > 0.0:
        raise PrivacyParameterError("max_grad_norm", max_grad_norm, "a positive number")
    factors = 1.0 / (norms * (1.0 + _ROUNDING_MARGIN) / max_grad_norm).clamp_min(1.0)
    return torch.where(norms.isfinite(), factors, torch.zeros_like(factors))


def scaled(gradients: Tensor, factors: Tensor) -> Tensor:
    """Multiply by clip factors, which broadcast; what they leave out is 0, as 0 * inf is not."""
    return torch.where(factors > 0.0, gradients * factors.to(gradients.dtype), 0.0)


def clipped_gradient_sum(
    traces: Iterable[LayerTrace], factors: Tensor
) -> list[tuple[Tensor, Tensor | None]]:
    """Sum of the clipped per-example gradients of fakes, in floating point: not for publication.

    `factors`, shape (replica, batch), are 0 for rows that do not count. One pair per layer, of
    shapes (replica, in, out) and (replica, 1, out), or None without bias.
    """
    factors = factors.unsqueeze(-1)
    sums: list[tuple[Tensor, Tensor | None]] = []
    for trace in traces:
        # What is left out must be left out on both sides of the product.
        gradients = scaled(trace.output_gradients, factors)
        inputs = torch.where(factors > 0.0, trace.inputs, 0.0)
        bias = gradients.sum(1, keepdim=True) if trace.has_bias else None
        sums.append((torch.bmm(inputs.mT, gradients), bias))
    return sums


def gradient_grid(noise_std: float, max_grad_norm: float) -> Grid:
    """Choose the grid of a sum of gradients clipped to C, by the noise of every coordinate.

    PrivacyParameterError if there is next to no noise.
    """
    digits = _MOST_DIGITS - math.frexp(max_grad_norm / noise_std)[1]
    if digits < 1:
        raise PrivacyParameterError("noise_multiplier", noise_std / max_grad_norm, "larger")
    return Grid.of(noise_std, min(_RESOLUTION, digits))


def rounded_gradient_sum(
    terms: Sequence[Sequence[LayerTrace]],
    max_grad_norm: float,
    grid: Grid,
    counted: Tensor | None = None,
) -> list[tuple[Tensor, Tensor | None]]:
    """Sum clipped per-example gradients, each rounded to a grid before: exact int64 steps.

    A record's gradient is the sum of `terms`, in each of which every layer is once, in the same
    order; on the grid, of `gradient_grid`, none is longer than C. `counted`, bool of shape
    (replica, batch), says which rows are records. The result has the shapes of
    `clipped_gradient_sum`.
    """
    bound = max_grad_norm * (1.0 - _SUM_MARGIN if len(terms) > 1 else 1.0)
    factors = clip_factors(per_example_norms(*terms), bound)
    if counted is not None:
        factors = factors * counted
    longest = max_grad_norm / grid.step
    digits = max(1, math.frexp(longest)[1] // 2)
    layers = [
        [_rounded_factors(trace, factors, digits, grid) for trace in layer]
        for layer in zip(*terms, strict=True)
    ]
    kept = _within(layers, longest).unsqueeze(-1)
    # No entry of an outer product is larger than its norm.
    rows = int(_EXACT / (_LONGEST_TERM * max(1.0, longest)))
    sums: list[tuple[Tensor, Tensor | None]] = []
    for layer, traces in zip(layers, zip(*terms)):
        total = layer[0][0].new_zeros((), dtype=torch.int64)
        for pair in layer:
            sides = [torch.split(torch.where(kept, side, 0.0), rows, 1) for side in pair]
            for own, other in zip(*sides):
                total = total + torch.bmm(own.mT, other).long()
        has_bias = any(trace.has_bias for trace in traces)
        sums.append((total[:, :-1], total[:, -1:] if has_bias else None))
    return sums


def _rounded_factors(
    trace: LayerTrace, factors: Tensor, digits: int, grid: Grid
) -> tuple[Tensor, Tensor]:
    """Whole numbers (in doubles) whose outer product is a clipped gradient, nowhere further from 0.

    Inputs, with a 1 for the bias, or a 0 if there is none, have so many binary digits; whatever
    power of two that takes is given back to the gradients.
    """
    inputs = torch.nn.functional.pad(trace.inputs.double(), (0, 1), value=float(trace.has_bias))
    # What is left out must be left out on both sides of the product.
    factors = factors.unsqueeze(-1)
    gradients = scaled(trace.output_gradients.double(), factors)
    inputs = torch.where(factors > 0.0, inputs, 0.0)
    _, exponent = torch.frexp(inputs.abs().amax(-1, keepdim=True))
    exponent = exponent.double()  # powers of two are then doubles too
    inputs = torch.ldexp(inputs, digits - exponent)
    gradients = torch.ldexp(gradients, exponent - digits - grid.exponent)
    return inputs.trunc(), gradients.trunc()


def _within(layers: Sequence[Sequence[tuple[Tensor, Tensor]]], longest: float) -> Tensor:
    """Which records' gradients are not longer than so many steps, rounding errors included."""
    square = torch.zeros_like(layers[0][0][0][..., 0])
    error, within = square, torch.ones_like(square, dtype=torch.bool)
    for layer in layers:
        for (x, dx), (y, dy) in itertools.product(layer, repeat=2):
            square = square + (x * y).sum(-1) * (dx * dy).sum(-1)
        norms = [
            torch.linalg.vector_norm(x, dim=-1) * torch.linalg.vector_norm(dx, dim=-1)
            for x, dx in layer
        ]
        error = error + _NORM_MARGIN * torch.stack(norms).sum(0).square()
        within = within & (torch.stack(norms).amax(0) <= 0.99 * _LONGEST_TERM * longest)
    return within & (square + error <= longest**2)


def joint_sensitivity(max_grad_norms: Sequence[float]) -> float:
    """L2 sensitivity of several clipped sums over one batch, when a record is added or removed.

    It is ``sqrt(sum(C_i²))``, of one block per party, for example, and one of the shared
    discriminator; each needs noise in proportion to it.
    """
    return math.hypot(*max_grad_norms)


def noisy_mean(
    gradient_sum: Tensor,
    grid: Grid,
    *,
    expected_batch_size: float,
    rng: torch.Generator | None = None,
) -> Tensor:
    """Publish a clipped sum with discrete Gaussian noise, and divide by the expected batch size.

    That is the sample rate times a public number of records: the actual size of a Poisson batch is
    private. The grid's noise is in proportion to the `joint_sensitivity` of all blocks. Float64, on
    the CPU; `rng` is for tests only. Source: Abadi et al. 2016, Algorithm 1.
    """
    noisy = grid.release(gradient_sum.cpu().numpy(), rng=rng)
    return torch.tensor(noisy.values) / expected_batch_size
