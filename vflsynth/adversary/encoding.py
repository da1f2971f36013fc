"""How an attacker reads a table: columns as floats, with what is known before looking at it."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

from vflsynth.evaluation.columns import is_categorical, numbers, origin_of, positions, present
from vflsynth.exceptions import ColumnMismatchError

_FAR = 1e6
"""Standard deviations from the mean, at most: further away makes no difference."""

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]


@dataclass(frozen=True)
class Attribute:
    """One column as the attacker knows it.

    `levels` are the labels of a categorical column, None if it is numeric; mean, scale (1 for a
    constant) and range are those of a numeric one, less an `origin` beyond 2^53. Where missing
    values occur they have a feature, or a code, of their own.
    """

    name: Hashable
    levels: pd.Index[Any] | None
    mean: float = 0.0
    scale: float = 1.0
    low: float = 0.0
    high: float = 0.0
    marks_missing: bool = False
    origin: int = 0

    @classmethod
    def learn(cls, values: pd.Series[Any], categorical: bool) -> Attribute:
        """Read a column's range or its labels off a table."""
        missing = bool(values.isna().any())
        if categorical or is_categorical(values):
            levels = pd.Index(values.dropna().astype(object).unique(), dtype=object)
            with suppress(TypeError):  # labels of several types keep their order of appearance
                levels = levels.sort_values()
            return cls(values.name, levels, marks_missing=missing)
        origin = origin_of(values)
        known = present(numbers(values, origin))
        known = known[np.isfinite(known)]
        if not len(known):
            return cls(values.name, None, marks_missing=missing)
        mean, scale = float(known.mean()), float(known.std())
        if not np.isfinite(scale):  # of huge numbers, whose squares are infinite
            far = float(np.abs(known).max())
            mean, scale = far * float((known / far).mean()), far * float((known / far).std())
        if scale <= 1e-12 * abs(mean):  # a constant, but for rounding
            scale = 1.0
        low, high = float(known.min()), float(known.max())
        return cls(values.name, None, mean, scale, low, high, missing, origin)

    @property
    def width(self) -> int:
        """Number of encoded features; labels that were not known before share one."""
        return (1 if self.levels is None else len(self.levels) + 1) + self.marks_missing

    def values(self, frame: pd.DataFrame) -> Floats:
        """Return plain numbers less the origin, shape (row,); NaN where missing."""
        return numbers(frame[self.name], self.origin)

    def codes(self, frame: pd.DataFrame) -> Integers:
        """Return positions in `levels`; then come unknown labels, then missing values."""
        assert self.levels is not None
        codes = positions(self.levels, frame[self.name])
        missing = frame[self.name].isna().to_numpy() & self.marks_missing
        return np.where(missing, len(self.levels) + 1, np.where(codes < 0, len(self.levels), codes))

    def encode(self, frame: pd.DataFrame) -> Floats:
        """Return standardised numbers (missing: the mean) or one-hot rows, shape (row, width)."""
        if self.levels is not None:
            return np.eye(self.width)[self.codes(frame)]
        values = self.values(frame)
        missing = np.isnan(values)
        scores = np.where(missing, 0.0, (values - self.mean) / self.scale).clip(-_FAR, _FAR)
        return np.column_stack([scores, missing] if self.marks_missing else [scores])


class Encoding:
    """What an attacker knows about the columns of a table: ranges, labels and scales.

    `categorical` are numeric columns to read as labels. Text, booleans and categories always are.
    Raises ColumnMismatchError if `categorical` names a column that the table does not have.
    """

    def __init__(self, table: pd.DataFrame, categorical: Collection[Hashable] = ()) -> None:
        unknown = [name for name in categorical if name not in table.columns]
        if unknown:
            raise ColumnMismatchError(
                "named in categorical= (--categorical), but the table has no such column",
                fix="correct the name",
                column=unknown[0],
            )
        self.attributes = tuple(
            Attribute.learn(table[name], name in categorical) for name in table.columns
        )

    @property
    def numeric(self) -> list[Attribute]:
        """Numeric columns."""
        return [attribute for attribute in self.attributes if attribute.levels is None]

    @property
    def labelled(self) -> list[Attribute]:
        """Categorical columns."""
        return [attribute for attribute in self.attributes if attribute.levels is not None]

    def check(self, frame: pd.DataFrame) -> None:
        """Raise ColumnMismatchError if the frame lacks one of the columns."""
        for attribute in self.attributes:
            if attribute.name not in frame.columns:
                raise ColumnMismatchError(
                    f"absent from a table of {len(frame.columns)} columns",
                    fix="pass tables with the same columns",
                    column=attribute.name,
                )

    def encode(self, frame: pd.DataFrame) -> Floats:
        """Return standardised numbers and one-hot labels, shape (row, feature), finite."""
        self.check(frame)
        return np.concatenate([attribute.encode(frame) for attribute in self.attributes], axis=1)


_BLOCK_ELEMENTS = 1 << 23
_TREE_DIMENSIONS = 12  # beyond, a tree looks at nearly every leaf


def nearest_distances(points: Floats, others: Floats) -> Floats:
    """Return each point's Euclidean distance to the nearest of the others, shape (point,)."""
    if points.shape[1] <= _TREE_DIMENSIONS:
        return np.asarray(cKDTree(others).query(points)[0])
    return np.concatenate([block.min(axis=1) for block in distance_blocks(points, others)])


def distance_blocks(points: Floats, others: Floats) -> Iterator[Floats]:
    """Yield Euclidean distances, each block of shape (some points, other)."""
    rows = max(1, _BLOCK_ELEMENTS // max(1, len(others)))
    for start in range(0, len(points), rows):
        yield cdist(points[start : start + rows], others)
