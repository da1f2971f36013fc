"""Numeric columns (continuous, integer, datetime): a scaled value, and a state where needed.

A record's state is "an ordinary value", "missing", or one of the column's *spikes*: single values
that many records share, such as the zeros of a capital gain. The state is one-hot; where it is not
ordinary the scaled value is 0, which is the mean. States that nothing is in get no slot, a value
that cannot vary gets none either, so a constant column has width 0 and a plain column is the
paper's plain z-score.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Hashable, Mapping
from dataclasses import KW_ONLY, asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from vflsynth.columns.arrays import (
    Axis,
    Codes,
    Flags,
    Floats,
    axis_from_dict,
    axis_through,
    changed_dtype,
    nearest_places,
    numpy_dtype,
    read_floats,
    read_times,
    read_values,
    write_values,
)
from vflsynth.columns.base import (
    SHARE,
    ColumnGrid,
    ColumnTransformer,
    Matrix,
    NumberRanges,
    OutputSpan,
    TimeRanges,
    check_seen,
    per_day,
    time_steps,
)
from vflsynth.columns.encoders import Encoder, Ranks, encoder_of
from vflsynth.columns.schema import Bounds, Categories, PublicColumn
from vflsynth.exceptions import ColumnKindError, EmptyColumnError
from vflsynth.registry import Number, Optional, Rule, Several

# Of the range: how wide an interval stands for a value that may lie anywhere.
_SMALL = 1e-6

# Beyond it float32 has infinity alone.
_LARGEST = float(np.finfo(np.float32).max)

# Of the range: steps of a grid that scaled numbers of 64 bits still tell apart.
_FINEST = 1e-14


@dataclass(repr=False, eq=False)
class NumericTransformer(ColumnTransformer):
    """What continuous, integer and datetime columns share.

    Parameters
    ----------
    encoder : str or Encoder, default "auto"
        How ordinary values become scaled numbers, see `vflsynth.columns.encoders`.
    spike_share : float or None, default 0.1
        A value that at least this share of all records holds is a spike. None turns spikes off.
    max_levels : int, default 0
        A column with at most this many distinct values has all of them as spikes.
    spike_records : int, default 10
        Fewest records of a spike; with `max_levels`, fewest on average.
    spikes : tuple of int or float, default ()
        Numbers that are spikes, however few records hold them.
    rare_records : int, default 0
        Numbers of fewer records count as the nearest state, and `Ranks` do not keep them. 0 and 1:
        all are kept.
    extreme_records : int, default 0
        The range ends at the mean of so many of the smallest values, and of the largest, or at that
        of the next ones where the mean would be rounded to the extreme. None counts as more than
        five times as far out as the middle one of them. Values near an end are drawn in, see
        `tails_`. An extreme that so many records hold is kept. 0 and 1: the smallest and largest
        value can come out.

    Attributes
    ----------
    spikes_ : tuple of int or float
        The spikes, sorted; datetimes as counts of the dtype's unit since 1970.
    has_missing_ : bool
        Whether missing values occurred.
    axis_ : FloatAxis, IntegerAxis or None
        Range and grid of the ordinary values; None if all values are spikes.
    grid_ : ColumnGrid or None
        Where nearly all ordinary values lie and generated ones are put; None if nowhere special.
    encoder_ : Encoder or None
        That of the ordinary values; None if there are not two different ones.
    tails_ : tuple of float
        Coordinates, below the first and above the second of which ordinary values are drawn in, so
        that none piles up at an end of the range: the further out, the nearer to the end, which
        none reaches. The end itself, beyond which values count as the end, where values are too few
        or one of them is frequent. Without an encoder, zeros.
    tolerance_ : float
        Largest absolute error of a round trip of fitted values, in the column's unit (the dtype's
        unit for datetimes). 0.0 where the round trip is exact; more only where float32 cannot tell
        the values apart, as in 12-digit identifiers or nanosecond timestamps.
    """

    ranges: ClassVar[NumberRanges | TimeRanges]
    rules: ClassVar[Mapping[str, Rule]] = {
        "spike_share": Optional(SHARE),
        "max_levels": Number(0, whole=True),
        "spike_records": Number(1, whole=True),
        "spikes": Several(Number(-math.inf)),
        "rare_records": Number(0, whole=True),
        "extreme_records": Number(0, whole=True),
    }

    encoder: str | Encoder = "auto"
    _: KW_ONLY
    spike_share: float | None = 0.1
    max_levels: int = 0
    spike_records: int = 10
    spikes: tuple[int | float, ...] = ()
    rare_records: int = 0
    extreme_records: int = 0

    @property
    def tolerance_(self) -> float:
        """Largest absolute error of a round trip of fitted values."""
        if self.axis_ is None or self.encoder_ is None:
            return 0.0
        lower, upper = self._ends(self.axis_, self._raw_dtype)
        return self.axis_.error(self.encoder_.error(float(lower), float(upper)))

    @staticmethod
    def _ends(axis: Axis, dtype: np.dtype[Any]) -> Floats:
        """Coordinates of the ends of the range."""
        return axis.to_coordinates(np.array([axis.lower, axis.upper], dtype))

    def encode_into(self, column: pd.Series[Any], out: Matrix) -> None:
        """Write value and state of each record."""
        raw, missing = self._read(column)
        if raw.dtype != self._raw_dtype:
            if self._raw_dtype != np.float64:  # only integers to floats is a harmless conversion
                raise changed_dtype(column, self.dtype_)
            raw = raw.astype(np.float64)
        raw = self._coded(raw)
        states = self._found_states(raw, missing)
        check_seen(states, self.name_)
        self._write_code(raw, states, out)

    def encode_new_into(self, column: pd.Series[Any], out: Matrix) -> int:
        """Write value and state; what is missing and never was becomes the middle of all values.

        Whole numbers may come as floats, as a blank turns them into: each is taken as the nearest
        that the column could hold.
        """
        raw, missing = self._read_new(column)
        raw = self._coded(raw)
        states = self._found_states(raw, missing)
        unseen = states < 0
        if self.axis_ is not None:
            states[unseen] = 0  # ordinary
        self._write_code(raw, states, out)
        if self.axis_ is None and self.n_states_ > 1:
            out[unseen] = 0.0  # there is no ordinary value: no code
        if self.encoder_ is not None:
            out[unseen & missing, 0] = 0.0
        return int(unseen.sum())

    def holds(self, column: pd.Series[Any]) -> Flags:
        """Tell which records have a number, or are missing where that occurred when fitted."""
        raw, missing = self._read(column)
        states = self._found_states(self._coded(raw.astype(self._raw_dtype)), missing)
        return np.asarray(states >= 0)

    def _read_new(self, column: pd.Series[Any]) -> tuple[npt.NDArray[Any], Flags]:
        """Read values as the fitted type has them, missing ones as anything."""
        if column.isna().all():  # such a column has no type of its own
            return np.zeros(len(column), self._raw_dtype), np.ones(len(column), np.bool_)
        if self._raw_dtype == np.float64 or numpy_dtype(column.dtype).kind != "f":
            raw, missing = self._read(column)
            return raw.astype(self._raw_dtype), missing
        values, missing = read_floats(column)
        info = np.iinfo(self._raw_dtype)
        # The largest whole number of 64 bits is no float: the next one up would wrap around.
        highest = np.nextafter(float(info.max), 0.0)
        whole = np.clip(np.rint(np.where(missing, 0.0, values)), float(info.min), highest)
        return whole.astype(self._raw_dtype), missing

    @np.errstate(over="ignore")  # what is beyond all numbers is clipped, or has a state
    def _write_code(self, raw: npt.NDArray[Any], states: Codes, out: Matrix) -> None:
        """Write scaled values and states."""
        n_values = 0
        if self.axis_ is not None and self.encoder_ is not None:
            coordinates = self.encoder_.decoded(self.axis_.to_coordinates(raw))
            scaled = self.encoder_.scale(coordinates)
            if self.n_states_ > 1:
                scaled[states != 0] = 0.0
            out[:, 0] = np.clip(scaled, -_LARGEST, _LARGEST)
            n_values = 1
        if self.n_states_ > 1:
            out[:, n_values:][np.arange(len(states)), states] = 1.0

    def _coded(self, raw: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Move values that few records hold to what they count as."""
        if self.extreme_records > 1:
            raw = self._within(raw)
        if self.rare_records > 1 and self.axis_ is None:
            listed = np.array(self.spikes_, raw.dtype)
            raw = listed[nearest_places(listed, raw)]
        return raw

    def spread(self, out: Matrix) -> None:
        """Move equal scaled numbers apart, as far as the encoder can."""
        if self.encoder_ is not None:
            present = out[:, 1] == 1 if self.n_states_ > 1 else slice(None)
            out[present, 0] = self.encoder_.spread(out[present, 0])

    def _within(self, raw: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Move values beyond the range that was learned, or among what became its ends, there."""
        ordinary = () if self.axis_ is None else (self.axis_.lower, self.axis_.upper)
        known = sorted({*self.spikes_, *ordinary} - {*self.spikes})
        if not known:
            return raw
        named = np.isin(raw, self.spikes)
        if named.any():
            found = raw.copy()
            found[~named] = self._within(raw[~named])
            return found
        if self.encoder_ is not None:
            raw = self._drawn_in(raw)
        within: npt.NDArray[Any] = np.clip(raw, known[0], known[-1]).astype(raw.dtype)
        if self.encoder_ is None:  # all values are states: of the records at an end, one value
            within[within < known[min(1, len(known) - 1)]] = known[0]
            within[within > known[max(0, len(known) - 2)]] = known[-1]
        return within

    @np.errstate(over="ignore")  # at 1e308; infinity is beyond the end, and its tangent is one
    def _drawn_in(self, raw: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Move ordinary values near the ends of the range inwards; a larger one stays larger."""
        assert self.axis_ is not None
        places, found = self.axis_.to_coordinates(raw), raw.copy()
        spikes = np.array(self.spikes_, raw.dtype)
        for inner, end in zip(self.tails_, self._ends(self.axis_, raw.dtype)):
            reach = end - inner
            out = np.flatnonzero((places - inner) * reach > 0.0)
            out = out[~np.isin(raw[out], spikes)]
            drawn = inner + reach * np.tanh((places[out] - inner) / reach)
            found[out] = self.axis_.from_coordinates(drawn)
        return found

    def score_cells(self, column: pd.Series[Any]) -> tuple[Floats, Floats, float]:
        """Find the scaled numbers that decode to each value: lower and upper ends of intervals.

        They are meaningless where a record's state is not the ordinary one. The third result is 0
        for values on a grid. Others get intervals of a millionth of the range; then it is the
        logarithm of their width, to be subtracted for a density in the column's unit. So do values
        on a grid that scaled numbers cannot tell apart, whose unit is a step of it.
        """
        assert self.axis_ is not None
        assert self.encoder_ is not None
        raw = self._coded(self._read(column)[0].astype(self._raw_dtype))
        coordinates = self.encoder_.decoded(self.axis_.to_coordinates(raw))
        low, high = self._ends(self.axis_, self._raw_dtype)
        grid = self.axis_.grid
        step = None if grid is None or grid < (high - low) * _FINEST else grid
        width = (high - low) * _SMALL if step is None else step
        lower = self.encoder_.scale(coordinates - width / 2.0)
        upper = self.encoder_.scale(coordinates + width / 2.0)
        if step is not None:
            lower = np.where(coordinates <= low, -np.inf, lower)
            return lower, np.where(coordinates >= high, np.inf, upper), 0.0
        if grid is not None:
            return lower, upper, math.log(width / grid)
        unit = (self.axis_.upper - self.axis_.lower) / (high - low)
        return lower, upper, math.log(width) + math.log(unit)  # whose product may be 0

    def check_parameters(self) -> None:
        """Raise ParameterError for a parameter out of range."""
        encoder_of(self.encoder)
        super().check_parameters()

    def _fit(self, column: pd.Series[Any]) -> None:
        raw, missing = self._read(column)
        self.has_missing_ = bool(missing.any())
        ordered = np.sort(raw[~missing] if self.has_missing_ else raw)
        if not len(ordered):
            raise EmptyColumnError(
                "the column has no value", fix="drop the column", column=column.name
            )
        if len(ordered) < self.extreme_records:
            raise EmptyColumnError(
                f"fewer than {self.extreme_records} records have a value, and none may come out",
                fix="drop the column, or lower extreme_records",
                column=column.name,
            )
        self._raw_dtype = raw.dtype
        is_named = np.isin(ordered, self.spikes)
        named, values = np.unique(ordered[is_named]), ordered[~is_named]
        ordered = self._without_extremes(values)
        most = min(self.max_levels, len(ordered) // self.spike_records)
        spikes = _levels(ordered, most, self.rare_records)
        if spikes and self.rare_records > 1:
            listed = np.array(spikes, ordered.dtype)
            ordered = listed[nearest_places(listed, ordered)]
        if not spikes and self.spike_share is not None:
            least = max(math.ceil(self.spike_share * len(raw)), self.spike_records)
            spikes = _frequent_values(ordered, least)
        if spikes:  # beside a spike, too, no value of few is an end
            values = values[~np.isin(ordered, np.array(spikes, ordered.dtype))]
            ordered = self._without_extremes(values)
        self.spikes_ = tuple(sorted(spike.item() for spike in (*spikes, *named)))
        self.axis_: Axis | None = None
        self.grid_: ColumnGrid | None = None
        self.encoder_: Encoder | None = None
        self.tails_ = (0.0, 0.0)
        if len(ordered):
            self.axis_ = axis_through(ordered, column.dtype)
            self.grid_ = self._find_grid(ordered)
            if ordered[0] != ordered[-1]:
                self.tails_ = self._tails(self.axis_, values)
                places = self._without_tails(self.axis_, ordered)
                self.encoder_ = self._fitted_encoder(self.axis_, places)
                if self.encoder_.keeps_values:
                    self.grid_ = None  # odd values are decoded as often as they occur

    def _without_tails(self, axis: Axis, ordered: npt.NDArray[Any]) -> Floats:
        """Return sorted coordinates as they are once values near the ends are drawn in."""
        places = axis.to_coordinates(ordered).copy()
        # Nothing but how many they are says where those lie that are drawn in.
        below, above = places < self.tails_[0], places > self.tails_[1]
        places[below] = np.linspace(places[0], self.tails_[0], below.sum(), endpoint=False)
        places[above] = np.linspace(places[-1], self.tails_[1], above.sum(), endpoint=False)[::-1]
        return places

    def _fitted_encoder(self, axis: Axis, places: Floats) -> Encoder:
        """Learn from sorted coordinates."""
        zero, unit = axis.line
        least = max(1, self.rare_records)
        try:
            return encoder_of(self.encoder).fit(places, least=least, zero=zero, unit=unit)
        except ValueError as error:
            raise ColumnKindError(
                f"{self.encoder!r} cannot tell its numbers apart: {error}",
                fix="give the column another encoder, or this one other parameters",
                column=self.name_,
            ) from None

    def _without_extremes(self, ordered: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return sorted values that end where `extreme_records` of them say, if so many."""
        k = self.extreme_records
        if k < 2 or len(ordered) < k:
            return ordered if k < 2 else ordered[:0]
        axis = axis_through(ordered, self.dtype_)
        coded = ordered.copy()
        for ends, values in ((slice(0, k), ordered[::-1]), (slice(-k, None), ordered)):
            outwards = values[-2 * k :]
            if outwards[-k] == outwards[-1]:  # so many records hold the extreme itself
                continue
            places = axis.to_coordinates(outwards)
            end, extreme = _end(places, k), places[-1]
            next_one = places[outwards != outwards[-1]][-1]
            # Put on the column's grid, what is nearer to the extreme would be the extreme again.
            nearer = 2.0 * abs(end - extreme) <= abs(next_one - extreme)
            if nearer and len(others := values[values != outwards[-1]]) >= k:
                end = _end(axis.to_coordinates(others[-2 * k :]), k)
            coded[ends] = limit = axis.from_coordinates(np.array([end]))[0]
            coded = np.maximum(coded, limit) if ends.stop else np.minimum(coded, limit)
        return np.sort(coded)

    def _tails(self, axis: Axis, values: npt.NDArray[Any]) -> tuple[float, float]:
        """Find where sorted values begin to be drawn in: the means of as many as are an end."""
        k, places = self.extreme_records, axis.to_coordinates(values)
        lower, upper = map(float, self._ends(axis, values.dtype))
        found = [lower, upper]
        if k < 2 or len(values) < 4 * k:
            return lower, upper
        for end, inner in enumerate((places[k : 2 * k].mean(), places[-2 * k : -k].mean())):
            beyond = places[places > inner] if end else places[places < inner]
            frequent = np.unique(beyond, return_counts=True)[1].max(initial=0) >= k
            if lower < inner < upper and not frequent:
                found[end] = float(inner)
        return found[0], found[1]

    def _find_grid(self, ordered: npt.NDArray[Any]) -> ColumnGrid | None:
        """Find where nearly all of sorted values lie."""
        own = numpy_dtype(self.dtype_)
        if own.kind in "mM":
            return ColumnGrid.fit(ordered, time_steps(np.datetime_data(own)[0]))
        precision = np.finfo(own).eps if own.kind == "f" else 0.0
        return ColumnGrid.of_numbers(ordered, float(precision))

    def _decode_generated(self, matrix: npt.NDArray[Any]) -> pd.Series[Any]:
        return self._decode(matrix, self.grid_)

    def _decode(self, matrix: npt.NDArray[Any], grid: ColumnGrid | None = None) -> pd.Series[Any]:
        n_values = int(self.encoder_ is not None)
        if self.axis_ is not None and self.encoder_ is not None:
            raw = self.axis_.from_coordinates(self.encoder_.unscale(matrix[:, 0]))
            if grid is not None:
                raw = grid.nearest(raw) + 0  # which makes a negative zero a plain one
        else:
            constant = self.spikes_[0] if self.axis_ is None else self.axis_.lower
            raw = np.full(len(matrix), constant, dtype=self._raw_dtype)
        missing = np.zeros(len(matrix), dtype=np.bool_)
        if self.n_states_ > 1:
            states = matrix[:, n_values:].argmax(axis=1)
            for state, spike in enumerate(self.spikes_, start=self._first_spike):
                raw[states == state] = spike
            if self.has_missing_:
                missing = states == self._missing_state
        return write_values(raw, missing, self.dtype_, self.name_)

    def _spans(self) -> tuple[OutputSpan, ...]:
        label, n_values = str(self.name_), int(self.encoder_ is not None)
        spans = []
        if n_values:
            gate = 1 if self.n_states_ > 1 else None
            spans.append(OutputSpan(0, 1, "identity", label, "value", gate))
        if self.n_states_ > 1:
            spans.append(OutputSpan(n_values, self.n_states_, "softmax", label, "state"))
        return tuple(spans)

    # States are numbered: ordinary (if any), missing (if any), then the spikes.

    @property
    def _missing_state(self) -> int:
        return int(self.axis_ is not None)

    @property
    def _first_spike(self) -> int:
        return self._missing_state + int(self.has_missing_)

    @property
    def n_states_(self) -> int:
        """Number of states a record can be in."""
        return self._first_spike + len(self.spikes_)

    def _found_states(self, raw: npt.NDArray[Any], missing: Flags) -> Codes:
        """State of each record, -1 where it had none when fitted."""
        states = np.full(len(raw), 0 if self.axis_ is not None else -1, dtype=np.intp)
        for state, spike in enumerate(self.spikes_, start=self._first_spike):
            states[raw == spike] = state
        if self.axis_ is not None and self.encoder_ is None:
            states[(states == 0) & (raw != self.axis_.lower)] = -1
        if missing.any():
            states[missing] = self._missing_state if self.has_missing_ else -1
        return states

    def _state(self) -> dict[str, Any]:
        return {
            "raw": self._raw_dtype.name,
            "has_missing": self.has_missing_,
            "spikes": list(self.spikes_),
            "axis": None if self.axis_ is None else asdict(self.axis_),
            "grid": None if self.grid_ is None else asdict(self.grid_),
            "tails": list(self.tails_),
            "encoder": None if self.encoder_ is None else self.encoder_.to_dict(),
        }

    def _restore(self, state: Mapping[str, Any]) -> None:
        if state["raw"] not in ("float64", "int64", "uint64"):
            raise ValueError(f"raw dtype {state['raw']!r}")
        self._raw_dtype = np.dtype(state["raw"])
        self.has_missing_ = bool(state["has_missing"])
        self.spikes_ = tuple(state["spikes"])
        self.axis_ = None if state["axis"] is None else axis_from_dict(state["axis"])
        self.grid_ = None if state["grid"] is None else ColumnGrid(**state["grid"])
        lower, upper = map(float, state["tails"])
        self.tails_ = lower, upper
        encoder = state["encoder"]
        self.encoder_ = None if encoder is None else Encoder.from_dict(encoder)
        if self.encoder_ is not None:
            self.encoder_.check_learned()
        if self.axis_ is None and not self.spikes_:
            raise ValueError("neither ordinary values nor spikes")

    @classmethod
    def public_column(
        cls, name: Hashable, dtype: Any, listed: PublicColumn | None
    ) -> PublicColumn | None:
        """Return the public bounds as the dtype has them; see `ColumnTransformer`."""
        cls.ranges.check_dtype(name, dtype)
        if isinstance(listed, Categories):
            raise ColumnKindError(
                f"the public schema lists categories, and the column is {cls.kind}",
                fix="give it bounds instead, or declare it categorical",
                column=name,
            )
        return None if listed is None else cls.ranges.bounds(name, dtype, listed)

    @abstractmethod
    def _read(self, column: pd.Series[Any]) -> tuple[npt.NDArray[Any], Flags]:
        """Exact values as float64, int64 or uint64 (anything where missing), and missing flags."""


class ContinuousTransformer(NumericTransformer):
    """Real numbers: float columns of any width, nullable and Arrow ones; integers too, if asked.

    The inverse rounds to the decimals that all fitted values have and clips to their range.
    """

    kind: ClassVar[str] = "continuous"
    ranges: ClassVar[NumberRanges | TimeRanges] = NumberRanges("continuous", whole=False)

    @classmethod
    def recognises(cls, dtype: Any, *, listed: PublicColumn | None = None, **_: Any) -> bool:
        """Whether the dtype is one of floats."""
        return numpy_dtype(dtype).kind == "f"

    def _read(self, column: pd.Series[Any]) -> tuple[npt.NDArray[Any], Flags]:
        self.ranges.check_dtype(column.name, column.dtype)
        return read_values(column)


class IntegerTransformer(ContinuousTransformer):
    """Whole numbers: int8 to uint64, nullable and Arrow integers; floats if all are whole.

    Arithmetic is exact over the whole range of the dtype; `tolerance_` says where float32 is not.
    The inverse returns ``lower + k * step``, so that multiples of 50 stay multiples of 50.
    """

    kind: ClassVar[str] = "integer"
    ranges: ClassVar[NumberRanges | TimeRanges] = NumberRanges("integer", whole=True)

    @classmethod
    def recognises(cls, dtype: Any, *, listed: PublicColumn | None = None, **_: Any) -> bool:
        """Whether the dtype is one of integers, or floats have whole numbers only, in public."""
        whole = isinstance(listed, Bounds) and listed.step == 1
        return numpy_dtype(dtype).kind in "iu" or (whole and super().recognises(dtype))

    def _read(self, column: pd.Series[Any]) -> tuple[npt.NDArray[Any], Flags]:
        values, missing = super()._read(column)
        if values.dtype.kind != "f":
            return values, missing
        values = np.where(missing, 0.0, values)
        wrong = (values != np.floor(values)) | (np.abs(values) >= 2.0**63)
        if wrong.any():
            raise ColumnKindError(
                f"{wrong.sum()} values are not whole numbers of 64 bits",
                fix="declare the column continuous",
                column=column.name,
                rows=np.flatnonzero(wrong)[:5].tolist(),
            )
        return values.astype(np.int64), missing


class DatetimeTransformer(NumericTransformer):
    """Points in time, with or without timezone, and durations; units ns, us, ms and s.

    Works on exact 64-bit counts of the dtype's unit, in UTC. The inverse returns ``lower + k *
    step``: a column of dates decodes to dates. (Local midnights on both sides of a clock change are
    whole hours in UTC, and decode to whole hours.) With `Ranks`, generated times are as rare at
    each hour of the week as records are, and dates on each day of it.
    """

    kind: ClassVar[str] = "datetime"
    ranges: ClassVar[NumberRanges | TimeRanges] = TimeRanges()

    @classmethod
    def recognises(cls, dtype: Any, **_: Any) -> bool:
        """Whether the dtype is one of times or durations."""
        return numpy_dtype(dtype).kind in "mM"

    def _fit(self, column: pd.Series[Any]) -> None:
        self.ranges.check_dtype(column.name, column.dtype)
        super()._fit(column)

    def _read(self, column: pd.Series[Any]) -> tuple[npt.NDArray[Any], Flags]:
        return read_times(column, self.dtype_)

    def _fitted_encoder(self, axis: Axis, places: Floats) -> Encoder:
        encoder = super()._fitted_encoder(axis, places)
        own = numpy_dtype(self.dtype_)
        if type(encoder) is not Ranks or encoder.keeps_values or own.kind == "m":
            return encoder
        zero, unit = axis.line
        day = per_day(own) / unit
        days_only = self.grid_ is not None and self.grid_.step == per_day(own)
        # A midnight is in the middle of its day, to which generated times are put from both sides.
        start = -zero / unit - (day / 2.0 if days_only else 0.0)
        cells = 7 if days_only else 7 * 24
        return encoder.fit_cycle(places, 7.0 * day, start, cells, max(1, self.rare_records))


_DOMINANCE = 5.0
"""How many times as far out as the middle one of the outermost values another one counts at most.
Of an even number of them it is the inner one of the middle two.

What one value dominates, tells it: a fortune is five times the mean of itself and four incomes.
Whoever knows the second as well is left with a fifth of the first: the p % rule, p being 20.
"""


def _end(outwards: Floats, k: int) -> float:
    """Return where a range ends, of its outermost values or of 2 k of them, the extreme last.

    Their distances are from the mean of those before the k outermost, if there are any.
    """
    inner = float(outwards[: max(1, len(outwards) - k)].mean())
    away = outwards[-k:] - inner
    most = _DOMINANCE * float(np.sort(np.abs(away))[(k - 1) // 2])
    return inner + float(np.clip(away, -most, most).mean())


def _levels(ordered: npt.NDArray[Any], most: int, least: int) -> list[Any]:
    """Distinct values of `least` records, if there are several values and at most `most`."""
    values, counts = np.unique(ordered, return_counts=True)
    return list(values[counts >= least]) if 1 < len(values) <= most else []


def _frequent_values(ordered: npt.NDArray[Any], least: int) -> list[Any]:
    """Values that occur at least `least` times in a sorted array, without counting all others."""
    # A run of `least` equal values covers at least one of every `least`-th position.
    candidates = np.unique(ordered[::least])
    counts = np.searchsorted(ordered, candidates, side="right") - np.searchsorted(
        ordered, candidates, side="left"
    )
    return list(candidates[counts >= least])
