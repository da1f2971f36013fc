"""What the other side says in numbers, whatever the method: refused by name where it cannot be."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from vflsynth.exceptions import ProtocolError
from vflsynth.networks.column_codes import CODE_NORM
from vflsynth.privacy.releases import Floats, Grid, Release
from vflsynth.protocol import SERVER
from vflsynth.protocol.messages import ColumnTables, LatentTables, StateCodes
from vflsynth.secure import Code

_ROUNDING = 1e-5
"""By which shares of 32 bits may miss a sum of 1."""


def states_of(message: ColumnTables | LatentTables, expected: int, width: int) -> list[int]:
    """Return how many states a party's columns or latent attributes have.

    Parameters
    ----------
    message : ColumnTables or LatentTables
    expected : int
        Columns or latent attributes.
    width : int
        Most states of one.

    Raises
    ------
    ProtocolError
        If there are other numbers than there must be, naming the party.
    """
    sizes: list[int] = message.sizes.tolist()
    if len(sizes) != expected or not all(0 < size <= width for size in sizes):
        what = "columns" if isinstance(message, ColumnTables) else "latent attributes"
        raise ProtocolError(
            f"party {message.sender!r} says that its {what} have {sizes} states; expected "
            f"{expected} numbers from 1 to {width}"
        )
    return sizes


def codes_of(message: ColumnTables | StateCodes, sizes: Sequence[int], width: int) -> list[Code]:
    """Return the codes of columns' states, which nobody may have made longer than they may be.

    Parameters
    ----------
    message : ColumnTables or StateCodes
    sizes : sequence of int
        States of every column.
    width : int
        Most coordinates of a code.

    Raises
    ------
    ProtocolError
        If they are others than there can be, naming the sender.
    """
    coordinates: list[int] = message.coordinates.tolist()
    whose = "the server" if message.sender == SERVER else f"party {message.sender!r}"
    what = f"{whose} sent codes of columns"
    numbers = [size * own for size, own in zip(sizes, coordinates, strict=False)]
    right = len(coordinates) == len(sizes) and all(0 < own <= width for own in coordinates)
    if not right or len(message.codes) != sum(numbers):
        raise ProtocolError(
            f"{what} with {coordinates} coordinates, {len(message.codes)} numbers; expected those "
            f"of {len(sizes)} columns, each from 1 to {width}, for {list(sizes)} states"
        )
    found = message.codes.cpu().numpy()
    if not ((found >= -CODE_NORM) & (found <= CODE_NORM)).all():
        raise ProtocolError(f"{what} from {found.min()} to {found.max()}; they have {CODE_NORM}")
    parts = np.split(found, np.cumsum(numbers))[:-1]
    codes = [own.reshape(n, -1) for own, n in zip(parts, sizes, strict=True)]
    longest = max((int((code**2).sum(1).max()) for code in codes), default=0)
    if longest > CODE_NORM**2:
        raise ProtocolError(
            f"{what} of squared norm {longest}; expected at most {CODE_NORM}², which the noise is "
            "for"
        )
    return codes


def tables_of(
    message: ColumnTables | LatentTables,
    shapes: Sequence[tuple[int, int]],
    largest: int,
    grid: Grid | None,
) -> list[Floats]:
    """Return a party's published tables.

    Parameters
    ----------
    message : ColumnTables or LatentTables
    shapes : sequence of (int, int)
        Of the tables, by the numbers of states that the party told.
    largest : int
        Of a number in them, without noise.
    grid : Grid, optional
        Of the party's noise. Default: there is no table.

    Raises
    ------
    ProtocolError
        If there are more counts, fewer, or larger ones than can be, naming the party.
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
    """Refuse what is no distribution, or are none.

    Parameters
    ----------
    shares : Tensor of float, shape (..., state)
    what : str
        Whose, for the error.
    least : float, default=0.0
        Of every share.

    Raises
    ------
    ProtocolError
        If a share is not finite or below `least`, or shares of states do not add up to 1.
    """
    totals = shares.double().sum(-1)
    right = (shares >= least).all() and ((totals - 1.0).abs() <= _ROUNDING).all()
    if not shares.numel() or not bool(right):
        found = "no shares"
        if shares.numel():
            found = f"shares from {shares.min():.4g}, sums {totals.min():.4g} to {totals.max():.4g}"
        raise ProtocolError(f"{what}: {found}; expected shares from {least:g}, sums of 1")
