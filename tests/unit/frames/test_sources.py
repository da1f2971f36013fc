"""Tables that are no plain csv or parquet: other signs, Excel, Arrow, Polars, databases."""

import sqlite3
import sys
from types import ModuleType

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pytest

from vflsynth import IndependentSynthesizer
from vflsynth.cli import main
from vflsynth.exceptions import MissingExtraError, PublishingWarning, TableFileError
from vflsynth.frames import read_records, read_table
from vflsynth.frames.party_frames import check_party_frames
from vflsynth.frames.sources import read_query

FRAME = pd.DataFrame(
    {
        "id": [1, 2, 3],
        "marker": [1.5, -2.25, 1000.0],
        "town": ["Köln", "Bonn", "Trier"],
        "visits": pd.array([1, None, 3], dtype="Int64"),
    }
)
GERMAN = 'id;marker;town;visits\n1;1,5;"Köln";1\n2;-2,25;Bonn;\n3;1000,0;Trier;3\n'
SAID = 'file = "lab.csv"\nseparator = ";"\ndecimal = ","\nencoding = "latin-1"\n'


def same(frame, expected=FRAME):
    pd.testing.assert_frame_equal(frame, expected, check_dtype=False)
    assert [str(dtype) for dtype in frame.dtypes] == ["int64", "float64", "str", "Int64"]


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "cp1252", "utf-16"])
def test_csv_of_other_countries(encoding, tmp_path):
    (tmp_path / "lab.csv").write_text(GERMAN, encoding=encoding)
    options = {"separator": ";", "decimal": ",", "encoding": encoding}
    same(read_table(tmp_path / "lab.csv", **options))
    del options["separator"]  # found in the header; the decimal sign is no candidate
    same(read_table(tmp_path / "lab.csv", **options))


def test_a_description_says_how_a_file_is_written(tmp_path):
    (tmp_path / "lab.csv").write_text(GERMAN, encoding="latin-1")
    (tmp_path / "lab.toml").write_text(SAID)
    same(read_table(tmp_path / "lab.toml"))
    (tmp_path / "clinic.csv").write_text("id,score\n1,4.5\n2,5.5\n3,7\n")
    tables = [str(tmp_path / "lab.toml"), str(tmp_path / "clinic.csv")]
    assert main(["inspect", *tables, "--on", "id"]) == 0


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1,5", "3,25"], [1.5, 3.25]),
        (["1.234,5", "-17", "0,125", ""], [1234.5, -17.0, 0.125, None]),
        (["31.12.2024", "01.02.2024"], ["2024-12-31", "2024-02-01"]),
        (["1/2/2024", "13/2/2024", ""], ["2024-02-01", "2024-02-13", None]),
        (["1-2-2024", "2-13-2024"], ["2024-01-02", "2024-02-13"]),
        (["31.12.2024 8:05", "1.1.2024 23:59"], ["2024-12-31 08:05", "2024-01-01 23:59"]),
    ],
)
def test_numbers_and_dates_of_other_countries_are_read(values, expected, tmp_path):
    lines = [f"{i};{value}" for i, value in enumerate(values)]
    (tmp_path / "lab.csv").write_text("\n".join(["id;x", *lines]), encoding="utf-8-sig")
    with pytest.warns(PublishingWarning, match="party 'lab': text was read as .*'x'"):
        column = read_table(tmp_path / "lab.csv", "lab")["x"]
    dates = isinstance(expected[0], str)
    wanted = pd.Series(expected, dtype="datetime64[s]" if dates else "float64", name="x")
    pd.testing.assert_series_equal(column, wanted)


@pytest.mark.parametrize(
    ("values", "doubt"),
    [
        (["1,234", "12,500"], "thousands"),
        (["1/2/2024", "3/4/2024"], "cannot be told apart"),
        (["13/2/2024", "2/13/2024"], "cannot be told apart"),
        (["30.12.2024", "2023-11-30"], "several forms"),
        (["31.02.2024", "01.03.2024"], "several forms"),
        (["12%", "7,5 %"], "unit"),
        (["1,5", "none"], None),
        (["1,5", "2;5"], None),
        (["007,5", "k"], None),
    ],
)
def test_what_has_two_meanings_stays_text(values, doubt, tmp_path, recwarn):
    lines = [f'{i};"{value}"' for i, value in enumerate(values)]
    (tmp_path / "lab.csv").write_text("\n".join(["id;x", *lines]))
    assert read_table(tmp_path / "lab.csv", "lab")["x"].tolist() == values
    said = [str(w.message) for w in recwarn]
    assert len(said) == (doubt is not None)
    assert doubt is None or (doubt in said[0] and "column 'x'" in said[0])
    assert not any(value in text for text in said for value in values)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("lab.csv", {"separator": ";;"}, "one character"),
        ("lab.csv", {"separator": ",", "decimal": ","}, "the same"),
        ("lab.csv", {"encoding": "klingon"}, "no encoding"),
        ("lab.csv", {"encoding": "rot13"}, "no encoding"),
        ("lab.csv", {"sheet": "Patients"}, "Excel"),
        ("lab.csv", {"encoding": "ascii"}, "encoding that was named"),
        ("lab.parquet", {"decimal": ","}, "for csv files"),
        ("lab.arrow", {"separator": ";"}, "for csv files"),
    ],
)
def test_options_are_checked(name, options, words, tmp_path):
    (tmp_path / name).write_text(GERMAN, encoding="utf-8")
    with pytest.raises(TableFileError, match=words):
        read_table(tmp_path / name, **options)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("file = ", "no TOML"),
        ('path = "lab.csv"', "'path'"),
        ("file = 3", "file must be text, got 3"),
        ('file = "x.csv"\nquery = "select 1"', "file and a database"),
        ('file = "lab.toml"', "another description"),
        ('query = "select 1"', "no database"),
        ('query = "select 1"\ndatabase_variable = "VFLSYNTH_NOBODY_SET_THIS"', "no database"),
        ('decimal = ","', "neither"),
        ('file = "absent.csv"', "no file"),
    ],
)
def test_mistakes_in_descriptions_are_named(text, words, tmp_path):
    (tmp_path / "lab.toml").write_text(text)
    with pytest.raises(TableFileError, match=words):
        read_table(tmp_path / "lab.toml", "lab")


def test_arrow_files(tmp_path):
    table = pa.table({"id": [1, 2], "day": pa.array([0, 1], pa.date32()), "n": [1, None]})
    pyarrow.feather.write_feather(table, str(tmp_path / "lab.arrow"))
    frame = read_table(tmp_path / "lab.arrow")
    assert frame["n"].dtype == "Int64"
    assert pd.api.types.is_datetime64_any_dtype(frame["day"])


class OfAnotherLibrary:
    """What Polars and others are to us: something with Arrow's interface."""

    def __init__(self, table):
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


def test_tables_of_other_libraries_are_fitted_like_frames():
    rng = np.random.default_rng(0)
    frames = {
        "lab": pd.DataFrame({"id": range(60), "marker": rng.normal(size=60)}),
        "clinic": pd.DataFrame({"id": range(60), "score": rng.normal(size=60)}),
    }
    arrow = {name: pa.Table.from_pandas(f, preserve_index=False) for name, f in frames.items()}
    others = {"lab": arrow["lab"], "clinic": OfAnotherLibrary(arrow["clinic"])}
    samples = [
        IndependentSynthesizer(random_state=0).fit(tables, on="id").sample(20)
        for tables in (frames, others)
    ]
    pd.testing.assert_frame_equal(*samples)


def test_polars_frames():
    polars = pytest.importorskip("polars")
    table = polars.DataFrame({"id": [1, 2, 3], "town": ["Köln", "Bonn", None], "n": [1, None, 3]})
    frame = check_party_frames({"lab": table}, "id")["lab"]
    assert frame["n"].dtype == "Int64"
    assert frame["town"].tolist()[:2] == ["Köln", "Bonn"]


def test_excel_files(tmp_path):
    pytest.importorskip("openpyxl")
    with pd.ExcelWriter(tmp_path / "lab.xlsx") as writer:
        pd.DataFrame({"a": [1]}).to_excel(writer, sheet_name="Notes", index=False)
        FRAME.to_excel(writer, sheet_name="Patients", index=False)
    same(read_table(tmp_path / "lab.xlsx", sheet="Patients"))
    assert list(read_table(tmp_path / "lab.xlsx")) == ["a"]
    with pytest.raises(TableFileError, match="cannot be read"):
        read_table(tmp_path / "lab.xlsx", sheet="Nobody")
    doubled = pd.DataFrame([["id", "x", "x"], [1, 2, 3]])
    doubled.to_excel(tmp_path / "lab.xlsx", index=False, header=False)
    with pytest.raises(TableFileError, match="party 'lab', column 'x': several columns"):
        read_table(tmp_path / "lab.xlsx", "lab")


def test_queries_through_adbc(tmp_path, monkeypatch):
    pytest.importorskip("adbc_driver_sqlite", reason="no ADBC driver is installed")
    with sqlite3.connect(tmp_path / "lab.db") as connection:
        FRAME.astype({"visits": object}).to_sql("patients", connection, index=False)
    connection.close()
    monkeypatch.setenv("LAB_DATABASE", str(tmp_path / "lab.db"))
    said = 'database_variable = "LAB_DATABASE"\ndriver = "adbc_driver_sqlite"\n'
    (tmp_path / "lab.toml").write_text(said + 'query = "select * from patients order by id"')
    same(read_table(tmp_path / "lab.toml"))
    (tmp_path / "lab.toml").write_text(said + "query = \"select secret from 'patients'\"")
    with pytest.raises(TableFileError, match=r"gave no table \(") as raised:
        read_table(tmp_path / "lab.toml", "lab")
    assert "secret" not in str(raised.value)


class _FakeDriver(ModuleType):
    """What an ADBC driver's ``dbapi`` is to us: a connection, and a cursor with Arrow tables."""

    class Error(Exception):
        pass

    def connect(self, url):
        self.url = url
        return self

    def cursor(self):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.closed = True

    def execute(self, query):
        if "nothing" in query:
            raise self.Error("a value")

    def fetch_arrow_table(self):
        return pa.Table.from_pandas(FRAME)


def test_drivers_of_adbc_read_in_place_of_sqlalchemy(tmp_path, monkeypatch):
    driver = _FakeDriver("adbc_driver_fake.dbapi")
    monkeypatch.setitem(sys.modules, "adbc_driver_fake", ModuleType("adbc_driver_fake"))
    monkeypatch.setitem(sys.modules, "adbc_driver_fake.dbapi", driver)
    said = 'database = "lab"\ndriver = "adbc_driver_fake"\n'
    (tmp_path / "lab.toml").write_text(said + 'query = "select *"')
    same(read_table(tmp_path / "lab.toml"))
    assert (driver.url, driver.closed) == ("lab", True)
    monkeypatch.delattr(_FakeDriver, "fetch_arrow_table")  # batches are read without it
    driver.fetch_record_batch = lambda: pa.Table.from_pandas(FRAME).to_reader(max_chunksize=2)
    drawn = read_records({"lab": tmp_path / "lab.toml"}, "id", max_records=10**6)
    same(drawn["lab"])
    (tmp_path / "lab.toml").write_text(said + 'query = "select nothing"')
    for reading in (read_table, lambda *of: read_records({"lab": of[0]}, "id", max_records=9)):
        with pytest.raises(TableFileError, match="gave no table") as raised:
            reading(tmp_path / "lab.toml", "lab")
        assert "a value" not in str(raised.value)
    for name, words in (("os", "no ADBC driver"), ("adbc_driver_absent", "pip install adbc-driv")):
        text = f'database = "lab"\ndriver = "{name}"\nquery = "select 1"'
        (tmp_path / "lab.toml").write_text(text)
        with pytest.raises(TableFileError, match=words):
            read_table(tmp_path / "lab.toml", "lab")


def test_databases(tmp_path, monkeypatch):
    pytest.importorskip("sqlalchemy")
    with sqlite3.connect(tmp_path / "lab.db") as connection:
        FRAME.astype({"visits": object}).to_sql("patients", connection, index=False)
    connection.close()
    url = f"sqlite:///{tmp_path / 'lab.db'}"
    same(read_query(url, "select * from patients order by id"))
    monkeypatch.setenv("LAB_DATABASE", url)
    (tmp_path / "lab.toml").write_text(
        'database_variable = "LAB_DATABASE"\nquery = "select id, town from patients"\n'
    )
    assert list(read_table(tmp_path / "lab.toml")) == ["id", "town"]
    with pytest.raises(TableFileError, match="gave no table") as error:
        read_query(url, "select * from nobody where town = 'Köln'", "lab")
    assert "Köln" not in str(error.value)
    assert "lab.db" not in str(error.value)


@pytest.mark.parametrize(
    ("package", "extra", "read"),
    [
        ("openpyxl", "excel", lambda path: read_table(path)),
        ("sqlalchemy", "sql", lambda path: read_query("sqlite://", "select 1")),
    ],
)
def test_extras_are_named(package, extra, read, tmp_path, monkeypatch):
    (tmp_path / "lab.xlsx").write_bytes(b"")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"vflsynth\[{extra}\]"):
        read(tmp_path / "lab.xlsx")
