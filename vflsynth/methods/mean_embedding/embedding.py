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
