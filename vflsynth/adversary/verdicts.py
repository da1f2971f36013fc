"""When an attack may be said to beat guessing, and what an audit of some size would have found."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import gammaln
from scipy.stats import beta, mannwhitneyu, norm, rankdata

from vflsynth.adversary.encoding import Booleans, Floats

_MOST_EXACT = 100  # candidates; beyond, the normal approximation is as good and much cheaper


def rank_sum_p_value(scores: Floats, is_member: Booleans) -> float:
    """Return how likely scores of no meaning would rank members as high, or higher.

    Notes
    -----
    Mann and Whitney's test, one-sided, conditional on ties. It is exact for up to 100 candidates:
    the normal approximation errs where scores have few values.
    """
    if len(scores) > _MOST_EXACT:
        found = mannwhitneyu(scores[is_member], scores[~is_member], alternative="greater")
        return float(found.pvalue)
    ranks = np.rint(2.0 * rankdata(scores)).astype(np.int64)
    n_in = int(is_member.sum())
    ways = np.zeros((n_in + 1, int(ranks.sum()) + 1))  # by number chosen and sum of ranks
    ways[0, 0] = 1.0
    for rank in ranks:
        ways[1:, rank:] = ways[1:, rank:] + ways[:-1, : ways.shape[1] - rank]
    return float(ways[n_in, int(ranks[is_member].sum()) :].sum() / ways[n_in].sum())


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for their number, in the order given (Holm 1979).

    Whatever depends on what, the chance that any true null hypothesis gets an adjusted value of α
    or less is at most α.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    n = len(p_values)
    adjusted, largest = [0.0] * n, 0.0
    for place, i in enumerate(np.argsort(p_values, kind="stable")):
        largest = max(largest, min(1.0, (n - place) * p_values[i]))
        adjusted[i] = largest
    return adjusted


def least_leak_found(n_in: int, n_out: int, *, level: float, power: float = 0.8) -> float:
    """Return how often a leak must show to be found with some probability.

    It is the share of the releases with the record in which it shows, and never without it. It is
    infinite if not even a leak that always shows is found with so few models. `level` is the
    p-value from which on an attack is said to beat guessing.

    Examples
    --------
    >>> round(least_leak_found(50, 50, level=0.05), 2)
    0.13
    """
    hits = np.arange(1, n_in + 1)

    def log_ways(n: int) -> Floats:
        found: Floats = gammaln(n + 1) - gammaln(hits + 1) - gammaln(n - hits + 1)
        return found

    # All that show are from releases with the record: hypergeometric.
    enough = hits[log_ways(n_in) - log_ways(n_in + n_out) <= np.log(level)]
    if not len(enough):
        return float("inf")
    return float(beta.ppf(power, enough[0], n_in - enough[0] + 1))


def models_to_find(auc: float, *, level: float, power: float = 0.8) -> int:
    """Return how many test models, with and as many without, find an attack of some AUC.

    `level` is the p-value from which on an attack is said to beat guessing.

    Notes
    -----
    Noether 1987, of Mann and Whitney's test with groups of equal size. For scores of two normal
    distributions it errs by at most two models too many.

    Examples
    --------
    >>> models_to_find(0.8, level=0.05), models_to_find(0.8, level=0.025)
    (12, 15)
    """
    quantiles = norm.ppf(1.0 - level) + norm.ppf(power)
    return math.ceil(quantiles**2 / (6.0 * (auc - 0.5) ** 2))
