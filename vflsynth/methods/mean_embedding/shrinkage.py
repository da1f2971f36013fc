"""What a noisy mean embedding says about the table, once its errors are taken back.

The release is wrong twice over: by the noise, and because it is the mean of few records. Generators
that are free enough learn both errors as if they were relations. The noise is the same in all
directions of the feature space, but what tables can be is not: the features of records vary much in
some directions and next to not at all in most. `shrink_mean_embedding` estimates, direction by
direction, how much of the release is error, and moves it that far towards independent columns,
whose distribution follows from the published histograms. All of this is post-processing.

Shrinkage has a price. It mixes a few independent records into the table, which generators do learn,
while of the noise they learn only what looks like a table. So a release that stands far above its
errors is left as it is.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from vflsynth.methods.mean_embedding.embedding import random_features

_BLOCK = 4096  # records whose features are in memory at once

# How fast relations fade from the directions in which features vary most to the others: 1 is that
# of a density which is equally rough everywhere, larger is smoother.
_EXPONENTS = np.arange(0.5, 3.01, 0.25)

# A release that is this many times its errors is left alone: the constant of block thresholding.
_SIGNIFICANT = 4.505

# Features have norm 1, so two mean embeddings differ by at most 2.
_LOG_ENERGIES = (np.log(1e-12), np.log(4.0))

_FloatArray = npt.NDArray[np.float64]


def feature_moments(projections: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and covariance, in float64, of the random features of records' summed projections.

    Divided by the number of records. Products are computed in the projections' type.
    """
    n_records, half = projections.shape
    mean = torch.zeros(2 * half, dtype=torch.float64)
    second = torch.zeros(2 * half, 2 * half, dtype=torch.float64)
    for rows in torch.split(projections.cpu(), _BLOCK):
        features = random_features(rows)
        mean += features.double().sum(0)
        second += features.T @ features
    mean /= n_records
    return mean, second / n_records - torch.outer(mean, mean)


def shrink_mean_embedding(
    released: Tensor, mean: Tensor, covariance: Tensor, *, noise_std: float, n_records: float
) -> Tensor:
    """Estimate a mean embedding from its noisy release: the posterior mean under independence.

    Let u and C be mean and covariance of the features were all columns independent (of
    `feature_moments`), v_i and λ_i the eigenvectors and eigenvalues of C, and ``d_i = v_i ·
    (released - u)``. The model is

    ``d_i ~ N(0, s λ_i^a / Σ_j λ_j^a + e_i)`` with ``e_i = λ_i / n + (noise_std / n)²``,

    for relations between columns and, e_i, for having n records only and for the noise of the sum.
    Energy s and exponent a are those of the largest likelihood. With f_i the first term's share of
    the variance and ``r = Σ_i d_i² / Σ_i e_i``, the estimate is ``u + Σ_i (w + (1 - w) f_i) d_i
    v_i``, where w rises from 0, at three standard deviations above the 1 that r has by errors
    alone, to 1 at 4.505.

    Source: f is that of Bayesian learning of kernel embeddings (Flaxman et al. 2016) and spectral
    kernel mean shrinkage (Muandet et al. 2016), with known noise and towards independence instead
    of zero; w is firm shrinkage (Gao and Bruce 1997) of the whole, with the constant of Cai (1999).
    Not in DP-MERF. Reads releases only.
    """
    eigenvalues, directions = torch.linalg.eigh(covariance.double().cpu())
    coordinates = directions.T @ (released.double().cpu() - mean)
    kept = signal_shares(
        coordinates.numpy(),
        eigenvalues.numpy(),
        noise_variance=(noise_std / n_records) ** 2,
        n_records=n_records,
    )
    estimate: Tensor = mean + directions @ (torch.tensor(kept) * coordinates)
    return estimate


def signal_shares(
    difference: _FloatArray, eigenvalues: _FloatArray, *, noise_variance: float, n_records: float
) -> _FloatArray:
    """Return ``w + (1 - w) f_i`` of `shrink_mean_embedding`, from 0 to 1, shape (n_features,)."""
    # Rounding leaves tiny eigenvalues, even negative ones; a variance of 0 has no likelihood.
    eigenvalues = np.maximum(eigenvalues, 1e-12)
    errors = eigenvalues / n_records + noise_variance
    squares = difference**2

    def misfit(signal: _FloatArray | float) -> float:
        variances = signal + errors
        return float(np.sum(np.log(variances) + squares / variances))

    best, least = np.zeros_like(errors), misfit(0.0)
    for exponent in _EXPONENTS:
        shape = (eigenvalues / eigenvalues.max()) ** exponent
        shape /= shape.sum()
        found = minimize_scalar(
            lambda energy, shape=shape: misfit(np.exp(energy) * shape),
            bounds=_LOG_ENERGIES,
            method="bounded",
        )
        if found.fun < least:
            best, least = np.exp(found.x) * shape, found.fun
    kept = _share_left_alone(squares, errors)
    shares: _FloatArray = kept + (1.0 - kept) * best / (best + errors)
    return shares


def _share_left_alone(squares: _FloatArray, errors: _FloatArray) -> float:
    """Return w of `shrink_mean_embedding`."""
    ratio = squares.sum() / errors.sum()
    by_chance = 1.0 + 3.0 * np.sqrt(2.0 * np.sum(errors**2)) / errors.sum()
    if by_chance >= _SIGNIFICANT:
        return float(ratio > by_chance)
    return float(np.clip((ratio - by_chance) / (_SIGNIFICANT - by_chance), 0.0, 1.0))
