"""What is asked or known of columns as they are published, said of those that are modelled.

Every statement here is implied by the one about published columns: nothing that is wanted is left
out. Rows are looked at again once they are decoded and rules have computed their columns.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import replace
from typing import Any, TypeGuard

import numpy as np
import pandas as pd

from vflsynth.codec import array_of
from vflsynth.columns import TableTransformer
from vflsynth.columns.arrays import Flags, kind_of_values
from vflsynth.columns.base import naming, not_held
from vflsynth.columns.wanted import Domain, Wanted
from vflsynth.contract.preparing import Preparation
from vflsynth.contract.recoding import Composite
from vflsynth.contract.rules import combinations_of
from vflsynth.contract.steps import Copied, Fixed, Lookup, Ordered, Placed, Redrawn, Step

Labels = tuple[Any, ...]
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
    for step in preparation.steps:
        found[step.column] = _domain(step, found)
    return {label: found[label] for label in preparation.columns if label in found}


def _domain(step: Step, found: Mapping[Hashable, Domain]) -> Domain:
    """Return what can be asked of a column that a step restores."""
    if kind_of_values(step.dtype) in "iufmM":
        return Domain(step.dtype)
    if isinstance(step, Lookup):
        labels = (*step.values, step.usual)
    elif isinstance(step, Fixed):
        labels = (*(found[step.column].labels or ()), *(level.value for level in step.setting))
    elif isinstance(step, Placed | Redrawn):
        labels = found[step.column].labels or ()
    else:
        labels = next((found[k].labels or () for k in step.by if k in found), ())
    return Domain(step.dtype, tuple(dict.fromkeys(v for v in labels if v is not None)))


def modelled_wanted(
    preparation: Preparation, wanted: Mapping[Any, Wanted], computed: Collection[Hashable]
) -> dict[Any, Wanted]:
    """Return what the modelled columns have to be for the published ones to be as they are wanted.

    What the model has in place of `computed` columns, those that rules compute, does not matter.
    """
    recoded = {step.column for step in preparation.steps if not _keeps_values(step)}
    recoded |= {*computed}
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
    for step in preparation.steps:
        if isinstance(step, Copied) and step.column in found:
            found[step.column] = replace(found[step.column], also=(step.mark,))
        if _is_by_labels(step) and step.column in wanted:
            fits = wanted[step.column].satisfied(pd.Series(array_of([*step.values], step.dtype)))
            keys = (key[0] for key, fit in zip(step.keys, fits) if fit and key[0] is not None)
            if determining := tuple(keys):
                found.setdefault(step.by[0], Wanted(determining))
    for label in set(preparation.rounded) & set(found):
        own = found.pop(label)
        if not own.missing:
            found[label] = _widened(own, 10.0 ** -preparation.rounded[label])
    return found


def _keeps_values(step: Step) -> bool:
    """Whether a column has a value where it is drawn with it, but for few rows or for copies."""
    return isinstance(step, Copied) or (step.is_mended and not isinstance(step, Redrawn))


def _is_by_labels(step: Step) -> TypeGuard[Lookup]:
    """Whether a column is not modelled, and one column of labels says what it is."""
    return isinstance(step, Lookup) and not step.of_numbers and step.is_left_out


def modelled_rows(
    preparation: Preparation,
    known: pd.DataFrame,
    computed: Collection[Hashable],
    party: str,
    *,
    missing_is_value: bool,
) -> tuple[pd.DataFrame, Among]:
    """Return what partly filled rows say of the modelled columns.

    A missing cell of `known` is not known, or is a value; `computed` is as in `modelled_wanted`. Of
    combinations, and of labels that determine others, the second result lists those that each
    record may have. What `is_implied` says no to has no part in it. ColumnKindError if an ordered
    column holds values of another type.
    """
    rows = known.drop(columns=[label for label in known if label in computed])
    for step in preparation.steps:
        column = step.column
        if column not in rows or step.is_mended:
            continue
        if isinstance(step, Ordered):
            pair = known[[*step.by, column]].dropna()
            with naming(party, column):
                try:
                    excess = step.difference(pair.astype({column: step.dtype}))
                except (TypeError, ValueError):
                    raise not_held(step.dtype) from None
            rows[column] = excess.reindex(rows.index)
        elif isinstance(step, Copied):
            rows[column] = step.marked(known)
        elif not isinstance(step, Fixed):
            rows = rows.drop(columns=[column])
        elif not missing_is_value:
            others = known.reindex(columns=list(step.by))
            free = others.notna().all(axis=1) & ~step.fixes(others)
            rows[column] = rows[column].where(free)
    among: Among = {}
    for step in preparation.steps:
        if _is_by_labels(step) and step.column in known and step.by[0] not in known:
            among[step.by[0]] = _determining(step, known[step.column])
    for composite in preparation.composites:
        if given := [label for label in composite.columns if label in rows]:
            among[composite.label] = _fitting(composite, rows)
            rows = rows.drop(columns=given)
    return rows, among


def is_implied(preparation: Preparation, known: pd.DataFrame) -> bool:
    """Whether what is known can be said of the modelled columns, record by record.

    One of two ordered columns needs the one that it is modelled beside, and a computed one all that
    it is computed of, unless they are labels that it is looked up by. A number that may be a copy
    counts as none where the other column is not known.
    """
    needed = {
        step.column: step.by
        for step in preparation.steps
        if not (step.is_mended or isinstance(step, Copied))
        and (not _is_by_labels(step) or step.by[0] in known)
    }
    return not any(
        column in known
        and (
            not {*by} <= {*known}
            or bool((known[column].notna() & known[[*by]].isna().any(axis=1)).any())
        )
        for column, by in needed.items()
    )


def told_missing(preparation: Preparation | None, known: pd.DataFrame, column: Hashable) -> Flags:
    """Say in which rows others that are known tell that a column has no value."""
    found = np.zeros(len(known), np.bool_)
    for step in () if preparation is None else preparation.steps:
        if step.column != column or not {*step.by} <= {*known}:
            continue
        told = known[[*step.by]].notna().all(axis=1).to_numpy()
        if isinstance(step, Fixed):
            found |= told & step.fixes(known, None)
        elif isinstance(step, Lookup) and step.is_left_out:
            found |= told & step.restore(dict(known.items()), known.index).isna().to_numpy()
    return found


def _determining(step: Lookup, cells: pd.Series[Any]) -> list[Labels]:
    """Labels that go with each cell of the column that they determine."""
    every = tuple(key[0] for key in step.keys)
    found: dict[Any, Labels] = {}
    for (key,), value in zip(step.keys, step.values):
        found[value] = (*found.get(value, ()), key)
    plain = combinations_of(cells.to_frame(), (step.column,))
    return [every if value is None else found.get(value, ()) for (value,) in plain]


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
