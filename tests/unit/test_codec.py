import datetime
import decimal
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from vflsynth.codec import (
    array_of,
    dtype_from_json,
    dtype_to_json,
    index_from_json,
    index_to_json,
    scalar_from_json,
    scalar_to_json,
)


def through_json(content: object) -> object:
    return json.loads(json.dumps(content, allow_nan=False))


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        "é \N{GRINNING FACE}",
        -(2**63),
        2**64 - 1,
        0.1,
        5e-324,
        float("inf"),
        ("a", 1, (None,)),
        decimal.Decimal("1.10"),
        datetime.date(1, 1, 1),
        pd.NA,
        pd.NaT,
        pd.Timestamp("2020-01-01 00:00:00.000000001"),
        pd.Timestamp("2020-10-25 01:30", tz="UTC").tz_convert("Europe/Berlin"),
        pd.Timestamp("1500-01-01").as_unit("s"),
        pd.Timedelta("1 day 00:00:00.5"),
    ],
    ids=repr,
)
def test_scalars_survive(value: object) -> None:
    restored = scalar_from_json(through_json(scalar_to_json(value)))
    assert type(restored) is type(value)
    assert restored is value or restored == value
    if isinstance(value, pd.Timestamp):
        assert restored.unit == value.unit
        assert str(restored.tz) == str(value.tz)


def test_nan_survives() -> None:
    assert np.isnan(scalar_from_json(through_json(scalar_to_json(float("nan")))))


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (np.int8(3), 3),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (np.timedelta64(3, "ns"), pd.Timedelta(3, "ns")),
        (np.timedelta64(3, "D"), pd.Timedelta("3 days")),
    ],
)
def test_numpy_scalars_become_plain(value: object, plain: object) -> None:
    restored = scalar_from_json(scalar_to_json(value))
    assert type(restored) is type(plain)
    assert restored == plain


@pytest.mark.parametrize("value", [np.datetime64("NaT"), np.timedelta64("NaT", "s")], ids=repr)
def test_missing_times_of_numpy_are_those_of_pandas(value: object) -> None:
    assert scalar_from_json(scalar_to_json(value)) is pd.NaT


def test_other_objects_are_refused() -> None:
    for value in (b"bytes", object(), [1], {"a": 1}, 1j):
        with pytest.raises(TypeError, match="no JSON form"):
            scalar_to_json(value)
    for content in ({"code": "x"}, [1], {"timestamp": [1]}, {}):
        with pytest.raises(ValueError, match="not an encoded value"):
            scalar_from_json(content)


@pytest.mark.parametrize(
    "dtype",
    [
        *(
            np.dtype(name)
            for name in ("int8", "uint64", "float16", "bool", "object", "M8[s]", "m8[ns]")
        ),
        pd.Int8Dtype(),
        pd.BooleanDtype(),
        pd.StringDtype("python"),
        pd.StringDtype("pyarrow"),
        pd.Series(["a"]).dtype,
        pd.DatetimeTZDtype("ms", "America/New_York"),
        pd.CategoricalDtype(["b", "a"], ordered=True),
        pd.CategoricalDtype([], ordered=False),
        pd.CategoricalDtype(ordered=True),
        pd.CategoricalDtype(pd.date_range("2020", periods=2, tz="UTC")),
        pd.ArrowDtype(pa.string()),
        pd.ArrowDtype(pa.int16()),
        pd.ArrowDtype(pa.timestamp("us", tz="Europe/Berlin")),
    ],
    ids=repr,
)
def test_dtypes_survive(dtype: object) -> None:
    restored = dtype_from_json(through_json(dtype_to_json(dtype)))
    assert restored == dtype
    assert type(restored) is type(dtype)
    if isinstance(dtype, pd.CategoricalDtype):
        assert restored.ordered == dtype.ordered
        listed = [
            None if d.categories is None else d.categories.tolist() for d in (restored, dtype)
        ]
        assert listed[0] == listed[1]


def test_dtypes_that_cannot_be_rebuilt_are_refused() -> None:
    with pytest.raises(TypeError, match="cannot be rebuilt"):
        dtype_to_json(pd.ArrowDtype(pa.list_(pa.int64())))
    with pytest.raises(ValueError, match="not an encoded dtype"):
        dtype_from_json({"python": "x"})


@pytest.mark.parametrize(
    "index",
    [
        pd.RangeIndex(0, 6, 2, name="range"),
        pd.Index([3, 1]),
        pd.Index(["b", "a"], name=("deep", 1)),
        pd.Index(["a", 1, None, 2.5], dtype=object),
        pd.Index([("a", 1), ("b", 2)], tupleize_cols=False),
        pd.DatetimeIndex(["2020-01-01", "2021-01-01"], tz="UTC"),
        pd.CategoricalIndex(["a", "b"]),
    ],
    ids=repr,
)
def test_indexes_survive(index: pd.Index) -> None:
    restored = index_from_json(through_json(index_to_json(index)))
    pd.testing.assert_index_equal(restored, index, exact=True)
    assert restored.name == index.name


def test_arrays_keep_extreme_unsigned_integers() -> None:
    # NumPy alone makes float64 of a list like this one.
    for dtype in (np.dtype("uint64"), pd.UInt64Dtype(), pd.ArrowDtype(pa.uint64())):
        assert array_of([0, 2**64 - 1], dtype).tolist() == [0, 2**64 - 1]
