"""Random features whose mean over the joint records is their kernel mean embedding.

The mean of random Fourier features (Rahimi and Recht 2007) of all records determines their joint
distribution as far as the kernel can see; published once with noise (DP-MERF, Harder et al. 2021)
it can be learned from for as long and as often as one likes. What is learned is not the release
itself but the estimate that `shrink_mean_embedding` makes of it.

Party i projects each record's encoded columns, ``x_i @ W_i`` of shape (record, n_features / 2). The
features are cosine and sine of all parties' projections, added. Nobody adds them for a record:
`vflsynth.secure.rotations` sums features over records such that no projection is seen.

For the release is wrong twice over: by the noise, and because it is the mean of few records.
Generators that are free enough learn both errors as if they were relations. The noise is the same
in all directions of the feature space, but the features of records vary much in some and next to
not at all in most. The estimate says, direction by direction, how much of the release is error, and
moves it that far towards independent columns, whose distribution follows from the published
histograms. That mixes a few independent records into the table, which generators do learn; so a
release that stands far above its errors is left as it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from vflsynth.exceptions import PrivacyParameterError
from vflsynth.privacy.events import NeighbouringRelation

_LARGEST_ENCODED = 16.0  # encoded numbers are within ±12, other encoded columns within ±1


def mean_embedding_sensitivity(relation: NeighbouringRelation) -> float:
    """L2 sensitivity of a sum of features of norm 1: 1 for adding a record, 2 for replacing."""
    return 2.0 if relation is NeighbouringRelation.REPLACE_ONE else 1.0


def random_frequencies(
    encoded_dim: int, n_features: int, bandwidths: Sequence[float], rng: np.random.Generator
) -> Tensor:
    """Draw public frequencies of random Fourier features, float64 (encoded_dim, n_features / 2).

    Half of the features are cosines, half sines; frequencies are divided evenly over the Gaussian
    kernels' bandwidths, in encoded units. Party i uses the rows of its own encoded columns.
    PrivacyParameterError if `n_features` is odd or a bandwidth is not positive.
    """
    if n_features < 2 or n_features % 2:
        raise PrivacyParameterError("n_features", n_features, "an even number of at least 2")
    if not bandwidths or min(bandwidths) <= 0.0:
        raise PrivacyParameterError("bandwidths", bandwidths, "one or more positive numbers")
    scales = np.resize(np.asarray(bandwidths, dtype=np.float64), n_features // 2)
    return torch.tensor(rng.standard_normal((encoded_dim, n_features // 2)) / scales)


def project_records(records: Tensor, frequencies: Tensor) -> Tensor:
    """Project a party's encoded records on the frequencies, each as if it were alone.

    Numbers beyond ±16 count as ±16; the result is float32, on the CPU. Both factors are rounded to
    about 22 bits, so that doubles hold all products and sums exactly. In floating point the last
    bits of a record's projections could depend on the order of summation and with it on the number
    of records: other records' angles would be rounded otherwise when one is added, and the sum
    would change by more than the sensitivity.
    """
    bits = 52 - max(1, records.shape[1]).bit_length()
    for_records, for_frequencies = bits - bits // 2, bits // 2
    limit = 2.0**for_records
    x = (records.to("cpu", torch.float64) * (limit / _LARGEST_ENCODED)).round().clamp(-limit, limit)
    largest = math.frexp(float(frequencies.abs().max()))[1] if frequencies.numel() else 0
    w = torch.ldexp(frequencies.to("cpu", torch.float64), torch.tensor(for_frequencies - largest))
    scale = _LARGEST_ENCODED / limit * 2.0 ** (largest - for_frequencies)
    return (x @ w.round() * scale).float()


def random_features(projections: Tensor) -> Tensor:
    """Map sums over parties of ``x_i @ W_i`` to random Fourier features, (..., n_features).

    ``sqrt(2 / n_features) [cos, sin]``, of norm 1 whatever the projections are.
    """
    scale = 1.0 / math.sqrt(projections.shape[-1])
    return torch.cat([projections.cos(), projections.sin()], dim=-1) * scale


@torch.no_grad()
def embedding_distance(projections: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Compare two joint fakes or more, by their projections, with a mean embedding.

    Returns the distance ``||mean phi - target||²``, float64 (replica,), and the gradient of an
    unbiased estimate of ``||E phi - target||²``. With ``phi = s [cos p, sin p]`` of B fakes, ``s =
    sqrt(2 / n_features)``, and ``d = B/(B-1) mean phi - target``, ``dL/dp = 2/B s (d_sin cos p -
    d_cos sin p)``. The factor makes it that of an unbiased estimate: since ``||phi|| = 1``, the
    squared norm of a batch's mean is too large by ``(1 - ||E phi||²)/B``, which would reward fakes
    that resemble each other.
    """
    n_fakes, half = projections.shape[-2:]
    scale = 1.0 / math.sqrt(half)
    cosines, sines = projections.cos(), projections.sin()
    distance, differences = torch.zeros(len(projections), dtype=torch.float64), []
    for values, wanted in zip((cosines, sines), torch.split(target, half), strict=True):
        mean = values.mean(-2, keepdim=True) * scale
        distance += (mean - wanted).double().square().sum((-1, -2)).cpu()
        differences.append((mean * (n_fakes / (n_fakes - 1)) - wanted) * (2.0 * scale / n_fakes))
    by_cosine, by_sine = differences
    return distance, cosines.mul_(by_sine).sub_(sines.mul_(by_cosine))


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
