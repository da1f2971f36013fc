"""Columns encoded by public bounds and published noisy histograms: no other look at the records."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from vflsynth.columns.arrays import numpy_dtype
from vflsynth.columns.base import ColumnTransformer, Matrix, OutputSpan
from vflsynth.columns.codec import (
    array_of,
    dtype_to_json,
    scalar_from_json,
    scalar_to_json,
)
from vflsynth.exceptions import ColumnKindError
from vflsynth.privacy.histograms import LARGEST_SCORE, NoisyHistogram
from vflsynth.privacy.schema import Bounds, Categories


class PublicTransformer(ColumnTransformer):
    """A column as its published histogram describes it.

    Numbers become standard scores within ±12, by the histogram's mean and standard deviation;
    categories of the public list that are visible above the noise become one-hot, and others are
    not synthesised. Missing values get a state of their own if they are visible above the noise.
    Made by `of`, not fitted. If the histogram has a quantile map, which it gets when training is
    over, decoding applies it: generated numbers are then decoded, and encoded ones are not.

    Notes
    -----
    Privacy: post-processing of the histogram. Name and dtype of the column are taken as public. The
    categories of a categorical dtype are replaced by the public list.
    """

    kind: ClassVar[str] = "public"
    histogram_: NoisyHistogram

    @classmethod
    def of(cls, name: Hashable, dtype: Any, histogram: NoisyHistogram) -> Self:
        """Make the transformer of a column.

        Raises
        ------
        ColumnKindError
            If the column's dtype cannot hold the public values.
        """
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
                values = column.values
                same = list(array_of(list(values), dtype)) == list(values)
            else:
                same = _holds(numpy_dtype(dtype), column)
        except (TypeError, ValueError, OverflowError):
            same = False
        if not same:
            raise ColumnKindError(
                f"a column of type {dtype} cannot hold the values that the public schema gives it",
                fix="give it categories of the column's own type, or bounds if it is numeric",
                column=name,
            )
        transformer._lay_out()
        return transformer

    def check_parameters(self) -> None:
        """There are none."""

    def encode_into(self, column: pd.Series[Any], out: Matrix) -> None:
        """Write the encoded column into `out`, shape (record, width_), which holds zeros."""
        self._lay(self.histogram_.encode(column).numpy(), out)

    def draw_into(self, rng: np.random.Generator, out: Matrix) -> None:
        """Fill `out`, shape (record, width_), with values as the histogram has them."""
        self._lay(self.histogram_.draw(len(out), rng).numpy(), out)

    def _lay(self, encoded: npt.NDArray[np.float64], out: Matrix) -> None:
        if self._has_gate:  # score, missing -> score, present, missing
            encoded = np.insert(encoded, 1, 1.0 - encoded[:, 1], axis=1)
        out[:] = encoded

    def mapped_histogram(self, generated: Matrix) -> NoisyHistogram:
        """Return the histogram with the quantile map of generated rows, shape (record, width_)."""
        if isinstance(self.histogram_.column, Categories):
            return self.histogram_
        present = generated[:, 1] > generated[:, 2] if self._has_gate else slice(None)
        return self.histogram_.mapped(torch.from_numpy(generated[present, 0]))

    @property
    def _has_gate(self) -> bool:
        return isinstance(self.histogram_.column, Bounds) and self.histogram_.has_missing

    def _fit(self, column: pd.Series[Any]) -> None:
        raise TypeError("a PublicTransformer is made of a published histogram, not of records")

    def _decode(self, matrix: npt.NDArray[Any]) -> pd.Series[Any]:
        histogram, column, own = self.histogram_, self.histogram_.column, numpy_dtype(self.dtype_)
        # Integers and flags of numpy have no missing value: such records get an ordinary one.
        can_miss = not (isinstance(self.dtype_, np.dtype) and own.kind in "biu")
        if isinstance(column, Categories):
            visible = histogram.visible
            best = matrix if can_miss else matrix[:, : len(visible)]
            codes = best.argmax(axis=1)
            missing = codes == len(visible)
            codes = visible[np.where(missing, 0, codes)]
            array = array_of(list(column.values), self.dtype_).take(codes)
        else:
            scores = torch.from_numpy(matrix[:, 0].astype(np.float64))
            numbers = histogram.decode_numeric(scores).numpy()
            missing = np.zeros(len(matrix), dtype=np.bool_)
            if self._has_gate and can_miss:
                missing = matrix[:, 2] > matrix[:, 1]
            if own.kind in "biu":
                numbers = np.clip(np.rint(numbers), np.ceil(column.low), np.floor(column.high))
            array = array_of(numbers.astype(own), self.dtype_)
        if missing.any():
            array[missing] = np.nan if own == self.dtype_ and own.kind == "f" else None
        decoded: pd.Series[Any] = pd.Series(array, dtype=self.dtype_, name=self.name_, copy=False)
        return decoded

    def _spans(self) -> tuple[OutputSpan, ...]:
        label, histogram = str(self.name_), self.histogram_
        if isinstance(histogram.column, Categories):
            return (OutputSpan(0, histogram.encoded_dim, "softmax", label, "category"),)
        gate = 1 if self._has_gate else None
        value = OutputSpan(0, 1, "identity", label, "value", gate, LARGEST_SCORE)
        return (value, OutputSpan(1, 2, "softmax", label, "state")) if self._has_gate else (value,)

    def _state(self) -> dict[str, Any]:
        column = self.histogram_.column
        public: dict[str, Any]
        if isinstance(column, Bounds):
            public = {"bounds": [float(column.low), float(column.high)]}
        else:
            public = {"categories": [scalar_to_json(value) for value in column.values]}
        counts = self.histogram_.counts.tolist()
        if self.histogram_.support is not None:
            support = self.histogram_.support
            public["support"] = [float(support.low), float(support.high)]
        if self.histogram_.quantile_map is not None:
            public["quantile_map"] = [knots.tolist() for knots in self.histogram_.quantile_map]
        return {**public, "counts": counts, "noise_std": float(self.histogram_.noise_std)}

    def _restore(self, state: Mapping[str, Any]) -> None:
        if "bounds" in state:
            column: Bounds | Categories = Bounds(*state["bounds"])
        else:
            column = Categories(tuple(scalar_from_json(value) for value in state["categories"]))
        counts = np.array(state["counts"], dtype=np.float64)
        support = Bounds(*state["support"]) if "support" in state else None
        quantile_map = None
        if "quantile_map" in state:
            before, after = (np.array(knots, dtype=np.float64) for knots in state["quantile_map"])
            if before.shape != after.shape or before.ndim != 1 or not len(before):
                raise ValueError("a quantile map needs as many values after as before")
            quantile_map = before, after
        self.histogram_ = NoisyHistogram(
            column, counts, float(state["noise_std"]), support, quantile_map
        )


def _holds(dtype: np.dtype[Any], bounds: Bounds) -> bool:
    """Whether a type holds all numbers between the bounds: decoding would wrap around otherwise."""
    if dtype.kind not in "iu":
        return dtype.kind in "bf"
    limits = np.iinfo(dtype)
    return limits.min <= math.ceil(bounds.low) and math.floor(bounds.high) <= limits.max
