"""Noisy contingency tables of pairs of discrete columns, and the budget of a latent tree (DPLT)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from vflsynth.privacy.releases import Grid, Release

Codes = npt.NDArray[np.int64]


def exact_tables(
    one: Sequence[Codes], other: Sequence[Codes], shapes: Sequence[tuple[int, int]]
) -> list[Codes]:
    """Count the records in every cell of every table.

    Parameters
    ----------
    one, other : sequence of int64 array, shape (record,)
        Codes of the first and of the second column of each table.
    shapes : sequence of (int, int)
        Numbers of states.

    Returns
    -------
    list of int64 array, shape (state, state)
        Without noise: not for publication. A record is in exactly one cell of each table, so that
        all together have the sensitivity of as many histograms (`histogram_sensitivity`).
    """
    tables = []
    for first, second, (n_first, n_second) in zip(one, other, shapes, strict=True):
        cells = np.bincount(first * n_second + second, minlength=n_first * n_second)
        tables.append(cells.reshape(n_first, n_second).astype(np.int64))
    return tables


def release_tables(
    one: Sequence[Codes],
    other: Sequence[Codes],
    shapes: Sequence[tuple[int, int]],
    *,
    noise_std: float,
    rng: torch.Generator | None = None,
) -> list[Release]:
    """Publish contingency tables with discrete Gaussian noise in every cell.

    Parameters
    ----------
    one, other, shapes
        As in `exact_tables`.
    noise_std : float
        In counts; the noise multiplier times `histogram_sensitivity` of *all* tables.
    rng : torch.Generator, optional
        For tests only; see `discrete_gaussian`.

    Returns
    -------
    list of Release, of shape (state, state)
    """
    if not shapes:  # then no noise is planned for them either
        return []
    grid = Grid.of(noise_std)
    tables = exact_tables(one, other, shapes)
    return [grid.release(grid.count(table), rng=rng) for table in tables]
