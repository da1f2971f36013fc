"""How Marvell spends its noise power: the four-variable problem of the paper, in plain floats.

The gradients of class c are modelled as Gaussian with an isotropic covariance. Marvell adds noise
of variance ``along_c`` in the direction of the difference of the class means and ``across_c`` in
every other direction, and minimises the sum of the two KL divergences between the perturbed classes
for a given mean power.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_TOLERANCE = 1e-12
_MAX_HALVINGS = 200


@dataclass(frozen=True, slots=True)
class NoiseVariances:
    """Variances of the noise, in squared gradient units, and what they achieve.

    Per class: `along` the difference of means, and `across` in each direction orthogonal to it; the
    paper's λ1 and λ2 with superscripts 0 and 1. `sum_kl` is KL(P1 || P0) + KL(P0 || P1) of the
    perturbed Gaussians, in nats.
    """

    along_negative: float
    across_negative: float
    along_positive: float
    across_positive: float
    sum_kl: float

    @property
    def auc_bound(self) -> float:
        """No score whatever separates the classes with a higher AUC (Marvell, Theorem 1)."""
        return auc_bound(self.sum_kl)

    @property
    def auc_gaussian(self) -> float:
        """AUC of the best score, were the perturbed classes Gaussians of equal covariance."""
        return auc_gaussian(self.sum_kl)


def auc_bound(sum_kl: float) -> float:
    """``1/2 + sqrt(e)/2 - e/8`` for e < 4, else 1 (Marvell, Theorem 1)."""
    return 1.0 if sum_kl >= 4.0 else 0.5 + math.sqrt(sum_kl) / 2.0 - sum_kl / 8.0


def auc_gaussian(sum_kl: float) -> float:
    """``Phi(sqrt(e / 2))``: tight for Gaussians of equal covariance, unlike the bound."""
    return 0.5 * math.erfc(-math.sqrt(sum_kl) / 2.0)


def solve_noise_variances(
    negative_variance: float,
    positive_variance: float,
    dim: int,
    distance: float,
    positive_fraction: float,
    power: float,
) -> NoiseVariances:
    """Find the variances of least sum KL for a power.

    The classes' own variances per coordinate (paper: u, v) are ≥ 0, `dim` is ≥ 1, `distance` is the
    squared one between the class means (g), > 0 where there is power, `positive_fraction` is in (0,
    1) (p), and `power` is the expected squared norm of the noise (P), all of which is used.

    Source: Marvell §4.2, problem (15) in appendix A.4.

    Departs from the paper's alternating scheme: the problem is divided by `distance`, the class of
    larger variance gets no noise across (the paper's own observation), for a given ``across`` of
    the other class the remaining two variables have a closed form, and the derivative with respect
    to ``across`` follows from the envelope theorem. One bisection finds its zero. The reference
    solver fails beyond gradients of 1e-2 and in one dimension; ``tests/equations/test_marvell.py``
    compares this one with SLSQP.
    """
    if power <= 0.0:
        u, v = negative_variance, positive_variance
        return NoiseVariances(0.0, 0.0, 0.0, 0.0, _sum_kl(u, v, u, v, dim, distance))
    swapped = negative_variance > positive_variance
    small, large = sorted((negative_variance / distance, positive_variance / distance))
    weight = positive_fraction if swapped else 1.0 - positive_fraction  # of the class `small`
    scaled = power / distance

    def slope(across: float) -> float:
        """Return the derivative of the objective with respect to `across`, times ``large``."""
        along_small, along_large, clipped = _along(small, large, weight, dim, scaled, across)
        if small + across == 0.0:
            return -math.inf
        ratio = large / (small + across)
        if clipped:  # all the power that `across` costs is taken from the other class
            price = 1.0 / along_small - (along_small + 1.0) / along_large / along_large
            price *= weight / (1.0 - weight)
        else:
            price = 1.0 / along_large - (along_large + 1.0) / along_small / along_small
        return 1.0 - ratio * ratio - large * price

    across = 0.0
    highest = min(scaled / (weight * dim), large - small)
    if dim > 1 and highest > 0.0 and slope(0.0) < 0.0:
        across = highest
        if slope(highest) > 0.0:
            low, high = 0.0, highest
            for _ in range(_MAX_HALVINGS):
                across = 0.5 * (low + high)
                if high - low <= _TOLERANCE * highest:
                    break
                if slope(across) < 0.0:
                    low = across
                else:
                    high = across
    along_small, along_large, _ = _along(small, large, weight, dim, scaled, across)
    sum_kl = _sum_kl(along_small, along_large, small + across, large, dim, 1.0)
    noise_small = (max(0.0, along_small - small) * distance, across * distance)
    noise_large = (max(0.0, along_large - large) * distance, 0.0)
    negative, positive = (noise_large, noise_small) if swapped else (noise_small, noise_large)
    return NoiseVariances(*negative, *positive, sum_kl)


def _along(
    small: float, large: float, weight: float, dim: int, power: float, across: float
) -> tuple[float, float, bool]:
    """Total variances along the difference of means, for a given `across` of the class `small`.

    These are the classes' own variance plus noise, of `small` and `large`; then whether the class
    `small` gets no noise along the difference.
    """
    other = 1.0 - weight
    total = power + other * large + weight * small - weight * (dim - 1) * across
    ratio = math.sqrt((total + weight) / (total + other))
    along = total / (weight + other * ratio)
    most = (total - other * large) / weight
    clipped = along < small
    along = min(max(along, small), most)
    return along, (total - weight * along) / other, clipped


def _sum_kl(
    along_a: float, along_b: float, across_a: float, across_b: float, dim: int, distance: float
) -> float:
    """Sum KL of two Gaussians whose means differ in the first coordinate."""
    if distance > 0.0 and min(along_a, along_b) <= 0.0:
        return math.inf
    total = _difference(along_a, along_b)
    if distance > 0.0:
        total += distance * (1.0 / along_a + 1.0 / along_b)
    if dim > 1:
        total += (dim - 1) * _difference(across_a, across_b)
    return 0.5 * total


def _difference(a: float, b: float) -> float:
    """``a/b + b/a - 2``, and 0 for two classes that have no variance at all."""
    if a == b:
        return 0.0
    if a == 0.0 or b == 0.0:
        return math.inf
    return ((a - b) / a) * ((a - b) / b)
