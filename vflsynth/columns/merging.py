"""Values that too few records hold, and what they count as."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from vflsynth.columns.arrays import nearest_places
from vflsynth.exceptions import CardinalityError

OTHER = "other"
"""What text counts as that too few records hold, if it is pooled."""

Rare = Literal["redraw", "nearest", "pool"]
RARE: tuple[Rare, ...] = ("redraw", "nearest", "pool")
"""What can become of rare values, see `CategoricalTransformer`."""


def merged(
    column: pd.Series[Any], kept: Sequence[Any], shares: Sequence[float], rare: Rare
) -> pd.Series[Any]:
    """Return a column in which all values are among those that are kept, or are `OTHER`.

    Parameters
    ----------
    column : Series, shape (record,)
    kept : sequence
        Distinct values.
    shares : sequence of float
        How frequent each of them is.
    rare : {"redraw", "nearest", "pool"}
        See `CategoricalTransformer`. What a value becomes depends on the value and on what is kept,
        and not on the other records.

    Returns
    -------
    Series
        The categories of a type are those that are kept and those that no record has.

    Raises
    ------
    CardinalityError
        If nothing is kept that a number or an ordered category could become.
    """
    known = set(kept)
    present = column.dropna().unique()
    lost = [value for value in present if value not in known]
    dtype = column.dtype
    found = _replacements(dtype, lost, list(present), kept, shares, rare, column.name)
    becomes = dict(zip(lost, found))
    if isinstance(dtype, pd.CategoricalDtype):
        left = (value for value in dtype.categories if value not in becomes)
        categories = list(dict.fromkeys([*left, *becomes.values()]))
        dtype = pd.CategoricalDtype(categories, ordered=dtype.ordered)
    objects = column.astype(object).map(lambda value: becomes.get(value, value))
    return objects.astype(dtype)


def _replacements(
    dtype: Any,
    lost: Sequence[Any],
    present: Sequence[Any],
    kept: Sequence[Any],
    shares: Sequence[float],
    rare: Rare,
    label: Any,
) -> list[Any]:
    ordered = isinstance(dtype, pd.CategoricalDtype) and dtype.ordered
    text = not ordered and any(isinstance(value, str) for value in present)
    if text and (rare == "pool" or not len(kept)):
        return [OTHER] * len(lost)
    if not len(kept):
        raise CardinalityError(
            "no value is held by rare_records records",
            fix="lower rare_records, group the values, or leave the column out",
            column=label,
        )
    if ordered:
        places = {value: place for place, value in enumerate(dtype.categories)}
        kept = sorted(kept, key=places.__getitem__)
        return _nearest(kept, [places[v] for v in kept], [places[v] for v in lost])
    if all(isinstance(value, int | float | np.number | np.bool_) for value in [*present, *kept]):
        kept = sorted(kept)
        return _nearest(kept, kept, lost)
    if rare == "redraw":
        ends = np.cumsum(shares)
        drawn = np.searchsorted(ends, [ends[-1] * _point(value) for value in lost], side="right")
        return [kept[k] for k in np.minimum(drawn, len(kept) - 1)]
    return [kept[int(np.argmax(shares))]] * len(lost)


def _point(value: Any) -> float:
    """Return a number in [0, 1) that is always the same for a value, and otherwise as random."""
    return int.from_bytes(hashlib.sha256(str(value).encode()).digest()[:4], "big") / 2**32


def _nearest(kept: Sequence[Any], places: Sequence[Any], wanted: Sequence[Any]) -> list[Any]:
    """Return those that are kept at the nearest of rising places, the first of several."""
    at, own = np.array(places, dtype=np.float64), np.array(wanted, dtype=np.float64)
    return [kept[k] for k in np.searchsorted(at, at[nearest_places(at, own)])]
