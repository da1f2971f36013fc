"""Random features whose mean over the joint records is their kernel mean embedding.

The mean of random Fourier features (Rahimi and Recht 2007) of all records determines their joint
distribution as far as the kernel can see; published once with noise (DP-MERF, Harder et al. 2021)
it can be learned from for as long and as often as one likes. What is learned is not the release
itself but the estimate that `vflsynth.methods.mean_embedding.shrinkage` makes of it.

Party i projects each record's encoded columns, ``x_i @ W_i`` of shape (record, n_features / 2). The
features are cosine and sine of all parties' projections, added. Nobody adds them for a record:
`vflsynth.secure.rotations` sums features over records such that no projection is seen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from vflsynth.exceptions import PrivacyParameterError
from vflsynth.privacy.events import NeighbouringRelation

_LARGEST_ENCODED = 16.0  # encoded numbers are within ±12, other encoded columns within ±1


def mean_embedding_sensitivity(relation: NeighbouringRelation) -> float:
    """L2 sensitivity of the feature sum, where no record's features have a norm above 1.

    Returns
    -------
    float
        1 when a record is added or removed, 2 when it is replaced.
    """
    return 2.0 if relation is NeighbouringRelation.REPLACE_ONE else 1.0


def random_frequencies(
    encoded_dim: int, n_features: int, bandwidths: Sequence[float], rng: np.random.Generator
) -> Tensor:
    """Draw the public frequencies of the random Fourier features.

    Parameters
    ----------
    encoded_dim : int
        Encoded columns of all parties.
    n_features : int
        Even; half of them are cosines, half sines.
    bandwidths : sequence of float
        Length scales of Gaussian kernels, in encoded units; frequencies are divided evenly over
        them.
    rng : numpy.random.Generator
        Public randomness that the parties share.

    Returns
    -------
    Tensor, shape (encoded_dim, n_features / 2)
        float64. Party i uses the rows of its own encoded columns.

    Raises
    ------
    PrivacyParameterError
        If ``n_features`` is odd or a bandwidth is not positive.
    """
    if n_features < 2 or n_features % 2:
        raise PrivacyParameterError("n_features", n_features, "an even number of at least 2")
    if not bandwidths or min(bandwidths) <= 0.0:
        raise PrivacyParameterError("bandwidths", bandwidths, "one or more positive numbers")
    scales = np.resize(np.asarray(bandwidths, dtype=np.float64), n_features // 2)
    return torch.tensor(rng.standard_normal((encoded_dim, n_features // 2)) / scales)


def project_records(records: Tensor, frequencies: Tensor) -> Tensor:
    """Project encoded records on the frequencies, each as if it were alone.

    Parameters
    ----------
    records : Tensor, shape (record, encoded)
        A party's; numbers beyond ±16 count as ±16.
    frequencies : Tensor, shape (encoded, n_features / 2)

    Returns
    -------
    Tensor, shape (record, n_features / 2)
        float32, on the CPU.

    Notes
    -----
    Both factors are rounded to about 22 bits, so that doubles hold all products and sums exactly.
    In floating point the last bits of a record's projections could depend on the order of summation
    and with it on the number of records: other records' angles would be rounded otherwise when one
    is added, and the sum would change by more than the sensitivity.
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
    """Map summed projections to random Fourier features.

    Parameters
    ----------
    projections : Tensor, shape (..., n_features / 2)
        Sum over the parties of ``x_i @ W_i``.

    Returns
    -------
    Tensor, shape (..., n_features)
        ``sqrt(2 / n_features) [cos, sin]``, of norm 1 whatever the projections are.
    """
    scale = 1.0 / math.sqrt(projections.shape[-1])
    return torch.cat([projections.cos(), projections.sin()], dim=-1) * scale


@torch.no_grad()
def embedding_distance(projections: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Compare fakes with a mean embedding.

    Parameters
    ----------
    projections : Tensor, shape (replica, fake, n_features / 2)
        Of joint fakes, two or more.
    target : Tensor, shape (n_features,)

    Returns
    -------
    distance : Tensor, shape (replica,)
        ``||mean phi - target||²``, float64.
    gradient : Tensor, shape of `projections`
        Of an unbiased estimate of ``||E phi - target||²``.

    Notes
    -----
    With ``phi = s [cos p, sin p]`` of B fakes, ``s = sqrt(2 / n_features)``, and ``d = B/(B-1) mean
    phi - target``, ``dL/dp = 2/B s (d_sin cos p - d_cos sin p)``. The factor makes it that of an
    unbiased estimate: since ``||phi|| = 1``, the squared norm of a batch's mean is too large by
    ``(1 - ||E phi||²)/B``, which would reward fakes that resemble each other.
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
