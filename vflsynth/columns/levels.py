"""Distinct values of a column: rare ones, codes in two parts, levels that few records hold.

One-hot, 12,000 zip codes take 12,000 matrix columns. In two parts, a group of neighbouring levels
and the place within it, they take two square roots of that, 220.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from vflsynth.columns.arrays import Codes, even_points, nearest_places
from vflsynth.columns.base import from_one_hot
from vflsynth.exceptions import CardinalityError


@dataclass(frozen=True)
class TwoPartCode:
    """Slots in order, cut into groups of equal size: a one-hot group, then a one-hot place.

    `sizes` are the slots of every group. The places of a small group are the first of all places.
    """

    sizes: tuple[int, ...]

    @classmethod
    def of(cls, n_slots: int, *, last_alone: bool) -> TwoPartCode:
        """Cut slots into about as many groups as a group has slots; perhaps the last one apart."""
        n_cut = n_slots - last_alone
        n_groups = math.isqrt(max(n_cut - 1, 0)) + 1
        sizes = [(n_cut + n_groups - 1 - k) // n_groups for k in range(n_groups)]
        return cls((*sizes, *[1] * last_alone))

    @property
    def n_groups(self) -> int:
        """Width of the first part."""
        return len(self.sizes)

    @property
    def n_places(self) -> int:
        """Width of the second part."""
        return max(self.sizes)

    @property
    def width(self) -> int:
        """Matrix columns of both parts."""
        return self.n_groups + self.n_places

    @property
    def _starts(self) -> Codes:
        return np.cumsum([0, *self.sizes[:-1]])

    def write(self, slots: Codes, out: npt.NDArray[np.floating]) -> None:
        """Set the two ones of every record; those of slot -1 get none."""
        coded = np.flatnonzero(slots >= 0)
        groups = np.searchsorted(self._starts, slots[coded], side="right") - 1
        out[coded, groups] = 1.0
        out[coded, self.n_groups + slots[coded] - self._starts[groups]] = 1.0

    def read(self, matrix: npt.NDArray[np.floating]) -> Codes:
        """Return slots: of the largest group, the place that is largest among those it has."""
        groups = from_one_hot(matrix[:, : self.n_groups])
        beyond = np.arange(self.n_places) >= np.array(self.sizes)[groups, None]
        places = from_one_hot(np.where(beyond, -np.inf, matrix[:, self.n_groups :]))
        return np.asarray(self._starts[groups] + places)


def shared_slots(counts: Codes, fewest: int) -> tuple[Codes, npt.NDArray[np.bool_]]:
    """Give levels of a public list their slots: rare ones share one with their neighbours.

    Of `counts`, shape (level,), those below `fewest` share a slot with the rare levels that follow,
    until so many records hold them together. Returns slots, numbered as their first levels are, and
    which levels come out: not rare ones that are not held often enough by all together, whose
    records count as those of the nearest level with a slot. ValueError if that is all of them.
    """
    frequent = counts >= max(fewest, 1)
    rare = np.flatnonzero(~frequent)
    before = np.concatenate([[0], counts[rare].cumsum()])
    owner = np.full(len(counts), -1, dtype=np.intp)  # the level that a slot is named after
    owner[frequent] = np.flatnonzero(frequent)
    start = 0
    while start < len(rare):
        stop = int(np.searchsorted(before, before[start] + max(fewest, 1)))
        if stop > len(rare):
            break  # the rest is held too rarely
        owner[rare[start:stop]] = rare[start]
        start, last = stop, start
    comes_out = owner >= 0
    if start < len(rare) and start:  # a shared slot was made: the rest goes there
        owner[rare[start:]] = rare[last]
        comes_out[rare[start:]] = True
    if not comes_out.any():
        raise ValueError(f"fewer than {fewest} records hold any of the levels")
    placed = np.flatnonzero(comes_out)
    lost = np.flatnonzero(~comes_out)
    owner[lost] = owner[placed[nearest_places(placed, lost)]]
    return np.unique(owner, return_inverse=True)[1].astype(np.intp), comes_out


def allocate(shares: Sequence[float], n_records: int) -> Codes:
    """Index of a rare value for each of `n_records`, in proportion to `shares`."""
    found = np.searchsorted(np.cumsum(shares), even_points(np.arange(n_records)), side="right")
    return np.minimum(found, len(shares) - 1)


def members(slots: Codes, levels: Codes, n_slots: int) -> Codes:
    """Index of a level for every record's slot; the levels of a slot take turns.

    `levels` has the slot of every level that may come out, or -1.
    """
    order = np.argsort(levels, kind="stable")
    ends = np.searchsorted(levels[order], np.arange(n_slots + 1))
    first, sizes = ends[:-1][slots], np.diff(ends)[slots]
    return order[first + (even_points(np.arange(len(slots))) * sizes).astype(np.intp)]


OTHER = "other"
"""What text counts as that too few records hold, if it is pooled."""

Rare = Literal["redraw", "nearest", "pool"]
RARE: tuple[Rare, ...] = ("redraw", "nearest", "pool")
"""What can become of rare values, see `CategoricalTransformer`."""


def merged(
    column: pd.Series[Any], kept: Sequence[Any], shares: Sequence[float], rare: Rare
) -> pd.Series[Any]:
    """Return a column in which all values are among those that are kept, or are `OTHER`.

    For `rare` see `CategoricalTransformer`. What a value becomes depends on the value and on what
    is kept, and not on the other records. The categories of a type are those that are kept and
    those that no record has. CardinalityError if nothing is kept that a number or an ordered
    category could become.
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
