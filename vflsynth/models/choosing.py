"""Resampling: more rows are drawn than are wanted, and those stay that are likelier to be real.

A classifier that was trained to tell records from drawn rows scores a row by ``v · h(a + s_1 + ..
+ s_M)``, h being the leaky ReLU and s_i what party i computes of its own columns of the row. Of k n
rows n are chosen, with chances in proportion to their odds of being real, which then are raked
(iterative proportional fitting, Deming and Stephan 1940): of every part of a column's values as
many rows are to stay as chance would leave, so that columns keep the distributions that they are
drawn with. A classifier that tells nothing chooses uniformly.

Whoever puts the parties' columns together chooses: the process that has all halves, or who joins
parts that parties drew apart. That needs the s_i and the parts of all drawn rows, a and v, and no
half.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from torch import Tensor

from vflsynth._random import RandomStreams, derive
from vflsynth.exceptions import ArtefactError
from vflsynth.networks.layers import NEGATIVE_SLOPE

CHOOSER = ""
"""Receiver, who is no party, of what parties compute of drawn rows for the choice."""

DRAWN_AT_ONCE = 1 << 16
"""Rows that are drawn before some of them are chosen."""

_MOST_CELLS, _CELL_ROWS, _ROUNDS = 50, 100, 20
"""Parts of a column's values, rows of each on average, and rounds of raking."""

Floats = npt.NDArray[np.float32]

Portion = tuple[int, int, bytes]
"""How many rows stay, how many are drawn, and of which secret."""


@dataclass(frozen=True, eq=False)
class RowScores:
    """One party's part of a classifier of rows, and what all parts have in common.

    Features of a row x are ``sqrt(2) cos(x weight + offset)``: `weight` is (encoded, feature),
    `offset` (feature,), random numbers that are the party's own. Of these `first`, (feature,
    hidden), makes what the party adds before the hidden layer; `bias` and `last`, (hidden,), are
    the same at all parties. `times` says how many rows are drawn for one that is wanted.
    """

    times: int
    weight: Tensor
    offset: Tensor
    first: Tensor
    bias: Tensor
    last: Tensor

    def part(self, rows: Tensor) -> Tensor:
        """Compute what the party adds before the hidden layer, (row, hidden)."""
        return row_features(rows, self.weight, self.offset) @ self.first

    def tensors(self) -> dict[str, Tensor]:
        """Return what has to be saved besides `times`."""
        return {own.name: getattr(self, own.name) for own in fields(self) if own.name != "times"}

    @classmethod
    def restore(cls, times: int, tensors: Mapping[str, Tensor], width: int) -> Self:
        """Undo `tensors`, for encoded rows so wide; ValueError if they do not fit."""
        found = cls(int(times), **tensors)
        n_features, hidden = found.first.shape
        shapes = [tuple(own.shape) for own in found.tensors().values()]
        if shapes != [(width, n_features), (n_features,), (n_features, hidden)] + 2 * [(hidden,)]:
            raise ValueError("scores of other rows, or of other features")
        if found.times < 1:
            raise ValueError("no row stays of those that are drawn")
        return found


def row_features(rows: Tensor, weight: Tensor, offset: Tensor) -> Tensor:
    """Compute ``sqrt(2) cos(rows weight + offset)``, the random Fourier features of rows."""
    return (rows @ weight + offset).cos_().mul_(2.0**0.5)


def portions(n: int, times: int, secret: bytes) -> Iterator[Portion]:
    """Say how n rows are drawn.

    With `times` 1 it is one portion. Otherwise no portion is larger than 65,536 drawn rows.
    """
    if times == 1:
        yield n, n, secret
        return
    most = max(1, DRAWN_AT_ONCE // times)
    for number, start in enumerate(range(0, max(n, 1), most)):
        kept = min(most, n - start)
        yield kept, times * kept, derive(secret, f"portion {number}")


@dataclass(frozen=True, eq=False)
class Choice:
    """What the choice of a sample's rows is made of, as one party's part of the sample says it.

    `portions` has, for every portion, how many rows stay, how many were drawn, and what the choice
    is drawn of. `parts`, float16 (drawn row, hidden), and `cells`, (drawn row, column), the part of
    the column's values that the row's is in, are of the party `party`; `bias` and `last` are those
    of `RowScores`.
    """

    party: str
    portions: tuple[Portion, ...]
    parts: npt.NDArray[np.float16]
    cells: npt.NDArray[np.uint8]
    bias: Floats
    last: Floats

    @classmethod
    def of(
        cls,
        party: str,
        scores: RowScores,
        planned: Iterable[Portion],
        parts: Floats,
        table: pd.DataFrame,
    ) -> Self:
        """Make it of the table that a party drew, and of what it computed of its rows.

        Of the secrets that rows were drawn from nothing is in it but what one cannot go back from.
        """
        said = tuple((n, drawn, derive(secret, "choice")) for n, drawn, secret in planned)
        rounded = parts.astype(np.float16)  # as it travels, so that everybody chooses alike
        cells = np.zeros(table.shape, np.uint8)
        start = 0
        for _, drawn, _ in said:
            rows = slice(start, start + drawn)
            for j in range(table.shape[1]):
                cells[rows, j] = _cells(table.iloc[rows, j])
            start += drawn
        common = scores.bias.cpu().numpy(), scores.last.cpu().numpy()
        return cls(party, said, rounded, cells, *common)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "party": self.party,
            "portions": [[n, drawn, noise.hex()] for n, drawn, noise in self.portions],
            **{name: _text(getattr(self, name)) for name in ("parts", "cells", "bias", "last")},
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Undo `to_dict`; the content is somebody else's.

        Raises KeyError, TypeError or ValueError if it is not what `to_dict` writes.
        """
        said = tuple((int(n), int(m), bytes.fromhex(key)) for n, m, key in content["portions"])
        bias, last = (_numbers(content[name], np.float32) for name in ("bias", "last"))
        parts = _numbers(content["parts"], np.float16).reshape(-1, len(bias))
        cells = _numbers(content["cells"], np.uint8).reshape(len(parts), -1)
        if len(last) != len(bias) or sum(drawn for _, drawn, _ in said) != len(parts):
            raise ValueError("numbers of other rows")
        if any(not 0 <= n <= drawn for n, drawn, _ in said):
            raise ValueError("more rows stay than were drawn")
        return cls(str(content["party"]), said, parts, cells, bias, last)


def chosen_rows(choices: Sequence[Choice]) -> npt.NDArray[np.intp]:
    """Choose which of the drawn rows stay, ascending, of what all parties say.

    Where parties drew unequally many, it is of those that all drew. Raises ArtefactError if they
    speak of different samples, or of different classifiers.
    """
    common = min((own.portions for own in choices), key=len)
    first, *others = sorted(choices, key=lambda own: own.party)
    for own in choices:
        if own.portions[: len(common)] != common or any(
            not np.array_equal(getattr(own, name), getattr(first, name))
            for name in ("bias", "last")
        ):
            raise ArtefactError("choices of different samples")
    n_drawn = sum(drawn for _, drawn, _ in common)
    hidden = np.tile(first.bias, (n_drawn, 1))
    for own in (first, *others):
        hidden += own.parts[:n_drawn]
    np.maximum(hidden, np.float32(NEGATIVE_SLOPE) * hidden, out=hidden)
    scores = (hidden * first.last).sum(1)
    cells = np.concatenate([own.cells[:n_drawn] for own in (first, *others)], axis=1)
    found, start = [], 0
    for n, drawn, noise in common:
        rows = slice(start, start + drawn)
        found.append(start + _drawn_by(_chances(scores[rows], cells[rows], n), n, noise))
        start += drawn
    return np.concatenate(found)


def _cells(column: pd.Series[Any]) -> npt.NDArray[np.intp]:
    """Say in which part of its values each row of a column lies.

    Values are in order, equal ones together, in parts of as many rows; missing ones have their own.
    """
    codes, _ = pd.factorize(column, sort=column.dtype.kind in "iufmM")
    counts = np.bincount(codes[codes >= 0])
    n_cells = min(max(len(column) // _CELL_ROWS, 1), _MOST_CELLS)
    cell_of = (counts.cumsum() - counts) * n_cells // max(len(column), 1)
    return np.append(cell_of, n_cells)[codes]


def _chances(scores: Floats, cells: npt.NDArray[np.uint8], n: int) -> npt.NDArray[np.float64]:
    """Compute the chance of every drawn row to be among the n that stay."""
    odds = np.exp(np.maximum(scores.astype(np.float64) - scores.max(initial=-np.inf), -30.0))
    chances = _with_sum(odds, n)
    share = n / max(len(scores), 1)
    columns = [(own, np.bincount(own) * share) for own in cells.T.astype(np.intp)]
    for _ in range(_ROUNDS):
        for own, wanted in columns:
            sums = np.bincount(own, chances)
            factors = np.divide(wanted, sums, out=np.ones_like(sums), where=sums > 0)
            np.minimum(chances * factors[own], 1.0, out=chances)
    return _with_sum(chances, n)


def _with_sum(weights: npt.NDArray[np.float64], n: int) -> npt.NDArray[np.float64]:
    """Return chances of at most 1 that add up to n, all others in proportion to weights."""
    if n in (0, len(weights)):
        return np.full(len(weights), float(n > 0))
    falling = -np.sort(-weights)
    rest = falling[::-1].cumsum()[::-1]
    n_sure = int(np.argmax(falling * (n - np.arange(len(falling))) <= rest))
    chances: npt.NDArray[np.float64] = weights * ((n - n_sure) / rest[n_sure])
    return chances.clip(max=1.0)


def _drawn_by(chances: npt.NDArray[np.float64], n: int, noise: bytes) -> npt.NDArray[np.intp]:
    """Draw n rows by chances that add up to n, ascending: systematically, in a random order."""
    uniform = RandomStreams([noise]).uniform("choice", 0, (len(chances) + 1,))[0].numpy()
    order = np.argsort(uniform[1:], kind="stable")
    sums = chances[order].cumsum()
    places = (np.arange(n) + uniform[0]) * (sums[-1:].sum() / max(n, 1))
    return np.sort(order[np.searchsorted(sums, places, side="right")])


def _text(numbers: npt.NDArray[Any]) -> str:
    return base64.b64encode(numbers.tobytes()).decode()


def _numbers(text: str, kind: type[Any]) -> npt.NDArray[Any]:
    found = np.frombuffer(base64.b64decode(text, validate=True), kind)
    if not np.isfinite(found).all():
        raise ValueError("numbers that are not finite")
    return found
