"""Statistics of a whole table, from which an attacker guesses: naive, histogram, density, ...

A statistic is fitted on a table that both worlds' attackers know, and then
maps any table of the same columns to a vector of the same length.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable
from copy import copy
from typing import ClassVar, Self

import numpy as np
import pandas as pd
from scipy.special import logsumexp

from vflsynth.adversary.encoding import Attribute, Encoding, Floats, distance_blocks
from vflsynth.evaluation.columns import present
from vflsynth.exceptions import ParameterError
from vflsynth.registry import register

_BLOCK_ROWS = 8192
_N_ENDS, _N_NEIGHBOURS = 3, 5  # smallest and largest numbers; nearest records


class Statistic(ABC):
    """Maps a table to a vector.

    Subclasses say how; `name` is what reports call it, and finds those that are registered.
    """

    registry_group: ClassVar = "statistics"
    name: str
    _encoding: Encoding

    def fit(self, table: pd.DataFrame, categorical: Collection[Hashable] = ()) -> Self:
        """Return a copy that knows the ranges and labels of a table.

        `categorical` names numeric columns to read as labels.
        """
        fitted = copy(self)
        with np.errstate(all="ignore"):  # infinite and huge numbers
            fitted._encoding = Encoding(table, categorical)
        return fitted

    def measure(self, table: pd.DataFrame, target: pd.DataFrame) -> Floats:
        """Describe a table: finite numbers, the same features for every table, shape (feature,).

        `target` is the record that the attacker asks about, as one row.
        """
        self._encoding.check(table)
        names = [attribute.name for attribute in self._encoding.attributes]
        with np.errstate(all="ignore"):
            features = self._measure(table[names], target[names])
        return np.nan_to_num(features, nan=0.0, posinf=0.0, neginf=0.0)

    @abstractmethod
    def _measure(self, table: pd.DataFrame, target: pd.DataFrame) -> Floats:
        """Describe a table of the columns that are known, in their order."""

    def __repr__(self) -> str:
        names = inspect.signature(type(self)).parameters
        parameters = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__name__}({parameters})"


class ByColumn(Statistic):
    """What describes each column by itself: features of one after those of the other."""

    def _measure(self, table: pd.DataFrame, target: pd.DataFrame) -> Floats:
        columns = self._encoding.attributes
        return np.concatenate([self._of(column, table, target) for column in columns])

    @abstractmethod
    def _of(self, column: Attribute, table: pd.DataFrame, target: pd.DataFrame) -> Floats:
        """Describe one column."""


@register
class Naive(ByColumn):
    """Mean, median and variance of numbers; most and least frequent and number of labels.

    Source: Stadler et al. 2022, as VFLGAN §5.4 uses it.
    """

    name = "naive"

    def _of(self, column: Attribute, table: pd.DataFrame, target: pd.DataFrame) -> Floats:
        if column.levels is None:
            values = present(column.values(table))
            spread = values.var(ddof=1) if len(values) > 1 else 0.0
            found = [values.mean(), np.median(values), spread] if len(values) else [0.0] * 3
            return np.array(found + [1.0 - len(values) / len(table)] * column.marks_missing)
        counts = np.bincount(column.codes(table), minlength=column.width)
        there = np.flatnonzero(counts)
        least = there[counts[there].argmin()]
        return np.array([counts.argmax(), least, len(there)], np.float64)


@register
class Histogram(ByColumn):
    """Share of each bin of numbers, between the known extremes, and of each label.

    Source: Stadler et al. 2022. The VFLGAN code sorts bins by size, which mixes them up from table
    to table; here they stay in order.

    Parameters
    ----------
    n_bins : int, default=10
        Values beyond the extremes count in the outermost bins. The VFLGAN code had 45.
    """

    name = "histogram"

    def __init__(self, n_bins: int = 10) -> None:
        if n_bins < 2:
            raise ParameterError(f"n_bins must be at least 2, got {n_bins!r}")
        self.n_bins = n_bins

    def _of(self, column: Attribute, table: pd.DataFrame, target: pd.DataFrame) -> Floats:
        if column.levels is not None:
            return np.bincount(column.codes(table), minlength=column.width) / len(table)
        values = present(column.values(table))
        width = (column.high - column.low) / self.n_bins or 1.0
        codes = np.clip((values - column.low) / width, 0, self.n_bins - 1).astype(np.int64)
        return np.bincount(codes, minlength=self.n_bins) / len(table)


@register
class Extremes(ByColumn):
    """Smallest and largest numbers, and how much of each column lies beyond the target.

    Of every column of numbers the three smallest and largest values, standardised, and the shares
    that are at least, and at most, the target's; of every column of labels the share of the
    target's label.

    Ours. A record that stands out often is the end of some column's range, which generators that
    learn ranges or marginals pass on: a histogram's outermost bin is too wide to tell.
    """

    name = "extremes"

    def _of(self, column: Attribute, table: pd.DataFrame, target: pd.DataFrame) -> Floats:
        if column.levels is not None:
            return np.array([(column.codes(table) == column.codes(target)[0]).mean()])
        values, wanted = np.sort(column.values(table)), column.values(target)[0]
        beyond = [(values >= wanted).mean(), (values <= wanted).mean()]
        values = present(values)
        if not len(values):
            return np.array([0.0] * 2 * _N_ENDS + beyond)
        ends = np.arange(_N_ENDS).clip(max=len(values) - 1)
        scores = (values[np.concatenate([ends, -1 - ends])] - column.mean) / column.scale
        return np.concatenate([scores, beyond])


@register
class Correlation(Statistic):
    """Pearson correlation of every pair of encoded features, labels being one-hot.

    Source: Stadler et al. 2022, as VFLGAN §5.4 uses it. A constant feature correlates with nothing.
    """

    name = "correlation"

    def _measure(self, table: pd.DataFrame, target: pd.DataFrame) -> Floats:
        features = self._encoding.encode(table)
        features -= features.mean(axis=0)
        norms = np.sqrt((features**2).sum(axis=0))
        unit = np.divide(features, norms, out=np.zeros_like(features), where=norms > 1e-9)
        correlations: Floats = (unit.T @ unit)[np.triu_indices(unit.shape[1], k=1)]
        return correlations


@register
class Neighbourhood(Statistic):
    """Distances of the five records that are nearest to the target.

    Distances are Euclidean between standardised numbers and one-hot labels.

    Not in the paper, whose statistics describe the table as a whole: a generator that repeats
    records gives itself away here first (compare Houssiau et al. 2022, TAPAS).
    """

    name = "neighbourhood"

    def _measure(self, table: pd.DataFrame, target: pd.DataFrame) -> Floats:
        centre = self._encoding.encode(target)
        blocks = (table.iloc[i : i + _BLOCK_ROWS] for i in range(0, len(table), _BLOCK_ROWS))
        squares = np.concatenate(
            [((self._encoding.encode(block) - centre) ** 2).sum(1) for block in blocks]
        )
        k = min(_N_NEIGHBOURS, len(squares))
        nearest = np.sqrt(np.sort(np.partition(squares, k - 1)[:k]))
        return np.pad(nearest, (0, _N_NEIGHBOURS - k), mode="edge")


_LEAST_SPREAD = 1e-3
_WIDTHS, _POPULATION = (1.0, 0.3), 100
"""Of the kernels, as multiples of Scott's, and known records that the target is compared with."""


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
    """

    name = "density"

    def fit(self, table: pd.DataFrame, categorical: Collection[Hashable] = ()) -> Self:
        """Return a copy that knows the records of a table; see `Statistic.fit`."""
        fitted = super().fit(table, categorical)
        fitted._known = fitted._encoding.encode(table)
        places = np.linspace(0, len(table) - 1, min(_POPULATION, len(table)))
        fitted._population = fitted._known[places.astype(np.int64)]
        fitted._expected = {}
        return fitted

    _known: Floats
    _population: Floats
    _expected: dict[tuple[float, bytes], Floats]

    def _measure(self, table: pd.DataFrame, target: pd.DataFrame) -> Floats:
        encoded, asked = self._encoding.encode(table), self._encoding.encode(target)
        if len(encoded) < 2:
            return np.zeros(2 * len(_WIDTHS))
        found = []
        for width in _WIDTHS:
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
