"""Records to predict: whatever occurs in them gets a code, and a warning counts what is new."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from vflsynth.columns import TableTransformer
from vflsynth.columns.base import ColumnTransformer
from vflsynth.columns.categorical import CategoricalTransformer
from vflsynth.exceptions import UnseenValueError


def fitted(values, **options):
    table = pd.DataFrame({"x": values})
    return TableTransformer(**options).fit(table, party="shop")


def new(transformer, values, warns=1):
    table = pd.DataFrame({"x": values})
    with pytest.warns(UserWarning, match=rf"party 'shop': .*'x' \({warns}\)"):
        return transformer.transform(table, unseen="neutral")


CITIES = ["Oslo", "Bergen", None, "Oslo", "Bergen", "Oslo"] * 20


def test_what_occurred_is_encoded_as_ever():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "city": CITIES,
            "age": rng.integers(18, 90, 120),
            "income": np.where(rng.random(120) < 0.3, 0.0, rng.normal(size=120)),
            "debt": np.where(rng.random(120) < 0.3, np.nan, rng.normal(size=120)),
            "since": pd.date_range("2020-01-01", periods=120),
            "member": rng.random(120) < 0.5,
        }
    )
    transformer = TableTransformer().fit(table)
    expected = transformer.transform(table)
    assert np.array_equal(transformer.transform(table, unseen="neutral"), expected)


def test_an_unseen_category_has_no_code():
    transformer = fitted(CITIES, rare_threshold=0.0)
    assert new(transformer, ["Rome", "Oslo", None])[0].tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(UnseenValueError):
        transformer.transform(pd.DataFrame({"x": ["Rome"]}))


def test_an_unseen_category_counts_as_rare_and_an_unseen_blank_does_not():
    values = ["a"] * 60 + ["b"] * 60 + ["c", "d"]
    transformer = fitted(values, rare_threshold=0.05)
    (rome, rare, blank) = new(transformer, ["Rome", "c", None], warns=2)
    assert rome.tolist() == rare.tolist() == [0.0, 0.0, 1.0]
    assert blank.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("dtype", ["int64", "Int64", "float64"])
def test_a_blank_in_a_column_without_is_the_middle(dtype):
    transformer = fitted(pd.Series(np.arange(101), dtype=dtype))
    middle = new(transformer, [np.nan, 3.0])
    assert abs(middle[0, 0]) < 0.05
    table = pd.DataFrame({"x": [3]}, dtype=dtype)
    assert middle[1].tolist() == transformer.transform(table)[0].tolist()
    assert abs(new(transformer, [None])[0, 0]) < 0.05, "a column of nothing but blanks"


@pytest.mark.parametrize("kind", ["integer", "continuous"])
def test_whole_numbers_may_come_as_floats(kind):
    transformer = fitted(np.arange(101), kinds={"x": kind})
    found = transformer.transform(pd.DataFrame({"x": [3.0, 3.4, 1e30]}), unseen="neutral")
    (expected,) = transformer.transform(pd.DataFrame({"x": [3]}))
    assert found[0].tolist() == found[1].tolist() == expected.tolist()
    assert np.isfinite(found).all()


@pytest.mark.parametrize("dtype", ["bool", "int64", "object"])
@pytest.mark.parametrize("other", ["bool", "uint8", "float64", "boolean", "Int64"])
def test_zero_and_one_are_false_and_true(dtype, other):
    """A file had 0 and 1 where another had false and true: every record counted as unseen."""
    table = pd.DataFrame({"x": [True, False, True] * 9})
    transformer = TableTransformer().fit(table.astype(dtype))
    expected = transformer.transform(table.astype(dtype))
    found = transformer.transform(table.astype(other), unseen="neutral")
    assert np.array_equal(found, expected)


def test_a_blank_beside_spikes_is_ordinary():
    values = np.where(np.arange(100) % 2, 0.0, np.random.default_rng(0).normal(5, 1, 100))
    transformer = fitted(values)
    assert [span.role for span in transformer.spans_] == ["value", "state"]
    assert new(transformer, [np.nan])[0].tolist() == [0.0, 1.0, 0.0]


def test_values_beside_nothing_but_spikes_have_no_code():
    transformer = fitted([0, 1] * 50, kinds={"x": "integer"})
    assert transformer.width_ == 2
    assert new(transformer, [7, 0, np.nan], warns=2).tolist() == [[0, 0], [1, 0], [0, 0]]


def test_constant_columns_have_no_width():
    transformer = fitted(["a"] * 5)
    assert new(transformer, ["b"]).shape == (1, 0)


def test_the_warning_has_no_value():
    transformer = fitted(CITIES)
    with pytest.warns(UserWarning, match="count as neutral") as caught:
        transformer.transform(pd.DataFrame({"x": ["Rome"]}), unseen="neutral")
    assert "Rome" not in str(caught[0].message)


class Refusing(CategoricalTransformer):
    """Of another package, which tells of values only by refusing them."""

    def holds(self, column):
        return ColumnTransformer.holds(self, column)


@pytest.mark.parametrize("kind", [CategoricalTransformer, Refusing])
def test_which_categories_can_be_encoded(kind):
    transformer = kind(rare_threshold=0.0).fit(pd.Series(["a", "b", "a"], name="x"))
    found = transformer.holds(pd.Series(["b", "Rome", "a", None, "Rome"], name="x"))
    assert found.tolist() == [True, False, True, False, False]


def test_which_records_can_be_encoded():
    table = pd.DataFrame({"x": [1.5, 2.5, 2.5], "y": ["a", None, "b"]})
    more = pd.DataFrame({"x": [1.5, np.nan, 9.0, 2.5], "y": ["a", "a", None, "c"]})
    transformer = TableTransformer(rare_threshold=0.0).fit(table)
    found = transformer.holds(more)
    assert found.tolist() == [True, False, True, False]
    assert transformer.transform(more[found]).shape == (2, transformer.width_)
    with pytest.raises(UnseenValueError):
        transformer.transform(more)
