"""From what users pass to one table per party: checks, single tables, labels."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any, Self, TypeGuard, overload

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api.types import infer_dtype, is_bool_dtype, is_numeric_dtype
from scipy.sparse import issparse
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, column_or_1d

from vflsynth.codec import as_frame
from vflsynth.exceptions import MissingKeyError, ParameterError, PartyDataError, PartyNameError
from vflsynth.frames import key_of, vertical_split
from vflsynth.frames.party_frames import (
    check_is_frame,
    check_party_frames,
    party_keys,
    with_keys_in_form,
)

LABEL_HOLDER = "label holder"
"""Name of an active party that has labels and nothing else."""

ONLY_PARTY = "party"
"""Name of the party that owns all columns of a single table, unless told otherwise."""

Labels = npt.NDArray[Any]


def are_party_frames(X: object) -> TypeGuard[Mapping[str, pd.DataFrame]]:
    """Whether X is a mapping of tables rather than one table; some sparse matrices are mappings."""
    return isinstance(X, Mapping) and not issparse(X)


def numeric_kinds(table: pd.DataFrame) -> dict[Any, str]:
    """Return the kinds of a table's columns of numbers: all continuous."""
    return {
        label: "continuous"
        for label, dtype in table.dtypes.items()
        if is_numeric_dtype(dtype) and not is_bool_dtype(dtype)
    }


def owned_columns(
    table: pd.DataFrame, party_columns: Mapping[str, Sequence[Hashable]] | None
) -> pd.DataFrame:
    """Leave out the columns of a table that no party gets, unless a party's is not there."""
    if party_columns is None:
        return table
    owned = {column for columns in party_columns.values() for column in columns}
    kept = [column for column in table.columns if column in owned]
    return table[kept] if len(kept) == len(owned) else table


def split_table(
    table: pd.DataFrame, party_columns: Mapping[str, Sequence[Hashable]] | None
) -> dict[str, pd.DataFrame]:
    """Give each party its columns of a table; rows are numbered.

    Raises PartyDataError as `vertical_split`.
    """
    table = table.reset_index(drop=True)
    return {ONLY_PARTY: table} if party_columns is None else vertical_split(table, party_columns)


def check_frames(
    frames: Mapping[str, pd.DataFrame], active: str | None, on: Any, *, private: bool = False
) -> dict[str, pd.DataFrame]:
    """Check the parties' tables, and that the active party is one of them (PartyDataError).

    If private, no single value decides whether a table is refused, or of what type a column is.
    """
    checked = check_party_frames(frames, on, allow_empty_columns=private, private=private)
    if active is not None and active not in [*checked]:
        raise PartyNameError(
            f"the active party has no table; there are tables of {', '.join(map(repr, checked))}",
            fix="correct `active`, or leave it None if the active party has labels only",
            party=active,
        )
    if active is None and LABEL_HOLDER in checked:
        raise PartyNameError(
            "this name is kept for an active party without columns",
            fix="rename the party, or name the active party in `active`",
            party=LABEL_HOLDER,
        )
    return checked


def as_labels(given: Any, what: str = "y") -> Labels:
    """Return labels in the type of each.

    Raises ParameterError, which says `what` they are, if they are no column of labels.

    Notes
    -----
    Beside text, NumPy makes text of numbers; scikit-learn makes floats of pandas's nullable types.
    """
    plain = np.asarray(given) if hasattr(given, "dtype") or hasattr(given, "dtypes") else given
    try:
        labels: Labels = column_or_1d(plain, warn=True)
    except (TypeError, ValueError):  # scikit-learn's words may show all of them
        kind = f"{type(given).__name__} of {getattr(plain, 'dtype', 'values')}"
        shape = f", shape {plain.shape}" if isinstance(plain, np.ndarray) else ""
        raise ParameterError(
            f"{what} must be one column of text, truth values or whole numbers, got a {kind}{shape}"
        ) from None
    if labels.dtype.kind == "U" and infer_dtype(own := np.array(given, object).ravel()) != "string":
        labels = own
    return labels if labels.dtype != object else pd.Series(labels).infer_objects().to_numpy()


def check_one_type(labels: Labels, what: str) -> None:
    """Check that labels are of one type, which files and JSON can hold.

    Raises ParameterError, which says `what` they are.
    """
    if labels.dtype.kind not in "OS" or infer_dtype(labels, skipna=False) == "string":
        return
    types = sorted({type(label).__name__ for label in labels.tolist()})
    if len(types) > 1:
        raise ParameterError(
            f"{what} must be labels of one type, got {' and '.join(types)}. Fix: make all of them "
            "text, or all whole numbers"
        )
    raise ParameterError(
        f"{what} must be text, truth values or whole numbers of 64 bits, got {', '.join(types)}. "
        "Fix: make all of them text, such as [str(label) for label in y]"
    )


def check_labels(
    y: Any,
    frames: Mapping[str, pd.DataFrame],
    active: str | None,
    on: Any,
    *,
    stated: bool = False,
    in_order: bool = False,
) -> tuple[Labels, pd.DataFrame]:
    """Check labels; return them with the table whose keys they belong to, row by row.

    `y` is in the order of the active party's table, or of all if they are `in_order`; else it is a
    Series whose index holds the keys, or an array where records are matched by position. `stated`:
    classes were stated, and labels may then be anything, see `Classes.of`. Raises ParameterError,
    scikit-learn's ValueError, or PartyDataError if labels and table do not belong together.
    """
    if y is None:
        raise ParameterError("requires y to be passed, but the target y is None")
    index = y.index if isinstance(y, (pd.Series, pd.DataFrame)) else None
    labels = as_labels(y)
    if not stated:
        if pd.isna(labels).any():
            raise ParameterError("y contains NaN; every record needs a label, drop those without")
        check_one_type(labels, "y")
        assert_all_finite(labels, input_name="y")
        check_classification_targets(labels)
    followed = next(iter(frames), None) if in_order and active is None else active
    if followed is not None and len(labels) != (n_rows := len(frames[followed])):
        raise PartyDataError(
            f"there are {len(labels)} labels for {n_rows} rows",
            fix="pass one label for each row of the table, in its order",
            party=followed,
        )
    if active is not None:
        table = frames[active]
        keys = party_keys(table, key_of(on, active))
        if index is not None and not index.equals(table.index) and not index.equals(keys):
            raise PartyDataError(
                "the index of y is neither the table's index nor its keys",
                fix="pass y in the row order of the active party's table, as an array or with its "
                "index",
                party=active,
            )
        return labels, table
    if on is not None:
        if index is None:
            raise PartyDataError(
                "labels without keys cannot be matched with the parties' records",
                fix=f"pass y as a Series whose index holds the values of {on!r}, or name in "
                "`active` the party whose rows the labels follow",
            )
        table = pd.DataFrame({key_of(on, LABEL_HOLDER): index})
        return labels, with_keys_in_form(table, on, LABEL_HOLDER)
    return labels, pd.DataFrame(index=pd.RangeIndex(len(labels)) if index is None else index)


def rows_to_predict(
    frames: Mapping[str, pd.DataFrame | None],
    parties: Sequence[str],
    absent: str | Collection[str],
    active: str | None,
    on: Any,
) -> dict[str, pd.DataFrame]:
    """Put the rows of the parties that are there into one order, without the key column.

    Rows are in the order of the active party's table, or of the first one. Raises PartyDataError if
    a party is unknown, missing without being named absent, or lacks a record; or a table is no
    DataFrame or lacks the key column.
    """
    absent = {absent} if isinstance(absent, str) else absent
    for name in (*absent, *frames):
        if name not in parties:
            raise PartyNameError(
                f"the classifier knows no such party; it knows {', '.join(map(repr, parties))}",
                fix="correct the name",
                party=name,
            )
    there = {
        name: frame
        for name in parties
        if name not in absent and (frame := frames.get(name)) is not None
    }
    for name in parties:
        if name not in there and name not in absent and name not in frames:
            raise PartyDataError(
                "the party has no table to predict from",
                fix="pass its table, or name it in `absent`",
                party=name,
            )
    if not there:
        raise PartyDataError("every party is absent", fix="pass the table of at least one party")
    for name, frame in there.items():
        frame, key = as_frame(frame, name), key_of(on, name)
        check_is_frame(frame, name)
        if key is not None and key not in frame.columns:
            in_index = key in frame.index.names
            raise MissingKeyError(
                "the key column, by which the classifier was fitted, is absent; "
                + ("it is the index" if in_index else f"the table has {list(frame.columns)[:10]}"),
                fix="call reset_index()" if in_index else "add the key column",
                party=name,
                column=key,
            )
        there[name] = with_keys_in_form(frame, on, name)
    base = active if active in there else next(iter(there))
    keys = party_keys(there[base], key_of(on, base))
    ordered = {}
    for name, frame in there.items():
        own = party_keys(frame, key := key_of(on, name))
        if not own.equals(keys):
            if not own.is_unique:
                raise PartyDataError(
                    "keys occur more than once", fix="drop the doubles", party=name, column=key
                )
            found = own.get_indexer(keys)
            if (found < 0).any():
                raise PartyDataError(
                    f"{int((found < 0).sum())} of the {len(keys)} records of party {base!r} are "
                    "not in this table",
                    fix="pass the same records for every party, or name the party in `absent`",
                    party=name,
                )
            frame = frame.iloc[found]
        ordered[name] = frame if key is None else frame.drop(columns=[key])
    return ordered


class AlignedFrames(Mapping[str, pd.DataFrame]):
    """Parties' tables whose rows correspond, of which rows can be taken as of an array.

    Parameters
    ----------
    frames : mapping of str to DataFrame
        As many rows each, in the same order, without a key column.

    Attributes
    ----------
    shape : tuple of int
        Records, and columns of all parties.

    Raises
    ------
    PartyDataError
        If the tables are not as long as each other, or there is none.

    Notes
    -----
    It exists where one process has all tables: to choose parameters before a federated run, and to
    measure. Across processes nobody has such an object.
    """

    def __init__(self, frames: Mapping[str, pd.DataFrame]) -> None:
        self._frames = {name: frame.reset_index(drop=True) for name, frame in frames.items()}
        lengths = {name: len(frame) for name, frame in self._frames.items()}
        if len(set(lengths.values())) != 1:
            raise PartyDataError(
                f"tables whose rows correspond are equally long, these have {lengths} rows",
                fix="match tables with keys by vflsynth.splitdefense.inputs",
            )
        n_columns = sum(frame.shape[1] for frame in self._frames.values())
        self.shape = next(iter(lengths.values())), n_columns

    @overload
    def __getitem__(self, key: str) -> pd.DataFrame: ...
    @overload
    def __getitem__(self, key: Any) -> Self: ...
    def __getitem__(self, key: Any) -> pd.DataFrame | Self:
        """Return a party's table by its name, or all tables with some of the rows."""
        if isinstance(key, str):
            return self._frames[key]
        asked = key[0] if isinstance(key, tuple) else key  # scikit-learn asks for X[rows, ...]
        rows = np.atleast_1d(np.arange(self.shape[0])[asked])
        return type(self)({name: frame.iloc[rows] for name, frame in self._frames.items()})

    def __contains__(self, name: object) -> bool:
        return name in self._frames

    def __iter__(self) -> Iterator[str]:
        return iter(self._frames)

    def __len__(self) -> int:
        """Return the number of parties, as of any mapping; records are in `shape`."""
        return len(self._frames)


def aligned(
    frames: Mapping[str, pd.DataFrame], y: Any, on: Any = None, *, active: str | None = None
) -> tuple[AlignedFrames, Labels]:
    """Match parties' tables and labels once, so that scikit-learn can split the records.

    Parameters
    ----------
    frames : mapping of str to DataFrame
        One table per party.
    y : array-like or Series
        As of `BaseSplitClassifier.fit`.
    on : hashable, optional
        Key column of every table. Default: the index.
    active : str, optional
        Name of the party whose rows `y` follows. Default: a party that has labels only.

    Returns
    -------
    X : AlignedFrames
        Records that all parties have, in the order of the labels.
    y : ndarray, shape (record,)

    Raises
    ------
    PartyDataError
        If tables or labels cannot be matched.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn.model_selection import cross_val_score
    >>> from vflsynth.splitdefense import SplitNNClassifier, aligned
    >>> bank = pd.DataFrame({"id": range(60), "income": [i % 7 for i in range(60)]})
    >>> shop = pd.DataFrame({"id": range(59, -1, -1), "basket": [i % 5 for i in range(60)]})
    >>> y = bank["income"] > 3
    >>> X, y = aligned({"bank": bank, "shop": shop}, y, on="id", active="bank")
    >>> len(cross_val_score(SplitNNClassifier(active="bank", epochs=2), X, y, cv=3))
    3
    """
    checked = check_frames(frames, active, on)
    labels, table = check_labels(y, checked, active, on)
    keys = party_keys(table, key_of(on, active or LABEL_HOLDER))
    own = {name: party_keys(frame, key_of(on, name)) for name, frame in checked.items()}
    for name, found in (("the labels", keys), *own.items()):
        if not found.is_unique:
            raise PartyDataError(f"keys of {name} occur more than once", fix="drop the doubles")
    common = np.logical_and.reduce([keys.isin(found) for found in own.values()])
    if not common.any():
        raise PartyDataError(
            "the parties have no record in common", fix="check that the keys are of the same type"
        )
    matched = {
        name: frame.iloc[own[name].get_indexer(keys[common])].drop(
            columns=[] if key_of(on, name) is None else [key_of(on, name)]
        )
        for name, frame in checked.items()
    }
    return AlignedFrames(matched), labels[common]
