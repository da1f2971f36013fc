"""A noisy kernel mean embedding of the joint table, computed party by party.

The mean of random Fourier features (Rahimi and Recht 2007) of all records determines their joint
distribution as far as the kernel can see; published once with noise (DP-MERF, Harder et al. 2021)
it can be learned from for as long and as often as one likes. What is learned is not the release
itself but the estimate that `vflsynth.privacy.shrinkage` makes of it.

Who sends what: party i sends the projections ``x_i @ W_i`` of each record's encoded columns, shape
(record, n_features / 2). The server adds the parties' projections, takes cosine and sine, sums over
records and adds noise. The server must be trusted not to look: it sees per-record projections, as
VFLGAN's server sees per-record features. Recipients of the noisy mean see nothing else. Parties see
nothing of each other.

Since ``cos(a + b) = cos a cos b - sin a sin b`` (likewise for the sine), the sum over records is an
inner product of vectors that each party can compute alone: what secure aggregation or a two-party
inner product would need, so that the server sees sums only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from vflsynth.exceptions import PrivacyParameterError, ProtocolError
from vflsynth.privacy.events import NeighbouringRelation
from vflsynth.privacy.noise import gaussian_noise

_BLOCK = 4096  # records whose features are in memory at once


def mean_embedding_sensitivity(relation: NeighbouringRelation) -> float:
    """L2 sensitivity of the feature sum: every record's feature vector has norm exactly 1.

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
    return torch.from_numpy(rng.standard_normal((encoded_dim, n_features // 2)) / scales)


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


def feature_blocks(projections: Sequence[Tensor], dtype: torch.dtype) -> Iterator[Tensor]:
    """Compute the random features of all records, some thousands at a time, on the CPU.

    Parameters
    ----------
    projections : sequence of Tensor, each (record, n_features / 2)
        One per party, rows aligned.
    dtype : torch.dtype
        To compute in.

    Yields
    ------
    Tensor, shape (some records, n_features)

    Raises
    ------
    ProtocolError
        If shapes differ or a projection is not finite, which would void the sensitivity.
    """
    shapes = {tuple(part.shape) for part in projections}
    if len(shapes) != 1:
        raise ProtocolError(
            f"Projections of the parties have different shapes: {sorted(shapes)}. "
            "Fix: all parties must use the same records and the same number of features."
        )
    for start in range(0, len(projections[0]), _BLOCK):
        parts = [part[start : start + _BLOCK].to("cpu", dtype) for part in projections]
        block = torch.stack(parts).sum(0)
        if not block.isfinite().all():
            raise ProtocolError("A party sent projections that are not finite. Fix: its encoding.")
        yield random_features(block)


def feature_sum(projections: Sequence[Tensor]) -> Tensor:
    """Sum the random features of all records.

    Parameters
    ----------
    projections : sequence of Tensor, each (record, n_features / 2)
        One per party, rows aligned.

    Returns
    -------
    Tensor, shape (n_features,)
        float64. Without noise: not for publication.

    Raises
    ------
    ProtocolError
        As `feature_blocks`.
    """
    total = torch.zeros(2 * projections[0].shape[1], dtype=torch.float64)
    for features in feature_blocks(projections, torch.float64):
        total += features.sum(0)
    return total


def release_mean_embedding(
    total: Tensor,
    *,
    noise_std: float,
    n_records: float,
    rng: torch.Generator | None = None,
) -> Tensor:
    """Publish the mean embedding: noise on the sum, divided by a public number of records.

    Parameters
    ----------
    total : Tensor, shape (n_features,)
        From `feature_sum`.
    noise_std : float
        The noise multiplier times `mean_embedding_sensitivity`.
    n_records : float
        The true number under ``replace_one``; under ``add_or_remove_one`` that number is private
        and `estimate_n_records` of published counts takes its place.
    rng : torch.Generator, optional
        For tests only; see `gaussian_noise`.

    Returns
    -------
    Tensor, shape (n_features,)
    """
    return (total + gaussian_noise(total.shape, noise_std, rng=rng)) / n_records
