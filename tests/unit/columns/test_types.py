import numpy as np
import pandas as pd
import pytest

from vflsynth.columns import PublicSchema
from vflsynth.columns.types import with_public_types
from vflsynth.exceptions import ColumnKindError, PartyDataError, PrivacyParameterError


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
    assert with_public_types(frame, PublicSchema(dtypes="given")) is frame


@pytest.mark.parametrize(
    ("column", "values", "dtype"),
    [
        ("age", [1.5, 2.0, 3.0], "Int64"),
        ("age", [1.0, None, 3.0], "int64"),
        ("zip", ["a", "b", "c"], "float64"),
        ("since", ["never", "now", "then"], "datetime64[s]"),
    ],
)
def test_values_of_another_type_are_refused(column, values, dtype):
    schema = PublicSchema(dtypes=STATED | {column: dtype})
    with pytest.raises(ColumnKindError, match=column):
        with_public_types(table(**{column: values}), schema, party="lab")


@pytest.mark.parametrize("dtypes", ["inferred", 5, {"age": "no such type"}])
def test_malformed_types(dtypes):
    with pytest.raises(PrivacyParameterError, match="dtypes"):
        PublicSchema(dtypes=dtypes)


@pytest.mark.parametrize(
    "dtypes", ["given", {}, STATED, {"k": pd.CategoricalDtype([1, 2], ordered=True), 7: "str"}]
)
def test_a_schema_with_types_survives_json(dtypes):
    schema = PublicSchema(dtypes=dtypes)
    assert PublicSchema.from_dict(schema.to_dict()) == schema
