"""Counts of records that share values with the target: what a copy of part of it cannot hide."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from itertools import combinations
from math import comb
from typing import Self

import numpy as np
import pandas as pd

from vflsynth.adversary.encoding import Attribute, Booleans, Floats
from vflsynth.adversary.statistics import ByColumn, Statistic
from vflsynth.registry import register

_SAME = 1e-9  # of a column's spread: differences of stored numbers, not of values
_LEAST_DISTANCE = 1e-3  # in standard deviations: nearer is as telling as equal
_WINDOW = 0.1  # share of the known values that are close
_N_QUERIES, _N_COLUMNS = 150, (2, 4)  # sets of columns, and least and most columns of a set


class Targeted(Statistic):
    """What compares the values of a table with the target's, column by column.

    Two values are the *same* if they are equal, and *close* if the table's value is among the tenth
    of the known records' values that are nearest to the target's. Labels, and missing values, are
    close only if they are the same.
    """

    def fit(self, table: pd.DataFrame, categorical: Collection[Hashable] = ()) -> Self:
        """Return a copy that knows the values of a table; see `Statistic.fit`."""
        fitted = super().fit(table, categorical)
        fitted._known = {a.name: a.values(table) for a in fitted._encoding.numeric}
        return fitted

    _known: dict[Hashable, Floats]

    def matches(self, table: pd.DataFrame, target: pd.DataFrame) -> tuple[Booleans, Booleans]:
        """Return which values are the same as the target's, and which close; (row, column) each."""
        pairs = [self._column(a, table, target) for a in self._encoding.attributes]
        same, close = zip(*pairs, strict=True)
        return np.column_stack(same), np.column_stack(close)

    def _column(
        self, attribute: Attribute, table: pd.DataFrame, target: pd.DataFrame
    ) -> tuple[Booleans, Booleans]:
        if attribute.levels is not None:
            equal = attribute.codes(table) == attribute.codes(target)[0]
            return equal, equal
        values, wanted = attribute.values(table), attribute.values(target)[0]
        if np.isnan(wanted):
            missing = np.isnan(values)
            return missing, missing
        known = self._known[attribute.name]
        reach = np.nanquantile(np.abs(known - wanted), _WINDOW)
        with np.errstate(invalid="ignore"):
            distances = np.abs(values - wanted)
        same = distances <= _SAME * attribute.scale
        return same, same | (distances <= reach)


@register
class TargetedQueries(Targeted):
    """Shares of records that have some of the target's values, for random sets of columns.

    There are 150 sets of two to four columns, or all if these are fewer, each asked about once with
    values that are the same and once with values that are close.

    Source: Houssiau et al. 2022 (TAPAS), random targeted counting queries. Departs from it in that
    numbers also count when they are close, so that copies with a little noise are seen.
    """

    name = "targeted queries"

    def _measure(self, table: pd.DataFrame, target: pd.DataFrame) -> Floats:
        queries = self._queries(len(self._encoding.attributes))
        asked = queries.sum(axis=0)
        shares = [
            (found.astype(np.float32) @ queries >= asked - 0.5).mean(axis=0)
            for found in self.matches(table, target)
        ]
        return np.concatenate(shares).astype(np.float64)

    def _queries(self, n: int) -> Floats:
        """Return sets of columns without repetition, as 0 and 1; shape (column, query)."""
        low, high = (min(k, n) for k in _N_COLUMNS)
        sizes = range(low, high + 1)
        rng = np.random.default_rng([0, 6])
        if sum(comb(n, k) for k in sizes) <= _N_QUERIES:
            sets = [chosen for k in sizes for chosen in combinations(range(n), k)]
        else:
            drawn: dict[tuple[int, ...], None] = {}
            while len(drawn) < _N_QUERIES:
                size = int(rng.integers(low, high + 1))
                drawn[tuple(sorted(rng.permutation(n)[:size].tolist()))] = None
            sets = list(drawn)
        queries = np.zeros((n, len(sets)))
        for j, chosen in enumerate(sets):
            queries[list(chosen), j] = 1.0
        return queries


@register
class SharedValues(Targeted):
    """Shares of records that have at least one, two, three, ... of the target's values.

    The sum of all targeted queries of one size, but for a weight: few features, for few shadows. It
    sees a record that was published in parts whichever columns the parts have.
    """

    name = "shared values"

    def _measure(self, table: pd.DataFrame, target: pd.DataFrame) -> Floats:
        counts = []
        for found in self.matches(table, target):
            n_shared = np.bincount(found.sum(axis=1), minlength=found.shape[1] + 1)
            counts.append(n_shared[::-1].cumsum()[::-1][1:])
        return np.concatenate(counts) / len(table)


@register
class NearestValues(ByColumn):
    """How near each column comes to the target's value, and how often it is that value.

    Of every column of numbers the logarithm of the distance of the nearest value, in standard
    deviations, and the share of values that are the target's; of every column of labels the share
    of the target's label. If the target's value is missing, the share of missing values.

    Ours. It looks at each column by itself, as counts of several columns do not: grids, limits and
    categories that a generator learned show there which values its training records had, also where
    the values themselves are never published.
    """

    name = "nearest values"

    def _of(self, column: Attribute, table: pd.DataFrame, target: pd.DataFrame) -> Floats:
        if column.levels is not None:
            return np.array([(column.codes(table) == column.codes(target)[0]).mean()])
        values, wanted = column.values(table), column.values(target)[0]
        if np.isnan(wanted):
            return np.array([0.0, np.isnan(values).mean()])
        distances = np.abs(values - wanted) / column.scale
        nearest = np.fmin.reduce(distances, initial=1.0 / _LEAST_DISTANCE)
        same = (distances <= _SAME).mean()  # never of missing values
        return np.array([np.log(nearest + _LEAST_DISTANCE), same])
