"""Encoded rows as codes and numbers, column by column, and what a network sees of them.

A column that sees all before it makes a network whose size grows with the square of the columns.
Beyond `MOST_SEEING_ALL` columns of a party, each sees the `N_SEEN` earlier columns of the same
party that depend on it most, and the context of the parties before, as every column does. The
choice is the party's own, from its own records, and stays in its half of the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from vflsynth.columns import OutputSpan

_CENTRES = tuple(-2.5 + 0.5 * i for i in range(11))
"""Of the bumps by which networks see a number, in normal scores."""

VALUE_FEATURES = 1 + len(_CENTRES)
"""Features of one number."""


@dataclass(frozen=True, slots=True)
class EncodedColumn:
    """Where one table column is in the encoded row.

    `codes` are the one-hot code of its category or state, None for numbers that are always
    ordinary; `value` is the scaled number, which counts where the code is 0. `within`, of the
    second part of a code in two parts, says how many codes it may have by the code of the column
    before it.
    """

    codes: slice | None
    value: int | None
    within: tuple[int, ...] | None = None

    @property
    def n_codes(self) -> int:
        """Number of categories or states."""
        return 1 if self.codes is None else self.codes.stop - self.codes.start


class Layout:
    """The columns of encoded rows, as codes and numbers.

    `columns` are in the order of the row, `numeric` says which of them have numbers, and `width` is
    that of the row.
    """

    def __init__(self, spans: Sequence[OutputSpan]) -> None:
        columns: list[EncodedColumn] = []
        pending: int | None = None  # a number whose states come next
        for span in spans:
            if span.activation == "softmax":
                codes = slice(span.start, span.stop)
                columns.append(EncodedColumn(codes, pending, span.within))
                pending = None
            elif span.gate is not None:
                pending = span.start
            else:
                columns.append(EncodedColumn(None, span.start))
        self.columns = tuple(columns)
        self.numeric = tuple(i for i, c in enumerate(columns) if c.value is not None)
        self.width = sum(span.width for span in spans)

    def split(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Read codes, int64 (record, column), and numbers, (record, numeric column), off rows."""
        codes = rows.new_zeros(len(rows), len(self.columns), dtype=torch.long)
        for i, column in enumerate(self.columns):
            if column.codes is not None:
                codes[:, i] = rows[:, column.codes].argmax(1)
        return codes, rows[:, [self.columns[i].value for i in self.numeric]]

    def join(self, codes: Tensor, values: Tensor) -> Tensor:
        """Undo `split`; a number counts only where its code is 0."""
        rows = values.new_zeros(len(codes), self.width)
        for i, column in enumerate(self.columns):
            if column.codes is not None:
                rows[:, column.codes] = F.one_hot(codes[:, i], column.n_codes).to(rows.dtype)
        for k, i in enumerate(self.numeric):
            place = self.columns[i].value
            assert place is not None
            rows[:, place] = values[:, k] * (codes[:, i] == 0)
        return rows


def value_features(values: Tensor, ordinary: Tensor) -> Tensor:
    """Show numbers to a network, (..., numeric column * 12): themselves, and bumps around centres.

    Where they do not count (`ordinary`), all features are 0.
    """
    values = values.unsqueeze(-1)
    centres = values.new_tensor(_CENTRES)
    shown = torch.cat([values, torch.exp(-2.0 * (values - centres).square())], -1)
    return (shown * ordinary.unsqueeze(-1)).flatten(-2)


MOST_SEEING_ALL = 64
"""Columns of a party, parts of codes counted each, up to which every one sees all before it."""

N_SEEN = 16
"""Earlier columns that each sees where there are more."""

_BINS, _MOST_RECORDS, _AT_ONCE = 6, 2_000, 64


@torch.no_grad()
def seen_columns(layout: Layout, codes: Tensor, values: Tensor) -> Tensor | None:
    """Choose what every column sees, of earlier ones, -1 where there are fewer; None if all.

    Dependence is chi-squared per record of the two columns' contingency table, less what
    independent ones have on average. A column is cut into at most six bins for it: its most
    frequent codes and the rest, and ordinary numbers at their quantiles. The second part of a code
    always sees the first. At most 2,000 records, evenly spaced, are looked at.
    """
    n_columns = len(layout.columns)
    if n_columns <= MOST_SEEING_ALL:
        return None
    some = torch.linspace(0, len(codes) - 1, min(len(codes), _MOST_RECORDS)).long()
    some = some.to(codes.device)
    numbers = {i: k for k, i in enumerate(layout.numeric)}
    shown, starts = [], [0]
    for i in range(n_columns):
        place = numbers.get(i)
        bins = _binned(codes[some, i].long(), None if place is None else values[some, place])
        shares = F.one_hot(bins).float()
        shares = shares[:, shares.any(0)]
        expected = shares.mean(0)
        shown.append((shares - expected) / expected.sqrt())
        starts.append(starts[-1] + shares.shape[1])
    scaled = torch.cat(shown, 1)
    free = torch.tensor(starts).diff().to(scaled) - 1.0
    which = torch.repeat_interleave(torch.arange(n_columns), torch.tensor(starts).diff())
    which = which.to(codes.device)
    chosen = torch.full((n_columns, N_SEEN), -1, device=codes.device)
    bounds = [*range(0, n_columns, _AT_ONCE), n_columns]
    for first, last in pairwise(bounds):
        found = scaled[:, starts[first] : starts[last]].T @ scaled[:, : starts[last]] / len(some)
        found = found.square()
        rows = which[starts[first] : starts[last]] - first
        told = found.new_zeros(last - first, found.shape[1]).index_add_(0, rows, found)
        scores = told.new_zeros(last - first, last)
        scores.index_add_(1, which[: starts[last]], told)
        scores -= free[first:last, None] * free[:last] / len(some)
        for i in range(first, last):
            if layout.columns[i].within is not None:
                scores[i - first, i - 1] = torch.inf
            best = scores[i - first, :i].topk(min(i, N_SEEN)).indices
            chosen[i, : len(best)] = best.sort().values
    return chosen


def _binned(codes: Tensor, values: Tensor | None) -> Tensor:
    """Cut a column into few bins, by its frequent codes and the quantiles of its numbers."""
    counts = torch.bincount(codes)
    rank = counts.argsort(descending=True, stable=True).argsort()
    if values is None:
        return rank[codes].clamp_max(_BINS - 1)
    bins = rank[codes].clamp_max(1) + _BINS - 2
    ordinary = codes == 0
    if bool(ordinary.any()):
        own = values[ordinary]
        levels = torch.linspace(0, 1, _BINS - 1, device=own.device)[1:-1].to(own)
        bins[ordinary] = torch.bucketize(own, torch.quantile(own, levels))
    return bins
