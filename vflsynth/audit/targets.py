"""Which records are worth auditing: those that stand out most (VFLGAN Appendix A.7)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable

import numpy as np
import pandas as pd
from scipy.spatial import cKDTree

from vflsynth.adversary.encoding import Attribute, Encoding, Floats
from vflsynth.exceptions import ParameterError

_BLOCK_ROWS = 1024


def outlying_attributes(
    table: pd.DataFrame, *, categorical: Collection[Hashable] = (), factor: float = 1.5
) -> pd.Series[int]:
    """Count the attributes of each record that lie outside the quartiles by more than a margin.

    The margin is `factor` interquartile ranges. Columns of labels are left out. Returns a Series
    with the table's index.

    Source: VFLGAN Eqs. 30 and 31, after Stadler et al. 2022. Departs from the printed margin of one
    interquartile range: the records that the paper audits are those of 1.5.
    """
    counts = np.zeros(len(table), np.int64)
    for attribute in Encoding(table, categorical).numeric:
        values = attribute.values(table)
        q1, q3 = np.nanquantile(values, [0.25, 0.75])
        margin = factor * (q3 - q1)
        counts += (values < q1 - margin) | (values > q3 + margin)
    return pd.Series(counts, index=table.index, name="outlying_attributes")


def most_outlying(table: pd.DataFrame, categorical: Collection[Hashable] = ()) -> Hashable:
    """Return the key of the record with the most outlying attributes.

    Among records with equally many it is the one that is farthest from its nearest neighbour in
    standardised numbers. Raises ParameterError if the table has no numeric column.
    """
    counts = outlying_attributes(table, categorical=categorical)
    numeric = Encoding(table, categorical).numeric
    scores = [attribute.encode(table)[:, 0] for attribute in numeric]
    if not scores:
        raise ParameterError(
            "most_outlying looks at numeric columns, and the table has none; "
            "use 'farthest' or name the records"
        )
    encoded = np.column_stack(scores)
    nearest = np.asarray(cKDTree(encoded).query(encoded, k=2)[0])[:, 1]
    return _key(table, np.lexsort([-nearest, -counts.to_numpy()])[0])


def neighbour_distances(
    table: pd.DataFrame, *, categorical: Collection[Hashable] = ()
) -> pd.Series[float]:
    """Return each record's distance to its nearest neighbour, 0 to 2, with the table's index.

    Source: VFLGAN Eq. 32, after Meeus et al. 2023: one minus the cosines of the one-hot labels and
    of the numbers, weighted by the shares of such columns. The numbers are min-max scaled, which
    the paper does not say; without it other records than the paper's are farthest.
    """
    encoding = Encoding(table, categorical)
    weighted = []
    for attributes, encode in (
        (encoding.labelled, lambda attribute: attribute.encode(table)),
        (encoding.numeric, lambda attribute: _min_max(attribute, table)),
    ):
        if attributes:
            part = np.concatenate([encode(attribute) for attribute in attributes], axis=1)
            norms = np.linalg.norm(part, axis=1, keepdims=True)
            unit = np.divide(part, norms, out=np.zeros_like(part), where=norms > 0)
            # The root of the weight in each factor makes one product of all cosines.
            weighted.append(unit * np.sqrt(len(attributes) / len(encoding.attributes)))
    unit_rows = np.concatenate(weighted, axis=1)
    nearest = np.empty(len(table))
    for start in range(0, len(table), _BLOCK_ROWS):
        block = unit_rows[start : start + _BLOCK_ROWS]
        distances = 1.0 - block @ unit_rows.T
        distances[np.arange(len(block)), start + np.arange(len(block))] = np.inf
        nearest[start : start + len(block)] = distances.min(axis=1)
    return pd.Series(nearest, index=table.index, name="neighbour_distance")


def farthest(table: pd.DataFrame, categorical: Collection[Hashable] = ()) -> Hashable:
    """Return the key of the record that is farthest from its nearest neighbour."""
    distances = neighbour_distances(table, categorical=categorical)
    return _key(table, int(distances.to_numpy().argmax()))


RULES: dict[str, Callable[..., Hashable]] = {"farthest": farthest, "most_outlying": most_outlying}
"""Ways to choose a target by name; the paper's Record 1 and Record 2."""


def _key(table: pd.DataFrame, place: int) -> Hashable:
    found: Hashable = table.index[[place]].item()
    return found


def _min_max(attribute: Attribute, table: pd.DataFrame) -> Floats:
    """Scale to 0..1; missing values go to the middle, constants to 0."""
    length = attribute.high - attribute.low
    scaled = (attribute.values(table) - attribute.low) / (length or 1.0)
    return np.where(np.isnan(scaled), 0.5, scaled)[:, None]
