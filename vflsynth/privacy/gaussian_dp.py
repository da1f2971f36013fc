"""The exact privacy curve of Gaussian mechanisms, and its two inverses.

Any number of unsampled Gaussian releases with noise multipliers σ_1, σ_2, … composes exactly to one
with ``mu = sqrt(sum(1 / σ_k**2))`` (Gaussian differential privacy, Dong, Roth and Su 2022, §3.2).
"""

from __future__ import annotations

import math
from collections.abc import Callable

_BISECTIONS = 200  # more than the number of doubles between any two brackets: exact to the last bit


def delta_of_gaussian(epsilon: float, mu: float) -> float:
    """δ(ε) of the Gaussian mechanism with ``mu = sensitivity / noise_std``, infinite without noise.

    Exact up to rounding, also far in the tail. Source: Balle and Wang 2018, Theorem 8: ``Φ(-ε/mu +
    mu/2) - exp(ε) Φ(-ε/mu - mu/2)``, in logarithms so that nothing overflows.
    """
    from scipy.special import log_ndtr

    if mu == 0.0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    log_first = float(log_ndtr(-epsilon / mu + mu / 2.0))
    log_second = epsilon + float(log_ndtr(-epsilon / mu - mu / 2.0))
    # Round-off can push the difference of two nearly equal tails a hair above zero.
    return -math.exp(log_first) * math.expm1(min(0.0, log_second - log_first))


def epsilon_of_gaussian(mu: float, delta: float) -> float:
    """Smallest ε at which the Gaussian mechanism is (ε, δ)-differentially private.

    Rounded up: ``delta_of_gaussian`` at it is never above ``delta``.
    """
    if delta_of_gaussian(0.0, mu) <= delta:
        return 0.0
    if math.isinf(mu):
        return math.inf
    return last_safe(lambda epsilon: delta_of_gaussian(epsilon, mu) <= delta, zero_is_safe=False)


def mu_of_gaussian(epsilon: float, delta: float) -> float:
    """Largest mu at which the Gaussian mechanism is (ε, δ)-differentially private.

    Rounded down: ``delta_of_gaussian`` at it is never above ``delta``.
    """
    if math.isinf(epsilon):
        return math.inf
    return last_safe(lambda mu: delta_of_gaussian(epsilon, mu) <= delta, zero_is_safe=True)


def last_safe(is_safe: Callable[[float], bool], *, zero_is_safe: bool) -> float:
    """Return the largest number from 0 on that is safe, or smallest if 0 is not and large are."""
    far = 1.0
    while is_safe(far) == zero_is_safe:
        far *= 2.0
    safe, unsafe = (0.0, far) if zero_is_safe else (far, 0.0)
    for _ in range(_BISECTIONS):
        middle = (unsafe + safe) / 2.0
        if middle in (unsafe, safe):
            break
        if is_safe(middle):
            safe = middle
        else:
            unsafe = middle
    return safe
