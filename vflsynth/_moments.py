"""Means, covariances and the Fréchet distance between them, batched over leading dimensions."""

from __future__ import annotations

import torch
from torch import Tensor


def frechet_distance_of_moments(
    mean: Tensor, covariance: Tensor, other_mean: Tensor, other_covariance: Tensor
) -> Tensor:
    r"""Fréchet distance between two Gaussians with the given moments, float64 of shape (...).

    Means, (..., feature), are in standardised units; leading dimensions broadcast. Covariances,
    (..., feature, feature), may be singular.

    Source: VFLGAN §5.1.3, Eq. 23.

    Departs from the reference code, which takes the real part of ``scipy.linalg.sqrtm`` of the
    plain product: one-hot blocks are collinear, the product is singular and ``sqrtm`` may return
    NaN or complex numbers. The trace of the root is computed from eigenvalues of the symmetric
    :math:`V^{1/2} \tilde V V^{1/2}` instead, with round-off below zero cut off, so the result is
    always finite. ``tests/equations/test_frechet_distance.py`` pins the agreement.
    """
    mean, covariance = mean.double(), covariance.double()
    other_mean, other_covariance = other_mean.double(), other_covariance.double()
    eigenvalues, vectors = torch.linalg.eigh(covariance)
    root = (vectors * eigenvalues.clamp_min(0.0).sqrt().unsqueeze(-2)) @ vectors.mT
    product = root @ other_covariance @ root
    product = (product + product.mT) / 2
    trace_of_root = torch.linalg.eigvalsh(product).clamp_min(0.0).sqrt().sum(-1)
    traces = torch.diagonal(covariance, dim1=-2, dim2=-1).sum(-1) + torch.diagonal(
        other_covariance, dim1=-2, dim2=-1
    ).sum(-1)
    distance = (mean - other_mean).square().sum(-1) + traces - 2.0 * trace_of_root
    result: Tensor = distance.clamp_min(0.0)
    return result
