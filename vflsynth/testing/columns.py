"""Laws of kinds of columns: encodings with an exact inverse."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from vflsynth.columns import TRANSFORMERS, ColumnTransformer, OutputSpan
from vflsynth.columns.arrays import numpy_dtype
from vflsynth.exceptions import ArtefactError, EmptyColumnError, EncodedMatrixError
from vflsynth.testing.laws import PARAMETER_LAWS, Check, checks_of, laws_of, refused, require, same


@dataclass(frozen=True)
class ColumnCase:
    """A kind of columns whose laws are checked, not fitted, with a column."""

    value: ColumnTransformer
    column: pd.Series[Any]

    def __str__(self) -> str:
        return f"{self.value} for {self.column.dtype}"

    def fitted(self, column: pd.Series[Any] | None = None) -> ColumnTransformer:
        """Return a clone that is fitted to the column, or to another one."""
        fresh: ColumnTransformer = clone(self.value)
        return fresh.fit(self.column if column is None else column)


# -- what holds of columns and of tables -----------------------------------------------------------


def check_matrix(matrix: npt.NDArray[Any], spans: Sequence[OutputSpan], n_rows: int) -> None:
    """Check that an encoded matrix, (record, encoded), is laid out as its spans say.

    It is of the records that the encoding was learned from. Raises AssertionError, as all checks
    do.
    """
    width = sum(span.width for span in spans)
    same((matrix.dtype, matrix.shape), (np.dtype("float32"), (n_rows, width)), "the matrix")
    require(matrix.flags.c_contiguous, "the matrix is not contiguous")
    require(np.isfinite(matrix).all(), "the matrix is not finite")
    stop = 0
    for span in spans:
        same(span.start, stop, f"the start of {span}")
        stop = span.stop
        block = matrix[:, span.start : span.stop]
        if span.activation == "softmax":
            require(span.width > 1, f"a softmax needs two columns: {span}")
            hot = ((block == 0) | (block == 1)).all() and (block.sum(axis=1) == 1).all()
            require(hot, f"not one-hot: {span}")
            require(block.any(axis=0).all(), f"a slot without a record: {span}")
        if span.gate is not None:
            shut = matrix[:, span.gate] == 0
            require(not block[shut].any(), f"a value where the gate is shut: {span}")


def check_restored(found: pd.Series[Any], column: pd.Series[Any], tolerance: float = 0.0) -> None:
    """Check that a decoded column is the original one: dtype, missing values, values.

    Values may be off by the tolerance; 0 asks for the same bits.
    """
    expected = column.reset_index(drop=True)
    if tolerance == 0.0:
        pd.testing.assert_series_equal(found, expected, check_exact=True, check_index=False)
        return
    same(found.dtype, expected.dtype, "the decoded dtype")
    require((found.isna() == expected.isna()).all(), "missing values are elsewhere")
    for value, original in zip(exact_numbers(found), exact_numbers(expected), strict=True):
        off = abs(value - original)
        require(off <= tolerance, f"{original} becomes {value}, off by more than {tolerance}")


def check_plausible(found: pd.Series[Any], column: pd.Series[Any], *, ordered: bool) -> None:
    """Check that a decoded column holds nothing that the original one could not.

    If it is `ordered`, values between those of the column are values, too.
    """
    same(found.dtype, column.dtype, "the decoded dtype")
    got, real = found.dropna(), column.dropna()
    if ordered:
        inside = got.empty or (got.min() >= real.min() and got.max() <= real.max())
        require(inside, f"values beyond {real.min()} and {real.max()}")
    else:
        strange = set(got.tolist()) - set(real.tolist())
        require(not strange, f"values that the column does not have: {strange}")
    require(column.isna().any() or not found.isna().any(), "missing values that there were not")


def exact_numbers(column: pd.Series[Any]) -> list[Any]:
    """Present values as exact Python numbers, datetimes as counts of their unit."""
    present = column.dropna()
    if present.dtype.kind in "mM":
        present = pd.Series(present.to_numpy(dtype=numpy_dtype(present.dtype)).view("i8"))
    return [value if isinstance(value, int) else float(value) for value in present.tolist()]


def wild_matrix(width: int) -> npt.NDArray[np.float32]:
    """What no encoding looks like, shape (50, width), as a generator may put it out."""
    wild = np.random.default_rng(1).normal(scale=30.0, size=(50, width)).astype(np.float32)
    wild[0], wild[1] = np.inf, -np.inf
    return wild


# -- laws ------------------------------------------------------------------------------------------


def it_is_a_scikit_learn_transformer(case: ColumnCase) -> None:
    """Nothing works before fit, which returns its object; clones are not fitted."""
    fresh = clone(case.value)
    for name, argument in (
        ("transform", (case.column,)),
        ("inverse_transform", (np.zeros((1, 1), np.float32),)),
        ("to_dict", ()),
    ):
        with refused(NotFittedError, f"{name} before fit"):
            getattr(fresh, name)(*argument)
    before = case.column.copy(deep=True)
    require(fresh.fit(case.column) is fresh, "fit does not return its object")
    matrix = fresh.transform(case.column)
    pd.testing.assert_series_equal(case.column, before)
    require(not hasattr(clone(fresh), "spans_"), "a clone is fitted")
    np.testing.assert_array_equal(clone(fresh).fit_transform(case.column), matrix)


def the_column_survives_the_round_trip(case: ColumnCase) -> None:
    """Encoded and decoded it is what it was."""
    transformer = case.fitted()
    matrix = transformer.transform(case.column)
    check_matrix(matrix, transformer.spans_, len(case.column))
    found = transformer.inverse_transform(matrix)
    check_restored(found, case.column, getattr(transformer, "tolerance_", 0.0))


def it_holds_what_it_was_fitted_to(case: ColumnCase) -> None:
    """Every fitted value can be encoded, and it says so of each."""
    held = case.fitted().holds(case.column)
    require(held.shape == (len(case.column),), f"of {len(case.column)} records, {held.shape}")
    require(bool(held.all()), f"{int((~held).sum())} fitted values are said to have no code")


def any_matrix_decodes_to_plausible_values(case: ColumnCase) -> None:
    """A generator's output, however wild, decodes to values that the column can hold."""
    transformer = case.fitted()
    wild = wild_matrix(transformer.width_)
    same(len(transformer.inverse_transform(wild[:0])), 0, "rows decoded of none")
    found = transformer.inverse_transform(wild)
    numeric = any(span.role == "value" for span in transformer.spans_)
    check_plausible(found, case.column, ordered=numeric)


def the_order_of_records_changes_no_code(case: ColumnCase) -> None:
    """Rows are encoded one by one, by what the set of them says."""
    order = np.random.default_rng(0).permutation(len(case.column))
    shuffled = case.column.iloc[order]
    matrix = case.fitted().transform(case.column)
    np.testing.assert_array_equal(case.fitted(shuffled).transform(shuffled), matrix[order])


def a_constant_column_takes_no_room(case: ColumnCase) -> None:
    """Its width is 0, and it is restored all the same."""
    constant = case.column.dropna().iloc[:1]
    transformer = case.fitted(constant)
    same(transformer.width_, 0, "the width of a constant column")
    check_restored(transformer.inverse_transform(transformer.transform(constant)), constant)


def an_empty_column_is_refused(case: ColumnCase) -> None:
    """There is nothing to learn; the error names the column."""
    if case.column.dtype.kind in "biu" and isinstance(case.column.dtype, np.dtype):
        empty = case.column.iloc[:0]
    else:
        empty = case.column.mask(np.ones(len(case.column), dtype=bool))
    with refused(EmptyColumnError, "a column without values", says=repr(case.column.name)):
        case.fitted(empty)


def refitting_forgets(case: ColumnCase) -> None:
    """A second fit learns what a first one would."""
    transformer, short = case.fitted(), case.column.dropna().iloc[:1]
    first = transformer.to_dict()
    same(transformer.fit(short).to_dict(), case.fitted(short).to_dict(), "a second fit")
    same(transformer.fit(case.column).to_dict(), first, "a third fit")


def its_state_survives_json(case: ColumnCase) -> None:
    """What is restored encodes and decodes alike."""
    transformer = case.fitted()
    written = json.dumps(transformer.to_dict(), allow_nan=False)
    restored = type(transformer).from_dict(json.loads(written))
    same(restored.to_dict(), transformer.to_dict(), "what is written again")
    same(restored.spans_, transformer.spans_, "the restored layout")
    matrix = transformer.transform(case.column)
    np.testing.assert_array_equal(restored.transform(case.column), matrix)
    pd.testing.assert_series_equal(
        restored.inverse_transform(matrix), transformer.inverse_transform(matrix)
    )


def a_state_that_is_not_its_own_is_refused(case: ColumnCase) -> None:
    """Another kind's, or one with anything missing."""
    content = case.fitted().to_dict()
    cls = type(case.value)
    for other in TRANSFORMERS.values():
        if other is not cls:
            with refused(ArtefactError, f"a state of {cls.__name__} read by {other.__name__}"):
                other.from_dict(content)
    state = content["state"]
    for name in content:
        with refused(ArtefactError, f"a state without {name!r}"):
            cls.from_dict({key: value for key, value in content.items() if key != name})
    for name in state:
        less = {key: value for key, value in state.items() if key != name}
        with refused(ArtefactError, f"a state without {name!r}"):
            cls.from_dict(content | {"state": less})


def a_matrix_that_it_cannot_decode_is_refused(case: ColumnCase) -> None:
    """Of another shape or dtype, or with NaN."""
    transformer = case.fitted()
    matrix = transformer.transform(case.column)
    wrong: tuple[Any, ...] = (matrix[:, 1:], matrix.ravel(), matrix.tolist(), matrix.astype(int))
    for each in wrong:
        with refused(EncodedMatrixError, f"a matrix {np.shape(each)}"):
            transformer.inverse_transform(each)
    matrix[1, 0] = np.nan
    with refused(EncodedMatrixError, "a matrix with NaN", says="NaN"):
        transformer.inverse_transform(matrix)


LAWS = (*PARAMETER_LAWS, *laws_of(ColumnCase))


def column_kind_checks(transformer: ColumnTransformer, column: pd.Series[Any]) -> list[Check]:
    """Return the checks of one kind of columns, for `parametrize_with_checks`."""
    return checks_of(LAWS, ColumnCase(transformer, column))


def check_column_kind(transformer: ColumnTransformer, column: pd.Series[Any]) -> None:
    """Check all laws of a kind of columns.

    Parameters
    ----------
    transformer : ColumnTransformer
        Not fitted.
    column : Series
        Of the kind: with a name, at least two records and two different values, and a missing value
        if its dtype has them.

    Raises
    ------
    AssertionError
        Naming the first law that it breaks.

    Examples
    --------
    >>> from vflsynth.columns import CategoricalTransformer
    >>> check_column_kind(CategoricalTransformer(), pd.Series(["b", "a", None, "b"], name="x"))
    """
    for check in column_kind_checks(transformer, column):
        check()
