"""Every type through every door: files, databases, tables in memory; and out again."""

import datetime as dt
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from tests.later import later
from vflsynth import IndependentSynthesizer
from vflsynth.codec import as_frame
from vflsynth.columns import PublicSchema
from vflsynth.columns.arrays import has_timezone
from vflsynth.columns.public import with_public_types
from vflsynth.evaluation import evaluate
from vflsynth.evaluation.tables import Tables
from vflsynth.exceptions import ColumnKindError, TableFileError
from vflsynth.frames import align_party_frames, read_table, write_table
from vflsynth.frames.typed import family_of

DAYS = [dt.date(1999, 12, 31), dt.date(2020, 2, 29), dt.date(2024, 5, 6)]
PRICES = [Decimal("19.99"), Decimal("0.07"), Decimal("123.45")]
TIMES = [dt.datetime(2020, 1, 2, 3, 4, 5), dt.datetime(2021, 7, 1), dt.datetime(1970, 1, 1)]
SPANS = [dt.timedelta(days=1, hours=2), dt.timedelta(seconds=-90), dt.timedelta(0)]
WORDS, COUNTS = ["zwölf", "a,b", "007"], [12, -7, 0]

TYPES = {
    "truth": (pa.bool_(), [True, False, True], "truth value"),
    "int16": (pa.int16(), COUNTS, "whole number"),
    "int64": (pa.int64(), [2**53 + 1, 3, -5], "whole number"),
    "decimal0": (pa.decimal128(38, 0), [Decimal(n) for n in COUNTS], "whole number"),
    "float": (pa.float64(), [1.5, -2.25, 1e300], "number"),
    "decimal": (pa.decimal128(38, 18), PRICES, "number"),
    "decimal256": (pa.decimal256(50, 2), PRICES, "number"),
    "text": (pa.string(), WORDS, "text"),
    "large": (pa.large_string(), WORDS, "text"),
    "view": (pa.string_view(), WORDS, "text"),
    "clock": (pa.time32("s"), [dt.time(8, 30), dt.time(0, 0), dt.time(23, 59, 59)], "text"),
    "label": (pa.dictionary(pa.int32(), pa.string()), WORDS, "label"),
    "large label": (pa.dictionary(pa.int8(), pa.large_string()), WORDS, "label"),
    "day": (pa.date32(), DAYS, "time"),
    "day64": (pa.date64(), DAYS, "time"),
    "time": (pa.timestamp("us"), TIMES, "time"),
    "zoned": (pa.timestamp("ms", "Europe/Berlin"), TIMES, "time"),
    "span": (pa.duration("s"), SPANS, "duration"),
}
ROWS = 60


def arrow_table(*, blank=True):
    """Return a table with a column of every type, as Spark or a database would write it."""
    columns = {"id": pa.array([f"P{i:03d}" for i in range(ROWS)])}
    for name, (kind, values, _) in TYPES.items():
        cells = [values[i % 3] for i in range(ROWS)]
        cells[-1] = None if blank else cells[-1]
        is_label = pa.types.is_dictionary(kind)
        plain = pa.array(cells, kind.value_type if is_label else kind)
        columns[name] = plain.dictionary_encode().cast(kind) if is_label else plain
    return pa.table(columns)


def csv(table, folder):
    write_table(as_frame(table), folder / "t.csv")
    return read_table(folder / "t.csv")


def parquet(table, folder):
    pa.parquet.write_table(table, folder / "t.parquet")
    return read_table(folder / "t.parquet")


def our_parquet(table, folder):
    write_table(as_frame(table), folder / "t.parquet")
    return read_table(folder / "t.parquet")


def objects_in_parquet(table, folder):
    write_table(objects(table), folder / "t.parquet")
    return read_table(folder / "t.parquet")


def feather(table, folder):
    pa.feather.write_feather(table, str(folder / "t.feather"))
    return read_table(folder / "t.feather")


def objects(table, folder=None):
    columns = {c: table[c].to_pylist() for c in table.column_names}
    return pd.DataFrame({c: pd.Series(v, dtype=object) for c, v in columns.items()})


def polars(table, folder):
    for i, field in enumerate(table.schema):
        if pa.types.is_decimal256(field.type):  # which Polars has not
            table = table.set_column(i, field.name, table[i].cast(pa.decimal128(38, 2)))
    return pytest.importorskip("polars").from_arrow(table)


def through_narwhals(table, folder):
    return pytest.importorskip("narwhals").from_native(polars(table, folder))


DOORS = {
    "csv": csv,
    "parquet": parquet,
    "our parquet": our_parquet,
    "objects in parquet": objects_in_parquet,
    "feather": feather,
    "arrow": lambda table, folder: table,
    "polars": polars,
    "narwhals": through_narwhals,
    "pandas numpy": lambda table, folder: table.to_pandas(),
    "pandas nullable": lambda table, folder: table.to_pandas().convert_dtypes(),
    "pandas pyarrow": lambda table, folder: table.to_pandas(types_mapper=pd.ArrowDtype),
    "objects": objects,
}
LOSSY = ("pandas numpy", "pandas nullable")


def family_in(door, name):
    """Return what a type is behind a door: csv and objects do not tell labels from text."""
    family = TYPES[name][2]
    untyped = door in ("csv", "objects", "objects in parquet")
    return "text" if family == "label" and untyped else family


def cells(column):
    """Return values that can be compared whatever the column's type."""
    column = as_frame(pd.DataFrame({"x": column}))["x"]
    family = family_of(column.dtype)
    if family == "time" and has_timezone(column.dtype):
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)
    return [None if gone else own for own, gone in zip(column.tolist(), column.isna(), strict=True)]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("blank", [False, True])
def test_every_type_is_what_it_is_behind_every_door(door, blank, tmp_path):
    if blank and door in LOSSY:
        pytest.skip("NumPy's integers become floats where a value is missing")
    table = arrow_table(blank=blank)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "Series.values returning")  # by pyarrow before 26
        frame = as_frame(DOORS[door](table, tmp_path))
    expected = as_frame(table)
    for name in TYPES:
        family = family_of(frame[name].dtype)
        if family == "label" and frame[name].dtype == object:
            family = "text"
        assert family == family_in(door, name), name
        assert cells(frame[name]) == cells(expected[name]), name
    assert expected["decimal"].tolist()[:3] == [19.99, 0.07, 123.45]


@pytest.fixture(scope="module")
def model():
    """A model of all types."""
    frame = as_frame(arrow_table())
    names = [name for name in TYPES if name != "int64"]
    kinds = {"int16": "integer", "decimal0": "integer"}
    synth = IndependentSynthesizer(random_state=0, column_kinds=kinds)
    return synth.fit({"lab": frame[["id", *names]]}, on="id")


@pytest.mark.parametrize("door", ["csv", *later("parquet", "pandas pyarrow", "objects")])
def test_what_is_fitted_behind_a_door_is_written_and_read_again(door, tmp_path):
    given = DOORS[door](arrow_table(), tmp_path)
    drawn = IndependentSynthesizer(random_state=0).fit({"lab": given}, on="id").sample(40)
    for path in ("drawn.csv", "drawn.parquet"):
        write_table(drawn, tmp_path / path)
        again = read_table(tmp_path / path)
        Tables(as_frame(given).drop(columns="id"), again)  # evaluate takes them
        for name in TYPES:
            assert cells(again[name]) == cells(drawn[name]), (path, name)


@pytest.mark.parametrize(
    "door", ["csv", "objects", *later("parquet", "narwhals", "pandas pyarrow")]
)
def test_complete_takes_a_table_behind_any_door(door, model, tmp_path):
    table = arrow_table().select(["text", "day", "decimal", "span", "int16"])
    given = DOORS[door](table, tmp_path)
    found = model.complete(given, random_state=1)
    for name in table.column_names:
        assert cells(found[name])[:-1] == cells(as_frame(table)[name])[:-1]
        assert found[name].notna().all()


@pytest.mark.parametrize("empty", [None, pd.NaT, *later(np.nan, pd.NA)])
def test_an_empty_column_has_the_type_of_the_model(empty, model):
    names = [name for name in TYPES if name not in ("int64", "text")]
    known = pd.DataFrame({"text": ["007"] * 2, **{name: [empty] * 2 for name in names}})
    drawn, usual = model.sample(2, conditions=known, random_state=0), model.sample(1)
    assert drawn.notna().all(axis=None)
    assert drawn.dtypes.equals(usual.dtypes)
    floats = dict.fromkeys(names, pd.Series([np.nan], dtype="float64"))
    assert model.complete(pd.DataFrame({"text": ["007"], **floats})).notna().all(axis=None)


def test_text_in_conditions_is_read_as_the_model_has_it(model):
    known = pd.DataFrame({"day": ["2020-02-29"], "int16": ["12"], "span": ["P1DT2H"]})
    found = model.complete(known)
    assert found.loc[0, "day"] == pd.Timestamp("2020-02-29")
    assert found.loc[0, "int16"] == 12
    assert found.loc[0, "span"] == pd.Timedelta("1 days 02:00:00")
    with pytest.raises(ColumnKindError, match="party 'lab', column 'day'"):
        model.complete(pd.DataFrame({"day": ["in spring"]}))


@pytest.mark.parametrize(
    "condition", [pd.Series(["007"]), pd.array(["007"]), pd.Index(["007"]), np.array(["007"])]
)
def test_conditions_of_any_list(condition, model):
    assert set(model.sample(5, conditions={"text": condition})["text"]) == {"007"}


def test_conditions_of_lists_of_lists_are_named(model):
    with pytest.raises(ColumnKindError, match=r"party 'lab', column 'text'.*list"):
        model.sample(5, conditions={"text": [["007"]]})
    assert set(model.sample(5, conditions={"decimal": Decimal("0.07")})["decimal"]) == {0.07}


PUBLIC = {
    "truth value": "boolean",
    "whole number": "Int64",
    "number": "float64",
    "text": "str",
    "label": "str",
    "time": "datetime64[us]",
    "duration": "timedelta64[us]",
}


@pytest.mark.parametrize("door", DOORS)
def test_a_public_schema_states_types_behind_any_door(door, tmp_path):
    names = [name for name in TYPES if name not in ("zoned", "label", "large label", "clock")]
    stated = {"id": "str"} | {name: PUBLIC[TYPES[name][2]] for name in names}
    table = arrow_table(blank=door not in LOSSY)
    given = DOORS[door](table.select(["id", *names]), tmp_path)
    frame = as_frame(given, by_value=False)
    typed = with_public_types(frame, PublicSchema(dtypes=stated), party="lab")
    expected = as_frame(table)
    for name in names:
        assert typed[name].dtype == pd.api.types.pandas_dtype(stated[name])
        assert cells(typed[name]) == cells(expected[name]), name


KEYS = {
    "text": (["text", "large", "view", "label", "large label"], WORDS),
    "number": (["int16", "decimal0"], COUNTS),
    "day": (["day", "day64"], [pd.Timestamp(day) for day in DAYS]),
    "time": (["time"], [pd.Timestamp(time) for time in TIMES]),
}


@pytest.mark.parametrize("door", [door for door in DOORS if door != "csv"])
@pytest.mark.parametrize("kind", KEYS)
def test_keys_match_whatever_they_are_stored_in(kind, door, tmp_path):
    names, values = KEYS[kind]
    other = pd.DataFrame({"key": values, "b": [1, 2, 3]})
    for name in names:
        table = arrow_table(blank=False).select([name]).slice(0, 3).rename_columns(["key"])
        given = DOORS[door](table.append_column("a", pa.array([1, 2, 3])), tmp_path)
        frames, _, report = align_party_frames({"lab": given, "clinic": other}, on="key")
        assert report.n_matched == 3, name
        assert frames["lab"]["a"].tolist() == frames["clinic"]["b"].tolist()


@pytest.mark.parametrize("n_rows", [60, *later(120)])
@pytest.mark.parametrize("kind", ["decimal128", "float64", "objects"])
def test_prices_keep_their_two_decimals(kind, n_rows, tmp_path):
    prices = [Decimal(int(p)) / 100 for p in np.random.default_rng(0).integers(1, 30_000, n_rows)]
    column = {
        "decimal128": pa.array(prices, pa.decimal128(10, 2)),
        "float64": pa.array([float(price) for price in prices]),
        "objects": None,
    }[kind]
    given = pd.DataFrame({"price": prices}) if column is None else pa.table({"price": column})
    drawn = IndependentSynthesizer(random_state=0).fit({"shop": given}).sample(500)["price"]
    assert (drawn == drawn.round(2)).all()


@pytest.mark.parametrize(
    ("values", "what"),
    [
        (pd.Series([2**70, 2**71] * 30, dtype=object), "beyond 64 bits"),
        (pd.cut(pd.Series(np.arange(60.0)), 3), "Interval"),
        (pd.Series(["\udcff", "a", None] * 20, dtype=object), "text that no file could hold"),
        (pd.Series([1, "a", None] * 20, dtype=object), "several types \\(int, str\\)"),
        (pd.Series([True, "a"] * 30, dtype=object), "several types \\(bool, str\\)"),
        (pd.Series([[1], [2]] * 30, dtype=object), "list"),
        (pd.Series(np.arange(60) % 3 * 1j), "complex"),
        (pd.Series(np.arange(60), dtype=np.longdouble), "longdouble"),
        (pd.Series([[1], [2]] * 30, dtype=pd.ArrowDtype(pa.list_(pa.int64()))), "list"),
        (pd.Series(pd.Categorical([1, "a"] * 30)), "several types"),
    ],
)
def test_what_cannot_be_written_is_refused_before_training(values, what):
    with pytest.raises(ColumnKindError, match=f"party 'lab', column 'x'.*{what}.*Fix"):
        IndependentSynthesizer().fit({"lab": pd.DataFrame({"x": values})})


def test_half_precision_of_arrow_is_computed_with_as_single():
    numbers = pa.array(np.arange(60, dtype=np.float16) / 4)
    frame = pd.DataFrame({"x": pd.arrays.ArrowExtensionArray(numbers)})
    made = IndependentSynthesizer(random_state=0).fit({"lab": frame}).sample(5)
    assert made["x"].dtype == np.float32


@pytest.mark.parametrize("dtype", [">i4", ">u8", ">f4", ">f8"])
def test_numbers_in_the_byte_order_of_other_machines_are_numbers(dtype):
    frame = pd.DataFrame({"x": np.arange(60, dtype=dtype)}).rename_axis("id")
    made = IndependentSynthesizer(random_state=0).fit({"lab": frame}).sample(60)
    assert made["x"].dtype == np.dtype(dtype).newbyteorder("=")
    assert evaluate(frame, made)["marginal_distance"].value < 0.5


def test_what_another_column_tells_is_refused_as_well():
    frame = pd.DataFrame({"g": list("ab") * 30, "x": pd.Series([1, "a"] * 30, dtype=object)})
    with pytest.raises(ColumnKindError, match=r"party 'lab', column 'x'.*several types"):
        IndependentSynthesizer().fit({"lab": frame})


@pytest.mark.parametrize("scale", [11, 18])
def test_decimals_of_many_digits_keep_their_scale(scale):
    numbers = np.random.default_rng(0).integers(1, 10 ** min(scale + 1, 15), 120)
    values = pa.array([Decimal(int(n)).scaleb(-scale) for n in numbers], pa.decimal128(38, scale))
    drawn = IndependentSynthesizer(random_state=0).fit({"lab": pa.table({"x": values})}).sample(300)
    assert (drawn["x"] == drawn["x"].round(scale)).all()


def test_durations_in_csv_are_iso_8601_and_those_of_pandas_are_read(tmp_path):
    spans = pd.to_timedelta(["1 days 02:03:04.5", None, "-1 days +23:58:30"])
    write_table(pd.DataFrame({"x": spans, "y": [1, 2, 3]}), tmp_path / "t.csv")
    assert "P1DT2H3M4.5S" in (tmp_path / "t.csv").read_text()
    assert read_table(tmp_path / "t.csv")["x"].tolist() == spans.tolist()
    pd.DataFrame({"x": spans.astype(str), "y": 1}).to_csv(tmp_path / "p.csv", index=False)
    found = read_table(tmp_path / "p.csv")["x"]
    assert found.dropna().tolist() == spans.dropna().tolist()


@pytest.mark.parametrize(
    "content",
    [
        b"sep=;\r\na;b\r\n1;x,y\r\n",
        "\ufeffsep=;\na;b\n1;x,y\n".encode(),
        "a;b\r\n1;x,y\r\n".encode("utf-16"),
        "\ufeffa;b\n1;x,y\n".encode("utf-16-be"),
        'sep=;\n"a";"b"\n1;"x,y"\n'.encode("utf-16"),
    ],
)
def test_what_excel_writes_is_read(content, tmp_path):
    (tmp_path / "t.csv").write_bytes(content)
    assert read_table(tmp_path / "t.csv").to_dict("list") == {"a": [1], "b": ["x,y"]}


def test_utf_16_without_a_mark_is_named(tmp_path):
    (tmp_path / "t.csv").write_bytes("a;b\n1;2\n".encode("utf-16-le"))
    with pytest.raises(TableFileError, match=r"zero bytes.*utf-16-le"):
        read_table(tmp_path / "t.csv")
    assert read_table(tmp_path / "t.csv", encoding="utf-16-le").to_dict("list") == {
        "a": [1],
        "b": [2],
    }


def test_digits_with_an_e_are_codes(tmp_path):
    (tmp_path / "t.csv").write_text("id,x\n10e5,1e5\n1234,2.5\n")
    with pytest.warns(match="'id'.*codes of digits and an e"):
        frame = read_table(tmp_path / "t.csv")
    assert frame["id"].tolist() == ["10e5", "1234"]
    assert frame["x"].tolist() == [1e5, 2.5]


def test_cells_of_several_types_are_the_text_that_csv_has(tmp_path):
    pytest.importorskip("openpyxl")
    table = pd.DataFrame(
        {
            "code": pd.Series([1, "A7", 2.5], dtype=object),
            "day": DAYS,
            "n": [1, 2, None],
            "t": [True, False, True],
        }
    )
    table.to_excel(tmp_path / "t.xlsx", index=False)
    frame = read_table(tmp_path / "t.xlsx")
    assert frame["code"].tolist() == ["1", "A7", "2.5"]
    assert frame["day"].tolist() == [pd.Timestamp(day) for day in DAYS]
    assert [family_of(frame[c].dtype) for c in ("n", "t")] == ["whole number", "truth value"]


def test_answers_of_a_database_have_the_same_types(tmp_path):
    sqlalchemy = pytest.importorskip("sqlalchemy")
    url = f"sqlite:///{tmp_path / 't.db'}"
    engine = sqlalchemy.create_engine(url)
    kinds = {"n": sqlalchemy.Integer, "price": sqlalchemy.Float, "name": sqlalchemy.Text}
    columns = [sqlalchemy.Column(name, kind) for name, kind in kinds.items()]
    made = sqlalchemy.Table("t", sqlalchemy.MetaData(), *columns)
    made.create(engine)
    with engine.begin() as connection:
        rows = [(1, 19.99, "007"), (None, 0.07, None), (3, None, "x")]
        connection.execute(made.insert(), [dict(zip(kinds, row, strict=True)) for row in rows])
    engine.dispose()
    (tmp_path / "t.toml").write_text(f'database = "{url}"\nquery = "select * from t"\n')
    frame = read_table(tmp_path / "t.toml")
    assert [family_of(d) for d in frame.dtypes] == ["whole number", "number", "text"]
    assert frame["price"].tolist()[:2] == [19.99, 0.07]


def test_what_arrow_has_no_type_for_is_named():
    pl = pytest.importorskip("polars")
    wide = pl.DataFrame({"x": [1, 2]}, schema={"x": pl.Int128})
    with pytest.raises(TableFileError, match=r"party 'bank'.*of polars cannot.*Fix: cast"):
        as_frame(wide, "bank")
