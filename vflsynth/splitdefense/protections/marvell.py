"""Marvell: noise shaped by the classes' gradients, and the variances that hide most."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from vflsynth.registry import Number, register
from vflsynth.splitdefense.protections.gradients import Context, Protection, check_finite, row_norms

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


_MEMORY = 0.9
"""Weight of the past in the moments remembered for batches of a single class."""


@register
@dataclass(repr=False, eq=False)
class Marvell(Protection):
    """Noise that minimises the sum KL divergence between the classes' perturbed gradients.

    Parameters
    ----------
    power_scale : float, default=4.0
        Expected squared norm of the noise in units of the squared distance between the class means
        (paper: s). 1 leaves a best possible AUC of .76 for a scalar cut, 4 of .64, 16 of .57.

    Notes
    -----
    Source: Marvell §4.2 and Algorithm 1.

    Departs from the paper: p is the batch's share of positives (line 1 divides by the dimension, a
    slip); the solver is our own; and batches for which the method is undefined get noise too. A
    batch of a single class gets the noise of remembered moments (a moving average over earlier
    batches), or isotropic noise where nothing is remembered yet, since sending the clean gradient
    would tell the class. Where the class means coincide the paper's power is zero and nothing is
    added, though variances may still tell the classes apart: the bounds below count that.

    The history gets, per epoch, the mean sum KL that is left, Theorem 1's bound on the AUC of any
    attack on one message, and the AUC of the best attack in the Gaussian model: infinity and 1 for
    batches of a single class before anything is remembered. Neither holds for an attacker who
    combines messages: averaging over epochs undoes the protection.
    """

    binary_only = True
    _rules: ClassVar = {"power_scale": Number(0)}

    power_scale: float = 4.0

    def protect(self, gradients: Tensor, context: Context) -> Tensor:
        """Estimate moments, solve, add noise (Algorithm 1)."""
        check_finite(gradients)
        moments = _Moments.of(gradients, context.labels)
        moments = moments.remembered(context.memory)
        members, batch, dim = gradients.shape
        along = torch.zeros(members, 2, dtype=torch.float64)
        across = torch.zeros(members, 2, dtype=torch.float64)
        sum_kl = []
        for r, (known, u, v, g, p) in enumerate(zip(*moments.numbers())):
            if not known:  # only one class so far: isotropic noise of the largest gradient
                largest = float(row_norms(gradients[r : r + 1]).max()) ** 2
                along[r] = across[r] = self.power_scale * largest / dim
                sum_kl.append(math.inf)
            else:
                found = solve_noise_variances(u, v, dim, g, p, self.power_scale * g)
                along[r, 0], along[r, 1] = found.along_negative, found.along_positive
                across[r, 0], across[r, 1] = found.across_negative, found.across_positive
                sum_kl.append(found.sum_kl)
        context.log["sum_kl"] = torch.tensor(sum_kl)
        context.log["auc_bound"] = torch.tensor([auc_bound(e) for e in sum_kl])
        context.log["auc_gaussian"] = torch.tensor([auc_gaussian(e) for e in sum_kl])

        chosen = context.labels.cpu()
        rank_one = (along - across).clamp_min(0.0).sqrt().gather(1, chosen)
        noise = context.draws.normal("marvell.along", (batch, 1)) * moments.direction
        protected = gradients + noise * _column(rank_one, gradients)
        if bool((across > 0.0).any()):
            isotropic = context.draws.normal("marvell.across", (batch, dim))
            protected = protected + isotropic * _column(across.sqrt().gather(1, chosen), gradients)
        return protected


class _Moments:
    """Class moments of a batch, per replica; O(batch · dim), the covariances are never formed."""

    def __init__(self, difference: Tensor, numbers: Tensor) -> None:
        self.difference = difference  # (member, 1, dim): mean of positives less mean of negatives
        self._numbers = numbers  # (member, 4): known, u, v, p

    @classmethod
    def of(cls, gradients: Tensor, labels: Tensor) -> _Moments:
        exact = gradients.double()
        indicators = torch.stack([1 - labels, labels], 1).double()  # (member, 2, batch)
        counts = indicators.sum(-1, keepdim=True)
        weights = indicators / counts.clamp_min(1.0)
        means = weights @ exact  # (member, 2, dim)
        centred = exact.square().sum(-1, keepdim=True)
        second = (weights @ centred).squeeze(-1) - means.square().sum(-1)
        variances = second.clamp_min(0.0) / gradients.shape[-1]
        known = (counts.squeeze(-1) > 0).all(-1).double()
        fraction = counts[:, 1, 0] / labels.shape[1]
        return cls(
            means[:, 1:] - means[:, :1],
            torch.stack([known, variances[:, 0], variances[:, 1], fraction], -1),
        )

    def remembered(self, memory: dict[str, Tensor]) -> _Moments:
        """Replace moments of single-class batches by those remembered; remember the others."""
        known = self._numbers[:, :1] > 0
        if "moments" not in memory:
            memory["moments"] = self._numbers * known
            memory["difference"] = self.difference * known.unsqueeze(-1)
            return self
        past, past_difference = memory["moments"], memory["difference"]
        numbers = torch.where(known, self._numbers, past)
        difference = torch.where(known.unsqueeze(-1), self.difference, past_difference)
        share = (past[:, :1] > 0).double() * _MEMORY  # nothing to average with at first
        memory["moments"] = torch.where(known, torch.lerp(numbers, past, share), past)
        memory["difference"] = torch.lerp(difference, past_difference, share.unsqueeze(-1))
        return _Moments(difference, numbers)

    @property
    def direction(self) -> Tensor:
        """Unit vectors between the class means, (member, 1, dim); zero where the means coincide."""
        norm = row_norms(self.difference)
        return (self.difference / norm.clamp_min(1e-300)).float()

    def numbers(self) -> tuple[list[bool], list[float], list[float], list[float], list[float]]:
        """Per replica: whether known, u, v, squared distance, fraction of positives."""
        columns = self._numbers.T.tolist()
        distance = self.difference.square().sum((1, 2)).tolist()
        return [bool(k) for k in columns[0]], columns[1], columns[2], distance, columns[3]


def _column(per_record: Tensor, like: Tensor) -> Tensor:
    """(member, batch) on the CPU to (member, batch, 1) where the gradients are."""
    return per_record.to(like).unsqueeze(-1)
