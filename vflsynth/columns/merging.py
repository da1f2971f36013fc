"""Values that too few records hold, and what they count as."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from vflsynth.columns.arrays import nearest_places
from vflsynth.exceptions import CardinalityError

OTHER = "other"
"""What text counts as that too few records hold."""


def merged(column: pd.Series[Any], kept: Sequence[Any]) -> pd.Series[Any]:
    """Return a column in which all values are among those that are kept, or are `OTHER`.

    Parameters
    ----------
    column : Series, shape (record,)
    kept : sequence
        Distinct values.

    Returns
    -------
    Series
        Text becomes "other", numbers and ordered categories the nearest value that is kept, the
        smaller of two; anything else the first that is kept. The categories of a type are those
        that are kept and those that no record has.

    Raises
    ------
    CardinalityError
        If nothing is kept that a number or an ordered category could become.
    """
    known = set(kept)
    present = column.dropna().unique()
    rare = [value for value in present if value not in known]
    dtype = column.dtype
    becomes = dict(zip(rare, _replacements(dtype, rare, list(present), kept, column.name)))
    if isinstance(dtype, pd.CategoricalDtype):
        left = (value for value in dtype.categories if value not in becomes)
        categories = list(dict.fromkeys([*left, *becomes.values()]))
        dtype = pd.CategoricalDtype(categories, ordered=dtype.ordered)
    objects = column.astype(object).map(lambda value: becomes.get(value, value))
    return objects.astype(dtype)


def _replacements(
    dtype: Any, rare: Sequence[Any], present: Sequence[Any], kept: Sequence[Any], label: Any
) -> list[Any]:
    ordered = isinstance(dtype, pd.CategoricalDtype) and dtype.ordered
    if not ordered and any(isinstance(value, str) for value in present):
        return [OTHER] * len(rare)
    if not len(kept):
        raise CardinalityError(
            "no value is held by rare_records records",
            fix="lower rare_records, group the values, or leave the column out",
            column=label,
        )
    if ordered:
        places = {value: place for place, value in enumerate(dtype.categories)}
        kept = sorted(kept, key=places.__getitem__)
        return _nearest(kept, [places[v] for v in kept], [places[v] for v in rare])
    if all(isinstance(value, int | float | np.number | np.bool_) for value in [*present, *kept]):
        kept = sorted(kept)
        return _nearest(kept, kept, rare)
    return [kept[0]] * len(rare)


def _nearest(kept: Sequence[Any], places: Sequence[Any], wanted: Sequence[Any]) -> list[Any]:
    """Return those that are kept at the nearest of rising places, the first of several."""
    at, own = np.array(places, dtype=np.float64), np.array(wanted, dtype=np.float64)
    return [kept[k] for k in np.searchsorted(at, at[nearest_places(at, own)])]
