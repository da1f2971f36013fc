"""Resampling: more rows are drawn than are wanted, and those stay that are likelier to be real.

A classifier that was trained to tell records from drawn rows scores a row by ``v · h(a + s_1 + ..
+ s_M)``, h being the leaky ReLU and s_i what party i computes of its own columns of the row. Of k n
rows n are chosen by score plus Gumbel noise: without replacement, each with a chance in proportion
to its odds of being real. A classifier that tells nothing chooses uniformly.

Whoever puts the parties' columns together chooses: the process that has all halves, or who joins
parts that parties drew apart. That needs the s_i of all drawn rows, a and v, and no half.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from torch import Tensor

from vflsynth._random import RandomStreams, derive
from vflsynth.exceptions import ArtefactError
from vflsynth.networks.layers import NEGATIVE_SLOPE

CHOOSER = ""
"""Receiver, who is no party, of what parties compute of drawn rows for the choice."""

DRAWN_AT_ONCE = 1 << 16
"""Rows that are drawn before some of them are chosen."""

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

    `portions` has, for every portion, how many rows stay, how many were drawn, and what the noise
    is drawn of. `parts`, float16 (drawn row, hidden), are of the party `party`; `bias` and `last`
    are those of `RowScores`.
    """

    party: str
    portions: tuple[Portion, ...]
    parts: npt.NDArray[np.float16]
    bias: Floats
    last: Floats

    @classmethod
    def of(cls, party: str, scores: RowScores, planned: Iterable[Portion], parts: Floats) -> Self:
        """Make it of what a party computed of the rows that it drew.

        Of the secrets that rows were drawn from nothing is in it but what one cannot go back from.
        """
        said = tuple((n, drawn, derive(secret, "choice")) for n, drawn, secret in planned)
        rounded = parts.astype(np.float16)  # as it travels, so that everybody chooses alike
        return cls(party, said, rounded, scores.bias.cpu().numpy(), scores.last.cpu().numpy())

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "party": self.party,
            "portions": [[n, drawn, noise.hex()] for n, drawn, noise in self.portions],
            **{name: _text(getattr(self, name)) for name in ("parts", "bias", "last")},
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Undo `to_dict`; the content is somebody else's.

        Raises KeyError, TypeError or ValueError if it is not what `to_dict` writes.
        """
        said = tuple((int(n), int(m), bytes.fromhex(key)) for n, m, key in content["portions"])
        bias, last = (_numbers(content[name], np.float32) for name in ("bias", "last"))
        parts = _numbers(content["parts"], np.float16).reshape(-1, len(bias))
        if len(last) != len(bias) or sum(drawn for _, drawn, _ in said) != len(parts):
            raise ValueError("numbers of other rows")
        if any(not 0 <= n <= drawn for n, drawn, _ in said):
            raise ValueError("more rows stay than were drawn")
        return cls(str(content["party"]), said, parts, bias, last)


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
    found, start = [], 0
    for n, drawn, noise in common:
        gumbel = RandomStreams([noise]).gumbel("choice", 0, (drawn,))[0].numpy()
        keys = scores[start : start + drawn] + gumbel
        found.append(start + np.sort(np.argsort(-keys, kind="stable")[:n]))
        start += drawn
    return np.concatenate(found)


def _text(numbers: npt.NDArray[Any]) -> str:
    return base64.b64encode(numbers.tobytes()).decode()


def _numbers(text: str, kind: type[Any]) -> npt.NDArray[Any]:
    found = np.frombuffer(base64.b64decode(text, validate=True), kind)
    if not np.isfinite(found).all():
        raise ValueError("numbers that are not finite")
    return found
