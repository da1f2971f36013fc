"""Parts of a sample put side by side: what the recipient does, who needs no model and no secret."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pandas as pd

from vflsynth.exceptions import MisalignedError, PublishingWarning, SharedColumnError, VFLSynthError

if TYPE_CHECKING:
    from vflsynth.contract import Cost, SharedRows

T = TypeVar("T")

MARK = "vflsynth sample"
"""Under this name a part says in its attributes which others it belongs to."""

PARTIES = "vflsynth parties"
"""Under this name it says how many parts there are."""

RULES = "vflsynth rules"
"""Under this name it says which of the drawn rows it has, and which rules are open."""

CHOICE = "vflsynth choice"
"""Under this name it says how its drawn rows score, where only some of them stay."""

KEYS = "vflsynth keys"
"""Under this name it says which keys the rows get that are left."""


def join_parts(parts: Mapping[str, pd.DataFrame]) -> tuple[pd.DataFrame, Cost | None]:
    """Put parts side by side; names are for errors.

    Where rows are resampled, those stay that score best with all parties' parts. Under a contract
    the table, (n, column), has the rows that all parties and the rules of several of them leave in;
    with it comes what rules that rows are left out for cost, or None.

    Warns if some are not there. Raises MisalignedError if they are not parts of one sample;
    SharedColumnError if two have a column of the same name; RuleError if too few rows keep all
    rules; ColumnMismatchError if a rule names a column of a party whose part is not there.
    """
    marks = {name: part.attrs.get(MARK) for name, part in parts.items()}
    ruled, choosing = (
        [name for name, part in parts.items() if what in part.attrs] for what in (RULES, CHOICE)
    )
    some_only = {len(ruled), len(choosing)} - {0, len(parts)}
    if None in marks.values() or len(set(map(repr, marks.values()))) != 1 or some_only:
        raise MisalignedError(
            f"these are not parts of one sample: {', '.join(map(repr, parts))}",
            fix="have every party draw with the same job, number of rows, request and secret, into "
            "parquet files; if an attempt was cut off while halves were saved, run the job again "
            "first",
        )
    first, *others = parts
    columns = dict.fromkeys(parts[first].columns, first)
    for name in others:
        for column in parts[name].columns:
            if column in columns:
                raise SharedColumnError(
                    f"{columns[column]!r} has a column of this name too",
                    fix="draw keys at one party only",
                    party=name,
                    column=column,
                )
            columns[column] = name
    found: Mapping[str, pd.DataFrame] = parts
    shared = {name: _read_rules(name, parts[name]) for name in ruled}
    cost: Cost | None = None
    for name, own in shared.items():
        if own.n != shared[first].n:
            raise _damaged(name)
    if choosing:
        found, shared = _chosen(parts, shared)
    if ruled:
        from vflsynth.contract import rows_for_all

        found, cost = rows_for_all(found, shared)
    for name, part in found.items():
        if not part.index.equals(found[first].index):
            raise _damaged(name)
    table = pd.concat(list(found.values()), axis=1)
    wanted = _read(first, int, parts[first].attrs.get(PARTIES, len(parts)))
    if len(parts) < wanted:
        text = f"{len(parts)} of {wanted} parties' parts: the columns of the others are not there"
        warnings.warn(text, PublishingWarning, stacklevel=2)
    table.attrs = {}
    return _with_keys(table, parts), cost


def _read_rules(name: str, part: pd.DataFrame) -> SharedRows:
    from vflsynth.contract import SharedRows

    shared = _read(name, SharedRows.from_dict, part.attrs[RULES])
    if len(shared.rows) != len(part):
        raise _damaged(name)
    return shared


def _chosen(
    parts: Mapping[str, pd.DataFrame], shared: Mapping[str, SharedRows]
) -> tuple[dict[str, pd.DataFrame], dict[str, SharedRows]]:
    """Keep the rows that score best; of those a party has left out it has no row."""
    from vflsynth.models.choosing import Choice, chosen_rows
    from vflsynth.models.party_model import stacked

    first = next(iter(parts))
    choices = {name: _read(name, Choice.from_dict, p.attrs[CHOICE]) for name, p in parts.items()}
    stay = _read(first, chosen_rows, list(choices.values()))
    found, kept = {}, {}
    for name, part in parts.items():
        n_drawn = len(choices[name].parts)
        there = shared[name].rows if shared else np.arange(n_drawn)
        if len(there) != len(part) or (shared and shared[name].n_drawn != n_drawn):
            raise _damaged(name)
        rows = np.flatnonzero(np.isin(there, stay))
        found[name] = stacked([part.take(rows)])
        if shared:
            own = np.searchsorted(stay, there[rows])
            kept[name] = replace(shared[name], n_drawn=len(stay), rows=own)
    return found, kept


def _read(name: str, read: Callable[[Any], T], said: Any) -> T:
    """Read what a part says of itself, which is somebody else's."""
    try:
        return read(said)
    except (VFLSynthError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(name) from error


def _damaged(name: str) -> MisalignedError:
    return MisalignedError(
        "what the part says of its rows cannot be read, or is of another table",
        fix="have the party draw its part anew, and leave the file as it is",
        party=name,
    )


def _with_keys(table: pd.DataFrame, parts: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Put fresh keys in front, or into the index, if a party was asked for them."""
    having = [name for name, part in parts.items() if KEYS in part.attrs]
    if not having:
        return table
    if len(having) > 1:
        raise SharedColumnError(
            f"{having[0]!r} has a column of keys too",
            fix="draw keys at one party only",
            party=having[1],
        )
    from vflsynth.codec import scalar_from_json
    from vflsynth.frames.keys import KeyMinter
    from vflsynth.models.party_model import with_keys

    on, minter = _read(
        having[0],
        lambda said: (scalar_from_json(said["on"]), KeyMinter.from_dict(said["keys"])),
        parts[having[0]].attrs[KEYS],
    )
    return with_keys(table, minter, on)
