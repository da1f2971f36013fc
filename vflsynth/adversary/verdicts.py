"""When an attack may be said to beat guessing, and what an audit of some size would have found."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import gammaln, logsumexp
from scipy.stats import beta, mannwhitneyu, norm, rankdata

from vflsynth.adversary.encoding import Booleans, Floats

_MOST_EXACT = 100  # candidates; beyond, the normal approximation is as good and much cheaper
_PERMUTATION_BLOCKS, _PERMUTATIONS = 11, 909
_MOST_TRUST = 5.0  # in standard deviations: no attack gets all of the weight


def rank_sum_p_value(scores: Floats, is_member: Booleans) -> float:
    """Return how likely scores of no meaning would rank members as high, or higher.

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


def most_telling(
    scores: Floats, is_member: Booleans, training_scores: Floats, training_members: Booleans
) -> tuple[int, float]:
    """Return which of several attacks tells most, and how likely the best of them tells as much.

    Scores, (attack, candidate), are of candidates that no attack was trained on; training scores,
    (attack, training candidate), are cross-validated.

    The smallest of all p-values, each divided by a weight that the training candidates decide: the
    more an attack told there, the more (Genovese, Roeder and Wasserman 2006). What the choice costs
    is counted by 9,999 permutations of the candidates (Westfall and Young 1993), so that attacks
    which err alike are not paid for twice. A single attack gets `rank_sum_p_value`.
    """
    if len(scores) == 1:
        return 0, rank_sum_p_value(scores[0], is_member)
    told = _rank_sums(training_scores, training_members[None])[0].clip(0.0, _MOST_TRUST)
    log_weights = told**2 / 4.0 - logsumexp(told**2 / 4.0)

    def weighed(chosen: Booleans) -> Floats:
        found: Floats = norm.logsf(_rank_sums(scores, chosen)) - log_weights
        return found

    own, rng, as_small = weighed(is_member[None])[0], np.random.default_rng(0), 0
    for _ in range(_PERMUTATION_BLOCKS):
        shuffled = rng.permuted(np.tile(is_member, (_PERMUTATIONS, 1)), axis=1)
        as_small += int((weighed(shuffled).min(axis=1) <= own.min() + 1e-9).sum())
    return int(own.argmin()), (1 + as_small) / (1 + _PERMUTATION_BLOCKS * _PERMUTATIONS)


def _rank_sums(scores: Floats, chosen: Booleans) -> Floats:
    """Standardised sums of the ranks of those chosen; (choice, attack)."""
    ranks = rankdata(scores, axis=1)
    ranks -= ranks.mean(axis=1, keepdims=True)
    n, n_in = scores.shape[1], int(chosen[0].sum())
    spread = np.sqrt(ranks.var(axis=1, ddof=1) * n_in * (n - n_in) / n)
    sums: Floats = chosen.astype(np.float64) @ ranks.T
    scaled: Floats = np.divide(sums, spread, out=np.zeros_like(sums), where=spread > 0.0)
    return scaled


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

    Noether 1987, of Mann and Whitney's test with groups of equal size. For scores of two normal
    distributions it errs by at most two models too many.

    Examples
    --------
    >>> models_to_find(0.8, level=0.05), models_to_find(0.8, level=0.025)
    (12, 15)
    """
    quantiles = norm.ppf(1.0 - level) + norm.ppf(power)
    return math.ceil(quantiles**2 / (6.0 * (auc - 0.5) ** 2))
