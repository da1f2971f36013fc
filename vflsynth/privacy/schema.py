"""What is public about a table: bounds of its numbers and lists of its categories."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pandas as pd
from pandas.api.types import is_hashable

from vflsynth.exceptions import ColumnKindError, PrivacyParameterError
from vflsynth.registry import register

# Squares of such numbers, which variances are made of, are still finite.
_LARGEST_BOUND = 1e150


@dataclass(frozen=True, slots=True)
class Bounds:
    """Public range of a numeric column; values beyond it count as its ends.

    Parameters
    ----------
    low, high : float
        In the column's own units, finite, ``low < high``.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        ends: tuple[Any, Any] = (self.low, self.high)  # from whoever wrote the schema
        if not (
            all(isinstance(end, Real) and abs(float(end)) < _LARGEST_BOUND for end in ends)
            and ends[0] < ends[1]
        ):
            raise PrivacyParameterError(
                "bounds", ends, f"two numbers within ±{_LARGEST_BOUND:g}, the smaller one first"
            )


@dataclass(frozen=True, slots=True)
class Categories:
    """Public list of a categorical column's values; all others count as missing.

    Parameters
    ----------
    values : tuple
        Distinct, at least one, none of them missing: missing values have a cell of their own.
    """

    values: tuple[Hashable, ...]

    def __post_init__(self) -> None:
        given: Any = self.values  # from whoever wrote the schema
        if isinstance(given, str | bytes) or not isinstance(given, Iterable):
            raise PrivacyParameterError("categories", given, "a list of values")
        object.__setattr__(self, "values", tuple(self.values))
        values = _index(self.values)
        if not len(values) or not values.is_unique or values.hasnans:
            raise PrivacyParameterError(
                "categories",
                self.values,
                "a list of at least one value, all distinct, without missing ones",
            )


PublicColumn: TypeAlias = Bounds | Categories


@register
@dataclass(frozen=True)
class PublicSchema:
    """Bounds and categories that hold whatever the records are.

    Parameters
    ----------
    bounds : mapping of column to (low, high)
        Numeric columns.
    categories : mapping of column to sequence
        Categorical columns.

    Raises
    ------
    PrivacyParameterError
        If a column is in both, or bounds or categories are malformed.

    Notes
    -----
    Privacy: nothing is spent on a schema, so it must come from outside the data: a data dictionary,
    a law, a measuring instrument's range. Reading the minimum of a column off the records and
    calling it public voids the guarantee.

    Examples
    --------
    >>> schema = PublicSchema(bounds={"age": (0, 120)}, categories={"smoker": ["no", "yes"]})
    >>> schema["age"]
    Bounds(low=0, high=120)
    """

    registry_group: ClassVar[str] = "parameters"

    bounds: Mapping[Hashable, tuple[float, float]] = field(default_factory=dict)
    categories: Mapping[Hashable, tuple[Hashable, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        both = sorted(map(str, set(self.bounds) & set(self.categories)))
        if both:
            raise PrivacyParameterError("schema", both, "either bounds or categories per column")
        for column in (*self.bounds, *self.categories):
            self[column]

    def __contains__(self, column: Hashable) -> bool:
        return column in self.bounds or column in self.categories

    def __getitem__(self, column: Hashable) -> PublicColumn:
        if column in self.bounds:
            ends: Any = self.bounds[column]
            if isinstance(ends, str) or not isinstance(ends, Sequence) or len(ends) != 2:
                raise PrivacyParameterError("bounds", ends, f"(low, high) for column {column!r}")
            return Bounds(*ends)
        if column in self.categories:
            return Categories(self.categories[column])
        raise PrivacyParameterError(
            "schema",
            column,
            "complete: give every column public bounds or a public list of categories; without "
            "them this column could only be read outside the privacy budget",
        )


def cell_codes(values: pd.Series, column: PublicColumn, n_bins: int) -> np.ndarray:
    """Return the number of every record's histogram cell.

    Parameters
    ----------
    values : pandas.Series, shape (record,)
    column : Bounds or Categories
    n_bins : int
        Number of equal bins of a numeric column.

    Returns
    -------
    int64 array, shape (record,)
        Bins or categories from 0; the last cell, number ``n_cells(...) - 1``, holds missing values
        and values outside the public list. Every record is in exactly one cell, whatever it
        contains.
    """
    if isinstance(column, Categories):
        found = [value if is_hashable(value) else None for value in values.astype(object)]
        codes = _index(column.values).get_indexer(_index(found))
        return np.where(codes < 0, len(column.values), codes).astype(np.int64)
    numbers = numeric_values(values)
    position = (np.clip(numbers, column.low, column.high) - column.low) / (column.high - column.low)
    codes = np.minimum(np.floor(np.nan_to_num(position) * n_bins), n_bins - 1)
    return np.where(np.isnan(numbers), n_bins, codes).astype(np.int64)


def _index(values: Iterable[Any]) -> pd.Index:
    return pd.Index(list(values), dtype=object, tupleize_cols=False)


def n_cells(column: PublicColumn, n_bins: int) -> int:
    """Count a column's histogram cells: bins or categories, and one for missing values."""
    return (n_bins if isinstance(column, Bounds) else len(column.values)) + 1


def numeric_values(values: pd.Series) -> np.ndarray:
    """Read a column as float64, every record by itself; what is not a real number becomes missing.

    Raises
    ------
    ColumnKindError
        If the column holds dates or durations: their bounds would need a unit.

    Notes
    -----
    ``pandas.to_numeric`` would not do: a single odd record, such as a complex number, decides how
    it reads all the others, and then one record moves more than one cell per column.
    """
    if values.dtype.kind in "mM":
        raise ColumnKindError(
            f"public bounds are for numbers, and this column is of type {values.dtype}",
            fix="turn it into numbers of a unit of your choice, such as days since a fixed date",
            column=values.name,
        )
    if values.dtype.kind in "biuf":
        return values.to_numpy(dtype=np.float64, na_value=np.nan)
    return np.array([_real_number(value) for value in values.astype(object)], dtype=np.float64)


def _real_number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
