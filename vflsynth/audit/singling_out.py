"""Singling out: descriptions made from synthetic records that fit exactly one real record."""

from __future__ import annotations

from typing import Unpack

import numpy as np
import pandas as pd

from vflsynth.adversary.encoding import Booleans, Encoding, Floats
from vflsynth.audit.compared import Compared, QuestionOptions, values_of
from vflsynth.audit.criteria import Disclosure
from vflsynth.exceptions import ParameterError, PartyDataError

_TRIES = 10

Description = list[tuple[int, float, int]]
"""Conditions on columns by position: a value, and whether what fits is below (-1) or above (1)."""


def singling_out(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    control: pd.DataFrame,
    *,
    n_columns: tuple[int, int] = (1, 4),
    **options: Unpack[QuestionOptions],
) -> Disclosure:
    """Ask whether descriptions made from synthetic records fit exactly one real record.

    Parameters
    ----------
    real, synthetic, control : DataFrame
        Training records, what was made from them, and records of the same population that were not
        used. Of the larger of `real` and `control` a random part is left out: how often a
        description fits one record depends on how many there are.
    n_columns : tuple of int, default=(1, 4)
        Least and most columns of a description.
    **options
        `categorical`, numeric columns to read as labels (default: none); `n_attacks`, most
        descriptions or attacked records of each kind (1000); `confidence` (0.95);
        `random_state` (0).

    Returns
    -------
    Disclosure
        The baseline is descriptions of values that were each taken from another synthetic record.

    Raises
    ------
    ParameterError
        If a parameter is out of range.
    PartyDataError
        If a table has fewer than 20 records.
    ColumnMismatchError
        If a table lacks a column of the synthetic one.

    Notes
    -----
    A description takes the values of random columns of one synthetic record: the same label, a
    number at least as large where it lies above the synthetic median and at most as large
    elsewhere. Those that fit no other synthetic record are used. Multivariate predicates are those
    of Giomi et al. 2023; our own implementation. Training and control records are compared by the
    same descriptions but as if by others, which errs on the side of not seeing a difference.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> people, others = (pd.DataFrame(rng.normal(size=(300, 4))) for _ in range(2))
    >>> singling_out(people, people, others).excess.low > 0.1
    True
    """
    if not 1 <= n_columns[0] <= n_columns[1]:
        raise ParameterError(
            f"singling_out: n_columns must be two increasing numbers from 1, got {n_columns!r}"
        )
    tables = Compared.of("singling_out", (real, synthetic, control), options)
    rng, published = tables.generator(8), tables.synthetic
    used, others = tables.asked(min(len(real), len(control)), rng)
    encoding = Encoding(published, tables.categorical)
    columns = [published[name].iloc[rng.permutation(len(published))] for name in published]
    mixed = pd.concat([c.reset_index(drop=True) for c in columns], axis=1)
    found = []
    for source in (published, mixed):
        described = _descriptions(encoding, source, published, n_columns, tables.n_attacks, rng)
        found.append([_singled_out(encoding, described, table) for table in (used, others)])
    attacks, (guesses, _) = found
    if not len(attacks[0]):
        raise PartyDataError(
            "no description of a synthetic record fits it alone: all records occur several times",
            fix="allow more columns with n_columns",
        )
    return tables.answer("singling out", attacks, float(guesses.mean()) if len(guesses) else 0.0)


def _descriptions(
    encoding: Encoding,
    source: pd.DataFrame,
    published: pd.DataFrame,
    n_columns: tuple[int, int],
    n_attacks: int,
    rng: np.random.Generator,
) -> list[Description]:
    """Describe records of `source` so that exactly one published record fits."""
    attributes = encoding.attributes
    own = np.column_stack([values_of(a, source) for a in attributes])
    all_values = np.column_stack([values_of(a, published) for a in attributes])
    middle = [np.nanmedian(v) if np.isfinite(v).any() else np.nan for v in all_values.T]
    low, high = (min(n, len(attributes)) for n in n_columns)
    found: list[Description] = []
    for row in rng.permutation(len(source)).tolist():
        if len(found) == n_attacks:
            break
        for _ in range(_TRIES):
            columns = rng.permutation(len(attributes))[: rng.integers(low, high + 1)]
            description = [
                (
                    int(j),
                    float(own[row, j]),
                    0 if attributes[j].levels is not None else 1 if own[row, j] > middle[j] else -1,
                )
                for j in columns
            ]
            if _fits(all_values, description).sum() == 1:
                found.append(description)
                break
    return found


def _fits(values: Floats, description: Description) -> Booleans:
    """Which records, as `_values` of all columns, a description fits."""
    fits = np.ones(len(values), bool)
    for column, value, side in description:
        own = values[:, column]
        if np.isnan(value):
            fits &= np.isnan(own)
        elif side == 0:
            fits &= own == value
        else:
            with np.errstate(invalid="ignore"):
                fits &= own >= value if side > 0 else own <= value
    return fits


def _singled_out(
    encoding: Encoding, descriptions: list[Description], table: pd.DataFrame
) -> Booleans:
    """Whether each description fits exactly one record of a table."""
    values = np.column_stack([values_of(a, table) for a in encoding.attributes])
    return np.array([_fits(values, d).sum() == 1 for d in descriptions], bool)
