"""All metrics in one call: this package's own, registered ones, and those that are passed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from vflsynth.evaluation.association import related
from vflsynth.evaluation.coherence import whole_rows
from vflsynth.evaluation.columns import Parties
from vflsynth.evaluation.detection import told_apart
from vflsynth.evaluation.frechet import all_columns
from vflsynth.evaluation.marginals import discrete_columns, single_columns
from vflsynth.evaluation.metric import MetricResult, MetricResults
from vflsynth.evaluation.neighbours import copies_in
from vflsynth.evaluation.rules import structure_kept
from vflsynth.evaluation.tables import TableMetric, Tables
from vflsynth.evaluation.train_test import Usefulness, not_applicable
from vflsynth.exceptions import ParameterError
from vflsynth.frames import StoredTable
from vflsynth.registry import Members, register


def _metric(
    name: str,
    function: Callable[[Tables], MetricResult | MetricResults],
    *,
    reads_batches: bool = True,
) -> type[TableMetric]:
    """Register a metric that is a function of tables and nothing else."""

    class Function(TableMetric):
        def compute(self, tables: Tables) -> MetricResult | MetricResults:
            return function(tables)

    Function.__doc__, Function.__name__ = function.__doc__, name.title().replace("_", "")
    Function.__qualname__, Function.name = Function.__name__, name
    Function.reads_batches = reads_batches
    return register(Function)


def pairs_of_columns(tables: Tables) -> MetricResults:
    """See `association_errors`."""
    return tables.once(related).errors()


def train_and_test(tables: Tables) -> MetricResults:
    """See `utility`; not applicable if no target is named."""
    if tables.target is None:
        return not_applicable("no target column was named")
    return Usefulness(tables, max_rows=10_000).measured()


SingleColumns = _metric("single_columns", single_columns)
PairsOfColumns = _metric("pairs_of_columns", pairs_of_columns)
WholeRows = _metric("whole_rows", whole_rows)
ExactStructure = _metric("exact_structure", structure_kept, reads_batches=False)
AllColumns = _metric("all_columns", all_columns)
DiscreteColumns = _metric("discrete_columns", discrete_columns)
TrainAndTest = _metric("train_and_test", train_and_test, reads_batches=False)
Detection = _metric("detection", told_apart)
Copies = _metric("copies", copies_in)


def all_metrics(further: Sequence[TableMetric] = ()) -> list[TableMetric]:
    """Return every metric that is computed: built-in, registered, then those that are passed."""
    if not all(isinstance(metric, TableMetric) for metric in further):
        raise ParameterError(f"metrics must be a list of TableMetric objects, got {further!r}")
    return [*(cls() for cls in Members("metrics").values()), *further]


def results_of(tables: Tables, metrics: Sequence[TableMetric]) -> MetricResults:
    """Return the results of some metrics in their order; no two may have the same name."""
    results: list[MetricResult] = []
    for metric in metrics:
        given = tables if metric.reads_batches else tables.in_memory
        found = metric.compute(given)
        some = [found] if isinstance(found, MetricResult) else list(found.values())
        if given is not tables:
            rows = f"{len(given.real)} real and {len(given.synthetic)} synthetic rows were used"
            note = f"of the tables on disk, {rows}, drawn at random"
            some = [
                replace(own, notes=(*own.notes, f"{own.metric.title}: {note}"))
                if own.value is not None
                else own
                for own in some
            ]
        results += some
    names = [result.metric.name for result in results]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ParameterError(
            f"several metrics call a result {sorted(twice)[0]!r}; give one of them another name"
        )
    return MetricResults(results, tables.digests)


def evaluate(
    real: pd.DataFrame | StoredTable,
    synthetic: pd.DataFrame | StoredTable,
    *,
    parties: Parties | None = None,
    target: Hashable | None = None,
    holdout: pd.DataFrame | StoredTable | None = None,
    columns: Sequence[Hashable] | None = None,
    categorical: Collection[Hashable] = (),
    metrics: Sequence[TableMetric] = (),
    random_state: int = 0,
) -> MetricResults:
    """Compute every metric for tables.

    Parameters
    ----------
    real : DataFrame or StoredTable
        The rows that the synthesizer was trained on. Tables larger than memory may be on disk, see
        `vflsynth.frames.stored_table`.
    synthetic : DataFrame or StoredTable
        The table to judge, from this package or any other source.
    parties : mapping of party name to column names, optional
        Who owned what; needed to tell relations within parties from those across.
    target : hashable, optional
        Column that models should learn to predict; without it utility is not applicable.
    holdout : DataFrame or StoredTable, optional
        Real rows that the synthesizer was not trained on, for utility and proximity.
    columns : sequence of hashable, optional
        Columns to judge. Default: all.
    categorical : collection of hashable, default ()
        Numeric columns to read as labels, such as codes.
    metrics : sequence of TableMetric, default ()
        Metrics to compute beside those of this package and registered ones.
    random_state : int, default 0

    Returns
    -------
    MetricResults

    Raises
    ------
    PartyDataError
        If the tables cannot be compared; the message names the column.
    ParameterError
        If two metrics give a result of the same name, or `random_state` is no whole number ≥ 0.

    Notes
    -----
    Of tables on disk a column at a time, or 65,536 rows, are in memory, and results are those of
    the same tables in memory. Models, neighbours and pictures use samples of both anyway; exact
    relations, models and metrics of other packages get a random 100,000 rows of each table on disk,
    and their results say so.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> wine = load_wine(as_frame=True).frame
    >>> evaluate(wine, wine)["frechet_distance"].value < 1e-6
    True
    """
    given: Any = real, synthetic, parties, target, holdout, columns, categorical, random_state
    tables = Tables(*given)
    return results_of(tables, all_metrics(metrics))
