"""What every metric is given, and what makes a class a metric."""

from __future__ import annotations

import hashlib
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, TypedDict, TypeVar

import numpy as np
import pandas as pd

from vflsynth.codec import as_frame
from vflsynth.evaluation.columns import (
    Parties,
    TableEncoder,
    check_listed,
    common_columns,
    party_of,
)
from vflsynth.evaluation.intervals import random_halves, sample_rows
from vflsynth.evaluation.metric import MetricResult, MetricResults
from vflsynth.exceptions import ParameterError
from vflsynth.frames import StoredTable
from vflsynth.registry import Number, Optional, check_parameters

Found = TypeVar("Found")

SAMPLED = 100_000
"""Rows of a table on disk that metrics see which do not read it in batches."""


class Known(TypedDict, total=False):
    """What is known about two tables beside their rows; each as in `evaluate`."""

    parties: Parties | None
    target: Hashable | None
    holdout: pd.DataFrame | None
    categorical: Collection[Hashable]
    random_state: int


class Compared(Known, total=False):
    """The same, and which columns are compared."""

    columns: Sequence[Hashable] | None


@dataclass(frozen=True, eq=False)
class Tables:
    """Two tables to compare and what is known about them, checked.

    Parameters
    ----------
    real, synthetic, parties, target, holdout, columns, categorical, random_state
        As in `evaluate`. Tables on disk have of a DataFrame what metrics that read batches
        use: `columns`, `len`, a column by its label, and `take`.

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
    _found: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        check_parameters("evaluation", vars(self), {"random_state": Number(0, whole=True)})
        columns = () if self.columns is None else self.columns
        check_listed("evaluation", columns=columns, categorical=self.categorical)
        if self.parties is not None and not isinstance(self.parties, Mapping):
            raise ParameterError(
                "evaluation: parties must be a mapping of party to columns, as {'bank': ['age']}, "
                f"got {self.parties!r}"
            )
        for which in ("real", "synthetic", "holdout"):
            object.__setattr__(self, which, typed_table(getattr(self, which)))
        names = common_columns(self.real, self.synthetic, self.columns)
        if self.holdout is not None:
            common_columns(self.real, self.holdout, names, table="held-out")
        object.__setattr__(self, "columns", names)

    @cached_property
    def in_memory(self) -> Tables:
        """These tables, or of those on disk a random `SAMPLED` rows of each."""
        names = ("real", "synthetic", "holdout")
        drawn: dict[str, Any] = {}
        for name in (n for n in names if isinstance(getattr(self, n), StoredTable)):
            table: Any = getattr(self, name)
            rows = sample_rows(table, SAMPLED, self.generator(f"sample of {name} rows"))
            drawn[name] = rows.take(np.arange(len(rows))) if rows is table else rows
        return replace(self, **drawn) if drawn else self

    @cached_property
    def digests(self) -> dict[Hashable, str]:
        """Digest of every column of both tables; nothing of tables on disk."""
        frames = (self.real, self.synthetic)
        if any(isinstance(frame, StoredTable) for frame in frames):
            return {}
        found: dict[Hashable, str] = {}
        for name in self.columns or ():
            hashes = [pd.util.hash_pandas_object(frame[name], index=False) for frame in frames]
            parts = b"|".join(own.to_numpy().tobytes() for own in hashes)
            found[name] = hashlib.sha256(parts).hexdigest()
        return found

    @cached_property
    def encoder(self) -> TableEncoder:
        """Both tables' columns in the real table's units."""
        return TableEncoder(
            self.real,
            self.synthetic,
            columns=self.columns,
            categorical=self.categorical,
            checked=True,
        )

    @cached_property
    def owner(self) -> dict[Hashable, str] | None:
        """The party of each column; None if nobody says who owns what."""
        return party_of(list(self.columns or ()), self.parties)

    def generator(self, purpose: str) -> np.random.Generator:
        """Return a generator for one purpose: no metric's draws move another's."""
        return np.random.default_rng([self.random_state, zlib.crc32(purpose.encode())])

    def halves(self, purpose: str) -> tuple[pd.DataFrame, pd.DataFrame] | None:
        """Return two random halves of the real table; None below 4 rows."""
        return random_halves(self.real, self.generator(purpose))

    def once(self, function: Callable[[Tables], Found]) -> Found:
        """Return what a function finds in these tables; it is called the first time only."""
        if function not in self._found:
            self._found[function] = function(self)
        found: Found = self._found[function]
        return found


def check_max_rows(max_rows: int | None) -> None:
    """Check a largest number of rows, None for all (ParameterError)."""
    rule = Optional(Number(1, whole=True))
    check_parameters("evaluation", {"max_rows": max_rows}, {"max_rows": rule})


def check_estimator(name: str, given: Any, method: str) -> None:
    """Check that a parameter is an estimator with a method, or None (ParameterError)."""
    if given is not None and (isinstance(given, type) or not hasattr(given, method)):
        raise ParameterError(f"{name} must be an estimator with {method}, not {given!r}")


def typed_table(table: Any) -> Any:
    """Return a table in our types, but truth values among objects: labels that somebody chose."""
    made = as_frame(table)
    if isinstance(table, pd.DataFrame) and made is not table:
        for i, dtype in enumerate(table.dtypes):
            if dtype == np.dtype(object) and pd.api.types.is_bool_dtype(made.dtypes.iloc[i]):
                made.isetitem(i, table.iloc[:, i])
    return made


class TableMetric(ABC):
    """A metric that `evaluate` and `report` compute beside the others.

    A class needs a `name` and `compute`, and must be made without arguments to be found by name.
    Each result carries its `Metric`, which says in which direction and range it is to be read.
    ``vflsynth.testing.metric_checks`` are the laws that all metrics keep. Of tables on disk it is
    given a sample, see `Tables.in_memory`, unless it `reads_batches`.

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
    reads_batches: ClassVar[bool] = False

    @abstractmethod
    def compute(self, tables: Tables) -> MetricResult | MetricResults:
        """Judge the synthetic table; the same tables and random state give the same result."""
