"""A party's aligned frame <-> float matrix, with an exact inverse. Runs inside the party."""

from vflsynth.transformers.base import ColumnTransformer, OutputSpan
from vflsynth.transformers.categorical import (
    BooleanTransformer,
    CategoricalTransformer,
    OrderedTransformer,
)
from vflsynth.transformers.kinds import TRANSFORMERS, infer_kind
from vflsynth.transformers.numeric import (
    ContinuousTransformer,
    DatetimeTransformer,
    IntegerTransformer,
)
from vflsynth.transformers.public import PublicTransformer
from vflsynth.transformers.table import TableTransformer

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
