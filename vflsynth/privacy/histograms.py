"""Noisy marginal histograms: one release that gives sizes, scales and shares of every column."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from vflsynth.columns.bins import Bins, Cells, cell_codes, n_cells
from vflsynth.columns.histograms import NoisyHistogram
from vflsynth.columns.schema import Bounds, PublicColumns
from vflsynth.privacy.events import NeighbouringRelation
from vflsynth.privacy.releases import Grid

FIRST_ROUND_SHARE = 0.4
"""Share of the histograms' budget (of squared mu) for those that the others' bins are made of."""

_Counts = npt.NDArray[np.int64]
ColumnCells: TypeAlias = Mapping[Hashable, Cells]


def histogram_sensitivity(n_columns: int, relation: NeighbouringRelation) -> float:
    """L2 sensitivity of all columns' histograms together.

    Parameters
    ----------
    n_columns : int
        Of all parties.
    relation : NeighbouringRelation

    Returns
    -------
    float
        In counts: a record has one cell in every column, so adding it moves ``n_columns`` cells by
        1 and replacing it moves at most twice as many.
    """
    cells = n_columns * (2 if relation is NeighbouringRelation.REPLACE_ONE else 1)
    return math.sqrt(cells)


def product_sensitivity(n_pairs: int, relation: NeighbouringRelation) -> float:
    """L2 sensitivity of the sums of products of all pairs of columns together.

    Parameters
    ----------
    n_pairs : int
        Of all parties' columns.
    relation : NeighbouringRelation

    Returns
    -------
    float
        Where a column's codes have a norm of at most 1, and so has every pair's outer product:
        adding a record moves each pair by 1 at most and replacing it, if the products are opposite,
        by 2.
    """
    return math.sqrt(n_pairs) * (2.0 if relation is NeighbouringRelation.REPLACE_ONE else 1.0)


def first_cells(columns: PublicColumns, names: Iterable[Hashable], n_bins: int) -> ColumnCells:
    """Divide columns by what is public about them; numbers by `Bins.first`."""
    found = {name: columns[name] for name in names}
    return {
        name: Bins.first(column, n_bins) if isinstance(column, Bounds) else column
        for name, column in found.items()
    }


def largest_count(n_records: int, noise_std: float) -> float:
    """Return how large a count of `release_divided_histograms` can be, of either sign."""
    return Grid.of(_second_round(noise_std)).most(n_records)


def exact_histograms(frame: pd.DataFrame, cells: ColumnCells) -> dict[Hashable, _Counts]:
    """Count the records in every cell of every column.

    Parameters
    ----------
    frame : pandas.DataFrame, shape (record, column)
        One party's aligned table.
    cells : mapping of column to Bins or Categories
        Of every column.

    Returns
    -------
    dict of column to int64 array, shape (cell,)
        Without noise: not for publication. The last cell counts missing values.
    """
    return {
        name: np.bincount(
            cell_codes(frame[name], cells[name]), minlength=n_cells(cells[name])
        ).astype(np.int64)
        for name in frame.columns
    }


def release_histograms(
    frame: pd.DataFrame,
    cells: ColumnCells,
    *,
    noise_std: float,
    rng: torch.Generator | None = None,
) -> dict[Hashable, NoisyHistogram]:
    """Publish the histograms of one party's columns with discrete Gaussian noise in every cell.

    Parameters
    ----------
    frame, cells
        As in `exact_histograms`; cells follow from what is public or was published before.
    noise_std : float
        In counts; the noise multiplier times `histogram_sensitivity` of *all* parties' columns.
    rng : torch.Generator, optional
        For tests only; see `discrete_gaussian`.

    Returns
    -------
    dict of column to NoisyHistogram

    Notes
    -----
    Sees this party's columns; sends noisy counts, which everybody may see.
    """
    grid = Grid.of(noise_std)
    released: dict[Hashable, NoisyHistogram] = {}
    for name, counts in exact_histograms(frame, cells).items():
        noisy = grid.release(grid.count(counts), rng=rng).values
        own = cells[name]
        bins, column = (own, own.bounds) if isinstance(own, Bins) else (None, own)
        released[name] = NoisyHistogram(column, noisy, noise_std, bins, exponent=grid.exponent)
    return released


def release_divided_histograms(
    frame: pd.DataFrame,
    columns: PublicColumns,
    *,
    n_bins: int,
    noise_std: float,
    rng: torch.Generator | None = None,
) -> dict[Hashable, NoisyHistogram]:
    """Publish numbers' histograms twice: of `Bins.first`, then of bins that fit the first ones.

    Public bounds are often far wider than a column, most of whose values may be equal besides: in
    bins of equal width its scale, and so the whole encoding, would be the noise's, and its spikes
    would be spread over values that nobody has. Categories, whose cells are the same, are published
    once with the noise that the mean of two releases would have.

    Parameters
    ----------
    frame : pandas.DataFrame, shape (record, column)
        One party's aligned table.
    columns : mapping of column to Bounds or Categories
        Of every column, as `ColumnTransformer.public_column` returns them.
    n_bins : int
        Equal bins of numeric columns at first; see `NoisyHistogram.divided` for the second ones.
    noise_std : float
        In counts, of one release with the same total cost; the two have more (`FIRST_ROUND_SHARE`).
    rng : torch.Generator, optional
        For tests only; see `discrete_gaussian`.

    Returns
    -------
    dict of column to NoisyHistogram
        Of numeric columns the second.

    Notes
    -----
    Privacy: in units of its own noise, a record moves a column's cell by ``1 / noise_std``, or in
    two releases by ``sqrt(share) / noise_std`` and ``sqrt(1 - share) / noise_std``, whose squares
    add up to the same: the price does not depend on how many columns are published twice, nor on
    how many cells they have.
    """
    cells = first_cells(columns, frame.columns, n_bins)
    labels = [name for name in frame.columns if not isinstance(cells[name], Bins)]
    numbers = frame.drop(columns=labels)
    first = release_histograms(
        numbers, cells, noise_std=noise_std / math.sqrt(FIRST_ROUND_SHARE), rng=rng
    )
    found = release_histograms(
        numbers,
        {name: histogram.divided() for name, histogram in first.items()},
        noise_std=_second_round(noise_std),
        rng=rng,
    )
    found |= release_histograms(frame[labels], cells, noise_std=noise_std, rng=rng)
    return {name: found[name] for name in frame.columns}


def _second_round(noise_std: float) -> float:
    """Return the noise of the histograms of numbers that are kept, which is the most there is."""
    return noise_std / math.sqrt(1.0 - FIRST_ROUND_SHARE)
