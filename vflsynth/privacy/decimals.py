"""How many decimals nearly all values of a column have, by noisy counts of those that need them.

A float column that is published in all digits is told from the real one at a glance: nobody has a
pH of 3.3087264. Where nobody stated decimals, they are released, out of what the column's
histograms may cost.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from vflsynth.columns.arrays import numpy_dtype, read_numbers
from vflsynth.columns.ranges import NEARLY_ALL, SPACINGS
from vflsynth.columns.schema import Bounds
from vflsynth.privacy.releases import Grid

MOST_DECIMALS = 6
"""Values that need more are counted together."""

# Noise standard deviations above which it is certain that most values have so many decimals, and
# below which it cannot be told that some have not.
_CERTAIN = 3.0
_VISIBLE = 2.0

_FEWEST_PLACES = 3  # within the bounds


def release_decimals(
    column: pd.Series[Any],
    bounds: Bounds,
    *,
    noise_std: float,
    rng: torch.Generator | None = None,
) -> Bounds:
    """Publish what decimals a column of floats has, as the step of its public bounds.

    `noise_std` is that of a count; `rng` is for tests only. Privacy: of the column one record moves
    one count. What its values are rounded to follows from the noisy counts, from the bounds and
    from the type of the column.
    """
    most = _most_decimals(column.dtype, bounds)
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


def _most_decimals(dtype: Any, bounds: Bounds) -> float:
    """Return the decimals that not all numbers of a type, within bounds, have anyway."""
    largest = max(abs(float(bounds.low)), abs(float(bounds.high)))
    return float(-np.log10(SPACINGS * np.finfo(numpy_dtype(dtype)).eps * largest))
