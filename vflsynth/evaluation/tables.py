"""What every metric is given, and what makes a class a metric."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import pandas as pd

from vflsynth.evaluation.association import Associations, associations
from vflsynth.evaluation.columns import Parties, common_columns
from vflsynth.evaluation.metric import MetricResult, MetricResults
from vflsynth.frames.logical import as_frame


@dataclass(frozen=True, eq=False)
class Tables:
    """Two tables to compare and what is known about them, checked.

    Parameters
    ----------
    real, synthetic, parties, target, holdout, columns, categorical, random_state
        As in :func:`evaluate`.

    Raises
    ------
    PartyDataError
        If the tables cannot be compared; the message names the column.
    """

    real: pd.DataFrame
    synthetic: pd.DataFrame
    parties: Parties | None = None
    target: Hashable | None = None
    holdout: pd.DataFrame | None = None
    columns: Sequence[Hashable] | None = None
    categorical: Collection[Hashable] = ()
    random_state: int = 0

    def __post_init__(self) -> None:
        for which in ("real", "synthetic", "holdout"):
            object.__setattr__(self, which, as_frame(getattr(self, which)))
        names = common_columns(self.real, self.synthetic, self.columns)
        if self.holdout is not None:
            common_columns(self.real, self.holdout, names, table="held-out")
        object.__setattr__(self, "columns", names)

    @property
    def options(self) -> dict[str, Any]:
        """The arguments that all functions of this package take: columns, labels, randomness."""
        return {
            "columns": self.columns,
            "categorical": self.categorical,
            "random_state": self.random_state,
        }

    @cached_property
    def associations(self) -> Associations:
        """Relations between all pairs of columns, computed once for the metrics and the page."""
        return associations(self.real, self.synthetic, parties=self.parties, **self.options)


class TableMetric(ABC):
    """A metric that :func:`evaluate` and :func:`report` compute beside the others.

    A class needs a `name` and `compute`, and must be made without arguments to be found by name.
    Each result carries its `Metric`, which says in which direction and range it is to be read.
    ``vflsynth.testing.check_metric`` checks the laws that all metrics keep.

    Examples
    --------
    >>> from vflsynth.evaluation import Metric, evaluate
    >>> class RowRatio(TableMetric):
    ...     name = "row_ratio"
    ...     declared = Metric(
    ...         name="row_ratio", title="Row ratio", direction="baseline", minimum=0.0,
    ...         maximum=float("inf"), measures="Synthetic rows per real row.", baseline="one",
    ...     )
    ...     def compute(self, tables):
    ...         ratio = len(tables.synthetic) / len(tables.real)
    ...         parts = pd.DataFrame({"rows": [len(tables.synthetic)]})
    ...         return MetricResult(
    ...             self.declared, ratio, baseline=1.0, parts=parts, interval_method="none: exact"
    ...         )
    >>> table = pd.DataFrame({"a": [1.0, 2.0, 3.0]})
    >>> evaluate(table, table, metrics=[RowRatio()])["row_ratio"].value
    1.0
    """

    registry_group: ClassVar[str] = "metrics"
    name: ClassVar[str]

    @abstractmethod
    def compute(self, tables: Tables) -> MetricResult | MetricResults:
        """Judge the synthetic table; the same tables and random state give the same result."""
