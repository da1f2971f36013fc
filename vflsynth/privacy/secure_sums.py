"""Noisy sums that parties compute together, in the whole numbers in which they are released.

A sum is of whole units, counts or rounded features, and each party adds all the noise that the sum
is accounted for with. Whoever knows a party's noise, that party above all, faces the others': at
least as much as the ledger says. Everybody else faces all of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vflsynth.privacy.releases import RESOLUTION, TAIL, Grid, Ints, Release
from vflsynth.secure import BITS, Arithmetic, largest_product, unit

_FINEST = 20  # a unit has at most 2**20 steps, so that 64 bits hold more records than there are
_LARGEST = 36  # binary digits of the largest noise that can be drawn, in steps


def unit_grid(noise_std: float) -> Grid:
    """Choose the grid of a sum of whole units, by the noise, in units, that each party adds.

    A unit is from 1 to 2^20 steps; less than one, and so nothing, beside noise above 2^36.
    """
    binary = math.frexp(noise_std)[1] - 1
    exponent = max(-_FINEST, binary - RESOLUTION)
    if binary < _LARGEST:
        exponent = min(0, exponent)
    return Grid.of(noise_std, binary - exponent)


def unit_arithmetic(
    largest: float, grid: Grid, n_noises: int, sizes: Sequence[int] = (32, 64)
) -> Arithmetic:
    """Choose what noisy sums of units are computed in, each with so many parties' noise.

    `largest` is the size of the largest sum without noise, in units; for `sizes` see
    `Arithmetic.of`.
    """
    return Arithmetic.of(largest + TAIL * n_noises * grid.noise_std, -grid.exponent, sizes)


@dataclass(frozen=True, slots=True)
class FeatureSum:
    """How the sum of all joint records' random features is computed.

    A record's features are, at each of K frequencies, cosine and sine of its joint angle over
    ``sqrt(K)``. `vflsynth.secure.rotations` adds them up across parties, at W frequencies of every
    record (`width`, by default K), each rounded and in units of which a record has at most ``F^k
    sqrt(W)``: the sensitivity needs no margin for rounding. `n_features` are 2 K. `noise_std` is
    what each party adds, where a record's features have norm 1: the noise multiplier times
    `mean_embedding_sensitivity`.
    """

    noise_std: float
    n_features: int
    n_parties: int
    n_records: int
    width: int | None = None

    @property
    def grid(self) -> Grid:
        """Of each party's noise, in units."""
        norm = largest_product(self.n_parties) * math.sqrt(self._width)
        return unit_grid(self.noise_std * norm)

    @property
    def arithmetic(self) -> Arithmetic:
        """What parties' shares add up in."""
        largest = largest_product(self.n_parties) * self.n_records
        return unit_arithmetic(largest, self.grid, self.n_parties, BITS)

    @property
    def joint_noise_std(self) -> float:
        """Noise of all parties in what `features` returns."""
        return self.grid.noise_std * math.sqrt(self.n_parties) * self._feature

    @property
    def n_frequencies(self) -> int:
        """K."""
        return self.n_features // 2

    def features(self, steps: Ints) -> Tensor:
        """Return the noisy sum of features, float64 of shape (n_features,), from what was released.

        Rounding puts points a little inside the circle on average; that is undone.
        """
        return torch.tensor(Release(steps, self.grid).values * self._feature)

    def error_std(self, n_records: float) -> float:
        """Return what `features` errs by, besides rounding: noise, and windows of so many records.

        At W of K frequencies a sum has a variance of up to ``(K / W - 1) / 2 K`` more of a record.
        """
        windows = (self.n_frequencies / self._width - 1.0) / self.n_features
        return math.hypot(self.joint_noise_std, math.sqrt(n_records * windows))

    @property
    def _width(self) -> int:
        return self.width or self.n_frequencies

    @property
    def _feature(self) -> float:
        """What a unit is of a feature, rounding and windows undone."""
        counted = unit(self.n_parties) * self._width / self.n_frequencies
        return 1.0 / (counted * math.sqrt(self.n_frequencies))
