"""Fresh keys for synthetic records.

Keys are never modelled. A :class:`KeyMinter` knows the type of the real keys and how many digits
the largest number among them has, those in minted keys of an earlier table included: enough to mint
keys of the same type that no real record has, and all that a saved model says about them.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Hashable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from vflsynth.exceptions import ArtefactError, KeyTypeError

_LARGEST_INTEGER = 2**63 - 1
_KINDS = ("integer", "float", "text", "uuid", "unsupported")
_MINTED_TEXT = re.compile(r"synthetic-([0-9]{1,99})")
_UUID_NUMBERS = 2**62
# Version 8, "custom" (RFC 9562), so that the number can be read from a minted key that comes back.
_UUID_BASE = 0x73796E74_6865_8069_8000_000000000000


@dataclass(frozen=True)
class KeyMinter:
    """Mints keys of one party's key type. Made by :func:`learn_key_minters`.

    Attributes
    ----------
    dtype : str
        The key column's dtype, as text.
    kind : {"integer", "float", "text", "uuid", "unsupported"}
        What to mint. Kind ``"unsupported"`` (times, booleans) raises when asked to.
    offset : int
        The first number minted: a power of ten above every real key of every party, and above the
        number in every real key that looks minted.
    storage : str, optional
        Storage and missing value of a text dtype, which its name alone does not tell.

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

    dtype: str
    kind: str
    offset: int = 0
    storage: str | None = None

    def starting_at(self, offset: int) -> KeyMinter:
        """Return the same, counting from somewhere else: all parties must count alike."""
        return replace(self, offset=offset)

    def mint(self, n: int, *, name: Hashable = None) -> pd.Series[Any]:
        """Mint ``n`` distinct keys, the same ones every time.

        Parameters
        ----------
        n : int
            Number of keys.
        name : hashable, optional
            Name of the returned series.

        Returns
        -------
        pandas.Series of length n
            Of the real keys' dtype. A categorical's categories are the minted keys, since the real
            ones would disclose the keys.

        Raises
        ------
        KeyTypeError
            If the type has no room for ``n`` keys beyond the real ones (``int8``, say), or no sound
            way to mint keys at all (times, booleans).
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
        elif self.kind == "uuid":
            values = [uuid.UUID(int=_UUID_BASE + i) for i in numbers]
        else:
            values = [f"synthetic-{i:09d}" for i in numbers]
        if self.dtype == "category":
            return pd.Series(pd.Categorical(values, categories=values), name=name)
        series: pd.Series[Any] = pd.Series(values, dtype=self._pandas_dtype(), name=name)
        return series

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serialisable description, which holds no key."""
        return asdict(self)

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> KeyMinter:
        """Rebuild a minter from :meth:`to_dict`.

        Raises
        ------
        ArtefactError
            If the description is not one of a key minter.
        """
        try:
            minter = cls(**description)
            valid = minter.kind in _KINDS and type(minter.offset) is int and minter.offset >= 0
            minter._pandas_dtype()
        except (TypeError, ValueError) as error:
            raise ArtefactError(f"Not the description of a key minter: {error}") from error
        if not valid:
            raise ArtefactError(f"Not the description of a key minter: {dict(description)}")
        return minter

    def _largest(self) -> int | None:
        """Return the largest number that the dtype can hold exactly."""
        if self.kind == "uuid":
            return _UUID_NUMBERS - 1
        if self.kind == "float":
            return int(2 ** (np.finfo(_numpy_name(self.dtype)).nmant + 1))
        if self.kind == "integer" and self.dtype not in ("object", "category"):
            return int(np.iinfo(_numpy_name(self.dtype)).max)
        return None

    def _pandas_dtype(self) -> Any:
        if self.storage == "arrow":
            return pd.ArrowDtype(pa.string())
        if self.storage is not None:
            storage, missing = self.storage.split("/")
            return pd.StringDtype(storage, na_value=np.nan if missing == "nan" else pd.NA)
        return pd.api.types.pandas_dtype(self.dtype)


def learn_key_minters(keys_by_party: Mapping[str, pd.Index]) -> dict[str, KeyMinter]:
    """Learn how to mint keys for every party, so that the same record gets the same key everywhere.

    Parameters
    ----------
    keys_by_party : mapping of str to pandas.Index
        All keys of each party, those of unmatched records too, so that none is minted again.

    Returns
    -------
    dict of str to KeyMinter
        With one offset for all parties. A party contributes the number of digits of its largest
        key, or of the largest number in its texts and UUIDs that look minted (real records of a
        synthetic table), nothing else.

    Raises
    ------
    KeyTypeError
        If a key is infinite: no number is above it.
    """
    kinds = {party: _kind(_values(keys)) for party, keys in keys_by_party.items()}
    largest = [_largest_number(party, kinds[party], keys) for party, keys in keys_by_party.items()]
    n_digits = [len(str(number)) for number in largest if number is not None]
    offset = 10 ** max(n_digits) if n_digits else 1
    return {
        party: KeyMinter(str(keys.dtype), kinds[party], offset, _storage(keys))
        for party, keys in keys_by_party.items()
    }


def public_key_minters(keys_by_party: Mapping[str, pd.Index]) -> dict[str, KeyMinter]:
    """Make minters that say nothing about the keys but their type, for private models.

    Parameters
    ----------
    keys_by_party : mapping of str to pandas.Index
        Only their types are looked at.

    Returns
    -------
    dict of str to KeyMinter
        Objects, whose types would have to be looked for in the records, get text, and so do numbers
        of rows, for whether keys are such numbers was found in them. With one offset
        for all parties: the largest power of ten that all their types can hold, as
        far above usual keys as can be. That no real record has one of these keys is likely, not
        certain: making sure would reveal something about the keys.

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
        party: KeyMinter(str(keys.dtype), _kind_of_dtype(_values(keys).dtype), 0, _storage(keys))
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
    if kind == "uuid":
        numbers = (key.int - _UUID_BASE for key in values)
        return max((n for n in numbers if 0 <= n < _UUID_NUMBERS), default=None)
    return None


def _kind(keys: pd.Index) -> str:
    """Kind of keys, of objects by what they are."""
    if pd.api.types.is_object_dtype(keys.dtype):
        types = frozenset(type(key) for key in keys)
        return {frozenset({int}): "integer", frozenset({uuid.UUID}): "uuid"}.get(types, "text")
    return _kind_of_dtype(keys.dtype)


def _kind_of_dtype(dtype: Any) -> str:
    if pd.api.types.is_bool_dtype(dtype):
        return "unsupported"
    if pd.api.types.is_integer_dtype(dtype):
        return "integer"
    if pd.api.types.is_float_dtype(dtype):
        return "float"
    if isinstance(dtype, pd.StringDtype) or dtype == pd.ArrowDtype(pa.string()):
        return "text"
    return "text" if pd.api.types.is_object_dtype(dtype) else "unsupported"


def _storage(keys: pd.Index) -> str | None:
    if isinstance(keys.dtype, pd.ArrowDtype) and _kind(keys) == "text":
        return "arrow"
    if not isinstance(keys.dtype, pd.StringDtype):
        return None
    return f"{keys.dtype.storage}/{'NA' if keys.dtype.na_value is pd.NA else 'nan'}"


def _numpy_name(dtype: str) -> str:
    """Return the numpy name of a nullable or Arrow dtype: ``Int64``, ``int64[pyarrow]``."""
    name = dtype.removesuffix("[pyarrow]").lower()
    return {"double": "float64", "float": "float32"}.get(name, name)
