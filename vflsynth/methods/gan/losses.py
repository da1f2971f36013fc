"""Losses of WGAN-GP and their derivatives, one value per replica."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

_TINY = torch.finfo(torch.float32).tiny

_FLAT = 1e-8
"""Squared slopes below this one have no direction: rounding would make it an arbitrary one."""


@functools.lru_cache(maxsize=16)
def critic_upstream(
    n_replicas: int, batch: int, device: torch.device, dtype: torch.dtype
) -> Tensor:
    """Make the derivative of a critic's loss ``E[D(x~)] - E[D(x)]`` with respect to its scores.

    Returns
    -------
    Tensor, shape (replica, 2 * batch, 1)
        -1/batch for the real records, 1/batch for the fake ones that follow. Shared between
        calls: not to be changed in place.
    """
    upstream = torch.full((n_replicas, 2 * batch, 1), 1.0 / batch, device=device, dtype=dtype)
    upstream[:, :batch] *= -1.0
    return upstream


def wasserstein_estimate(scores: Tensor, upstream: Tensor) -> Tensor:
    """Estimate ``E[D(x)] - E[D(x~)]`` per replica; the critic's loss is its negative.

    Parameters
    ----------
    scores : Tensor, shape (replica, 2 * batch, 1)
        Of real records, then of fake ones.
    upstream : Tensor, shape (replica, 2 * batch, 1)
        From `critic_upstream`.

    Returns
    -------
    Tensor, shape (replica,)

    Notes
    -----
    Source: VFLGAN Eq. 3 and the definition of L below Eq. 9.
    """
    zero, _ = _constants(scores.device, scores.dtype)
    return torch.baddbmm(zero, upstream.mT, scores, beta=0, alpha=-1).view(-1)


def slope_penalty(
    gradients: Tensor, weight: float, others: Tensor | None = None, n_batches: int = 1
) -> tuple[Tensor, Tensor]:
    """Compute ``E[(||gradient||_2 - 1)^2]`` per replica, and `weight` times its derivative.

    Parameters
    ----------
    gradients : Tensor, shape (replica, batch, feature)
        Input gradients of a critic.
    weight : float
    others : Tensor, shape (replica, batch, 1), optional
        Squared norms of the gradients for other parties' inputs, which count in the norm.
    n_batches : int, default=1
        How many batches there are one after the other, each with a mean of its own.

    Returns
    -------
    penalty : Tensor, shape (replica,)
        Without the weight; of the first batch.
    derivative : Tensor, shape (replica, batch, feature)
        Of the weighted penalty, with respect to the gradients. Zero where a gradient vanishes, as
        automatic differentiation has it.

    Notes
    -----
    Source: the penalty of VFLGAN Eq. 3. An operation with a Python number first makes a tensor of
    it, which takes as long as the operation: factors go where the operation has a place for them.
    """
    batch = gradients.shape[1] // n_batches
    zero, one = _constants(gradients.device, gradients.dtype)
    norms = torch.linalg.vector_norm(gradients, dim=-1, keepdim=True)
    if others is not None:
        norms = torch.addcmul(others, norms, norms).sqrt_()
    excess = norms - one
    scale = torch.addcdiv(zero, excess, norms.clamp_min_(_TINY), value=2.0 * weight / batch)
    first = excess if n_batches == 1 else excess[:, :batch]
    penalty = torch.baddbmm(zero, first.mT, first, beta=0, alpha=1.0 / batch).view(-1)
    return penalty, gradients * scale


def steepest(slopes: Tensor, upstream: Tensor) -> tuple[Tensor, Tensor]:
    """Compute squared slopes, and where features go by a step of length one along each slope.

    Parameters
    ----------
    slopes : Tensor, shape (replica, batch, feature)
        ``J J^T upstream``, J being the derivative of the features with respect to the records.
    upstream : Tensor, shape (replica, batch, feature)
        Derivative of the score with respect to the features, so that its slope at the record is
        ``J^T upstream``.

    Returns
    -------
    squared : Tensor, shape (replica, batch, 1)
    directions : Tensor, shape (replica, batch, feature)
        Zero where there is next to no slope.
    """
    squared = (slopes * upstream).sum(-1, keepdim=True).clamp_min_(0.0)
    return squared, torch.where(squared > _FLAT, slopes * squared.rsqrt(), 0.0)


def directional_penalty(
    gradients: Tensor, directions: Tensor, weight: float
) -> tuple[Tensor, Tensor]:
    """Compute ``E[(<gradient, direction> - 1)^2]`` and `weight` times its derivative.

    Parameters
    ----------
    gradients, directions : Tensor, shape (replica, batch, feature)
    weight : float

    Returns
    -------
    penalty, derivative : Tensor
        As of `slope_penalty`, which they are along directions that `steepest` found at these
        gradients.
    """
    excess = (gradients * directions).sum(-1, keepdim=True) - 1.0
    return excess.square().mean((1, 2)), directions * excess.mul(2.0 * weight / excess.shape[1])


@functools.lru_cache(maxsize=16)
def _constants(device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Zero and one."""
    return torch.zeros((), device=device, dtype=dtype), torch.ones((), device=device, dtype=dtype)
