"""Noisy histograms and tables of pairs of columns, and how many decimals columns have.

One release of marginal histograms gives sizes, scales and shares of every column. A float column
that is published in all digits is told from the real one at a glance: nobody has a pH of 3.3087264.
Where nobody stated decimals, noisy counts of the values that need them say what nearly all have,
out of what the column's histograms may cost.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from vflsynth.columns.arrays import numpy_dtype, read_numbers
from vflsynth.columns.base import NEARLY_ALL, SPACINGS
from vflsynth.columns.bins import Bins, Cells, cell_codes, n_cells
from vflsynth.columns.histograms import NoisyHistogram
from vflsynth.columns.schema import Bounds, PublicColumn, PublicColumns
from vflsynth.privacy.events import NeighbouringRelation
from vflsynth.privacy.releases import Grid, Release

MOST_DECIMALS = 6
"""Values that need more are counted together."""

# Noise standard deviations above which it is certain that most values have so many decimals, and
# below which it cannot be told that some have not.
_CERTAIN = 3.0
_VISIBLE = 2.0

_FEWEST_PLACES = 3  # within the bounds


def release_decimals(
    column: pd.Series[Any], bounds: Bounds, *, noise_std: float, rng: torch.Generator | None = None
) -> Bounds:
    """Publish what decimals a column of floats has, as the step of its public bounds.

    `noise_std` is that of a count; `rng` is for tests only. Privacy: of the column one record moves
    one count. What its values are rounded to follows from the noisy counts, from the bounds and
    from the type of the column.
    """
    largest = max(abs(float(bounds.low)), abs(float(bounds.high)))
    # Decimals that not all numbers of the type, within bounds, have anyway.
    most = -np.log10(SPACINGS * np.finfo(numpy_dtype(column.dtype)).eps * largest)
    needed = decimals_needed(column, bounds)
    exact = np.bincount(needed[needed >= 0], minlength=MOST_DECIMALS + 2).astype(np.int64)
    grid = Grid.of(noise_std)
    counts = grid.release(grid.count(exact), rng=rng).values
    decimals = nearly_all_have(counts, noise_std)
    if decimals is None or decimals > most:
        return bounds
    found = replace(bounds, step=10.0**-decimals if decimals else 1)
    first, last = found.outermost
    return found if last - first + 1 >= _FEWEST_PLACES else bounds


def decimals_needed(column: pd.Series[Any], bounds: Bounds) -> npt.NDArray[np.intp]:
    """Count the decimals that every value needs, shape (record,), up to what its type rounds off.

    ``MOST_DECIMALS + 1`` where they do not do; -1 of what tells nothing: 0, which any number of
    decimals has, what counts as either bound, and missing values.
    """
    numbers = read_numbers(column, bounds.origin)
    inside = (numbers > float(bounds.low)) & (numbers < float(bounds.high))
    values = np.where(inside, numbers, 0.0)
    spacing = np.finfo(numpy_dtype(column.dtype)).eps
    needed = np.full(len(values), MOST_DECIMALS + 1)
    for decimals in range(MOST_DECIMALS, -1, -1):
        error = np.abs(np.round(values, decimals) - values)
        needed[error <= spacing * np.abs(values)] = decimals
    return np.where(values == 0.0, -1, needed)


def nearly_all_have(counts: npt.NDArray[np.float64], noise_std: float) -> int | None:
    """Decide how many decimals a column has, None if it has no such number.

    `counts`, shape (MOST_DECIMALS + 2,), are noisy numbers of records by the decimals that their
    values need, the last one of those that need more. The answer is the fewest with which more than
    a twentieth do not do, as far as the noise shows; only where three standard deviations of the
    noise do not change that they do for most.
    """
    total = counts.sum()
    certain = _CERTAIN * noise_std * np.sqrt(len(counts))
    for decimals in range(len(counts) - 1):
        beyond = counts[decimals + 1 :]
        visible = _VISIBLE * noise_std * np.sqrt(len(beyond))
        few = beyond.sum() <= (1.0 - NEARLY_ALL) * total + visible
        if few and total - 2.0 * beyond.sum() > certain:
            return decimals
    return None


FIRST_ROUND_SHARE = 0.4
"""Share of the histograms' budget (of squared mu) for those that the others' bins are made of."""

DECIMALS_SHARE = 0.04
"""Share of it for the decimals of a column of floats, at the cost of its second histogram."""

Codes = npt.NDArray[np.int64]
ColumnCells: TypeAlias = Mapping[Hashable, Cells]


def histogram_sensitivity(n_columns: int, relation: NeighbouringRelation) -> float:
    """L2 sensitivity, in counts, of the histograms of all parties' columns together.

    A record has one cell in every column, so adding it moves ``n_columns`` cells by 1 and replacing
    it moves at most twice as many.
    """
    cells = n_columns * (2 if relation is NeighbouringRelation.REPLACE_ONE else 1)
    return math.sqrt(cells)


def product_sensitivity(n_pairs: int, relation: NeighbouringRelation) -> float:
    """L2 sensitivity of the sums of products of all pairs of all parties' columns together.

    A column's codes have a norm of at most 1, and so has every pair's outer product: adding a
    record moves each pair by 1 at most and replacing it, if the products are opposite, by 2.
    """
    return math.sqrt(n_pairs) * (2.0 if relation is NeighbouringRelation.REPLACE_ONE else 1.0)


def first_cells(columns: PublicColumns, names: Iterable[Hashable], n_bins: int) -> ColumnCells:
    """Divide columns by what is public about them; numbers by `Bins.first`."""
    return {
        name: Bins.first(own, n_bins) if isinstance(own := columns[name], Bounds) else own
        for name in names
    }


def exact_histograms(frame: pd.DataFrame, cells: ColumnCells) -> dict[Hashable, Codes]:
    """Count one party's records in every cell of every column; the last cell counts missing values.

    Without noise: not for publication.
    """
    return {
        name: np.bincount(
            cell_codes(frame[name], cells[name]), minlength=n_cells(cells[name])
        ).astype(np.int64)
        for name in frame.columns
    }


def release_histograms(
    frame: pd.DataFrame, cells: ColumnCells, *, noise_std: float, rng: torch.Generator | None = None
) -> dict[Hashable, NoisyHistogram]:
    """Publish the histograms of one party's columns with discrete Gaussian noise in every cell.

    `cells` follow from what is public or was published before. `noise_std` is in counts: the noise
    multiplier times `histogram_sensitivity` of *all* parties' columns. `rng` is for tests only.
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

    Before them, how many decimals floats have (`vflsynth.privacy.histograms`), so that no bin is
    finer, and nothing that is drawn from one. Public bounds are often far wider than a column, most
    of whose values may be equal besides: in bins of equal width its scale, and so the whole
    encoding, would be the noise's, and its spikes would be spread over values that nobody has.
    Categories, whose cells are the same, are published once with the noise that the mean of two
    releases would have. `columns` are as `ColumnTransformer.public_column` returns them, and
    numbers have `n_bins` equal bins at first. `noise_std` is that of one release with the same
    total cost; the two have more (`FIRST_ROUND_SHARE`). `rng` is for tests only.

    Privacy: in units of its own noise, a record moves a column's cell by ``1 / noise_std``, or in
    several releases by ``sqrt(share) / noise_std``, whose squares add up to the same: the price
    does not depend on how many columns are published twice, nor on how many cells they have.
    """
    known = {name: columns[name] for name in frame.columns}
    told: dict[Hashable, PublicColumn] = {
        name: release_decimals(
            frame[name], column, noise_std=noise_std / math.sqrt(DECIMALS_SHARE), rng=rng
        )
        for name, column in known.items()
        if isinstance(column, Bounds)
        and not column.step
        and numpy_dtype(frame[name].dtype).kind == "f"
    }
    cells = first_cells(known | told, frame.columns, n_bins)
    labels = [name for name in frame.columns if not isinstance(cells[name], Bins)]
    first = release_histograms(
        frame.drop(columns=labels),
        cells,
        noise_std=noise_std / math.sqrt(FIRST_ROUND_SHARE),
        rng=rng,
    )
    divided = {name: histogram.divided() for name, histogram in first.items()}
    whole = [name for name in divided if name not in told]
    found: dict[Hashable, NoisyHistogram] = {}
    for names, own, share in (
        (whole, divided, 1.0 - FIRST_ROUND_SHARE),
        ([*told], divided, 1.0 - FIRST_ROUND_SHARE - DECIMALS_SHARE),
        (labels, cells, 1.0),
    ):
        std = noise_std / math.sqrt(share)
        found |= release_histograms(frame[names], own, noise_std=std, rng=rng)
    return {name: found[name] for name in frame.columns}


def exact_tables(
    codes: Sequence[Codes], pairs: Iterable[tuple[int, int]], sizes: Sequence[int]
) -> list[Codes]:
    """Count the records in every cell of tables of pairs of columns, (state, state).

    `codes` are every record's states by column, `sizes` the columns' numbers of states. Without
    noise: not for publication. A record is in exactly one cell of each table, so that all together
    have the sensitivity of as many histograms (`histogram_sensitivity`).
    """
    tables = []
    for a, b in pairs:
        cells = np.bincount(codes[a] * sizes[b] + codes[b], minlength=sizes[a] * sizes[b])
        tables.append(cells.reshape(sizes[a], sizes[b]).astype(np.int64))
    return tables


def release_tables(
    codes: Sequence[Codes],
    pairs: Iterable[tuple[int, int]],
    sizes: Sequence[int],
    *,
    noise_std: float,
    rng: torch.Generator | None = None,
) -> list[Release]:
    """Publish contingency tables, as of `exact_tables`, with discrete Gaussian noise in every cell.

    `noise_std` is the noise multiplier times `histogram_sensitivity` of *all* tables; `rng` is for
    tests only.
    """
    tables = exact_tables(codes, pairs, sizes)
    if not tables:  # then no noise is planned for them either
        return []
    grid = Grid.of(noise_std)
    return [grid.release(grid.count(table), rng=rng) for table in tables]
