"""How evaluation reads a table: kinds of columns, and a float matrix in the real table's units.

This is deliberately not the synthesizer's own encoding, whose errors would then go unnoticed; and
tables that were made elsewhere must be judged, too.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from vflsynth.exceptions import (
    ColumnKindError,
    ParameterError,
    PartyDataError,
    PublishingWarning,
    SharedColumnError,
    TooFewRecordsError,
    did_you_mean,
    warn_user,
)
from vflsynth.frames import StoredTable

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Parties = Mapping[str, Sequence[Hashable]]

CHUNK_ROWS = 65_536
"""Rows encoded at a time: what bounds the memory of every metric that reads all rows."""

MAX_CATEGORIES = 50
"""Levels of a categorical column with a one-hot feature of their own, the most frequent first."""

LARGEST_SCORE = 1e6
"""Standardised values are cut off here, so that squares and their sums stay exact enough."""

_KINDS = {
    "string": "text",
    "boolean": "booleans",
    **dict.fromkeys(("integer", "floating", "mixed-integer-float", "decimal"), "numbers"),
    **dict.fromkeys(("datetime64", "datetime", "date", "time", "period"), "times"),
    **dict.fromkeys(("timedelta64", "timedelta"), "durations"),
}
"""What pandas finds in a column, in the words of our errors."""

_INCOMPARABLE = {"text", "times", "durations"}
"""Kinds no value of which equals, or is near, one of another kind."""


@dataclass(frozen=True)
class NumericColumn:
    """A column of numbers, instants or durations.

    Mean and standard deviation (`scale`; 1 for a constant) are the real table's, in seconds for
    instants (`is_instant`: since 1970 UTC) and durations. Where either table has missing values
    they get an indicator feature. Whole numbers beyond 2^53 are counted from an `origin`.
    """

    name: Hashable
    mean: float
    scale: float
    marks_missing: bool
    is_instant: bool = False
    origin: int = 0

    @property
    def width(self) -> int:
        """Number of features."""
        return 1 + self.marks_missing

    def values(self, frame: pd.DataFrame) -> Floats:
        """Return plain numbers less the origin, shape (row,); NaN where missing or infinite."""
        return numbers(frame[self.name], self.origin)

    def standardised(self, frame: pd.DataFrame) -> Floats:
        """Return (value - mean) / scale, shape (row,); NaN where missing."""
        scores = _scores(self.values(frame), self.mean, self.scale)
        return np.clip(scores, -LARGEST_SCORE, LARGEST_SCORE)

    def write(self, frame: pd.DataFrame, out: Floats) -> None:
        """Fill this column's features: the score (0 where missing) and the indicator."""
        scores = self.standardised(frame)
        missing = np.isnan(scores)
        out[:, 0] = np.where(missing, 0.0, scores)
        if self.marks_missing:
            out[:, 1] = missing


@dataclass(frozen=True)
class CategoricalColumn:
    """A column of labels.

    `levels` have a code and a feature each. Labels of either table outside `levels` share one more
    (`has_other`), and so do missing values (`marks_missing`).
    """

    name: Hashable
    levels: pd.Index[Any]
    has_other: bool
    marks_missing: bool

    @property
    def width(self) -> int:
        """Number of features."""
        return len(self.levels) + self.has_other + self.marks_missing

    def codes(self, frame: pd.DataFrame) -> Integers:
        """Return positions in `labels`, shape (row,)."""
        codes = positions(self.levels, frame[self.name])
        missing = frame[self.name].isna().to_numpy()
        codes[codes < 0] = len(self.levels)
        codes[missing] = len(self.levels) + self.has_other
        return codes

    @property
    def labels(self) -> list[str]:
        """What each code stands for."""
        return (
            [str(level) for level in self.levels]
            + ["(other)"] * self.has_other
            + ["(missing)"] * self.marks_missing
        )

    def write(self, frame: pd.DataFrame, out: Floats) -> None:
        """Fill this column's features, a one-hot row each."""
        out[:] = 0.0
        out[np.arange(len(frame)), self.codes(frame)] = 1.0


Column = NumericColumn | CategoricalColumn


class TableEncoder:
    """Two tables' common columns as float features, standardised with the real table's statistics.

    The real table gives every mean, standard deviation and list of levels; the synthetic one, and a
    third (`holdout`), are only asked whether they hold missing values or labels that it does not.
    `columns` are judged in this order, by default all. Text, booleans and categories are labels,
    and columns named in `categorical`, whatever their type. `ddof` is of the standard deviation:
    the paper's code has 1 for the Fréchet distance and 0 for its classifiers. Parts of tables that
    `common_columns` has passed are `checked`: they may lack the values that make two columns
    comparable.

    `feature_columns`, (feature,), is the position of the column that each feature belongs to;
    `notes` say what had to be changed to compare the tables.
    """

    def __init__(
        self,
        real: pd.DataFrame,
        synthetic: pd.DataFrame,
        *,
        columns: Sequence[Hashable] | None = None,
        categorical: Collection[Hashable] = (),
        ddof: int = 1,
        holdout: pd.DataFrame | None = None,
        checked: bool = False,
    ) -> None:
        if not checked:
            common_columns(real, synthetic, columns)
        names = list(real.columns if columns is None else columns)
        others = [synthetic]
        if holdout is not None:
            common_columns(real, holdout, names, table="held-out")
            others.append(holdout)
        for name in categorical:
            if name not in real.columns:
                raise PartyDataError(
                    "named in categorical= (--categorical), but the real table has no such column",
                    fix="correct the name",
                    column=name,
                )
        notes: list[str] = []
        self.columns: tuple[Column, ...] = tuple(
            _categorical_column(real[name], [other[name] for other in others], notes)
            if name in categorical or is_categorical(real[name])
            else numeric_column(real[name], [other[name] for other in others], ddof, notes)
            for name in names
        )
        widths = [column.width for column in self.columns]
        self.feature_columns = np.repeat(np.arange(len(widths)), widths)
        self._starts = np.concatenate([[0], np.cumsum(widths, dtype=np.int64)])
        self.notes = tuple(notes)

    @property
    def names(self) -> list[Hashable]:
        """Names of the columns."""
        return [column.name for column in self.columns]

    @property
    def numeric(self) -> list[NumericColumn]:
        """The numeric columns."""
        return [column for column in self.columns if isinstance(column, NumericColumn)]

    @property
    def discrete(self) -> list[CategoricalColumn]:
        """The categorical columns."""
        return [column for column in self.columns if isinstance(column, CategoricalColumn)]

    def encode(self, frame: pd.DataFrame) -> Floats:
        """Return the feature matrix of a frame, shape (row, feature); finite."""
        features = np.empty((len(frame), len(self.feature_columns)))
        for column, start, stop in zip(self.columns, self._starts, self._starts[1:]):
            column.write(frame, features[:, start:stop])
        return features

    def with_statistics_of(self, other: TableEncoder) -> TableEncoder:
        """Return an encoder with these features but the means and scales of another encoder."""
        twin = copy(self)
        twin.columns = tuple(
            replace(mine, mean=theirs.mean, scale=theirs.scale, origin=theirs.origin)
            if isinstance(mine, NumericColumn) and isinstance(theirs, NumericColumn)
            else mine
            for mine, theirs in zip(self.columns, other.columns)
        )
        return twin


def pieces(table: pd.DataFrame | StoredTable) -> Iterator[pd.DataFrame]:
    """Yield consecutive rows, `CHUNK_ROWS` at a time; of a table on disk, a batch at a time."""
    if isinstance(table, StoredTable):
        yield from table.batches()
        return
    for start in range(0, len(table), CHUNK_ROWS):
        yield table.iloc[start : start + CHUNK_ROWS]


def check_is_table(frame: object, which: str) -> None:
    """Check that something is a table, or raise PartyDataError, which says `which` it is not."""
    if not isinstance(frame, pd.DataFrame | StoredTable):
        raise PartyDataError(
            f"the {which} table must be a DataFrame, not {type(frame).__name__}",
            fix="pass one table; of parties, one of all columns, without the key",
        )


def check_listed(owner: str, **given: object) -> None:
    """Check that parameters are collections of columns (ParameterError)."""
    for name, columns in given.items():
        if isinstance(columns, str) or not isinstance(columns, Collection):
            raise ParameterError(
                f"{owner}: {name} must be a list of columns, as ['age'], got {columns!r}"
            )


def common_columns(
    real: pd.DataFrame,
    other: pd.DataFrame,
    columns: Sequence[Hashable] | None = None,
    *,
    table: str = "synthetic",
    base: str = "real",
) -> list[Hashable]:
    """Check that two tables can be compared and return the columns to compare.

    By default these are the real table's, in its order. Errors call it `base` and the other one
    `table`: PartyDataError if either is no DataFrame, or a column occurs twice or is missing from
    one of them; ColumnKindError if it is text, times or durations in one only; TooFewRecordsError
    below 2 rows.
    """
    for which, frame in ((base, real), (table, other)):
        check_is_table(frame, which)
        if not frame.columns.is_unique:
            twice = frame.columns[frame.columns.duplicated()][0]
            raise PartyDataError(
                f"occurs more than once in the {which} table",
                fix="give every column its own name",
                column=twice,
            )
        if len(frame) < 2:
            raise TooFewRecordsError(
                f"the {which} table has {len(frame)} rows; at least 2 are needed",
                fix="pass more rows",
            )
    names: list[Hashable] = list(dict.fromkeys(real.columns if columns is None else columns))
    if not names:
        raise PartyDataError("there is no column to compare", fix="pass tables with columns")
    extra = [name for name in other.columns if name not in real.columns]
    if columns is None and extra:
        raise PartyDataError(
            f"the {table} table has columns that the {base} table has not: {extra}",
            fix="drop them, or in Python pass columns=[...] to judge only some",
            column=extra[0],
        )
    for (which, frame), name in product(((base, real), (table, other)), names):
        if name not in frame.columns:
            raise PartyDataError(
                f"the {which} table has no such column{did_you_mean(name, frame.columns)}",
                fix="drop it if it is the key, which nobody models; else add it (there may be a "
                "file per party), or in Python pass columns=[...]",
                column=name,
            )
    for name in names:
        _check_kinds(real[name], other[name], base, table)
    return names


def _check_kinds(real: pd.Series[Any], other: pd.Series[Any], base: str, table: str) -> None:
    """Raise if a column is text, times or durations in one table only: nothing would be equal.

    Neither is converted: 01067, read as a number, has become 1067 for good, and a number has no
    unit. Warns if it came back as text without its zero, or if times of one have no zone.
    """
    mine, theirs = kind_of(real), kind_of(other)
    accepted = {"mixed", "missing"}
    if real.dtype == other.dtype == object:
        accepted.add("booleans")  # labels that somebody chose, not what a file reader made
    if mine != theirs and _INCOMPARABLE & {mine, theirs} and not accepted & {mine, theirs}:
        raise ColumnKindError(
            f"{mine} of type {real.dtype} in the {base} table, but {theirs} of type {other.dtype} "
            f"in the {table} table",
            fix="give the column the same type in both tables; csv files forget types, parquet "
            f"files keep them, and pandas.read_csv(..., dtype={{{real.name!r}: str}}) keeps text",
            column=real.name,
        )
    types = (getattr(column.dtype, "pyarrow_dtype", column.dtype) for column in (real, other))
    zones = {str(getattr(dtype, "tz", None)) for dtype in types}
    if mine == theirs == "times" and "None" in zones and zones - {"None", "UTC"}:
        warn_user(
            f"column {real.name!r}: times have a time zone in one of the {base} and the {table} "
            "table alone; those without are read as UTC. Fix: give both the same",
            PublishingWarning,
        )
    if mine == theirs == "text":
        own, labels = (set(column.dropna().unique()) for column in (real, other))
        codes = (label for label in own if label.startswith("0") and label.isdigit())
        if ({code.lstrip("0") for code in codes} - own - {""}) & labels:
            warn_user(
                f"column {real.name!r}: codes of the {base} table stand in the {table} table "
                "without the zeros before them, and are other labels. Fix: have whatever wrote the "
                f"{table} table read this column as text",
                PublishingWarning,
            )


def party_of(names: Sequence[Hashable], parties: Parties | None) -> dict[Hashable, str] | None:
    """Return the owner of each column, which must be one party; None without parties."""
    if parties is None:
        return None
    owner: dict[Hashable, str] = {}
    for party, columns in parties.items():
        for name in columns:
            if name in owner:
                raise SharedColumnError(
                    f"also belongs to party {owner[name]!r}",
                    fix="name every column once in parties=",
                    party=party,
                    column=name,
                )
            owner[name] = party
    for name in names:
        if name not in owner:
            raise PartyDataError(
                "belongs to no party", fix="add it to one party in parties=", column=name
            )
    return {name: owner[name] for name in names}


def is_categorical(values: pd.Series[Any]) -> bool:
    """Whether a column's type makes it a column of labels.

    So it is for booleans, text, categories, complex numbers, and objects that are not all numbers.
    """
    dtype = values.dtype
    if isinstance(dtype, pd.CategoricalDtype) or pd.api.types.is_bool_dtype(dtype):
        return True
    if _is_instant(values) or _is_duration(values):
        return False
    if pd.api.types.is_object_dtype(dtype):
        return _KINDS.get(pd.api.types.infer_dtype(values, skipna=True)) != "numbers"
    return not pd.api.types.is_numeric_dtype(dtype) or pd.api.types.is_complex_dtype(dtype)


def kind_of(values: pd.Series[Any]) -> str:
    """Return what a column holds, whatever type it has.

    One of ``"text"``, ``"numbers"``, ``"booleans"``, ``"times"``, ``"durations"``, ``"mixed"`` for
    anything else, or ``"missing"`` if no value is present.
    """
    if not values.notna().any():
        return "missing"
    if isinstance(values.dtype, pd.CategoricalDtype):
        values = values.cat.categories.to_series()
    return _KINDS.get(pd.api.types.infer_dtype(values, skipna=True), "mixed")


def numbers(values: pd.Series[Any], origin: int = 0) -> Floats:
    """Return numbers, instants (seconds since 1970 UTC) or durations (seconds) as plain numbers.

    Missing and infinite ones are NaN; other values raise ColumnKindError. An `origin` is taken off
    before they become floats.
    """
    if isinstance(values.dtype, pd.PeriodDtype):
        values = values.dt.to_timestamp()
    if _is_instant(values):
        # In UTC and NumPy's types first: Arrow's neither mix time zones nor turn into floats.
        instants = pd.DatetimeIndex(pd.to_datetime(values, utc=True))
        values = (instants - pd.Timestamp("1970-01-01", tz="UTC")).total_seconds().to_series()
    elif _is_duration(values):
        values = pd.TimedeltaIndex(pd.to_timedelta(values)).total_seconds().to_series()
    try:
        values = pd.to_numeric(values)
        values = values.astype(object) - origin if origin else values
        plain = values.to_numpy(dtype=np.float64, na_value=np.nan)
    except (ValueError, TypeError) as error:
        raise ColumnKindError(
            f"numeric in the real table, but a table holds values of type {values.dtype}",
            fix="give the column the same type in both tables",
            column=values.name,
        ) from error
    return np.where(np.isfinite(plain), plain, np.nan)


def present(values: Floats) -> Floats:
    """Leave out missing numbers."""
    return values[~np.isnan(values)]


def origin_of(values: pd.Series[Any]) -> int:
    """Return from where to count whole numbers so that neighbours differ as floats, too.

    0 unless some are beyond 2^53; else a float next to the least.
    """
    if not pd.api.types.is_integer_dtype(values) or not values.notna().any():
        return 0
    low, high = int(values.min()), int(values.max())
    return int(float(low)) if max(-low, high) > 2**53 else 0


def beyond_floats(values: pd.Series[Any]) -> NDArray[np.uint64]:
    """Return what whole numbers are beyond the floats next to them, 0 up to 2^53 and if missing.

    Modulo 2^64, and the same for equal numbers of any type.
    """
    unsigned = pd.api.types.is_unsigned_integer_dtype(values)
    exact = values.to_numpy(dtype=np.uint64 if unsigned else np.int64, na_value=0)
    # The largest float that is one of these: those next to the largest numbers are beyond.
    most = float(2**64 - 2**11 if unsigned else 2**63 - 2**10)
    near = np.minimum(exact.astype(np.float64), most).astype(exact.dtype)
    return exact.view(np.uint64) - near.view(np.uint64)


def _scores(values: Floats, mean: float, scale: float) -> Floats:
    """Return (value - mean) / scale, infinite where it overflows."""
    # Divided before the subtraction: the difference of two huge numbers may overflow, too.
    with np.errstate(over="ignore"):
        scores: Floats = values / scale - mean / scale
    return scores


def _is_instant(values: pd.Series[Any]) -> bool:
    return pd.api.types.is_datetime64_any_dtype(values.dtype)


def _is_duration(values: pd.Series[Any]) -> bool:
    return getattr(values.dtype, "kind", "") == "m"  # Arrow's durations, too


def numeric_column(
    real: pd.Series[Any], others: Sequence[pd.Series[Any]], ddof: int, notes: list[str]
) -> NumericColumn:
    """Return how to standardise a numeric column with the real table's statistics.

    The other columns, the synthetic one first, are asked for missing values only. `notes` gets a
    line for every compromise.
    """
    origin = origin_of(real)
    columns = [numbers(column, origin) for column in (real, *others)]
    marks_missing = any(bool(np.isnan(column).any()) for column in columns)
    values, synthetic = present(columns[0]), columns[1]
    mean, scale = 0.0, 0.0
    if len(values) > ddof:
        # In units of the largest value, so that squares of huge numbers do not overflow.
        largest = float(np.abs(values).max()) or 1.0
        mean = float((values / largest).mean()) * largest
        scale = float((values / largest).std(ddof=ddof)) * largest
    elif len(values):
        mean = float(values.mean())
    if scale <= 1e-12 * abs(mean):
        notes.append(f"column {real.name!r} has a single value in the real table: left unscaled")
        scale = 1.0
    extreme = np.abs(_scores(synthetic, mean, scale)) > LARGEST_SCORE
    if extreme.any():
        notes.append(
            f"column {real.name!r}: {int(extreme.sum())} synthetic values lie beyond "
            f"{LARGEST_SCORE:g} real standard deviations and were cut off there"
        )
    return NumericColumn(real.name, mean, scale, marks_missing, _is_instant(real), origin)


def _categorical_column(
    real: pd.Series[Any], others: Sequence[pd.Series[Any]], notes: list[str]
) -> CategoricalColumn:
    try:
        for values in (real, *others):
            if pd.api.types.is_object_dtype(values.dtype):
                set(values)  # raises where a value has no hash; value_counts() would not
        is_text = isinstance(real.dtype, pd.StringDtype)
        counts = (real if is_text else real.astype(object)).value_counts()
        # Ties are broken by name, so that the order of rows never matters.
        ranked = sorted(zip(counts.index, counts), key=lambda pair: (-pair[1], str(pair[0])))
        index = pd.Index([level for level, _ in ranked[:MAX_CATEGORIES]], dtype=object)
        has_unknown = any(
            bool(((positions(index, other) < 0) & other.notna().to_numpy()).any())
            for other in others
        )
    except TypeError as error:
        raise ColumnKindError(
            "holds values that cannot be counted, such as lists",
            fix="turn them into text or numbers, or leave the column out with columns=[...]",
            column=real.name,
        ) from error
    if len(ranked) > MAX_CATEGORIES:
        notes.append(
            f"column {real.name!r} has {len(ranked)} labels; all but the {MAX_CATEGORIES} most "
            "frequent count as one"
        )
    return CategoricalColumn(
        name=real.name,
        levels=index,
        has_other=len(ranked) > MAX_CATEGORIES or has_unknown,
        marks_missing=any(bool(values.isna().any()) for values in (real, *others)),
    )


def positions(levels: pd.Index[Any], values: pd.Series[Any]) -> Integers:
    """Position of each value in `levels`, -1 where it is not there; by equality, so 3 is 3.0."""
    if isinstance(values.dtype, pd.StringDtype):
        values = values.astype("category")
    if isinstance(values.dtype, pd.CategoricalDtype):
        # Look each category up once instead of each row; code -1 (missing) picks the last entry.
        found = levels.get_indexer(values.cat.categories.astype(object))
        return np.append(found, -1).astype(np.int64)[values.cat.codes.to_numpy()]
    return levels.get_indexer(pd.Index(values.astype(object), dtype=object)).astype(np.int64)
