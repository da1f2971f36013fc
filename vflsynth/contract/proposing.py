"""A contract filled in from a table, for a person to correct.

What is proposed holds in all records of one party, which is no reason that it must hold: every
proposal comes with its support. It reads the records and pays for nothing, so it is not for private
fits.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pandas as pd

from vflsynth.columns import infer_kind
from vflsynth.columns.arrays import numpy_dtype
from vflsynth.columns.recognising import is_index, is_known_to_others, recognise
from vflsynth.contract.contract import ColumnContract, Contract, PartyContract
from vflsynth.contract.expressions import plain_values
from vflsynth.contract.rules import Check, Determines, FixedCombinations, Rule
from vflsynth.exceptions import PartyDataError
from vflsynth.frames import key_of
from vflsynth.frames.logical import as_frame
from vflsynth.frames.written import doubts

_LEAST_SURPRISE = 20.0
"""Records that would break a rule if its columns were independent, at least."""

_MOST_COLUMNS, _MOST_SUMS = 60, 16
"""Columns whose pairs, and whose triples, are looked at."""

_MOST_LEVELS = 256
_CODE = re.compile(
    r"(.*[ _-])?(zip|post(al)?|plz|fips|icd\d*|naics|isic|code|id)([ _-].*)?", re.IGNORECASE
)


@dataclass(frozen=True)
class Proposal:
    """A rule, and why it is proposed.

    Parameters
    ----------
    rule : Rule
    n_records : int
        Records that it could be looked at in; all of them keep it.
    n_surprising : float
        How many of them would break it if the columns were independent.
    """

    rule: Rule
    n_records: int
    n_surprising: float

    def __str__(self) -> str:
        return (
            f"{self.rule.title}: holds in all {self.n_records:,} records that have values; if the "
            f"columns were independent {self.n_surprising:,.0f} would break it"
        )


def propose(
    frames: Mapping[str, pd.DataFrame], on: Any = None
) -> tuple[Contract, dict[str, list[str]]]:
    """Fill a contract in.

    Parameters
    ----------
    frames : mapping of party name to DataFrame
        No party's columns are compared with another's.
    on : column label, optional
        Key column.

    Returns
    -------
    contract : Contract
    reasons : dict of party name to list of str
        What to look at, in words, without any value of a table.
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
        modelled = [label for label, column in columns.items() if column.is_modelled]
        found = propose_rules(own[modelled])
        said += [str(proposal) for proposal in found]
        parts[name] = PartyContract(columns, [proposal.rule for proposal in found])
        reasons[name] = said
    return Contract(parts), reasons


def proposal_text(reasons: Mapping[str, list[str]]) -> str:
    """Return what heads a file with a proposed contract."""
    lines = [
        "Proposed from the records: correct it before use.",
        "Bounds and categories are left out: they must be known without looking at the records.",
        "Whether it may be handed out is for the tables' owners to say: it holds no value of them.",
    ]
    for party, said in reasons.items():
        lines += ["", f"party {party!r}", *(f"  {reason}" for reason in said)]
    return "\n".join(lines)


def propose_column(column: pd.Series[Any]) -> tuple[ColumnContract, str]:
    """Return what a column's part may be, and a reason if it is not its inferred kind."""
    if not column.notna().any():
        return ColumnContract(role="free text"), "has no value"
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
    if kind == "integer" and len(values := column.dropna()):
        n_distinct = values.nunique()
        running = n_distinct == len(values) == values.max() - values.min() + 1
        if running and n_distinct >= _LEAST_SURPRISE:
            return ColumnContract(role="identifier"), "a running number"
        if _CODE.fullmatch(str(column.name)) and n_distinct <= _MOST_LEVELS:
            return ColumnContract(kind="categorical"), "whole numbers that look like codes"
    if kind == "categorical" and column.nunique() > _MOST_LEVELS:
        reason = doubts(column) or "left out as it stands"
        return (
            ColumnContract(role="identifier"),
            f"more than {_MOST_LEVELS} different labels: {reason}",
        )
    return ColumnContract(kind=kind), ""


def propose_rules(frame: pd.DataFrame) -> list[Proposal]:
    """Find rules that hold in all records of a table and would not hold by chance.

    Parameters
    ----------
    frame : DataFrame, shape (record, column)

    Returns
    -------
    list of Proposal
        Sums, inequalities (without those that follow from others), groups of flags of which one is
        set, and columns that determine others.
    """
    labels = list(frame.columns)[:_MOST_COLUMNS]
    if len(frame) < _LEAST_SURPRISE:
        return []
    groups = list(_one_hot(frame, labels))
    flags = {label for group in groups for label in group.rule.columns}
    rest = [label for label in labels if label not in flags]
    numbers = _comparable(frame, rest)
    return [
        *_sums(frame, numbers),
        *_inequalities(frame, numbers),
        *groups,
        *_dependencies(frame, rest),
    ]


def _comparable(frame: pd.DataFrame, labels: Sequence[Hashable]) -> dict[Hashable, str]:
    """Columns of numbers and times with more than two values, and which of them compare."""
    found = {}
    for label in labels:
        dtype = frame[label].dtype
        if isinstance(dtype, pd.CategoricalDtype) or pd.api.types.is_string_dtype(dtype):
            continue
        kind = numpy_dtype(dtype).kind
        if kind in "iufmM" and frame[label].nunique() > 2:
            found[label] = "number" if kind in "iuf" else str(dtype)
    return found


def _inequalities(frame: pd.DataFrame, numbers: Mapping[Hashable, str]) -> list[Proposal]:
    found: dict[tuple[Hashable, Hashable], Proposal] = {}
    for low, high in permutations(numbers, 2):
        if numbers[low] != numbers[high]:
            continue
        both = frame[[low, high]].dropna()
        one, other = plain_values(both[low]), plain_values(both[high])
        if not len(both) or (one > other).any() or (one == other).all():
            continue
        # Records of two independent columns that would be out of order.
        below = np.searchsorted(np.sort(other), one, side="left").mean()
        if below >= _LEAST_SURPRISE:
            rule = Check(f"{_name(low)} <= {_name(high)}")
            found[low, high] = Proposal(rule, len(both), float(below))
    return [
        proposal
        for (low, high), proposal in found.items()
        if not any((low, m) in found and (m, high) in found for m in numbers)
    ]


def _sums(frame: pd.DataFrame, numbers: Mapping[Hashable, str]) -> Iterator[Proposal]:
    """``total == part + part``."""
    some = [label for label in numbers if numbers[label] == "number"][:_MOST_SUMS]
    values = {label: frame[label].to_numpy(np.float64, na_value=np.nan) for label in some}
    for total in some:
        for one, other in combinations([label for label in some if label != total], 2):
            whole, first, second = values[total], values[one], values[other]
            known = np.isfinite(whole) & np.isfinite(first) & np.isfinite(second)
            n = int(known.sum())
            if n < _LEAST_SURPRISE or not np.any(first[known]) or not np.any(second[known]):
                continue
            if np.allclose(whole[known], first[known] + second[known], rtol=1e-9, atol=1e-12):
                rule = Check(f"{_name(total)} == {_name(one)} + {_name(other)}")
                yield Proposal(rule, n, float(n))


def _one_hot(frame: pd.DataFrame, labels: Sequence[Hashable]) -> Iterator[Proposal]:
    """Find groups of flags of which exactly one is set."""
    flags = {}
    for label in labels:
        column = frame[label]
        numeric = pd.api.types.is_bool_dtype(column.dtype) or pd.api.types.is_numeric_dtype(column)
        if (
            numeric
            and not column.isna().any()
            and column.isin([0, 1]).all()
            and column.nunique() > 1
        ):
            flags[label] = column.to_numpy(dtype=np.int64)
    free = list(flags)
    while free:
        group = [free.pop(0)]
        total = flags[group[0]].copy()
        for label in list(free):
            if not (total & flags[label]).any():
                group.append(label)
                total += flags[label]
        if len(group) > 2 and (total == 1).all():
            free = [label for label in free if label not in group]
            shares = np.array([flags[label].mean() for label in group])
            odds = shares / (1 - shares)
            by_chance = float(np.prod(1 - shares) * odds.sum())  # exactly one of independent flags
            surprise = len(frame) * (1 - by_chance)
            yield Proposal(FixedCombinations(tuple(group)), len(frame), surprise)


def _dependencies(frame: pd.DataFrame, labels: Sequence[Hashable]) -> Iterator[Proposal]:
    """Columns of labels that determine others; both ways at once are fixed combinations."""
    codes: dict[Hashable, Any] = {}
    for label in labels:
        try:
            found, values = pd.factorize(frame[label])
        except TypeError:  # lists and the like
            continue
        if 2 < len(values) <= len(frame) / 5 and (found >= 0).all():
            codes[label] = found
    determines = {
        pair: surprise
        for pair in permutations(codes, 2)
        if (surprise := _surprise(codes[pair[0]], codes[pair[1]])) >= _LEAST_SURPRISE
    }
    for (by, column), surprise in determines.items():
        if (column, by) not in determines:
            yield Proposal(Determines((by,), column), len(frame), surprise)
        elif labels.index(by) < labels.index(column):
            yield Proposal(FixedCombinations((by, column)), len(frame), surprise)


def _surprise(by: Any, column: Any) -> float:
    """Count records that would break a dependency by chance; 0 if one of them does break it."""
    n_by, n_column = int(by.max()) + 1, int(column.max()) + 1
    if n_column > n_by or len(np.unique(by * np.int64(n_column) + column)) > n_by:
        return 0.0
    repeated = len(by) - n_by  # the first record of each value can break nothing
    shares = np.bincount(column) / len(column)
    return float(repeated * (1 - shares.max()))


def _name(label: Hashable) -> str:
    """Write a column as an expression does."""
    text = str(label)
    plain = isinstance(label, str) and text.isidentifier() and not keyword.iskeyword(text)
    return text if plain else f"col({label!r})"
