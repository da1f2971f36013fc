"""Laws of kinds of columns, encodings with an exact inverse, and of encoders.

An encoder is an increasing map with an inverse, from the records or from public knowledge.
"""

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

from vflsynth.columns import (
    Bounds,
    ColumnTransformer,
    Encoder,
    NoisyHistogram,
    OutputSpan,
    TableTransformer,
)
from vflsynth.columns.arrays import numpy_dtype
from vflsynth.columns.encoders import Curve
from vflsynth.columns.kinds import TRANSFORMERS
from vflsynth.columns.table import check_public
from vflsynth.exceptions import ArtefactError, EmptyColumnError, EncodedMatrixError, ParameterError
from vflsynth.testing.laws import (
    Case,
    Check,
    checks_of,
    global_random_state_left_alone,
    refused,
    require,
    same,
)


@dataclass(frozen=True)
class ColumnCase(Case[ColumnTransformer]):
    """A kind of columns whose laws are checked, not fitted, with a column."""

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
    again = case.fitted(shuffled)
    np.testing.assert_array_equal(again.transform(shuffled), matrix[order])
    same(again.to_dict(), case.fitted().to_dict(), "what is learned of records in another order")


def global_random_state_is_left_alone(case: ColumnCase) -> None:
    """Nothing is drawn, neither to encode nor to decode."""
    with global_random_state_left_alone():
        transformer = case.fitted()
        transformer.inverse_transform(transformer.transform(case.column))


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


def column_kind_checks(transformer: ColumnTransformer, column: pd.Series[Any]) -> list[Check]:
    """Return one check for each law of a kind of columns.

    Parameters
    ----------
    transformer : ColumnTransformer
        Not fitted.
    column : Series
        Of the kind: with a name, at least two records and two different values, and a missing value
        if its dtype has them.

    Examples
    --------
    >>> from vflsynth.columns import CategoricalTransformer
    >>> column = pd.Series(["b", "a", None, "b"], name="x")
    >>> for check in column_kind_checks(CategoricalTransformer(), column):
    ...     check()
    """
    return checks_of(ColumnCase(transformer, column))


@dataclass(frozen=True)
class EncoderCase(Case[Encoder]):
    """An encoder whose laws are checked, not fitted, with numbers of shape (record,)."""

    numbers: npt.NDArray[np.float64]

    def fitted(self, zero: float = 0.0, unit: float = 1.0) -> Encoder:
        """Return an encoder that is fitted to the numbers, counted from `zero` in units."""
        fresh: Encoder = clone(self.value)
        return fresh.fit((np.sort(self.numbers) - zero) / unit, zero=zero, unit=unit)

    def table(self) -> TableTransformer:
        """Return the encoding of a table with the numbers in one column, which is fitted."""
        template = TableTransformer(
            {"x": "continuous"}, encoders={"x": self.value}, spike_share=None
        )
        return template.fit(pd.DataFrame({"x": self.numbers}))


def larger_numbers_get_larger_scores(case: EncoderCase) -> None:
    """The map rises, from numbers to scores and back."""
    ordered = np.sort(case.numbers)
    scaled = case.fitted().scale(ordered)
    require(np.isfinite(scaled).all(), "scaled numbers are not finite")
    require((np.diff(scaled) >= 0.0).all(), "a larger number has a smaller score")
    back = case.fitted().unscale(np.linspace(-40.0, 40.0, 2000))
    rises = (back[1:] >= back[:-1]).all()  # beyond all floats, too
    require(rises, "a larger score is decoded to a smaller number")


def numbers_survive_32_bits(case: EncoderCase) -> None:
    """They come back within the stated error, whatever they are counted from."""
    for zero, unit in ((0.0, 1.0), (float(case.numbers.min()), 0.5)):
        encoder, counted = case.fitted(zero, unit), (np.sort(case.numbers) - zero) / unit
        kept = encoder.scale(counted).astype(np.float32)
        off = np.abs(encoder.unscale(kept) - counted).max()
        most = encoder.error(counted[0], counted[-1])
        require(off <= most, f"numbers come back {off:g} off, and it states {most:g}")


def scores_are_of_unit_size(case: EncoderCase) -> None:
    """Networks see numbers around zero."""
    scaled = case.fitted().scale(np.sort(case.numbers))
    require(abs(scaled.mean()) < 1.0, f"the mean of scaled numbers is {scaled.mean():g}")
    require(0.1 < scaled.std() < 10.0, f"their standard deviation is {scaled.std():g}")


def an_encoder_draws_nothing(case: EncoderCase) -> None:
    """From no global random state."""
    with global_random_state_left_alone():
        encoder = case.fitted()
        encoder.unscale(encoder.scale(np.sort(case.numbers)))


def scores_that_are_spread_decode_alike(case: EncoderCase) -> None:
    """What is moved apart stays the number that it was."""
    encoder, ordered = case.fitted(), np.sort(case.numbers)
    scaled = encoder.scale(ordered)
    off = np.abs(encoder.unscale(encoder.spread(scaled)) - encoder.unscale(scaled)).max()
    require(off <= encoder.error(ordered[0], ordered[-1]), f"spreading moves numbers by {off:g}")


def what_it_learned_survives_json(case: EncoderCase) -> None:
    """What is restored encodes alike; what is not its own is refused."""
    encoder, ordered = case.fitted(), np.sort(case.numbers)
    written = json.dumps(encoder.to_dict(), allow_nan=False)
    restored = Encoder.from_dict(json.loads(written))
    same(restored.to_dict(), encoder.to_dict(), "what is written again")
    np.testing.assert_array_equal(restored.scale(ordered), encoder.scale(ordered))
    content = case.table().to_dict()
    same(TableTransformer.from_dict(content).to_dict(), content, "what a table writes again")
    state = content["transformers"][0]["state"]["encoder"]
    for name in list(state["learned"]):
        del state["learned"][name]
        with refused(ArtefactError, f"an encoder without {name!r}"):
            TableTransformer.from_dict(content)


def a_table_has_it_for_one_column(case: EncoderCase) -> None:
    """Columns beside it keep the encoder of the table."""
    frame = pd.DataFrame({"x": case.numbers, "y": case.numbers})
    template = TableTransformer(dict.fromkeys("xy", "continuous"), continuous="standard")
    alone = clone(template).fit(frame).transform(frame)
    both = clone(template).set_params(encoders={"x": case.value}).fit(frame).transform(frame)
    np.testing.assert_array_equal(both[:, -1], alone[:, -1])


def without_the_records_it_needs_histograms_or_is_refused(case: EncoderCase) -> None:
    """Under differential privacy it is a curve of published histograms, or refused by name."""
    template = TableTransformer({"x": "continuous"}, encoders={"x": case.value})
    try:
        curve = case.value.published()
    except ParameterError:
        with refused(ParameterError, "a private fit", says="encoders['x']"):
            check_public(template)
        return
    check_public(template)
    require(isinstance(curve, Curve), f"{curve} is no Curve, and encodes by histograms")
    low, high = float(case.numbers.min()), float(case.numbers.max())
    frame = pd.DataFrame({"x": np.sort(case.numbers)})
    histogram = NoisyHistogram.uninformed(Bounds(low, high), 16)
    table = TableTransformer.from_histograms(frame, {"x": histogram}, template)
    first = TableTransformer.from_histograms(frame[:1], {"x": histogram}, template)
    same(first.to_dict(), table.to_dict(), "the encoding of another table")
    same(TableTransformer.from_dict(table.to_dict()).to_dict(), table.to_dict(), "what is read")
    matrix = table.transform(frame)
    require((np.diff(matrix[:, 0]) >= 0.0).all(), "a larger number has a smaller score")
    inside = np.abs(matrix[:, 0]) < 12.0
    off = np.abs(table.inverse_transform(matrix)["x"] - frame["x"])[inside]
    most = 1e-4 * (high - low)
    require(bool((off <= most).all()), f"numbers come back {off.max():g} off; allowed: {most:g}")


def encoder_checks(encoder: Encoder, numbers: npt.ArrayLike) -> list[Check]:
    """Return one check for each law of an encoder.

    Parameters
    ----------
    encoder : Encoder
        Not fitted.
    numbers : array of float, shape (record,)
        Such as it is made for, at least two different ones.

    Examples
    --------
    >>> from vflsynth.columns import Log
    >>> for check in encoder_checks(Log(), [0.0, 10.0, 200.0, 35_000.0]):
    ...     check()
    """
    return checks_of(EncoderCase(encoder, np.asarray(numbers, np.float64)))
