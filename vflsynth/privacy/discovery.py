"""Ranges and categories that nobody stated, published with noise at a stated price.

A column that the public schema does not list has a range and values that follow from its records.
They are released first: the range as noisy counts of powers of two, a list of categories as those
values whose noisy count exceeds a threshold. Afterwards the column is like one that was listed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from pandas.api.types import is_hashable, is_scalar
from scipy.stats import norm

from vflsynth.exceptions import PartyDataError
from vflsynth.privacy.events import NeighbouringRelation
from vflsynth.privacy.histograms import histogram_sensitivity
from vflsynth.privacy.noise import gaussian_noise
from vflsynth.privacy.parameters import GaussianPrivacy
from vflsynth.privacy.schema import Bounds, PublicSchema, numeric_values

# Shares of the preprocessing's budget (of squared mu) for ranges and categories, if any, and for
# the histograms after them.
_DISCOVERY_SHARE = 0.25
_HISTOGRAM_SHARE = 1.0 - _DISCOVERY_SHARE

# Share of δ for values that one record alone has and that pass the threshold all the same. Small,
# because a column of names has such a value in every record.
_FAILURE_SHARE = 0.001

# Cells of numeric columns: powers of two from 1e-9 to 1.8e19 of either sign, and one around 0.
_POWERS = 2.0 ** np.arange(-30, 65)
_EDGES = np.concatenate([-_POWERS[::-1], _POWERS])
_AROUND_ZERO = len(_POWERS) - 1

# A cell is part of a column's range above this many noise standard deviations: of all the cells of
# a column where nothing is, one is by chance once in 19,000 columns. It would be far away.
_SIGNIFICANT = 5.0


class ColumnCounts(NamedTuple):
    """Numbers of one party's columns: all that the noise depends on.

    Parameters
    ----------
    total : int
    unlisted : int
        Of those, the ones that the public schema does not list.
    """

    total: int
    unlisted: int = 0


@dataclass(frozen=True, slots=True)
class Discovery:
    """Noise of the release of ranges and categories.

    Parameters
    ----------
    noise_std : float
        Of a count.
    threshold : float
        A category is published if its noisy count exceeds this.
    """

    noise_std: float
    threshold: float


def count_columns(
    frames: Mapping[str, pd.DataFrame], on: Hashable, schema: PublicSchema | None
) -> dict[str, ColumnCounts]:
    """Count every party's columns, and how many of them the schema does not list, by names."""
    schema = schema or PublicSchema()
    columns = {party: [c for c in frame.columns if c != on] for party, frame in frames.items()}
    return {
        party: ColumnCounts(len(own), sum(column not in schema for column in own))
        for party, own in columns.items()
    }


def sum_columns(columns: Mapping[str, ColumnCounts]) -> ColumnCounts:
    """Add up the parties' numbers of columns."""
    return ColumnCounts(
        sum(own.total for own in columns.values()), sum(own.unlisted for own in columns.values())
    )


def failure_probability(delta: float, n_unlisted: int) -> float:
    """Part of δ that a discovery takes: 0 if every column is listed.

    Parameters
    ----------
    delta : float
    n_unlisted : int
        Columns that the schema does not list, of all parties. Numeric ones among them need nothing,
        but what they are is not known where the noise is calibrated.
    """
    return _FAILURE_SHARE * delta if n_unlisted else 0.0


def category_threshold(noise_std: float, probability: float, n_values: int) -> float:
    """Noisy count that a value which one record alone has exceeds with a stated probability.

    Parameters
    ----------
    noise_std : float
        Of a count.
    probability : float
        That any of `n_values` such values is published.
    n_values : int
        Values that one record can be the only one to have, in either of two neighbouring tables.

    Returns
    -------
    float
        ``1 + noise_std z``, z the normal quantile of ``1 - probability / n_values``.

    Notes
    -----
    Source: stability-based histograms (Korolova et al. 2009; Bun, Nissim and Stemmer 2016) with
    Gaussian noise. Values that both tables have are a Gaussian mechanism; the others have a count
    of 1 in one table and do not exist in the other.
    """
    return float(1.0 + noise_std * norm.isf(probability / n_values))


def split_noise(noise_multiplier: float, n_unlisted: int) -> tuple[float, float]:
    """Divide the noise multiplier of all preprocessing over ranges and categories, and histograms.

    Infinite for ranges and categories if every column is listed: nothing is released.
    """
    if not n_unlisted:
        return math.inf, noise_multiplier
    return noise_multiplier / _DISCOVERY_SHARE**0.5, noise_multiplier / _HISTOGRAM_SHARE**0.5


def plan_discovery(privacy: GaussianPrivacy, noise_multiplier: float, n_unlisted: int) -> Discovery:
    """Say how noisy ranges and categories are, from their noise multiplier."""
    assert privacy.delta is not None, "validate() requires delta"
    noise_std = noise_multiplier * histogram_sensitivity(n_unlisted, privacy.relation)
    replaced = privacy.relation is NeighbouringRelation.REPLACE_ONE
    failing = failure_probability(privacy.delta, n_unlisted)
    threshold = category_threshold(noise_std, failing, n_unlisted * (2 if replaced else 1))
    return Discovery(noise_std, threshold)


def discover_schema(
    frame: pd.DataFrame,
    schema: PublicSchema,
    discovery: Discovery,
    *,
    rng: torch.Generator | None = None,
) -> PublicSchema:
    """Add to a schema the columns that it does not list, as noisy counts show them.

    Parameters
    ----------
    frame : pandas.DataFrame, shape (record, column)
        One party's matched records.
    schema : PublicSchema
    discovery : Discovery
    rng : torch.Generator, optional
        For tests only; see `gaussian_noise`.

    Returns
    -------
    PublicSchema
        Numeric columns by dtype get bounds, all others categories.

    Raises
    ------
    PartyDataError
        If no value of a column is frequent enough to be published.
    ColumnKindError
        If a column holds dates or durations.

    Notes
    -----
    Privacy: of a numeric column one record moves one count, of any other too, for the price in the
    ledger. Dtypes are public. Which of them a column has, and the order of an ordered one, must not
    have been chosen by looking at the records.
    """
    bounds, categories = dict(schema.bounds), dict(schema.categories)
    for name in frame.columns:
        if name in schema:
            continue
        column = frame[name]
        if column.dtype.kind in "iufmM":
            found = _noisy_range(column, discovery.noise_std, rng)
            bounds[name] = (found.low, found.high)
        else:
            categories[name] = _frequent_values(column, discovery, rng)
    return replace(schema, bounds=bounds, categories=categories)


def range_cells(column: pd.Series) -> npt.NDArray[np.intp]:
    """Return the number of every record's cell among the powers of two, -1 where it is missing."""
    numbers = numeric_values(column)
    cells = np.clip(np.searchsorted(_EDGES, numbers, side="right") - 1, 0, len(_EDGES) - 2)
    return np.where(np.isnan(numbers), -1, cells)


def _noisy_range(column: pd.Series, noise_std: float, rng: torch.Generator | None) -> Bounds:
    """Bounds from the first to the last power of two whose noisy count stands out."""
    cells = range_cells(column)
    counts = np.bincount(cells[cells >= 0], minlength=len(_EDGES) - 1).astype(np.float64)
    counts += gaussian_noise(counts.shape, noise_std, rng=rng).numpy()
    there = np.flatnonzero(counts > _SIGNIFICANT * noise_std)
    if not len(there):  # too little budget to see anything: the most likely cell
        there = np.array([counts.argmax()])
    first, last = int(there[0]), int(there[-1])
    # Numbers that are 0 or positive have no use for a bound just below 0, nor others above.
    low = 0.0 if first == _AROUND_ZERO else float(_EDGES[first])
    high = 0.0 if last == _AROUND_ZERO > first else float(_EDGES[last + 1])
    return _within_type(low, high, column.dtype)


def _is_value(value: Any) -> bool:
    return not (is_scalar(value) and pd.isna(value)) and is_hashable(value)


def _within_type(low: float, high: float, dtype: object) -> Bounds:
    """Cut bounds to what a column of integers can hold."""
    own = getattr(dtype, "numpy_dtype", dtype)
    if not isinstance(own, np.dtype) or own.kind not in "iu":
        return Bounds(low, high)
    least, largest = float(np.iinfo(own).min), float(np.iinfo(own).max)
    if int(largest) > np.iinfo(own).max:  # 64 bits: rounded up
        largest = float(np.nextafter(largest, 0.0))
    low, high = np.clip([low, high], least, largest).tolist()
    if low < high:
        return Bounds(low, high)
    inner = float(np.nextafter(low, 0.0)) if low else 1.0  # the range lies beyond the type's
    return Bounds(min(low, inner), max(low, inner))


def _frequent_values(
    column: pd.Series, discovery: Discovery, rng: torch.Generator | None
) -> tuple[Hashable, ...]:
    """Values whose noisy count exceeds the threshold, in an order that tells nothing."""
    values = column.astype(object)
    counts = Counter(value for value in values if _is_value(value))
    noise = gaussian_noise((len(counts),), discovery.noise_std, rng=rng).tolist()
    noisy = zip(counts.items(), noise, strict=True)
    frequent = [value for (value, n), error in noisy if n + error > discovery.threshold]
    if not frequent:
        raise PartyDataError(
            "no value of this column is frequent enough to be published within the privacy budget "
            f"(about {discovery.threshold:.0f} records would do)",
            fix="list its categories in public_schema, or drop the column if it identifies records",
            column=column.name,
        )
    if isinstance(column.dtype, pd.CategoricalDtype) and column.dtype.ordered:
        kept = set(frequent)
        return tuple(value for value in column.dtype.categories if value in kept)
    return tuple(sorted(frequent, key=lambda value: (type(value).__name__, str(value))))
