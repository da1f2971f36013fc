"""What comes out in place of columns that are not modelled."""

from __future__ import annotations

import hashlib
import hmac
import string
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd

from vflsynth.columns.codec import array_of
from vflsynth.registry import register

_CLASSES = {"9": string.digits, "a": string.ascii_lowercase, "A": string.ascii_uppercase}
_DOMAIN = "@example.org"
"""Reserved for examples (RFC 2606): no letter of a surrogate can reach anybody."""

_LONGEST, _ATTEMPTS = 64, 8
_GENERAL = "aaaaaaaaaaaa"


@register
@dataclass(frozen=True)
class Surrogate:
    """Values of the same shape as a column's, drawn without regard to any of them.

    `shapes`, of enough records each, have ``9`` for a digit, ``a`` and ``A`` for letters and all
    else as it is, and their shares; if there are none, twelve letters. A value that is drawn afresh
    can be that of a real record by chance, where there are few of the shape: all nine-digit numbers
    are somebody's.
    """

    registry_group: ClassVar[str] = "parameters"

    label: Hashable
    dtype: Any
    shapes: Mapping[str, float]

    @classmethod
    def fit(cls, column: pd.Series[Any], least: int) -> Self:
        """Learn the shapes of a column that at least `least` records have."""
        whole = pd.api.types.is_integer_dtype(column.dtype)
        dtype = column.dtype if whole else _text_dtype(column.dtype)
        counts = column.dropna().map(lambda value: shape_of(str(value))).value_counts()
        kept = counts[counts >= max(least, 1)]
        shapes = {str(shape): float(n / kept.sum()) for shape, n in kept.items()}
        if whole:
            shapes = {shape.replace("-", ""): n for shape, n in shapes.items()}
        return cls(column.name, dtype, shapes or {"9999999" if whole else _GENERAL: 1.0})

    def draw(self, n: int, rng: np.random.Generator, secret: bytes) -> pd.Series[Any]:
        """Draw `n` values, different ones as far as the shapes have room."""
        values: dict[str, None] = {}
        for _ in range(_ATTEMPTS):
            for shape in rng.choice(list(self.shapes), n - len(values), p=[*self.shapes.values()]):
                values[_filled(str(shape), rng)] = None
            if len(values) == n:
                break
        filled = list(values)
        while len(filled) < n:
            filled.append(filled[int(rng.integers(len(values)))])
        whole = pd.api.types.is_integer_dtype(self.dtype)
        return _series([int(v) for v in filled] if whole else filled, self.dtype, self.label)


@register
@dataclass(frozen=True)
class Pseudonym:
    """Sixteen hexadecimal digits that all parties give to the same synthetic record."""

    registry_group: ClassVar[str] = "parameters"

    label: Hashable
    dtype: Any

    def draw(self, n: int, rng: np.random.Generator, secret: bytes) -> pd.Series[Any]:
        """Return keyed digests of the rows' numbers; the key is the sample's shared secret."""
        digests = (hmac.new(secret, b"%d" % row, hashlib.sha256).hexdigest() for row in range(n))
        return _series([digest[:16] for digest in digests], self.dtype, self.label)


def pseudonym(column: pd.Series[Any]) -> Pseudonym:
    """Return the pseudonyms of a column's label, as text."""
    return Pseudonym(column.name, _text_dtype(column.dtype))


def shape_of(value: str) -> str:
    """Write ``9``, ``a`` and ``A`` for digits and letters; e-mail addresses become general ones.

    Examples
    --------
    >>> shape_of("B-12 x"), shape_of("jo.li@mail.com")
    ('A-99 a', 'aa.aa@example.org')
    """
    name, at, _ = value[:_LONGEST].partition("@")
    shape = "".join(
        "9" if c.isdecimal() else "A" if c.isupper() else "a" if c.isalpha() else c for c in name
    )
    return shape + _DOMAIN if at else shape


def _filled(shape: str, rng: np.random.Generator) -> str:
    name, at, domain = shape.partition("@")
    letters = (_CLASSES.get(c) for c in name)
    drawn = [
        c if options is None else options[int(rng.integers(len(options)))]
        for c, options in zip(name, letters)
    ]
    if drawn and drawn[0] == "0" and name[0] == "9" and set(name) == {"9"}:
        drawn[0] = "123456789"[int(rng.integers(9))]
    return "".join(drawn) + at + domain


def _text_dtype(dtype: Any) -> Any:
    text = pd.api.types.is_string_dtype(dtype) and not isinstance(dtype, pd.CategoricalDtype)
    return dtype if text else np.dtype(object)


def _series(values: list[Any], dtype: Any, label: Hashable) -> pd.Series[Any]:
    made: pd.Series[Any] = pd.Series(array_of(values, dtype), name=label, copy=False)
    return made
