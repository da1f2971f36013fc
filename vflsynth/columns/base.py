"""What every column transformer promises, and how encoded columns are laid out in a matrix.

And where a column's numbers can lie: public ranges, and the grid that nearly all lie on. A range is
given by whoever knows the column (`Bounds` in a `PublicSchema`), or is found among the cells of a
public grid, by noisy counts. An axis knows the grid (tenths, hundreds, whole hours) of *all*
values, and one odd value spoils it. Generated values go to the grid of nearly all.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from numbers import Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from vflsynth._artefacts import refusing
from vflsynth.codec import (
    dtype_from_json,
    dtype_to_json,
    places_in_order,
    scalar_from_json,
    scalar_to_json,
)
from vflsynth.columns.arrays import (
    Axis,
    Codes,
    Flags,
    FloatAxis,
    Floats,
    IntegerAxis,
    has_timezone,
    numpy_dtype,
    timezone,
)
from vflsynth.columns.encoders import Encoder
from vflsynth.columns.schema import Bounds, PublicColumn
from vflsynth.exceptions import (
    ColumnKindError,
    EncodedMatrixError,
    PartyDataError,
    UnseenValueError,
)
from vflsynth.registry import Number, Rule, Value, check_parameters, register

Matrix = npt.NDArray[np.float32]

SHARE = Number(0, 1, closed=(True, False))
"""What a share of the records may be, as a parameter."""


@dataclass(frozen=True)
class OutputSpan:
    """Adjacent matrix columns that share one activation of the generator.

    Parameters
    ----------
    start : int
        First matrix column.
    width : int
        Number of matrix columns.
    activation : {"identity", "softmax"}
        What the generator applies: nothing, or a (Gumbel) softmax over the span.
    column : str
        Printable label of the table column that the span encodes.
    role : {"value", "category", "state"}
        A scaled number; the one-hot code of a category; or the one-hot *state* of a numeric column:
        ordinary value, missing, or one of its spikes.
    gate : int, optional
        For a value: the matrix column that is one where the value is present. A generator
        multiplies its output by it, because real rows hold 0 where the value is absent.
    bound : float, optional
        For a value: real rows stay within ± this number B, and a generator outputs
        ``B tanh(x / B)``.
    within : tuple of int, optional
        For the second part of a code in two parts: how many of its columns each code of the span
        before it has, always the first ones.
    """

    start: int
    width: int
    activation: Literal["identity", "softmax"]
    column: str
    role: Literal["value", "category", "state"]
    gate: int | None = None
    bound: float | None = None
    within: tuple[int, ...] | None = None

    @property
    def stop(self) -> int:
        """One past the last matrix column."""
        return self.start + self.width

    def shifted(self, offset: int) -> OutputSpan:
        """Return the same span, `offset` matrix columns further right."""
        gate = None if self.gate is None else self.gate + offset
        return replace(self, start=self.start + offset, gate=gate)


class ColumnTransformer(TransformerMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """One table column <-> float32 matrix columns, with an inverse that restores dtype and values.

    Subclasses write `_fit`, `encode_into`, `_decode`, `_spans`, `_state` and `_restore`; and
    `public_column`, if columns of their kind can be encoded without looking at the records;
    `recognises`, if columns can be of the kind without being declared so; and `is_labels` or
    `ranges`, if what is public of a column can be discovered.

    Attributes
    ----------
    name_ : object
        Label of the column.
    dtype_ : dtype
        Its pandas dtype; the inverse returns exactly this one.
    width_ : int
        Number of matrix columns; 0 for a constant column, which needs none.
    spans_ : tuple of OutputSpan
        Layout of the matrix columns, from 0 to `width_`.

    Notes
    -----
    Privacy: everything learned (categories, ranges, means, spikes) is read from private rows and is
    not covered by the noise of a private training. `to_dict` shows all of it.
    """

    registry_group: ClassVar[str] = "column_kinds"
    kind: ClassVar[str]
    is_labels: ClassVar[bool] = False
    """Whether the values are labels, which can only be counted, rather than numbers."""

    ranges: ClassVar[NumberRanges | TimeRanges | None] = None
    """What public bounds mean for a column of this kind, and where they are looked for."""

    rules: ClassVar[Mapping[str, Rule]] = {}
    """Ranges of parameters, by name."""

    name_: Any
    dtype_: Any

    def fit(self, column: pd.Series[Any], y: object = None) -> Self:
        """Learn the encoding of one column.

        Parameters
        ----------
        column : Series, shape (record,)
            Never modified.
        y : None
            Ignored; for scikit-learn.

        Raises
        ------
        ParameterError
            A parameter is out of range.
        ColumnKindError
            The values do not fit this kind, or the dtype is not supported.
        EmptyColumnError
            There is no value at all.
        """
        self.check_parameters()
        self.name_, self.dtype_ = column.name, column.dtype
        self._fit(column)
        self._lay_out()
        return self

    @property
    def declared_kind(self) -> str:
        """Kind of the column, as it would be declared."""
        return self.kind

    @classmethod
    def recognises(
        cls,
        dtype: Any,
        *,
        listed: PublicColumn | None = None,
        values: pd.Series[Any] | None = None,
        least: int = 0,
    ) -> bool:
        """Whether a column is of this kind that nobody declared; kinds are asked in their order.

        Parameters
        ----------
        dtype : dtype
        listed : Bounds or Categories, optional
            What the public schema says.
        values : Series, shape (record,), optional
            Given only where kinds may look at the records.
        least : int, default=0
            Records without which a category is not published.
        """
        return False

    @classmethod
    def public_column(
        cls, name: Hashable, dtype: Any, listed: PublicColumn | None
    ) -> PublicColumn | None:
        """Say what is known of a column of this kind without looking at the records.

        Parameters
        ----------
        name : object
            Its label, for error messages.
        dtype : dtype
        listed : Bounds or Categories, optional
            What the public schema says.

        Returns
        -------
        Bounds, Categories or None
            Ready for `cell_codes` and `PublicTransformer`; None if it has to be discovered, which
            needs `is_labels` or `ranges`.

        Raises
        ------
        ColumnKindError
            If dtype or schema contradict the kind, or the kind needs the records.
        """
        raise ColumnKindError(
            f"a column of kind {cls.kind!r} cannot be encoded by public knowledge alone",
            fix="declare it of another kind, or fit without privacy",
            column=name,
        )

    @classmethod
    def in_order(cls, name: Hashable, dtype: Any, values: Sequence[Any]) -> list[Any]:
        """Sort distinct values, by themselves alone, never by the order of records."""
        return [values[i] for i in places_in_order(values)]

    def transform(self, column: pd.Series[Any]) -> Matrix:
        """Encode a column as a matrix of shape (record, width_)."""
        check_is_fitted(self, "spans_")
        out = np.zeros((len(column), self.width_), dtype=np.float32)
        self.encode_into(column, out)
        return out

    def inverse_transform(self, matrix: npt.NDArray[Any]) -> pd.Series[Any]:
        """Decode a matrix of shape (record, width_); softmax spans need not be exactly one-hot."""
        check_is_fitted(self, "spans_")
        check_matrix(matrix, self.width_)
        return self._decode(matrix)

    def to_dict(self) -> dict[str, Any]:
        """Return parameters and learned state as JSON-safe values, without any table row."""
        check_is_fitted(self, "spans_")
        return {
            "kind": self.kind,
            "parameters": {
                name: value.to_dict() if isinstance(value, Encoder) else scalar_to_json(value)
                for name, value in self._saved_parameters().items()
            },
            "name": scalar_to_json(self.name_),
            "dtype": dtype_to_json(self.dtype_),
            "state": self._state(),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Rebuild a fitted transformer from `to_dict`.

        Raises
        ------
        ArtefactError
            The content does not describe a transformer of this kind.
        """
        with refusing(f"not the saved state of a {cls.__name__}"):
            if content["kind"] != cls.kind:
                raise ValueError(f"kind is {content['kind']!r}, not {cls.kind!r}")
            parameters = {
                name: Encoder.from_dict(given)
                if name == "encoder" and isinstance(given, dict)
                else scalar_from_json(given)
                for name, given in content["parameters"].items()
            }
            transformer = cls(**parameters)
            transformer.name_ = scalar_from_json(content["name"])
            transformer.dtype_ = dtype_from_json(content["dtype"])
            transformer._restore(content["state"])
            transformer._lay_out()
        return transformer

    def _lay_out(self) -> None:
        self.spans_ = self._spans()
        self.width_ = sum(span.width for span in self.spans_)

    def check_parameters(self) -> None:
        """Raise ParameterError for a parameter out of range."""
        check_parameters(type(self).__name__, self.get_params(deep=False), self.rules)

    @abstractmethod
    def encode_into(self, column: pd.Series[Any], out: Matrix) -> None:
        """Write the encoded column into `out`, shape (record, width_), which holds zeros."""

    def encode_new_into(self, column: pd.Series[Any], out: Matrix) -> int:
        """Write a column of records that are to be predicted, whatever occurs in it.

        As `encode_into`; returns how many hold a value that did not occur when fitted. Kinds that
        know no neutral code raise UnseenValueError.
        """
        self.encode_into(column, out)
        return 0

    def holds(self, column: pd.Series[Any]) -> Flags:
        """Tell which records of a column have a value that occurred when fitted, or has a code."""
        try:
            self.transform(column)
        except UnseenValueError:
            if len(column) == 1:
                return np.zeros(1, np.bool_)
            halves = column.iloc[: len(column) // 2], column.iloc[len(column) // 2 :]
            return np.concatenate([self.holds(half) for half in halves])
        return np.ones(len(column), np.bool_)

    @abstractmethod
    def _fit(self, column: pd.Series[Any]) -> None: ...

    @abstractmethod
    def _decode(self, matrix: npt.NDArray[Any]) -> pd.Series[Any]: ...

    def spread(self, out: Matrix) -> None:
        """Move equal scaled numbers of encoded records apart, if they then decode to the same."""

    def _decode_generated(self, matrix: npt.NDArray[Any]) -> pd.Series[Any]:
        """Decode what a model made: perhaps only to values that are usual."""
        return self._decode(matrix)

    @abstractmethod
    def _spans(self) -> tuple[OutputSpan, ...]: ...

    def _saved_parameters(self) -> dict[str, Any]:
        """Return the parameters that are saved besides what was learned."""
        return dict(self.get_params(deep=False))

    @abstractmethod
    def _state(self) -> dict[str, Any]: ...

    @abstractmethod
    def _restore(self, state: Mapping[str, Any]) -> None: ...


def check_matrix(matrix: npt.NDArray[Any], width: int) -> None:
    """Raise EncodedMatrixError unless `matrix` is numeric, (record, width) and free of NaN."""
    if not isinstance(matrix, np.ndarray) or matrix.ndim != 2 or matrix.shape[1] != width:
        got = matrix.shape if isinstance(matrix, np.ndarray) else type(matrix).__name__
        raise EncodedMatrixError(f"expected an array of shape (record, {width}), got {got}")
    if not np.issubdtype(matrix.dtype, np.floating):
        raise EncodedMatrixError(f"expected an array of floats, got dtype {matrix.dtype}")
    # The minimum propagates NaN and needs no second matrix of flags.
    if matrix.size and np.isnan(matrix.min()):
        raise EncodedMatrixError("the matrix holds NaN; a generator's output must be finite")


def check_seen(codes: Codes, column: Hashable) -> None:
    """Raise UnseenValueError where a record of a column has no code, which is -1."""
    unseen = codes < 0
    if unseen.any():
        raise UnseenValueError(
            f"{unseen.sum()} rows hold values that did not occur when the transformer was fitted "
            "(missing ones count)",
            fix="fit on a table that holds every value, or remove these rows",
            column=column,
            rows=np.flatnonzero(unseen)[:5].tolist(),
        )


@contextmanager
def naming(party: str | None, column: Hashable) -> Iterator[None]:
    """Add the names of party and column to errors about the party's table."""
    try:
        yield
    except PartyDataError as error:
        raise error.about(party=party, column=column) from None


def held_as(dtype: Any, given: pd.Series[Any]) -> pd.Series[Any]:
    """Return given values, none of them missing, in a column's type, or raise ColumnKindError."""
    try:
        held = given.astype(dtype)
        same = dtype.kind == "f" or held.astype(object).equals(given.astype(object))
    except (TypeError, ValueError):
        same = False
    if not same:
        raise not_held(dtype)
    return held


def not_held(dtype: Any) -> ColumnKindError:
    """Error about given values that a column's type cannot hold."""
    return ColumnKindError(
        f"what is given are not values of type {dtype}",
        fix="convert the column to the type that sampled records have",
    )


# Float64 does not have all whole numbers beyond this.
_LARGEST_EXACT = 2**53

# Cells of numbers: powers of two from 1e-9 to 1.8e19 of either sign, and one around 0.
_POWERS = 2.0 ** np.arange(-30, 65)
_EDGES = np.concatenate([-_POWERS[::-1], _POWERS])

# Cells of points in time begin at these years: decades where most dates are, coarse ones elsewhere.
_YEARS = (1, 1000, 1500, 1600, 1700, 1800, 1850, *range(1900, 2101, 10), 2150, 2200, 2500, 9999)
_EPOCH = date(2000, 1, 1).toordinal()
_DAYS = [date(year, 1, 1).toordinal() - _EPOCH for year in _YEARS]


@dataclass(frozen=True, slots=True)
class NumberRanges:
    """Ranges of columns of a kind of numbers; of whole ones, as every integer dtype holds."""

    kind: str
    whole: bool

    def check_dtype(self, name: Hashable, dtype: Any) -> None:
        """Raise ColumnKindError, naming the column, unless the dtype is one of numbers."""
        if numpy_dtype(dtype).kind not in "iuf":
            raise ColumnKindError(
                f"dtype {dtype} is not numeric, so the column cannot be {self.kind}",
                fix="convert it to numbers (pandas.to_numeric), or declare another kind (--kind)",
                column=name,
            )

    def bounds(self, name: Hashable, dtype: Any, listed: Bounds) -> Bounds:
        """Say what public bounds mean for a column of this dtype, or raise ColumnKindError."""
        if not isinstance(listed.low, Real):
            raise ColumnKindError(
                f"its public bounds {_words(listed)} are times, and the column holds numbers of "
                f"type {dtype}",
                fix="give it two numbers as bounds, or convert the column to datetimes",
                column=name,
            )
        integers = numpy_dtype(dtype).kind in "iu"
        found = Bounds(*listed.ends, step=int(self.whole or integers))
        if integers and max(map(abs, listed.ends)) > _LARGEST_EXACT:
            low, high = math.ceil(listed.low), math.floor(listed.high)
            found = Bounds(0, high - low, int(low), 1)
        try:
            axis_of(found, dtype)
        except ValueError:
            raise _does_not_hold(name, dtype, listed) from None
        return found

    def grid(self, dtype: Any) -> tuple[Floats, int]:
        """Edges of the cells in which columns are looked for, as far as the dtype goes, and origin.

        Powers of two from 2**-30 to 2**64 of either sign, with one cell around 0; whole ones, and
        0, for whole numbers. The cells at the ends also hold what is beyond.
        """
        own = numpy_dtype(dtype)
        limits: Any = np.finfo(own) if own.kind == "f" else np.iinfo(own)
        edges = np.rint(_EDGES) if self.whole or own.kind in "iu" else _EDGES
        return np.unique(np.clip(edges, float(limits.min), float(limits.max))), 0

    def between(self, dtype: Any, low: float, high: float) -> Bounds:
        """Bounds between two edges of the grid."""
        if numpy_dtype(dtype).kind in "iu":
            limits = np.iinfo(numpy_dtype(dtype))  # the largest edge of 64 bits is rounded up
            low, high = max(low, limits.min), min(high, limits.max)
        return self.bounds(None, dtype, Bounds(low, high))


@dataclass(frozen=True, slots=True)
class TimeRanges:
    """Ranges of columns of points in time and of durations: counts of the dtype's unit."""

    def check_dtype(self, name: Hashable, dtype: Any) -> None:
        """Raise ColumnKindError, naming the column, unless the dtype is one of times."""
        if numpy_dtype(dtype).kind not in "mM":
            raise ColumnKindError(
                f"dtype {dtype} is not a datetime",
                fix="convert it to times (pandas.to_datetime), or declare another kind (--kind)",
                column=name,
            )

    def bounds(self, name: Hashable, dtype: Any, listed: Bounds) -> Bounds:
        """Say what public bounds mean for a column of this dtype, or raise ColumnKindError."""
        own = numpy_dtype(dtype)
        ends: tuple[Any, ...] = listed.ends
        durations = own.kind == "m"
        if isinstance(ends[0], pd.Timedelta) != durations or isinstance(ends[0], Real):
            wanted = "durations, such as '0 days'" if durations else "times, such as '2020-01-31'"
            raise ColumnKindError(
                f"its public bounds {_words(listed)} do not fit a column of type {dtype}",
                fix=f"give two {wanted}",
                column=name,
            )
        step = _smallest_step(dtype)
        if not durations:
            if not isinstance(ends[0], pd.Timestamp):
                step = per_day(own)
            ends = tuple(in_zone(name, dtype, pd.Timestamp(end)) for end in ends)
        try:
            low, high = _count(ends[0], own, up=True), _count(ends[1], own, up=False)
            if step > 1:  # days are not of equal length everywhere: the last one is a whole step
                high = low + round((high - low) / step) * step
            found = Bounds(0, high - low, low, step)
            axis_of(found, dtype)
        except ValueError:  # out of range, or less than a unit apart
            raise _does_not_hold(name, dtype, listed) from None
        return found

    def grid(self, dtype: Any) -> tuple[Floats, int]:
        """Edges of the cells in which columns are looked for, as far as the dtype goes, and origin.

        Points in time, counted from the beginning of the year 2000 UTC: decades from 1900 to 2100,
        coarser cells from the year 1 to 9999. Durations: powers of two of seconds, as numbers.
        """
        own, origin = numpy_dtype(dtype), 0
        days, inside = _EDGES / 86_400.0, 2.0**63 - 2.0**12  # a rounding below what 64 bits hold
        if own.kind == "M":
            days = np.array(_DAYS, dtype=np.float64)
            origin = (_EPOCH - date(1970, 1, 1).toordinal()) * per_day(own)
        edges = np.rint(days * per_day(own))
        return np.unique(np.clip(edges, -inside - origin, inside - origin)), origin

    def between(self, dtype: Any, low: float, high: float) -> Bounds:
        """Bounds between two edges of the grid."""
        _, origin = self.grid(dtype)
        return Bounds(0, int(high - low), origin + int(low), _smallest_step(dtype))


def axis_of(bounds: Bounds, dtype: Any) -> Axis:
    """Return the number line of a column between the bounds that the classes above return.

    ValueError if the dtype holds no number between them, or not all of them.
    """
    own, (low, high) = numpy_dtype(dtype), bounds.ends
    if bounds.step:
        low, high = map(bounds.from_steps, bounds.outermost)
    if own.kind in "iumM":
        low, high = bounds.origin + low, bounds.origin + high
        limits = np.iinfo(own if own.kind in "iu" else np.int64)
        # The smallest 64-bit count stands for a missing time.
        if low < limits.min + (own.kind in "mM") or high > limits.max:
            raise ValueError(f"{dtype} does not reach from {low} to {high}")
        return IntegerAxis(low, high, min(int(bounds.step), high - low), own == np.uint64)
    if own.kind != "f" or max(abs(low), abs(high)) > float(np.finfo(own).max):
        raise ValueError(f"{dtype} does not reach from {low} to {high}")
    low, high = _inside(low, own, np.inf), _inside(high, own, -np.inf)
    decimals = bounds.decimals if bounds.step else None
    return FloatAxis(low, high, decimals, 0, float(np.finfo(own).eps))


def _inside(end: float, own: np.dtype[Any], direction: float) -> float:
    """Nearest number of a float type that is not beyond the end."""
    number = own.type(end)
    outside = number < end if direction > 0 else number > end
    return float(np.nextafter(number, own.type(direction)) if outside else number)


def _does_not_hold(name: Hashable, dtype: Any, listed: Bounds) -> ColumnKindError:
    return ColumnKindError(
        f"a column of type {dtype} cannot hold the values that its public bounds {_words(listed)} "
        "give it",
        fix="give it bounds within its type, or convert it to a wider type",
        column=name,
    )


def _words(bounds: Bounds) -> str:
    return f"({bounds.low}, {bounds.high})"


def in_zone(name: Hashable, dtype: Any, end: pd.Timestamp) -> pd.Timestamp:
    """Take a time without a zone for one of the column's own."""
    if end.tz is None:
        if not has_timezone(dtype):
            return end
        return end.tz_localize(timezone(dtype), ambiguous=True, nonexistent="shift_forward")
    if has_timezone(dtype):
        return end
    raise ColumnKindError(
        f"its public bounds are in the time zone {end.tz}, and the column's times have none",
        fix="give bounds without a time zone, or the column one, with .dt.tz_localize",
        column=name,
    )


def _count(end: Any, own: np.dtype[Any], *, up: bool) -> int:
    """Count of a dtype's unit that is next to a time, on its inner side."""
    near = end.as_unit(np.datetime_data(own)[0], round_ok=True)
    count = int(near.asm8.view("i8"))
    return count + (up and near < end) - (not up and near > end)


def per_day(own: np.dtype[Any]) -> int:
    """Return the counts of a NumPy time type per day."""
    return 86_400 * _UNITS[np.datetime_data(own)[0]]


def _smallest_step(dtype: Any) -> int:
    """Return the counts from one value of a time type to the next: Arrow has a type of days."""
    return per_day(numpy_dtype(dtype)) if str(dtype).startswith("date32") else 1


NEARLY_ALL = 0.95
"""Share of the values that lie on a grid that generated ones are put on."""

# Powers of ten that steps are looked for between, the precision of a value that arithmetic may have
# gone through, and values looked at.
_LARGEST, _SMALLEST = 9, -9
_PRECISION = 1e-9
_LOOKED_AT = 20_000

# Significant digits that are looked for, and the share of values that these round more than a step.
_MOST_DIGITS, _COARSER = 4, 0.1

_EXACT = 2.0**53
"""Below it floats have every whole number."""

SPACINGS = 16.0
"""Of a type's floats, that a step has at least: each of them is a multiple of less."""

_SECONDS = (86_400, 3_600, 900, 60, 1)
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@register
@dataclass(frozen=True)
class ColumnGrid(Value):
    """Whole multiples of a step, an int for columns of whole numbers and times.

    `lower` and `upper` are the outermost multiples inside the column's range. Numbers may have so
    many significant `digits` only, as measurements do: 0.123, 12.3 and 12,300; 0 is any.
    """

    step: int | float
    decimals: int
    lower: int | float
    upper: int | float
    digits: int = 0

    def __post_init__(self) -> None:
        if (
            not 0 < self.step < math.inf
            or not self.lower <= self.upper
            or min(self.decimals, self.digits) < 0
        ):
            raise ValueError(f"not a grid: {self}")

    @classmethod
    def fit(
        cls,
        ordered: npt.NDArray[Any],
        steps: Iterable[tuple[int | float, int]],
        precision: float = 0.0,
    ) -> Self | None:
        """Find the widest step whose multiples nearly all sorted values are; None if there is none.

        `steps` are tried in their order, wide ones first, each with its decimals; a step needs
        three places within the range. `precision` is that of the column's own dtype, relative.
        """
        some = ordered[:: -(-len(ordered) // _LOOKED_AT)]
        lowest, highest = ordered[0].item(), ordered[-1].item()
        finest = SPACINGS * max(precision, 2.0**-52) * max(abs(lowest), abs(highest))
        for step, decimals in steps:
            if step < finest and not isinstance(step, int):
                return None  # every float of this size would be on it
            if 2 * step > highest - lowest or _on_grid(some, step, precision) < NEARLY_ALL:
                continue
            if isinstance(step, int):
                lower, upper = -(-lowest // step) * step, highest // step * step
            else:
                most = max(abs(lowest), abs(highest)) / step
                error = min(0.01, _PRECISION * max(1.0, most))
                lower = round(math.ceil(lowest / step - error) * step, decimals)
                upper = round(math.floor(highest / step + error) * step, decimals)
            return cls(step, decimals, lower, upper) if upper - lower >= 1.99 * step else None
        return None

    @classmethod
    def of_numbers(cls, ordered: npt.NDArray[Any], precision: float = 0.0) -> Self | None:
        """Find steps and significant digits of sorted numbers; see `fit`."""
        whole = ordered.dtype.kind != "f"
        found = cls.fit(ordered, whole_steps() if whole else decimal_steps(), precision)
        if found is None and whole:
            found = cls(1, 0, ordered[0].item(), ordered[-1].item())
        if found is None:
            return None
        sizes = np.abs(ordered[:: -(-len(ordered) // _LOOKED_AT)].astype(np.float64))
        made = replace(found, digits=_digits(sizes[sizes > 0.0], found.step))
        return made if made.step != 1 or not whole or made.digits else None

    def nearest(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the nearest place of the grid, shape and dtype of `values`."""
        inside = np.clip(values, self.lower, self.upper)
        if self.digits:  # of the numbers with so many, those that are multiples of the step, too
            units = np.maximum(_units(np.abs(inside.astype(np.float64)), self.digits), self.step)
            rounded = np.asarray(np.rint(inside / units) * units, inside.dtype)
            inside = np.clip(rounded, self.lower, self.upper)
        if isinstance(self.step, int):
            beyond = (inside - self.lower) % self.step
            down = inside - beyond
            nearest = np.where(2 * beyond > self.step, down + self.step, down)
            return np.asarray(nearest, values.dtype)
        return np.asarray(np.round(np.rint(inside / self.step) * self.step, self.decimals))


def _digits(sizes: Floats, step: float) -> int:
    """Return the significant digits that nearly all have, if the step alone does not say so."""
    if not len(sizes) or sizes.max() >= _EXACT:
        return 0
    for digits in range(1, _MOST_DIGITS + 1):
        units = _units(sizes, digits)
        places = sizes / units
        if (np.abs(places - np.rint(places)) < _PRECISION * places).mean() >= NEARLY_ALL:
            return digits if (units > 1.5 * step).mean() >= _COARSER else 0
    return 0


def _units(sizes: Floats, digits: int) -> Floats:
    """Return what one in the last of so many significant digits is."""
    powers = np.floor(np.log10(np.where(sizes > 0.0, sizes, 1.0)) + _PRECISION)
    return np.asarray(10.0 ** (powers + 1 - digits))


def decimal_steps() -> Iterator[tuple[float, int]]:
    """List steps of 5, 2.5, 2 and 1 times powers of ten, wide first, with their decimals."""
    for power in range(_LARGEST, _SMALLEST - 1, -1):
        for digits in (50, 25, 20, 10):
            decimals = max(0, 1 - power - (digits % 10 == 0))
            yield round(digits * 10.0 ** (power - 1), decimals), decimals


def whole_steps() -> Iterator[tuple[int, int]]:
    """Those of them that are whole, but for 1."""
    return ((int(step), 0) for step, decimals in decimal_steps() if not decimals and step > 1)


def time_steps(unit: str) -> Iterator[tuple[int, int]]:
    """List a day, an hour, a quarter of one, a minute and a second, as counts of a unit."""
    return ((seconds * _UNITS[unit], 0) for seconds in _SECONDS)


def _on_grid(values: npt.NDArray[Any], step: int | float, precision: float) -> float:
    """Share of the values that are multiples of a step."""
    if isinstance(step, int):
        return float((values % step == 0).mean())
    multiples = values / step
    off = np.abs(multiples - np.rint(multiples)) * step
    error = max(precision, _PRECISION) * np.maximum(np.abs(values), step)
    return float((off <= np.minimum(error, 0.01 * step)).mean())
