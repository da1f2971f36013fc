"""What a set of party tables must satisfy before anything is learned from it.

A *party frame* is one party's `pandas.DataFrame`: its own columns about its own records.
Parties are named, in a mapping ``{name: frame}``; names, not positions, are their identity.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from vflsynth.codec import as_frame
from vflsynth.exceptions import (
    ColumnNameError,
    EmptyColumnError,
    KeyTypeError,
    MissingKeyError,
    NoColumnsError,
    PartyDataError,
    PartyNameError,
    SharedColumnError,
    TooFewRecordsError,
    did_you_mean,
)
from vflsynth.frames.keys import (
    STEPS,
    AlignmentReport,
    Difference,
    MatchOn,
    align_keys,
    check_key_types,
    comparable_types,
    compared,
    in_form,
    is_text,
    key_of,
    positions,
    warn_of_keys,
)

PartyFrames = Mapping[str, pd.DataFrame]

# Each party's half of a model is saved in a folder of its name, on any operating system.
_NOT_IN_FOLDER_NAMES = re.compile(r'[<>:"/\\|?*\x00-\x1f\x7f\ud800-\udfff]')
_DEVICES = re.compile(r"(con|prn|aux|nul|(com|lpt)[1-9])(\..*)?", re.I)  # of Windows
_MAX_NAME_BYTES = 100
# Who else sends messages, and what the history calls the discriminator of nobody in particular.
_RESERVED_NAMES = {"server", "shared"}
_NO_COLUMNS = "add the party's columns, or leave the party out"


def check_party_frames(
    party_frames: PartyFrames,
    on: Any = None,
    *,
    allow_empty_columns: bool = False,
    private: bool = False,
) -> dict[str, pd.DataFrame]:
    """Check the parties' tables, each on its own and then against each other.

    Parameters
    ----------
    party_frames : mapping of str to table
        One table per party, at least one: a pandas or Polars DataFrame, a table of Arrow. Names
        must be usable as folder names.
    on : hashable, mapping of str to hashable, or MatchOn, optional
        The column that identifies a record: one name for all tables, or that of each party's; with
        the form that keys are compared in, see `vflsynth.frames.keys`. Default: the index.
    allow_empty_columns : bool, default=False
        Let columns without any value pass. For private fits: a single record decides whether there
        is a value, and an error would tell it without noise.
    private : bool, default=False
        Nothing about types is looked for in values, and nothing said of how keys are written.

    Returns
    -------
    dict of str to pandas.DataFrame
        The tables in the order given, in the types of `vflsynth.codec`, with keys in the
        form that was asked for; those of pandas that have all this are not copied.

    Raises
    ------
    PartyDataError
        If there is no party, or a party's value is not a DataFrame.
    PartyNameError
        If a party's name is not text or cannot name a folder.
    ColumnNameError
        If a column name is repeated inside a table, or is neither text nor an integer.
    NoColumnsError, TooFewRecordsError, EmptyColumnError
        If a table has no column beside the key, no row, or, unless allowed, a column without any
        value.
    MissingKeyError
        If the key column is absent or has missing values, or there is nothing to match rows by.
    KeyTypeError
        If the keys of two parties cannot be compared.
    SharedColumnError
        If two parties own a column of the same name (VFLGAN, assumption 2).

    Notes
    -----
    Whether the keys match is checked by `vflsynth.frames.keys.align_keys`.
    """
    if not isinstance(party_frames, Mapping) or not party_frames:
        raise PartyDataError(
            f"expected a mapping of party names to DataFrames, got {_describe(party_frames)}",
            fix="pass for example {'lab': lab_frame, 'clinic': clinic_frame}",
        )
    on = MatchOn.reading(on)
    _check_party_names(party_frames)
    if isinstance(on.columns, Mapping) and (extra := {*on.columns} ^ {*party_frames}):
        raise MissingKeyError(
            f"on= (--on) names the key columns of {', '.join(map(repr, on.columns))}, and there "
            f"are tables of {', '.join(map(repr, party_frames))}",
            fix="name one column for each table",
            party=min(extra, key=str),
        )
    frames = {}
    for party, table in party_frames.items():
        frame = as_frame(table, party, by_value=not private)
        check_table(frame, party)
        check_keys(party, frame, key := on.of(party))
        if key is not None and len(frame.columns) == 1:
            raise NoColumnsError(
                f"the table has no columns beside the key {key!r}", fix=_NO_COLUMNS, party=party
            )
        if not allow_empty_columns:
            check_no_empty_column(party, frame)
        frames[party] = with_keys_in_form(frame, on, party)
    check_owners(frames, on)
    keys = {party: party_keys(frame, on.of(party)) for party, frame in frames.items()}
    check_key_types(keys)
    if not private and len(keys) > 1:
        for party, own in keys.items():
            warn_of_keys(own, party)
    return frames


def with_keys_in_form(frame: pd.DataFrame, on: Any, party: str) -> pd.DataFrame:
    """Return a party's table, or a changed copy, with its keys in the form that `on` asks for."""
    asked = MatchOn.reading(on)
    column = asked.of(party)
    keys = party_keys(frame, column)
    if (written := in_form(keys, asked.form)) is keys:
        return frame
    if column is None:
        return frame.set_axis(written)
    found = frame.copy(deep=False)
    found[column] = written.array
    return found


def align_party_frames(
    party_frames: PartyFrames, on: Any = None, *, allow_empty_columns: bool = False
) -> tuple[dict[str, pd.DataFrame], pd.Index, AlignmentReport]:
    """Check the parties' tables, match their records and put them into one common order.

    Parameters
    ----------
    party_frames, on, allow_empty_columns
        As in `check_party_frames`.

    Returns
    -------
    frames : dict of str to pandas.DataFrame
        Row ``i`` of every frame is the same record. Without the key column, which is never
        modelled; the index is the default one.
    keys : pandas.Index
        The matched keys, in the same order.
    report : AlignmentReport

    Raises
    ------
    VFLSynthError
        Those of `check_party_frames` and `vflsynth.frames.keys.align_keys`, and
        `EmptyColumnError` if a column has values, but none in a matched record.

    Examples
    --------
    >>> lab = pd.DataFrame({"id": [3, 1, 2], "glucose": [5.1, 4.9, 7.2]})
    >>> clinic = pd.DataFrame({"id": [2, 3, 4], "age": [61, 40, 33]})
    >>> frames, keys, report = align_party_frames({"lab": lab, "clinic": clinic}, on="id")
    >>> pd.concat(frames, axis="columns")
          lab clinic
      glucose    age
    0     7.2     61
    1     5.1     40
    >>> print(report)
    2 records matched by key column 'id'
      lab: 3 rows, 2 matched, 1 dropped, 0 duplicated
      clinic: 3 rows, 2 matched, 1 dropped, 0 duplicated
    """
    frames = check_party_frames(party_frames, on, allow_empty_columns=allow_empty_columns)
    on = MatchOn.reading(on)
    keys_by_party = {party: party_keys(frame, on.of(party)) for party, frame in frames.items()}
    common, report = align_keys(keys_by_party, matched_by=str(on))
    report = with_lost(report, frames, on, common)
    aligned = {}
    for party, frame in frames.items():
        own = frame if on.of(party) is None else frame.drop(columns=[on.of(party)])
        aligned[party] = own.iloc[positions(keys_by_party[party], common)].reset_index(drop=True)
        if not allow_empty_columns:
            check_no_empty_column(party, aligned[party], among="matched records")
    return aligned, common, report


def party_keys(frame: pd.DataFrame, on: Hashable = None) -> pd.Index:
    """Return the keys of a party's records: the column ``on``, or the index."""
    return frame.index if on is None else pd.Index(frame[on])


def with_lost(
    report: AlignmentReport, frames: PartyFrames, on: Any, common: pd.Index
) -> AlignmentReport:
    """Add to a report how the dropped records of checked tables differ from their matched ones."""
    return replace(
        report, lost={party: lost_of(f, key_of(on, party), common) for party, f in frames.items()}
    )


def is_matched(frame: pd.DataFrame, on: Hashable, common: pd.Index) -> npt.NDArray[np.bool_]:
    """Say which rows of a party's own table are of common records."""
    keys, matched = party_keys(frame, on), np.zeros(len(frame), np.bool_)
    matched[positions(keys, common)] = True
    return matched


def without_labels_of_others(matched: pd.DataFrame, whole: pd.DataFrame) -> pd.DataFrame:
    """Return matched rows with types that name no label which the other rows of a table alone have.

    Categories that no row has are part of the type, and stay, unless there are such labels: these
    would be what is missing of a public list.
    """
    made = matched.copy(deep=False)
    for label in made.columns[made.dtypes == "category"] if len(matched) < len(whole) else ():
        if set(whole[label].dropna().unique()) - set(made[label].dropna().unique()):
            made[label] = made[label].cat.remove_unused_categories()
    return made


_WORST, _LEVEL = 3, 0.01


def lost_of(frame: pd.DataFrame, on: Hashable, common: pd.Index) -> tuple[Difference, ...]:
    """Say how a party's own dropped records differ from its matched ones; it needs no other's.

    The three columns are returned that differ most, of those that differ by more than chance at 1
    in 100.
    """
    keys, matched = party_keys(frame, on), is_matched(frame, on, common)
    if matched.all() or not matched.any():
        return ()
    plain = frame.reset_index(drop=True)
    columns = {str(label): plain[label] for label in plain.columns if label != on}
    columns["how keys are written"] = pd.Series([_form_of(key) for key in keys])
    found = []
    for label, column in columns.items():
        distance, p_value = compared(column, matched)
        if p_value * len(columns) < _LEVEL:
            found.append(Difference(label, distance, p_value * len(columns)))
    return tuple(sorted(found, key=lambda own: -own.distance)[:_WORST])


def _form_of(key: Any) -> str:
    """Say in which letters a key is written."""
    text = str(key)
    letters = "no letters" if text.upper() == text.lower() else "letters"
    return letters if text.isascii() else "letters beyond ASCII"


def check_no_empty_column(party: str, frame: pd.DataFrame, among: str = "rows") -> None:
    """Check that every column has at least one value, or raise EmptyColumnError."""
    if empty := [column for column, count in frame.count().items() if count == 0]:
        more = f"; so have {len(empty) - 1} other columns" if len(empty) > 1 else ""
        raise EmptyColumnError(
            f"all values are missing in the {len(frame)} {among}{more}",
            fix="drop the column, there is nothing to learn from it",
            party=party,
            column=empty[0],
        )


def vertical_split(
    frame: pd.DataFrame, parties: Mapping[str, Sequence[Hashable]], key_name: Hashable = None
) -> dict[str, pd.DataFrame]:
    """Split one table by columns, to simulate parties.

    Parameters
    ----------
    frame : pandas.DataFrame
        The whole table.
    parties : mapping of str to sequence
        The columns of each party. Columns that no party gets are left out.
    key_name : hashable, optional
        Give every party this key column: the table's own column of that name, or its index where
        it has none. Default: no key column, parties are matched by the index.

    Returns
    -------
    dict of str to pandas.DataFrame
        Copies, in the table's row order.

    Raises
    ------
    ColumnNameError
        If a party is given a column that the table does not have.
    SharedColumnError
        If two parties are given the same column.

    Examples
    --------
    >>> frame = pd.DataFrame({"glucose": [5.1, 7.2], "age": [40, 61]}, index=["p1", "p2"])
    >>> frames = vertical_split(frame, {"lab": ["glucose"], "clinic": ["age"]}, key_name="id")
    >>> frames["clinic"]
        id  age
    p1  p1   40
    p2  p2   61
    """
    frames = {}
    for party, columns in parties.items():
        if unknown := [column for column in columns if column not in frame.columns]:
            raise ColumnNameError(
                f"the table has no such column; it has {frame.columns.tolist()}",
                fix="correct the name",
                party=party,
                column=unknown[0],
            )
        frames[party] = frame.loc[:, [column for column in columns if column != key_name]].copy()
        if key_name is not None:
            keys = frame[key_name] if key_name in frame.columns else frame.index.to_series()
            frames[party].insert(0, key_name, keys)
    check_owners(frames, key_name)
    return frames


def _check_party_names(party_frames: PartyFrames) -> None:
    seen: dict[str, str] = {}
    for party in party_frames:
        if not isinstance(party, str):
            raise PartyNameError(
                f"a party is named {party!r}, which is {_describe(party)}",
                fix="name every party with a text",
            )
        if (
            not party.strip(" .")
            or party != party.strip(" ")
            or party.endswith(".")
            or _NOT_IN_FOLDER_NAMES.search(party)
            or _DEVICES.fullmatch(party)
            or len(party.encode()) > _MAX_NAME_BYTES
        ):
            raise PartyNameError(
                "this name cannot be used as the name of a folder on every system",
                fix="use letters, digits, blanks inside, '-' and '_', at most 100 bytes",
                party=party,
            )
        # File systems that ignore case, or normalise Unicode, would put both into one folder.
        folder = unicodedata.normalize("NFC", party).casefold()
        if folder in _RESERVED_NAMES:
            raise PartyNameError(
                "this name is taken by the protocol", fix="rename the party", party=party
            )
        if folder in seen:
            raise PartyNameError(
                f"differs from party {seen[folder]!r} only in upper and lower case",
                fix="rename one of them",
                party=party,
            )
        seen[folder] = party


def check_is_frame(frame: object, party: str | None) -> None:
    """Check that something is a DataFrame, or raise PartyDataError."""
    if not isinstance(frame, pd.DataFrame):
        raise PartyDataError(
            f"expected a pandas DataFrame, got {_describe(frame)}",
            fix="convert it with pandas.DataFrame(...); vflsynth.frames.read_table reads a file",
            party=party,
        )


def check_table(frame: Any, party: str | None) -> None:
    """Check that something is a table with rows and columns, whose names are usable.

    Raises PartyDataError, ColumnNameError, TooFewRecordsError or NoColumnsError.
    """
    check_is_frame(frame, party)
    if not frame.columns.is_unique:
        repeated = frame.columns[frame.columns.duplicated()]
        raise ColumnNameError(
            f"the table has {int((frame.columns == repeated[0]).sum())} columns of this name",
            fix="rename or drop all but one",
            party=party,
            column=repeated[0],
        )
    labels: list[Any] = frame.columns.tolist()
    for column in labels:
        if not isinstance(column, str | int) or isinstance(column, bool):
            raise ColumnNameError(
                f"this column name is {_describe(column)}",
                fix="name columns with text or integers (frame.columns = [...])",
                party=party,
                column=column,
            )
    if not len(frame):
        raise TooFewRecordsError("the table has no rows", fix="pass a table with rows", party=party)
    if not labels:
        raise NoColumnsError("the table has no columns", fix=_NO_COLUMNS, party=party)


def check_keys(party: str, frame: pd.DataFrame, on: Hashable) -> None:
    """Check that every row has a key (MissingKeyError) that is stored exactly (KeyTypeError)."""
    if on is not None and on not in frame.columns:
        in_index = on in frame.index.names
        raise MissingKeyError(
            f"the key column is absent{did_you_mean(on, frame.columns)}; "
            + ("it is the index" if in_index else f"the table has {frame.columns.tolist()}"),
            fix="call reset_index(), or leave on= (--on) out where all tables have it as index"
            if in_index
            else "add it, or name the right one (on=, --on)",
            party=party,
            column=on,
        )
    keys = party_keys(frame, on)
    if isinstance(keys, pd.MultiIndex):
        raise MissingKeyError(
            f"the index has {keys.nlevels} levels, records need a single key",
            fix="make one column of the levels and name it with on=...",
            party=party,
        )
    missing = np.flatnonzero(keys.isna() | (keys.isin(_blank_among(keys))))
    if len(missing):
        raise MissingKeyError(
            f"{len(missing)} of {len(frame)} keys are missing or blank, in the row positions "
            f"{missing[:5].tolist()}",
            fix="fill them in or drop these rows",
            party=party,
            column="index" if on is None else on,
        )
    if pd.api.types.is_float_dtype((numbers := comparable_types(keys)).dtype):
        values = numbers.to_numpy()
        if n_met := int((np.abs(values) >= (exact := 2 / np.finfo(values.dtype).eps)).sum()):
            raise KeyTypeError(
                f"{n_met} of {len(frame)} keys are floating-point numbers ({numbers.dtype}) of "
                f"{exact:.0f} or more, where different people's whole numbers are one",
                fix="read them as whole numbers or text where they come from: a conversion now "
                "does not tell them apart again",
                party=party,
                column="index" if on is None else on,
            )


def _blank_among(keys: pd.Index) -> list[Any]:
    """Return keys that are text and name nobody."""
    if not is_text(keys):
        return []
    stripped = STEPS["strip"]  # a form may leave nothing of a key
    return [key for key in keys.unique() if isinstance(key, str) and not stripped(key)]


def check_owners(party_frames: PartyFrames, on: Any) -> None:
    """Check that every column but the keys is one party's alone, or raise SharedColumnError."""
    owner: dict[Hashable, str] = {}
    keys = {party: key_of(on, party) for party in party_frames}
    for party, frame in party_frames.items():
        for column in frame.columns:
            if column == keys[party]:
                continue
            if column is not None and column in keys.values():
                raise SharedColumnError(
                    "another party's key column has this name",
                    fix="rename one of them",
                    party=party,
                    column=column,
                )
            if column in owner:
                raise SharedColumnError(
                    f"party {owner[column]!r} owns a column of the same name",
                    fix="rename one of them or drop one; if it is the key, name it (on=, --on)",
                    party=party,
                    column=column,
                )
            owner[column] = party


def _describe(value: object) -> str:
    if isinstance(value, Mapping) and not value:
        return "an empty mapping"
    return f"a {type(value).__name__}"
