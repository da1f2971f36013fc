"""Where intervals come from: a jackknife over random groups of rows, a bootstrap, or repetitions.

All are normal-theory intervals *around the value*: resampling biases distances upwards, so that a
percentile bootstrap need not even contain the value that it describes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.stats import binomtest
from scipy.stats import t as student
from torch import Tensor

from vflsynth.evaluation.columns import CHUNK_ROWS, Floats, Integers, pieces
from vflsynth.evaluation.metric import Metric, MetricResult, Reading

Groups = NDArray[np.uint8]

GROUPS = 10
"""Random groups of rows for the jackknife."""

DRAWS = 200
"""Bootstrap draws."""

JACKKNIFE = f"95 %, jackknife over {GROUPS} random groups of rows"
BOOTSTRAP = f"95 %, {DRAWS} bootstrap draws"
TOO_FEW_ROWS = "none: too few rows"


def random_groups(n_rows: int, rng: np.random.Generator) -> Groups | None:
    """Return a group number for each row, shape (row,), or None where groups would be too small.

    Rows are dealt out block by block, so that what is in memory is a byte per row.
    """
    if n_rows < 4 * GROUPS:
        return None
    groups = np.empty(n_rows, dtype=np.uint8)
    for start in range(0, n_rows, CHUNK_ROWS):
        block = groups[start : start + CHUNK_ROWS]
        block[:] = rng.permutation(len(block)) % GROUPS
    return groups


def random_halves(
    frame: pd.DataFrame, rng: np.random.Generator
) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """Return two disjoint random halves of a table, or None below 4 rows."""
    if len(frame) < 4:
        return None
    order = rng.permutation(len(frame))
    half = len(frame) // 2
    return frame.iloc[order[:half]], frame.iloc[order[half:]]


def sample_rows(frame: pd.DataFrame, most: int | None, rng: np.random.Generator) -> pd.DataFrame:
    """Return at most so many random rows, in their order; without a limit all of them."""
    if most is None or len(frame) <= most:
        return frame
    return frame.take(np.sort(rng.choice(len(frame), most, replace=False)))


def jackknifed(
    metric: Metric, reading: Reading, parts: pd.DataFrame, notes: tuple[str, ...] = ()
) -> MetricResult:
    """Return a result whose interval comes from `jackknife_interval`, or is absent."""
    method = JACKKNIFE if reading.interval else TOO_FEW_ROWS
    return MetricResult(
        metric, **reading._asdict(), interval_method=method, parts=parts, notes=notes
    )


def around(
    value: float, deviation: float, minimum: float, maximum: float, *, freedom: float = np.inf
) -> tuple[float, float]:
    """Return the 95 % interval around a value of a standard error, cut off at a range."""
    reach = float(student.ppf(0.975, freedom)) * deviation
    return max(minimum, value - reach), min(maximum, value + reach)


def jackknife_interval(
    value: float, replicates: Sequence[Floats], minimum: float, maximum: float
) -> tuple[float, float]:
    """Return the 95 % interval around a value of several tables, each jackknifed by itself.

    `replicates` holds, for each table, the value without each of its groups of rows, shape
    (group,), the other tables being whole.
    """
    squares = sum(float(((each - each.mean()) ** 2).sum()) for each in replicates)
    deviation = math.sqrt((GROUPS - 1) / GROUPS * squares)
    return around(value, deviation, minimum, maximum, freedom=GROUPS - 1)


def wilson(hits: int, total: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share, which stays sensible at 0 and 1."""
    found = binomtest(hits, total).proportion_ci(method="wilson")
    return float(found.low), float(found.high)


@dataclass(frozen=True)
class GroupedSums:
    """Counts, sums and products of feature rows, kept apart in random groups of rows.

    Moments of any union of groups follow without another look at the rows: the whole table, the
    jackknife's all-but-one, and two halves. Shapes are (group,), (group, feature) and, of sums of
    outer products, (group, feature, feature).
    """

    count: Floats
    total: Floats
    product: Floats

    @classmethod
    def of(
        cls,
        frame: pd.DataFrame,
        features: Callable[[pd.DataFrame], Floats],
        rng: np.random.Generator,
    ) -> GroupedSums:
        """Read a table once, in chunks that `features` turns into matrices, (row, feature)."""
        groups = random_groups(len(frame), rng)
        if groups is None:
            groups = np.zeros(len(frame), np.uint8)
        n_groups = int(groups.max()) + 1
        count = np.bincount(groups, minlength=n_groups).astype(np.float64)
        total, product = np.zeros(()), np.zeros(())
        start = 0
        for matrix in map(features, pieces(frame)):
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
