"""Noisy contingency tables of pairs of discrete columns, and the budget of a latent tree (DPLT)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from vflsynth.privacy.noise import gaussian_noise

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]


def exact_tables(
    one: Sequence[Codes], other: Sequence[Codes], shapes: Sequence[tuple[int, int]]
) -> list[Floats]:
    """Count the records in every cell of every table.

    Parameters
    ----------
    one, other : sequence of int64 array, shape (record,)
        Codes of the first and of the second column of each table.
    shapes : sequence of (int, int)
        Numbers of states.

    Returns
    -------
    list of float64 array, shape (state, state)
        Without noise: not for publication. A record is in exactly one cell of each table, so that
        all together have the sensitivity of as many histograms (`histogram_sensitivity`).
    """
    tables = []
    for first, second, (n_first, n_second) in zip(one, other, shapes, strict=True):
        cells = np.bincount(first * n_second + second, minlength=n_first * n_second)
        tables.append(cells.reshape(n_first, n_second).astype(np.float64))
    return tables


def release_tables(
    one: Sequence[Codes],
    other: Sequence[Codes],
    shapes: Sequence[tuple[int, int]],
    *,
    noise_std: float,
    rng: torch.Generator | None = None,
) -> list[Floats]:
    """Publish contingency tables with Gaussian noise in every cell.

    Parameters
    ----------
    one, other, shapes
        As in `exact_tables`.
    noise_std : float
        In counts; the noise multiplier times `histogram_sensitivity` of *all* tables.
    rng : torch.Generator, optional
        For tests only; see `gaussian_noise`.

    Returns
    -------
    list of float64 array, shape (state, state)
    """
    return [
        table + gaussian_noise(table.shape, noise_std, rng=rng).numpy()
        for table in exact_tables(one, other, shapes)
    ]
