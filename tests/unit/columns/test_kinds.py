import numpy as np
import pandas as pd
import pytest

from vflsynth.columns import column_kind, infer_kind
from vflsynth.columns.kinds import check_kinds
from vflsynth.exceptions import CardinalityError, ColumnKindError


@pytest.mark.parametrize(
    ("values", "dtype", "kind"),
    [
        ([True, False], bool, "boolean"),
        ([True, None], "boolean", "boolean"),
        ([True, None], "bool[pyarrow]", "boolean"),
        ([True, None], object, "categorical"),
        (["a", None], None, "categorical"),
        (["a", None], object, "categorical"),
        (["a", None], "string", "categorical"),
        (["a", None], "string[pyarrow]", "categorical"),
        (["a", 1, None], object, "categorical"),
        (["a", "b"], "category", "categorical"),
        (["a", "b"], pd.CategoricalDtype(["a", "b"], ordered=True), "ordered"),
        ([1, 2], "category", "categorical"),
        (range(10), "int64", "categorical"),
        (range(11), "uint8", "integer"),
        (range(11), "Int16", "integer"),
        (range(11), "int32[pyarrow]", "integer"),
        ([1, None], "Int64", "categorical"),
        ([1.5, 2.0], "float64", "continuous"),
        ([1.5, None], "Float32", "continuous"),
        ([1.0, 2.0, None], "float64", "categorical"),
        (range(11), "float32", "continuous"),
        ([0.0] * 2000 + list(range(11)), "float64", "continuous"),
        ([None, None], "float64", "continuous"),
        ([np.inf, 1.0], "float64", "continuous"),
        (["2020-01-01"], "datetime64[s]", "datetime"),
        (["2020-01-01"], "datetime64[ns, UTC]", "datetime"),
        ([5], "timedelta64[ns]", "datetime"),
    ],
)
def test_rules(values: object, dtype: object, kind: str) -> None:
    assert infer_kind(pd.Series(values, dtype=dtype)) == kind


def test_the_widest_numbers_are_no_identifier() -> None:
    assert infer_kind(pd.Series(1.7e308 * np.linspace(-1, 1, 60))) == "continuous"


@pytest.mark.parametrize(
    "column",
    [
        pd.Series([1j]),
        pd.Series(pd.period_range("2020", periods=2, freq="D")),
        pd.Series(pd.interval_range(0, 2)),
        pd.Series([0.0, 1.0], dtype="Sparse[float]"),
    ],
    ids=lambda column: str(column.dtype),
)
def test_other_dtypes_are_refused(column: pd.Series) -> None:
    with pytest.raises(ColumnKindError, match=r"no rule for dtype.*Fix: convert"):
        infer_kind(column)


@pytest.mark.parametrize("dtype", [object, "string", "string[pyarrow]"])
def test_text_that_identifies_records_has_to_be_declared(dtype):
    """A model would publish it: names, but also numbers that were read as text."""
    with pytest.raises(CardinalityError, match="100 of 100 values are different") as caught:
        infer_kind(pd.Series([f"4,{i}" for i in range(100)], dtype=dtype, name="x"))
    assert "4,0" not in str(caught.value)
    half = pd.Series([f"name {i % 50}" for i in range(100)], dtype=dtype)
    assert infer_kind(half) == "categorical"
    assert infer_kind(half.iloc[:49]) == "categorical"  # too few records to tell


def test_declared_kinds_are_checked_in_one_place():
    assert check_kinds(None, ["x"]) == {}
    assert check_kinds({"x": "ordered"}, ["x", 1]) == {"x": "ordered"}
    with pytest.raises(ColumnKindError, match=r"party 'lab', column 'y'.*no such column.*'x', 1"):
        check_kinds({"y": "ordered"}, ["x", 1], party="lab")
    with pytest.raises(ColumnKindError, match=r"column 'x': unknown kind 'label'.*'continuous'"):
        check_kinds({"x": "label"}, ["x"])
    assert column_kind("datetime").kind == "datetime"
