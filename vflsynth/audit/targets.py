"""Which records are worth auditing: those that stand out most (VFLGAN Appendix A.7)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from vflsynth.adversary.encoding import Encoding, Floats
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


def most_outlying(
    table: pd.DataFrame,
    *,
    n: int = 1,
    categorical: Collection[Hashable] = (),
    factor: float = 1.5,
) -> list[Hashable]:
    """Return the records with the most outlying attributes.

    Parameters
    ----------
    table : DataFrame, shape (record, column)
        Its index are the records' keys.
    n : int, default=1
        How many.
    categorical : collection of hashable, default ()
        Numeric columns to read as labels.
    factor : float, default=1.5
        Margin in interquartile ranges.

    Returns
    -------
    list of hashable
        Keys, the most outlying first. Among records with equally many, the one that is farthest
        from its nearest neighbour in standardised numbers comes first.

    Raises
    ------
    ParameterError
        If the table has no numeric column, or fewer than `n` records.

    Examples
    --------
    >>> table = pd.DataFrame({"a": [1, 2, 3, 2, 90], "b": [5.0, 5.5, 6.0, 5.2, 5.4]})
    >>> most_outlying(table)
    [4]
    """
    counts = outlying_attributes(table, categorical=categorical, factor=factor)
    scores = [
        np.where(np.isnan(values), 0.0, (values - attribute.mean) / attribute.scale)
        for attribute in Encoding(table, categorical).numeric
        for values in [attribute.values(table)]
    ]
    if not scores:
        raise ParameterError(
            "most_outlying looks at numeric columns, and the table has none; "
            "use 'farthest' or name the records"
        )
    encoded = np.column_stack(scores)
    squares = (encoded**2).sum(axis=1)

    def distance(rows: slice) -> Floats:
        products = encoded[rows] @ encoded.T
        return np.asarray(squares[rows, None] + squares - 2.0 * products)

    return _first(counts.index, n, counts.to_numpy(), _nearest(distance, len(table)))


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
        (encoding.numeric, lambda attribute: _min_max(attribute.values(table))[:, None]),
    ):
        if attributes:
            part = np.concatenate([encode(attribute) for attribute in attributes], axis=1)
            norms = np.linalg.norm(part, axis=1, keepdims=True)
            unit = np.divide(part, norms, out=np.zeros_like(part), where=norms > 0)
            # The root of the weight in each factor makes one product of all cosines.
            weighted.append(unit * np.sqrt(len(attributes) / len(encoding.attributes)))
    unit_rows = np.concatenate(weighted, axis=1)

    def distance(rows: slice) -> Floats:
        return np.asarray(1.0 - unit_rows[rows] @ unit_rows.T)

    return pd.Series(_nearest(distance, len(table)), index=table.index, name="neighbour_distance")


def farthest(
    table: pd.DataFrame, *, n: int = 1, categorical: Collection[Hashable] = ()
) -> list[Hashable]:
    """Return the keys of the records that are farthest from their nearest neighbour.

    Parameters
    ----------
    table, n, categorical
        As in `most_outlying`.

    Returns
    -------
    list of hashable
        Keys, the farthest first.

    Examples
    --------
    >>> table = pd.DataFrame({"a": [1.0, 1.1, 1.2, 0.2], "b": [1.0, 1.1, 1.2, 5.0]})
    >>> farthest(table)
    [3]
    """
    distances = neighbour_distances(table, categorical=categorical)
    return _first(distances.index, n, distances.to_numpy())


RULES: dict[str, Callable[..., list[Hashable]]] = {
    "farthest": farthest,
    "most_outlying": most_outlying,
}
"""Ways to choose a target by name; the paper's Record 1 and Record 2."""


def _first(keys: pd.Index[Any], n: int, *scores: npt.NDArray[Any]) -> list[Hashable]:
    """Return the keys with the n largest scores; later scores break ties, then the order."""
    if not 1 <= n <= len(keys):
        raise ParameterError(f"n must be between 1 and the {len(keys)} records, got {n!r}")
    order = np.lexsort([-score for score in reversed(scores)])
    chosen: list[Hashable] = keys[order[:n]].tolist()
    return chosen


def _nearest(distance: Callable[[slice], Floats], n_rows: int) -> Floats:
    """Return each row's smallest distance to another row, a block of rows at a time."""
    nearest = np.empty(n_rows)
    for start in range(0, n_rows, _BLOCK_ROWS):
        rows = slice(start, min(start + _BLOCK_ROWS, n_rows))
        distances = distance(rows)
        own = np.arange(rows.start, rows.stop)
        distances[own - start, own] = np.inf
        nearest[rows] = distances.min(axis=1)
    return nearest


def _min_max(values: Floats) -> Floats:
    """Scale to 0..1; missing values go to the middle, constants to 0."""
    low, high = np.nanmin(values), np.nanmax(values)
    scaled = (values - low) / ((high - low) or 1.0)
    return np.where(np.isnan(scaled), 0.5, scaled)
