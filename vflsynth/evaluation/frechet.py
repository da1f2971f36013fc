"""Fréchet distance between two tables: the VFLGAN paper's measure of fidelity."""

from __future__ import annotations

from typing import Unpack

import numpy as np
import pandas as pd
import torch

from vflsynth.evaluation.columns import Integers
from vflsynth.evaluation.intervals import GROUPS, GroupedSums, jackknife_interval, jackknifed
from vflsynth.evaluation.metric import Metric, MetricResult, Reading
from vflsynth.evaluation.tables import Compared, Tables
from vflsynth.networks.layers import frechet_distance_of_moments

FRECHET_DISTANCE = Metric(
    name="frechet_distance",
    title="Fréchet distance",
    direction="lower",
    maximum=np.inf,
    measures="How far apart the two tables are in means, spreads and linear relations, all columns "
    "at once, in squared real standard deviations.",
    naive="a table with the right columns but no relation between them",
)


def frechet_distance(
    real: pd.DataFrame, synthetic: pd.DataFrame, **known: Unpack[Compared]
) -> MetricResult:
    """Compare means and covariances of two tables, over all columns and party by party.

    Numeric columns are standardised with the real table's mean and standard deviation, categorical
    ones become one-hot features. A missing value is a score of 0 plus an indicator feature, or a
    label of its own.

    Parameters
    ----------
    real, synthetic, **known
        As in `evaluate`; `parties` adds one part per party.

    Returns
    -------
    MetricResult
        ``parts`` has one row for all columns and one per party: `part`, `features`, `value`,
        `lower`, `upper`, `baseline` (two random halves of the real table) and `naive` (the same
        columns, independent of each other).

    Raises
    ------
    PartyDataError
        If the tables cannot be compared; the message names the column.

    Notes
    -----
    Source: VFLGAN §5.1.3, Eq. 23. With `categorical` naming the quality column this is the paper's
    encoding of the wine tables. The `naive` mark is exact, not sampled: the real moments with every
    covariance between different columns set to zero.

    Departs from the paper's code where that returns NaN, see
    `vflsynth.networks.layers.frechet_distance_of_moments`.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"age": [30.0, 41.0, 55.0, 62.0], "smoker": ["no", "no", "yes", "no"]})
    >>> round(float(frechet_distance(table, table)), 6)
    0.0
    """
    return all_columns(Tables(real, synthetic, **known))


def all_columns(tables: Tables) -> MetricResult:
    """Compute `frechet_distance`, which see."""
    real, synthetic, owner = tables.real, tables.synthetic, tables.owner or {}
    encoder, rng = tables.encoder, tables.generator(FRECHET_DISTANCE.name)
    ours, theirs = (GroupedSums.of(table, encoder.encode, rng) for table in (real, synthetic))

    selections: dict[str, Integers] = {"all columns": np.arange(len(encoder.feature_columns))}
    for party in tables.parties or ():
        mine = [i for i, name in enumerate(encoder.names) if owner[name] == party]
        if mine:
            selections[str(party)] = np.flatnonzero(np.isin(encoder.feature_columns, mine))
    readings = {
        part: read_distance(ours, theirs, features, encoder.feature_columns)
        for part, features in selections.items()
    }
    rows = [
        {"part": part, "features": len(selections[part])} | reading.row()
        for part, reading in readings.items()
    ]
    return jackknifed(FRECHET_DISTANCE, readings["all columns"], pd.DataFrame(rows), encoder.notes)


def read_distance(
    real: GroupedSums, synthetic: GroupedSums, features: Integers, columns: Integers
) -> Reading:
    """Return the distance of two tables' sums with its interval and marks.

    `features` chooses what is compared; `columns` says which column each feature belongs to, for
    the naive mark, shape (feature,).
    """
    whole_real = real.moments(real.all_rows(), features)
    whole_synthetic = synthetic.moments(synthetic.all_rows(), features)
    value = float(frechet_distance_of_moments(*whole_real, *whole_synthetic))
    interval = baseline = None
    if real.n_groups == synthetic.n_groups == GROUPS:
        real_jackknife = real.moments(real.all_but_one(), features)
        synthetic_jackknife = synthetic.moments(synthetic.all_but_one(), features)
        replicates = (
            frechet_distance_of_moments(*real_jackknife, *whole_synthetic).numpy(),
            frechet_distance_of_moments(*whole_real, *synthetic_jackknife).numpy(),
        )
        interval = jackknife_interval(value, replicates, 0.0, np.inf)
    if real.n_groups == GROUPS:
        first, second = (real.moments(half, features) for half in real.halves())
        baseline = float(frechet_distance_of_moments(*first, *second).mean())
    mean, covariance = whole_real
    same_column = torch.tensor(columns[features][:, None] == columns[features][None, :])
    naive = float(frechet_distance_of_moments(mean, covariance, mean, covariance * same_column))
    return Reading(value, interval, baseline, naive)
