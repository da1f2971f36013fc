"""Who was lost: whether a party's unmatched records differ from its matched ones.

A party compares its own records with its own records. Nothing of it leaves the party, and under
privacy it is not computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

_WORST, _LEVEL, _MOST_LABELS, _FEWEST = 3, 0.01, 20, 5


@dataclass(frozen=True)
class Difference:
    """How a column differs between a party's matched records and its others.

    Parameters
    ----------
    column : str
        Its label, or "how keys are written".
    distance : float
        0 if the shares of all values are the same, 1 if no value is in both: Kolmogorov and
        Smirnov's for numbers and times, total variation for labels.
    p_value : float
        How often a column of records that are lost by chance would differ so, times the number of
        columns looked at.
    """

    column: str
    distance: float
    p_value: float

    def __str__(self) -> str:
        return f"{self.column} (distance {self.distance:.2f})"


def who_is_lost(
    frame: pd.DataFrame, keys: pd.Index, matched: npt.NDArray[np.bool_]
) -> tuple[Difference, ...]:
    """Compare the records that all parties have with those that some other party lacks.

    Parameters
    ----------
    frame : DataFrame, shape (record, column)
        A party's, without its key column.
    keys : Index, shape (record,)
    matched : bool array, shape (record,)

    Returns
    -------
    tuple of Difference
        The three columns that differ most, of those that differ by more than chance at 1 in 100.
    """
    if matched.all() or not matched.any():
        return ()
    columns = {str(label): frame[label].reset_index(drop=True) for label in frame.columns}
    columns["how keys are written"] = pd.Series([_form_of(key) for key in keys])
    found = []
    for label, column in columns.items():
        distance, p_value = _compared(column, matched)
        if p_value * len(columns) < _LEVEL:
            found.append(Difference(label, distance, p_value * len(columns)))
    return tuple(sorted(found, key=lambda own: -own.distance)[:_WORST])


def _compared(column: pd.Series[Any], matched: npt.NDArray[np.bool_]) -> tuple[float, float]:
    """Distance and p-value of one column."""
    from scipy.stats import chi2_contingency, ks_2samp

    kind = getattr(column.dtype, "kind", "O")
    if kind in "iufmM" and column.nunique() > _MOST_LABELS:
        known = np.asarray(column.notna())
        numbers = column[known].astype("int64" if kind in "mM" else "float64").to_numpy()
        parts = numbers[matched[known]], numbers[~matched[known]]
        if min(map(len, parts)) >= 2 * _FEWEST:
            test = ks_2samp(*parts, method="asymp")
            return float(test.statistic), float(test.pvalue)
        column = pd.Series(known)
    try:
        codes, _ = pd.factorize(column)
    except TypeError:  # lists and the like
        return 0.0, 1.0
    # A test of counts holds where each is expected to be 5: rarer labels count as one.
    share = min(matched.mean(), 1.0 - matched.mean())
    common = pd.Series(codes).value_counts().mul(share) >= _FEWEST
    codes = np.where(np.isin(codes, common[common].index[:_MOST_LABELS]), codes, -2)
    counts = pd.crosstab(codes, matched).to_numpy().astype(float)
    if counts.shape[0] < 2 or (counts.sum(axis=1) * share).min() < _FEWEST:
        return 0.0, 1.0
    shares = counts / counts.sum(axis=0)
    return 0.5 * float(np.abs(shares[:, 0] - shares[:, 1]).sum()), float(
        chi2_contingency(counts)[1]
    )


def _form_of(key: Any) -> str:
    """Say in which letters a key is written."""
    text = str(key)
    letters = "no letters" if text.upper() == text.lower() else "letters"
    return letters if text.isascii() else "letters beyond ASCII"
