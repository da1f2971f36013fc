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
    return torch.bmm(upstream.mT, scores).view(-1).neg()


def slope_penalty(gradients: Tensor) -> tuple[Tensor, Tensor]:
    """Compute ``E[(||gradient||_2 - 1)^2]`` per replica, and its derivative.

    Parameters
    ----------
    gradients : Tensor, shape (replica, batch, feature)
        Input gradients of a critic.

    Returns
    -------
    penalty : Tensor, shape (replica,)
    derivative : Tensor, shape (replica, batch, feature)
        With respect to the gradients. Zero where a gradient vanishes, as automatic differentiation
        has it.

    Notes
    -----
    Source: the penalty of VFLGAN Eq. 3.
    """
    norms = torch.linalg.vector_norm(gradients, dim=-1, keepdim=True)
    excess = norms - 1.0
    scale = torch.div(excess, norms.clamp_min(_TINY)).mul_(2.0 / gradients.shape[1])
    return torch.bmm(excess.mT, excess).view(-1) / gradients.shape[1], gradients * scale
