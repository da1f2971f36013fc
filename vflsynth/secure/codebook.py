"""Vectors of whole numbers that stand for the states of columns: public, and the same for all."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import combinations
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Code: TypeAlias = npt.NDArray[np.int64]
"""Of one column, shape (state, coordinate)."""

Pair = tuple[str, str]


def pairs_of(names: Iterable[str]) -> list[Pair]:
    """Return all pairs of parties, in the order in which shares hold them."""
    return list(combinations(sorted(names), 2))


def coordinates_of(codes: Iterable[Code]) -> list[slice]:
    """Return which coordinates each code has where they are side by side."""
    ends = np.cumsum([0, *(code.shape[1] for code in codes)]).tolist()
    return [slice(start, end) for start, end in zip(ends, ends[1:])]


class Codebook:
    """Codes of all parties' columns, by party in its order, int64 (state, coordinate) of each."""

    def __init__(self, codes: Mapping[str, Sequence[Code]]) -> None:
        self.codes = {name: list(codes[name]) for name in sorted(codes)}
        self.pairs = pairs_of(codes)
        self.ranks = {name: rank for rank, name in enumerate(self.codes)}
        self.widths = {name: sum(c.shape[1] for c in own) for name, own in self.codes.items()}

    def encode(self, party: str, states: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return codes side by side, (record, coordinate), of a party's states (record, column)."""
        columns = [code[own] for code, own in zip(self.codes[party], states.T, strict=True)]
        return np.concatenate([np.zeros((len(states), 0), np.int64), *columns], 1)

    @property
    def all(self) -> list[Code]:
        """Return the codes of all columns, party by party."""
        return [code for own in self.codes.values() for code in own]

    def others(self, party: str) -> list[str]:
        """Return all parties but one, by name."""
        return [name for name in self.codes if name != party]

    def columns(self, party: str) -> list[slice]:
        """Return which coordinates are each of a party's columns'."""
        return coordinates_of(self.codes[party])

    @cached_property
    def digest(self) -> str:
        """A hash of all codes: who has other ones draws other masks."""
        hashed = hashlib.sha256()
        for number, own in enumerate(self.codes.values()):
            for code in own:
                hashed.update(f"{number} {code.shape}".encode() + code.astype("<i8").tobytes())
        return hashed.hexdigest()
