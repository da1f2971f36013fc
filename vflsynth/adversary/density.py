"""How dense a table is where the target is, beside how dense it should be."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Self

import numpy as np
import pandas as pd
from scipy.special import logsumexp

from vflsynth.adversary.encoding import Floats, distance_blocks
from vflsynth.adversary.statistics import Statistic
from vflsynth.exceptions import ParameterError
from vflsynth.registry import register

_LEAST_SPREAD = 1e-3


class Kernels:
    """A Gaussian kernel density estimate of a sample, shape (record, feature).

    `width` is a multiple of Scott's. In directions in which the sample has next to no spread, such
    as between dependent one-hot columns, a floor takes its place.
    """

    def __init__(self, sample: Floats, width: float = 1.0) -> None:
        n, d = sample.shape
        values, vectors = np.linalg.eigh(np.atleast_2d(np.cov(sample, rowvar=False)))
        bandwidth = width * np.sqrt(np.maximum(values, _LEAST_SPREAD)) * n ** (-1.0 / (d + 4))
        self._scale = vectors / bandwidth
        self._centres = sample @ self._scale
        self._constant = -np.log(bandwidth).sum() - np.log(n)

    def log_density(self, points: Floats) -> Floats:
        """Return the logarithm of the density at points, up to a constant; shape (point,)."""
        blocks = distance_blocks(points @ self._scale, self._centres)
        densities = [logsumexp(-0.5 * block**2, axis=1) for block in blocks]
        found: Floats = np.concatenate(densities) + self._constant
        return found


@register
class Density(Statistic):
    """Density of the table at the target, by itself and as a rank among known records.

    Two numbers per width of the kernels. One is the logarithm of the ratio of the table's density
    to that of the known records, the target not among them (DOMIAS). The other is the share of the
    known records for which that ratio is smaller (RMIA).

    Source: van Breugel et al. 2023, Eq. 2; Zarifzadeh et al. 2024, Eq. 4 with γ = 1. Departs from
    the latter in what is compared: it takes a model's probability of a record, here there is only a
    table, so that a density estimated from it is taken, and one estimated from the known records in
    place of the mean over reference models. With `LikelihoodRatio` as adversary the first number
    makes the likelihood-ratio attack of Carlini et al. 2022 (LiRA).

    Parameters
    ----------
    widths : tuple of float, default=(1.0, 0.3)
        Of the kernels, as multiples of Scott's.
    n_population : int, default=100
        Known records that the target is compared with.
    """

    name = "density"

    def __init__(self, widths: tuple[float, ...] = (1.0, 0.3), n_population: int = 100) -> None:
        if n_population < 1 or not widths or min(widths) <= 0.0:
            raise ParameterError(
                "n_population must be at least 1 and widths positive, got "
                f"{n_population!r} and {widths!r}"
            )
        self.widths, self.n_population = widths, n_population

    def fit(self, table: pd.DataFrame, categorical: Collection[Hashable] = ()) -> Self:
        """Return a copy that knows the records of a table; see `Statistic.fit`."""
        fitted = super().fit(table, categorical)
        fitted._known = fitted._encoding.encode(table)
        places = np.linspace(0, len(table) - 1, min(self.n_population, len(table)))
        fitted._population = fitted._known[places.astype(np.int64)]
        fitted._expected = {}
        return fitted

    _known: Floats
    _population: Floats
    _expected: dict[tuple[float, bytes], Floats]

    def _measure(self, table: pd.DataFrame, target: pd.DataFrame) -> Floats:
        encoded, asked = self._encoding.encode(table), self._encoding.encode(target)
        if len(encoded) < 2:
            return np.zeros(2 * len(self.widths))
        found = []
        for width in self.widths:
            points = np.concatenate([asked, self._population])
            ratios = Kernels(encoded, width).log_density(points) - self._reference(width, asked)
            others = (self._population != asked).any(axis=1)
            lower = (ratios[1:] < ratios[0])[others]
            found += [float(ratios[0]), float(lower.mean()) if len(lower) else 0.5]
        return np.array(found)

    def _reference(self, width: float, asked: Floats) -> Floats:
        """Density of the other known records at the target and the population, kept for reuse."""
        key = (width, asked.tobytes())
        if key not in self._expected:
            others = self._known[(self._known != asked).any(axis=1)]
            points = np.concatenate([asked, self._population])
            enough = others if len(others) > 1 else self._known
            self._expected[key] = Kernels(enough, width).log_density(points)
        return self._expected[key]
