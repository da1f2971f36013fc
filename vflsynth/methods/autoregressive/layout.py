"""Encoded rows as codes and numbers, column by column, and how networks see a number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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

    Parameters
    ----------
    codes : slice or None
        The one-hot code of its category or state; None for numbers that are always ordinary.
    value : int or None
        The scaled number, which counts where the code is 0.
    within : tuple of int, optional
        Of the second part of a code in two parts: how many codes it may have, by the code of the
        column before it.
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

    Parameters
    ----------
    spans : sequence of OutputSpan
        Of the encoded row.

    Attributes
    ----------
    columns : tuple of EncodedColumn
        In the order of the row.
    numeric : tuple of int
        Which of them have numbers.
    width : int
        Of the encoded row.
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
        codes = [
            rows.new_zeros(len(rows), dtype=torch.long)
            if column.codes is None
            else rows[:, column.codes].argmax(1)
            for column in self.columns
        ]
        places = [self.columns[i].value for i in self.numeric]
        shape = (len(rows), 0)
        stacked = torch.stack(codes, 1) if codes else rows.new_zeros(shape, dtype=torch.long)
        return stacked, rows[:, places]

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


def at_rows(values: Tensor, rows: Tensor) -> Tensor:
    """Look up records, (replica, batch, ...), at places of shape (replica, batch)."""
    if len(values) == 1:  # several times faster
        return values[0].index_select(0, rows[0]).unsqueeze(0)
    return values.gather(1, rows.unsqueeze(-1).expand(-1, -1, values.shape[-1]))


def value_features(values: Tensor, ordinary: Tensor) -> Tensor:
    """Show numbers to a network, (..., numeric column * 12): themselves, and bumps around centres.

    Where they do not count (`ordinary`), all features are 0.
    """
    values = values.unsqueeze(-1)
    centres = values.new_tensor(_CENTRES)
    shown = torch.cat([values, torch.exp(-2.0 * (values - centres).square())], -1)
    return (shown * ordinary.unsqueeze(-1)).flatten(-2)
