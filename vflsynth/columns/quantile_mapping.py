"""Giving generated columns the marginals that were published.

Generators that learn a joint distribution lose what few records have: the far end of a column of
incomes. The published histograms know it. A quantile map moves a column's generated values, in
their order, so that its bins get the published shares where these differ from the generated ones by
more than errors explain. Since order stays, so do relations between columns. Post-processing.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_FloatArray = npt.NDArray[np.float64]

# Differences of bins are reduced by this many of their standard deviations.
_THRESHOLD = 3.0

# Knots of a map: quantiles that it knows besides the bins', and the share of values over which it
# may climb from one bin to another.
_N_LEVELS, _JUMP = 200, 1e-6


def corrected_shares(
    generated: _FloatArray, published: _FloatArray, noise_std: float
) -> _FloatArray:
    """Move generated shares of bins towards published ones, as far as errors do not explain.

    Parameters
    ----------
    generated : float64 array, shape (bin,)
        Non-negative, adding up to 1.
    published : float64 array, shape (bin,)
        Noisy counts.
    noise_std : float
        Of a count.

    Returns
    -------
    float64 array, shape (bin,)
        Non-negative, adding up to 1: the soft threshold of Donoho and Johnstone (1994), at three
        standard deviations of the noise and of having counted that many records.
    """
    n_records = max(published.sum(), 1.0)
    difference = published / n_records - generated
    error = np.sqrt((noise_std / n_records) ** 2 + generated * (1.0 - generated) / n_records)
    beyond = np.sign(difference) * np.maximum(np.abs(difference) - _THRESHOLD * error, 0.0)
    shares: _FloatArray = np.maximum(generated + beyond, 0.0)
    total = shares.sum()
    return shares / total if total > 0.0 else generated


def quantile_map(
    values: _FloatArray, edges: _FloatArray, shares: _FloatArray
) -> tuple[_FloatArray, _FloatArray]:
    """Find the increasing map that gives values these shares of bins.

    Parameters
    ----------
    values : float64 array, shape (value,)
        Generated; the bins at the ends are taken to reach as far as these.
    edges : float64 array, shape (bin + 1,)
    shares : float64 array, shape (bin,)
        Wanted; adding up to 1.

    Returns
    -------
    before, after : float64 arrays, shape (knot,)
        Knots of the piecewise linear map. Within a bin values keep their distribution; a bin where
        nothing was generated is filled evenly.
    """
    values, inner = np.sort(values), edges[1:-1]
    edges = np.concatenate([[min(edges[0], values[0])], inner, [max(edges[-1], values[-1])]])
    inside = np.searchsorted(values, inner, side="left") / len(values)
    had = np.concatenate([[0.0], inside, [1.0]])
    wanted = np.minimum(np.concatenate([[0.0], np.cumsum(shares)]), 1.0)
    wanted[-1] = 1.0
    jumps = np.maximum(wanted - _JUMP, 0.0)  # from a bin to the next that is wanted
    even = np.linspace(0.0, 1.0, _N_LEVELS + 1)
    levels = np.unique(np.concatenate([even, had, wanted, jumps]))
    # The bin that the level's value goes to, and how far into it.
    bins = np.clip(np.searchsorted(wanted, levels, side="right") - 1, 0, len(shares) - 1)
    bins = np.minimum(bins, np.flatnonzero(shares > 0.0)[-1])
    width = np.diff(wanted)[bins]
    place = np.clip((levels - wanted[bins]) / np.where(width > 0.0, width, 1.0), 0.0, 1.0)
    share_had = np.diff(had)[bins]
    own = np.quantile(values, had[bins] + place * share_had)
    evenly = edges[bins] + place * np.diff(edges)[bins]
    after = np.where(share_had > 0.0, np.clip(own, edges[bins], edges[bins + 1]), evenly)
    return np.quantile(values, levels), np.maximum.accumulate(after)
