"""Columns of a party's table: their kinds, and a float matrix with an exact inverse.

Encoded either by what a fit reads off the records (`TableTransformer`), or by public knowledge and
published noisy histograms alone (`PublicSchema`, `NoisyHistogram`). Runs inside the party.
"""

from typing import TYPE_CHECKING

from vflsynth._lazy import lazily

if TYPE_CHECKING:
    from vflsynth.columns.base import ColumnTransformer, OutputSpan
    from vflsynth.columns.categorical import (
        BooleanTransformer,
        CategoricalTransformer,
        OrderedTransformer,
    )
    from vflsynth.columns.encoders import Curve, Encoder, Log, NormalScores, Ranks, Standardizer
    from vflsynth.columns.histograms import NoisyHistogram
    from vflsynth.columns.kinds import column_kind, infer_kind
    from vflsynth.columns.numeric import (
        ContinuousTransformer,
        DatetimeTransformer,
        IntegerTransformer,
    )
    from vflsynth.columns.schema import Bounds, Categories, PublicSchema
    from vflsynth.columns.table import TableTransformer
    from vflsynth.columns.wanted import Range
else:
    __getattr__ = lazily(__name__)

__all__ = [
    "BooleanTransformer",
    "Bounds",
    "CategoricalTransformer",
    "Categories",
    "ColumnTransformer",
    "ContinuousTransformer",
    "Curve",
    "DatetimeTransformer",
    "Encoder",
    "IntegerTransformer",
    "Log",
    "NoisyHistogram",
    "NormalScores",
    "OrderedTransformer",
    "OutputSpan",
    "PublicSchema",
    "Range",
    "Ranks",
    "Standardizer",
    "TableTransformer",
    "column_kind",
    "infer_kind",
]
