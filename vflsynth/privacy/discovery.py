"""How columns are encoded within the budget: what nobody stated is published at a stated price.

A column that the public schema does not list has a range and values that follow from its records.
They are released first: the range as noisy counts of the cells of a public grid (powers of two for
numbers, decades for times), a list of categories as those values whose noisy count exceeds a
threshold. Afterwards the column is like one that was listed.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from pandas.api.types import is_scalar
from scipy.stats import norm

from vflsynth.codec import scalar_from_json, scalar_to_json
from vflsynth.columns import NoisyHistogram, PublicSchema
from vflsynth.columns.arrays import read_numbers
from vflsynth.columns.base import ColumnTransformer, naming
from vflsynth.columns.kinds import check_kinds, public_columns
from vflsynth.columns.schema import Categories, PublicColumn
from vflsynth.exceptions import CardinalityError, PartyDataError, PrivacyBudgetError
from vflsynth.privacy.events import NeighbouringRelation
from vflsynth.privacy.histograms import histogram_sensitivity, release_divided_histograms
from vflsynth.privacy.releases import Grid

# Shares of the preprocessing's budget (of squared mu) for ranges and categories, if any, and for
# the histograms after them.
_DISCOVERY_SHARE = 0.25
_HISTOGRAM_SHARE = 1.0 - _DISCOVERY_SHARE

# Share of δ for values that one record alone has and that pass the threshold all the same. Small,
# because a column of names has such a value in every record.
_FAILURE_SHARE = 0.001

# A cell is part of a column's range above this many noise standard deviations: of all the cells of
# a column where nothing is, one is by chance once in 19,000 columns. It would be far away.
_SIGNIFICANT = 5.0


class ColumnCounts(NamedTuple):
    """Numbers of one party's columns, of all and of unlisted ones: the noise depends on no more.

    The latter are those that the public schema does not list.
    """

    total: int
    unlisted: int = 0


@dataclass(frozen=True, slots=True)
class Discovery:
    """Noise of the release of ranges and categories, in counts.

    A category is published if its noisy count exceeds the threshold.
    """

    noise_std: float
    threshold: float


def count_columns(
    frames: Mapping[str, pd.DataFrame],
    on: Hashable,
    schema: PublicSchema | None,
    kinds: Mapping[Hashable, str] | None = None,
) -> dict[str, ColumnCounts]:
    """Count every party's columns, and how many of them would have to be discovered.

    Only labels and dtypes are looked at. ColumnKindError if a kind is unknown or of no column, or
    kind, dtype and schema contradict each other.
    """
    tables = {
        party: frame[[c for c in frame.columns if c != on]] for party, frame in frames.items()
    }
    kinds = check_kinds(kinds, [label for table in tables.values() for label in table.columns])
    schema = schema or PublicSchema()
    return {
        party: _counts_of(public_columns(table, schema, kinds, party=party))
        for party, table in tables.items()
    }


def _counts_of(known: Mapping[Hashable, tuple[Any, PublicColumn | None]]) -> ColumnCounts:
    return ColumnCounts(len(known), sum(column is None for _, column in known.values()))


def sum_columns(columns: Mapping[str, ColumnCounts]) -> ColumnCounts:
    """Add up the parties' numbers of columns."""
    return ColumnCounts(
        sum(own.total for own in columns.values()), sum(own.unlisted for own in columns.values())
    )


def failure_probability(delta: float, n_unlisted: int) -> float:
    """Part of δ that a discovery takes: 0 if every column, of all parties, is listed.

    Numeric ones need nothing, but what they are is not known where the noise is calibrated.
    """
    return _FAILURE_SHARE * delta if n_unlisted else 0.0


def category_threshold(noise_std: float, probability: float, n_values: int) -> float:
    """Noisy count that any value which one record alone has exceeds with a stated probability.

    It is ``1 + noise_std z``, z the normal quantile of ``1 - probability / n_values``; one record
    can be the only one to have `n_values`, in either of two neighbouring tables. Source:
    stability-based histograms (Korolova et al. 2009; Bun, Nissim and Stemmer 2016) with Gaussian
    noise. Values that both tables have are a Gaussian mechanism; the others have a count of 1 in
    one table and do not exist in the other.
    """
    return float(1.0 + noise_std * norm.isf(probability / n_values))


def split_noise(noise_multiplier: float, n_unlisted: int) -> tuple[float, float]:
    """Divide the noise multiplier of all preprocessing over ranges and categories, and histograms.

    Infinite for ranges and categories if every column is listed: nothing is released.
    """
    if not n_unlisted:
        return math.inf, noise_multiplier
    return noise_multiplier / _DISCOVERY_SHARE**0.5, noise_multiplier / _HISTOGRAM_SHARE**0.5


def plan_discovery(
    noise_multiplier: float, n_unlisted: int, relation: NeighbouringRelation, delta: float
) -> Discovery:
    """Say how noisy ranges and categories are, from their noise multiplier."""
    noise_std = noise_multiplier * histogram_sensitivity(n_unlisted, relation)
    replaced = relation is NeighbouringRelation.REPLACE_ONE
    failing = failure_probability(delta, n_unlisted)
    grid = Grid.of(noise_std)
    threshold = category_threshold(grid.noise_std, failing, n_unlisted * (2 if replaced else 1))
    # Discrete noise is m steps or more with at most the probability with which continuous noise of
    # the same σ is m - 1 or more (Canonne, Kamath and Steinke 2020, tail bounds): one step more.
    return Discovery(noise_std, threshold + grid.step)


def discover_column(
    column: pd.Series[Any],
    kind: type[ColumnTransformer],
    discovery: Discovery,
    *,
    rng: torch.Generator | None = None,
) -> PublicColumn:
    """Find the range, or the labels, of a column that the schema does not list.

    `kind`, of `public_columns`, has labels, or ranges that are looked for in a grid of cells; `rng`
    is for tests only. CardinalityError if no label is frequent enough to be published.

    Privacy: of any column one record moves one count, for the price in the ledger. Dtypes are
    public. Which of them a column has, and the order of an ordered one, must not have been chosen
    by looking at the records.
    """
    if kind.ranges is None:
        return _frequent_values(column, kind, discovery, rng)
    edges, origin = kind.ranges.grid(column.dtype)
    cells = range_cells(column, edges, origin)
    grid = Grid.of(discovery.noise_std)
    exact = np.bincount(cells[cells >= 0], minlength=len(edges) - 1).astype(np.int64)
    counts = grid.release(grid.count(exact), rng=rng).values
    there = np.flatnonzero(counts > _SIGNIFICANT * discovery.noise_std)
    if not len(there):  # too little budget to see anything: the most likely cell
        there = np.array([counts.argmax()])
    first, last = int(there[0]), int(there[-1])
    low, high = float(edges[first]), float(edges[last + 1])
    # Numbers that are 0 or positive have no use for a bound just below 0, nor others above.
    if low < 0.0 < edges[first + 1]:
        low = 0.0
    if edges[last] < 0.0 < high and last > first:
        high = 0.0
    return kind.ranges.between(column.dtype, low, high)


def range_cells(
    column: pd.Series[Any], edges: npt.NDArray[np.float64], origin: int
) -> npt.NDArray[np.intp]:
    """Return the number of every record's cell of a grid, -1 where it is missing."""
    numbers = read_numbers(column, origin)
    cells = np.clip(np.searchsorted(edges, numbers, side="right") - 1, 0, len(edges) - 2)
    return np.where(np.isnan(numbers), -1, cells)


def _spelling(value: Any) -> str | None:
    """Text that two values share only if nobody can tell them apart; None for no value.

    1, 1.0 and True are equal, and so are 0.0 and -0.0, or one time in two zones. Which of them
    stands for all must not depend on one record: they are counted apart, and if several are
    frequent, the first of them in the order of these texts is the label.
    """
    try:
        return None if is_scalar(value) and pd.isna(value) else json.dumps(scalar_to_json(value))
    except (TypeError, ValueError, ArithmeticError, RecursionError):  # no label can be this
        return None


def _frequent_values(
    column: pd.Series[Any],
    kind: type[ColumnTransformer],
    discovery: Discovery,
    rng: torch.Generator | None,
) -> Categories:
    """Values whose noisy count exceeds the threshold, in an order that tells nothing."""
    counts = Counter(map(_spelling, column.astype(object)))
    keys = sorted(key for key in counts if key is not None)  # not in the records' order
    grid = Grid.of(discovery.noise_std)
    exact = np.array([counts[key] for key in keys], dtype=np.int64)
    noisy = grid.release(grid.count(exact), rng=rng).values
    frequent = [key for key, n in zip(keys, noisy, strict=True) if n > discovery.threshold]
    found = [scalar_from_json(json.loads(key)) for key in frequent]
    if not found:
        raise CardinalityError(
            "no value of this column is frequent enough to be published within the privacy budget "
            f"(about {discovery.threshold:.0f} records would do)",
            fix="list its categories (public_schema, --categories, a contract), or drop the column "
            "if it identifies records",
            column=column.name,
        )
    return Categories(tuple(kind.in_order(column.name, column.dtype, list(dict.fromkeys(found)))))


@dataclass(frozen=True, slots=True)
class PublicEncoding:
    """Public bounds and categories, and the noise of the histograms that refine them.

    A numeric column's histogram has `n_bins`. `noise_std` is of every cell, in counts, if it were
    released once; see `release_divided_histograms`. None releases no histogram: columns are scaled
    by their public bounds, as if spread evenly between them, and missing values are not
    synthesised. Without a `discovery` the schema must list all columns. `kinds` are what users
    declared, of any parties' columns; `columns` what the noise was calibrated for: a party that has
    more to release refuses.
    """

    schema: PublicSchema
    n_bins: int
    noise_std: float | None
    discovery: Discovery | None = None
    kinds: Mapping[Hashable, str] = field(default_factory=dict)
    columns: Mapping[str, ColumnCounts] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        noise_multiplier: float | None,
        columns: Mapping[str, ColumnCounts],
        *,
        relation: NeighbouringRelation,
        delta: float,
        schema: PublicSchema | None = None,
        n_bins: int = 32,
        kinds: Mapping[Hashable, str] | None = None,
    ) -> PublicEncoding:
        """Divide a plan's noise of all preprocessing, None if there is none, over its releases.

        `columns` are those of `count_columns`, with the same kinds.
        """
        kinds = dict(kinds or {})
        schema, counts = schema or PublicSchema(), sum_columns(columns)
        if noise_multiplier is None:
            return PublicEncoding(schema, n_bins, None, kinds=kinds)
        of_discovery, of_histograms = split_noise(noise_multiplier, counts.unlisted)
        noise_std = of_histograms * histogram_sensitivity(counts.total, relation)
        discovery = None
        if counts.unlisted:
            discovery = plan_discovery(of_discovery, counts.unlisted, relation, delta)
        return PublicEncoding(schema, n_bins, noise_std, discovery, kinds, columns)

    def histograms(
        self, party: str, matched: pd.DataFrame, noise: torch.Generator | None = None
    ) -> dict[Hashable, NoisyHistogram]:
        """Release a party's noisy histograms, or make those of somebody who knows nothing.

        `matched` are its matched records; `noise` is for tests only. PartyDataError if a column has
        no public bounds or categories and cannot be given them, ColumnKindError if kind, dtype and
        schema contradict each other, PrivacyBudgetError if the noise was calibrated for fewer
        columns.
        """
        public: dict[Hashable, PublicColumn] = {}
        known = public_columns(matched.iloc[:0], self.schema, self.kinds, party=party)
        self._check_counts(party, _counts_of(known))
        for label, (kind, column) in known.items():
            with naming(party, label):
                if column is None and self.discovery is not None:
                    column = discover_column(matched[label], kind, self.discovery, rng=noise)
                if column is None:
                    raise PartyDataError(
                        "public_schema says nothing about this column, and reading its range or "
                        "categories off the records would not be private",
                        fix="give it public bounds (numbers, times) or a public list of categories",
                    )
            public[label] = column
        if self.noise_std is None:
            return {
                label: NoisyHistogram.uninformed(column, self.n_bins)
                for label, column in public.items()
            }
        return release_divided_histograms(
            matched, public, n_bins=self.n_bins, noise_std=self.noise_std, rng=noise
        )

    def _check_counts(self, party: str, own: ColumnCounts) -> None:
        paid = self.columns.get(party, own)
        if own.total > paid.total or own.unlisted > paid.unlisted:
            raise PrivacyBudgetError(
                f"party {party!r} would release {own.total} columns, {own.unlisted} of which "
                f"nobody described, but the noise is for {paid.total} and {paid.unlisted}"
            )
