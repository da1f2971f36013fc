"""Losses of WGAN-GP and their derivatives, one value per replica."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

_TINY = torch.finfo(torch.float32).tiny


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


def slope_penalty(gradients: Tensor, weight: float) -> tuple[Tensor, Tensor]:
    """Compute ``E[(||gradient||_2 - 1)^2]`` per replica, and `weight` times its derivative.

    Parameters
    ----------
    gradients : Tensor, shape (replica, batch, feature)
        Input gradients of a critic.
    weight : float

    Returns
    -------
    penalty : Tensor, shape (replica,)
        Without the weight.
    derivative : Tensor, shape (replica, batch, feature)
        Of the weighted penalty, with respect to the gradients. Zero where a gradient vanishes, as
        automatic differentiation has it.

    Notes
    -----
    Source: the penalty of VFLGAN Eq. 3. An operation with a Python number first makes a tensor of
    it, which takes as long as the operation: factors go where the operation has a place for them.
    """
    batch = gradients.shape[1]
    zero, one = _constants(gradients.device, gradients.dtype)
    norms = torch.linalg.vector_norm(gradients, dim=-1, keepdim=True)
    excess = norms - one
    scale = torch.addcdiv(zero, excess, norms.clamp_min_(_TINY), value=2.0 * weight / batch)
    penalty = torch.baddbmm(zero, excess.mT, excess, beta=0, alpha=1.0 / batch).view(-1)
    return penalty, gradients * scale


@functools.lru_cache(maxsize=16)
def _constants(device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Zero and one."""
    return torch.zeros((), device=device, dtype=dtype), torch.ones((), device=device, dtype=dtype)
