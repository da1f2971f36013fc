"""What a finite number of models allows to be said: intervals, ROC, lower bounds on epsilon."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaincinv
from scipy.stats import norm, rankdata

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
    return Estimate(
        successes / trials,
        low,
        1.0 - lower_bound(trials - successes, trials, 1.0 - tail),
        confidence,
    )


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
        delong = (_logistic(centre - reach), _logistic(centre + reach))
        if min(value, 1.0 - value) * min(n_in, n_out) < 5.0:
            delong = min(low, delong[0]), max(high, delong[1])
        low, high = delong
    return Estimate(value, low, high, confidence)


def _logistic(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x)) if x > -700 else 0.0


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


@dataclass(frozen=True, eq=False)
class ROC:
    """An ROC curve from (0, 0) to (1, 1), each array of shape (threshold,).

    `low` and `high` are the exact interval of the true positive rate at each threshold.
    """

    fpr: Floats
    tpr: Floats
    low: Floats
    high: Floats


def roc(scores: Floats, is_member: Booleans, confidence: float = 0.95) -> ROC:
    """Return the ROC curve of scores, shape (candidate,)."""
    thresholds = np.concatenate([[np.inf], np.unique(scores)[::-1]])
    inside, outside = np.sort(scores[is_member]), np.sort(scores[~is_member])
    hits = len(inside) - np.searchsorted(inside, thresholds)
    alarms = len(outside) - np.searchsorted(outside, thresholds)
    intervals = [binomial_interval(int(k), len(inside), confidence) for k in hits]
    return ROC(
        alarms / len(outside),
        hits / len(inside),
        np.array([interval.low for interval in intervals]),
        np.array([interval.high for interval in intervals]),
    )


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
