"""Which kind of column is it? The documented rules, and the table of transformers by kind.

And which columns should not be modelled as they are: identifiers, names and free text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from vflsynth.codec import dtype_to_json
from vflsynth.columns.arrays import floats_of, numpy_dtype
from vflsynth.columns.base import ColumnTransformer, naming
from vflsynth.columns.categorical import (
    BooleanTransformer,
    CategoricalTransformer,
    OrderedTransformer,
)
from vflsynth.columns.numeric import ContinuousTransformer, DatetimeTransformer, IntegerTransformer
from vflsynth.columns.schema import PublicColumn, PublicSchema
from vflsynth.exceptions import CardinalityError, ColumnKindError, IdentifierError
from vflsynth.registry import Members, register

for _transformer in (  # in the order in which they are asked whether a column is theirs
    BooleanTransformer,
    OrderedTransformer,
    CategoricalTransformer,
    IntegerTransformer,
    ContinuousTransformer,
    DatetimeTransformer,
):
    register(_transformer)

TRANSFORMERS: Mapping[str, type[ColumnTransformer]] = Members("column_kinds")
"""Classes by kind, registered ones included."""

# Text that is different in more than this share of at least so many records identifies them.
_LARGEST_SHARE_OF_DISTINCT, _FEWEST_RECORDS = 0.5, 50


def infer_kind(column: pd.Series[Any], *, may_be_published: bool = False, least: int = 0) -> str:
    """Kind of a column, from its dtype and, for numbers, its values.

    Parameters
    ----------
    column : Series, shape (record,)
    may_be_published : bool, default=False
        Whether its owner said so, whatever the values look like.
    least : int, default=0
        Records without which a category is not published: numbers of which none has so many are no
        categories.

    Returns
    -------
    str
        ``"boolean"`` for bool; ``"ordered"`` for ordered categories; ``"categorical"`` for other
        categories, text and objects; ``"datetime"`` for datetimes and durations. Whole numbers with
        at most 10 distinct values are ``"categorical"``, and so are floats that hold nothing else,
        because NumPy integers turn to floats when a value is missing. Other integers are
        ``"integer"``, other floats ``"continuous"``.

    Raises
    ------
    ColumnKindError
        There is no rule for the dtype.
    IdentifierError
        The values look like identifiers, names of people or free text, see
        `vflsynth.columns.kinds.recognise`.
    CardinalityError
        Text or objects of at least 50 records are different in more than half of them. They would
        be published as they are, which whoever means it has to declare.
    """
    kind = recognised(column.name, column.dtype)
    if not may_be_published:
        _check_not_an_identifier(column, kind)
    return recognised(column.name, column.dtype, values=column, least=least)


def recognised(name: Hashable, dtype: Any, **known: Any) -> str:
    """Kind of a column that nobody declared: the first that recognises it, see `recognises`."""
    for kind, transformer in TRANSFORMERS.items():
        if transformer.recognises(dtype, **known):
            return kind
    raise ColumnKindError(
        f"no rule for dtype {dtype}",
        fix="convert the column to numbers, text, categories or datetimes, or drop it",
        column=name,
    )


def check_dtype(dtype: Any) -> None:
    """Raise ColumnKindError for a dtype that no file could hold."""
    try:
        dtype_to_json(dtype)
    except TypeError as error:
        raise ColumnKindError(
            str(error),
            fix="convert the column, for example timezones to named ones with .dt.tz_convert, and "
            "categories to text",
        ) from None


def public_columns(
    frame: pd.DataFrame,
    schema: PublicSchema,
    kinds: Mapping[Hashable, str],
    *,
    party: str | None = None,
) -> dict[Hashable, tuple[type[ColumnTransformer], PublicColumn | None]]:
    """Say what is known of a table's columns by labels and dtypes, without looking at the records.

    Returns the class of each column's kind, which `kinds` declares of some, and what is public;
    None if it has to be discovered. ColumnKindError if declared kind, dtype and schema contradict
    each other, or a column would have to be discovered that cannot be.
    """
    found: dict[Hashable, tuple[type[ColumnTransformer], PublicColumn | None]] = {}
    for label, dtype in frame.dtypes.items():
        with naming(party, label):
            check_dtype(dtype)
            listed = schema.get(label)
            kind = column_kind(kinds.get(label) or recognised(label, dtype, listed=listed), label)
            public = kind.public_column(label, dtype, listed)
            if public is None and kind.ranges is None and not kind.is_labels:
                raise ColumnKindError(
                    f"public_schema says nothing about it, and columns of kind {kind.kind!r} have "
                    "no ranges or labels that could be published with noise instead",
                    fix="give it public bounds or categories, or declare it of another kind",
                )
            found[label] = kind, public
    return found


def column_kind(kind: str, column: Hashable = None) -> type[ColumnTransformer]:
    """Class of a kind of columns; ColumnKindError, naming `column`, if there is no such kind."""
    if kind not in TRANSFORMERS:
        raise ColumnKindError(
            f"unknown kind {kind!r}", fix=f"use one of {list(TRANSFORMERS)}", column=column
        )
    return TRANSFORMERS[kind]


def check_kinds(
    kinds: Mapping[Hashable, str] | None, columns: Collection[Hashable], *, party: str | None = None
) -> dict[Hashable, str]:
    """Return declared kinds, once they name existing kinds and existing columns only.

    The columns are those of one party, or of all, but no keys. ColumnKindError, which names the
    `party`, if not.
    """
    for label, kind in (kinds or {}).items():
        with naming(party, label):
            if label not in columns:
                raise ColumnKindError(
                    f"column_kinds (--kind) says {kind!r}, but there is no such column",
                    fix=f"use one of {list(columns)}; a key has no kind",
                )
            column_kind(kind)
    return dict(kinds or {})


_ROLES = (
    "say what it is in a contract, which 'vflsynth inspect TABLES --write-contract FILE' proposes: "
    "role 'identifier' or 'free text' leaves it out, or with replacement 'surrogate' or "
    "'pseudonym' publishes others in its place; role 'ordinary', 'quasi-identifier' or "
    "'sensitive', or a kind (column_kinds, on the command line --kind), says that its values may "
    "be published"
)


def _check_not_an_identifier(column: pd.Series[Any], kind: str) -> None:
    if (found := recognise(column)) is not None:
        raise IdentifierError(
            f"its values look like {found.what}, which a model would learn and publish",
            fix=_ROLES,
            column=column.name,
        )
    if kind != "categorical" or isinstance(column.dtype, pd.CategoricalDtype):
        return
    values = column.dropna()
    if len(values) < _FEWEST_RECORDS:
        return
    try:
        n_distinct = values.nunique()
    except TypeError:  # lists and the like, which the transformer refuses by name
        return
    if n_distinct > _LARGEST_SHARE_OF_DISTINCT * len(values):
        raise CardinalityError(
            f"{n_distinct} of {len(values)} values are different: these look like identifiers, or "
            "like numbers or dates that were read as text, and a model would publish them as they "
            "are",
            fix="convert it to numbers or dates (decimal commas, thousands separators, words among "
            f"numbers), drop it, or {_ROLES}",
            column=column.name,
        )


_NEARLY_ALL, _LOOKED_AT = 0.9, 2000
_FEWEST_DISTINCT = 5
_FEWEST_NAMES = 20
_SHARED_BY = 5
"""Records of a usual name that is nobody's own, in a column that says no more than "name"."""

_DATE = re.compile(r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})([ T].*)?")
_SHAPES: Mapping[str, re.Pattern[str]] = {
    "e-mail addresses": re.compile(r"[^@\s]+@[^@\s]+\.[^@\s.]+"),
    "social-security numbers": re.compile(r"\d{3}-\d{2}-\d{4}"),
    "universally unique identifiers": re.compile(
        r"\{?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\}?", re.IGNORECASE
    ),
    "telephone numbers": re.compile(r"(\+\d|\(\d|0\d|\d{3}[-. ])(?=(\D*\d){5,13}\D*$)[\d ()./-]*"),
}
_LABELS: Mapping[str, re.Pattern[str]] = {
    "names of people": re.compile(
        r"(.*[ _-])?(sur|last|first|given|family|full|middle|maiden)[ _-]?names?", re.IGNORECASE
    ),
    "names, of people perhaps": re.compile(r"names?", re.IGNORECASE),
    "telephone numbers": re.compile(
        r"(.*[ _-])?(tele)?(phone|mobile|fax)([ _-].*)?", re.IGNORECASE
    ),
    "social-security numbers": re.compile(r"(.*[ _-])?(ssn|social[ _-]?security.*)", re.IGNORECASE),
}
_KNOWN_TO_OTHERS = re.compile(
    r"(.*[ _.-])?(age|sex|gender|birth\w*|dob|zip\w*|post(al)?[ _-]?codes?|postcodes?|plz|city|"
    r"town|"
    r"municipality|county|state|province|region|country|nationality|citizenship|race|ethnicity|"
    r"marital.*|occupation|profession|job|education.*|degree|household.*|children)([ _.-].*)?",
    re.IGNORECASE,
)
_INDEX = re.compile(r"Unnamed: \d+|level_\d+|index|", re.IGNORECASE)

_WORDS = 5.0
"""Words per value, on average, of free text."""

_DIGITS = 8
"""Of a number that is an identifier if nearly all have as many and nearly all differ."""


@dataclass(frozen=True)
class Recognised:
    """What a column looks like, in words, and its role: "identifier" or "free text"."""

    what: str
    role: str


def is_known_to_others(label: object) -> bool:
    """Whether a column's name says what neighbours or colleagues know of a person, such as age."""
    return _KNOWN_TO_OTHERS.fullmatch(str(label)) is not None


def recognise(column: pd.Series[Any]) -> Recognised | None:
    """Say whether a column's values identify somebody, or are free text; None if not.

    E-mail addresses, telephone and social-security numbers and universally unique identifiers by
    their shape (nine in ten of at most 2,000 distinct values); names of people by the column's
    label, where it is "name" alone only if most names are those of fewer than five records; text of
    five words and more; and whole numbers of eight digits and more that are nearly all different.
    """
    dtype, label = column.dtype, str(column.name)
    kinds = dtype.categories.dtype if isinstance(dtype, pd.CategoricalDtype) else dtype
    if pd.api.types.is_bool_dtype(kinds):
        return None
    if pd.api.types.is_numeric_dtype(kinds):
        return _number(column, label)
    if not (pd.api.types.is_string_dtype(kinds) or kinds == np.dtype(object)):
        return None
    try:
        distinct = column.dropna().head(50 * _LOOKED_AT).unique()
    except TypeError:  # lists and the like, which are refused elsewhere
        return None
    values = [value for value in distinct if isinstance(value, str)]
    if len(values) < max(_FEWEST_DISTINCT, _NEARLY_ALL * len(distinct)):
        return None
    values = [value.strip() for value in values[:_LOOKED_AT]]
    for what, shape in _SHAPES.items():
        hits = sum(bool(shape.fullmatch(own)) and not _DATE.fullmatch(own) for own in values)
        if hits >= _NEARLY_ALL * len(values):
            return Recognised(what, "identifier")
    words = float(np.mean([len(value.split()) for value in values]))
    if words >= _WORDS and len(values) >= 0.5 * min(column.count(), _LOOKED_AT):
        return Recognised("free text", "free text")
    for what, pattern in _LABELS.items():
        if len(values) < _FEWEST_NAMES or not pattern.fullmatch(label):
            continue
        if "perhaps" in what and column.value_counts().median() >= _SHARED_BY:
            continue  # products, stations: most of them are named by several records
        return Recognised(what, "identifier")
    return None


def is_index(column: pd.Series[Any]) -> bool:
    """Whether a column is the row number that a file kept of a table's index."""
    if not _INDEX.fullmatch(str(column.name)) or not pd.api.types.is_integer_dtype(column.dtype):
        return False
    values = floats_of(column)
    return len(values) > 1 and bool((np.diff(values) == 1).all())


def _number(column: pd.Series[Any], label: str) -> Recognised | None:
    kind = numpy_dtype(column.dtype).kind
    if kind not in "iuf":
        return None
    values = column.dropna().to_numpy(dtype=np.float64)
    whole = np.isfinite(values) & (values == np.floor(values))
    if len(values) < _FEWEST_RECORDS or not whole.all():
        return None
    digits = np.floor(np.log10(np.maximum(np.abs(values), 1.0))) + 1
    usual = np.bincount(digits.astype(np.int64)).argmax()
    same = float((digits == usual).mean()) >= _NEARLY_ALL
    for what in ("telephone numbers", "social-security numbers"):
        if same and usual >= _DIGITS - 1 and _LABELS[what].fullmatch(label):
            return Recognised(what, "identifier")
    distinct = len(np.unique(values)) >= _NEARLY_ALL * len(values)
    # An identifier uses its digits evenly; amounts of eight digits crowd at the lower end.
    spread = values.max() > values.min() + 0.5 * 10.0 ** (usual - 1)
    if kind != "f" and same and distinct and usual >= _DIGITS and spread and usual <= 16:
        return Recognised(f"numbers of {usual} digits that are nearly all different", "identifier")
    return None
