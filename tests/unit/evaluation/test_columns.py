import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vflsynth.contract import ColumnContract, Contract, PartyContract
from vflsynth.evaluation import (
    detection_auc,
    detection_score,
    evaluate,
    precision_and_recall,
    proximity,
    utility,
)
from vflsynth.evaluation.columns import (
    CategoricalColumn,
    NumericColumn,
    TableEncoder,
    is_categorical,
    party_of,
)
from vflsynth.exceptions import (
    ColumnKindError,
    ParameterError,
    PartyDataError,
    PublishingWarning,
    SharedColumnError,
    TooFewRecordsError,
)
from vflsynth.release import release_gate


def test_encodes_the_papers_way():
    # z-scores with ddof=1 and one-hot labels, as the paper's code does with the wine tables.
    real = pd.DataFrame({"acid": [1.0, 2.0, 3.0, 6.0], "quality": [5, 6, 5, 5]})
    encoded = TableEncoder(real, real, categorical=["quality"]).encode(real)
    scores = (real["acid"] - real["acid"].mean()) / real["acid"].std()
    expected = np.column_stack([scores, real["quality"] == 5, real["quality"] == 6])
    np.testing.assert_allclose(encoded, expected)


def test_missing_values_have_an_indicator():
    real = pd.DataFrame({"x": [1.0, 3.0, np.nan], "c": ["a", "b", None]})
    encoded = TableEncoder(real, real).encode(real)
    np.testing.assert_allclose(encoded[2], [0, 1, 0, 0, 1])
    np.testing.assert_allclose(encoded[:2, 1], 0)


def test_labels_and_gaps_that_only_the_synthetic_table_has_are_seen():
    real = pd.DataFrame({"x": [1.0, 2.0, 3.0], "c": ["a", "b", "a"]})
    synthetic = pd.DataFrame({"x": [np.nan, 2.0, 3.0], "c": ["z", None, "a"]})
    encoder = TableEncoder(real, synthetic)
    assert encoder.columns[1].labels == ["a", "b", "(other)", "(missing)"]
    np.testing.assert_allclose(encoder.encode(synthetic)[:, 1], [1, 0, 0])
    np.testing.assert_allclose(encoder.encode(synthetic)[:, 2:], np.eye(4)[[2, 3, 0]])


@pytest.mark.parametrize(
    ("real", "synthetic"),
    [
        (pd.Series(["3", "4"], dtype="category"), pd.Series(["3", "4"], dtype=object)),
        (pd.Series([3, 4], dtype="category"), pd.Series([3.0, 4.0])),
        (pd.Series([True, False]), pd.Series([True, False], dtype="boolean")),
        (pd.Series(["3", "4"], dtype="str"), pd.Series(["3", "4"], dtype="string")),
        (pd.Series([1, 2], dtype="int8"), pd.Series([1.0, 2.0])),
        (pd.Series([1, 2], dtype="Int16"), pd.Series([1, 2], dtype=object)),
        (
            pd.Series(pd.to_datetime(["2020-01-01", "2021-01-01"])),
            pd.Series(pd.to_datetime(["2020-01-01", "2021-01-01"])).astype("datetime64[s]"),
        ),
        (
            pd.Series(pd.to_datetime(["2020-01-01", "9999-01-01"])).astype("datetime64[us]"),
            pd.Series(["2020-01-01", "9999-01-01"], dtype="date32[day][pyarrow]"),
        ),
        (
            pd.Series(["2020-01-01", "2021-01-01"], dtype="timestamp[us][pyarrow]"),
            pd.Series(pd.to_datetime(["2020-01-01", "2021-01-01"])),
        ),
        (
            pd.Series(["2019-12-31 23:00", "2021-01-01"], dtype="timestamp[ms, tz=UTC][pyarrow]"),
            pd.Series(pd.to_datetime(["2020-01-01 00:00+01:00", "2021-01-01 01:00+01:00"])),
        ),
        (
            pd.Series(pd.to_timedelta([1, 2], unit="h")),
            pd.Series(pd.to_timedelta([60, 120], unit="m")),
        ),
        (
            pd.Series(pd.to_timedelta([1, 2], unit="h")),
            pd.Series(pd.to_timedelta([1, 2], unit="h")).astype("duration[s][pyarrow]"),
        ),
        (
            pd.Series(pd.to_timedelta([1, 2000], unit="D")),
            pd.Series(pd.to_timedelta([1, 2000], unit="D")).astype("duration[ns][pyarrow]"),
        ),
        (
            pd.Series(["2020-01-01", "2021-01-01"], dtype="timestamp[ns][pyarrow]"),
            pd.Series(pd.PeriodIndex(["2020-01-01", "2021-01-01"], freq="D")),
        ),
    ],
    ids=lambda series: str(series.dtype),
)
def test_equal_values_encode_equally_whatever_their_type(real, synthetic):
    real, synthetic = real.to_frame("x"), synthetic.to_frame("x")
    encoder = TableEncoder(real, synthetic)
    np.testing.assert_array_equal(encoder.encode(real), encoder.encode(synthetic))
    assert np.ptp(encoder.encode(real), axis=0).max() > 0


TEXT = [
    pd.Series(["0", "1", None, "1"], dtype=kind) for kind in (object, "str", "string", "category")
]
OTHERS = [
    pd.Series([0, 1, 0, 1]),
    pd.Series([0.0, 1.0, np.nan, 1.0]),
    pd.Series([0, 1, None, 1], dtype="Int64"),
    pd.Series([0, 1, None, 1], dtype=object),
    pd.Series([0, 1, None, 1], dtype="category"),
    pd.Series([False, True, None, True], dtype="boolean"),
    pd.Series(pd.to_datetime(["2020-01-01"] * 4)),
    pd.Series(["2020-01-01"] * 4, dtype="date32[day][pyarrow]"),
]


@pytest.mark.parametrize("text", TEXT, ids=lambda series: str(series.dtype))
@pytest.mark.parametrize("other", OTHERS, ids=lambda series: str(series.dtype))
def test_labels_that_are_text_in_one_table_only_are_refused(text, other):
    # A csv file turns labels "0" and "1" into numbers, which are no real label.
    first, second = pd.DataFrame({"zip": text}), pd.DataFrame({"zip": other})
    with pytest.raises(ColumnKindError, match=r"'zip': text .* real table, but .* synthetic.*csv"):
        TableEncoder(first, second)
    with pytest.raises(ColumnKindError, match="in the held-out table"):
        TableEncoder(first, first, holdout=second)
    for categorical in ([], ["zip"]):
        with pytest.raises(ColumnKindError, match=r"in the real table, but text of type .*parquet"):
            TableEncoder(second, first, categorical=categorical)


TIMES = pd.Series(pd.to_datetime(["2020-01-01", "2021-01-01"]))


@pytest.mark.parametrize(
    ("first", "second", "kinds"),
    [
        (TIMES, pd.Series([1577836800, 1609459200]), "times .* numbers"),
        (TIMES, TIMES - TIMES[0], "times .* durations"),
        (TIMES - TIMES[0], pd.Series([0.0, 31622400.0]), "durations .* numbers"),
        (TIMES.astype("date32[day][pyarrow]"), pd.Series([18262, 18628]), "times .* numbers"),
    ],
    ids=lambda each: str(getattr(each, "dtype", each)),
)
def test_times_are_not_compared_with_numbers_nor_with_durations(first, second, kinds):
    first, second = pd.DataFrame({"x": first}), pd.DataFrame({"x": second})
    with pytest.raises(ColumnKindError, match=kinds):
        TableEncoder(first, second)
    with pytest.raises(ColumnKindError, match="in the synthetic table"):
        TableEncoder(second, first)


@pytest.mark.parametrize(
    ("real", "synthetic"),
    [
        (["a", "b"], pd.Series([np.nan, np.nan])),
        (pd.Series([None, None], dtype="str"), [1, 2]),
        (["a", 1], [1, 2]),
        (pd.Series(["a", "b"], dtype=object), pd.Series([True, False], dtype=object)),
        ([True, False], [1, 0]),
        (pd.Series(["a", "b"], dtype="category"), pd.Series(["a", None], dtype="string")),
    ],
)
def test_labels_that_can_be_compared_are(real, synthetic):
    real, synthetic = pd.DataFrame({"c": real}), pd.DataFrame({"c": synthetic})
    encoder = TableEncoder(real, synthetic)
    assert np.isfinite(encoder.encode(synthetic)).all()


@pytest.mark.parametrize("kind", ["str", object, "category"])
def test_codes_that_lost_their_zeros_are_warned_of(kind):
    real = pd.DataFrame({"zip": pd.Series(["01067", "80331", "0", None], dtype=kind)})
    with pytest.warns(PublishingWarning, match=r"'zip': codes .* synthetic table without the zero"):
        TableEncoder(real, pd.DataFrame({"zip": ["1067", "80331"]}))
    with warnings.catch_warnings(action="error"):
        TableEncoder(real, real.head(2))
        TableEncoder(real.assign(zip=["1067", "01067", "80331", "0"]), real)


def test_labels_and_gaps_that_only_held_out_rows_have_are_seen():
    real = pd.DataFrame({"x": [1.0, 2.0], "c": ["a", "b"]})
    holdout = pd.DataFrame({"x": [np.nan, 2.0], "c": ["z", None]})
    encoder = TableEncoder(real, real, holdout=holdout)
    assert encoder.columns[0].marks_missing
    assert encoder.columns[1].labels == ["a", "b", "(other)", "(missing)"]
    with pytest.raises(PartyDataError, match=r"column 'c': the held-out table has no such"):
        TableEncoder(real, real, holdout=holdout[["x"]])


def test_dates_of_any_kind_meet_in_a_holdout_table():
    naive = pd.Series(pd.date_range("2020", periods=4))
    tables = [
        pd.DataFrame({"t": column})
        for column in (
            naive.astype("timestamp[us][pyarrow]"),
            naive,
            naive.dt.tz_localize("UTC").astype("timestamp[us, tz=UTC][pyarrow]"),
        )
    ]
    encoder = TableEncoder(*tables[:2], holdout=tables[2])
    for table in tables[1:]:
        np.testing.assert_array_equal(encoder.encode(table), encoder.encode(tables[0]))


def test_times_without_a_zone_beside_others_are_said_to_be_read_as_utc():
    naive = pd.Series(pd.date_range("2020", periods=4))
    zoned = pd.DataFrame({"t": naive.dt.tz_localize("Europe/Berlin")})
    with pytest.warns(PublishingWarning, match=r"'t': times have a time zone in one .* as UTC"):
        TableEncoder(zoned, naive.to_frame("t"))


def test_rare_labels_share_one_feature():
    labels = [f"l{i:02}" for i in range(60) for _ in range(1 + (i < 50))]
    real = pd.DataFrame({"c": labels})
    encoder = TableEncoder(real, real)
    assert encoder.columns[0].width == 51
    assert encoder.encode(real).sum(axis=0)[-1] == 10
    assert "60 labels" in encoder.notes[0]


numbers = st.floats(allow_nan=True, allow_infinity=True, width=64)


@given(st.lists(numbers, min_size=2, max_size=30), st.lists(numbers, min_size=2, max_size=30))
@settings(max_examples=200, deadline=None)
def test_any_floats_encode_to_finite_features(values, others):
    real, synthetic = pd.DataFrame({"x": values}), pd.DataFrame({"x": others})
    encoder = TableEncoder(real, synthetic)
    for frame in (real, synthetic):
        assert np.isfinite(encoder.encode(frame)).all()


def test_a_constant_is_left_unscaled_and_noted():
    real = pd.DataFrame({"x": [7.0, 7.0, 7.0]})
    encoder = TableEncoder(real, real + 1)
    np.testing.assert_allclose(encoder.encode(real + 1), 1.0)
    assert "single value" in encoder.notes[0]


def test_wild_values_are_cut_off_and_noted():
    real = pd.DataFrame({"x": [0.0, 1.0, 2.0]})
    synthetic = pd.DataFrame({"x": [0.0, 1e300, 2.0]})
    encoder = TableEncoder(real, synthetic)
    assert encoder.encode(synthetic).max() == 1e6
    assert "1 synthetic values lie beyond" in encoder.notes[0]


def test_kinds():
    frame = pd.DataFrame(
        {
            "whole": [1, 2],
            "decimal objects": pd.Series([1, 2.5], dtype=object),
            "flag": [True, False],
            "text": ["a", "b"],
            3: pd.Categorical([1, 2]),
            "imaginary": [1j, 2j],
        }
    )
    kinds = {column.name: type(column) for column in TableEncoder(frame, frame).columns}
    assert kinds == {
        "whole": NumericColumn,
        "decimal objects": NumericColumn,
        "flag": CategoricalColumn,
        "text": CategoricalColumn,
        3: CategoricalColumn,
        "imaginary": CategoricalColumn,
    }


def test_a_column_that_is_named_twice_counts_once():
    real = pd.DataFrame({"a": [1.0, 2.0, 4.0], "b": ["x", "y", "x"]})
    found, expected = (evaluate(real, real[::-1], columns=c) for c in (list("aba"), list("ab")))
    assert found.to_json() == expected.to_json()


def test_tables_that_cannot_be_compared_are_refused_by_name():
    real = pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]})
    with pytest.raises(
        PartyDataError, match=r"column 'b'.*no such column. Fix: drop it if it is the key"
    ):
        TableEncoder(real, real[["a"]])
    with pytest.raises(PartyDataError, match=r"columns that the real table has not: \['c'\]"):
        TableEncoder(real, real.assign(c=1))
    with pytest.raises(PartyDataError, match="more than once"):
        TableEncoder(real, pd.concat([real, real[["a"]]], axis=1))
    with pytest.raises(TooFewRecordsError, match="synthetic table has 1 rows"):
        TableEncoder(real, real.head(1))
    with pytest.raises(ColumnKindError, match=r"column 'a': numbers .* real table, but text"):
        TableEncoder(real, real.assign(a=["one", "two"]))
    with pytest.raises(ColumnKindError, match="column 'a': numeric in the real table"):
        TableEncoder(real, real.assign(a=["one", 2]))
    with pytest.raises(ColumnKindError, match=r"column 'b'.*cannot be counted"):
        TableEncoder(real.assign(b=[[1], [2]]), real.assign(b=[[1], [2]]))
    with pytest.raises(PartyDataError, match=r"named in categorical= \(--categorical\)"):
        TableEncoder(real, real, categorical=["z"])
    with pytest.raises(ParameterError, match="random_state must be a whole number ≥ 0, got None"):
        evaluate(real, real, random_state=None)
    with pytest.raises(ParameterError, match="metrics must be a list of TableMetric objects"):
        evaluate(real, real, metrics=["frechet"])
    with pytest.raises(PartyDataError, match="synthetic table must be a DataFrame, not ndarray"):
        TableEncoder(real, real.to_numpy())
    with pytest.raises(PartyDataError, match="pass one table; of parties, one of all columns"):
        release_gate({"lab": real}, real)


@pytest.mark.parametrize("most", [0, -1, 2.5, "all"])
@pytest.mark.parametrize(
    "measure", [detection_auc, detection_score, precision_and_recall, proximity, utility]
)
def test_a_largest_number_of_rows_is_one_or_none(measure, most):
    real = pd.DataFrame({"a": range(50), "b": [0, 1] * 25})
    known = {"target": "b"} if measure is utility else {}
    with pytest.raises(ParameterError, match="max_rows must be None or a whole number ≥ 1"):
        measure(real, real, max_rows=most, **known)


@pytest.mark.parametrize("which", ["columns", "categorical"])
@pytest.mark.parametrize("wrong", ["ab", 3])
def test_what_is_no_list_of_columns_is_refused(which, wrong):
    real = pd.DataFrame({"a": range(50), "b": [0, 1] * 25})
    with pytest.raises(
        ParameterError, match=rf"{which} must be a list of columns, .* got {wrong!r}"
    ):
        evaluate(real, real, **{which: wrong})
    with pytest.raises(ParameterError, match="parties must be a mapping of party to columns"):
        evaluate(real, real, parties=["a"])


def test_every_column_has_one_owner():
    with pytest.raises(SharedColumnError, match="party 'lab', column 'a'"):
        party_of(["a"], {"clinic": ["a"], "lab": ["a"]})
    with pytest.raises(PartyDataError, match=r"column 'b'.*belongs to no party"):
        party_of(["a", "b"], {"clinic": ["a"]})
    assert party_of(["a"], {"clinic": ["a", "elsewhere"]}) == {"a": "clinic"}


@pytest.mark.parametrize(
    ("values", "dtype", "labels"),
    [
        ([True, False], bool, True),
        (["a", None], "string", True),
        ([1, 2], "category", True),
        ([1, 2, None], object, False),
        ([1, "a"], object, True),
        ([1, 2], "int64", False),
        (["2020-01-01"], "datetime64[s]", False),
        ([5], "timedelta64[ns]", False),
        (["2020-01-01"], "date32[pyarrow]", False),
    ],
)
def test_columns_of_labels(values, dtype, labels):
    column = pd.Series(values, dtype=dtype, name="x")
    assert is_categorical(column) is labels


@pytest.mark.parametrize("dtype", ["int64", "uint64", "Int64"])
def test_whole_numbers_beyond_the_floats_are_judged_as_small_ones_are(dtype):
    """Neighbours are far from equal, in metrics and in the clauses of a release."""
    rng = np.random.default_rng(0)
    label = rng.choice(list("ab"), 300)
    pair = [pd.DataFrame({"id": rng.integers(100, 300, 300), "label": label}) for _ in range(2)]
    roles = {name: ColumnContract(role="quasi-identifier") for name in ("id", "label")}
    contract = Contract(parties={"lab": PartyContract(columns=roles)})
    found = []
    for origin in (0, 2**60):
        tables = [t.assign(id=pd.array(t["id"] + origin, dtype=dtype)) for t in pair]
        dossier = release_gate(*tables, contract=contract)
        clauses = {clause.name: clause.value for clause in dossier.clauses}
        metrics = {name: result.value for name, result in dossier.evaluation.items()}
        found.append((metrics, clauses))
    for small, large in zip(*found):
        assert large == pytest.approx(small)
