"""Relations between columns, within each party and across: the point of the whole method."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Literal, Unpack

import numpy as np
import pandas as pd

from vflsynth.evaluation.columns import Floats, NumericColumn, TableEncoder
from vflsynth.evaluation.intervals import GROUPS, GroupedSums, jackknife_interval, jackknifed
from vflsynth.evaluation.metric import Metric, MetricResult, MetricResults, Reading
from vflsynth.evaluation.tables import Compared, Tables

Scope = Literal["all", "within", "across"]


def _declared(suffix: str, words: str, which: str) -> Metric:
    return Metric(
        name=f"association_error{suffix}",
        title=f"Association error{words}",
        direction="lower",
        maximum=2.0,
        measures=f"How much the strength of the relation between {which} differs, on average.",
        naive="columns that have nothing to do with each other",
    )


ERRORS: dict[Scope, Metric] = {
    "all": _declared("", ", all pairs of columns", "two columns"),
    "within": _declared("_within", " within parties", "two columns of the same party"),
    "across": _declared("_across", " across parties", "columns of two different parties"),
}
"""The mean differences that are reported, by the pairs that they are about."""


@dataclass(frozen=True, eq=False)
class Associations:
    """Association matrices of two tables, with the replicates behind intervals and baselines.

    `measures` are ``"pearson"``, ``"cramers_v"`` or ``"correlation_ratio"`` for each pair of
    `names`. `real` and `synthetic`, (column, column), are NaN where a pair has fewer than two real
    rows with both values, and on the diagonal. Their jackknife, (group, column, column), is each
    with one random group of rows left out, a single replica for small tables. `halves`, (split,
    column, column) each, are of disjoint random halves of the real table.
    """

    names: list[Hashable]
    measures: list[list[str]]
    real: Floats
    synthetic: Floats
    real_jackknife: Floats
    synthetic_jackknife: Floats
    halves: tuple[Floats, Floats]
    owner: dict[Hashable, str] | None
    notes: tuple[str, ...]

    @cached_property
    def pairs(self) -> pd.DataFrame:
        """One row per pair of columns: columns, parties, scope, measure, both values, error."""
        rows = []
        for i, j in combinations(range(len(self.names)), 2):
            a, b = self.names[i], self.names[j]
            row: dict[str, object] = {"column_a": a, "column_b": b}
            if self.owner is not None:
                same = self.owner[a] == self.owner[b]
                row |= {"party_a": self.owner[a], "party_b": self.owner[b]}
                row |= {"scope": "within" if same else "across"}
            real, synthetic = self.real[i, j], self.synthetic[i, j]
            row |= {"measure": self.measures[i][j], "real": real, "synthetic": synthetic}
            rows.append(row | {"error": abs(real - synthetic)})
        return pd.DataFrame(rows)

    def errors(self) -> MetricResults:
        """Return the mean absolute differences, over all pairs, within parties and across them."""
        return MetricResults(self._error(metric, scope) for scope, metric in ERRORS.items())

    def _error(self, metric: Metric, scope: Scope) -> MetricResult:
        if len(self.names) < 2:
            return metric.not_applicable("a single column has no relations")
        if scope != "all" and self.owner is None:
            return metric.not_applicable("no parties were given")
        pairs = self.pairs if scope == "all" else self.pairs[self.pairs["scope"] == scope]
        if pairs.empty:
            return metric.not_applicable(f"no two columns are {scope} parties")
        defined = pairs.dropna(subset=["error"])
        if defined.empty:
            return metric.not_applicable("no two columns have two real rows with both values")
        rows, columns = np.triu_indices(len(self.names), k=1)  # in the order of `pairs`
        first, second = rows[defined.index], columns[defined.index]

        def error(real: Floats, synthetic: Floats) -> Floats:
            differences = np.abs(real - synthetic)[..., first, second]
            return np.asarray(differences.mean(axis=-1))

        value = float(error(self.real, self.synthetic))
        interval = baseline = None
        if len(self.real_jackknife) == len(self.synthetic_jackknife) == GROUPS:
            replicates = (
                error(self.real_jackknife, self.synthetic),
                error(self.real, self.synthetic_jackknife),
            )
            interval = jackknife_interval(value, replicates, metric.minimum, metric.maximum)
        if len(self.real_jackknife) == GROUPS:
            baseline = float(error(*self.halves).mean())
        naive = float(np.abs(self.real[first, second]).mean())
        undefined = len(pairs) - len(defined)
        skipped = f"{undefined} pairs of columns have fewer than two real rows with both values"
        return jackknifed(
            metric,
            Reading(value, interval, baseline, naive),
            defined.sort_values("error", ascending=False, kind="stable", ignore_index=True),
            self.notes + ((skipped,) if undefined else ()),
        )


def association_errors(
    real: pd.DataFrame, synthetic: pd.DataFrame, **known: Unpack[Compared]
) -> MetricResults:
    """Compare how strongly columns are related, over all pairs, within parties and across them.

    Judging the pairs across parties needs real rows of all parties side by side. Training does not;
    this is for whoever may see them.

    Parameters
    ----------
    real, synthetic, **known
        As in `evaluate`. Without `parties` only the error over all pairs applies.

    Returns
    -------
    MetricResults
        Mean absolute differences under ``"association_error"``, ``"association_error_within"`` and
        ``"association_error_across"``. ``parts`` has one row per pair of columns.

    Notes
    -----
    Pearson's correlation (signed) for two numeric columns; Cramér's V with Bergsma's (2013) bias
    correction for two categorical ones; the correlation ratio η for a mixed pair, with Kelley's
    correction, for the same reason: uncorrected, both grow with the number of labels and with
    falling numbers of rows. Rows where either value is missing are left out, pair by pair.
    A column without variation has association 0 with everything.

    Examples
    --------
    >>> import pandas as pd
    >>> real = pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "b": [2.0, 4.0, 6.0, 8.0]})
    >>> float(association_errors(real, real.assign(b=[8.0, 6.0, 4.0, 2.0]))["association_error"])
    2.0
    """
    return associations(real, synthetic, **known).errors()


def associations(
    real: pd.DataFrame, synthetic: pd.DataFrame, **known: Unpack[Compared]
) -> Associations:
    """Return the association matrices behind `association_errors`, which see."""
    return related(Tables(real, synthetic, **known))


def related(tables: Tables) -> Associations:
    """Compute `associations`, which see."""
    real, synthetic = tables.real, tables.synthetic
    encoder, rng = tables.encoder, tables.generator(ERRORS["all"].name)
    layout = _Layout(encoder)
    ours, theirs = (GroupedSums.of(table, layout.features, rng) for table in (real, synthetic))
    of_real = layout.matrices(ours, ours.all_rows())[0]
    # A pair never both present in the synthetic table is a relation of 0 there, not a gap.
    of_synthetic = np.nan_to_num(layout.matrices(theirs, theirs.all_rows())[0])
    of_synthetic[np.isnan(of_real)] = np.nan
    first, second = ours.halves()
    return Associations(
        names=encoder.names,
        measures=layout.measures,
        real=of_real,
        synthetic=of_synthetic,
        real_jackknife=np.nan_to_num(layout.matrices(ours, ours.all_but_one())),
        synthetic_jackknife=np.nan_to_num(layout.matrices(theirs, theirs.all_but_one())),
        halves=(
            np.nan_to_num(layout.matrices(ours, first)),
            np.nan_to_num(layout.matrices(ours, second)),
        ),
        owner=tables.owner,
        notes=encoder.notes,
    )


class _Layout:
    """Features whose products hold every association: scores, squares, presence and one-hots.

    With all four side by side, sums over "rows where both values are present" are entries of one
    product matrix, so that a table of any length is read once, by matrix products.
    """

    def __init__(self, encoder: TableEncoder) -> None:
        self.encoder = encoder
        kinds = ["n" if isinstance(column, NumericColumn) else "d" for column in encoder.columns]
        self.numeric, self.discrete = (
            [i for i, own in enumerate(kinds) if own == kind] for kind in "nd"
        )
        n = len(self.numeric)
        self.scores, self.squares, self.present = (
            slice(start, start + n) for start in (0, n, 2 * n)
        )
        self.blocks: list[slice] = []
        start = 3 * n
        for column in encoder.discrete:
            self.blocks.append(slice(start, start + len(column.levels) + column.has_other))
            start = self.blocks[-1].stop
        self.width = start
        name = {"nn": "pearson", "dd": "cramers_v"}
        self.measures = [[name.get(a + b, "correlation_ratio") for b in kinds] for a in kinds]

    def features(self, frame: pd.DataFrame) -> Floats:
        """Return the matrix of a chunk, shape (row, feature)."""
        out = np.zeros((len(frame), self.width))
        for k, column in enumerate(self.encoder.numeric):
            scores = column.standardised(frame)
            out[:, self.present.start + k] = ~np.isnan(scores)
            out[:, self.scores.start + k] = np.nan_to_num(scores)
        out[:, self.squares] = out[:, self.scores] ** 2
        for block, label_column in zip(self.blocks, self.encoder.discrete):
            codes = label_column.codes(frame)
            rows = np.flatnonzero(codes < block.stop - block.start)  # the rest is missing
            out[rows, block.start + codes[rows]] = 1.0
        return out

    def matrices(self, sums: GroupedSums, weights: Floats) -> Floats:
        """Return association matrices, shape (replica, column, column); NaN where undefined."""
        numeric, discrete, n = self.numeric, self.discrete, len(self.measures)
        result = np.full((len(weights), n, n), np.nan)
        for matrix, (_, _, product) in zip(result, sums.kept(weights)):
            matrix[np.ix_(numeric, numeric)] = self._pearson(product)
            for block, i in zip(self.blocks, discrete):
                matrix[i, numeric] = matrix[numeric, i] = self._correlation_ratios(product, block)
            for (a, i), (b, j) in combinations(zip(self.blocks, discrete), 2):
                matrix[i, j] = matrix[j, i] = cramers_v(product[a, b])
            np.fill_diagonal(matrix, np.nan)
        return result

    def _pearson(self, product: Floats) -> Floats:
        x, q, m = self.scores, self.squares, self.present
        count = product[m, m]
        safe = np.maximum(count, 1.0)
        mean = product[x, m] / safe  # of the row's column, over rows where both are present
        variance = product[q, m] / safe - mean**2
        covariance = product[x, x] / safe - mean * mean.T
        flat = variance <= 1e-10 * np.maximum(product[q, m] / safe, 1e-300)
        scale = np.sqrt(np.where(flat, 1.0, variance))
        correlation = np.where(flat | flat.T, 0.0, covariance / (scale * scale.T))
        return np.where(count >= 2, np.clip(correlation, -1.0, 1.0), np.nan)

    def _correlation_ratios(self, product: Floats, block: slice) -> Floats:
        """Return η of every numeric column given one categorical column, shape (numeric,)."""
        count = product[self.present, block]  # (numeric, level)
        total, square = product[self.scores, block], product[self.squares, block].sum(axis=1)
        n = count.sum(axis=1)
        safe = np.maximum(n, 1.0)
        centre = total.sum(axis=1) ** 2 / safe
        everything = square - centre
        between = (total**2 / np.maximum(count, 1.0)).sum(axis=1) - centre
        flat = everything <= 1e-10 * np.maximum(square, 1e-300)
        explained = np.clip(between / np.where(flat, 1.0, everything), 0.0, 1.0)
        levels = (count > 0).sum(axis=1)
        corrected = 1.0 - (1.0 - explained) * (n - 1) / np.maximum(n - levels, 1.0)
        ratio: Floats = np.sqrt(np.clip(corrected, 0.0, 1.0))
        ratio[flat | (levels < 2) | (n <= levels)] = 0.0
        ratio[n < 2] = np.nan
        return ratio


def cramers_v(table: Floats) -> float:
    """Return the bias-corrected Cramér's V of a table of counts, shape (level, other_level).

    It is between 0 and 1; 0 where either column has a single label; NaN below 2 rows. Source: W.
    Bergsma, "A bias-correction for Cramér's V and Tschuprow's T", Journal of the Korean Statistical
    Society 42 (2013).
    """
    table = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0]
    n, (rows, columns) = table.sum(), table.shape
    if n < 2:
        return float("nan")
    if rows < 2 or columns < 2:
        return 0.0
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / n
    phi_squared = float(((table - expected) ** 2 / expected).sum() / n)
    corrected = max(0.0, phi_squared - (rows - 1) * (columns - 1) / (n - 1))
    rows_corrected = rows - (rows - 1) ** 2 / (n - 1)
    columns_corrected = columns - (columns - 1) ** 2 / (n - 1)
    smaller = min(rows_corrected, columns_corrected) - 1.0
    return float(min(1.0, np.sqrt(corrected / smaller))) if smaller > 0 else 0.0
