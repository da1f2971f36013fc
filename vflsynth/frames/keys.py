"""Keys: which column holds them, how records are matched by them, new ones for synthetic rows.

Two systems rarely write a key alike: one decomposes accents, one pads with blanks or zeros, one
writes capitals. Such keys do not match, and whoever bears them is missing from what is published. A
form says how all parties write keys before these are compared; each of its words is one step:

===========  =====================================================================================
``nfc``      accents are composed with their letters (Unicode's normal form C)
``strip``    blanks around a key, and characters without width, are left out
``casefold`` capitals are small letters
``digits``   whole numbers are text, and zeros before a number are left out: 7, "7" and "007"
===========  =====================================================================================

Keys are never modelled. A `KeyMinter` knows the type of the real keys and how many digits
the largest number among them has, those in minted keys of an earlier table included: enough to mint
keys of the same type that no real record has, and all that a saved model says about them.

Matching is the one place where two parties' keys meet. A party shows its keys, nothing else (a
`pandas.Index`), and learns which of them every party has. It then reorders its own rows on
its own, with `positions`. Replacing `intersect` by a private set intersection therefore
changes nothing around it. The common order is that of the sorted keys, so that no party's row order
shows in it.

Who was lost: a party compares its own unmatched records with its own matched ones. Nothing of it
leaves the party, and under privacy it is not computed.
"""

from __future__ import annotations

import hashlib
import html
import re
import unicodedata
from collections.abc import Callable, Hashable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from vflsynth._artefacts import refusing
from vflsynth.codec import dtype_from_json, dtype_to_json, family_of, frame_of, logical
from vflsynth.exceptions import (
    DuplicateKeyError,
    KeyTypeError,
    MissingKeyError,
    NoOverlapError,
    ParameterError,
    ProtocolError,
    PublishingWarning,
    warn_user,
)
from vflsynth.registry import Value, register

_NO_WIDTH = re.compile("[\u00ad\u200b-\u200f\u2060\ufeff]")
_NUMBER = re.compile("0*([0-9]+)")
_MOST_ODD = 0.1
"""Share of keys that may be neither in capitals nor in small letters where others are."""


def _without_zeros(key: str) -> str:
    found = _NUMBER.fullmatch(key)
    return key if found is None else found[1]


STEPS: dict[str, Callable[[str], str]] = {
    "strip": lambda key: _NO_WIDTH.sub("", key).strip(),
    "casefold": str.casefold,  # takes some letters apart
    "nfc": partial(unicodedata.normalize, "NFC"),
    "digits": _without_zeros,
}
"""Steps of a form, in their order."""

SLIPS = {
    "nfc": "how accents are composed",
    "strip": "blanks around them or characters without width",
    "casefold": "upper and lower case",
    "digits": "leading zeros",
}
"""How keys differ that a step makes alike."""


@register
@dataclass(frozen=True)
class MatchOn(Value):
    """The column that names the records, at each party, and the form that keys are compared in.

    Parameters
    ----------
    columns : hashable or mapping of party name to hashable, optional
        One name for all parties, or each party's own. None is the index.
    form : str, default=""
        Some of "nfc", "strip", "casefold" and "digits", separated by blanks: how all parties write
        their keys before they are compared. Models know the keys in this form alone.

    Raises
    ------
    ParameterError
        If the form has another word.

    Examples
    --------
    >>> on = MatchOn({"hospital": "patient_id", "insurer": "PatientNo"}, form="strip casefold")
    >>> on.of("insurer")
    'PatientNo'
    """

    columns: Any = None
    form: str = ""

    def __post_init__(self) -> None:
        words = self.form.split() if isinstance(self.form, str) else [self.form]
        if unknown := [word for word in words if word not in STEPS]:
            raise ParameterError(
                f"a form of keys is made of the words {', '.join(STEPS)}, got {unknown[0]!r}"
            )

    @classmethod
    def reading(cls, on: Any) -> MatchOn:
        """Return what a column's name, names by party or an object of this class means.

        MissingKeyError if it is none of them.
        """
        if isinstance(on, MatchOn):
            return on
        if not isinstance(on, Mapping | Hashable):
            raise MissingKeyError(
                f"`on` must name one column, got {on!r}",
                fix="make one key column of them in every table and pass its name",
            )
        return cls(on)

    def of(self, party: str) -> Hashable:
        """Return the column of a party; of one that is not named, that of the first."""
        if not isinstance(self.columns, Mapping):
            column: Hashable = self.columns
        else:
            column = self.columns.get(party, next(iter(self.columns.values()), None))
        return column

    def __str__(self) -> str:
        if not isinstance(self.columns, Mapping):
            said = "index" if self.columns is None else f"key column {self.columns!r}"
        else:
            each = (f"{column!r} of {party}" for party, column in self.columns.items())
            said = f"key columns {', '.join(each)}"
        return f"{said}, in the form {self.form!r}" if self.form else said


def key_of(on: Any, party: str) -> Hashable:
    """Return a party's key column, of whatever `on` is; None for the index."""
    return MatchOn.reading(on).of(party)


def in_form(keys: pd.Index, form: str) -> pd.Index:
    """Write keys in a form; those that are no text stay as they are, but for ``digits``."""
    steps = [step for word, step in STEPS.items() if word in form.split()]
    integers = pd.api.types.is_integer_dtype
    numbers = _without_zeros in steps and integers(comparable_types(keys).dtype)
    if not steps or not (numbers or is_text(keys)):
        return keys

    def write(key: Any) -> Any:
        key = str(key) if numbers else key
        for step in steps if isinstance(key, str) else ():
            key = step(key)
        return key

    known = {key: write(key) for key in keys.dropna().unique()}
    return pd.Index([known.get(key) for key in keys], dtype="str", name=keys.name)


def comparable_types(keys: pd.Index) -> pd.Index:
    """Return keys in the logical types of `vflsynth.codec`, which tell what they are."""
    if isinstance(keys.dtype, pd.ArrowDtype):
        values = frame_of(pa.table({"": pa.chunked_array(pa.array(keys.array))}))[""]
        keys = pd.Index(values).rename(keys.name)
    keys = _values(keys)
    if isinstance(keys, pd.MultiIndex) or not pd.api.types.is_object_dtype(keys.dtype):
        return keys
    found: pd.Index = pd.Index(logical(keys.to_series())).rename(keys.name)
    return found


def is_text(keys: Any) -> bool:
    """Whether keys are text."""
    return pd.api.types.infer_dtype(comparable_types(keys), skipna=True) == "string"


def warn_of_keys(keys: pd.Index, party: str) -> None:
    """Warn of keys, in the form that was agreed, that another party may well write otherwise."""
    if pd.api.types.is_float_dtype(keys.dtype):
        warn_user(
            f"party {party!r}: keys are floating-point numbers, which match no whole numbers. Fix: "
            "convert them with .astype('Int64'), or keep them as text if they are codes",
            PublishingWarning,
        )
    if not is_text(keys):
        return
    texts = [key for key in comparable_types(keys).dropna().unique() if isinstance(key, str)]
    counts = {word: sum(key != STEPS[word](key) for key in texts) for word in ("nfc", "strip")}
    counts |= {"casefold": _n_of_other_case(texts), "digits": _n_padded(texts)}
    if words := [word for word, n in counts.items() if n]:
        said = ", ".join(
            f"{counts[word]:,} differ from the rest in {SLIPS[word]}" for word in words
        )
        warn_user(
            f"party {party!r}: keys may be written otherwise elsewhere, and whoever bears them "
            f"would be left out: of {len(texts):,}, {said}. Fix: {how_to_agree(' '.join(words))}",
            PublishingWarning,
        )


def how_to_agree(form: str) -> str:
    """Say how parties agree on a form, and what it is for."""
    slips = " and ".join(SLIPS[word] for word in form.split())
    return (
        f"compare keys that differ in {slips} in the form {form!r}: MatchOn(..., form={form!r}); "
        f"on the command line --key-form {form!r}, in a job key_form = {form!r}"
    )


def better_form(keys_by_party: Mapping[str, pd.Index], n_matched: int) -> tuple[str, int] | None:
    """Find the fewest words of a form in which more keys match than do, and how many."""

    def matched(words: list[str]) -> int:
        form = " ".join(words)
        sets = [set(in_form(comparable_types(keys), form)) for keys in keys_by_party.values()]
        return len(set.intersection(*sets))

    words = list(SLIPS)
    most = matched(words)
    if most <= n_matched:
        return None
    for word in SLIPS:
        fewer = [other for other in words if other != word]
        if matched(fewer) == most:
            words = fewer
    return " ".join(words), most


def _n_of_other_case(texts: list[str]) -> int:
    """Keys in the rarer of several ways of writing words: capitals, small letters, both."""
    letters = [key for key in texts if key.casefold() != key or key.upper() != key]
    ways = ("isupper", "islower", "istitle")
    found = [next((way for way in ways if getattr(key, way)()), "") for key in letters]
    counts = {way: found.count(way) for way in {*found}}
    odd, usual = counts.pop("", 0), sorted(counts.values())
    return sum(usual[:-1]) if odd <= _MOST_ODD * len(letters) else 0


def _n_padded(texts: list[str]) -> int:
    """Keys that are numbers with zeros before them, where other numbers are shorter."""
    numbers = [key for key in texts if _NUMBER.fullmatch(key)]
    padded = [key for key in numbers if len(key) > 1 and key.startswith("0")]
    return len(padded) if len({len(key) for key in numbers}) > 1 else 0


_LARGEST_INTEGER = 2**63 - 1
_KINDS = ("integer", "float", "text", "unsupported")
_MINTED_TEXT = re.compile(r"synthetic-([0-9]{1,99})")


@dataclass(frozen=True)
class KeyMinter:
    """Mints keys of one party's key type. Made by `learn_key_minters`.

    Attributes
    ----------
    dtype : str or dict
        The key column's dtype, as `vflsynth.codec` writes it; "category" without its categories.
    kind : {"integer", "float", "text", "unsupported"}
        What to mint. Kind ``"unsupported"`` (times, booleans) raises when asked to.
    offset : int
        The first number minted: a power of ten above every real key of every party, and above the
        number in every real key that looks minted.

    Examples
    --------
    >>> keys = pd.Index([7, 512, 33], name="patient_id", dtype="int32")
    >>> minter = learn_key_minters({"lab": keys})["lab"]
    >>> minter.mint(3, name="patient_id")
    0    1000
    1    1001
    2    1002
    Name: patient_id, dtype: int32
    """

    dtype: Any
    kind: str
    offset: int = 0

    def starting_at(self, offset: int) -> KeyMinter:
        """Return the same, counting from somewhere else: all parties must count alike."""
        return replace(self, offset=offset)

    def mint(self, n: int, *, name: Hashable = None) -> pd.Series[Any]:
        """Mint ``n`` distinct keys of the real keys' dtype, the same ones every time.

        A categorical's categories are the minted keys, since the real ones would disclose the keys.
        KeyTypeError if the type has no room for so many beyond the real ones (``int8``, say), or no
        sound way to mint keys at all (times, booleans).
        """
        numbers = range(self.offset, self.offset + n)
        if self.kind == "unsupported":
            raise KeyTypeError(
                f"keys of dtype {self.dtype} cannot be minted",
                fix="sample without keys, or use integers or text as keys",
                column=name,
            )
        largest = self._largest()
        if n and largest is not None and numbers[-1] > largest:
            raise KeyTypeError(
                f"dtype {self.dtype} has no room for {n} keys from {numbers[0]} on, "
                f"its largest is {largest}",
                fix="sample without keys, or convert the key column to a wider type before fitting",
                column=name,
            )
        values: Any
        if self.kind in ("integer", "float"):
            small = numbers.stop < 2**63
            values = np.arange(numbers.start, numbers.stop) if small else list(numbers)
        else:
            values = [f"synthetic-{i:09d}" for i in numbers]
        if self.dtype == "category":
            return pd.Series(pd.Categorical(values, categories=values), name=name)
        series: pd.Series[Any] = pd.Series(values, dtype=dtype_from_json(self.dtype), name=name)
        return series

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serialisable description, which holds no key."""
        return asdict(self)

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> KeyMinter:
        """Rebuild a minter from `to_dict`; ArtefactError if it is none of one."""
        with refusing("Not the description of a key minter"):
            minter = cls(**description)
            dtype_from_json(minter.dtype)
            if minter.kind not in _KINDS or type(minter.offset) is not int or minter.offset < 0:
                raise ValueError(dict(description))
            return minter

    def _largest(self) -> int | None:
        """Return the largest number that the dtype can hold exactly."""
        dtype = dtype_from_json(self.dtype)
        own = getattr(dtype, "numpy_dtype", dtype)
        if own.kind == "f":
            return int(2 ** (np.finfo(own).nmant + 1))
        return int(np.iinfo(own).max) if own.kind in "iu" else None


def learn_key_minters(keys_by_party: Mapping[str, pd.Index]) -> dict[str, KeyMinter]:
    """Learn how to mint keys for every party, so that the same record gets the same key everywhere.

    Of all keys, those of unmatched records too, so that none is minted again. The offset is one for
    all parties: a party contributes the number of digits of its largest key, or of the largest
    number in its texts that look minted (real records of a synthetic table), nothing else.
    KeyTypeError if a key is infinite: no number is above it.
    """
    kinds = {party: _kind(_values(keys)) for party, keys in keys_by_party.items()}
    largest = [_largest_number(party, kinds[party], keys) for party, keys in keys_by_party.items()]
    n_digits = [len(str(number)) for number in largest if number is not None]
    offset = 10 ** max(n_digits) if n_digits else 1
    return {
        party: KeyMinter(_described(keys.dtype), kinds[party], offset)
        for party, keys in keys_by_party.items()
    }


def public_key_minters(keys_by_party: Mapping[str, pd.Index]) -> dict[str, KeyMinter]:
    """Make minters that say nothing about the keys but their type, for private models.

    Objects, whose types would have to be looked for in the records, get text, and so do numbers of
    rows, for whether keys are such numbers was found in them. The offset is the largest power of
    ten that all types can hold, as far above usual keys as can be. That no real record has one of
    these keys is likely, not certain: making sure would reveal something about the keys.

    Examples
    --------
    >>> keys = pd.Index([7, 512, 33], dtype="int32")
    >>> public_key_minters({"lab": keys})["lab"].mint(2).tolist()
    [1000000000, 1000000001]
    """
    typed = {
        party: keys.astype(object) if isinstance(keys, pd.RangeIndex) else keys
        for party, keys in keys_by_party.items()
    }
    minters = {
        party: KeyMinter(_described(keys.dtype), _kind_of_dtype(_values(keys).dtype))
        for party, keys in typed.items()
    }
    numeric = [m for m in minters.values() if m.kind in ("integer", "float")]
    largest = min((m._largest() or _LARGEST_INTEGER for m in numeric), default=1)
    offset = 10 ** (len(str(largest)) - 1)
    return {party: replace(minter, offset=offset) for party, minter in minters.items()}


def _values(keys: pd.Index) -> pd.Index:
    """Return a categorical's keys in the dtype of its categories, others as they are."""
    if isinstance(keys.dtype, pd.CategoricalDtype):
        return keys.astype(keys.dtype.categories.dtype)
    return keys


def _largest_number(party: str, kind: str, keys: pd.Index) -> int | None:
    """Return the largest number that minted keys must exceed, None where any number will do."""
    values = _values(keys)
    if kind in ("integer", "float") and len(keys):
        number = max(0, values.max())
        if number == np.inf:
            raise KeyTypeError(
                "a key is infinite, so that no fresh one can be above it",
                fix="give the record a finite key, or use text as keys",
                party=party,
                column="index" if keys.name is None else keys.name,
            )
        return int(number)
    if kind == "text":
        texts = (_MINTED_TEXT.fullmatch(key) for key in values if isinstance(key, str))
        return max((int(found[1]) for found in texts if found), default=None)
    return None


def _kind(keys: pd.Index) -> str:
    """Kind of keys, of objects by what they are."""
    if pd.api.types.is_object_dtype(keys.dtype):
        return "integer" if {type(key) for key in keys} == {int} else "text"
    return _kind_of_dtype(keys.dtype)


def _kind_of_dtype(dtype: Any) -> str:
    if pd.api.types.is_object_dtype(dtype):
        return "text"
    minted = {"whole number": "integer", "number": "float", "text": "text"}
    return minted.get(family_of(dtype), "unsupported")


def _described(dtype: Any) -> Any:
    """Write a dtype down, without the categories, which are keys."""
    if isinstance(dtype, pd.CategoricalDtype):
        return "category"
    try:
        return dtype_to_json(dtype)
    except TypeError:  # no keys can be minted of such
        return str(dtype)


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
        counts = {
            "rows": self.n_rows,
            "matched": self.n_matched,
            "dropped": self.n_dropped,
            "duplicated": self.n_duplicated,
        }
        return pd.DataFrame(counts, index=pd.Index(list(self.n_rows), name="party"))

    def _repr_html_(self) -> str:
        headline = html.escape(f"{self.n_matched} records matched by {self.matched_by}")
        return f"<p>{headline}</p>{self.to_frame().to_html(border=0)}"

    def __str__(self) -> str:
        more = f", up to {self.most_dummies} of them dummies" if self.most_dummies else ""
        if self.n_used < self.n_matched:
            more += f", {self.n_used} of them drawn to learn from"
        return "\n".join(
            [f"{self.n_matched} records matched by {self.matched_by}{more}"]
            + [
                f"  {party}: {self.n_rows[party]} rows, {self.n_matched} matched, "
                f"{self.n_dropped[party]} dropped, {self.n_duplicated[party]} duplicated"
                for party in self.n_rows
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
    the common order, that of `intersect`. ProtocolError if it lacks a common key, or has a
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
    """Match the parties' records: `intersect`, counted and checked.

    The report says that they were `matched_by` so; ``"index"`` becomes ``"position"`` where every
    party has a plain index (see `positional_keys`). `compare` says whether a form is looked
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
    occur = "key occurs" if len(repeated) == 1 else "keys occur"
    raise DuplicateKeyError(
        f"{len(repeated)} {occur} more than once, in {shared} rows "
        f"(rows {', '.join(map(str, rows))} share one{everybody})",
        fix="keep one row per key, as drop_duplicates or vflsynth.frames.summarise_rows do; or in "
        "place of the file name a .toml file that has file = and one_row_per ="
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
    if not isinstance(index, pd.RangeIndex) or index.name is not None:
        return False
    return index.start == 0 and index.step == 1


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
    distance = 0.5 * float(np.abs(shares[:, 0] - shares[:, 1]).sum())
    return distance, float(chi2_contingency(counts)[1])
