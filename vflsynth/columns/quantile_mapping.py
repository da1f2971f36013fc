"""Giving generated columns the marginals that were published.

Generators lose what few records have, such as the far end of a column of incomes. The published
histograms know it. A quantile map moves generated values, in their order, so that bins get their
published shares where errors do not explain the difference. It is post-processing.
"""

from __future__ import annotations

import numpy as np

from vflsynth.columns.arrays import Floats

# Differences are errors up to this many of their standard deviations.
_THRESHOLD = 3.0

# Knots of a map: quantiles that it knows besides the bins', and the share of values over which it
# may climb from one bin to another.
_N_LEVELS, _JUMP = 200, 1e-6


def corrected_shares(generated: Floats, published: Floats, noise_std: float) -> Floats:
    """Move generated shares of bins towards published noisy counts where errors do not explain.

    The differences are thresholded as Haar wavelets (Donoho and Johnstone, 1994), at three standard
    deviations of the noise and of having counted that many records: what no bin shows by itself,
    many together do.
    """
    n_records = max(published.sum(), 1.0)
    difference = published / n_records - generated
    variance = (noise_std / n_records) ** 2 + generated * (1.0 - generated) / n_records
    n_pad = (1 << (len(generated) - 1).bit_length()) - len(generated)
    beyond = _thresholded(np.pad(difference, (0, n_pad)), np.pad(variance, (0, n_pad)))
    shares: Floats = np.maximum(generated + beyond[: len(generated)], 0.0)
    total = shares.sum()
    return shares / total if total > 0.0 else generated


def _thresholded(values: Floats, variance: Floats) -> Floats:
    """Set wavelets to 0 that errors explain; both arrays have the length of a power of two."""
    if len(values) == 1:
        return values
    (left, right), (of_left, of_right) = values.reshape(-1, 2).T, variance.reshape(-1, 2).T
    detail, of_both = (left - right) / 2.0, (of_left + of_right) / 4.0
    detail = np.where(np.abs(detail) > _THRESHOLD * np.sqrt(of_both), detail, 0.0)
    mean = _thresholded((left + right) / 2.0, of_both)
    return np.stack([mean + detail, mean - detail], axis=1).ravel()


def quantile_map(values: Floats, edges: Floats, shares: Floats) -> tuple[Floats, Floats]:
    """Find the increasing map that gives generated values these shares of the bins between edges.

    Returns the knots, before and after, of a piecewise linear map. The bins at the ends are taken
    to reach as far as the values. Within a bin values keep their distribution; a bin where nothing
    was generated is filled evenly.
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
