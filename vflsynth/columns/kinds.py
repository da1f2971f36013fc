"""Which kind of column is it? The documented rules, and the table of transformers by kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from vflsynth.columns.arrays import numpy_dtype
from vflsynth.columns.base import ColumnTransformer
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
from vflsynth.exceptions import CardinalityError, ColumnKindError
from vflsynth.registry import Members, register

for _transformer in (
    ContinuousTransformer,
    IntegerTransformer,
    BooleanTransformer,
    CategoricalTransformer,
    OrderedTransformer,
    DatetimeTransformer,
):
    register(_transformer)

TRANSFORMERS: Mapping[str, type[ColumnTransformer]] = Members("column_kinds")
"""Classes by kind, registered ones included."""

# Text that is different in more than this share of at least so many records identifies them.
_LARGEST_SHARE_OF_DISTINCT, _FEWEST_RECORDS = 0.5, 50

# Integers with at most this many distinct values are codes or grades more often than counts.
_MOST_INTEGER_CODES = 10


def infer_kind(column: pd.Series[Any]) -> str:
    """Kind of a column, from its dtype and, for numbers, its values.

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
    CardinalityError
        Text or objects of at least 50 records are different in more than half of them. They would
        be published as they are, which whoever means it has to declare.
    """
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return "ordered" if dtype.ordered else "categorical"
    if pd.api.types.is_string_dtype(dtype) or dtype == np.dtype(object):
        _check_not_an_identifier(column)
        return "categorical"
    match numpy_dtype(dtype).kind:
        case "b":
            return "boolean"
        case "i" | "u":
            return "categorical" if column.nunique() <= _MOST_INTEGER_CODES else "integer"
        case "f":
            return "categorical" if _few_whole_numbers(column) else "continuous"
        case "m" | "M":
            return "datetime"
    raise ColumnKindError(
        f"no rule for dtype {dtype}",
        fix="convert the column to numbers, text, categories or datetimes, or drop it",
        column=column.name,
    )


def _check_not_an_identifier(column: pd.Series[Any]) -> None:
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
            f"are (for example {str(values.iloc[0])[:40]!r})",
            fix="drop the column, convert it to numbers or dates (decimal commas, thousands "
            "separators, words among numbers), or, if its values may be published, declare it "
            "'categorical' with column_kinds (on the command line --kind)",
            column=column.name,
        )


def _few_whole_numbers(column: pd.Series[Any]) -> bool:
    if column.head(1000).nunique() > _MOST_INTEGER_CODES:  # settles most columns cheaply
        return False
    values = column.dropna().unique()
    if not 0 < len(values) <= _MOST_INTEGER_CODES:
        return False
    numbers = np.asarray(values, dtype=np.float64)
    return bool(np.isfinite(numbers).all() and (numbers == np.floor(numbers)).all())
