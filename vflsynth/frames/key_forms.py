"""Which column names the records, and in which form keys are compared.

Two systems rarely write a key alike: one decomposes accents, one pads with blanks or zeros, one
writes capitals. Such keys do not match, and whoever bears them is missing from what is published. A
form says how all parties write keys before these are compared; each of its words is one step:

===========  =====================================================================================
``nfc``      accents are composed with their letters (Unicode's normal form C)
``strip``    blanks around a key, and characters without width, are left out
``casefold`` capitals are small letters
``digits``   whole numbers are text, and zeros before a number are left out: 7, "7" and "007"
===========  =====================================================================================
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd
import pyarrow as pa

from vflsynth._warnings import warn_user
from vflsynth.exceptions import MissingKeyError, ParameterError, PublishingWarning
from vflsynth.frames.logical import frame_of, logical
from vflsynth.registry import register

_NO_WIDTH = re.compile("[\u00ad\u200b-\u200f\u2060\ufeff]")
_NUMBER = re.compile("0*([0-9]+)")
_MOST_ODD = 0.1
"""Share of keys that may be neither in capitals nor in small letters where others are."""


def _composed(key: str) -> str:
    return unicodedata.normalize("NFC", key)


def _stripped(key: str) -> str:
    return _NO_WIDTH.sub("", key).strip()


def _without_zeros(key: str) -> str:
    found = _NUMBER.fullmatch(key)
    return key if found is None else found[1]


STEPS: dict[str, Callable[[str], str]] = {
    "strip": _stripped,
    "casefold": str.casefold,  # takes some letters apart
    "nfc": _composed,
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
class MatchOn:
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

    registry_group: ClassVar[str] = "parameters"

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
        """Return what a caller means: a column's name, names by party, or an object of this class.

        Raises
        ------
        MissingKeyError
            If it is none of them.
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
            return column
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
    numbers = pd.api.types.is_integer_dtype(keys.dtype) and _without_zeros in steps
    if not steps or isinstance(keys, pd.MultiIndex) or not (numbers or is_text(keys)):
        return keys

    def write(key: Any) -> Any:
        key = str(key) if numbers else key
        for step in steps if isinstance(key, str) else ():
            key = step(key)
        return key

    known = {key: write(key) for key in keys.dropna().unique()}
    found: pd.Index = pd.Index([known.get(key) for key in keys], dtype="str", name=keys.name)
    return found


def comparable_types(keys: pd.Index) -> pd.Index:
    """Return keys in the logical types of `vflsynth.frames.logical`, which tell what they are."""
    if isinstance(keys.dtype, pd.ArrowDtype):
        values = frame_of(pa.table({"": pa.chunked_array(pa.array(keys.array))}))[""]
        keys = pd.Index(values).rename(keys.name)
    if isinstance(keys.dtype, pd.CategoricalDtype):
        keys = keys.astype(keys.dtype.categories.dtype)
    if isinstance(keys, pd.MultiIndex) or not pd.api.types.is_object_dtype(keys.dtype):
        return keys
    found: pd.Index = pd.Index(logical(keys.to_series())).rename(keys.name)
    return found


def is_text(keys: Any) -> bool:
    """Whether keys are text."""
    return pd.api.types.infer_dtype(comparable_types(keys), skipna=True) == "string"


def warn_of_keys(keys: pd.Index, party: str) -> None:
    """Warn of keys that another party may well write otherwise; it takes no other party's keys.

    Parameters
    ----------
    keys : Index
        Of one party, in the form that was agreed.
    party : str
    """
    if pd.api.types.is_float_dtype(keys.dtype):
        warn_user(
            f"party {party!r}: keys are floating-point numbers, which match no whole numbers. Fix: "
            "convert them with .astype('Int64'), or keep them as text if they are codes",
            PublishingWarning,
        )
    if isinstance(keys, pd.MultiIndex) or not is_text(keys):
        return
    texts = [key for key in comparable_types(keys).dropna().unique() if isinstance(key, str)]
    counts = {
        "nfc": sum(key != _composed(key) for key in texts),
        "strip": sum(key != _stripped(key) for key in texts),
        "casefold": _n_of_other_case(texts),
        "digits": _n_padded(texts),
    }
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
    """Find the fewest words of a form in which more keys match, and how many do.

    Parameters
    ----------
    keys_by_party : mapping of party name to Index
        Of all parties, in one process.
    n_matched : int
        Keys that match as they are.
    """

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
