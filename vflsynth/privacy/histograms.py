"""Noisy marginal histograms: one release that gives sizes, scales and shares of every column."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from vflsynth.columns.histograms import NoisyHistogram
from vflsynth.columns.schema import Bounds, PublicColumns, cell_codes, n_cells
from vflsynth.privacy.events import NeighbouringRelation
from vflsynth.privacy.releases import Grid

SUPPORT_SHARE = 0.4
"""Share of the histograms' budget (of squared mu) for those that narrow the bounds."""

_Counts = npt.NDArray[np.int64]


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


def exact_histograms(
    frame: pd.DataFrame,
    columns: PublicColumns,
    n_bins: int,
    supports: Mapping[Hashable, Bounds] | None = None,
) -> dict[Hashable, _Counts]:
    """Count the records in every cell of every column.

    Parameters
    ----------
    frame : pandas.DataFrame, shape (record, column)
        One party's aligned table.
    columns : mapping of column to Bounds or Categories
        Of every column, as `ColumnTransformer.public_column` returns them.
    n_bins : int
        Bins of numeric columns.
    supports : mapping of column to Bounds, optional
        What the bins of numeric columns divide. Default: the public bounds.

    Returns
    -------
    dict of column to int64 array, shape (cell,)
        Without noise: not for publication. The last cell counts missing values.
    """
    counts: dict[Hashable, _Counts] = {}
    for name in frame.columns:
        column = (supports or {}).get(name) or columns[name]
        codes = cell_codes(frame[name], column, n_bins)
        counts[name] = np.bincount(codes, minlength=n_cells(column, n_bins)).astype(np.int64)
    return counts


def release_histograms(
    frame: pd.DataFrame,
    columns: PublicColumns,
    *,
    n_bins: int,
    noise_std: float,
    supports: Mapping[Hashable, Bounds] | None = None,
    rng: torch.Generator | None = None,
) -> dict[Hashable, NoisyHistogram]:
    """Publish the histograms of one party's columns with discrete Gaussian noise in every cell.

    Parameters
    ----------
    frame, columns, n_bins
        As in `exact_histograms`.
    noise_std : float
        In counts; the noise multiplier times `histogram_sensitivity` of *all* parties' columns.
    supports : mapping of column to Bounds, optional
        What the bins of numeric columns divide: published before, or (default) the public bounds.
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
    for name, counts in exact_histograms(frame, columns, n_bins, supports).items():
        noisy = grid.release(grid.count(counts), rng=rng)
        released[name] = NoisyHistogram(
            columns[name],
            noisy.values,
            noise_std,
            support=(supports or {}).get(name),
            exponent=grid.exponent,
        )
    return released


def release_narrowed_histograms(
    frame: pd.DataFrame,
    columns: PublicColumns,
    *,
    n_bins: int,
    noise_std: float,
    rng: torch.Generator | None = None,
) -> dict[Hashable, NoisyHistogram]:
    """Publish numbers' histograms twice: between public bounds, then where the first show values.

    Public bounds are often far wider than a column, which then is in a few bins among many that
    hold noise only: its scale, and so the whole encoding, would be the noise's. Categories, whose
    cells are the same, are published once with the noise that the mean of two releases would have.

    Parameters
    ----------
    frame, columns, n_bins, rng
        As in `release_histograms`.
    noise_std : float
        In counts, of one release with the same total cost; the two have more, by `SUPPORT_SHARE`.

    Returns
    -------
    dict of column to NoisyHistogram
        Of numeric columns the second.

    Notes
    -----
    Privacy: in units of its own noise, a record moves a column's cell by ``1 / noise_std``, or in
    two releases by ``sqrt(share) / noise_std`` and ``sqrt(1 - share) / noise_std``, whose squares
    add up to the same: the price does not depend on how many columns are published twice.
    """
    numeric = [name for name in frame.columns if isinstance(columns[name], Bounds)]
    numbers, labels = frame[numeric], frame.drop(columns=numeric)
    wide = release_histograms(
        numbers, columns, n_bins=n_bins, noise_std=noise_std / math.sqrt(SUPPORT_SHARE), rng=rng
    )
    found = release_histograms(
        numbers,
        columns,
        n_bins=n_bins,
        noise_std=noise_std / math.sqrt(1.0 - SUPPORT_SHARE),
        supports={name: histogram.significant_support() for name, histogram in wide.items()},
        rng=rng,
    )
    found |= release_histograms(labels, columns, n_bins=n_bins, noise_std=noise_std, rng=rng)
    return {name: found[name] for name in frame.columns}
