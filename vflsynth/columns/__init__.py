"""A party's aligned frame <-> float matrix, with an exact inverse. Runs inside the party."""

from vflsynth.columns.base import ColumnTransformer, OutputSpan
from vflsynth.columns.categorical import (
    BooleanTransformer,
    CategoricalTransformer,
    OrderedTransformer,
)
from vflsynth.columns.kinds import TRANSFORMERS, infer_kind
from vflsynth.columns.numeric import (
    ContinuousTransformer,
    DatetimeTransformer,
    IntegerTransformer,
)
from vflsynth.columns.public import PublicTransformer
from vflsynth.columns.table import TableTransformer

__all__ = [
    "TRANSFORMERS",
    "BooleanTransformer",
    "CategoricalTransformer",
    "ColumnTransformer",
    "ContinuousTransformer",
    "DatetimeTransformer",
    "IntegerTransformer",
    "OrderedTransformer",
    "OutputSpan",
    "PublicTransformer",
    "TableTransformer",
    "infer_kind",
]
