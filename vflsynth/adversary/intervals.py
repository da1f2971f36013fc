"""What a finite number of models allows to be said: intervals, bounds on ε, p-values, power."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaincinv, expit, gammaln, logsumexp
from scipy.stats import beta, mannwhitneyu, norm, rankdata

from vflsynth.adversary.encoding import Booleans, Floats


@dataclass(frozen=True)
class Estimate:
    """A value with its two-sided interval."""

    value: float
    low: float
    high: float
    confidence: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


def binomial_interval(successes: int, trials: int, confidence: float = 0.95) -> Estimate:
    """Return a proportion with its exact (Clopper-Pearson) interval.

    Examples
    --------
    >>> str(binomial_interval(0, 30))
    '0.00 (0.00 to 0.12)'
    """
    tail = (1.0 - confidence) / 2.0
    low = lower_bound(successes, trials, 1.0 - tail)
    high = 1.0 - lower_bound(trials - successes, trials, 1.0 - tail)
    return Estimate(successes / trials, low, high, confidence)


def lower_bound(successes: int, trials: int, confidence: float) -> float:
    """Return the exact one-sided lower bound on a proportion (Clopper and Pearson)."""
    if successes == 0:
        return 0.0
    # The quantile of a beta distribution, without what `scipy.stats` adds to each call.
    return float(betaincinv(successes, trials - successes + 1, 1.0 - confidence))


def auc(scores: Floats, is_member: Booleans) -> float:
    """Return the area under the ROC curve of scores, shape (candidate,); ties count half.

    Members should score higher; there must be members and others.
    """
    n_in = int(is_member.sum())
    ranks = rankdata(scores)
    above = ranks[is_member].sum() - n_in * (n_in + 1) / 2.0
    return float(above / (n_in * (len(scores) - n_in)))


def auc_interval(scores: Floats, is_member: Booleans, confidence: float = 0.95) -> Estimate:
    """Return the area under the ROC curve with its interval, from at least two of each kind.

    DeLong's variance (DeLong, DeLong and Clarke-Pearson 1988) on the logit scale. Near areas of 0
    and 1 this variance breaks down, it is zero for perfect separation. There the interval is
    widened to Newcombe's (2006, method 5), which does not.
    """
    inside, outside = scores[is_member], scores[~is_member]
    n_in, n_out = len(inside), len(outside)
    value = auc(scores, is_member)
    z = float(norm.ppf(0.5 + confidence / 2.0))
    low, high = _newcombe(value, n_in, n_out, z)
    if 0.0 < value < 1.0:
        both = rankdata(np.concatenate([inside, outside]))
        placed_in = (both[:n_in] - rankdata(inside)) / n_out
        placed_out = 1.0 - (both[n_in:] - rankdata(outside)) / n_in
        variance = placed_in.var(ddof=1) / n_in + placed_out.var(ddof=1) / n_out
        centre = math.log(value / (1.0 - value))
        reach = z * math.sqrt(variance) / (value * (1.0 - value))
        delong = float(expit(centre - reach)), float(expit(centre + reach))
        if min(value, 1.0 - value) * min(n_in, n_out) < 5.0:
            delong = min(low, delong[0]), max(high, delong[1])
        low, high = delong
    return Estimate(value, low, high, confidence)


def _newcombe(value: float, n_in: int, n_out: int, z: float) -> tuple[float, float]:
    """Where the score statistic of Hanley and McNeil's variance reaches z."""
    half = (n_in + n_out) / 2.0 - 1.0

    def excess(area: float) -> float:
        spread = 1.0 + half * ((1.0 - area) / (2.0 - area) + area / (1.0 + area))
        return (value - area) ** 2 - z * z * area * (1.0 - area) * spread / (n_in * n_out)

    # The excess is below zero around the value, and zero at 0 and 1 themselves.
    tiny = 1e-9
    low = float(brentq(excess, tiny, min(value, 1.0 - tiny))) if value > tiny else 0.0
    high = float(brentq(excess, max(value, tiny), 1.0 - tiny)) if value < 1.0 - tiny else 1.0
    return low, high


def resolves(fpr: float, n_out: int) -> bool:
    """Whether so many non-members can tell a false positive rate from none at all."""
    return fpr * n_out >= 1.0 - 1e-9


def tpr_at_fpr(
    scores: Floats, is_member: Booleans, fpr: float, confidence: float = 0.95
) -> Estimate:
    """Return the largest true positive rate whose false positive rate is at most `fpr`.

    With fewer than ``1 / fpr`` non-members this asks for no false positive at all (`resolves`). The
    interval is exact for the threshold that was found; it does not account for how it was found.
    """
    outside = np.sort(scores[~is_member])[::-1]
    allowed = int(fpr * len(outside) + 1e-9)
    threshold = outside[allowed] if allowed < len(outside) else -np.inf
    hits = int((scores[is_member] > threshold).sum())
    return binomial_interval(hits, int(is_member.sum()), confidence)


def epsilon_lower_bound(
    hits: int,
    n_in: int,
    false_alarms: int,
    n_out: int,
    *,
    delta: float = 0.0,
    confidence: float = 0.95,
) -> float:
    """Return what ε of (ε, δ)-differential privacy must at least be, given an attack's successes.

    `hits` are models trained with the record that the attack calls so, of `n_in`; `false_alarms`
    those trained without it that it calls "with", of `n_out`. The true ε, in nats, is not below the
    bound with the `confidence`, over all models that might have been trained; attack and threshold
    must not depend on these models. Never infinite: the bound of a perfect attack grows like
    ``log(n)``.

    Differential privacy says ``TPR <= exp(ε) FPR + δ`` and ``TNR <= exp(ε) FNR + δ`` (Kairouz, Oh
    and Viswanath 2015). One-sided exact bounds on TPR and FPR, each at half the error probability,
    serve both inequalities.

    Examples
    --------
    >>> epsilon_lower_bound(50, 100, 50, 100)
    0.0
    >>> round(epsilon_lower_bound(100, 100, 0, 100), 2)
    3.28
    """
    each = 1.0 - (1.0 - confidence) / 2.0
    tpr = lower_bound(hits, n_in, each)
    tnr = lower_bound(n_out - false_alarms, n_out, each)
    bounds = [
        math.log((rate - delta) / (1.0 - other))
        for rate, other in ((tpr, tnr), (tnr, tpr))
        if rate > delta
    ]
    return max(0.0, *bounds) if bounds else 0.0


def most_epsilon(n_in: int, n_out: int, *, delta: float = 0.0, confidence: float = 0.95) -> float:
    """Return the bound that a perfect attack would reach: so few models cannot show more."""
    return epsilon_lower_bound(n_in, n_in, 0, n_out, delta=delta, confidence=confidence)


def best_threshold(
    scores: Floats, is_member: Booleans, *, delta: float = 0.0, confidence: float = 0.95
) -> float:
    """Return the threshold whose bound on epsilon is largest on these models.

    Scores at or above it are called "member". It is half way between two scores that occur; if no
    bound is above zero, it is the threshold of the largest accuracy. The models must not be those
    that the bound itself is computed on.
    """
    values = np.unique(scores)
    if len(values) == 1:
        return float(values[0])
    thresholds = (values[:-1] + values[1:]) / 2.0
    inside, outside = np.sort(scores[is_member]), np.sort(scores[~is_member])
    hits = len(inside) - np.searchsorted(inside, thresholds)
    alarms = len(outside) - np.searchsorted(outside, thresholds)
    bounds = np.array(
        [
            epsilon_lower_bound(
                int(h), len(inside), int(a), len(outside), delta=delta, confidence=confidence
            )
            for h, a in zip(hits, alarms)
        ]
    )
    advantage = hits / len(inside) - alarms / len(outside)
    return float(thresholds[np.lexsort([advantage, bounds])[-1]])


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
    order = np.argsort(p_values, kind="stable")
    each = np.arange(len(order), 0, -1) * np.asarray(p_values)[order]
    adjusted: list[float] = np.maximum.accumulate(each.clip(max=1.0))[order.argsort()].tolist()
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
        return gammaln(n + 1) - gammaln(hits + 1) - gammaln(n - hits + 1)

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
