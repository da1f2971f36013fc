"""Whether synthetic rows lie where real ones do, everywhere where real ones do, and relate alike.

α-precision and β-recall (Alaa et al. 2022), and how far the mutual information of pairs of columns
is off.
"""

from __future__ import annotations

from itertools import combinations
from typing import Unpack

import numpy as np
import pandas as pd
from scipy.spatial import cKDTree
from sklearn.metrics import normalized_mutual_info_score

from vflsynth.evaluation.columns import CategoricalColumn, Column, Floats, Integers, TableEncoder
from vflsynth.evaluation.intervals import random_halves, sample_rows
from vflsynth.evaluation.metric import Metric, MetricResult, MetricResults
from vflsynth.evaluation.tables import Compared, Tables

ALPHA_PRECISION = Metric(
    name="alpha_precision",
    title="α-precision",
    direction="higher",
    measures="Whether synthetic rows are typical where real ones are: for every share α, how near "
    "the share of synthetic rows in the ball with α of the real rows is to α.",
)
BETA_RECALL = Metric(
    name="beta_recall",
    title="β-recall",
    direction="higher",
    measures="Whether the typical part of the synthetic rows covers the real ones: for every share "
    "β, how near the share of real rows is to β that have a synthetic neighbour, among the β most "
    "typical ones, no further than their next real neighbour.",
)
NMI_ERROR = Metric(
    name="weighted_nmi_error",
    title="Weighted error of mutual information",
    direction="lower",
    measures="How far the normalised mutual information of pairs of columns is off, as a mean over "
    "pairs with that of the real table as weights, so that related pairs count.",
)

SHARES = np.linspace(0.0, 1.0, 30)
"""The α and β that are averaged over, as in the published code."""

NMI_BINS = 20
"""Bins of a number, of equal shares of the real rows."""

_FEWEST = 4


def precision_and_recall(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    *,
    max_rows: int | None = 5_000,
    **known: Unpack[Compared],
) -> MetricResults:
    """Compute integrated α-precision and β-recall.

    Parameters
    ----------
    real, synthetic, **known
        As in :func:`evaluate`.
    max_rows : int or None, default 5000
        Largest number of rows taken from each table. β-recall depends on it: denser tables have
        nearer neighbours.

    Returns
    -------
    MetricResults
        ``"alpha_precision"`` and ``"beta_recall"``; ``parts`` has one row per α or β.

    Notes
    -----
    Source: Alaa et al. 2022, sections 3 and 4.2; both are ``1 - 2 * integral |curve(α) - α|``.
    Departs from the paper in that rows are not embedded by a network first, as published figures
    ("naive") do not either; distances are Euclidean over standardised numbers and one-hot labels
    divided by √2. Equal numbers of rows are taken from both tables.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> rng = np.random.default_rng(0)
    >>> real = pd.DataFrame({"a": rng.normal(size=500), "b": rng.normal(size=500)})
    >>> float(precision_and_recall(real, real + 9.0)["alpha_precision"]) < 0.1
    True
    """
    tables = Tables(real, synthetic, **known)
    encoder = tables.encoder
    n = min(len(real), len(synthetic), max_rows or len(real))
    if n < _FEWEST:
        because = f"{_FEWEST} rows of each table are needed"
        return MetricResults(m.not_applicable(because) for m in (ALPHA_PRECISION, BETA_RECALL))
    rng = tables.generator(ALPHA_PRECISION.name)
    halves = random_halves(real, rng)
    rows = [_features(encoder, sample_rows(frame, n, rng)) for frame in (real, synthetic)]
    curves = _curves(*rows)
    baselines: tuple[float | None, float | None] = (None, None)
    if halves is not None and min(map(len, halves)) >= _FEWEST:
        own = [_features(encoder, sample_rows(half, n, rng)) for half in halves]
        baselines = tuple(map(_integrated, _curves(*own)))  # type: ignore[assignment]
    return MetricResults(
        MetricResult(
            metric,
            _integrated(curve),
            baseline=baseline,
            interval_method="none: published figures have none",
            parts=pd.DataFrame({"share": SHARES, "value": curve}),
            notes=encoder.notes,
        )
        for metric, curve, baseline in zip((ALPHA_PRECISION, BETA_RECALL), curves, baselines)
    )


def nmi_error(
    real: pd.DataFrame, synthetic: pd.DataFrame, **known: Unpack[Compared]
) -> MetricResult:
    """Compute the weighted mean error of pairs' normalised mutual information.

    Parameters
    ----------
    real, synthetic, **known
        As in :func:`evaluate`.

    Returns
    -------
    MetricResult
        ``parts`` has one row per pair: `real`, `synthetic`, `value` (absolute difference).

    Notes
    -----
    ``sum(w |NMI_synthetic - NMI_real|) / sum(w)``, ``w = NMI_real``, and NMI is the mutual
    information over the mean of both entropies. Numbers are in at most 20 bins of equal shares of
    the real rows; missing values are a bin of their own. Chance alone gives pairs of few rows some
    mutual information: compare with the baseline.

    Examples
    --------
    >>> import pandas as pd
    >>> real = pd.DataFrame({"a": list("xxyy") * 9, "b": list("xxyy") * 9})
    >>> float(nmi_error(real, real.assign(b=list("xyxy") * 9)))
    1.0
    """
    tables = Tables(real, synthetic, **known)
    encoder = tables.encoder
    if len(encoder.columns) < 2:
        return NMI_ERROR.not_applicable("2 columns are needed")
    cuts = {column.name: _cuts(column, real) for column in encoder.columns}

    def error(one: pd.DataFrame, other: pd.DataFrame) -> tuple[float | None, pd.DataFrame]:
        codes = [
            {column.name: _codes(column, cuts[column.name], frame) for column in encoder.columns}
            for frame in (one, other)
        ]
        parts = pd.DataFrame(
            [
                {
                    "column": a,
                    "other_column": b,
                    "real": normalised_mutual_information(codes[0][a], codes[0][b]),
                    "synthetic": normalised_mutual_information(codes[1][a], codes[1][b]),
                }
                for a, b in combinations(encoder.names, 2)
            ]
        )
        parts["value"] = (parts["synthetic"] - parts["real"]).abs()
        total = float(parts["real"].sum())
        return (
            (float((parts["value"] * parts["real"]).sum() / total) if total > 0.0 else None),
            parts,
        )

    value, parts = error(real, synthetic)
    if value is None:
        return NMI_ERROR.not_applicable("no pair of real columns has mutual information")
    halves = tables.halves(NMI_ERROR.name)
    return MetricResult(
        NMI_ERROR,
        min(1.0, value),
        baseline=None if halves is None else error(*halves)[0],
        interval_method="none",
        parts=parts,
        notes=encoder.notes,
    )


def normalised_mutual_information(first: Integers, second: Integers) -> float:
    """Return mutual information of two columns of codes over their mean entropy, 0 to 1."""
    if not np.ptp(first) or not np.ptp(second):
        return 0.0
    return float(normalized_mutual_info_score(first, second))


def _features(encoder: TableEncoder, frame: pd.DataFrame) -> Floats:
    features = encoder.encode(frame)
    labels = [isinstance(encoder.columns[i], CategoricalColumn) for i in encoder.feature_columns]
    return features / np.where(labels, np.sqrt(2.0), 1.0)


def _curves(real: Floats, synthetic: Floats) -> tuple[Floats, Floats]:
    """Share of synthetic rows within each α ball, and of real rows covered by each β ball."""
    radii = np.quantile(_distances(real, real.mean(0)), SHARES)
    precision = (_distances(synthetic, real.mean(0))[:, None] <= radii).mean(0)
    typical = _distances(synthetic, synthetic.mean(0))
    radii = np.quantile(typical, SHARES)
    to_real = np.asarray(cKDTree(real).query(real, k=2)[0])[:, 1]
    to_synthetic, nearest = cKDTree(synthetic).query(real)
    covered = to_synthetic <= to_real
    recall = (covered[:, None] & (typical[nearest][:, None] <= radii)).mean(0)
    return precision, recall


def _distances(rows: Floats, centre: Floats) -> Floats:
    return np.asarray(np.linalg.norm(rows - centre, axis=1))


def _integrated(curve: Floats) -> float:
    return max(0.0, 1.0 - float(np.abs(curve - SHARES).sum() / SHARES.sum()))


def _cuts(column: Column, real: pd.DataFrame) -> Floats:
    """Inner edges of a number's bins; none of labels."""
    if isinstance(column, CategoricalColumn):
        return np.empty(0)
    values = column.standardised(real)
    values = values[~np.isnan(values)]
    if not len(values):
        return np.empty(0)
    return np.unique(np.quantile(values, np.linspace(0.0, 1.0, NMI_BINS + 1)[1:-1]))


def _codes(column: Column, cuts: Floats, frame: pd.DataFrame) -> Integers:
    if isinstance(column, CategoricalColumn):
        return np.asarray(column.codes(frame), dtype=np.int64)
    values = column.standardised(frame)
    found = np.searchsorted(cuts, values, side="left")
    return np.where(np.isnan(values), len(cuts) + 1, found).astype(np.int64)
