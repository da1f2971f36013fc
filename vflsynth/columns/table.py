"""A party's table <-> one float32 matrix: one column transformer per column."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from vflsynth._artefacts import refusing
from vflsynth.codec import (
    check_can_be_written,
    index_from_json,
    index_to_json,
    scalar_from_json,
    scalar_to_json,
)
from vflsynth.columns.arrays import Flags
from vflsynth.columns.base import ColumnTransformer, Matrix, OutputSpan, check_matrix, naming
from vflsynth.columns.categorical import Rare
from vflsynth.columns.encoders import Encoder, encoder_of
from vflsynth.columns.histograms import NoisyHistogram
from vflsynth.columns.kinds import TRANSFORMERS, check_dtype, check_kinds, column_kind, infer_kind
from vflsynth.columns.public import PublicTransformer
from vflsynth.exceptions import (
    ColumnKindError,
    ColumnMismatchError,
    ParameterError,
    did_you_mean,
    warn_user,
)
from vflsynth.frames.party_frames import check_is_frame, check_table
from vflsynth.registry import Map, Optional, Rule, check_parameters, register


@register
@dataclass(repr=False, eq=False)
class TableTransformer(  # type: ignore[call-arg]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
    auto_wrap_output_keys=None,
):
    """Encode a table as a float matrix; decode matrices to tables of the same columns and dtypes.

    Parameters
    ----------
    kinds : mapping, optional
        Column label to kind, for columns whose kind should not be inferred: what its values mean.
        For kinds and rules see `vflsynth.columns.kinds.infer_kind`.
    continuous : str or Encoder, default "auto"
        How numbers and times are encoded, of any kind: an encoder of `vflsynth.columns.encoders`,
        or its name. "auto" standardises (VFLGAN Eq. 22), or takes normal scores of ranks for a
        column with long tails.
    encoders : mapping of column label to str or Encoder, optional
        Other encoders for single columns, such as ``{"income": Log()}``.
    rare_threshold : float, default 0.001
        Of columns of labels, see `CategoricalTransformer`.
    spike_share, max_levels, spike_records : float or None, int and int, defaults 0.1, 0 and 10
        Of columns of numbers, see `NumericTransformer`; ``continuous="standard", spike_share=None,
        rare_threshold=0`` is the paper's encoding.
    rare_records, extreme_records : int, optional
        Of both: fewest records of a value that comes out, and of how many extremes a range ends at
        a mean. Default: 0 where a table is only encoded (5 of more than 256 categories), 5 wherever
        a synthesizer learns from it without privacy.
    rare : {"redraw", "nearest", "pool"}, default "redraw"
        What a forgotten category counts as, see `CategoricalTransformer`.
    overrides : mapping of column label to mapping, optional
        Other values of these parameters for single columns, and their `spikes`, numbers that are
        states of their own.

    Attributes
    ----------
    width_ : int
        Number of matrix columns. 0 if every column is constant.
    spans_ : tuple of OutputSpan
        Layout of the matrix, covering ``0..width_``.
    kinds_ : dict
        Column label to kind.
    transformers_ : dict
        Column label to fitted `ColumnTransformer`.
    n_features_in_ : int
        Number of table columns.
    feature_names_in_ : ndarray of str, shape (n_features_in_,)
        Their names, if all are text.
    party_ : str or None
        Name of the party, for error messages.

    Notes
    -----
    Sees: one party's table. Sends: nothing. Privacy: see `ColumnTransformer`. `fit` does not
    encode; `width_` tells the size of the matrix (``4 * n_records * width_`` bytes) before.

    Examples
    --------
    >>> import pandas as pd
    >>> from vflsynth.columns import TableTransformer
    >>> table = pd.DataFrame({"age": [31.5, None, 48.25], "smoker": [True, False, True]})
    >>> transformer = TableTransformer().fit(table)
    >>> [(span.column, span.role, span.width) for span in transformer.spans_]
    [('age', 'value', 1), ('age', 'state', 2), ('smoker', 'category', 2)]
    >>> transformer.inverse_transform(transformer.transform(table)).equals(table)
    True
    """

    registry_group: ClassVar[str] = "parameters"

    kinds: Mapping[Any, str] | None = None
    _: KW_ONLY
    continuous: str | Encoder = "auto"
    encoders: Mapping[Any, str | Encoder] | None = None
    rare_threshold: float = 0.001
    spike_share: float | None = 0.1
    max_levels: int = 0
    spike_records: int = 10
    rare_records: int | None = None
    rare: Rare = "redraw"
    extreme_records: int | None = None
    overrides: Mapping[Any, Mapping[str, Any]] | None = None

    def fit(self, frame: pd.DataFrame, y: object = None, *, party: str | None = None) -> Self:
        """Learn the encoding of every column.

        Parameters
        ----------
        frame : DataFrame, shape (record, column)
            At least one record and one column. Never modified.
        y : None
            Ignored; for scikit-learn.
        party : str, optional
            Name of the party that owns the table, for error messages.

        Raises
        ------
        ParameterError
            A parameter is out of range.
        ColumnKindError
            A kind is unknown, or does not fit the column's values; or `kinds`, `encoders` or
            `overrides` names no column, or `encoders` one of labels.
        CardinalityError
            A categorical column has too many distinct values.
        EmptyColumnError
            A column has no value.
        InfiniteValueError
            A column holds infinity.
        """
        self.check_parameters()
        check_table(frame, party)
        kinds = check_kinds(self.kinds, frame.columns, party=party)
        check_encoders(self.encoders, frame.columns, party=party)
        check_overrides(self.overrides, frame.columns, party=party)
        transformers: dict[Any, ColumnTransformer] = {}
        for label in frame.columns:
            with naming(party, label):
                check_can_be_written(frame[label])
                check_dtype(frame[label].dtype)
                kind = kinds.get(label) or infer_kind(frame[label], least=self.rare_records or 0)
                transformers[label] = self._transformer(kind, label).fit(frame[label])
        self.party_ = party
        self._columns = frame.columns
        self._index_name = frame.index.name
        self._set_transformers(transformers)
        return self

    @classmethod
    def from_histograms(
        cls,
        frame: pd.DataFrame,
        histograms: Mapping[Any, NoisyHistogram],
        template: TableTransformer | None = None,
        *,
        party: str | None = None,
    ) -> Self:
        """Encode by published noisy histograms, and nothing else of the records.

        Of the frame, labels and dtypes alone are looked at; the template has the kinds and encoders
        that were declared. ColumnKindError if a public bound or category does not fit a column's
        dtype, ParameterError if an encoder needs the records.
        """
        template = cls() if template is None else template
        kinds, encoders = template.kinds or {}, template.encoders or {}
        transformers: dict[Any, ColumnTransformer] = {}
        for label in frame.columns:
            with naming(party, label):
                made = PublicTransformer.of(
                    label,
                    frame[label].dtype,
                    histograms[label],
                    kinds.get(label),
                    encoders.get(label, template.continuous),
                )
                if label in encoders:
                    _check_encodable(made)
                transformers[label] = made
        return cls()._with(transformers, frame.columns, frame.index.name, party)

    def transform(
        self, frame: pd.DataFrame, *, unseen: Literal["refuse", "neutral"] = "refuse"
    ) -> Matrix:
        """Encode a table.

        Parameters
        ----------
        frame : DataFrame, shape (record, n_features_in_)
            The fitted columns, in any order.
        unseen : {"refuse", "neutral"}, default "refuse"
            What becomes of values that did not occur when fitted. "neutral" is for prediction: a
            category gets the code of rare ones, or none; a missing number becomes 0, the middle of
            scaled values. A warning counts them.

        Returns
        -------
        ndarray of float32, shape (record, width_)
            C-contiguous; a DataFrame after ``set_output(transform="pandas")``.

        Raises
        ------
        ColumnMismatchError
            Columns are missing or were not there when fitted.
        UnseenValueError
            A category or a missing value that did not occur when fitted, unless it is neutral.
        """
        check_is_fitted(self, "spans_")
        check_is_frame(frame, self.party_)
        self._check_columns(frame)
        matrix = np.zeros((len(frame), self.width_), dtype=np.float32)
        neutral = {}
        for label, transformer, place in self._placed():
            with naming(self.party_, label):
                if unseen == "refuse":
                    transformer.encode_into(frame[label], matrix[:, place])
                else:
                    neutral[label] = transformer.encode_new_into(frame[label], matrix[:, place])
        if found := {label: count for label, count in neutral.items() if count}:
            columns = ", ".join(f"{label!r} ({count})" for label, count in found.items())
            whose = "" if self.party_ is None else f"party {self.party_!r}: "
            warn_user(
                f"{whose}of {len(frame)} records, some hold values that did not occur when the "
                f"encoding was learned, and count as neutral; column (records): {columns}",
                UserWarning,
            )
        if getattr(self, "_sklearn_output_config", {}).get("transform") == "pandas":
            names = self.get_feature_names_out()
            return pd.DataFrame(matrix, index=frame.index, columns=names)  # type: ignore[return-value]
        return matrix

    def set_output(self, *, transform: Literal["default", "pandas"] | None = None) -> Self:
        """Say what `transform` returns, as of scikit-learn; parties always learn from arrays.

        None changes nothing; ParameterError if it is anything but "default" and "pandas".
        """
        if transform not in (None, "default", "pandas"):
            raise ParameterError(f"set_output takes 'default' or 'pandas', got {transform!r}")
        if transform is not None:
            self._sklearn_output_config = {"transform": transform}
        return self

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[np.object_]:
        """Return names of the matrix's columns, such as ``age_value`` and ``sex_category_0``.

        `input_features` is there for scikit-learn: the names are those of the fit.
        """
        check_is_fitted(self, "spans_")
        names = [
            f"{span.column}_{span.role}" + (f"_{k}" if span.width > 1 else "")
            for span in self.spans_
            for k in range(span.width)
        ]
        return np.array(names, dtype=object)

    def holds(self, frame: pd.DataFrame) -> Flags:
        """Tell which records hold nothing but values that `transform` would not refuse."""
        check_is_fitted(self, "spans_")
        self._check_columns(frame)
        found = np.ones(len(frame), np.bool_)
        for label, transformer, _ in self._placed():
            with naming(self.party_, label):
                found &= transformer.holds(frame[label])
        return found

    def spread(self, matrix: Matrix) -> Matrix:
        """Move equal scores of an encoded matrix apart, in place, where the encoder can.

        It decodes to the same table; scores are normally distributed where they were those of a few
        values.
        """
        for _, transformer, place in self._placed():
            transformer.spread(matrix[:, place])
        return matrix

    @property
    def histograms_(self) -> dict[Any, NoisyHistogram]:
        """The published histograms, by column, of a transformer made by `from_histograms`."""
        found: dict[Any, NoisyHistogram] = {}
        for label, transformer, _ in self._placed():
            if not isinstance(transformer, PublicTransformer):
                raise TypeError(f"column {label!r} is not described by a published histogram")
            found[label] = transformer.histogram_
        return found

    @classmethod
    def joined(cls, parts: Sequence[TableTransformer], *, party: str | None = None) -> Self:
        """Encode the columns of several fitted transformers side by side."""
        transformers = {k: v for part in parts for k, v in part.transformers_.items()}
        labels = pd.Index([label for part in parts for label in part._columns], tupleize_cols=False)
        return parts[0]._with(transformers, labels, None, party)

    def part(
        self, columns: pd.Index[Any], index_name: Any, *, party: str | None = None
    ) -> tuple[Self, slice]:
        """Return the encoding of some adjacent columns alone, and its place in the matrix."""
        places = {label: place for label, _, place in self._placed()}
        own = self._with(
            {label: self.transformers_[label] for label in columns}, columns, index_name, party
        )
        return own, slice(places[columns[0]].start, places[columns[-1]].stop)

    def _with(
        self,
        transformers: dict[Any, ColumnTransformer],
        columns: pd.Index[Any],
        index_name: Any,
        party: str | None,
    ) -> Self:
        """Return a fitted transformer of the same parameters and of other columns."""
        of_columns = dict.fromkeys(("kinds", "encoders", "overrides"))
        table = type(self)(**self.get_params(deep=False) | of_columns)
        table.party_, table._columns, table._index_name = party, columns, index_name
        table._set_transformers(transformers)
        return table

    def inverse_transform(
        self, matrix: npt.NDArray[Any], *, generated: bool = False
    ) -> pd.DataFrame:
        """Decode a matrix.

        Parameters
        ----------
        matrix : ndarray of floats, shape (record, width_)
            The largest entry of each softmax span decides; values are rounded and clipped to what
            the column can hold.
        generated : bool, default=False
            Whether a model made it: then numbers go to the grid that nearly all records are on
            (95 %), where `transform` and its inverse keep an odd one as it is.

        Returns
        -------
        DataFrame, shape (record, n_features_in_)
            Original labels, order and dtypes, with a fresh RangeIndex of the original name.

        Raises
        ------
        EncodedMatrixError
            Wrong shape, or NaN.
        """
        check_is_fitted(self, "spans_")
        check_matrix(matrix, self.width_)
        columns = {}
        for position, (_, transformer, place) in enumerate(self._placed()):
            decode = transformer._decode_generated if generated else transformer._decode
            columns[position] = decode(matrix[:, place])
        index = pd.RangeIndex(len(matrix), name=self._index_name)
        table = pd.DataFrame(columns, copy=False)
        table.index, table.columns = index, self._columns
        return table

    def to_dict(self) -> dict[str, Any]:
        """Return what was learned as JSON-safe values, without any table row; no parameters."""
        check_is_fitted(self, "spans_")
        return {
            "party": self.party_,
            "columns": index_to_json(self._columns),
            "index_name": scalar_to_json(self._index_name),
            "transformers": [t.to_dict() for t in self.transformers_.values()],
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Rebuild a fitted transformer from `to_dict`, with default parameters for other fits.

        Raises
        ------
        ArtefactError
            The content does not describe a table transformer.
        """
        with refusing(f"not the saved state of a {cls.__name__}"):
            columns = index_from_json(content["columns"])
            made = [_class_of(t["kind"]).from_dict(t) for t in content["transformers"]]
            transformers = dict(zip(columns, made, strict=True))
            index_name = scalar_from_json(content["index_name"])
            return cls()._with(transformers, columns, index_name, content["party"])

    def check_parameters(self) -> None:
        """Raise ParameterError for a parameter out of range, whatever the columns are."""
        encoder_of(self.continuous, "continuous")
        check_parameters(type(self).__name__, self.get_params(deep=False), _RULES)
        for kind in ("continuous", "categorical"):  # the rest, even if no column needs it
            self._transformer(kind).check_parameters()

    def _transformer(self, kind: str, label: Any = None) -> ColumnTransformer:
        """Make a transformer with those of our parameters that it has."""
        made = column_kind(kind)
        ours = self.get_params(deep=False) | {"encoder": self.continuous}
        ours |= (self.overrides or {}).get(label, {})
        ours |= {name: ours[name] or 0 for name in ("rare_records", "extreme_records")}
        if label in (self.encoders or {}):
            ours["encoder"] = (self.encoders or {})[label]
        own = made(**{name: ours[name] for name in made().get_params(deep=False) if name in ours})
        if label in (self.encoders or {}):
            _check_encodable(own)
        return own

    def _set_transformers(self, transformers: dict[Any, ColumnTransformer]) -> None:
        self.transformers_ = transformers
        self.kinds_ = {label: t.declared_kind for label, t in transformers.items()}
        self.width_ = sum(transformer.width_ for transformer in transformers.values())
        self.spans_: tuple[OutputSpan, ...] = tuple(
            span.shifted(place.start)
            for _, transformer, place in self._placed()
            for span in transformer.spans_
        )
        self.n_features_in_ = len(transformers)
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_  # of an earlier fit
        if all(isinstance(label, str) for label in transformers):
            self.feature_names_in_: npt.NDArray[np.object_] = np.array(
                [*transformers], dtype=object
            )

    def _placed(self) -> Iterator[tuple[Any, ColumnTransformer, slice]]:
        """Each column's label, transformer and place in the matrix."""
        start = 0
        for label, transformer in self.transformers_.items():
            yield label, transformer, slice(start, start + transformer.width_)
            start += transformer.width_

    def _check_columns(self, frame: pd.DataFrame) -> None:
        missing = [label for label in self.transformers_ if label not in frame.columns]
        extra = [label for label in frame.columns if label not in self.transformers_]
        if missing or extra or len(frame.columns) != self.n_features_in_:
            raise ColumnMismatchError(
                f"columns {missing} are missing and columns {extra} are new"
                if missing or extra
                else "a column occurs twice",
                fix=f"pass exactly the fitted columns {list(self.transformers_)}",
                party=self.party_,
            )


def check_encoders(
    encoders: Mapping[Any, str | Encoder] | None,
    columns: Collection[Any],
    *,
    party: str | None = None,
) -> dict[Any, str | Encoder]:
    """Return declared encoders, once they exist, for existing columns only; as `check_kinds`.

    ColumnKindError or ParameterError if not.
    """
    _check_columns_of("encoders", encoders, columns, party)
    for label, encoder in (encoders or {}).items():
        encoder_of(encoder, f"encoders[{label!r}]")
    return dict(encoders or {})


def check_overrides(
    overrides: Mapping[Any, Mapping[str, Any]] | None,
    columns: Collection[Any],
    *,
    party: str | None = None,
) -> dict[Any, Mapping[str, Any]]:
    """Return parameters of single columns, once columns and parameters exist; as `check_kinds`.

    ColumnKindError or ParameterError if not.
    """
    _check_columns_of("overrides", overrides, columns, party)
    known = sorted(
        {name for kind in TRANSFORMERS.values() for name in kind().get_params(deep=False)}
    )
    for label, own in (overrides or {}).items():
        for name in own:
            if name not in known:
                raise ParameterError(
                    f"overrides[{label!r}] has {name!r}, and a column has {', '.join(known)}"
                    + did_you_mean(name, known)
                )
    return dict(overrides or {})


def _check_columns_of(
    parameter: str, said: Mapping[Any, Any] | None, columns: Collection[Any], party: str | None
) -> None:
    """Raise ColumnKindError if a parameter says something of a column that is not there."""
    for label, own in (said or {}).items():
        with naming(party, label):
            if label not in columns:
                raise ColumnKindError(
                    f"{parameter} has {own!r} for it, but there is no such column",
                    fix=f"use one of {list(columns)}",
                )


def _check_encodable(column: ColumnTransformer) -> None:
    """Raise ColumnKindError if a column that was given an encoder has no numbers."""
    numbers = column_kind(column.declared_kind)
    if "encoder" not in numbers().get_params(deep=False):
        raise ColumnKindError(
            f"encoders has one for it, and columns of kind {numbers.kind!r} have none",
            fix="leave it out of encoders, or declare the column continuous, integer or datetime",
        )


def check_public(transformer: TableTransformer) -> None:
    """Refuse parameters that only an encoding which is learned from the records can have.

    `kinds` hold in both modes. So do ``spike_share=None`` and ``rare_threshold=0``, because an
    encoding by published histograms has neither spikes nor a slot that rare values share.
    ParameterError names the parameter and the reason.
    """
    for name, (allowed, reason) in _NOT_PUBLIC.items():
        value = getattr(transformer, name)
        if value not in allowed:
            raise ParameterError(
                f"{name}={value!r} does not go with differential privacy: {reason}. Leave it at "
                f"{allowed[0]!r}"
            )
    own = {f"encoders[{label!r}]": given for label, given in (transformer.encoders or {}).items()}
    for name, given in ({"continuous": transformer.continuous} | own).items():
        try:
            encoder_of(given, name).published()
        except ParameterError as error:
            raise ParameterError(f"{name}: {error}") from None


_RULES: Mapping[str, Rule] = {
    "kinds": Optional(Map("column labels to kinds")),
    "encoders": Optional(Map("column labels to encoders")),
    "overrides": Optional(Map("column labels to mappings of parameters to values", Mapping)),
}

_NOT_PUBLIC: Mapping[str, tuple[tuple[object, ...], str]] = {
    "rare_threshold": ((0.001, 0), "the noise of their counts says which categories are encoded"),
    "spike_share": ((0.1, None), "frequent single numbers would be read off the records"),
    "max_levels": ((0,), "the numbers that there are would be read off the records"),
    "spike_records": ((10,), "frequent single numbers would be read off the records"),
    "rare_records": ((None, 0), "the noise of their counts says which categories are encoded"),
    "rare": (("redraw",), "the noise of their counts says which categories are encoded"),
    "extreme_records": ((None, 0), "extremes would be read off the records"),
    "overrides": ((None,), "no column is encoded by its records"),
}


def _class_of(kind: str) -> type[ColumnTransformer]:
    return PublicTransformer if kind == PublicTransformer.kind else column_kind(kind)
