import json

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from vflsynth.columns import OutputSpan, TableTransformer
from vflsynth.exceptions import (
    ArtefactError,
    ColumnKindError,
    ColumnMismatchError,
    EmptyColumnError,
    EncodedMatrixError,
    InfiniteValueError,
    ParameterError,
    PartyDataError,
    TooFewRecordsError,
    UnseenValueError,
)


@pytest.fixture
def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "constant": 1,
            "age": [31.5, np.nan, 48.25, 20.0],
            "sex": ["f", "m", "f", "f"],
            "visits": [3, 70, 9, 12],
        },
        index=pd.Index([9, 7, 5, 3], name="patient"),
    )


def test_spans_cover_the_matrix(frame: pd.DataFrame) -> None:
    table = TableTransformer(kinds={"visits": "integer"}).fit(frame)
    assert table.spans_ == (
        OutputSpan(0, 1, "identity", "age", "value", gate=1),
        OutputSpan(1, 2, "softmax", "age", "state"),
        OutputSpan(3, 2, "softmax", "sex", "category"),
        OutputSpan(5, 1, "identity", "visits", "value"),
    )
    assert table.width_ == 6
    assert table.kinds_ == {
        "constant": "categorical",
        "age": "continuous",
        "sex": "categorical",
        "visits": "integer",
    }


def test_labels_order_dtypes_and_name_of_the_index_come_back(frame: pd.DataFrame) -> None:
    frame.columns.name = "columns"
    decoded = (
        TableTransformer().fit(frame).inverse_transform(TableTransformer().fit_transform(frame))
    )
    pd.testing.assert_frame_equal(
        decoded, frame.reset_index(drop=True).rename_axis(index="patient")
    )


@pytest.mark.parametrize(
    "labels",
    [
        [0, 1, 2, 3],
        pd.RangeIndex(4),
        pd.Index(["a", 1, "b", 2], dtype=object),
        pd.CategoricalIndex(list("abcd"), name="c"),
    ],
    ids=str,
)
def test_labels_are_text_and_whole_numbers(frame: pd.DataFrame, labels: object) -> None:
    frame.columns = labels
    table = TableTransformer(kinds={frame.columns[3]: "integer"}).fit(frame)
    assert list(table.kinds_) == list(frame.columns)
    restored = TableTransformer.from_dict(json.loads(json.dumps(table.to_dict())))
    decoded = restored.inverse_transform(restored.transform(frame))
    pd.testing.assert_index_equal(decoded.columns, frame.columns, exact=True)
    pd.testing.assert_frame_equal(
        decoded, frame.reset_index(drop=True).rename_axis(index="patient")
    )


def test_feature_names_follow_scikit_learn(frame: pd.DataFrame) -> None:
    table = TableTransformer().fit(frame)
    assert list(table.feature_names_in_) == list(frame)
    assert table.n_features_in_ == 4
    table.fit(frame.rename(columns={"age": 0}))
    assert not hasattr(table, "feature_names_in_")


def test_clone_and_parameters() -> None:
    table = TableTransformer({"a": "integer"}, continuous="quantile", spike_share=None)
    twin = clone(table)
    assert twin.get_params() == table.get_params()
    with pytest.raises(NotFittedError):
        twin.transform(pd.DataFrame({"a": [1]}))
    with pytest.raises(NotFittedError):
        twin.inverse_transform(np.zeros((1, 1)))
    with pytest.raises(NotFittedError):
        twin.to_dict()


def test_columns_may_come_in_another_order_but_not_others(frame: pd.DataFrame) -> None:
    table = TableTransformer().fit(frame, party="clinic")
    matrix = table.transform(frame)
    np.testing.assert_array_equal(table.transform(frame[frame.columns[::-1]]), matrix)
    for other, words in (
        (frame.drop(columns="age"), r"\['age'\] are missing"),
        (frame.assign(new=1), r"\['new'\] are new"),
        (pd.concat([frame, frame["age"]], axis=1), "twice"),
    ):
        with pytest.raises(ColumnMismatchError, match=words) as caught:
            table.transform(other)
        assert caught.value.party == "clinic"


@pytest.mark.parametrize(
    ("column", "parameters", "error"),
    [
        ([None] * 4, {}, EmptyColumnError),
        ([1.5, np.inf, 2.0, 3.0], {}, InfiniteValueError),
        (["a", "b", "c", "d"], {"kinds": {"x": "continuous"}}, ColumnKindError),
        (["a", "b", "c", "d"], {"kinds": {"x": "nominal"}}, ColumnKindError),
        ([1j] * 4, {}, ColumnKindError),
    ],
)
def test_errors_name_party_column_and_fix(
    frame: pd.DataFrame, column: list, parameters: dict, error: type[PartyDataError]
) -> None:
    with pytest.raises(error, match=r"party 'lab', column 'x'.*Fix: ") as caught:
        TableTransformer(**parameters).fit(frame[["sex"]].assign(x=column), party="lab")
    assert (caught.value.party, caught.value.column) == ("lab", "x")


def test_errors_of_transform_name_the_party_too(frame: pd.DataFrame) -> None:
    table = TableTransformer().fit(frame, party="lab")
    with pytest.raises(UnseenValueError, match="party 'lab', column 'sex'") as caught:
        table.transform(frame.assign(sex="x"))
    assert caught.value.rows == (0, 1, 2, 3)


def test_kinds_of_absent_columns_are_an_error(frame: pd.DataFrame) -> None:
    with pytest.raises(ColumnKindError, match="no such column"):
        TableTransformer(kinds={"agee": "continuous"}).fit(frame)
    with pytest.raises(ColumnKindError, match=r"column 'agee': overrides has .* no such column"):
        TableTransformer(overrides={"agee": {"spikes": (-9,)}}).fit(frame)


@pytest.mark.parametrize(
    "parameters",
    [
        {"continuous": "minmax"},
        {"rare_threshold": -1},
        {"spike_share": 2},
        {"kinds": ["age"]},
        {"encoders": 5},
        {"overrides": 5},
        {"overrides": {"only": 5}},
        {"overrides": {"only": {"spike": (0,)}}},
    ],
)
def test_parameters_are_checked_even_if_unused(parameters: dict) -> None:
    table = TableTransformer(**parameters)
    with pytest.raises(ParameterError, match=next(iter(parameters))):
        table.fit(pd.DataFrame({"only": [True, False]}))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("end", [1e300, 1e308, -1.7e308])
@pytest.mark.parametrize("every", [9, 300])
@pytest.mark.parametrize("extreme_records", [0, 5])
def test_numbers_near_the_largest_are_encoded_in_silence(end, every, extreme_records) -> None:
    usual = np.random.default_rng(0).normal(size=300)
    table = pd.DataFrame({"x": np.where(np.arange(300) % every == 0, end, usual)})
    for encoder in ("standard", "quantile"):
        made = TableTransformer(continuous=encoder, extreme_records=extreme_records).fit(table)
        found = made.inverse_transform(made.transform(table))["x"]
        assert np.isfinite(found).all()


def test_tables_that_are_none(frame: pd.DataFrame) -> None:
    table = TableTransformer()
    with pytest.raises(PartyDataError, match="got a ndarray"):
        table.fit(frame.to_numpy())
    with pytest.raises(TooFewRecordsError):
        table.fit(frame.head(0))
    with pytest.raises(PartyDataError, match="no columns"):
        table.fit(frame[[]])
    with pytest.raises(PartyDataError, match="is a tuple"):
        table.fit(frame.set_axis(pd.MultiIndex.from_product([["a", "b"], [1, 2]]), axis=1))
    with pytest.raises(PartyDataError, match="2 columns of this name") as caught:
        table.fit(frame.rename(columns={"age": "sex"}))
    assert caught.value.column == "sex"
    with pytest.raises(PartyDataError, match="with text or integers"):
        table.fit(frame.rename(columns={"age": b"age"}))
    with pytest.raises(PartyDataError, match="got a list"):
        table.fit(frame).transform([1])


def test_matrices_of_another_shape_are_refused(frame: pd.DataFrame) -> None:
    table = TableTransformer().fit(frame)
    with pytest.raises(EncodedMatrixError, match=rf"\(record, {table.width_}\), got \(2, 99\)"):
        table.inverse_transform(np.zeros((2, 99)))


def test_no_records_are_fine_after_fit(frame: pd.DataFrame) -> None:
    table = TableTransformer().fit(frame)
    assert table.transform(frame.head(0)).shape == (0, table.width_)
    decoded = table.inverse_transform(np.zeros((0, table.width_)))
    assert decoded.dtypes.equals(frame.dtypes)


def test_a_table_of_constants_has_width_zero() -> None:
    frame = pd.DataFrame({"a": ["x"] * 3, "b": [1.5] * 3})
    table = TableTransformer().fit(frame)
    assert table.width_ == 0
    assert table.spans_ == ()
    assert table.inverse_transform(table.transform(frame)).equals(frame)


def test_state_is_plain_and_strict_json(frame: pd.DataFrame) -> None:
    kinds = {"visits": "integer"}
    table = TableTransformer(kinds, max_levels=np.int64(9)).fit(frame, party="lab")
    content = json.loads(json.dumps(table.to_dict(), allow_nan=False))
    restored = TableTransformer.from_dict(content)
    pd.testing.assert_frame_equal(
        restored.inverse_transform(table.transform(frame)),
        table.inverse_transform(table.transform(frame)),
    )
    assert restored.party_ == "lab"
    assert [t["kind"] for t in content["transformers"]] == list(table.kinds_.values())


def test_foreign_and_damaged_state_is_refused(frame: pd.DataFrame) -> None:
    content = TableTransformer().fit(frame).to_dict()
    damaged = [{k: v for k, v in content.items() if k != name} for name in content]
    damaged += [
        {},
        content | {"transformers": content["transformers"][1:]},
        content | {"transformers": "x"},
        content | {"columns": {"dtype": "int64", "values": ["a"], "name": None}},
        content | {"transformers": [{"kind": "pickle"}] * 4},
    ]
    for other in damaged:
        with pytest.raises(ArtefactError):
            TableTransformer.from_dict(other)
