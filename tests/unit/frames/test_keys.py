import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vflsynth.exceptions import ArtefactError, KeyTypeError
from vflsynth.frames.keys import KeyMinter, learn_key_minters

DTYPES = [
    *("int16", "int32", "int64", "uint16", "uint32", "uint64", "float32", "float64"),
    *(
        "Int16",
        "Int64",
        "UInt64",
        "Float64",
        "int64[pyarrow]",
        "uint32[pyarrow]",
        "double[pyarrow]",
    ),
]


def minter_of(keys):
    return learn_key_minters({"lab": pd.Index(keys)})["lab"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_keep_their_dtype_and_are_new(dtype):
    keys = pd.Index(pd.array([3, 712, 40], dtype=dtype), name="id")
    minted = minter_of(keys).mint(5, name="id")
    assert minted.dtype == keys.dtype
    assert minted.name == "id"
    assert minted.tolist() == [1000, 1001, 1002, 1003, 1004]


@pytest.mark.parametrize(
    "keys",
    [
        pd.Index(["a", "b"], dtype="str"),
        pd.Index(["a", "b"], dtype=object),
        pd.Index(["a", "b"], dtype=pd.StringDtype("python")),
        pd.Index(["a", "b"], dtype=pd.StringDtype("pyarrow")),
        pd.Index(["a", "b"], dtype=pd.ArrowDtype(pa.string())),
        pd.Index([1, "b"], dtype=object),
    ],
)
def test_text_keeps_its_dtype(keys):
    minted = minter_of(keys).mint(2)
    assert minted.dtype == keys.dtype
    assert repr(minted.dtype) == repr(keys.dtype)
    assert minted.tolist() == ["synthetic-000000001", "synthetic-000000002"]


def test_other_objects():
    assert minter_of(pd.Index([5, 10**30], dtype=object)).mint(1).tolist() == [10**31]


def test_categories_are_minted_too_so_that_no_real_key_shows():
    keys = pd.CategoricalIndex(["real-1", "real-2"])
    minted = minter_of(keys).mint(2)
    assert isinstance(minted.dtype, pd.CategoricalDtype)
    assert minted.cat.categories.tolist() == minted.tolist()
    assert minter_of(pd.CategoricalIndex([7, 12])).mint(2).tolist() == [100, 101]


@given(st.lists(st.integers(-(10**9), 10**9), min_size=1), st.integers(0, 50))
def test_minted_numbers_are_distinct_above_real_ones_and_reveal_their_digits_only(keys, n):
    minter = minter_of(pd.Index(keys, dtype="int64"))
    minted = minter.mint(n)
    assert len(set(minted)) == n
    assert all(key > max(keys) for key in minted)
    assert minter.offset == 10 ** len(str(max(*keys, 0, 0)))


def test_one_record_gets_one_key_at_every_party():
    minters = learn_key_minters(
        {"a": pd.Index([5], dtype="int32"), "b": pd.Index([4321], dtype="Int64")}
    )
    assert minters["a"].mint(2).tolist() == minters["b"].mint(2).tolist() == [10000, 10001]
    assert minters["a"].mint(2).dtype == "int32"


@pytest.mark.parametrize(
    ("keys", "n"),
    [
        (pd.Index([99], dtype="int8"), 29),
        (pd.Index([200], dtype="uint8"), 1),
        (pd.Index([2**63 - 1], dtype="int64"), 1),
        (pd.Index([2.0**52], dtype="float64"), 10),
    ],
)
def test_no_room_is_a_named_error(keys, n):
    with pytest.raises(KeyTypeError, match="no room"):
        minter_of(keys).mint(n, name="id")


def test_room_is_used_to_the_last_key():
    minted = minter_of(pd.Index([99], dtype="int8")).mint(28)
    assert minted.tolist() == list(range(100, 128))
    assert minter_of(pd.Index([2**63], dtype="uint64")).offset == 10**19
    assert minter_of(pd.Index([2**63], dtype="uint64")).mint(1).tolist() == [10**19]


@pytest.mark.parametrize("keys", [pd.DatetimeIndex(["2020"]), pd.Index([True, False])])
def test_keys_that_cannot_be_minted(keys):
    with pytest.raises(KeyTypeError, match="without keys"):
        minter_of(keys).mint(1)


@pytest.mark.parametrize(
    "keys",
    [
        pd.Index([f"k{i}" for i in range(20)], dtype="str"),
        pd.CategoricalIndex([f"k{i}" for i in range(20)]),
    ],
)
def test_keys_of_a_table_made_from_a_synthetic_one_are_new(keys):
    seen = set(keys)
    for _ in range(3):
        keys = pd.Index(minter_of(keys).mint(12))
        assert not seen & set(keys)
        seen |= set(keys)


def test_offset_shows_only_how_long_the_largest_minted_number_is():
    keys = pd.Index(["synthetic-000000712", "synthetic-x", "synthetic-1 ", "b"])
    assert minter_of(keys).offset == 1000
    minters = learn_key_minters({"a": keys, "b": pd.Index(["a", "b"])})
    assert minters["a"].mint(1).tolist() == minters["b"].mint(1).tolist() == ["synthetic-000001000"]


def test_infinite_keys_are_a_named_error():
    with pytest.raises(KeyTypeError, match=r"party 'lab', column 'id': a key is infinite.*Fix"):
        minter_of(pd.Index([1.0, np.inf], name="id"))


@pytest.mark.parametrize(
    "keys",
    [
        pd.Index([1, 77], dtype="uint16"),
        pd.Index([1, 77], dtype="Int64"),
        pd.Index(["secret-key"], dtype=pd.StringDtype("python")),
        pd.CategoricalIndex(["secret-key"]),
        pd.Index([np.float32(3)]),
    ],
)
def test_round_trip_through_json_without_a_key(keys):
    minter = minter_of(keys)
    text = json.dumps(minter.to_dict())
    again = KeyMinter.from_dict(json.loads(text))
    assert again == minter
    pd.testing.assert_series_equal(again.mint(3), minter.mint(3))
    assert "77" not in text
    assert "secret" not in text


@pytest.mark.parametrize(
    "description",
    [
        {},
        {"dtype": "int64", "kind": "integer", "offset": "1"},
        {"dtype": "int64", "kind": "__import__", "offset": 1},
        {"dtype": "no such", "kind": "integer", "offset": 1},
        {"dtype": "int64", "kind": "integer", "offset": 1, "extra": 2},
        {"dtype": {"string": "nowhere", "missing": "NA"}, "kind": "text"},
    ],
)
def test_foreign_descriptions_are_refused(description):
    with pytest.raises(ArtefactError):
        KeyMinter.from_dict(description)
