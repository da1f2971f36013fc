"""Discrete Gaussian noise: whole numbers, drawn exactly, from the operating system's generator.

What is drawn
-------------
``P(z) ∝ exp(-z² / (2 σ²))`` for every whole number z (Canonne, Kamath and Steinke 2020). No float
takes part: a magnitude ``k σ/16 + j`` is proposed, k with probability ``∝ exp(-(k/16)² / 2)`` and j
evenly below σ/16, and accepted with probability ``exp(-j (2 k σ/16 + j) / (2 σ²))`` (the scheme of
Karney 2016, with blocks of σ/16 instead of σ). Both choices compare random bits with a real number
that is known to within a proven error; where the bits that were drawn do not decide, more are drawn
and the number is computed as precisely as it takes (`exp_bounds`).

Why the accounting of the continuous Gaussian is valid
-------------------------------------------------------
Let q be a vector of whole numbers computed from the records, ``Z`` discrete Gaussian noise of
variance ``σ² = s² + r²``, and ``r = 4``. Publishing ``q + Z`` is, up to a factor of ``exp(±η)`` of
every probability, with ``η < 10⁻¹³⁶`` per coordinate, post-processing of the continuous Gaussian
``y = q + N(0, s²)``: draw ``K(y)`` from the whole numbers with ``P(k) ∝ exp(-(k - y)² / (2 r²))``.
For by Poisson's summation formula

``Σ_k exp(-(k - y)² / (2 r²)) = r sqrt(2π) (1 + 2 Σ_m exp(-2 π² r² m²) cos(2π m y))``, m = 1, 2, …,

which is ``r sqrt(2π)`` times a factor between ``1 - η'`` and ``1 + η'`` whatever y is, where
``η' = 2.01 exp(-2 π² r²) < 2·10⁻¹³⁷``. So ``K(y)`` is k with probability
``∫ φ_s(y - q) φ_r(k - y) dy = φ_σ(k - q)`` times such a factor, φ being normal densities; and
``P(q + Z = k)`` is ``φ_σ(k - q)`` over the same sum at σ, a factor between 1 and ``1 + η'``.

This holds for every value of q, hence for batches drawn at random, and step by step for releases
that depend on earlier ones. If the releases with continuous noise of standard deviation s are
(ε, δ) private, those with discrete noise are (ε + 2 N η, δ exp(N η)) private, N being the number of
all coordinates that are ever published: fewer than 10³⁰, so that ε grows by less than 10⁻¹⁰⁵, which
no double can show. Every accountant may be asked about s (`releases.Grid` sees to r). That the
discrete Gaussian has the continuous one's zero-concentrated bound at its own σ is Theorem 4 of
Canonne, Kamath and Steinke 2020; it says nothing about batches drawn at random.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_right
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch

from vflsynth.exceptions import PrivacyParameterError

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
        beyond = 1 << (guard - 16)  # more than what comes after the last
        high_total = sum(high for _, high in bounds) + beyond
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


SMOOTHING_VARIANCE = 16
"""r², in squared steps: what the noise has beyond the continuous Gaussian that is accounted for."""

BLOCKS = 16
"""Standard deviations are a multiple of so many steps."""

LARGEST_SIGMA = 2**36 - BLOCKS
"""In steps; twenty of it fit many times into 64 bits."""

DISCRETE_NOISE = (
    "discrete Gaussian, drawn exactly; what is released are whole numbers on public grids. ε is "
    "computed for slightly less continuous noise, which bounds it (vflsynth.privacy.noise)"
)
"""What ledgers say of it."""

_CHUNK = 1 << 16  # draws at a time: what they need stays in the cache
_LOW, _ONE = np.uint64(0xFFFFFFFF), np.uint64(1)
_TABLED = 128  # blocks of which the vectorised steps know; the others are decided one by one
_DOUBT = 64  # units of 2**-32: more than four times the error of `_exp32`

_Words = npt.NDArray[np.uint64]
_Ints = npt.NDArray[np.int64]


def discrete_gaussian(
    shape: Sequence[int], sigma: int, *, rng: torch.Generator | None = None
) -> _Ints:
    """Draw independent discrete Gaussian noise, one int64 per coordinate of a shape.

    σ is in steps: a multiple of 16 up to `LARGEST_SIGMA`, or PrivacyParameterError. `rng` is for
    tests only: whoever knows its state can subtract the noise. By default every bit comes from the
    operating system's cryptographic generator. Seeding a ``torch.Generator`` from it would not do:
    its CPU engine keeps 32 bits of the seed, few enough to try them all
    (``tests/unit/privacy/test_noise.py`` shows it).
    """
    if sigma != int(sigma) or sigma % BLOCKS or not 0 < sigma <= LARGEST_SIGMA:
        raise PrivacyParameterError(
            "sigma", sigma, f"a multiple of {BLOCKS} between {BLOCKS} and {LARGEST_SIGMA}"
        )
    count = math.prod(shape)
    drawn = np.empty(count, dtype=np.int64)
    done = 0
    while done < count:
        found = _propose(min(_CHUNK, count - done), int(sigma) // BLOCKS, rng)
        drawn[done : done + len(found)] = found
        done += len(found)
    return drawn.reshape(tuple(shape))


def _propose(count: int, width: int, rng: torch.Generator | None) -> _Ints:
    """Propose that many numbers and return those that are accepted, in blocks of `width` steps.

    A word of 64 random bits holds, from above, 16 of the block's, 15 of the acceptance's, the sign,
    and 32 of the place in the block.
    """
    words = _words(count, rng)
    # Even numbers below the width, exactly: Lemire 2019.
    product = (words & _LOW) * np.uint64(width)
    even = (product & _LOW) >= np.uint64(2**32 % width)
    places = product >> np.uint64(32)
    negative = (words >> np.uint64(32)) & _ONE != 0
    blocks = _BLOCK_OF[(words >> np.uint64(48)).astype(np.intp)]
    for row in np.flatnonzero(blocks < 0):
        blocks[row] = _exact_block(int(words[row]) >> 48, 16, rng)
    chances = (words >> np.uint64(33)) & np.uint64(0x7FFF)
    accepted = chances < _SURE[np.minimum(blocks, _TABLED - 1)]
    unsure = np.flatnonzero(~accepted & even)
    if len(unsure):
        accepted[unsure] = _accept(chances[unsure], blocks[unsure], places[unsure], width, rng)
    zero_twice = negative & (blocks == 0) & (places == 0)
    kept = accepted & even & ~zero_twice
    magnitudes = blocks[kept] * width + places[kept].astype(np.int64)
    signed: _Ints = np.where(negative[kept], -magnitudes, magnitudes)
    return signed


def _accept(
    chances: _Words, blocks: _Ints, places: _Words, width: int, rng: torch.Generator | None
) -> npt.NDArray[np.bool_]:
    """Whether random numbers that begin with 15 bits are below ``exp(-γ)``."""
    further = _words((len(chances) + 1) // 2, rng).view(np.uint32)[: len(chances)]
    uniform = (chances << np.uint64(17)) | (further >> np.uint32(15)).astype(np.uint64)
    tabled = blocks < _TABLED
    bound = _exp32(np.where(tabled, blocks, 0).astype(np.uint64), places, width)
    accepted: npt.NDArray[np.bool_] = uniform + np.uint64(_DOUBT) < bound
    doubtful = (uniform < bound + np.uint64(_DOUBT)) & ~accepted | ~tabled
    for row in np.flatnonzero(doubtful):
        block, place = int(blocks[row]), int(places[row])
        gamma = Fraction(place * (2 * block * width + place), 2 * (BLOCKS * width) ** 2)
        accepted[row] = _exactly_below(int(uniform[row]), 32, gamma, rng)
    return accepted


def _exp32(blocks: _Words, places: _Words, width: int) -> _Words:
    """``2**32 exp(-γ)``, wrong by less than 16; for blocks below 128, whose γ is below 1/2.

    The argument is too small by less than ``blocks / 16 + 3`` units of 2**-32, and the table, the
    cubic polynomial below 1/256 and their product are wrong by less than 5.
    """
    x = (places << np.uint64(32)) // np.uint64(BLOCKS * width)
    gamma = ((x * blocks) >> np.uint64(4)) + ((x * x) >> np.uint64(33))
    rest = gamma & np.uint64(0xFFFFFF)
    square = (rest * rest) >> np.uint64(32)
    cube = (square * rest) >> np.uint64(32)
    polynomial = np.uint64(2**32) - rest + (square >> _ONE) - cube // np.uint64(6)
    tabled = _EXP31[(gamma >> np.uint64(24)).astype(np.intp)]
    result: _Words = (tabled * polynomial) >> np.uint64(31)
    return result


def _exact_block(prefix: int, bits: int, rng: torch.Generator | None) -> int:
    """Find the block of a random number that begins with so many bits, drawing more of them."""
    while True:
        prefix, bits = prefix << 64 | int(_words(1, rng)[0]), bits + 64
        thresholds = half_gaussian_thresholds(BLOCKS, bits)
        block = bisect_right(thresholds, prefix)
        if block < len(thresholds) and (block == 0 or thresholds[block - 1] != prefix):
            return block


def _exactly_below(prefix: int, bits: int, gamma: Fraction, rng: torch.Generator | None) -> bool:
    """Whether a random number that begins with so many bits is below ``exp(-γ)``."""
    while True:
        low, high = exp_bounds(gamma, bits)
        if prefix + 1 <= low:
            return True
        if prefix >= high:
            return False
        prefix, bits = prefix << 64 | int(_words(1, rng)[0]), bits + 64


def _words(count: int, rng: torch.Generator | None) -> _Words:
    """Draw words of 64 random bits."""
    if rng is None:
        return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
    drawn = torch.randint(256, (8 * count,), generator=rng, dtype=torch.uint8, device=rng.device)
    return drawn.cpu().numpy().view(np.uint64)


def _block_table() -> npt.NDArray[np.int64]:
    """Block of a random number by its first 16 bits; -1 where they do not decide."""
    thresholds = np.array(half_gaussian_thresholds(BLOCKS, 16))
    table = np.searchsorted(thresholds, np.arange(2**16), side="right")
    table[thresholds] = -1
    return table


_BLOCK_OF = _block_table()
# Below so many 2**-15 a proposal in a block is accepted wherever it lies in it.
_SURE = np.array(
    [exp_bounds(Fraction(2 * k + 1, 2 * BLOCKS**2), 15)[0] for k in range(_TABLED - 1)] + [0],
    dtype=np.uint64,
)
_EXP31 = np.array([exp_bounds(Fraction(a, 256), 31)[0] for a in range(256)], dtype=np.uint64)
