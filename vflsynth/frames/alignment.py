"""Matching records by their keys: the one place where two parties' keys meet.

A party shows its keys, nothing else (a :class:`pandas.Index`), and learns which of them every
party has. It then reorders its own rows on its own, with :func:`positions`. Replacing
:func:`intersect` by a private set intersection therefore changes nothing around it.

The common order is that of the sorted keys, so that no party's row order shows in it.

Who was lost: a party compares its own unmatched records with its own matched ones. Nothing of it
leaves the party, and under privacy it is not computed.
"""

from __future__ import annotations

import hashlib
import html
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from vflsynth.exceptions import (
    DuplicateKeyError,
    KeyTypeError,
    MissingKeyError,
    NoOverlapError,
    ProtocolError,
)
from vflsynth.frames.keys import better_form, comparable_types, how_to_agree

_N_EXAMPLES = 3


@dataclass(frozen=True)
class AlignmentReport:
    """What matching the parties' records kept and dropped: never a key.

    Attributes
    ----------
    matched_by : str
        ``"key column 'patient_id'"``, ``"index"``, ``"order"`` if rows are known to correspond, or
        ``"position"`` where every party has a plain ``RangeIndex`` of the same length and rows were
        taken to correspond one to one.
    n_matched : int
        Records that every party has.
    n_rows : dict of str to int
        Rows in each party's table.
    n_duplicated : dict of str to int
        Rows of each party that share their key with another of its rows (an error if not 0).
    most_dummies : int
        At most so many of the matched records are nobody's: whoever wrote this must not know how
        many are common.
    lost : dict of str to tuple of Difference
        How each party's dropped records differ from its matched ones: at most the three worst
        columns. In one process and without privacy only, and never saved; across processes each
        party is told of its own.
    better : (str, int) or None
        A form of keys in which more of them match, and how many; likewise.
    n_drawn : int or None
        So many of the matched records were drawn to learn from, see `vflsynth.read_records`; None
        is all.

    Examples
    --------
    >>> print(AlignmentReport("index", 90, {"lab": 100, "clinic": 95}, {"lab": 0, "clinic": 0}))
    90 records matched by index
      lab: 100 rows, 90 matched, 10 dropped, 0 duplicated
      clinic: 95 rows, 90 matched, 5 dropped, 0 duplicated
    """

    matched_by: str
    n_matched: int
    n_rows: dict[str, int]
    n_duplicated: dict[str, int]
    most_dummies: int = 0
    lost: dict[str, tuple[Difference, ...]] = field(default_factory=dict, compare=False)
    better: tuple[str, int] | None = field(default=None, compare=False)
    n_drawn: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the counts, JSON-safe: what may be saved."""
        return {k: v for k, v in asdict(self).items() if k not in ("lost", "better")}

    @property
    def n_used(self) -> int:
        """Records that were learned from."""
        return self.n_matched if self.n_drawn is None else self.n_drawn

    @property
    def n_dropped(self) -> dict[str, int]:
        """Rows of each party that some other party does not have."""
        return {party: n_rows - self.n_matched for party, n_rows in self.n_rows.items()}

    def to_frame(self) -> pd.DataFrame:
        """Return one row per party with the columns rows, matched, dropped and duplicated."""
        parties = list(self.n_rows)
        return pd.DataFrame(
            {
                "rows": [self.n_rows[party] for party in parties],
                "matched": [self.n_matched] * len(parties),
                "dropped": [self.n_dropped[party] for party in parties],
                "duplicated": [self.n_duplicated[party] for party in parties],
            },
            index=pd.Index(parties, name="party"),
        )

    def _repr_html_(self) -> str:
        headline = html.escape(f"{self.n_matched} records matched by {self.matched_by}")
        return f"<p>{headline}</p>{self.to_frame().to_html(border=0)}"

    def __str__(self) -> str:
        counts = self.to_frame()
        more = f", up to {self.most_dummies} of them dummies" if self.most_dummies else ""
        if self.n_used < self.n_matched:
            more += f", {self.n_used} of them drawn to learn from"
        return "\n".join(
            [f"{self.n_matched} records matched by {self.matched_by}{more}"]
            + [
                f"  {party}: {self.n_rows[party]} rows, {self.n_matched} matched, "
                f"{self.n_dropped[party]} dropped, {self.n_duplicated[party]} duplicated"
                for party in counts.index
            ]
            + [f"  {line}" for line in self.differences]
        )

    @property
    def differences(self) -> list[str]:
        """Say of each party how its dropped records differ from its matched ones."""
        return [
            f"the dropped records of {party} differ from its matched ones in "
            + ", ".join(map(str, found))
            for party, found in self.lost.items()
            if found
        ]


def intersect(keys_by_party: Mapping[str, pd.Index]) -> pd.Index:
    """Return the keys that every party has, in an order that no party's row order shows in.

    None is missing, and a repeated key counts once. They are sorted, or where they cannot be
    (objects of several types), in the order of a SHA-256 of their text. KeyTypeError if two
    parties' keys are of different types, so that none could ever match.

    Examples
    --------
    >>> intersect({"lab": pd.Index([3, 1, 2]), "clinic": pd.Index([9, 2, 3])}).tolist()
    [2, 3]
    """
    check_key_types(keys_by_party)
    indexes = [_comparable(keys).unique() for keys in keys_by_party.values()]
    common = indexes[0]
    for keys in indexes[1:]:
        common = common[common.isin(keys)]
    try:
        return common.sort_values()
    except TypeError:
        texts = [f"{type(key).__qualname__}:{key!r}".encode() for key in common]
        return common[np.argsort([hashlib.sha256(t).hexdigest() for t in texts], kind="stable")]


def positions(own_keys: pd.Index, common: pd.Index) -> npt.NDArray[np.intp]:
    """Return where each common key stands in a party's own table, int (common,).

    This is what a party does by itself: ``frame.iloc[positions(keys, common)]`` puts its rows into
    the common order, that of :func:`intersect`. ProtocolError if it lacks a common key, or has a
    key twice.
    """
    own_keys = _comparable(own_keys)
    if not own_keys.is_unique:
        raise ProtocolError("Keys occur more than once in this party's table.")
    found = own_keys.get_indexer(common)
    if (found < 0).any():
        raise ProtocolError(
            f"{int((found < 0).sum())} of {len(common)} common keys are not in this party's table. "
            "Was the table changed after the keys were matched?"
        )
    return found


def align_keys(
    keys_by_party: Mapping[str, pd.Index], matched_by: str = "index", *, compare: bool = True
) -> tuple[pd.Index, AlignmentReport]:
    """Match the parties' records: :func:`intersect`, counted and checked.

    The report says that they were `matched_by` so; ``"index"`` becomes ``"position"`` where every
    party has a plain index (see :func:`positional_keys`). `compare` says whether a form is looked
    for in which more keys match, not for private fits. Raises the errors of these functions,
    DuplicateKeyError with all parties' counts, and NoOverlapError if no key is in every table.
    """
    if matched_by == "index" and positional_keys(keys_by_party):
        matched_by = "position"
    common = intersect(keys_by_party)
    report = AlignmentReport(
        matched_by=matched_by,
        n_matched=len(common),
        n_rows={party: len(keys) for party, keys in keys_by_party.items()},
        n_duplicated={
            party: int(keys.duplicated(keep=False).sum()) for party, keys in keys_by_party.items()
        },
    )
    for party, keys in keys_by_party.items():
        check_no_repeated_key(
            party, keys, no_column=matched_by == "index", n_repeated=report.n_duplicated
        )
    most = max(map(len, keys_by_party.values()), default=0)
    compare = compare and len(common) < most
    better = better_form(keys_by_party, len(common)) if compare else None
    if not len(common):
        counts = ", ".join(f"{party!r} {len(keys):,}" for party, keys in keys_by_party.items())
        raise NoOverlapError(
            f"the parties have no key in common; keys: {counts}",
            fix="check that the tables are about the same records and write keys in the same way"
            if better is None
            else f"{how_to_agree(better[0])}, in which {better[1]:,} match",
            column=next(iter(keys_by_party.values())).name,
        )
    return common, replace(report, better=better)


def check_no_repeated_key(
    party: str,
    keys: pd.Index,
    *,
    no_column: bool = False,
    n_repeated: Mapping[str, int] | None = None,
) -> None:
    """Check that a party has one row per key, or raise DuplicateKeyError.

    `no_column` says that the keys are an index that perhaps means nothing; `n_repeated` has, for
    the message, the rows of every party that share their key.
    """
    shared = int(keys.duplicated(keep=False).sum())
    if not shared:
        return
    repeated = keys[keys.duplicated(keep="first")].unique()
    rows = np.flatnonzero(keys.isin(repeated[:1]))[:_N_EXAMPLES].tolist()
    everybody = "" if n_repeated is None else f"; all parties: {dict(n_repeated)}"
    raise DuplicateKeyError(
        f"{len(repeated)} keys occur more than once, in {shared} rows "
        f"(rows {', '.join(map(str, rows))} share one{everybody})",
        fix="keep one row per key, for example with vflsynth.frames.summarise_rows, or in the file "
        "that says where the table is with one_row_per"
        + ("; reset_index(drop=True) if the index means nothing" if no_column else ""),
        party=party,
        column=keys.name,
    )


def check_key_types(keys_by_party: Mapping[str, pd.Index]) -> None:
    """Check that the keys of all parties can be compared; KeyTypeError names two and a conversion.

    Widths and storage do not matter (``int32`` matches ``int64``, ``object`` holding ``str``
    matches ``string``, a category matches its categories); text against numbers does.
    """
    (first, first_keys), *others = keys_by_party.items()
    for party, keys in others:
        kind, first_kind = key_kind(keys), key_kind(first_keys)
        if kind == first_kind or not len(keys) or not len(first_keys):
            continue
        raise KeyTypeError(
            f"keys are {kind} (dtype {keys.dtype}), but {first_kind} (dtype {first_keys.dtype}) "
            f"at party {first!r}, so no two could ever match",
            fix=_conversion_hint(kind, first_kind),
            party=party,
            column=keys.name,
        )


def only_counts_rows(index: pd.Index) -> bool:
    """Tell whether an index is the one that pandas gives to a table without one."""
    return isinstance(index, pd.RangeIndex) and (index.start, index.step, index.name) == (
        0,
        1,
        None,
    )


def positional_keys(indexes: Mapping[str, pd.Index]) -> bool:
    """Tell whether tables without a key column can only be matched row by row.

    That is so where every party's index is the one that pandas gives to a table without an index:
    an unnamed ``RangeIndex`` from 0 in steps of 1. MissingKeyError if these have different lengths:
    row 7 then need not be the same record everywhere.
    """
    if not all(map(only_counts_rows, indexes.values())):
        return False
    n_rows = {party: len(index) for party, index in indexes.items()}
    if len(set(n_rows.values())) > 1:
        raise MissingKeyError(
            f"no key column was named, the tables have no index of their own, and their lengths "
            f"differ ({n_rows}), so rows cannot be matched",
            fix="name the column that identifies a record with on=..., or make it the index",
        )
    return True


def key_kind(keys: pd.Index) -> str:
    """Name the kind of key: kinds can be compared with themselves only."""
    keys = comparable_types(keys)
    dtype: Any = keys.dtype
    if pd.api.types.is_bool_dtype(dtype):
        return "booleans"
    if pd.api.types.is_integer_dtype(dtype):
        return "integers"
    if pd.api.types.is_float_dtype(dtype):
        return "floating-point numbers"
    if isinstance(dtype, pd.StringDtype):
        return "text"
    if pd.api.types.is_datetime64_any_dtype(dtype):
        zone = getattr(dtype, "tz", None)
        return "times without a timezone" if zone is None else "times with a timezone"
    if pd.api.types.is_object_dtype(dtype):
        inferred = pd.api.types.infer_dtype(keys, skipna=True)
        if inferred in ("string", "integer"):
            return {"string": "text", "integer": "integers"}[inferred]
        types = sorted({type(key).__name__ for key in keys})
        return f"objects of type {' and '.join(types)}"
    return f"values of dtype {dtype}"


def _comparable(keys: pd.Index) -> pd.Index:
    """Write keys of one kind in one dtype, so that pandas matches them by value."""
    keys = comparable_types(keys)
    kind = key_kind(keys)
    if kind == "integers" and len(keys):
        fits = keys.min() >= -(2**63) and keys.max() < 2**63
        return keys.astype("int64") if fits else keys.astype(object)
    if kind == "text":
        return keys.astype(object)
    if kind == "times with a timezone":
        return pd.DatetimeIndex(keys).tz_convert("UTC")
    return keys


def _conversion_hint(kind: str, other: str) -> str:
    kinds = {kind, other}
    if kinds == {"integers", "floating-point numbers"}:
        return "convert the floating-point keys with .astype('int64') (missing keys made them so)"
    if "text" in kinds and kinds & {"integers", "floating-point numbers"}:
        return (
            f"{how_to_agree('digits')}, in which 7 and '007' are one key; or convert the numbers "
            "to text with .astype('int64').astype(str)"
        )
    return "convert one of them, so that both have the same type"


_MOST_LABELS, _FEWEST = 20, 5


@dataclass(frozen=True)
class Difference:
    """How a column, or how keys are written, differs between matched records and a party's others.

    The distance is 0 if the shares of all values are the same, 1 if no value is in both: Kolmogorov
    and Smirnov's for numbers and times, total variation for labels. `p_value` is how often a column
    of records that are lost by chance would differ so, times the number of columns looked at.
    """

    column: str
    distance: float
    p_value: float

    def __str__(self) -> str:
        return f"{self.column} (distance {self.distance:.2f})"


def compared(column: pd.Series[Any], matched: npt.NDArray[np.bool_]) -> tuple[float, float]:
    """Distance and p-value of one column of matched and other records, see `Difference`."""
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
