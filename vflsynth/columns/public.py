"""Columns encoded by public bounds and published noisy histograms: no other look at the records."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from vflsynth.codec import array_of, dtype_to_json, scalar_from_json, scalar_to_json
from vflsynth.columns.arrays import Floats, IntegerAxis, numpy_dtype, write_values
from vflsynth.columns.base import (
    ColumnTransformer,
    Matrix,
    OutputSpan,
    axis_of,
    held_as,
    naming,
    not_held,
)
from vflsynth.columns.bins import Bins
from vflsynth.columns.categorical import can_hold, does_not_hold
from vflsynth.columns.encoders import Curve, Encoder, Standardizer, encoder_of
from vflsynth.columns.histograms import LARGEST_SCORE, NoisyHistogram
from vflsynth.columns.kinds import recognised
from vflsynth.columns.schema import Bounds, Categories, PublicSchema
from vflsynth.exceptions import PartyDataError
from vflsynth.frames.keys import key_of, only_counts_rows
from vflsynth.frames.party_frames import PartyFrames
from vflsynth.frames.typed import in_order, readable, with_blanks, with_type


class PublicTransformer(ColumnTransformer):
    """A column as its published histogram describes it.

    Numbers and times become standard scores within ±12, by the histogram's mean and standard
    deviation; categories of the public list that are visible above the noise become one-hot, and
    others are not synthesised. Missing values get a state of their own if they are visible above
    the noise. Made by `of`, not fitted.

    Notes
    -----
    Privacy: post-processing of the histogram. Name and dtype of the column are taken as public. The
    categories of a categorical dtype are replaced by the public list.
    """

    kind: ClassVar[str] = "public"
    histogram_: NoisyHistogram

    @classmethod
    def of(
        cls,
        name: Hashable,
        dtype: Any,
        histogram: NoisyHistogram,
        kind: str | None = None,
        encoder: str | Encoder | None = None,
    ) -> Self:
        """Make a column's transformer; its kind is as declared, or what dtype and histogram say.

        The encoder, of a column of numbers, is by default that of the histogram. ColumnKindError if
        the dtype cannot hold the public values, ParameterError if the encoder needs the records.
        """
        if encoder is not None and isinstance(histogram.column, Bounds):
            histogram = replace(histogram, curve=encoder_of(encoder).published())
        transformer = cls()
        transformer.name_, transformer.histogram_ = name, histogram
        column = histogram.column
        if isinstance(dtype, pd.CategoricalDtype):
            values = column.values if isinstance(column, Categories) else ()
            dtype = pd.CategoricalDtype(list(values), ordered=bool(dtype.ordered))
        transformer.dtype_ = dtype
        try:
            dtype_to_json(dtype)
            if isinstance(column, Categories):
                fits = can_hold(dtype, column.values)
            else:
                fits = bool(axis_of(column, dtype))
        except (TypeError, ValueError, OverflowError):
            fits = False
        if not fits:
            raise does_not_hold(name, dtype)
        transformer._kind = kind or recognised(name, dtype, listed=column)
        transformer._lay_out()
        return transformer

    @property
    def declared_kind(self) -> str:
        """Kind of the column, as it was or would be declared."""
        return self._kind

    def encode_into(self, column: pd.Series[Any], out: Matrix) -> None:
        """Write the encoded column into `out`, shape (record, width_), which holds zeros."""
        if numpy_dtype(self.dtype_).kind in "mM":
            try:
                column = column.astype(self.dtype_)  # counts are of its unit
            except (TypeError, ValueError):
                raise not_held(self.dtype_) from None
        encoded = self.histogram_.encode(column)
        if self._has_gate:  # score, states -> score, present, states
            encoded = np.insert(encoded, 1, 1.0 - encoded[:, 1:].sum(axis=1), axis=1)
        out[:] = encoded

    def score_cells(self, column: pd.Series[Any]) -> tuple[Floats, Floats, float]:
        """Find the scores that decode to each value; see `NoisyHistogram.score_cells`.

        ColumnKindError if the column's type cannot hold a value.
        """
        there = np.asarray(column.notna())
        lower, upper = np.full(len(column), np.inf), np.full(len(column), -np.inf)
        held = held_as(self.dtype_, column[there])
        lower[there], upper[there], log_width = self.histogram_.score_cells(held)
        return lower, upper, log_width

    @property
    def _has_gate(self) -> bool:
        return isinstance(self.histogram_.column, Bounds) and self.histogram_.encoded_dim > 1

    def _fit(self, column: pd.Series[Any]) -> None:
        raise TypeError("a PublicTransformer is made of a published histogram, not of records")

    def _decode(self, matrix: npt.NDArray[Any]) -> pd.Series[Any]:
        # Integers and flags of NumPy have no missing value: such records get an ordinary one.
        can_miss = not (isinstance(self.dtype_, np.dtype) and self.dtype_.kind in "biu")
        if isinstance(self.histogram_.column, Categories):
            return self._decode_labels(matrix, self.histogram_.column, can_miss=can_miss)
        bounds = self.histogram_.column
        missing = np.zeros(len(matrix), dtype=np.bool_)
        if self._has_gate and can_miss:
            missing = matrix[:, 1:].argmax(axis=1) > 0
        numbers = self.histogram_.decode_numeric(matrix[:, 0].astype(np.float64))
        axis = axis_of(bounds, self.dtype_)
        if isinstance(axis, IntegerAxis):
            numbers = (numbers - (axis.lower - bounds.origin)) / max(axis.step, 1)
        values = axis.from_coordinates(numbers)
        return write_values(values, missing, self.dtype_, self.name_, days=bounds.step > 1)

    def _decode_labels(
        self, matrix: npt.NDArray[Any], labels: Categories, *, can_miss: bool
    ) -> pd.Series[Any]:
        visible = self.histogram_.visible
        best = matrix if can_miss else matrix[:, : len(visible)]
        codes = best.argmax(axis=1)
        missing = codes == len(visible)
        codes = visible[np.where(missing, 0, codes)]
        array = array_of(list(labels.values), self.dtype_).take(codes)
        if missing.any():
            array[missing] = np.nan if numpy_dtype(self.dtype_).kind == "f" else None
        decoded: pd.Series[Any] = pd.Series(array, dtype=self.dtype_, name=self.name_, copy=False)
        return decoded

    def _spans(self) -> tuple[OutputSpan, ...]:
        label, histogram = str(self.name_), self.histogram_
        if isinstance(histogram.column, Categories):
            return (OutputSpan(0, histogram.encoded_dim, "softmax", label, "category"),)
        gate = 1 if self._has_gate else None
        value = OutputSpan(0, 1, "identity", label, "value", gate, LARGEST_SCORE)
        if not self._has_gate:
            return (value,)
        return value, OutputSpan(1, histogram.encoded_dim, "softmax", label, "state")

    def _state(self) -> dict[str, Any]:
        histogram, cells = self.histogram_, self.histogram_.cells
        public: dict[str, Any] = {"declared": self._kind}
        if isinstance(cells, Bins):
            public["bounds"] = [scalar_to_json(end) for end in cells.bounds.ends]
            public |= {"origin": cells.bounds.origin, "step": cells.bounds.step}
            public |= {"lows": cells.lows.tolist(), "highs": cells.highs.tolist()}
            public["curve"] = histogram.curve.to_dict()
        else:
            public["categories"] = [scalar_to_json(value) for value in cells.values]
        noise_std, exponent = float(histogram.noise_std), histogram.exponent
        counts = histogram.steps.tolist()  # whole numbers, as they were released
        return {**public, "counts": counts, "exponent": exponent, "noise_std": noise_std}

    def _restore(self, state: Mapping[str, Any]) -> None:
        self._kind = str(state["declared"])
        bins = None
        curve: Curve = Standardizer()
        column: Bounds | Categories
        if "bounds" in state:
            low, high = state["bounds"]
            column = Bounds(low, high, int(state["origin"]), state["step"])
            ends = (np.array(state[name], dtype=np.float64) for name in ("lows", "highs"))
            bins = Bins(column, *ends)
            axis_of(column, self.dtype_)
            curve = Encoder.from_dict(state["curve"]).published()
        else:
            column = Categories(tuple(scalar_from_json(value) for value in state["categories"]))
        exponent = int(state["exponent"])
        steps = np.array(state["counts"], dtype=np.int64)
        if steps.tolist() != state["counts"]:
            raise ValueError("counts are whole numbers of steps")
        counts = np.ldexp(steps.astype(np.float64), exponent)
        noise_std = float(state["noise_std"])
        self.histogram_ = NoisyHistogram(column, counts, noise_std, bins, exponent, curve)


def typed_frames(
    frames: PartyFrames, schema: PublicSchema | None, on: Any
) -> dict[str, pd.DataFrame]:
    """Give all parties' tables the types of their public schema, see `with_public_types`."""
    return {
        party: with_public_types(frame, schema, key_of(on, party), party=party)
        for party, frame in frames.items()
    }


def with_public_types(
    frame: pd.DataFrame,
    schema: PublicSchema | None,
    key: Hashable = None,
    *,
    party: str | None = None,
) -> pd.DataFrame:
    """Give a table the types that its public schema states; what is not of them is missing.

    The frame, with its key column if it has one, is not modified. PartyDataError if nobody stated
    the type of a column; ColumnKindError if a key is not of the type that was stated.

    Privacy: types that a program inferred from values are not public, and neither is what became of
    all values because of one (`vflsynth.frames.typed`). What is published has the types of the
    schema, or those beside them that hold blanks, whatever the table's are; categories without an
    order are sorted. One value that is not of its column's type must neither end a run nor be
    counted aloud: it is missing, and the owner alone is warned (`OwnTableWarning`).
    """
    if schema is not None and schema.dtypes == "given":
        typed = frame.copy(deep=False)
        for name in frame.columns:
            typed[name] = in_order(frame[name])
        return typed
    stated: dict[Hashable, Any] = {
        label: None if schema is None else schema.dtype_of(label) for label in frame.columns
    }
    if missing := [label for label, dtype in stated.items() if dtype is None]:
        blanks = {label: str(with_blanks(frame[label].dtype)) for label in missing}
        proposed = {label: "str" if own == "object" else own for label, own in blanks.items()}
        raise PartyDataError(
            f"the public schema does not say of which types the columns {missing} are, and types "
            "that were inferred from the records are not public: one blank can change them",
            fix=f"PublicSchema(dtypes={proposed!r}), or dtypes='given' if the table's own types "
            "were fixed without looking at the records, as parquet files and databases do",
            party=party,
        )
    assert schema is not None, "it states all types"
    typed = frame.copy(deep=False)
    of_owner = partial(readable, party=party)
    for label, dtype in stated.items():
        public = schema.get(label)
        labels = public.values if isinstance(public, Categories) else None
        with naming(party, label):
            read = with_type if label == key else of_owner
            typed[label] = read(frame[label], dtype, labels)
    return typed.set_axis(_public_index(frame.index, schema))


def _public_index(index: pd.Index, schema: PublicSchema) -> pd.Index:
    """Return the index, by which records match if there is no key column, in a public type.

    If nobody stated it, keys are minted as text, as those of objects are: that all are numbers, or
    consecutive ones, was found out by looking at all of them.
    """
    if isinstance(index, pd.MultiIndex) or only_counts_rows(index):
        return index
    dtype = schema.dtype_of(index.name) if index.name is not None else None
    if dtype is None:
        found: pd.Index = pd.Index(index, dtype=object)
    else:
        found = pd.Index(with_type(index.to_series(), dtype), name=index.name)
    return found
