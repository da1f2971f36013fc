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
    """Count the records in every cell of every table of two columns' codes, (state, state).

    Without noise: not for publication. A record is in exactly one cell of each table, so that all
    together have the sensitivity of as many histograms (`histogram_sensitivity`).
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
    """Publish contingency tables, as of `exact_tables`, with discrete Gaussian noise in every cell.

    `noise_std` is the noise multiplier times `histogram_sensitivity` of *all* tables; `rng` is for
    tests only.
    """
    if not shapes:  # then no noise is planned for them either
        return []
    grid = Grid.of(noise_std)
    tables = exact_tables(one, other, shapes)
    return [grid.release(grid.count(table), rng=rng) for table in tables]
