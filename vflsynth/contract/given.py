"""What is asked or known of columns as they are published, said of those that are modelled.

Every statement here is implied by the one about published columns: nothing that is wanted is left
out. Rows are looked at again once they are decoded and rules have computed their columns.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from vflsynth.columns import TableTransformer
from vflsynth.columns.base import naming, not_held
from vflsynth.columns.codec import array_of
from vflsynth.columns.wanted import Domain, Wanted
from vflsynth.contract.preparing import Preparation
from vflsynth.contract.recoding import Composite, kind_of_values
from vflsynth.contract.rules import combinations_of

Labels = tuple[str, ...]
Among = dict[Hashable, list[Labels]]
"""By column of labels: those that each record may have."""


def domains(preparation: Preparation | None, table: TableTransformer) -> dict[Hashable, Domain]:
    """Return what can be asked of a party's published columns; replaced ones have no part in it."""
    found = {label: Domain.of(column) for label, column in table.transformers_.items()}
    if preparation is None:
        return found
    for composite in preparation.composites:
        for k, (label, dtype) in enumerate(zip(composite.columns, composite.dtypes)):
            values = dict.fromkeys(c[k] for c in composite.combinations if c[k] is not None)
            ordered = kind_of_values(dtype) in "iufmM"
            found[label] = Domain(dtype, None if ordered else tuple(values))
    for difference in preparation.differences:
        found[difference.high] = Domain(difference.dtype)
    return {label: found[label] for label in preparation.columns if label in found}


def modelled_wanted(
    preparation: Preparation, wanted: Mapping[Any, Wanted], computed: Collection[Hashable]
) -> dict[Any, Wanted]:
    """Return what the modelled columns have to be for the published ones to be as they are wanted.

    What the model has in place of `computed` columns, those that rules compute, does not matter.
    """
    recoded = {d.high for d in preparation.differences} | set(computed)
    found = {label: own for label, own in wanted.items() if label not in recoded}
    for composite in preparation.composites:
        asked = {k: found.pop(c) for k, c in enumerate(composite.columns) if c in found}
        fits = np.ones(len(composite.combinations), np.bool_)
        for k, own in asked.items():
            cells = array_of([c[k] for c in composite.combinations], composite.dtypes[k])
            fits &= own.satisfied(pd.Series(cells))
        if asked and fits.any():  # where none fits, looking at decoded rows says so
            labels = composite.labels
            found[composite.label] = Wanted(tuple(labels[k] for k in np.flatnonzero(fits)))
    for label in set(preparation.rounded) & set(found):
        own = found.pop(label)
        if not own.missing:
            found[label] = _widened(own, 10.0 ** -preparation.rounded[label])
    return found


def modelled_rows(
    preparation: Preparation, known: pd.DataFrame, computed: Collection[Hashable], party: str
) -> tuple[pd.DataFrame, Among]:
    """Return what partly filled rows say of the modelled columns.

    A missing cell of `known` is not known; `computed` is as in `modelled_wanted`. Of combinations,
    the second result lists those that each record may have.

    Raises
    ------
    ColumnKindError
        If a larger column holds values of another type.
    """
    rows = known.drop(columns=[label for label in known if label in computed])
    for difference in preparation.differences:
        if difference.high not in rows:
            continue
        pair = known[[difference.low, difference.high]].dropna()
        with naming(party, difference.high):
            try:
                excess = difference.apply(pair.astype({difference.high: difference.dtype}))
            except (TypeError, ValueError):
                raise not_held(difference.dtype) from None
        rows[difference.high] = excess[difference.high].reindex(rows.index)
    among: Among = {}
    for composite in preparation.composites:
        given = [label for label in composite.columns if label in rows]
        if given:
            among[composite.label] = _fitting(composite, rows)
            rows = rows.drop(columns=given)
    return rows, among


def needs_lower(preparation: Preparation, known: pd.DataFrame) -> bool:
    """Whether a larger column is known where the one that it is modelled above is not."""
    return any(
        d.high in known
        and (d.low not in known or bool((known[d.high].notna() & known[d.low].isna()).any()))
        for d in preparation.differences
    )


def _fitting(composite: Composite, rows: pd.DataFrame) -> list[Labels]:
    """Labels of the combinations that go with each row's cells; no missing value is filled in."""
    cells = combinations_of(rows.reindex(columns=list(composite.columns)), composite.columns)
    found = {
        given: tuple(
            label
            for label, own in zip(composite.labels, composite.combinations)
            if all(v is not None and g in (None, v) for g, v in zip(given, own, strict=True))
        )
        for given in set(cells)
    }
    return [found[given] for given in cells]


def _widened(wanted: Wanted, step: float) -> Wanted:
    """Wanted of numbers that are rounded to steps afterwards."""
    low, high = wanted.low, wanted.high
    if wanted.values:
        low, high = min(wanted.values), max(wanted.values)
    low, high = (None if end is None else end + sign * step for end, sign in ((low, -1), (high, 1)))
    return replace(wanted, values=(), low=low, high=high)
