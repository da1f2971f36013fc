import uuid

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vflsynth.exceptions import KeyTypeError, NoOverlapError, ProtocolError
from vflsynth.frames.keys import align_keys, intersect, positions

KEY_SETS = st.one_of(
    st.lists(st.sets(st.integers(-(2**70), 2**70)), min_size=1, max_size=4),
    st.lists(st.sets(st.integers(0, 30)), min_size=1, max_size=4),
    st.lists(st.sets(st.text(max_size=2)), min_size=1, max_size=4),
    st.lists(st.sets(st.uuids()), min_size=1, max_size=4),
    st.lists(st.sets(st.datetimes(timezones=st.just(None))), min_size=1, max_size=4),
)


@given(key_sets=KEY_SETS, random=st.randoms(use_true_random=False))
def test_intersect_equals_sets_whatever_the_row_orders(key_sets, random):
    orders = []
    for keys in key_sets:
        order = list(keys)
        random.shuffle(order)
        orders.append(pd.Index(order, dtype=object))
    common = intersect({f"party {i}": keys for i, keys in enumerate(orders)})
    assert common.tolist() == sorted(set.intersection(*map(set, key_sets)))
    for keys in orders:
        assert keys[positions(keys, common)].tolist() == common.tolist()


@given(st.sets(st.one_of(st.integers(), st.text(max_size=3), st.uuids()), min_size=1))
def test_unsortable_keys_have_an_order_too(keys):
    forward = pd.Index(list(keys), dtype=object)
    common = intersect({"a": forward, "b": forward[::-1]})
    assert common.tolist() == intersect({"a": forward[::-1]}).tolist()
    assert set(common) == keys


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (np.array([1, 2], "int8"), np.array([2, 3], "uint64")),
        (np.array([1, 2], "int64"), pd.array([2, 3], "Int16")),
        (np.array([1, 2], "int64"), pd.array([2, 3], "int32[pyarrow]")),
        (np.array([2], "uint64"), np.array([2, 2**64 - 1], "uint64")),
        (np.array([-1, 2], "int64"), np.array([2, 2**64 - 1], "uint64")),
        (np.array([1, 2], object), np.array([2], "int64")),
        (pd.Categorical([5, 2]), np.array([2], "int64")),
        (pd.array(["1", "2"], "string"), np.array(["2"], object)),
        (pd.array(["1", "2"], "string[pyarrow]"), pd.array(["2"], "str")),
        (pd.array(["1", "2"], pd.ArrowDtype(pa.string())), pd.array(["2"], "str")),
        (pd.Categorical(["z", "2"]), pd.array(["2"], "string")),
        (
            pd.DatetimeIndex(["2020-01-01", "2020-01-02"]).as_unit("s"),
            pd.DatetimeIndex(["2020-01-02"]).as_unit("ns"),
        ),
        (
            pd.DatetimeIndex(["2020-01-02 01:00"], tz="Europe/Berlin"),
            pd.DatetimeIndex(["2020-01-02 00:00", "2020-01-05"], tz="UTC"),
        ),
    ],
)
def test_compatible_dtypes_match_by_value(first, second):
    keys = {"a": pd.Index(first), "b": pd.Index(second)}
    common, report = align_keys(keys)
    assert len(common) == report.n_matched == 1
    for own in keys.values():
        assert len(positions(own, common)) == 1
    swapped, _ = align_keys({"b": keys["b"], "a": keys["a"]})
    assert swapped[0] == common[0]


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (["1"], [1], ["text", "integers", "astype('int64').astype(str)"]),
        ([1.0], [1], ["floating-point", "astype('int64')"]),
        ([True], [1], ["booleans"]),
        (pd.DatetimeIndex(["2020"]), pd.DatetimeIndex(["2020"], tz="UTC"), ["timezone"]),
        ([uuid.UUID(int=1)], ["1"], ["UUID", "text"]),
    ],
)
def test_incompatible_dtypes_are_named(first, second, words):
    first, second = pd.Index(first), pd.Index(second)
    with pytest.raises(KeyTypeError) as caught:
        intersect({"lab": first, "clinic": second})
    for word in [*words, str(first.dtype), str(second.dtype), "'lab'", "'clinic'"]:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("first", "second", "hint"),
    [
        (["001", "002"], ["1", "2"], "leading zeros"),
        (["a ", "b "], ["a", "b"], "blanks"),
        (["A1"], ["a1"], "lower case"),
        (["x"], ["y"], "same records"),
        ([1], [2], "same records"),
    ],
)
def test_no_overlap_shows_the_slip_and_no_key(first, second, hint):
    with pytest.raises(NoOverlapError) as caught:
        align_keys({"lab": pd.Index(first), "clinic": pd.Index(second)})
    assert hint in str(caught.value)
    assert not any(f"{key!r} " in str(caught.value) for key in (*first, *second) if key != 1)


def test_positions_refuses_unknown_and_repeated_keys():
    with pytest.raises(ProtocolError, match="1 of 2"):
        positions(pd.Index([1, 3]), pd.Index([1, 2]))
    with pytest.raises(ProtocolError, match="more than once"):
        positions(pd.Index([1, 1]), pd.Index([1]))


def test_report_counts_and_holds_no_key():
    keys = {"lab": pd.Index([12345, 2, 3]), "clinic": pd.Index([2, 3, 67890, 5])}
    _, report = align_keys(keys, matched_by="key column 'id'")
    assert report.to_frame().to_dict("index") == {
        "lab": {"rows": 3, "matched": 2, "dropped": 1, "duplicated": 0},
        "clinic": {"rows": 4, "matched": 2, "dropped": 2, "duplicated": 0},
    }
    assert "lab: 3 rows, 2 matched, 1 dropped" in str(report)
    assert "12345" not in repr(report) + str(report)
