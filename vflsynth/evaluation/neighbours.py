"""How near synthetic rows come to real ones: a smoke test, **not** a privacy guarantee."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Unpack

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from vflsynth.evaluation.columns import (
    CategoricalColumn,
    Column,
    Floats,
    NumericColumn,
    TableEncoder,
    beyond_floats,
    numbers,
    pieces,
)
from vflsynth.evaluation.intervals import BOOTSTRAP, DRAWS, around, sample_rows, wilson
from vflsynth.evaluation.metric import Metric, MetricResult, MetricResults
from vflsynth.evaluation.tables import SAMPLED, Compared, Tables, check_max_rows
from vflsynth.frames import StoredTable

Booleans = NDArray[np.bool_]

NOT_A_GUARANTEE = (
    "not a privacy guarantee: a table can keep its distance from every record and still give a "
    "person away, and it can lie close without harm; use the audit for privacy"
)


def _declared(name: str, title: str, measures: str, baseline: str, maximum: float = 1.0) -> Metric:
    measures += " Not a privacy guarantee."
    return Metric(name, title, "baseline", measures, 0.0, maximum, baseline)


DISTANCE_TO_CLOSEST_RECORD = _declared(
    "distance_to_closest_record",
    "Distance to the closest real record",
    "How far a typical synthetic row is from the nearest row of the real table, in real "
    "standard deviations; much less than the baseline hints at copying.",
    "held-out real rows, or each real row and its nearest neighbour",
    maximum=np.inf,
)
CLOSER_TO_TRAINING = _declared(
    "closer_to_training_share",
    "Synthetic rows closer to training than to held-out rows",
    "The share of synthetic rows whose nearest real row is a training row, when there are "
    "as many held-out rows to choose from; much above the baseline hints at copying.",
    "one half: no preference",
)
EXACT_COPIES = _declared(
    "exact_copies",
    "Exact copies",
    "The share of synthetic rows that equal a real row in every column.",
    "the share of held-out rows, or of real rows, that equal another real row",
)
NEW_ROW_SHARE = _declared(
    "new_row_share",
    "New rows",
    "The share of synthetic rows for which no real row has the same labels and numbers "
    "within 1 % of a standard deviation.",
    "the same share for held-out rows, or for each real row among the others",
)

TOLERANCE = 0.01
"""In real standard deviations: how far two numbers of "the same" row may be apart."""

QUERY_ROWS = 64
"""Synthetic rows whose distances to a chunk of real rows are in memory at a time."""


def proximity(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    *,
    max_rows: int | None = 2_000,
    **known: Unpack[Compared],
) -> MetricResults:
    """Look for synthetic rows that are, or nearly are, rows of the real table.

    Parameters
    ----------
    real, synthetic, **known
        As in `evaluate`. Without `holdout` each real row's nearest *other* real row is the
        baseline.
    max_rows : int or None, default 2000
        Largest number of synthetic (and of baseline) rows looked up; exact copies are always
        counted over all rows.

    Returns
    -------
    MetricResults
        ``"distance_to_closest_record"`` (median; ``parts`` holds other quantiles),
        ``"closer_to_training_share"`` (with `holdout` only), ``"exact_copies"`` and
        ``"new_row_share"``.

    Notes
    -----
    Distances are Euclidean over standardised numbers and one-hot labels divided by √2, so that two
    different labels are one standard deviation apart. None of these numbers is a privacy guarantee.

    Examples
    --------
    >>> import pandas as pd
    >>> real = pd.DataFrame({"a": [1.0, 2.0, 3.0, 5.0]})
    >>> float(proximity(real, real.iloc[:2])["exact_copies"])
    1.0
    """
    check_max_rows(max_rows)
    return copies_in(Tables(real, synthetic, **known), max_rows)


def copies_in(tables: Tables, max_rows: int | None = 2_000) -> MetricResults:
    """Compute `proximity`, which see."""
    real, synthetic, holdout = tables.real, tables.synthetic, tables.holdout
    encoder = TableEncoder(
        real,
        synthetic,
        columns=tables.columns,
        categorical=tables.categorical,
        holdout=holdout,
        checked=True,
    )
    rng = tables.generator(DISTANCE_TO_CLOSEST_RECORD.name)
    queries = sample_rows(synthetic, max_rows, rng)
    innocent = sample_rows(real if holdout is None else holdout, max_rows, rng)
    search = _Search(encoder, real)
    notes = (NOT_A_GUARANTEE, *encoder.notes)
    if len(queries) < len(synthetic):
        notes += (f"a random {len(queries)} of {len(synthetic)} synthetic rows were looked up",)
    # Without held-out rows every baseline row is in the real table: its own match is skipped.
    own = holdout is None
    new = search.matches(queries) == 0
    share_of_innocent = float((search.matches(innocent) <= int(own)).mean())
    known, counts = np.unique(row_hashes(encoder.columns, real), return_counts=True)
    copies = np.isin(row_hashes(encoder.columns, synthetic), known)
    if holdout is None:
        doubles = float(counts[counts > 1].sum() / len(real))
    else:
        doubles = float(np.isin(row_hashes(encoder.columns, holdout), known).mean())
    found = [
        _closest_record(search.nearest(queries), search.nearest(innocent, skip_own=own), rng),
        _closer_to_training(encoder, real, queries, holdout, rng),
        _share(EXACT_COPIES, copies, "copies", doubles),
        _share(NEW_ROW_SHARE, new, "new", share_of_innocent),
    ]
    return MetricResults(
        result if result.value is None else replace(result, notes=notes) for result in found
    )


def _closest_record(distances: Floats, baselines: Floats, rng: np.random.Generator) -> MetricResult:
    quantiles = [0.01, 0.05, 0.25, 0.5, 0.75]
    value = float(np.median(distances))
    n = len(distances)
    draws = [float(np.median(distances[rng.integers(n, size=n)])) for _ in range(DRAWS)]
    return MetricResult(
        metric=DISTANCE_TO_CLOSEST_RECORD,
        value=value,
        interval=around(value, float(np.std(draws, ddof=1)), 0.0, np.inf),
        interval_method=f"{BOOTSTRAP} of synthetic rows",
        baseline=float(np.median(baselines)),
        parts=pd.DataFrame(
            {
                "quantile": quantiles,
                "value": np.quantile(distances, quantiles),
                "baseline": np.quantile(baselines, quantiles),
            }
        ),
    )


def _closer_to_training(
    encoder: TableEncoder,
    real: pd.DataFrame,
    queries: pd.DataFrame,
    holdout: pd.DataFrame | None,
    rng: np.random.Generator,
) -> MetricResult:
    if holdout is None:
        return CLOSER_TO_TRAINING.not_applicable("no held-out rows were given")
    n = min(len(real), len(holdout))  # equally many to choose from
    tables: list[Any] = [real, holdout]
    if any(isinstance(table, StoredTable) for table in tables):
        n = min(n, SAMPLED)
    to_training = _Search(encoder, sample_rows(real, n, rng)).nearest(queries)
    to_holdout = _Search(encoder, sample_rows(holdout, n, rng)).nearest(queries)
    # Ties, such as values that both tables hold, count as one half each.
    sign = np.sign(to_training - to_holdout)
    closer = (1.0 - sign) / 2.0
    share = float(closer.mean())
    return MetricResult(
        metric=CLOSER_TO_TRAINING,
        value=share,
        interval=wilson(round(share * len(closer)), len(closer)),
        interval_method="95 %, Wilson over synthetic rows",
        baseline=0.5,
        parts=pd.DataFrame(
            {
                "nearest": ["training", "held-out", "tie"],
                "share": [float((sign == way).mean()) for way in (-1, 1, 0)],
            }
        ),
    )


def _share(metric: Metric, rows: Booleans, name: str, baseline: float) -> MetricResult:
    """Return the share of synthetic rows of some kind."""
    return MetricResult(
        metric=metric,
        value=float(rows.mean()),
        interval=wilson(int(rows.sum()), len(rows)),
        interval_method="95 %, Wilson over synthetic rows",
        baseline=baseline,
        parts=pd.DataFrame({name: [int(rows.sum())], "rows": [len(rows)]}),
    )


class _Search:
    """Searches every row of a table for neighbours of a few, chunk by chunk."""

    def __init__(self, encoder: TableEncoder, table: pd.DataFrame) -> None:
        self.encoder, self.table = encoder, table
        labels = [
            isinstance(encoder.columns[i], CategoricalColumn) for i in encoder.feature_columns
        ]
        self.scale = np.where(labels, np.sqrt(0.5), 1.0)

    def nearest(self, queries: pd.DataFrame, *, skip_own: bool = False) -> Floats:
        """Return the distance to the nearest row, shape (query,), or to the second nearest."""
        points = self.encoder.encode(queries) * self.scale
        wanted = 1 + skip_own
        best = np.full((len(points), wanted), np.inf)
        for piece in pieces(self.table):
            rows = self.encoder.encode(piece) * self.scale
            norms = (rows**2).sum(axis=1)
            for start in range(0, len(points), QUERY_ROWS):
                some = points[start : start + QUERY_ROWS]
                squares = (-2.0 * some) @ rows.T  # but for the query's own, equal in its row
                squares += norms
                here = squares.argmin(axis=1)[:, None]
                if skip_own and len(rows) > 1:
                    np.put_along_axis(squares, here, np.inf, axis=1)
                    here = np.hstack([here, squares.argmin(axis=1)[:, None]])
                # Once more by subtraction: the expansion cannot tell a copy from a near copy.
                exact = ((some[:, None, :] - rows[here]) ** 2).sum(axis=2)
                merged = np.hstack([best[start : start + QUERY_ROWS], exact])
                best[start : start + QUERY_ROWS] = np.sort(merged, axis=1)[:, :wanted]
        distances: Floats = np.sqrt(best[:, -1])
        return distances

    def matches(self, queries: pd.DataFrame) -> Floats:
        """Return how many rows agree with each query within the tolerance, shape (query,)."""
        points = self.encoder.encode(queries)
        found = np.zeros(len(points))
        for piece in pieces(self.table):
            tree = cKDTree(self.encoder.encode(piece))
            found += tree.query_ball_point(points, TOLERANCE, p=np.inf, return_length=True)
        return found


def row_hashes(columns: Sequence[Column], frame: pd.DataFrame) -> NDArray[np.uint64]:
    """Return 64-bit hashes of rows' values in some columns, whatever types tables store them in."""
    hashes = []
    for chunk in pieces(frame):
        plain = pd.DataFrame(
            {
                str(i): numbers(chunk[column.name]) + 0.0
                if isinstance(column, NumericColumn)
                else chunk[column.name].astype(object).map(written, na_action="ignore").to_numpy()
                for i, column in enumerate(columns)
            }
        )
        found = pd.util.hash_pandas_object(plain, index=False).to_numpy()
        for i, column in enumerate(columns):
            if pd.api.types.is_integer_dtype(chunk[column.name]):
                found = found + beyond_floats(chunk[column.name]) * np.uint64(2 * i + 3)
        hashes.append(found)
    return np.concatenate(hashes)


def written(label: Any) -> str:
    """Write a label so that equal ones of different types (1, 1.0 and True) are written alike."""
    whole = isinstance(label, bool | float) and float(label).is_integer()
    return str(int(label) if whole else label)
