"""What the other side says in numbers, whatever the method: refused by name where it cannot be."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from vflsynth.exceptions import ProtocolError
from vflsynth.learning.messages import PublishedTables
from vflsynth.privacy.releases import Floats, Grid, Release

_ROUNDING = 1e-5
"""By which shares of 32 bits may miss a sum of 1."""


def states_of(message: PublishedTables, expected: int, width: int) -> list[int]:
    """Return how many states, at most `width`, a party's columns or latent attributes have.

    Raises ProtocolError if there are other numbers than there must be, naming the party.
    """
    sizes: list[int] = message.sizes.tolist()
    if len(sizes) != expected or not all(0 < size <= width for size in sizes):
        raise ProtocolError(
            f"party {message.sender!r} says that its {message.of} have {sizes} states; expected "
            f"{expected} numbers from 1 to {width}"
        )
    return sizes


def tables_of(
    message: PublishedTables,
    shapes: Sequence[tuple[int, int]],
    largest: int,
    grid: Grid | None,
) -> list[Floats]:
    """Return a party's published tables, of shapes by the numbers of states that the party told.

    `largest` is that of a number in them, without noise; the grid is of the party's noise, None if
    there is no table. Raises ProtocolError if there are more counts, fewer, or larger ones than can
    be, naming the party.
    """
    cells = [rows * columns for rows, columns in shapes]
    steps = message.counts.cpu().numpy()
    values = np.zeros(len(steps)) if grid is None else Release(steps, grid).values
    most = 0.0 if grid is None else grid.most(largest)
    found = float(np.abs(values).max(initial=0.0))
    if len(values) != sum(cells) or found > most:
        raise ProtocolError(
            f"party {message.sender!r} sent {len(values)} counts of up to {found:.4g}; "
            f"expected {sum(cells)} counts of at most {most:.4g}, noise included"
        )
    parts = np.split(values, np.cumsum(cells)[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=bool(shapes))]


def check_distributions(shares: Tensor, what: str, *, least: float = 0.0) -> None:
    """Refuse shares, (..., state), that are no distributions; `what` says whose, for the error.

    Raises ProtocolError if a share is not finite or below `least`, or shares of states do not add
    up to 1.
    """
    totals = shares.double().sum(-1)
    right = (shares >= least).all() and ((totals - 1.0).abs() <= _ROUNDING).all()
    if not shares.numel() or not bool(right):
        found = "no shares"
        if shares.numel():
            found = f"shares from {shares.min():.4g}, sums {totals.min():.4g} to {totals.max():.4g}"
        raise ProtocolError(f"{what}: {found}; expected shares from {least:g}, sums of 1")
