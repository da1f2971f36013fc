from contextlib import nullcontext
from decimal import Decimal
from io import StringIO

import numpy as np
import pandas as pd
import pytest

from vflsynth.codec import from_json, to_json
from vflsynth.columns import PublicSchema
from vflsynth.columns.public import with_public_types
from vflsynth.exceptions import (
    ColumnKindError,
    OwnTableWarning,
    PartyDataError,
    PrivacyParameterError,
)
from vflsynth.frames import read_table
from vflsynth.frames.keys import public_key_minters

pytestmark = pytest.mark.filterwarnings("ignore::vflsynth.exceptions.OwnTableWarning")


def table(**changed):
    columns = {
        "id": np.arange(3),
        "age": [40, 50, 60],
        "smoker": [True, False, True],
        "since": pd.to_datetime(["2020-01-01", "2021-01-01", "2022-01-01"]),
        "zip": ["a", "b", "c"],
        "dose": [0.5, 1.5, 2.5],
    }
    return pd.DataFrame(columns | changed)


STATED = {
    "id": "int64",
    "age": "Int64",
    "smoker": "boolean",
    "since": "datetime64[s]",
    "zip": "str",
    "dose": "float64",
}


def test_a_blank_does_not_change_types_that_are_stated():
    schema = PublicSchema(dtypes=STATED)
    whole = with_public_types(table(), schema)
    blanks = table(
        age=[40, None, 60], smoker=[True, None, True], zip=["a", None, "c"], dose=[1, 2, 3]
    )
    assert (blanks.dtypes != table().dtypes).any()
    assert (with_public_types(blanks, schema).dtypes == whole.dtypes).all()
    assert with_public_types(blanks, schema)["age"].isna().tolist() == [False, True, False]
    assert str(whole["age"].dtype) == "Int64"


def test_types_that_nobody_stated_are_refused_with_those_to_state():
    with pytest.raises(PartyDataError) as raised:
        with_public_types(table(), None, party="lab")
    assert "party 'lab'" in str(raised.value)
    proposed = (
        "PublicSchema(dtypes={'id': 'Int64', 'age': 'Int64', 'smoker': 'boolean', "
        "'since': 'datetime64[us]', 'zip': 'str', 'dose': 'float64'})"
    )
    assert proposed.replace("[us]", "") in str(raised.value).replace("[us]", "").replace("[s]", "")
    with pytest.raises(PartyDataError, match=r"\['dose'\]"):
        with_public_types(
            table(), PublicSchema(dtypes={k: STATED[k] for k in STATED if k != "dose"})
        )


def test_what_is_proposed_can_be_stated():
    frame = table(kind=pd.Categorical(["x", "y", "x"]), small=np.array([1, 2, 3], "uint8"))
    with pytest.raises(PartyDataError) as raised:
        with_public_types(frame, None)
    text = str(raised.value).split("PublicSchema(dtypes=")[1].split("})")[0] + "}"
    schema = PublicSchema(dtypes=eval(text))
    assert len(with_public_types(frame, schema)) == 3


def test_types_may_be_insisted_on():
    frame = table()
    pd.testing.assert_frame_equal(with_public_types(frame, PublicSchema(dtypes="given")), frame)


@pytest.mark.parametrize("dtypes", ["given", {"town": "category"}])
def test_which_category_came_first_is_not_published(dtypes):
    def categories(order):
        town = pd.Series(pd.Categorical(["c", "a", "b"], categories=order))
        schema = PublicSchema(dtypes=dtypes)
        return list(with_public_types(town.to_frame("town"), schema)["town"].cat.categories)

    assert categories(["b", "c", "a"]) == categories(["a", "b", "c"]) == ["a", "b", "c"]


def test_ordered_categories_keep_their_order():
    town = pd.Series(pd.Categorical(["low", "high"], categories=["low", "high"], ordered=True))
    typed = with_public_types(town.to_frame("town"), PublicSchema(dtypes="given"))
    assert list(typed["town"].cat.categories) == ["low", "high"]


@pytest.mark.parametrize("dtype", ["str", "category", "object"])
@pytest.mark.parametrize(
    "values", [[1, 2, 3], [1.0, None, 3.0], [True, False, True], pd.to_datetime(["2020-01-01"] * 3)]
)
def test_what_a_program_made_of_text_is_not_made_text_again(dtype, values):
    schema = PublicSchema(dtypes=STATED | {"zip": dtype})
    assert with_public_types(table(zip=values), schema)["zip"].isna().all()


@pytest.mark.parametrize("dtype", ["category", "object"])
def test_public_labels_stand_for_all_that_equal_them(dtype):
    schema = PublicSchema(categories={"zip": (3, 1, 2)}, dtypes=STATED | {"zip": dtype})
    for values in ([1, 2, 7], [1.0, 2.0, None]):
        typed = with_public_types(table(zip=values), schema)["zip"]
        assert [type(v) for v in typed.tolist()[:2]] == [int, int]
        assert typed.isna().tolist() == [False, False, True]
    assert with_public_types(table(zip=["1", "2", 1]), schema)["zip"].isna().tolist() == [1, 1, 0]


def test_the_type_of_an_index_that_nobody_stated_is_not_published():
    def kind(index):
        typed = with_public_types(table().set_axis(index), PublicSchema(dtypes=STATED))
        return public_key_minters({"lab": typed.index})["lab"]

    assert kind(pd.Index([5, 6, 7])) == kind(pd.Index(["5", "6", "A7"])) == kind(pd.RangeIndex(3))
    named = pd.Index(["5", "6", "7"], name="id_of_card")
    schema = PublicSchema(dtypes=STATED | {"id_of_card": "int64"})
    assert with_public_types(table().set_axis(named), schema).index.dtype == "int64"


@pytest.mark.parametrize(
    ("column", "values", "dtype", "known"),
    [
        ("age", [1.5, 2.0, 3.0], "Int64", [2, 3]),
        ("age", [1.0, None, 3.0], "int64", [1, 3]),
        ("age", [1.0, 2.0**60, 3.0], "Int64", [1, 3]),
        ("age", [1, 2, 300], "int8", [1, 2]),
        ("age", [Decimal("sNaN"), 1, 2], "Int64", [1, 2]),
        ("age", ["40", "4o", [50]], "Int64", [40]),
        ("smoker", ["yes", "no", "true"], "bool", [True]),
        ("smoker", [0, 1, 2], "boolean", [False, True]),
        ("zip", ["a", "-0.0", "0.0"], "float64", [0.0, 0.0]),
        ("since", ["never", "2020-01-02", 5], "datetime64[s]", [pd.Timestamp("2020-01-02")]),
    ],
)
def test_values_of_another_type_are_missing_and_end_no_run(column, values, dtype, known):
    """Whether there is one, a single record decides; the type is that of any other table."""
    schema = PublicSchema(dtypes=STATED | {column: dtype})
    found = with_public_types(table(**{column: values}), schema)[column]
    assert found.dropna().tolist() == known
    assert found.dtype == with_public_types(table(**{column: [None] * 3}), schema)[column].dtype


@pytest.mark.parametrize(
    ("dtype", "written"),
    [
        ("boolean", "1,0,1"),
        ("boolean", "1.0,0.0,1"),
        ("Int64", "1e3,2e3,4"),
        ("Int64", "True,False,TRUE"),
        ("float64", "True,False,true"),
    ],
)
def test_a_word_does_not_change_how_a_program_reads_the_others(dtype, written):
    """Beside it, pandas leaves them text."""
    schema, found = PublicSchema(dtypes={"x": dtype}), []
    for last in ("", "unknown"):
        frame = pd.read_csv(StringIO("\n".join(["x", *written.split(","), f'"{last}"'])))
        found.append(with_public_types(frame, schema)["x"])
    pd.testing.assert_series_equal(found[0].iloc[:3], found[1].iloc[:3])
    assert found[1].isna().tolist() == [False] * 3 + [True]


def test_a_file_with_such_a_value_is_read_as_one_without(tmp_path):
    dtypes = {"id": "int64", "age": "Int64", "dose": "float64", "since": "datetime64[s]"}
    read = []
    for name, last in {"one": "40,0.5,2020-01-01", "other": "forty,half a pill,long ago"}.items():
        path = tmp_path / f"{name}.csv"
        path.write_text(f"id,age,dose,since\n1,50,1.5,2021-01-01\n2,{last}\n")
        with pytest.raises(ColumnKindError) if name == "other" else nullcontext():
            read_table(path, dtypes=dtypes)
        read.append(read_table(path, dtypes=dtypes, unreadable="missing"))
    assert (read[0].dtypes == read[1].dtypes).all()
    assert read[1].isna().to_numpy()[:, 1:].tolist() == [[False] * 3, [True] * 3]


def test_the_owner_is_told_how_many_values_count_as_missing(tmp_path):
    said = (
        r"party 'lab', column 'age': 2 of 3 values are not of the type Int64 .* count as missing\. "
        r"Nobody else is told\. Fix: correct them, or state a type"
    )
    odd, schema = table(age=["x", 4, "y"]), PublicSchema(dtypes=STATED | {"age": "Int64"})
    with pytest.warns(OwnTableWarning, match=said):
        with_public_types(odd, schema, party="lab")
    odd.to_csv(tmp_path / "lab.csv", index=False)
    with pytest.warns(OwnTableWarning, match=said):
        read_table(tmp_path / "lab.csv", "lab", dtypes={"age": "Int64"}, unreadable="missing")


def test_a_key_must_be_of_its_type():
    with pytest.raises(ColumnKindError, match=r"party 'lab', column 'id'"):
        with_public_types(table(id=["1", "2", "x"]), PublicSchema(dtypes=STATED), "id", party="lab")


@pytest.mark.parametrize("dtypes", ["inferred", 5, {"age": "no such type"}])
def test_malformed_types(dtypes):
    with pytest.raises(PrivacyParameterError, match="dtypes"):
        PublicSchema(dtypes=dtypes)


@pytest.mark.parametrize(
    "dtypes", ["given", {}, STATED, {"k": pd.CategoricalDtype([1, 2], ordered=True), 7: "str"}]
)
def test_a_schema_with_types_survives_json(dtypes):
    schema = PublicSchema(dtypes=dtypes)
    assert from_json(to_json(schema)) == schema
