import json
import math
from datetime import date, datetime, timedelta

import numpy as np
import pandas as pd
import pytest

from vflsynth.codec import from_json, to_json
from vflsynth.columns.schema import Bounds, Categories, PublicSchema
from vflsynth.exceptions import PrivacyParameterError


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
        lambda: Categories((pd.Interval(0, 1), pd.Interval(1, 2))),
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
    again = from_json(json.loads(json.dumps(to_json(schema))))
    assert again["a", 1] == bounds
    assert again[3] == schema[3]
    assert again.get("nobody") is None
