"""A contract filled in from a table, for a person to correct.

What is proposed holds in all records of one party, which is no reason that it must hold: every
proposal comes with its support. It reads the records and pays for nothing, so it is not for private
fits.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from vflsynth.codec import as_frame, check_can_be_written
from vflsynth.columns import infer_kind
from vflsynth.columns.kinds import is_index, is_known_to_others, recognise
from vflsynth.contract.contract import ColumnContract, Contract, PartyContract
from vflsynth.contract.discovering import codes_among, compatible, discover
from vflsynth.contract.findings import LEAST_SURPRISE, Finding
from vflsynth.exceptions import ColumnKindError, PartyDataError
from vflsynth.frames import key_of
from vflsynth.frames.written import doubts

_MOST_LEVELS = 256
_MOST_CODES, _FEW = 100_000, 5
"""Codes that a fit takes, and records that each has at least on average, beyond so few levels."""
_CODE = re.compile(
    r"(.*[ _-])?((zip|post(al)?)?code|zip|post(al)?|plz|fips|icd\d*|naics|isic|id)([ _-].*)?",
    re.IGNORECASE,
)


def propose(
    frames: Mapping[str, pd.DataFrame], on: Any = None
) -> tuple[Contract, dict[str, list[str]]]:
    """Fill a contract in, by the parties' tables, with the key column `on` if there is one.

    No party's columns are compared with another's. The reasons say by party what to look at, in
    words, without any value of a table.
    """
    parts, reasons = {}, {}
    for name, frame in frames.items():
        key, frame = key_of(on, name), as_frame(frame, name)
        own = frame.drop(columns=[key]) if key in frame.columns else frame
        columns: dict[Hashable, ColumnContract] = {}
        said = []
        for label in own.columns:
            columns[label], reason = propose_column(own[label])
            if columns[label].is_modelled and is_known_to_others(label):
                columns[label] = replace(columns[label], role="quasi-identifier")
                reason = f"{reason}; others may know it of a person".removeprefix("; ")
            said += [f"column {str(label)!r}: {reason}"] if reason else []
        modelled = own[[label for label, column in columns.items() if column.is_modelled]]
        for label in codes_among(modelled):
            if columns[label].kind in ("integer", "continuous"):
                columns[label] = replace(columns[label], kind="categorical")
        found = discover(modelled, nearly=True)
        proposed = compatible(
            [own for own in found if own.is_exact and _is_open(own) and own.judges_rows]
        )
        said += _in_words(modelled, found)
        parts[name] = PartyContract(columns, [finding.rule for finding in proposed])
        reasons[name] = said
    return Contract(parts), reasons


def proposal_text(reasons: Mapping[str, list[str]]) -> str:
    """Return what heads a file with a proposed contract."""
    lines = [
        "Proposed from the records: correct it before use.",
        "Bounds and categories are left out: they must be known without looking at the records.",
        "Whether it may be handed out is for the tables' owners to say: it holds no value of them,",
        "but how many records keep what was found; where that is all but one, it says so.",
    ]
    for party, said in reasons.items():
        if said:
            lines += ["", f"party {party!r}", *(f"  {reason}" for reason in said)]
    return "\n".join(lines)


def propose_column(column: pd.Series[Any]) -> tuple[ColumnContract, str]:
    """Return what a column's part may be, and a reason if it is not its inferred kind."""
    if not column.notna().any():
        return ColumnContract(role="free text"), "has no value"
    try:
        check_can_be_written(column)
    except ColumnKindError as error:
        return ColumnContract(role="free text"), f"{error.problem}, and is left out as it stands"
    found = recognise(column)
    if is_index(column):
        return ColumnContract(role="identifier"), "the row number that a csv file kept"
    if found is not None:
        if found.role == "free text":
            return ColumnContract(role=found.role), found.what
        return ColumnContract(role=found.role, replacement="surrogate"), found.what
    try:
        kind = infer_kind(column)
    except PartyDataError:
        doubt = doubts(column) or "an identifier, or numbers read as text"
        return (
            ColumnContract(role="identifier"),
            f"different in more than half of the records: {doubt}; name a key when this is asked "
            "(on=, on the command line --on)",
        )
    values = column.dropna()
    if kind == "integer" or (kind == "continuous" and _are_whole(values)):
        n_distinct = values.nunique()
        running = n_distinct == len(values) == values.max() - values.min() + 1
        if running and n_distinct >= LEAST_SURPRISE:
            return ColumnContract(role="identifier"), "a running number"
        most = max(_MOST_LEVELS, min(len(values) // _FEW, _MOST_CODES))
        if _CODE.fullmatch(str(column.name)) and n_distinct <= most:
            return ColumnContract(kind="categorical"), "whole numbers that look like codes"
    if kind == "categorical" and column.nunique() > _MOST_LEVELS:
        reason = doubts(column) or "left out as it stands"
        return (
            ColumnContract(role="identifier"),
            f"more than {_MOST_LEVELS} different labels: {reason}",
        )
    return ColumnContract(kind=kind), ""


def _are_whole(values: pd.Series[Any]) -> bool:
    """Whether numbers are those of a csv file with gaps, where whole ones are floats."""
    numbers = values.to_numpy(np.float64)
    return np.array_equal(numbers, np.floor(numbers))


def relations_of(frame: pd.DataFrame) -> list[str]:
    """Say in words what is exact in a table without key, or nearly so, and no value but zero."""
    return _in_words(frame, discover(frame, nearly=True))


def _in_words(frame: pd.DataFrame, found: Sequence[Finding]) -> list[str]:
    codes = [
        f"column {str(label)!r}: codes, as records of neighbouring numbers are not alike"
        for label in codes_among(frame)
    ]
    return [*codes, *(str(finding) for finding in found if _is_open(finding))]


def _is_open(finding: Finding) -> bool:
    """Whether a relation names no value of a record, but for zero and what is missing."""
    level = finding.level
    return level is None or all(value is None or value == 0 for value in (level.when, level.value))
