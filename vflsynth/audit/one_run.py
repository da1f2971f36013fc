"""What guesses about many canaries in one training run prove (Steinke, Nasr and Jagielski 2023)."""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import binom

from vflsynth.adversary.encoding import Booleans, Floats

GUESS_SHARES = (1.0, 0.8, 0.5, 0.2, 0.05)
"""Shares of canaries that are guessed, the others passed over."""

N_WAYS = 2 * len(GUESS_SHARES)
"""Ways to guess that are tried: each share with guesses of both kinds, and with those of "in"
alone, since a copy is surer evidence than that there is none. The bound pays for all of them."""


def one_run_p_value(m: int, r: int, v: int, epsilon: float, delta: float) -> float:
    """Return how likely so many right guesses are at most under (ε, δ)-differential privacy.

    `m` canaries, `r` guesses about them, `v` right ones. Source: Steinke et al. 2023, Theorem 5.2
    in the form of its Appendix D: the binomial tail of randomised response, plus ``2 m δ`` times
    the largest mean of the probabilities just below v.
    """
    rate = 1.0 / (1.0 + math.exp(-epsilon))
    tail = float(binom.sf(v - 1, r, rate))
    if delta == 0.0 or v == 0:
        return min(1.0, tail)
    below = np.cumsum(binom.pmf(np.arange(v - 1, -1, -1), r, rate))
    return min(1.0, tail + 2.0 * m * delta * float((below / np.arange(1, v + 1)).max()))


def one_run_epsilon(m: int, r: int, v: int, *, delta: float, p_value: float) -> float:
    """Return the largest epsilon that so many right guesses contradict, rounded down.

    `m`, `r` and `v` as in `one_run_p_value`; `p_value` is one minus the confidence. 0 if nothing is
    contradicted.
    """
    if one_run_p_value(m, r, v, 0.0, delta) >= p_value:
        return 0.0
    low, high = 0.0, 1.0
    while one_run_p_value(m, r, v, high, delta) < p_value:
        low, high = high, 2.0 * high
    for _ in range(50):
        middle = (low + high) / 2.0
        if one_run_p_value(m, r, v, middle, delta) < p_value:
            low = middle
        else:
            high = middle
    return low


def best_bound(
    scores: Floats, is_in: Booleans, delta: float, confidence: float
) -> tuple[float, int, int]:
    """Return the largest bound over all ways to guess, with its guesses and right ones.

    The theorem holds for any guesses that are made from what was published, also none about some of
    the canaries (Steinke et al. 2023, §5). Which way is best is seen from the coins, so that each
    way is tested at ``1 / N_WAYS`` of the error probability.
    """
    m = len(scores)
    order = np.argsort(scores, kind="stable")
    best = (0.0, 0, 0)
    for share in GUESS_SHARES:
        each = max(1, round(share * m / 2))
        low, high = order[: min(each, m // 2)], order[-min(each, m - m // 2) :]
        for called_out in (low, low[:0]):
            guesses = len(called_out) + len(high)
            right = int(is_in[high].sum() + (~is_in[called_out]).sum())
            p_value = (1.0 - confidence) / N_WAYS
            bound = one_run_epsilon(m, guesses, right, delta=delta, p_value=p_value)
            if bound > best[0] or not best[1]:
                best = (bound, guesses, right)
    return best
