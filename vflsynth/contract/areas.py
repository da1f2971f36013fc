"""Labels that two numbers tell: codes beside coordinates, each of which stands for an area."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from vflsynth.contract.recoding import held_by
from vflsynth.contract.rules import are_hashable, plain_value
from vflsynth.registry import register

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]

_DEPTHS = range(5)
"""How often the records of a label are halved, at most: each part has a distribution."""

_FEWEST, _MOST = 5, 256
"""Labels that areas are looked for of."""

_BEYOND = 0.02
"""Share of other records that count as beyond their label's area."""

_BY_CHANCE = 0.2
"""Share of records that are within it if the label is independent of the numbers, at most."""

_TELLING, _NUMBERS, _RECORDS = 0.3, 6, 20_000
_PRIOR = 3.0
"""Records that the usual spread of a part counts as, beside its own."""


@register
@dataclass(frozen=True)
class Areas:
    """Where the records of each label lie in a plane.

    Each of the `parts` of a label's records is the number of the label, a share of all records, a
    centre (2), and the inverse of a covariance (3). Where a label has less than the chance `least`
    is beyond its area. `score` is the mean log chance of labels of records that were not used.
    """

    registry_group: ClassVar[str] = "parameters"

    labels: tuple[Any, ...]
    parts: tuple[tuple[float, ...], ...]
    least: float = 0.0
    score: float = 0.0

    @classmethod
    def of(cls, points: Floats, codes: Codes, labels: Sequence[Any], smallest: int) -> Self | None:
        """Return areas of a label's values, (record,), and two numbers; None if they say little.

        The number of parts is that which tells most of a quarter of the records from the others.
        """
        order = np.random.default_rng(0).permutation(len(codes))[:_RECORDS]
        points, codes = points[order], codes[order]
        held, rest = slice(0, len(order) // 4), slice(len(order) // 4, None)
        best = -np.inf, 0, 0.0, 1.0
        for depth in _DEPTHS:
            made = cls(tuple(labels), _parts(points[rest], codes[rest], smallest, depth))
            known = np.isin(codes[held], [part[0] for part in made.parts])
            theirs, chances = codes[held][known], made.chances(points[held][known])
            own = chances[np.arange(len(theirs)), theirs]
            score = float(np.log(np.maximum(own, 1e-9)).mean())
            if score <= best[0]:
                break
            least = float(np.quantile(own, _BEYOND))
            chance = (chances[np.arange(len(theirs)), np.roll(theirs, 1)] >= least).mean()
            best = score, depth, least, chance
        score, depth, least, chance = best
        if chance > _BY_CHANCE:
            return None
        return cls(tuple(labels), _parts(points, codes, smallest, depth), least, score)

    def chances(self, points: Floats) -> Floats:
        """Return the chances of each label, (point, label)."""
        parts = np.array(self.parts)
        label, share, x, y, xx, xy, yy = parts.T
        scale = np.log(share) + 0.5 * np.log(xx * yy - xy**2)
        found: Floats = np.zeros((len(points), len(self.labels)))
        begins = np.flatnonzero(np.diff(label, prepend=-1))
        for some in range(0, len(points), 1000):
            here = slice(some, some + 1000)
            right, up = points[here, :1] - x, points[here, 1:] - y
            logs = scale - 0.5 * (xx * right**2 + 2 * xy * right * up + yy * up**2)
            logs -= logs.max(axis=1, keepdims=True)
            sums = np.add.reduceat(np.exp(logs), begins, axis=1)
            found[here, label[begins].astype(int)] = sums
        found /= found.sum(axis=1, keepdims=True)
        return found


def areas_of(
    column: pd.Series[Any], numbers: Mapping[Hashable, Floats], least: int
) -> tuple[tuple[Hashable, ...], Areas] | None:
    """Find two columns of numbers that tell a column's labels, of `least` records each at least.

    Tried are pairs of those numbers whose variance is between labels by `_TELLING` and more.
    """
    if column.dtype == object and not are_hashable(column):
        return None
    codes, labels = pd.factorize(column.where(column.isin(held_by(column, least))))
    if not _FEWEST <= len(labels) <= min(_MOST, len(column) // 10):
        return None
    telling = {k: _between(codes, own) for k, own in numbers.items() if k != column.name}
    some = sorted((k for k in telling if telling[k] >= _TELLING), key=telling.__getitem__)
    best: tuple[tuple[Hashable, ...], Areas] | None = None
    for pair in combinations(some[: -_NUMBERS - 1 : -1], 2):
        points = np.stack([numbers[k] for k in pair], axis=1)
        known = np.isfinite(points).all(axis=1) & (codes >= 0)
        made = Areas.of(points[known], codes[known], list(map(plain_value, labels)), max(least, 3))
        if made is not None and (best is None or made.score > best[1].score):
            best = pair, made
    return best


def _between(codes: Codes, own: Floats) -> float:
    """Return the share of a number's variance, by ranks, that is between labels."""
    known = np.isfinite(own) & (codes >= 0)
    ranks = pd.Series(own[known]).rank().to_numpy()
    counts = np.maximum(1, np.bincount(codes[known]))
    means = np.bincount(codes[known], ranks) / counts
    total = float(np.var(ranks))
    noise = (len(counts) - 1) / max(1, len(ranks))
    return float(np.var(means[codes[known]])) / total - noise if total > 0 else 0.0


def _parts(
    points: Floats, codes: Codes, smallest: int, depth: int
) -> tuple[tuple[float, ...], ...]:
    """Halve the records of each label as often, and describe each part of `smallest` and more."""
    scale = points.std(axis=0)
    found = []
    for code in range(int(codes.max()) + 1):
        own = points[codes == code]
        if len(own) >= smallest:
            found += [(code, part) for part in _halved(own / scale, smallest, depth)]
    centres = np.array([part.mean(axis=0) for _, part in found])
    squares = np.array([(part - c).T @ (part - c) for (_, part), c in zip(found, centres)])
    counts = np.array([float(len(part)) for _, part in found])
    usual = squares.sum(axis=0) / max(1.0, float((counts - 1).sum())) + 1e-9 * np.eye(2)
    covariances = (squares + _PRIOR * usual) / (counts - 1 + _PRIOR)[:, None, None]
    inverse = np.linalg.inv(covariances) / np.outer(scale, scale)
    described = zip(found, counts / counts.sum(), centres * scale, inverse)
    return tuple(
        (float(code), float(n), *map(float, (*c, i[0, 0], i[0, 1], i[1, 1])))
        for (code, _), n, c, i in described
    )


def _halved(own: Floats, smallest: int, depth: int) -> Iterator[Floats]:
    """Yield parts of points, halved along the longer side."""
    if not depth or len(own) < 2 * smallest:
        yield own
        return
    axis = int(np.argmax(own.std(axis=0)))
    order = np.argsort(own[:, axis], kind="stable")
    for half in np.array_split(order, 2):
        yield from _halved(own[half], smallest, depth - 1)
