import numpy as np
import pandas as pd
import pytest

from vflsynth import exceptions
from vflsynth.frames import align_party_frames, check_no_empty_column, vertical_split
from vflsynth.frames.party_frames import check_party_frames


def lab(**columns):
    return pd.DataFrame({"id": [1, 2, 3], "glucose": [5.1, 4.9, 7.2]} | columns)


def clinic(**columns):
    return pd.DataFrame({"id": [3, 2, 4], "age": [61, 40, 33]} | columns)


def repeated_column():
    return pd.DataFrame([[1, 2, 3]], columns=["id", "x", "x"])


BAD = {
    "not a mapping": ([lab()], "PartyDataError", ["a list", "{'lab': lab_frame"]),
    "empty": ({}, "PartyDataError", ["an empty mapping"]),
    "not a frame": ({"lab": lab().to_dict()}, "PartyDataError", ["'lab'", "a dict"]),
    "a file": ({"lab": "lab.csv"}, "PartyDataError", ["a str", "read_table"]),
    "name is a number": ({1: lab()}, "PartyNameError", ["1"]),
    "name is a path": ({"../lab": lab()}, "PartyNameError", ["'../lab'", "folder"]),
    "name is dots": ({"..": lab()}, "PartyNameError", ["'..'"]),
    "name is empty": ({"": lab()}, "PartyNameError", ["folder"]),
    "name has a blank end": ({"lab ": lab()}, "PartyNameError", ["'lab '"]),
    "name is too long": ({"é" * 60: lab()}, "PartyNameError", ["100 bytes"]),
    "name is no text": ({"\udcff": lab()}, "PartyNameError", ["udcff", "folder"]),
    "name is of a device": ({"Con": lab()}, "PartyNameError", ["'Con'", "every system"]),
    "name is reserved": ({"Server": lab()}, "PartyNameError", ["'Server'", "protocol"]),
    "names differ in case": ({"lab": lab(), "Lab": clinic()}, "PartyNameError", ["'Lab'", "'lab'"]),
    "repeated column": (
        {"lab": repeated_column()},
        "ColumnNameError",
        ["'lab'", "'x'", "2 columns"],
    ),
    "float column name": (
        {"lab": lab().rename(columns={"glucose": 1.5})},
        "ColumnNameError",
        ["1.5"],
    ),
    "bool column name": (
        {"lab": lab().rename(columns={"glucose": True})},
        "ColumnNameError",
        ["True"],
    ),
    "no rows": ({"lab": lab().head(0)}, "TooFewRecordsError", ["'lab'"]),
    "no columns": ({"lab": lab()[["id"]]}, "NoColumnsError", ["'lab'", "'id'"]),
    "empty column": (
        {"lab": lab(), "clinic": clinic(height=[None] * 3, weight=[np.nan] * 3)},
        "EmptyColumnError",
        ["'clinic'", "'height'", "1 other", "3 rows"],
    ),
    "no key": (
        {"lab": lab(), "clinic": clinic().drop(columns="id")},
        "MissingKeyError",
        ["'clinic'", "'age'"],
    ),
    "key is the index": (
        {"lab": lab().set_index("id")},
        "MissingKeyError",
        ["reset_index()", "--on"],
    ),
    "missing keys": (
        {"lab": lab(id=[1, None, 3]).set_index(pd.Index(["x", "y", "z"]))},
        "MissingKeyError",
        ["1 of 3", "positions [1]", "'lab'"],
    ),
    "text and numbers": (
        {"lab": lab(id=list("123")), "clinic": clinic()},
        "KeyTypeError",
        ["'clinic'", "'lab'", "int64", "astype(str)"],
    ),
    "floats and integers": (
        {"lab": lab(id=[1.0, 2, 3]), "clinic": clinic()},
        "KeyTypeError",
        ["float64", "int64", "astype('int64')"],
    ),
    "keys beyond what floats tell apart": (
        {"lab": lab(id=[1.0, 2.0**53, -(2.0**53 + 2)])},
        "KeyTypeError",
        ["'lab'", "'id'", "2 of 3", "9007199254740992 or more"],
    ),
    "keys beyond what short floats tell apart": (
        {"lab": lab(id=pd.array([1, 2, 2**24], "Float32"))},
        "KeyTypeError",
        ["'lab'", "'id'", "1 of 3", "16777216 or more"],
    ),
    "shared column": (
        {"lab": lab(age=1), "clinic": clinic()},
        "SharedColumnError",
        ["'age'", "'lab'", "'clinic'"],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_frames_are_named_errors(case):
    frames, error, words = BAD[case]
    with pytest.raises(getattr(exceptions, error)) as caught:
        check_party_frames(frames, on="id")
    assert type(caught.value) is getattr(exceptions, error)
    for word in [*words, "Fix: "]:
        assert word in str(caught.value)


def test_errors_carry_party_and_column():
    with pytest.raises(exceptions.SharedColumnError) as caught:
        check_party_frames({"lab": lab(age=1), "clinic": clinic()}, on="id")
    assert (caught.value.party, caught.value.column) == ("clinic", "age")


def test_several_key_columns_are_refused():
    with pytest.raises(exceptions.MissingKeyError, match="one column"):
        check_party_frames({"lab": lab()}, on=["id", "site"])


def test_index_with_levels_is_refused():
    frame = lab().set_index(["id", "glucose"]).assign(x=1)
    with pytest.raises(exceptions.MissingKeyError, match="2 levels"):
        check_party_frames({"lab": frame})


def test_missing_index_labels_are_refused():
    frame = lab().set_index(pd.Index([0.0, np.nan, 2.0]))
    with pytest.raises(exceptions.MissingKeyError, match=r"row positions \[1\]"):
        check_party_frames({"lab": frame})


def test_good_frames_come_back_uncopied():
    frames = {"lab": lab(), "Hôpital St. Anne": clinic()}
    checked = check_party_frames(frames, on="id")
    assert all(checked[party] is frames[party] for party in frames)


def test_integer_column_names_are_fine():
    check_party_frames({"a": pd.DataFrame({0: [1], np.int64(2): [1]}), "b": pd.DataFrame({3: [1]})})


def test_align_by_key_column():
    before = {"lab": lab(), "clinic": clinic()}
    frames, keys, report = align_party_frames(before, on="id")
    assert keys.tolist() == [2, 3]
    pd.testing.assert_frame_equal(frames["lab"], pd.DataFrame({"glucose": [4.9, 7.2]}))
    pd.testing.assert_frame_equal(frames["clinic"], pd.DataFrame({"age": [40, 61]}))
    assert report.n_dropped == {"lab": 1, "clinic": 1}
    pd.testing.assert_frame_equal(before["lab"], lab())


def test_align_by_index():
    frames, keys, report = align_party_frames(
        {"lab": lab().set_index("id"), "clinic": clinic().set_index("id")}
    )
    assert keys.tolist() == [2, 3]
    assert frames["clinic"]["age"].tolist() == [40, 61]
    assert report.matched_by == "index"


def test_plain_indexes_match_by_position_and_say_so():
    frames, keys, report = align_party_frames({"a": lab()[["glucose"]], "b": clinic()[["age"]]})
    assert frames["b"]["age"].tolist() == [61, 40, 33]
    assert report.matched_by == "position"
    assert (len(keys), report.n_matched) == (3, 3)


def test_plain_indexes_of_different_lengths_need_a_key():
    with pytest.raises(exceptions.MissingKeyError, match="on="):
        align_party_frames({"a": lab()[["glucose"]], "b": clinic()[["age"]].head(2)})


def test_one_party_needs_no_key():
    frames, _, report = align_party_frames({"lab": lab()})
    assert (report.n_matched, report.matched_by) == (3, "position")
    pd.testing.assert_frame_equal(frames["lab"], lab())


def test_index_of_numbers_from_zero_is_matched_by_value():
    frames = {"lab": lab(id=[0, 1, 2]), "clinic": clinic(id=[1, 0, 2]).head(2)}
    frames = {party: frame.set_index("id") for party, frame in frames.items()}
    aligned, _, report = align_party_frames(frames)
    assert (report.n_matched, report.matched_by) == (2, "index")
    assert aligned["clinic"]["age"].tolist() == [40, 61]


def test_repeated_index_labels_are_refused():
    frame = lab().set_index(pd.Index([7, 7, 8]))
    with pytest.raises(exceptions.DuplicateKeyError, match=r"reset_index\(drop=True\)"):
        align_party_frames({"lab": frame})


def test_duplicate_keys_show_rows_and_every_party_and_no_key():
    frames = {"lab": lab(id=[2, 777, 777]), "clinic": clinic()}
    with pytest.raises(exceptions.DuplicateKeyError) as caught:
        align_party_frames(frames, on="id")
    assert "777" not in str(caught.value)
    assert "rows 1, 2" in str(caught.value)
    assert "{'lab': 2, 'clinic': 0}" in str(caught.value)


def test_column_without_value_in_matched_records():
    frames = {"lab": lab(hba1c=[5.5, None, None]), "clinic": clinic()}
    with pytest.raises(exceptions.EmptyColumnError, match="2 matched records"):
        align_party_frames(frames, on="id")


def test_columns_without_values_may_be_let_pass():
    frames, *_ = BAD["empty column"]
    checked = check_party_frames(frames, on="id", allow_empty_columns=True)
    assert all(checked[party] is frames[party] for party in frames)
    with pytest.raises(exceptions.MissingKeyError):  # and nothing else is
        check_party_frames({"lab": lab(id=[None] * 3)}, on="id", allow_empty_columns=True)


def test_check_no_empty_column_accepts_one_value():
    check_no_empty_column("lab", pd.DataFrame({"x": [None, 1.0]}))


def test_vertical_split_by_index_and_by_key():
    frame = pd.DataFrame({"id": [7, 8], "x": [1, 2], "y": [3, 4], "z": [5, 6]}, index=["p", "q"])
    frames = vertical_split(frame, {"a": ["x"], "b": ["y"]})
    assert {party: own.columns.tolist() for party, own in frames.items()} == {
        "a": ["x"],
        "b": ["y"],
    }
    frames = vertical_split(frame, {"a": ["x"], "b": ["z", "y"]}, key_name="id")
    assert frames["b"].to_dict("list") == {"id": [7, 8], "z": [5, 6], "y": [3, 4]}
    frames = vertical_split(frame, {"a": ["x"]}, key_name="person")
    assert frames["a"].to_dict("list") == {"person": ["p", "q"], "x": [1, 2]}


def test_vertical_split_copies():
    frame = pd.DataFrame({"x": [1, 2]})
    own = vertical_split(frame, {"a": ["x"]})["a"]
    own.loc[0, "x"] = 9
    assert frame["x"].tolist() == [1, 2]


def test_vertical_split_refuses_unknown_and_shared_columns():
    frame = pd.DataFrame({"x": [1], "y": [2]})
    with pytest.raises(exceptions.ColumnNameError, match="'w'"):
        vertical_split(frame, {"a": ["x", "w"]})
    with pytest.raises(exceptions.SharedColumnError, match="'x'"):
        vertical_split(frame, {"a": ["x"], "b": ["x", "y"]})
