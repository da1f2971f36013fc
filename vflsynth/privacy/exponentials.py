"""Bounds on exp(-γ) in whole numbers, to as many bits as a decision needs: no float rounds here."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

_GUARD = 64  # bits beyond those asked for; more than every rounding below can use up


def exp_bounds(gamma: Fraction, bits: int) -> tuple[int, int]:
    """Enclose ``2**bits * exp(-gamma)``, for gamma from 0, between two whole numbers.

    They differ by 1 at most, for gamma up to 2**20. Taylor's series of an argument of at most 1,
    whose terms alternate and fall, with every product rounded outwards, and the result taken to a
    power.
    """
    parts = max(1, math.ceil(gamma))
    x, scale = gamma / parts, bits + _GUARD
    low = high = term_low = term_high = 1 << scale
    number = 0
    while term_high > 1:
        number += 1
        term_low = term_low * x.numerator // (x.denominator * number)
        term_high = -(-term_high * x.numerator // (x.denominator * number))
        if number % 2:
            low, high = low - term_high, high - term_low
        else:
            low, high = low + term_low, high + term_high
    # What is left out is smaller than the last term, which is at most one unit.
    low, high = max(0, low - 1), min(1 << scale, high + 1)
    low = low**parts >> (scale * (parts - 1) + _GUARD)
    high = -(-(high**parts) >> (scale * (parts - 1) + _GUARD))
    return low, high


@lru_cache(maxsize=8)
def half_gaussian_thresholds(blocks: int, bits: int) -> tuple[int, ...]:
    """Cumulative probabilities of ``P(k) ∝ exp(-k² / (2 blocks²))``, k = 0, 1, …, as whole numbers.

    ``floor(2**bits * P(at most k))``, for as many k as it takes to come to ``2**bits - 1``.
    """
    # Beyond the last k there is less than 2**-(bits + 32) of the whole.
    last = math.ceil(blocks * math.sqrt(2.0 * math.log(2.0) * (bits + 64))) + 1
    guard = 32
    while True:
        scale = bits + guard
        bounds = [exp_bounds(Fraction(k * k, 2 * blocks * blocks), scale) for k in range(last + 1)]
        low_total = sum(low for low, _ in bounds)
        high_total = sum(high for _, high in bounds) + (
            1 << (guard - 16)
        )  # and all beyond the last
        thresholds, low_sum, high_sum = [], 0, 0
        for low, high in bounds[:-1]:
            low_sum, high_sum = low_sum + low, high_sum + high
            found = (low_sum << bits) // high_total
            if found != min((high_sum << bits) // low_total, (1 << bits) - 1):
                break
            thresholds.append(found)
        else:
            return tuple(thresholds)
        guard *= 2
