import json
import math
from datetime import date, datetime, timedelta

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vflsynth.columns.schema import Bounds, Categories, PublicSchema, cell_codes, n_cells
from vflsynth.exceptions import PrivacyParameterError

anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=4),
    st.just(pd.NA),
    st.just(pd.NaT),
    st.dates(),
    st.complex_numbers(max_magnitude=10),
    st.binary(max_size=3),
)
columns = [Bounds(-1.0, 1.0), Categories(("a", "b", 1, 2.5))]


@pytest.mark.parametrize("column", columns)
@given(values=st.lists(anything, max_size=20), n_bins=st.integers(1, 40))
def test_every_record_is_in_exactly_one_cell(column, values, n_bins):
    codes = cell_codes(pd.Series(values, dtype=object), column, n_bins)
    assert codes.shape == (len(values),)
    assert ((codes >= 0) & (codes < n_cells(column, n_bins))).all()


def test_numeric_cells():
    values = pd.Series([-5.0, 0.0, 0.24, 0.25, 0.999, 1.0, 7.0, np.nan, np.inf, -np.inf, "x"])
    codes = cell_codes(values, Bounds(0.0, 1.0), 4)
    assert codes.tolist() == [0, 0, 0, 1, 3, 3, 3, 4, 3, 0, 4]


@pytest.mark.parametrize(
    "values",
    [
        pd.Series(["no", "yes", None, "maybe"], dtype=object),
        pd.Series(["no", "yes", None, "maybe"], dtype="string"),
        pd.Series(["no", "yes", None, "maybe"], dtype="category"),
    ],
)
def test_categorical_cells(values):
    assert cell_codes(values, Categories(("no", "yes")), 9).tolist() == [0, 1, 2, 2]


def test_categorical_cells_of_what_cannot_be_a_category():
    values = pd.Series(["a", ["a"], {1: 2}, (1, ["a"]), (1, 2)], dtype=object)
    assert cell_codes(values, Categories(("a",)), 9).tolist() == [0, 1, 1, 1, 1]
    assert cell_codes(values, Categories(((1, 2), (3, 4))), 9).tolist() == [2, 2, 2, 2, 0]


def test_categorical_cells_of_numbers():
    values = pd.Series([3, 4, None, 9], dtype="Int64")
    assert cell_codes(values, Categories((4, 3)), 9).tolist() == [1, 0, 2, 2]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Bounds(1.0, 1.0),
        lambda: Bounds(2.0, 1.0),
        lambda: Bounds(0.0, math.inf),
        lambda: Bounds(math.nan, 1.0),
        lambda: Categories(()),
        lambda: Categories(("a", "a")),
        lambda: Categories((1, True)),
        lambda: Categories(("a", None)),
        lambda: PublicSchema(bounds={"x": (0, 1)}, categories={"x": ["a"]}),
        lambda: PublicSchema(bounds={"x": (1, 0)}),
        lambda: PublicSchema(categories={"x": []}),
        lambda: PublicSchema(categories={"sex": "male"}),
        lambda: PublicSchema(categories={"sex": 3}),
        lambda: PublicSchema(bounds={"a": ("0", "200")}),
        lambda: PublicSchema(bounds={"a": "02"}),
        lambda: PublicSchema(bounds={"a": 5}),
        lambda: PublicSchema(bounds={"a": (1, 2, 3)}),
        lambda: PublicSchema(bounds={"a": (-1e301, 1e301)}),
        lambda: PublicSchema(bounds={"a": (math.nan, 1.0)}),
        lambda: PublicSchema(bounds={"a": ("2020-02-01", "2020-01-31")}),
        lambda: PublicSchema(bounds={"a": ("2020-01-01", 5)}),
        lambda: PublicSchema(bounds={"a": ("2020-01-01", "5 days")}),
        lambda: PublicSchema(bounds={"a": ("2020-01-01 00:00Z", "2020-01-02 00:00")}),
        lambda: PublicSchema(bounds={"a": ("2020-13-01", "2020-14-01")}),
        lambda: PublicSchema(bounds={"a": ("low", "high")}),
        lambda: PublicSchema(bounds={"a": (pd.NaT, pd.Timestamp("2020-01-01"))}),
        lambda: Bounds(0.0, 1e-200),
    ],
)
def test_malformed_schemas(make):
    with pytest.raises(PrivacyParameterError):
        make()


def test_a_column_outside_the_schema_is_refused():
    schema = PublicSchema(bounds={"age": (0, 120)}, categories={"smoker": ["no", "yes"]})
    assert schema["age"] == Bounds(0, 120)
    assert schema["smoker"] == Categories(("no", "yes"))
    with pytest.raises(PrivacyParameterError, match="public bounds or a public list"):
        schema["income"]


@pytest.mark.parametrize("column", columns)
@given(values=st.lists(anything, min_size=1, max_size=6), odd=anything)
def test_a_record_does_not_change_how_the_others_are_read(column, values, odd):
    alone = cell_codes(pd.Series(values, dtype=object), column, 8)
    beside = cell_codes(pd.Series([*values, odd], dtype=object), column, 8)
    assert alone.tolist() == beside[:-1].tolist()


@pytest.mark.parametrize(
    ("ends", "read"),
    [
        (("2020-01-01", "2020-02-01"), (date(2020, 1, 1), date(2020, 2, 1))),
        ((date(2020, 1, 1), date(2020, 2, 1)), (date(2020, 1, 1), date(2020, 2, 1))),
        (("2020-01-01", "2020-02-01T12:00"),
         (pd.Timestamp("2020-01-01"), pd.Timestamp("2020-02-01 12:00"))),
        ((datetime(2020, 1, 1), np.datetime64("2020-02-01T00")),
         (pd.Timestamp("2020-01-01"), pd.Timestamp("2020-02-01"))),
        (("-3 days", timedelta(hours=1)), (pd.Timedelta(-3, "D"), pd.Timedelta(1, "h"))),
        ((np.int8(-128), np.int8(127)), (-128, 127)),
    ],
)  # fmt: skip
def test_ends_are_read_from_any_form(ends, read):
    bounds = Bounds(*ends)
    assert bounds.ends == read
    schema = PublicSchema(bounds={("a", 1): ends}, categories={3: [read[0], "x"]})
    again = PublicSchema.from_dict(json.loads(json.dumps(schema.to_dict())))
    assert again["a", 1] == bounds
    assert again[3] == schema[3]
    assert again.get("nobody") is None
