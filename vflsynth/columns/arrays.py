"""Numbers of pandas columns, of any flavour of dtype, as plain NumPy arrays and missing flags."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from vflsynth.exceptions import InfiniteValueError

Flags = npt.NDArray[np.bool_]


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
            rows=column.index[infinite][:5].tolist(),
        )
    return values, np.isnan(values)


def has_timezone(dtype: Any) -> bool:
    """Whether values of this dtype are points in time in a timezone."""
    if isinstance(dtype, pd.ArrowDtype):
        return getattr(dtype.pyarrow_dtype, "tz", None) is not None
    return isinstance(dtype, pd.DatetimeTZDtype)
