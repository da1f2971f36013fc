"""Categorical columns: one one-hot span, with slots for missing and for all rare values.

And distinct values of all columns: rare ones, levels that few records hold, codes in two parts.
One-hot, 12,000 zip codes take 12,000 matrix columns. In two parts, a group of neighbouring levels
and the place within it, they take two square roots of that, 220.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api.extensions import ExtensionArray

from vflsynth.codec import array_of, places_in_order, scalar_from_json, scalar_to_json
from vflsynth.columns.arrays import Codes, even_points, factorize, nearest_places, numpy_dtype
from vflsynth.columns.base import SHARE, ColumnTransformer, Matrix, OutputSpan, check_seen
from vflsynth.columns.schema import Bounds, Categories, PublicColumn
from vflsynth.exceptions import CardinalityError, ColumnKindError, EmptyColumnError
from vflsynth.registry import Choice, Number, Rule


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
        groups = matrix[:, : self.n_groups].argmax(axis=1)
        beyond = np.arange(self.n_places) >= np.array(self.sizes)[groups, None]
        places = np.where(beyond, -np.inf, matrix[:, self.n_groups :]).argmax(axis=1)
        return np.asarray(self._starts[groups] + places)


def shared_slots(counts: Codes, fewest: int) -> tuple[Codes, npt.NDArray[np.bool_]]:
    """Give levels of a public list their slots: rare ones share one with their neighbours.

    Of `counts`, shape (level,), those below `fewest` share a slot with rare levels beside them, so
    that as many records hold them together. Returns slots, numbered as their first levels are, and
    which levels come out: not rare ones that are not held often enough by all together, whose
    records count as those of the nearest level with a slot. ValueError if that is all of them.

    Slots do not end where so many records are reached: somebody would have the last level of each.
    They are halves, quarters or eighths of larger ones.
    """
    frequent = counts >= max(fewest, 1)
    rare = np.flatnonzero(~frequent)
    before = np.concatenate([[0], counts[rare].cumsum()])
    owner = np.full(len(counts), -1, dtype=np.intp)  # the level that a slot is named after
    owner[frequent] = np.flatnonzero(frequent)
    comes_out = np.ones(len(counts), dtype=np.bool_)
    if before[-1] >= max(fewest, 1):
        for start, stop in _public_parts(before, 0, len(rare), max(fewest, 1)):
            owner[rare[start:stop]] = rare[start]
    elif frequent.any():
        comes_out[rare] = False
    else:
        raise ValueError(f"fewer than {fewest} records hold any of the levels")
    placed, lost = np.flatnonzero(comes_out), np.flatnonzero(~comes_out)
    owner[lost] = owner[placed[nearest_places(placed, lost)]]
    return np.unique(owner, return_inverse=True)[1].astype(np.intp), comes_out


def _public_parts(before: Codes, start: int, stop: int, fewest: int) -> Iterator[tuple[int, int]]:
    """Cut levels into parts of as many levels, and records, `before` each and after all."""
    for share in (1 / 2, 1 / 4, 3 / 4, 1 / 8, 3 / 8, 5 / 8, 7 / 8):
        cut = start + int(share * (stop - start))
        parts = (start, cut), (cut, stop)
        if all(b - a >= fewest and before[b] - before[a] >= fewest for a, b in parts):
            for a, b in parts:
                yield from _public_parts(before, a, b, fewest)
            return
    yield start, stop


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
    is kept, and not on the other records. The categories of a type are those that are kept, and no
    others: beside those that no record has, what is missing of a public list would be what few
    have. CardinalityError if nothing is kept that a number or an ordered category could become.
    """
    known = set(kept)
    present = column.dropna().unique()
    lost = [value for value in present if value not in known]
    dtype = column.dtype
    found = _replacements(dtype, lost, list(present), kept, shares, rare, column.name)
    becomes = dict(zip(lost, found))
    if isinstance(dtype, pd.CategoricalDtype):
        left = (value for value in dtype.categories if value in known)
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


ONE_HOT_CATEGORIES = 256
"""Most values of one one-hot code; columns that have more get a code in two parts."""

MOST_COUNTED = 1024
"""Most categories of a public list of which noisy counts are made."""

_MOST_CODES = 10
"""Most distinct whole numbers that are codes or grades rather than counts."""

MANY_RECORDS = 5
"""Fewest records of a value that comes out of a column which has a code in two parts."""


@dataclass(repr=False, eq=False, kw_only=True)
class CategoricalTransformer(ColumnTransformer):
    """One-hot code of a column of any dtype whose values repeat.

    Slots: each frequent value in sorted order (the dtype's order for pandas categories), then one
    slot shared by all rare values, then one for missing. A single slot carries nothing and has
    width 0.

    Parameters
    ----------
    rare_threshold : float, default 0.001
        Values held by less than this share of all records share a slot, if there are two or more of
        them. 0 gives every value its own slot. Without effect on a code in two parts.
    rare_records : int, default 0
        Values held by fewer records than this are forgotten, and never come out. 0 and 1: none. At
        least 5 where there are more than 256 values.
    rare : {"redraw", "nearest", "pool"}, default "redraw"
        What a forgotten value counts as, before anything is learned. Numbers and ordered categories
        count as the nearest value that is left. Any other value counts as one of those that are
        left, drawn by how frequent they are ("redraw"), or as the most frequent one ("nearest");
        with "pool" text counts as "other", which outside tools may not know. Text of which no value
        is left is "other" in any case.
    categories : tuple, optional
        Public list of all values there can be, zip codes for instance, in any order. If it has more
        than 256, those that fewer than `rare_records` (at least 5) records hold are kept: they
        share a slot with their neighbours in sorted order, so that as many records hold the slot,
        and a sample takes any of them alike, whether a record holds them or not.

    Attributes
    ----------
    categories_ : ExtensionArray
        Distinct values with the column's dtype: the frequent ones, then the rare ones; sorted if
        the code has two parts.
    n_frequent_ : int
        Number of values with a slot of their own.
    rare_shares_ : tuple of float
        Share of each rare value among the rare ones.
    has_missing_ : bool
        Whether missing values occurred.
    merges_ : bool
        Whether values were forgotten. All that are not known then count as they do.
    code_ : TwoPartCode or None
        How slots are coded where there are more than 256 values: as a one-hot group of neighbours
        in sorted order, and a one-hot place in it.

    Notes
    -----
    The inverse is deterministic: the k-th record that decodes to the rare slot gets the value at
    which the rare values' cumulative shares pass ``k * golden ratio mod 1``. The low-discrepancy
    sequence keeps their proportions in every sample, also a small one. A rare value is therefore
    restored in distribution, not row by row.
    """

    kind: ClassVar[str] = "categorical"
    is_labels: ClassVar[bool] = True
    rules: ClassVar[Mapping[str, Rule]] = {
        "rare_threshold": SHARE,
        "rare_records": Number(0, whole=True),
        "rare": Choice(RARE),
    }

    rare_threshold: float = 0.001
    rare_records: int = 0
    rare: Rare = "redraw"
    categories: Sequence[Hashable] | None = None

    def encode_into(self, column: pd.Series[Any], out: Matrix) -> None:
        """Write the one-hot code of each record's slot, or the code in two parts."""
        slots = self._found_slots(column)
        check_seen(slots, self.name_)
        self._write_code(slots, out)

    def _write_code(self, slots: Codes, out: Matrix) -> None:
        """Write the code of every slot; that of -1 is zeros."""
        if self.n_slots_ < 2:
            return
        if self.code_ is not None:
            self.code_.write(slots, out)
        else:
            coded = np.flatnonzero(slots >= 0)
            out[coded, slots[coded]] = 1.0

    @property
    def n_slots_(self) -> int:
        """Number of values, or groups of values, that are told apart."""
        if self.code_ is not None:
            return sum(self.code_.sizes)
        return self.n_frequent_ + bool(self.rare_shares_) + self.has_missing_

    def check_parameters(self) -> None:
        """Raise ParameterError for a parameter out of range."""
        super().check_parameters()
        if self.categories is not None:
            Categories(self.categories)  # type: ignore[arg-type]

    def _fit(self, column: pd.Series[Any]) -> None:
        codes, values = factorize(column)
        if not len(values):
            raise EmptyColumnError(
                "the column has no value", fix="drop the column", column=column.name
            )
        listed = () if self.categories is None else tuple(self.categories)
        self.has_missing_ = bool((codes < 0).any())
        # Object columns may write "missing" as None, NaN or NA; the first one found stands for all.
        self._missing_value: Any = None
        if self.dtype_ == np.dtype(object) and self.has_missing_:
            self._missing_value = column.iloc[int(np.argmax(codes < 0))]
        self.code_: TwoPartCode | None = None
        self.rare_shares_: tuple[float, ...] = ()
        self._shares: tuple[float, ...] = ()  # of the values that are left, in slot order
        if len(listed) > ONE_HOT_CATEGORIES:
            self.merges_ = False
            self._fit_listed(column, listed, codes, values)
            return
        fewest, counts = self.rare_records, np.bincount(codes[codes >= 0])
        if len(values) > ONE_HOT_CATEGORIES:
            fewest = max(fewest, MANY_RECORDS)
        frequent = counts >= fewest
        if fewest > self.rare_records and 2 * counts[frequent].sum() < counts.sum():
            raise _too_many_categories(column, len(values))
        self.merges_ = not frequent.all()
        if self.merges_:
            kept = [values[i] for i in np.flatnonzero(frequent)]
            order = self._order(column.name, self.dtype_, kept)
            self._shares = tuple((counts[frequent][order] / len(codes)).tolist()) or (1.0,)
            column = merged(column, [kept[i] for i in order], self._shares, self.rare)
            self.dtype_ = column.dtype
            codes, values = factorize(column)
        self._check_values(column, values)
        order = self._order(column.name, self.dtype_, values)
        counts = np.bincount(codes[codes >= 0], minlength=len(values))[order]
        if len(values) > ONE_HOT_CATEGORIES:
            self._keep([values[i] for i in order], np.arange(len(values)), np.ones_like(counts))
            return
        rare = counts < self.rare_threshold * len(codes)
        if rare.sum() < 2:
            rare[:] = False
        placed = np.concatenate([order[~rare], order[rare]])
        self.categories_: ExtensionArray = array_of([values[i] for i in placed], self.dtype_)
        self.n_frequent_ = int((~rare).sum())
        self.rare_shares_ = tuple((counts[rare] / max(counts[rare].sum(), 1)).tolist())

    def _fit_listed(
        self, column: pd.Series[Any], listed: Sequence[Any], codes: Codes, values: list[Any]
    ) -> None:
        """Learn the slots of a long public list."""
        if isinstance(self.dtype_, pd.CategoricalDtype):
            self.dtype_ = pd.CategoricalDtype(list(listed), ordered=bool(self.dtype_.ordered))
        if not can_hold(self.dtype_, listed):
            raise does_not_hold(column.name, self.dtype_)
        self._check_values(column, list(listed))
        levels = self.in_order(column.name, self.dtype_, listed)
        place = {value: i for i, value in enumerate(levels)}
        at = [place.get(value, -1) for value in values]
        if -1 in at:
            raise ColumnKindError(
                f"{at.count(-1)} of its values are not in the public list of categories",
                fix="correct the list, or the table",
                column=column.name,
            )
        counts = np.zeros(len(levels), dtype=np.intp)
        np.add.at(counts, np.array(at), np.bincount(codes[codes >= 0], minlength=len(values)))
        try:
            slots, comes_out = shared_slots(counts, max(self.rare_records, MANY_RECORDS))
        except ValueError as error:
            raise CardinalityError(
                str(error), fix="lower rare_records, or leave the column out", column=column.name
            ) from None
        self._keep(levels, slots, comes_out)

    def _keep(self, levels: Sequence[Any], slots: Codes, comes_out: npt.NDArray[Any]) -> None:
        """Keep sorted levels with their slots, and make the code in two parts."""
        self.categories_ = array_of(list(levels), self.dtype_)
        self.n_frequent_ = int(slots.max()) + 1
        self._level_slots, self._comes_out = slots, comes_out.astype(np.bool_)
        n_slots = self.n_frequent_ + self.has_missing_
        self.code_ = TwoPartCode.of(n_slots, last_alone=self.has_missing_)

    def _check_values(self, column: pd.Series[Any], values: list[Any]) -> None:
        """Raise ColumnKindError for values that could not be saved."""
        for value in values:
            try:
                scalar_to_json(value)
            except TypeError:
                raise ColumnKindError(
                    f"values of type {type(value).__name__} cannot be modelled",
                    fix="convert the column to text, numbers or datetimes",
                    column=column.name,
                ) from None

    @classmethod
    def public_column(
        cls, name: Hashable, dtype: Any, listed: PublicColumn | None
    ) -> PublicColumn | None:
        """Return the public list, if the dtype can hold it; see `ColumnTransformer`."""
        if isinstance(listed, Bounds):
            raise ColumnKindError(
                f"the public schema gives bounds, and the column is {cls.kind}",
                fix="list its categories instead, or declare another kind",
                column=name,
            )
        if listed is not None and not can_hold(dtype, listed.values):
            raise does_not_hold(name, dtype)
        if listed is not None and len(listed.values) > MOST_COUNTED:
            raise CardinalityError(
                f"the public list has {len(listed.values)} categories; under differential privacy "
                f"at most {MOST_COUNTED} are counted, as each of many would drown in its noise",
                fix="group them, zip codes by their first digits for instance",
                column=name,
            )
        return listed

    @classmethod
    def recognises(
        cls,
        dtype: Any,
        *,
        listed: PublicColumn | None = None,
        values: pd.Series[Any] | None = None,
        least: int = 0,
    ) -> bool:
        """Whether it has labels by its dtype, by the schema, or as few whole numbers repeat."""
        if isinstance(dtype, pd.CategoricalDtype):
            return not dtype.ordered
        is_text = pd.api.types.is_string_dtype(dtype) or dtype == np.dtype(object)
        if is_text or isinstance(listed, Categories):
            return True
        is_numeric = numpy_dtype(dtype).kind in "iuf"
        return is_numeric and values is not None and _are_codes(values, least)

    @classmethod
    def in_order(cls, name: Hashable, dtype: Any, values: Sequence[Any]) -> list[Any]:
        """Sort distinct values as the column's slots are, which must not depend on the records."""
        return [values[i] for i in cls._order(name, dtype, values)]

    @classmethod
    def _order(cls, name: Hashable, dtype: Any, values: Sequence[Any]) -> Codes:
        """Positions of `values` in slot order, which must not depend on the order of records."""
        if isinstance(dtype, pd.CategoricalDtype):
            return np.argsort(dtype.categories.get_indexer(pd.Index(values)))
        return np.array(places_in_order(values), dtype=np.intp)

    def encode_new_into(self, column: pd.Series[Any], out: Matrix) -> int:
        """Write each record's slot; unseen values get the slot of rare ones, or zeros."""
        slots = self._found_slots(column)
        unseen = slots < 0
        if self.rare_shares_:
            slots[unseen & column.notna().to_numpy()] = self.n_frequent_
        self._write_code(slots, out)
        return int(unseen.sum())

    def holds(self, column: pd.Series[Any]) -> npt.NDArray[np.bool_]:
        """Tell which records have a value with a slot."""
        return np.asarray(self._found_slots(column) >= 0)

    def _found_slots(self, column: pd.Series[Any]) -> Codes:
        """Slot of each record, -1 where it had none when fitted."""
        if self.merges_:
            kept = self.in_order(column.name, self.dtype_, list(self.categories_))
            column = merged(column, kept, self._shares, self.rare)
        codes, values = factorize(column)
        position = {value: i for i, value in enumerate(self.categories_)}
        slots = np.array([position.get(value, -1) for value in values] + [-1], dtype=np.intp)
        if self.code_ is None:
            np.minimum(slots, self.n_frequent_, out=slots)  # all rare values share one slot
        else:
            slots = np.where(slots < 0, -1, self._level_slots[slots])
        if self.has_missing_:
            slots[-1] = self.n_slots_ - 1  # factorize codes missing as -1
        return slots[codes]

    def _decode(self, matrix: npt.NDArray[Any]) -> pd.Series[Any]:
        codes = np.zeros(len(matrix), dtype=np.intp)
        if self.code_ is not None and self.n_slots_ > 1:
            codes = self.code_.read(matrix)
        elif self.n_slots_ > 1:
            codes = matrix.argmax(axis=1)
        missing = self.has_missing_ & (codes == self.n_slots_ - 1)
        codes[missing] = 0
        if self.rare_shares_:
            pooled = np.flatnonzero((codes == self.n_frequent_) & ~missing)
            codes[pooled] += allocate(self.rare_shares_, len(pooled))
        if self.code_ is not None:
            there = np.where(self._comes_out, self._level_slots, -1)
            codes = members(codes, there, self.n_frequent_)
        array = self.categories_.take(codes)
        if self.has_missing_:
            array[missing] = self._missing_value
        column: pd.Series[Any] = pd.Series(array, dtype=self.dtype_, name=self.name_, copy=False)
        return column

    def _spans(self) -> tuple[OutputSpan, ...]:
        if self.n_slots_ < 2:
            return ()
        label = str(self.name_)
        if (code := self.code_) is None:
            return (OutputSpan(0, self.n_slots_, "softmax", label, "category"),)
        group = OutputSpan(0, code.n_groups, "softmax", label, "category")
        place = replace(group, start=code.n_groups, width=code.n_places, within=code.sizes)
        return group, place

    def _saved_parameters(self) -> dict[str, Any]:
        return super()._saved_parameters() | {"categories": None}  # `categories_` has them

    def _state(self) -> dict[str, Any]:
        shared: dict[str, Any] = {}
        if self.code_ is not None:
            lost = np.flatnonzero(~self._comes_out).tolist()
            shared = {"slots": self._level_slots.tolist(), "lost": lost}
        return {
            **shared,
            "categories": [scalar_to_json(value) for value in self.categories_],
            "n_frequent": self.n_frequent_,
            "rare_shares": list(self.rare_shares_),
            "has_missing": self.has_missing_,
            "merges": self.merges_,
            "shares": list(self._shares),
            "missing_value": scalar_to_json(self._missing_value),
        }

    def _restore(self, state: Mapping[str, Any]) -> None:
        values = [scalar_from_json(value) for value in state["categories"]]
        self.categories_ = array_of(values, self.dtype_)
        self.n_frequent_ = int(state["n_frequent"])
        self.rare_shares_ = tuple(float(share) for share in state["rare_shares"])
        self.has_missing_ = bool(state["has_missing"])
        self.merges_ = bool(state["merges"])
        self._shares = tuple(float(share) for share in state["shares"])
        self._missing_value = scalar_from_json(state["missing_value"])
        self.code_ = None
        if "slots" in state:
            self._restore_slots(values, np.array(state["slots"], dtype=np.intp), state["lost"])
        elif not values or not 0 <= self.n_frequent_ == len(values) - len(self.rare_shares_):
            raise ValueError("numbers of categories do not add up")

    def _restore_slots(self, levels: list[Any], slots: Codes, lost: list[int]) -> None:
        comes_out = np.ones(len(levels), dtype=np.bool_)
        comes_out[lost] = False
        inside = slots.shape == comes_out.shape and slots.max(initial=0) < len(levels)
        if not inside or not np.array_equal(
            np.unique(slots[comes_out]), np.arange(slots.max(initial=0) + 1)
        ):
            raise ValueError("every slot needs a category, and every category a slot")
        self._keep(levels, slots, comes_out)


class OrderedTransformer(CategoricalTransformer):
    """One-hot code of values that have an order: slots stand in that order.

    Ordered pandas categories bring theirs; other values are sorted, and it is an error if they
    cannot be compared.
    """

    kind: ClassVar[str] = "ordered"

    @classmethod
    def recognises(cls, dtype: Any, **_: Any) -> bool:
        """Whether the dtype is one of ordered categories."""
        return isinstance(dtype, pd.CategoricalDtype) and bool(dtype.ordered)

    @classmethod
    def _order(cls, name: Hashable, dtype: Any, values: Sequence[Any]) -> Codes:
        if isinstance(dtype, pd.CategoricalDtype):
            return super()._order(name, dtype, values)
        try:
            return np.array(sorted(range(len(values)), key=values.__getitem__), dtype=np.intp)
        except TypeError:
            raise ColumnKindError(
                "the values cannot be compared with each other, so they have no order",
                fix="convert the column to an ordered pandas category, or declare it categorical",
                column=name,
            ) from None


class BooleanTransformer(CategoricalTransformer):
    """One-hot code of true and false, of any dtype; 0 and 1 count as well."""

    kind: ClassVar[str] = "boolean"

    @classmethod
    def recognises(cls, dtype: Any, **_: Any) -> bool:
        """Whether the dtype is one of flags."""
        return numpy_dtype(dtype).kind == "b"

    @classmethod
    def public_column(
        cls, name: Hashable, dtype: Any, listed: PublicColumn | None
    ) -> PublicColumn | None:
        """Return the public list; by default false and true, or 0 and 1 of a numeric dtype."""
        if listed is None:
            numeric = numpy_dtype(dtype).kind in "iuf"
            listed = Categories((0, 1) if numeric else (False, True))
        elif isinstance(listed, Categories):
            cls._check_labels(name, listed.values)
        return super().public_column(name, dtype, listed)

    def _check_values(self, column: pd.Series[Any], values: list[Any]) -> None:
        self._check_labels(column.name, values)

    @classmethod
    def _check_labels(cls, name: Hashable, values: Iterable[Any]) -> None:
        other = [value for value in values if not isinstance(value, bool) and value not in (0, 1)]
        if other:
            raise ColumnKindError(
                f"{len(other)} of its values are neither true nor false",
                fix="convert the column with .astype('boolean'), or declare another kind",
                column=name,
            )


def _are_codes(column: pd.Series[Any], least: int) -> bool:
    """Whether numbers are a few whole ones, one of which at least `least` records hold."""
    if column.head(1000).nunique() > _MOST_CODES:  # settles most columns cheaply
        return False
    values = column.dropna().unique()
    if not 0 < len(values) <= _MOST_CODES:
        return False
    numbers = np.asarray(values, dtype=np.float64)
    if not np.isfinite(numbers).all() or (numbers != np.floor(numbers)).any():
        return False
    return least < 2 or int(column.value_counts().max()) >= least


def can_hold(dtype: Any, values: Sequence[Any]) -> bool:
    """Whether a column of a dtype can hold exactly these values; any category holds any."""
    if isinstance(dtype, pd.CategoricalDtype):
        return True
    try:
        return list(array_of(list(values), dtype)) == list(values)
    except (TypeError, ValueError, OverflowError, NotImplementedError):  # the last is Arrow's
        return False


def does_not_hold(name: Hashable, dtype: Any) -> ColumnKindError:
    """Error about public values that are not of the column's type."""
    return ColumnKindError(
        f"a column of type {dtype} cannot hold the values that the public schema gives it",
        fix='give it categories of the column\'s own type (codes in quotes: "00123","10000"), or '
        "bounds if it is numeric",
        column=name,
    )


def _too_many_categories(column: pd.Series[Any], n_values: int) -> CardinalityError:
    numeric = column.dtype == np.dtype(object) and pd.api.types.infer_dtype(column) in (
        "integer",
        "floating",
        "decimal",
        "mixed-integer-float",
        "datetime",
        "date",
    )
    convert = "convert it with pandas.to_numeric or pandas.to_datetime; or " if numeric else ""
    return CardinalityError(
        f"{n_values} distinct values in {len(column)} rows; of more than {ONE_HOT_CATEGORIES}, "
        f"those that fewer than {MANY_RECORDS} records hold are not kept, and most records would "
        "lose theirs",
        fix=f"{convert}drop the column if it identifies records; group its values; declare another "
        "kind if it is a number or a date; or declare a public list of its categories in a "
        "contract",
        column=column.name,
    )
