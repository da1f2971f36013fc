import numpy as np
import pandas as pd
import pytest

from vflsynth.columns import BooleanTransformer, CategoricalTransformer, OrderedTransformer
from vflsynth.exceptions import (
    CardinalityError,
    ColumnKindError,
    ParameterError,
    UnseenValueError,
)


def test_slots_are_sorted_values_then_missing() -> None:
    transformer = CategoricalTransformer().fit(pd.Series(["b", None, "a"], name="x"))
    np.testing.assert_array_equal(
        transformer.transform(pd.Series(["a", "b", None])), np.eye(3, dtype=np.float32)
    )
    (span,) = transformer.spans_
    assert (span.role, span.activation, span.width, span.column) == ("category", "softmax", 3, "x")


def test_slots_follow_the_order_of_a_pandas_category() -> None:
    dtype = pd.CategoricalDtype(["low", "unused", "mid", "high"], ordered=True)
    column = pd.Series(["high", "low", "mid"], dtype=dtype)
    for transformer in (CategoricalTransformer(), OrderedTransformer()):
        transformer.fit(column)
        assert list(transformer.categories_) == ["low", "mid", "high"]
        decoded = transformer.inverse_transform(np.eye(3))
        assert decoded.tolist() == ["low", "mid", "high"]
        assert decoded.dtype == dtype


def rare_column() -> pd.Series:
    """900 + 97 frequent values, and 30 + 20 + 10 rare ones of 1057."""
    counts = {"a": 900, "z": 97, "k": 30, "l": 20, "m": 10}
    return pd.Series(np.repeat(list(counts), list(counts.values())))


def test_rare_values_share_a_slot_and_keep_their_proportions() -> None:
    column = rare_column()
    transformer = CategoricalTransformer(rare_threshold=0.05).fit(column)
    assert transformer.width_ == 3
    assert transformer.n_frequent_ == 2
    matrix = transformer.transform(column)
    assert matrix[:, 2].sum() == 60
    decoded = transformer.inverse_transform(matrix)
    assert (decoded.head(997) == column.head(997)).all()
    for n_records, slack in ((60, 1), (6, 1), (600, 2)):
        rare = transformer.inverse_transform(np.tile([0.0, 0.0, 1.0], (n_records, 1)))
        for value, share in (("k", 1 / 2), ("l", 1 / 3), ("m", 1 / 6)):
            assert abs((rare == value).sum() - n_records * share) <= slack
    pd.testing.assert_series_equal(decoded, transformer.inverse_transform(matrix))


def test_one_rare_value_alone_keeps_its_slot() -> None:
    column = pd.Series(["a"] * 999 + ["b"])
    transformer = CategoricalTransformer(rare_threshold=0.05).fit(column)
    assert transformer.rare_shares_ == ()
    assert transformer.inverse_transform(transformer.transform(column)).equals(column)


def test_only_rare_values_need_no_matrix_column() -> None:
    column = pd.Series([f"v{i}" for i in range(100)])
    transformer = CategoricalTransformer(rare_threshold=0.05).fit(column)
    assert transformer.width_ == 0
    decoded = transformer.inverse_transform(np.zeros((100, 0)))
    assert decoded.value_counts().max() <= 2


def test_missing_is_never_pooled() -> None:
    column = pd.concat([rare_column(), pd.Series([None])], ignore_index=True)
    transformer = CategoricalTransformer(rare_threshold=0.05).fit(column)
    assert transformer.width_ == 4
    decoded = transformer.inverse_transform(transformer.transform(column))
    assert decoded.isna().equals(column.isna())


def test_too_many_values_are_refused_with_numbers_and_remedies() -> None:
    column = pd.Series([f"name {i}" for i in range(1000)], name="name")
    with pytest.raises(CardinalityError) as caught:
        CategoricalTransformer().fit(column)
    message = str(caught.value)
    for part in (
        "'name'",
        "1000 distinct values in 1000 rows",
        "256",
        "drop",
        "kind",
        "public list",
    ):
        assert part in message


def test_numbers_stored_as_objects_are_told_apart_from_names() -> None:
    with pytest.raises(CardinalityError, match=r"pandas\.to_numeric"):
        CategoricalTransformer().fit(pd.Series(range(1000), dtype=object))


def test_objects_keep_their_way_of_writing_missing() -> None:
    for missing in (None, np.nan, pd.NA):
        column = pd.Series(["a", missing, "b"], dtype=object)
        transformer = CategoricalTransformer().fit(column)
        restored = CategoricalTransformer.from_dict(transformer.to_dict())
        decoded = restored.inverse_transform(restored.transform(column))
        assert type(decoded[1]) is type(missing)


def test_unseen_values_are_refused_with_their_rows() -> None:
    transformer = CategoricalTransformer().fit(pd.Series(["a", "b"], name="x"))
    with pytest.raises(UnseenValueError, match="1 rows hold values that did not") as caught:
        transformer.transform(pd.Series(["a", "c"], index=["r1", "r2"]))
    assert caught.value.rows == (1,)
    assert "'c'" not in str(caught.value)
    with pytest.raises(UnseenValueError, match="1 rows"):
        transformer.transform(pd.Series(["a", None]))


def test_values_without_a_saved_form_are_refused() -> None:
    with pytest.raises(ColumnKindError, match="bytes"):
        CategoricalTransformer().fit(pd.Series([b"a", b"b"]))
    with pytest.raises(ColumnKindError, match="hashed"):
        CategoricalTransformer().fit(pd.Series([[1], [2]]))


def test_ordered_values_must_be_comparable() -> None:
    assert list(OrderedTransformer().fit(pd.Series([3, 1, 2])).categories_) == [1, 2, 3]
    with pytest.raises(ColumnKindError, match="order"):
        OrderedTransformer().fit(pd.Series(["a", 1], dtype=object))


@pytest.mark.parametrize(
    "column",
    [
        pd.Series([1, 0, 1]),
        pd.Series([1.0, np.nan, 0.0]),
        pd.Series([True, None, False], dtype=object),
        pd.Series([True, None, False], dtype="boolean"),
    ],
)
def test_boolean_columns_of_any_dtype(column: pd.Series) -> None:
    transformer = BooleanTransformer().fit(column)
    decoded = transformer.inverse_transform(transformer.transform(column))
    pd.testing.assert_series_equal(decoded, column)


def test_other_values_are_not_boolean() -> None:
    for column in (pd.Series(["yes", "no"]), pd.Series([1, 2])):
        with pytest.raises(ColumnKindError, match="neither true nor false"):
            BooleanTransformer().fit(column)


@pytest.mark.parametrize(
    "parameters",
    [
        {"rare_threshold": 1},
        {"rare_threshold": True},
    ],
)
def test_parameters_are_checked(parameters: dict) -> None:
    with pytest.raises(ParameterError, match=next(iter(parameters))):
        CategoricalTransformer(**parameters).fit(pd.Series(["a"]))


@pytest.mark.parametrize("change", [{"n_frequent": 1}, {"n_frequent": -1}, {"categories": []}])
def test_inconsistent_state_is_refused(change: dict) -> None:
    content = CategoricalTransformer().fit(pd.Series(["a", "b"])).to_dict()
    content["state"] |= change
    with pytest.raises(ValueError, match="do not add up"):
        CategoricalTransformer.from_dict(content)
