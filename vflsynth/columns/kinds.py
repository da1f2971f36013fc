"""Which kind of column is it? The documented rules, and the table of transformers by kind."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import Any

import pandas as pd

from vflsynth.columns.base import ColumnTransformer, naming
from vflsynth.columns.categorical import (
    BooleanTransformer,
    CategoricalTransformer,
    OrderedTransformer,
)
from vflsynth.columns.numeric import (
    ContinuousTransformer,
    DatetimeTransformer,
    IntegerTransformer,
)
from vflsynth.columns.recognising import recognise
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
        `vflsynth.columns.recognising.recognise`.
    CardinalityError
        Text or objects of at least 50 records are different in more than half of them. They would
        be published as they are, which whoever means it has to declare.
    """
    kind = _recognised(column.name, column.dtype)
    if not may_be_published:
        _check_not_an_identifier(column, kind)
    return _recognised(column.name, column.dtype, values=column, least=least)


def _recognised(name: Hashable, dtype: Any, **known: Any) -> str:
    """Kind of a column: the first that recognises it."""
    for kind, transformer in TRANSFORMERS.items():
        if transformer.recognises(dtype, **known):
            return kind
    raise ColumnKindError(
        f"no rule for dtype {dtype}",
        fix="convert the column to numbers, text, categories or datetimes, or drop it",
        column=name,
    )


def kind_of_public(name: Hashable, dtype: Any, listed: PublicColumn | None) -> str:
    """Kind of a column that nobody declared, by its dtype and what the public schema says of it."""
    return _recognised(name, dtype, listed=listed)


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
            listed = schema.get(label)
            kind = column_kind(kinds.get(label) or kind_of_public(label, dtype, listed), label)
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
    """Class of a kind of columns.

    Raises
    ------
    ColumnKindError
        If there is no such kind; `column` is named.
    """
    if kind not in TRANSFORMERS:
        raise ColumnKindError(
            f"unknown kind {kind!r}", fix=f"use one of {list(TRANSFORMERS)}", column=column
        )
    return TRANSFORMERS[kind]


def check_kinds(
    kinds: Mapping[Hashable, str] | None,
    columns: Collection[Hashable],
    *,
    party: str | None = None,
) -> dict[Hashable, str]:
    """Return declared kinds, once they name existing kinds and existing columns only.

    Parameters
    ----------
    kinds : mapping of column to kind, optional
    columns : collection of column
        Of one party, or of all, but no keys.
    party : str, optional
        Whose columns they are, for error messages.

    Raises
    ------
    ColumnKindError
    """
    for label, kind in (kinds or {}).items():
        with naming(party, label):
            if label not in columns:
                raise ColumnKindError(
                    f"column_kinds says {kind!r}, but there is no such column",
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
    found = recognise(column)
    if found is not None:
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
