"""Columns of stated types: one value never changes how another is read."""

import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from vflsynth.codec import as_frame
from vflsynth.exceptions import ColumnKindError, OwnTableWarning
from vflsynth.frames import read_table, write_table
from vflsynth.frames.typed import readable, with_type

OTHERS = {
    "str": (["1", "2", "03"], ["", "true", "1.0", "A7", "2020-01-01"]),
    "category": (["1", "2", "03"], ["", "true", "1.0", "A7"]),
    "object": (["true", "false", "true"], ["", "unknown", "1"]),
    "Int64": (["1", "9007199254740993", "3"], ["", "1.0", "-7"]),
    "float64": (["1", "2", "3"], ["", "0.5", "1e300"]),
    "boolean": (["true", "false", "true"], ["", "False", "TRUE"]),
    "datetime64[s]": (["2020-01-01", "2021-01-01", "2022-01-01"], ["", "2020-01-01 10:30:00"]),
    "timedelta64[s]": (["1 days", "2 days", "3 days"], ["", "01:30:00"]),
}


@pytest.mark.parametrize("given", ["str", "object", "category"])
def test_a_label_that_is_not_listed_is_not_lost(given):
    """pandas calls it missing: somebody's typing error was silently a gap."""
    listed, column = pd.CategoricalDtype(["a", "b"]), pd.Series(["a", "q", None], dtype=given)
    with pytest.raises(ColumnKindError, match="not all of the type category"):
        with_type(column, listed)
    with pytest.warns(OwnTableWarning, match="1 of 3 values"):
        found = readable(column, listed)
    assert found.dtype == listed
    assert found.isna().tolist() == [False, True, True]


@pytest.mark.parametrize("given", ["int64", "Int64", "float64", "Float64", "int64[pyarrow]"])
@pytest.mark.parametrize("stated", ["bool", "boolean", "bool[pyarrow]"])
def test_numbers_other_than_0_and_1_are_no_truth_values(stated, given):
    """pandas calls 2 true in columns of some types, and refuses it in others and in text."""
    column = pd.Series([0, 1, 2], dtype=given)
    with pytest.raises(ColumnKindError, match="not all of the type bool"):
        with_type(column, stated)
    with pytest.warns(OwnTableWarning, match="1 of 3 values"):
        assert readable(column, pd.api.types.pandas_dtype(stated)).isna().tolist() == [0, 0, 1]


@pytest.mark.parametrize("kind", ["csv", "xlsx"])
@pytest.mark.parametrize("dtype", OTHERS)
def test_one_value_changes_itself_alone(dtype, kind, tmp_path):
    values, odd = OTHERS[dtype]
    tables = [column_of(values, dtype, kind, tmp_path)]
    tables += [column_of([*values[:2], other], dtype, kind, tmp_path) for other in odd]
    for found in tables:
        assert found.dtype == tables[0].dtype or dtype == "category"
        assert [repr(v) for v in found[:2]] == [repr(v) for v in tables[0][:2]]
    assert [t.isna().tolist() for t in tables[:2]] == [[False] * 3, [False, False, True]]
    if dtype == "Int64":
        assert tables[0][1] == 9007199254740993  # more than a float holds


def column_of(values, dtype, kind, folder):
    path = folder / f"lab.{kind}"
    if kind == "csv":
        path.write_text("id,x\n" + "".join(f"{i},{value}\n" for i, value in enumerate(values)))
    else:
        pd.DataFrame({"id": range(3), "x": values}).to_excel(path, index=False)
    frame = read_table(path, dtypes={"x": dtype, "absent": "str"})
    assert list(frame) == ["id", "x"]
    assert frame["id"].dtype == "int64"
    return frame["x"]


def test_numbers_in_cells_are_text_where_that_was_stated(tmp_path):
    cells = pd.DataFrame({"x": [1, 2.5, "A7", True]}, dtype=object)
    cells.to_excel(tmp_path / "lab.xlsx", index=False)
    found = read_table(tmp_path / "lab.xlsx", dtypes={"x": "str"})["x"]
    assert found.tolist() == ["1", "2.5", "A7", "true"]


def test_answers_of_a_database_in_stated_types(tmp_path):
    sqlalchemy = pytest.importorskip("sqlalchemy")
    url = f"sqlite:///{tmp_path / 'lab.db'}"
    engine = sqlalchemy.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("create table t (id integer, x)"))
        connection.execute(sqlalchemy.text("insert into t values (1, 1), (2, 'A7'), (3, 2.0)"))
    engine.dispose()
    path = tmp_path / "lab.toml"
    path.write_text(f'database = "{url}"\nquery = "select id, x from t order by id"\n')
    frame = read_table(path, dtypes={"x": "str"})
    assert frame["x"].tolist() == ["1", "A7", "2"]
    assert frame["id"].tolist() == [1, 2, 3]


def test_a_decimal_comma_of_stated_numbers(tmp_path):
    (tmp_path / "lab.csv").write_text("x;zip\n1,5;1,5\n2;A\n")
    frame = read_table(
        tmp_path / "lab.csv", separator=";", decimal=",", dtypes={"x": "float64", "zip": "str"}
    )
    assert frame["x"].tolist() == [1.5, 2.0]
    assert frame["zip"].tolist() == ["1,5", "A"]


def test_a_value_of_another_type_is_refused_without_showing_it(tmp_path):
    (tmp_path / "lab.csv").write_text("x\n1\nsecret\n")
    with pytest.raises(ColumnKindError, match=r"party 'lab', column 'x'.*Int64") as raised:
        read_table(tmp_path / "lab.csv", "lab", dtypes={"x": "Int64"})
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("kind", ["parquet", "arrow", "memory"])
def test_types_of_arrow_do_not_depend_on_a_blank(kind, missing, tmp_path):
    last = None if missing else 1
    table = pa.table({"n": pa.array([1, 2, last], pa.int32()), "t": [True, False, last and True]})
    if kind == "parquet":
        pa.parquet.write_table(table, tmp_path / "lab.parquet")
    elif kind == "arrow":
        pa.feather.write_feather(table, str(tmp_path / "lab.arrow"))
    frame = as_frame(table) if kind == "memory" else read_table(tmp_path / f"lab.{kind}")
    assert [str(dtype) for dtype in frame.dtypes] == ["Int32", "boolean"]
    assert frame.isna().sum().tolist() == [missing, missing]


@pytest.mark.parametrize("kind", ["parquet", "arrow", "ours"])
def test_tables_that_pandas_wrote_keep_its_types(kind, tmp_path):
    frame = pd.DataFrame({"n": [1, 2], "m": pd.array([1, 2], "Int64"), "t": [True, False]})
    path = tmp_path / ("lab.arrow" if kind == "arrow" else "lab.parquet")
    {"parquet": frame.to_parquet, "arrow": frame.to_feather}.get(
        kind, lambda path: write_table(frame, path)
    )(path)
    pd.testing.assert_frame_equal(read_table(path), frame)


def test_text_is_read_into_the_stated_unit_and_zone():
    text = pd.Series(["2020-01-01T00:00+02:00", "2020-01-01 00:00:00.5Z"])
    found = with_type(text, pd.api.types.pandas_dtype("datetime64[us, UTC]"))
    assert [str(time) for time in found] == [
        "2019-12-31 22:00:00+00:00",
        "2020-01-01 00:00:00.500000+00:00",
    ]
