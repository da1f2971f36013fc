"""What is public about a column: kinds, bounds of times, and what contradicts each other."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from vflsynth.columns import (
    Bounds,
    Categories,
    ColumnTransformer,
    NoisyHistogram,
    PublicSchema,
    TableTransformer,
)
from vflsynth.columns.kinds import public_columns
from vflsynth.columns.table import check_public
from vflsynth.exceptions import ArtefactError, ColumnKindError, ParameterError


def known(column, listed=None, kind=None):
    """What is public about a column `x` of which a schema says `listed`."""
    schema = PublicSchema()
    if isinstance(listed, tuple):
        schema = PublicSchema(bounds={"x": listed})
    elif listed is not None:
        schema = PublicSchema(categories={"x": listed})
    frame = pd.DataFrame({"x": column})
    ((_, public),) = public_columns(frame, schema, {"x": kind} if kind else {}).values()
    return public


def decode(column, listed=None, kind=None, at=(-1e-6, 0.37, 1.0 + 1e-6)):
    """Decode numbers between the public bounds, and beyond them by what float32 rounds."""
    frame = pd.DataFrame({"x": column})
    histogram = NoisyHistogram.uninformed(known(column, listed, kind), 8)
    table = TableTransformer.from_histograms(frame, {"x": histogram})
    mean, std = histogram.mean_and_std()
    places = np.array(at) * (histogram.column.high - histogram.column.low) + histogram.column.low
    matrix = ((places - mean) / std).astype(np.float32)[:, np.newaxis]
    restored = TableTransformer.from_dict(json.loads(json.dumps(table.to_dict())))
    return restored.inverse_transform(matrix)["x"]


TIMES = pd.Series(pd.to_datetime(["2021-05-06 07:08:09.123456789", None]))


@pytest.mark.parametrize("arrow", [False, True])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin", "Asia/Kolkata"])
def test_times_between_dates_are_whole_days_of_their_zone(unit, zone, arrow):
    dtype = f"datetime64[{unit}, {zone}]" if zone else f"datetime64[{unit}]"
    if arrow:
        dtype = pd.ArrowDtype(pa.timestamp(unit, zone))
    column = TIMES.dt.as_unit(unit).dt.tz_localize(zone).astype(dtype)
    days = decode(column, ("2020-01-01", "2020-12-31"), at=np.linspace(0, 1, 200))
    assert days.dtype == dtype
    assert (days == days.dt.normalize()).all()
    assert days.min() == pd.Timestamp("2020-01-01", tz=zone)
    assert days.max() == pd.Timestamp("2020-12-31", tz=zone)
    assert days.nunique() == 200


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_between_times_keep_the_resolution_of_their_type(unit):
    times = decode(TIMES.dt.as_unit(unit), ("2020-01-01 06:00", "2020-01-01 06:00:10"))
    assert times.dtype == f"datetime64[{unit}]"
    assert times.iloc[[0, 2]].tolist() == [
        pd.Timestamp("2020-01-01 06:00"),
        pd.Timestamp("2020-01-01 06:00:10"),
    ]
    error = abs(times[1] - pd.Timestamp("2020-01-01 06:00:03.7"))
    assert error <= pd.Timedelta("0.5s" if unit == "s" else "1ms")


def test_nanoseconds_between_close_bounds_are_exact():
    """Float64 has 256 ns between times since 1970; counts from the lower bound are exact."""
    low = pd.Timestamp("2024-01-01 00:00:00.000000001")
    bounds = known(TIMES.dt.as_unit("ns"), (low, low + pd.Timedelta(1000, "ns")))
    histogram = NoisyHistogram.uninformed(bounds, 8)
    column = pd.Series(low + pd.to_timedelta(np.arange(1001), "ns")).dt.as_unit("ns")
    decoded = histogram.decode_numeric(histogram.encode(column)[:, 0])
    assert np.rint(decoded).tolist() == list(range(1001))


def test_integers_beyond_float64_are_exact():
    low = 2**62 + 1
    decoded = decode(pd.Series([low]), (low, low + 4), at=(0, 0.25, 0.5, 1))
    assert decoded.tolist() == [low, low + 1, low + 2, low + 4]


def test_bounds_between_counts_go_to_the_inner_ones():
    times = TIMES.dt.as_unit("s")
    bounds = known(times, ("2020-01-01 00:00:00.7", "2020-01-01 00:00:05.2"))
    assert bounds == Bounds(0, 4, pd.Timestamp("2020-01-01 00:00:01").timestamp(), 1)


def test_times_without_a_zone_are_in_the_columns():
    berlin = TIMES.dt.tz_localize("Europe/Berlin")
    local, utc = (
        known(berlin, ends)
        for ends in (
            ("2020-07-01 02:00", "2020-07-02 02:00"),
            ("2020-07-01 00:00Z", "2020-07-02 00:00+00:00"),
        )
    )
    assert local == utc


def test_durations_have_bounds_too():
    column = pd.Series(pd.to_timedelta([1, None], "s"))
    low, inside, high = decode(column, ("0 days", "2 days"))
    assert (low, high) == (pd.Timedelta(0), pd.Timedelta(2, "D"))
    assert abs(inside - 0.37 * high) < pd.Timedelta(1, "s")


@pytest.mark.parametrize(
    ("column", "listed", "kind", "words"),
    [
        (TIMES, (0, 10), None, r"bounds \(0, 10\) do not fit.*two times"),
        (TIMES, ("0 days", "1 days"), None, "do not fit.*two times"),
        (TIMES, ("2020-01-01 00:00Z", "2020-01-02 00:00Z"), None, "time zone UTC.*none"),
        (TIMES.dt.as_unit("ns"), ("1000-01-01", "2020-01-01"), None, "cannot hold"),
        (TIMES - TIMES[0], ("2020-01-01", "2020-01-02"), None, "two durations"),
        (pd.Series([1.5]), ("2020-01-01", "2020-01-02"), None, "are times.*two numbers"),
        (pd.Series([1], dtype="int8"), (0, 200), None, "cannot hold"),
        (pd.Series([1.0], dtype="float16"), (0, 1e5), None, "cannot hold"),
        (pd.Series([1.0]), (0.2, 0.8), "integer", "cannot hold"),
        (pd.Series([1]), (0, 9), "categorical", "gives bounds, and the column is categorical"),
        (pd.Series([1]), (0, 9), "boolean", "gives bounds, and the column is boolean"),
        (pd.Series([True]), (0, 9), None, "gives bounds, and the column is boolean"),
        (pd.Series([1]), [0, 9], "integer", "lists categories, and the column is integer"),
        (TIMES, [TIMES[0]], "datetime", "lists categories, and the column is datetime"),
        (pd.Series([1]), [0, 9], "boolean", "1 of its values are neither"),
        (pd.Series(["a"]), None, "boolean", "cannot hold"),
        (pd.Series(["a"]), (0, 9), None, "gives bounds"),
        (pd.Series(["a"]), None, "continuous", "not numeric"),
        (pd.Series([1]), None, "datetime", "not a datetime"),
        (pd.Series([1]), None, "number", "unknown kind 'number'"),
        (pd.Series([1j]), None, None, "dtype complex128"),
        (pd.Series(pd.cut([1.0, 2.0], 2)), None, None, "values of type Interval have no JSON form"),
    ],
)
def test_contradictions_name_the_column_and_a_fix(column, listed, kind, words):
    with pytest.raises(ColumnKindError, match=rf"(?s)column 'x': .*{words}.*") as error:
        known(column, listed, kind)
    assert error.value.fix


def test_undeclared_columns_are_of_the_kind_that_type_and_schema_say():
    assert known(pd.Series([1, 2])) is None
    assert known(pd.Series([True, False])) == Categories((False, True))
    assert known(pd.Series([1, 2]), [1, 2, 3]) == Categories((1, 2, 3))
    assert known(pd.Series([1, 2]), (1, 3)) == Bounds(1, 3, step=1)
    assert known(pd.Series([1.0, 2.0]), (1, 3)) == Bounds(1, 3)
    assert known(pd.Series([1.0, 2.0]), (1, 3), "integer") == Bounds(1, 3, step=1)
    assert known(pd.Series([0.0, 1.0]), None, "boolean") == Categories((0, 1))


def test_the_kind_of_an_encoded_column_is_told():
    frame = pd.DataFrame(
        {"code": [10, 20], "n": [1.0, 2.0], "yes": [True, False], "on": TIMES, "size": [1.5, 2.5]}
    )
    schema = PublicSchema(
        bounds={"n": (0, 9), "on": ("2020-01-01", "2021-01-01"), "size": (0, 9)},
        categories={"code": [10, 20]},
    )
    public = public_columns(frame, schema, {"n": "integer"})
    histograms = {
        label: NoisyHistogram.uninformed(column, 8) for label, (_, column) in public.items()
    }
    table = TableTransformer.from_histograms(frame, histograms)
    assert table.kinds_ == {
        "code": "categorical",
        "n": "integer",
        "yes": "boolean",
        "on": "datetime",
        "size": "continuous",
    }


def test_an_ordered_column_is_in_the_order_of_the_schema():
    column = pd.Series(["lo", "hi"], dtype=pd.CategoricalDtype(["hi", "lo"], ordered=True))
    histogram = NoisyHistogram.uninformed(known(column, ["lo", "mid", "hi"]), 8)
    table = TableTransformer.from_histograms(column.to_frame("x"), {"x": histogram})
    decoded = table.inverse_transform(np.eye(3, dtype=np.float32))["x"]
    assert decoded.tolist() == ["lo", "mid", "hi"]
    assert decoded.min() == "lo"


def test_a_kind_of_somebody_elses_needs_the_records_unless_it_says_otherwise(monkeypatch):
    class Own(ColumnTransformer):
        kind = "own"

    monkeypatch.setattr("vflsynth.columns.kinds.TRANSFORMERS", {"own": Own})
    with pytest.raises(ColumnKindError, match="kind 'own' cannot be encoded by public knowledge"):
        known(pd.Series([1]), kind="own")


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"continuous": "quantile"}, r"continuous: NormalScores\(\).*from the records.*'standard'"),
        ({"encoders": {"x": "ranks"}}, r"encoders\['x'\]: Ranks\(\).*from the records"),
        ({"spike_share": 0.2}, "spike_share=0.2.*read off the records"),
        ({"rare_threshold": 0.1}, "rare_threshold=0.1"),
    ],
)
def test_parameters_that_need_the_records_are_refused_by_name(parameters, words):
    with pytest.raises(ParameterError, match=words):
        check_public(TableTransformer(**parameters))


def test_parameters_that_hold_anyway_are_not_refused():
    check_public(TableTransformer({"x": "categorical"}, spike_share=None, rare_threshold=0.0))


@pytest.mark.parametrize("lost", ["lows", "exponent", "curve"])
def test_a_state_without_what_was_released_is_refused(lost):
    histogram = NoisyHistogram.uninformed(Bounds(0.0, 1.0), 8)
    frame = pd.DataFrame({"x": [0.5]})
    content = TableTransformer.from_histograms(frame, {"x": histogram}).to_dict()
    del content["transformers"][0]["state"][lost]
    with pytest.raises(ArtefactError, match=lost):
        TableTransformer.from_dict(content)
