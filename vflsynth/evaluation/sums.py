"""Sums and products of feature rows in one pass over a table of any length."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vflsynth.evaluation.columns import CHUNK_ROWS, Floats, Integers


@dataclass(frozen=True)
class GroupedSums:
    """Counts, sums and products of feature rows, kept apart in random groups of rows.

    Moments of any union of groups follow without another look at the rows: the whole table, the
    jackknife's all-but-one, and two halves.

    Parameters
    ----------
    count : ndarray, shape (group,)
    total : ndarray, shape (group, feature)
    product : ndarray, shape (group, feature, feature)
        Sums of outer products.
    """

    count: Floats
    total: Floats
    product: Floats

    @classmethod
    def of(
        cls,
        frame: pd.DataFrame,
        features: Callable[[pd.DataFrame], Floats],
        groups: Integers | None,
    ) -> GroupedSums:
        """Read a table once, in chunks.

        `features` turns a chunk into a matrix, shape (row, feature); `groups` numbers the group of
        each row, shape (row,), None for a single group.
        """
        starts = range(0, len(frame), CHUNK_ROWS)
        chunks = (features(frame.iloc[start : start + CHUNK_ROWS]) for start in starts)
        return cls.of_chunks(chunks, np.zeros(len(frame), np.int64) if groups is None else groups)

    @classmethod
    def of_chunks(cls, chunks: Iterable[Floats], groups: Integers) -> GroupedSums:
        """Add up matrices of consecutive rows, shape (chunk, feature); `groups` as in `of`."""
        n_groups = int(groups.max()) + 1
        count = np.bincount(groups, minlength=n_groups).astype(np.float64)
        total, product = np.zeros(()), np.zeros(())
        start = 0
        for matrix in chunks:
            of_rows = groups[start : start + len(matrix)]
            parts = [matrix[of_rows == group] for group in range(n_groups)]
            total = total + np.stack([part.sum(axis=0) for part in parts])
            product = product + np.stack([part.T @ part for part in parts])
            start += len(matrix)
        return cls(count, total, product)

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return len(self.count)

    def all_rows(self) -> Floats:
        """Weights that keep every group, shape (1, group)."""
        return np.ones((1, self.n_groups))

    def all_but_one(self) -> Floats:
        """Weights of the jackknife, shape (group, group)."""
        return 1.0 - np.eye(self.n_groups)

    def halves(self) -> tuple[Floats, Floats]:
        """Weights of several splits into two disjoint halves, (split, group); none of one group."""
        half = self.n_groups // 2
        first = np.zeros((half, self.n_groups), dtype=bool)
        for split in range(half):
            first[split, split : split + half] = True
        return first.astype(np.float64), (~first).astype(np.float64)

    def kept(self, weights: Floats) -> Iterator[tuple[float, Floats, Floats]]:
        """Yield count, sum (feature,) and product (feature, feature) for each row of weights."""
        for weight in weights:
            yield (
                float(weight @ self.count),
                weight @ self.total,
                np.tensordot(weight, self.product, axes=1),
            )

    def moments(self, weights: Floats, features: Integers | slice) -> tuple[Tensor, Tensor]:
        """Return means, (replica, feature), and covariances (ddof=1) for each row of weights."""
        means, covariances = [], []
        for count, total, product in self.kept(weights):
            mean = total[features] / count
            square = product[features][:, features]
            means.append(mean)
            covariances.append((square - count * np.outer(mean, mean)) / (count - 1))
        return torch.tensor(np.stack(means)), torch.tensor(np.stack(covariances))
