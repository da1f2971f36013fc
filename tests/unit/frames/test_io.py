import os

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vflsynth.exceptions import ColumnKindError, TableFileError
from vflsynth.frames import read_table, write_table

TIMES = ["2020-01-01 10:00:00", None, "2021-06-30 23:59:59"]
COLUMNS = {
    **{dtype: np.array([1, 2, 3], dtype) for dtype in ("int8", "uint8", "int16", "uint64", "bool")},
    **{dtype: np.array([1.5, 2, np.nan], dtype) for dtype in ("float16", "float32", "float64")},
    **{dtype: pd.array([1, None, 3], dtype=dtype) for dtype in ("Int8", "UInt32", "Float32")},
    "boolean": pd.array([True, None, False], dtype="boolean"),
    "str": pd.array(["a", None, ""], dtype="str"),
    "string, python": pd.array(["a", None, ""], dtype=pd.StringDtype("python")),
    "string, pyarrow": pd.array(["a", None, ""], dtype=pd.StringDtype("pyarrow")),
    "arrow text": pd.array(["a", None, ""], dtype=pd.ArrowDtype(pa.string())),
    "arrow int": pd.array([1, None, 3], dtype="uint8[pyarrow]"),
    "object": pd.array(["a", np.nan, "b"], dtype=object),
    "object bools": pd.array([True, None, False], dtype=object),
    **{f"time {unit}": pd.DatetimeIndex(TIMES).as_unit(unit) for unit in ("s", "ms", "us", "ns")},
    "time with zone": pd.DatetimeIndex(TIMES, tz="Europe/Berlin"),
    "category": pd.Categorical(["a", None, "b"], categories=["z", "b", "a"]),
    "category, ordered": pd.Categorical(["a", None, "b"], categories=["z", "b", "a"], ordered=True),
    "category of int": pd.Categorical([3, None, 1], categories=np.array([5, 3, 1], "int8")),
    "category of float": pd.Categorical([3.5, None, 1.0], categories=[9.5, 3.5, 1]),
    "category of bool": pd.Categorical([True, None, True], categories=[True, False]),
    "category of time": pd.Categorical(pd.DatetimeIndex(TIMES, tz="UTC")),
    "category of string": pd.Categorical(pd.array(["a", None, "b"], dtype="string")),
    "category, all missing": pd.Categorical([None, None, None], categories=["x"]),
    "category without any": pd.Categorical([None, None, None]),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_parquet_keeps_dtypes_and_values(name, tmp_path):
    frame = pd.DataFrame({"x": COLUMNS[name]})
    write_table(frame, tmp_path / "t.parquet")
    again = read_table(tmp_path / "t.parquet")
    pd.testing.assert_frame_equal(again, frame, check_exact=True)
    assert repr(again["x"].dtype) == repr(frame["x"].dtype)
    if isinstance(frame["x"].dtype, pd.CategoricalDtype):
        pd.testing.assert_index_equal(again["x"].cat.categories, frame["x"].cat.categories)


@pytest.mark.parametrize(
    "index",
    [
        pd.RangeIndex(3),
        pd.RangeIndex(2, 8, 2, name="row"),
        pd.Index(["p", "q", "r"], name="patient"),
        pd.DatetimeIndex(["2020-01-01", "2020-01-02", "2020-01-04"], tz="UTC", name="day"),
    ],
)
def test_parquet_keeps_the_index(index, tmp_path):
    frame = pd.DataFrame({"x": pd.Categorical(["a", "b", "a"]), "y": [1, 2, 3]}, index=index)
    write_table(frame, tmp_path / "t.parquet")
    pd.testing.assert_frame_equal(read_table(tmp_path / "t.parquet"), frame)


def test_what_a_program_noted_about_a_table_is_not_written(tmp_path):
    frame = pd.DataFrame({"x": [1, 2]})
    frame.attrs = {"patients": ["Ada"], "no JSON": object(), "vflsynth sample": "ours"}
    write_table(frame, tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet").attrs == {"vflsynth sample": "ours"}
    assert b"Ada" not in (tmp_path / "t.parquet").read_bytes()
    assert frame.attrs["patients"] == ["Ada"]


def test_parquet_keeps_integer_column_names(tmp_path):
    frame = pd.DataFrame({3: ["a", "b"], 0: [1, 2]}, index=["x", "y"])
    frame[3] = frame[3].astype("category")
    write_table(frame, tmp_path / "t.parquet")
    pd.testing.assert_frame_equal(read_table(tmp_path / "t.parquet"), frame)


def test_parquet_of_others_is_read_too(tmp_path):
    frame = pd.DataFrame({"x": [1, 2], "c": pd.Categorical(["a", "b"])})
    frame.to_parquet(tmp_path / "t.parquet")
    pd.testing.assert_frame_equal(read_table(tmp_path / "t.parquet"), frame)
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet")["x"].tolist() == [1, 2]


def csv(tmp_path, content, name="t.csv"):
    (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return read_table(tmp_path / name, party="lab")


@pytest.mark.parametrize(
    ("column", "dtype", "values"),
    [
        (["1", "-2"], "int64", [1, -2]),
        (["1", ""], "Int64", [1, pd.NA]),
        (["1", "NA"], "Int64", [1, pd.NA]),
        (["0", "10"], "int64", [0, 10]),
        (["1.5", ""], "float64", [1.5, np.nan]),
        (["0.5", "-0.25"], "float64", [0.5, -0.25]),
        (["true", "False"], "bool", [True, False]),
        (["true", ""], "boolean", [True, pd.NA]),
        (["001", "12"], "str", ["001", "12"]),
        (["007", ""], "str", ["007", np.nan]),
        (["18446744073709551615", "1"], "str", ["18446744073709551615", "1"]),
        (["1e300", "1"], "float64", [1e300, 1.0]),
        (['"NA"', "NA"], "str", ["NA", np.nan]),
        (['""', "a"], "str", ["", "a"]),
        (['"x, ""y""\nz"', "é"], "str", ['x, "y"\nz', "é"]),
        (["2020-01-02", ""], "datetime64[s]", [pd.Timestamp("2020-01-02"), pd.NaT]),
        (
            ["2020-01-02 03:04:05", "2020-01-02T03:04:05"],
            "datetime64[s]",
            [pd.Timestamp("2020-01-02 03:04:05")] * 2,
        ),
        (
            ["2020-01-02 03:04:05Z", "2020-01-02 04:04:05+01:00"],
            "datetime64[s, UTC]",
            [pd.Timestamp("2020-01-02 03:04:05", tz="UTC")] * 2,
        ),
    ],
)
def test_csv_inference(column, dtype, values, tmp_path):
    # The second column keeps lines with an empty field from being empty lines.
    frame = csv(tmp_path, "x,y\n" + "".join(f"{value},1\n" for value in column))
    expected = pd.Series(values, dtype=dtype, name="x")
    pd.testing.assert_series_equal(frame["x"], expected)


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_csv_separators(separator, tmp_path):
    frame = csv(tmp_path, f'\ufeff"a,;|b"{separator}c\r\n1{separator}2\r\n')
    assert frame.to_dict("list") == {"a,;|b": [1], "c": [2]}


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "T.CSV"])
def test_csv_round_trip(name, tmp_path):
    frame = pd.DataFrame(
        {
            "key": ["001", "002", "010"],
            "int": pd.array([1, None, 3], dtype="Int64"),
            "float": [0.1 + 0.2, np.nan, 1e-300],
            "bool": [True, False, True],
            "text": ['say "hi", now', None, ""],
            "day": pd.DatetimeIndex(["2020-01-01", None, "1850-05-05"]).as_unit("s"),
            "time": pd.DatetimeIndex(TIMES).as_unit("s"),
        }
    )
    write_table(frame, tmp_path / name)
    pd.testing.assert_frame_equal(read_table(tmp_path / name), frame, check_exact=True)


def test_csv_writes_dates_as_dates_and_categories_as_values(tmp_path):
    days = pd.DatetimeIndex(["2020-01-01", None])
    write_table(pd.DataFrame({"d": days, "c": pd.Categorical(["a", "b"])}), tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == '"d","c"\n2020-01-01,"a"\n,"b"\n'


@given(
    st.lists(
        st.tuples(
            st.integers(-(2**63), 2**63 - 1),
            st.floats(allow_nan=False, allow_infinity=False),
            st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=4),
        ),
        min_size=1,
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_csv_keeps_values(tmp_path, rows):
    frame = pd.DataFrame(rows, columns=["i", "f", "s"])
    # Text that looks like a number or a date is read as one: only letters stay text for certain.
    frame["s"] = "a" + frame["s"]
    write_table(frame, tmp_path / "t.csv")
    again = read_table(tmp_path / "t.csv")
    assert again["s"].tolist() == frame["s"].tolist()
    assert again["f"].tolist() == frame["f"].tolist()
    # 19 digits and more may be an identifier, which stays text.
    assert again["i"].astype(int).tolist() == frame["i"].tolist()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("t.csv", "", ["Empty"]),
        ("t.csv", "a,b\n1\n", ["in row 2 (the header is row 1)", "Expected 2 columns"]),
        ("t.csv", 'a,b\n"x\ny",1\n1,2,3\n', ["in row 3", "got 3"]),
        ("t.csv", 'a,b\n1,x\n2,"y\n3,z\n', ["'b'", "in row 3", "never closed"]),
        ("t.csv", "a,a\n1,2\n", ["'a'", "same name"]),
        ("t.csv", "a\nh\xe9\n".encode("latin-1"), ["UTF-8", "'a'"]),
        ("t.csv", "h\xe9,a\n1,2\n".encode("latin-1"), ["UTF-8", "TOML file"]),
        ("t.csv.gz", "a,b\n1,2\n", ["complete"]),
        ("t.parquet", "PAR1", ["complete"]),
        ("t.xls", "", ["unknown kind", ".parquet"]),
        ("t\udcff.csv", "a\n1\n", [r"t\udcff.csv' is no text", "UTF-8"]),
    ],
)
def test_unreadable_files_are_named_errors(name, content, words, tmp_path):
    with pytest.raises(TableFileError) as caught:
        csv(tmp_path, content, name)
    for word in [*words, "'lab'", "Fix: "]:
        assert word in str(caught.value)


@pytest.mark.parametrize("name", ["self", "x", "index"])
def test_a_csv_column_may_have_any_name(name, tmp_path):
    assert list(csv(tmp_path, f"id,{name}\n1,2\n")) == ["id", name]


def test_a_type_that_pandas_does_not_have_is_named(tmp_path):
    path = tmp_path / "lab.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ColumnKindError, match="column 'b': pandas has no type 'strr'"):
        read_table(path, dtypes={"b": "strr"})


def test_stated_text_in_another_encoding_is_named(tmp_path):
    (tmp_path / "t.csv").write_bytes("a\nh\xe9\n".encode("latin-1"))
    with pytest.raises(TableFileError, match="UTF-8"):
        read_table(tmp_path / "t.csv", dtypes={"a": "str"})


def test_absent_file_is_a_named_error(tmp_path):
    with pytest.raises(TableFileError, match=r"'lab'.*no file"):
        read_table(tmp_path / "t.csv", party="lab")


@pytest.mark.parametrize(
    "notes", ["[", "[1]", "[null]", '{"x": 1}', '[{"dtype": "no such"}]', "[{}]"]
)
def test_foreign_notes_on_dtypes_are_refused(notes, tmp_path):
    table = pa.table({"x": [1]}).replace_schema_metadata({"vflsynth.dtypes": notes})
    pq.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(TableFileError, match=r"t\.parquet"):
        read_table(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    ("frame", "name", "words"),
    [
        (pd.DataFrame({"a": [1, "x"]}), "t.parquet", ["column a"]),
        (pd.DataFrame({"a": [object()]}), "t.csv", ["column a"]),
        (pd.DataFrame({"a": [2**70, 1]}), "t.parquet", ["too large", "astype"]),
        (pd.DataFrame({0: [1], "a": [2]}), "t.parquet", ["mix"]),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "t.parquet", ["'a'", "same name"]),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "t.csv", ["'a'", "same name"]),
        (pd.DataFrame({"a": [1.5, None]}), "t.csv", ["'a'", "empty lines", "parquet"]),
        (pd.DataFrame({"a": ["x", None]}), "t.csv.gz", ["'a'", "empty lines", "parquet"]),
        (pd.DataFrame({"a": [1]}), "t.xlsx", ["unknown kind"]),
        (pd.DataFrame({"a": [1]}), "t\udcff.csv", ["no text", "UTF-8"]),
        (pd.DataFrame({"a": [1]}), "no/t.csv", ["folder"]),
    ],
)
def test_unwritable_tables_are_named_errors_and_leave_no_file(frame, name, words, tmp_path):
    with pytest.raises(TableFileError) as caught:
        write_table(frame, tmp_path / name)
    for word in words:
        assert word in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_failed_write_keeps_the_old_file(tmp_path):
    write_table(pd.DataFrame({"a": [1]}), tmp_path / "t.csv")
    with pytest.raises(TableFileError):
        write_table(pd.DataFrame({"a": [object()]}), tmp_path / "t.csv")
    assert read_table(tmp_path / "t.csv")["a"].tolist() == [1]
    assert os.listdir(tmp_path) == ["t.csv"]


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet"])
def test_a_full_disk_is_told_with_the_name_of_the_file(tmp_path, monkeypatch, name):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(tmp_path), "replace", full)
    with pytest.raises(TableFileError, match=f"{name}' cannot be written: .*No space.*make room"):
        write_table(pd.DataFrame({"x": [1]}), tmp_path / name)
    assert [*tmp_path.iterdir()] == []
