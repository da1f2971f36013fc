"""Numbers of pandas columns, of any flavour of dtype, as plain NumPy arrays and missing flags."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from vflsynth.exceptions import ColumnKindError, InfiniteValueError

Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.intp]

# Multiples of it, modulo 1, are spread more evenly than any others.
_GOLDEN_RATIO = (math.sqrt(5.0) - 1.0) / 2.0


def even_points(numbers: npt.NDArray[Any]) -> Floats:
    """Points of the unit interval for whole numbers, of which the first ones fill it evenly."""
    return np.asarray((0.5 + numbers * _GOLDEN_RATIO) % 1.0)


def nearest_places(rising: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> Codes:
    """Index of the nearest of rising numbers, the smaller of two, for every number wanted.

    Exact for whole numbers of 64 bits, signed or not.
    """
    right = np.searchsorted(rising, wanted).clip(0, len(rising) - 1)
    left = (right - 1).clip(0)
    low, high = rising[left], rising[right]
    nearer = (wanted <= low) | ((wanted < high) & (wanted - low <= high - wanted))
    return np.where(nearer, left, right)


def numpy_dtype(dtype: Any) -> np.dtype[Any]:
    """NumPy dtype of a column's values without their missing ones; object if there is none."""
    if isinstance(dtype, np.dtype):
        return dtype
    if isinstance(dtype, pd.DatetimeTZDtype):
        return np.dtype(f"M8[{dtype.unit}]")
    found = getattr(dtype, "numpy_dtype", None)
    return found if isinstance(found, np.dtype) else np.dtype(object)


def read_integers(column: pd.Series[Any]) -> tuple[npt.NDArray[Any], Flags]:
    """Values as int64 (uint64 where needed), with 0 where missing, and missing flags."""
    own = numpy_dtype(column.dtype)
    target = np.uint64 if own == np.uint64 else np.int64
    if isinstance(column.dtype, np.dtype):
        return column.to_numpy(dtype=target), np.zeros(len(column), dtype=np.bool_)
    return column.to_numpy(dtype=target, na_value=0), np.asarray(column.isna())


def read_floats(column: pd.Series[Any]) -> tuple[npt.NDArray[np.float64], Flags]:
    """Values as float64 (NaN where missing) and missing flags; infinity is an error."""
    if isinstance(column.dtype, np.dtype):
        values = column.to_numpy(dtype=np.float64)
    else:
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    infinite = np.isinf(values)
    if infinite.any():
        raise InfiniteValueError(
            f"{infinite.sum()} infinite values",
            fix="replace them by NaN or by a bound",
            column=column.name,
            rows=np.flatnonzero(infinite)[:5].tolist(),
        )
    return values, np.isnan(values)


def timezone(dtype: Any) -> Any:
    """Timezone of points in time of this dtype; None if there is none."""
    arrow = isinstance(dtype, pd.ArrowDtype)
    return getattr(dtype.pyarrow_dtype if arrow else dtype, "tz", None)


def has_timezone(dtype: Any) -> bool:
    """Whether values of this dtype are points in time in a timezone."""
    return timezone(dtype) is not None


def read_times(column: pd.Series[Any], dtype: Any) -> tuple[npt.NDArray[np.int64], Flags]:
    """Points in time, in UTC, or durations as 64-bit counts of a dtype's unit, and missing flags.

    Raises
    ------
    ColumnKindError
        If the column's values are of another kind than the dtype's, or lack its time zone.
    """
    own, got = numpy_dtype(dtype), column.dtype
    if numpy_dtype(got).kind != own.kind or has_timezone(got) != has_timezone(dtype):
        raise changed_dtype(column, dtype)
    missing = np.asarray(column.isna())
    if isinstance(got, pd.ArrowDtype) and not has_timezone(got):
        column = column.astype(numpy_dtype(got))  # Arrow dates have no direct way to NumPy
    return column.to_numpy(dtype=own).view(np.int64), missing


def write_times(
    counts: npt.NDArray[np.int64],
    missing: Flags,
    dtype: Any,
    name: Any,
    *,
    days: bool = False,
) -> pd.Series[Any]:
    """Undo `read_times`, overwriting `counts`; both arrays have shape (record,).

    `days` moves times to the nearest midnight of their time zone, where days differ in length.
    """
    values = counts.view(numpy_dtype(dtype))
    values[missing] = np.array("NaT", dtype=values.dtype)
    column: pd.Series[Any] = pd.Series(values, name=name, copy=False)
    if has_timezone(dtype):
        column = column.dt.tz_localize("UTC")  # counts are in UTC; astype converts
        if days:
            column = (column.dt.tz_convert(timezone(dtype)) + pd.Timedelta(hours=12)).dt.normalize()
    return column.astype(dtype)


def write_numbers(
    values: npt.NDArray[Any], missing: Flags, dtype: Any, name: Any
) -> pd.Series[Any]:
    """Make a column of numbers, perhaps overwriting them; both arrays have shape (record,).

    Nothing may be missing from integers and flags of NumPy.
    """
    values = values.astype(numpy_dtype(dtype), copy=False)
    if isinstance(dtype, np.dtype):
        if missing.any():
            values[missing] = np.nan
        return pd.Series(values, name=name, copy=False)
    array = pd.array(values, dtype=dtype)
    if missing.any():
        array[missing] = pd.NA
    return pd.Series(array, name=name, copy=False)


def read_numbers(column: pd.Series[Any], origin: int = 0) -> npt.NDArray[np.float64]:
    """Read numbers and times as float64, every record by itself; all else is missing.

    Unlike `read_integers` and `read_floats` this never fails because of a value, which would tell
    about a record.

    Parameters
    ----------
    column : Series, shape (record,)
    origin : int
        What is subtracted from integers and times, exactly.

    Returns
    -------
    float64 array, shape (record,)
        NaN where missing.

    Notes
    -----
    ``pandas.to_numeric`` would not do: a single odd record, such as a complex number, decides how
    it reads all the others, and then one record moves more than one cell per column.
    """
    kind = column.dtype.kind
    if kind in "iumM":
        times = kind in "mM"
        counts, missing = read_times(column, column.dtype) if times else read_integers(column)
        return np.where(missing, np.nan, distances(counts, origin))
    if kind in "bf":
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    return np.array([_real_number(value) for value in column.astype(object)], dtype=np.float64)


def distances(values: npt.NDArray[Any], origin: int) -> npt.NDArray[np.float64]:
    """Differences of 64-bit integers from one, exact before they are rounded to float64.

    Taken modulo 2**64, so that the full range of int64 and of uint64 fits.
    """
    above = values.view(np.uint64) - np.uint64(origin % 2**64)
    found = above.astype(np.float64)
    below = values < origin
    if below.any():
        found[below] = -(np.uint64(0) - above[below]).astype(np.float64)
    return found


def _real_number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def changed_dtype(column: pd.Series[Any], fitted: Any) -> ColumnKindError:
    """Error about a column that is not of the dtype that a transformer was fitted on."""
    return ColumnKindError(
        f"dtype is {column.dtype}, but was {fitted} when the transformer was fitted",
        fix=f"convert it with .astype({str(fitted)!r})",
        column=column.name,
    )
