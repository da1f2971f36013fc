"""Combinations of columns as labels, and what kinds of values types hold.

And what comes out in place of columns that are not modelled.
"""

from __future__ import annotations

import hashlib
import hmac
import string
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from vflsynth.codec import array_of
from vflsynth.columns.arrays import kind_of_values, numpy_dtype, read_integers, write_values
from vflsynth.contract.rules import Combination, combinations_of
from vflsynth.frames.typed import in_order
from vflsynth.registry import Value, register


@register
@dataclass(frozen=True)
class Composite(Value):
    """Several columns as one column of labels.

    Its `combinations` are sorted, by numbers if there are any: models that know an order of labels
    keep relations so. `usual` is the number of the one that others count as.
    """

    label: str
    columns: tuple[Hashable, ...]
    dtypes: tuple[Any, ...]
    combinations: tuple[Combination, ...]
    usual: int

    @property
    def labels(self) -> list[str]:
        """What the combinations are called, in order: no value shows in it."""
        digits = len(str(len(self.combinations)))
        return [f"combination {number:0{digits}}" for number in range(len(self.combinations))]

    def apply(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Put labels in place of the columns; what is not among them becomes the usual one."""
        names = dict(zip(self.combinations, self.labels))
        usual = self.labels[self.usual]
        found = [names.get(c, usual) for c in combinations_of(frame, self.columns)]
        rest = frame.drop(columns=list(self.columns))
        place = next(k for k, label in enumerate(frame.columns) if label in self.columns)
        rest.insert(place, self.label, pd.Series(found, rest.index, dtype="str"))
        return rest

    def restore(self, table: pd.DataFrame) -> dict[Hashable, pd.Series[Any]]:
        """Return the columns."""
        numbers = {name: number for number, name in enumerate(self.labels)}
        codes = table[self.label].map(numbers).fillna(0).astype(np.intp).to_numpy()
        return {
            label: pd.Series(array_of([c[k] for c in self.combinations], dtype).take(codes))
            for k, (label, dtype) in enumerate(zip(self.columns, self.dtypes))
        }


def composite_of(
    frame: pd.DataFrame,
    columns: Sequence[Hashable],
    combinations: Iterable[Combination],
    *,
    private: bool = False,
) -> Composite:
    """Return the composite of some columns of a table, under a label that no column has.

    The first of the combinations is the usual one; `private` is as of `kept_type`.
    """
    label = " & ".join(map(str, columns))
    while label in frame.columns:
        label += " &"
    given = list(combinations)
    kept = [{g[k] for g in given} - {None} for k in range(len(columns))]
    dtypes = tuple(kept_type(frame[c], own, private=private) for c, own in zip(columns, kept))
    numbers = [k for k, dtype in enumerate(dtypes) if kind_of_values(dtype) in "iufM"]
    order = [*numbers, *(k for k in range(len(dtypes)) if k not in numbers)]

    def place(combination: Combination) -> list[tuple[bool, Any]]:
        cells = ((k, combination[k]) for k in order)
        return [
            (v is not None, 0 if v is None else v if k in numbers else str(v)) for k, v in cells
        ]

    try:
        ordered = sorted(given, key=place)
    except TypeError:  # stated values of other types than the column's
        ordered = given
    return Composite(label, tuple(columns), dtypes, tuple(ordered), ordered.index(given[0]))


def kept_type(column: pd.Series[Any], kept: Collection[Any], *, private: bool = False) -> Any:
    """Return a column's type, of categories those that are kept, if it has any others.

    Then it names none that no record has, either: beside them, what is missing of a public list
    would be what few have. If `private`, of those that are kept in any case: which it has, no
    record may say.
    """
    dtype: Any = column.dtype
    if not isinstance(dtype, pd.CategoricalDtype):
        return dtype
    if private:
        listed = [value for value in (dtype.categories if dtype.ordered else kept) if value in kept]
        return in_order(pd.Series(dtype=pd.CategoricalDtype(listed, dtype.ordered))).dtype
    if {*column.dropna().unique()} <= {*kept}:
        return dtype
    return column.cat.remove_categories(list({*dtype.categories} - {*kept})).dtype


def is_true(found: pd.Series[Any]) -> pd.Series[Any]:
    """Return where something is known to be so."""
    return found.fillna(False).astype("bool")


def rounded(column: pd.Series[Any], decimals: int) -> pd.Series[Any]:
    """Return numbers rounded to decimals, whole ones to tens within what their type holds."""
    if kind_of_values(column.dtype) == "f":
        return column.round(decimals)
    if decimals >= 0:
        return column
    values, missing = read_integers(column)
    tens, limits = 10**-decimals, np.iinfo(numpy_dtype(column.dtype))
    low, high = -(-limits.min // tens) * tens, limits.max // tens * tens
    return write_values(np.round(values, decimals).clip(low, high), missing, column.dtype, None)


_CLASSES = {"9": string.digits, "a": string.ascii_lowercase, "A": string.ascii_uppercase}
_DOMAIN = "@example.org"
"""Reserved for examples (RFC 2606): no letter of a surrogate can reach anybody."""

_LONGEST, _ATTEMPTS = 64, 8
_GENERAL = "aaaaaaaaaaaa"


@register
@dataclass(frozen=True)
class Surrogate(Value):
    """Values of the same shape as a column's, drawn without regard to any of them.

    `shapes`, of enough records each, have ``9`` for a digit, ``a`` and ``A`` for letters and all
    else as it is, and their shares; if there are none, twelve letters. A value that is drawn afresh
    can be that of a real record by chance, where there are few of the shape: all nine-digit numbers
    are somebody's.
    """

    label: Hashable
    dtype: Any
    shapes: Mapping[str, float]

    @classmethod
    def fit(cls, column: pd.Series[Any], least: int) -> Self:
        """Learn the shapes of a column that at least `least` records have."""
        whole = pd.api.types.is_integer_dtype(column.dtype)
        dtype = column.dtype if whole else text_dtype(column.dtype)
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
            drawn = rng.multinomial(n - len(values), [*self.shapes.values()])
            made = [_filled(shape, k, rng) for shape, k in zip(self.shapes, drawn)]
            values |= dict.fromkeys(
                map(self._value, rng.permutation(np.concatenate(made)).tolist())
            )
            if len(values) == n:
                break
        filled = [*values, *rng.choice([*values], n - len(values)).tolist()]
        return _series(filled, self.dtype, self.label)

    def _value(self, text: str) -> Any:
        """Return a value of the type; a whole number too large for it becomes another, as long."""
        if not pd.api.types.is_integer_dtype(self.dtype):
            return text
        least, most = 10 ** (len(text) - 1), np.iinfo(numpy_dtype(self.dtype)).max
        least *= least <= most  # no record may have said how many digits there are
        return int(text) if int(text) <= most else least + int(text) % (most - least + 1)


@register
@dataclass(frozen=True)
class Pseudonym(Value):
    """Sixteen hexadecimal digits that all parties give to the same synthetic record."""

    label: Hashable
    dtype: Any

    def draw(self, n: int, rng: np.random.Generator, secret: bytes) -> pd.Series[Any]:
        """Return keyed digests of the rows' numbers; the key is the sample's shared secret."""
        digests = (hmac.new(secret, b"%d" % row, hashlib.sha256).hexdigest() for row in range(n))
        return _series([digest[:16] for digest in digests], self.dtype, self.label)


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


def _filled(shape: str, n: int, rng: np.random.Generator) -> npt.NDArray[Any]:
    """Draw `n` values of a shape, of whole numbers without zeros in front."""
    name, at, domain = shape.partition("@")
    values: npt.NDArray[Any] = np.full(n, "", object)
    for place, c in enumerate(name):
        options = _CLASSES.get(c, c)
        if place == 0 and set(name) == {"9"}:
            options = options[1:]
        values += np.array([*options], object)[rng.integers(len(options), size=n)]
    return values + at + domain


def text_dtype(dtype: Any) -> Any:
    """Return the type of text in place of a column's values: its own, if that is one of text."""
    text = pd.api.types.is_string_dtype(dtype) and not isinstance(dtype, pd.CategoricalDtype)
    return dtype if text else np.dtype(object)


def _series(values: list[Any], dtype: Any, label: Hashable) -> pd.Series[Any]:
    return pd.Series(array_of(values, dtype), name=label, copy=False)
