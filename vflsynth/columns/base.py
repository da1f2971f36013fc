"""What every column transformer promises, and how encoded columns are laid out in a matrix."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from vflsynth._validation import Number, Rule, check_parameters
from vflsynth.codec import (
    dtype_from_json,
    dtype_to_json,
    scalar_from_json,
    scalar_to_json,
)
from vflsynth.columns.encoders.base import Encoder
from vflsynth.columns.ranges import NumberRanges, TimeRanges
from vflsynth.columns.schema import PublicColumn
from vflsynth.exceptions import (
    ArtefactError,
    ColumnKindError,
    EncodedMatrixError,
    PartyDataError,
    UnseenValueError,
)
from vflsynth.frames.logical import places_in_order

Matrix = npt.NDArray[np.float32]

SHARE = Number(0, 1, closed=(True, False))
"""What a share of the records may be, as a parameter."""


@dataclass(frozen=True)
class OutputSpan:
    """Adjacent matrix columns that share one activation of the generator.

    Parameters
    ----------
    start : int
        First matrix column.
    width : int
        Number of matrix columns.
    activation : {"identity", "softmax"}
        What the generator applies: nothing, or a (Gumbel) softmax over the span.
    column : str
        Printable label of the table column that the span encodes.
    role : {"value", "category", "state"}
        A scaled number; the one-hot code of a category; or the one-hot *state* of a numeric column:
        ordinary value, missing, or one of its spikes.
    gate : int, optional
        For a value: the matrix column that is one where the value is present. A generator
        multiplies its output by it, because real rows hold 0 where the value is absent.
    bound : float, optional
        For a value: real rows stay within ± this number B, and a generator outputs
        ``B tanh(x / B)``.
    within : tuple of int, optional
        For the second part of a code in two parts: how many of its columns each code of the span
        before it has, always the first ones.
    """

    start: int
    width: int
    activation: Literal["identity", "softmax"]
    column: str
    role: Literal["value", "category", "state"]
    gate: int | None = None
    bound: float | None = None
    within: tuple[int, ...] | None = None

    @property
    def stop(self) -> int:
        """One past the last matrix column."""
        return self.start + self.width

    def shifted(self, offset: int) -> OutputSpan:
        """Return the same span, `offset` matrix columns further right."""
        gate = None if self.gate is None else self.gate + offset
        return replace(self, start=self.start + offset, gate=gate)


class ColumnTransformer(TransformerMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """One table column <-> float32 matrix columns, with an inverse that restores dtype and values.

    Subclasses write `_fit`, `encode_into`, `_decode`, `_spans`, `_state` and `_restore`; and
    `public_column`, if columns of their kind can be encoded without looking at the records;
    `recognises`, if columns can be of the kind without being declared so; and `is_labels` or
    `ranges`, if what is public of a column can be discovered.

    Attributes
    ----------
    name_ : object
        Label of the column.
    dtype_ : dtype
        Its pandas dtype; the inverse returns exactly this one.
    width_ : int
        Number of matrix columns; 0 for a constant column, which needs none.
    spans_ : tuple of OutputSpan
        Layout of the matrix columns, from 0 to `width_`.

    Notes
    -----
    Privacy: everything learned (categories, ranges, means, spikes) is read from private rows and is
    not covered by the noise of a private training. `to_dict` shows all of it.
    """

    registry_group: ClassVar[str] = "column_kinds"
    kind: ClassVar[str]
    is_labels: ClassVar[bool] = False
    """Whether the values are labels, which can only be counted, rather than numbers."""

    ranges: ClassVar[NumberRanges | TimeRanges | None] = None
    """What public bounds mean for a column of this kind, and where they are looked for."""

    rules: ClassVar[Mapping[str, Rule]] = {}
    """Ranges of parameters, by name."""

    name_: Any
    dtype_: Any

    def fit(self, column: pd.Series[Any], y: object = None) -> Self:
        """Learn the encoding of one column.

        Parameters
        ----------
        column : Series, shape (record,)
            Never modified.
        y : None
            Ignored; for scikit-learn.

        Raises
        ------
        ParameterError
            A parameter is out of range.
        ColumnKindError
            The values do not fit this kind, or the dtype is not supported.
        EmptyColumnError
            There is no value at all.
        """
        self.check_parameters()
        self.name_, self.dtype_ = column.name, column.dtype
        self._fit(column)
        self._lay_out()
        return self

    @property
    def declared_kind(self) -> str:
        """Kind of the column, as it would be declared."""
        return self.kind

    @classmethod
    def recognises(
        cls,
        dtype: Any,
        *,
        listed: PublicColumn | None = None,
        values: pd.Series[Any] | None = None,
        least: int = 0,
    ) -> bool:
        """Whether a column is of this kind that nobody declared; kinds are asked in their order.

        Parameters
        ----------
        dtype : dtype
        listed : Bounds or Categories, optional
            What the public schema says.
        values : Series, shape (record,), optional
            Given only where kinds may look at the records.
        least : int, default=0
            Records without which a category is not published.
        """
        return False

    @classmethod
    def public_column(
        cls, name: Hashable, dtype: Any, listed: PublicColumn | None
    ) -> PublicColumn | None:
        """Say what is known of a column of this kind without looking at the records.

        Parameters
        ----------
        name : object
            Its label, for error messages.
        dtype : dtype
        listed : Bounds or Categories, optional
            What the public schema says.

        Returns
        -------
        Bounds, Categories or None
            Ready for `cell_codes` and `PublicTransformer`; None if it has to be discovered, which
            needs `is_labels` or `ranges`.

        Raises
        ------
        ColumnKindError
            If dtype or schema contradict the kind, or the kind needs the records.
        """
        raise ColumnKindError(
            f"a column of kind {cls.kind!r} cannot be encoded by public knowledge alone",
            fix="declare it of another kind, or fit without privacy",
            column=name,
        )

    @classmethod
    def in_order(cls, name: Hashable, dtype: Any, values: Sequence[Any]) -> list[Any]:
        """Sort distinct values, by themselves alone, never by the order of records."""
        return [values[i] for i in places_in_order(values)]

    def transform(self, column: pd.Series[Any]) -> Matrix:
        """Encode a column as a matrix of shape (record, width_)."""
        check_is_fitted(self, "spans_")
        out = np.zeros((len(column), self.width_), dtype=np.float32)
        self.encode_into(column, out)
        return out

    def inverse_transform(self, matrix: npt.NDArray[Any]) -> pd.Series[Any]:
        """Decode a matrix of shape (record, width_); softmax spans need not be exactly one-hot."""
        check_is_fitted(self, "spans_")
        check_matrix(matrix, self.width_)
        return self._decode(matrix)

    def to_dict(self) -> dict[str, Any]:
        """Return parameters and learned state as JSON-safe values, without any table row."""
        check_is_fitted(self, "spans_")
        return {
            "kind": self.kind,
            "parameters": {
                name: value.to_dict() if isinstance(value, Encoder) else scalar_to_json(value)
                for name, value in self._saved_parameters().items()
            },
            "name": scalar_to_json(self.name_),
            "dtype": dtype_to_json(self.dtype_),
            "state": self._state(),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Rebuild a fitted transformer from `to_dict`.

        Raises
        ------
        ArtefactError
            The content does not describe a transformer of this kind.
        """
        with artefact_errors(cls.__name__):
            if content["kind"] != cls.kind:
                raise ValueError(f"kind is {content['kind']!r}, not {cls.kind!r}")
            parameters = {
                name: Encoder.from_dict(given) if isinstance(given, dict) else given
                for name, given in content["parameters"].items()
            }
            transformer = cls(**parameters)
            transformer.name_ = scalar_from_json(content["name"])
            transformer.dtype_ = dtype_from_json(content["dtype"])
            transformer._restore(content["state"])
            transformer._lay_out()
        return transformer

    def _lay_out(self) -> None:
        self.spans_ = self._spans()
        self.width_ = sum(span.width for span in self.spans_)

    def check_parameters(self) -> None:
        """Raise ParameterError for a parameter out of range."""
        check_parameters(type(self).__name__, self.get_params(deep=False), self.rules)

    @abstractmethod
    def encode_into(self, column: pd.Series[Any], out: Matrix) -> None:
        """Write the encoded column into `out`, shape (record, width_), which holds zeros."""

    def encode_new_into(self, column: pd.Series[Any], out: Matrix) -> int:
        """Write a column of records that are to be predicted, whatever occurs in it.

        As `encode_into`; returns how many hold a value that did not occur when fitted. Kinds that
        know no neutral code raise UnseenValueError.
        """
        self.encode_into(column, out)
        return 0

    def holds(self, column: pd.Series[Any]) -> npt.NDArray[np.bool_]:
        """Tell which records of a column have a value that occurred when fitted, or has a code."""
        try:
            self.transform(column)
        except UnseenValueError:
            if len(column) == 1:
                return np.zeros(1, np.bool_)
            halves = column.iloc[: len(column) // 2], column.iloc[len(column) // 2 :]
            return np.concatenate([self.holds(half) for half in halves])
        return np.ones(len(column), np.bool_)

    @abstractmethod
    def _fit(self, column: pd.Series[Any]) -> None: ...

    @abstractmethod
    def _decode(self, matrix: npt.NDArray[Any]) -> pd.Series[Any]: ...

    def spread(self, out: Matrix) -> None:
        """Move equal scaled numbers of encoded records apart, if they then decode to the same."""

    def _decode_generated(self, matrix: npt.NDArray[Any]) -> pd.Series[Any]:
        """Decode what a model made: perhaps only to values that are usual."""
        return self._decode(matrix)

    @abstractmethod
    def _spans(self) -> tuple[OutputSpan, ...]: ...

    def _saved_parameters(self) -> dict[str, Any]:
        """Return the parameters that are saved besides what was learned."""
        return dict(self.get_params(deep=False))

    @abstractmethod
    def _state(self) -> dict[str, Any]: ...

    @abstractmethod
    def _restore(self, state: Mapping[str, Any]) -> None: ...


def check_matrix(matrix: npt.NDArray[Any], width: int) -> None:
    """Raise EncodedMatrixError unless `matrix` is numeric, (record, width) and free of NaN."""
    if not isinstance(matrix, np.ndarray) or matrix.ndim != 2 or matrix.shape[1] != width:
        got = matrix.shape if isinstance(matrix, np.ndarray) else type(matrix).__name__
        raise EncodedMatrixError(f"expected an array of shape (record, {width}), got {got}")
    if not np.issubdtype(matrix.dtype, np.floating):
        raise EncodedMatrixError(f"expected an array of floats, got dtype {matrix.dtype}")
    # The minimum propagates NaN and needs no second matrix of flags.
    if matrix.size and np.isnan(matrix.min()):
        raise EncodedMatrixError("the matrix holds NaN; a generator's output must be finite")


def check_seen(codes: npt.NDArray[np.intp], column: Hashable) -> None:
    """Raise UnseenValueError where a record of a column has no code, which is -1."""
    unseen = codes < 0
    if unseen.any():
        raise UnseenValueError(
            f"{unseen.sum()} rows hold values that did not occur when the transformer was fitted "
            "(missing ones count)",
            fix="fit on a table that holds every value, or remove these rows",
            column=column,
            rows=np.flatnonzero(unseen)[:5].tolist(),
        )


@contextmanager
def artefact_errors(what: str) -> Iterator[None]:
    """Turn whatever goes wrong while reading foreign content into ArtefactError."""
    try:
        yield
    except ArtefactError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise ArtefactError(f"not the saved state of a {what}: {error!r}") from error


@contextmanager
def naming(party: str | None, column: Hashable) -> Iterator[None]:
    """Add the names of party and column to errors about the party's table."""
    try:
        yield
    except PartyDataError as error:
        raise type(error)(
            error.problem, fix=error.fix, party=party, column=column, rows=error.rows
        ) from None


def held_as(dtype: Any, given: pd.Series[Any]) -> pd.Series[Any]:
    """Return given values, none of them missing, in a column's type, or raise ColumnKindError."""
    try:
        held = given.astype(dtype)
        same = dtype.kind == "f" or held.astype(object).equals(given.astype(object))
    except (TypeError, ValueError):
        same = False
    if not same:
        raise not_held(dtype)
    return held


def not_held(dtype: Any) -> ColumnKindError:
    """Error about given values that a column's type cannot hold."""
    return ColumnKindError(
        f"what is given are not values of type {dtype}",
        fix="convert the column to the type that sampled records have",
    )


def from_one_hot(matrix: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Index of the largest entry of each record, the first one if several are equal."""
    return np.asarray(matrix.argmax(axis=1))
