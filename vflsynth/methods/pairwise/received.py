"""Codes of columns that somebody else sent: refused by name where they cannot be."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vflsynth.exceptions import ProtocolError
from vflsynth.methods.pairwise.column_codes import CODE_NORM
from vflsynth.methods.pairwise.messages import ColumnTables, StateCodes
from vflsynth.protocol import SERVER
from vflsynth.secure import Code


def codes_of(message: ColumnTables | StateCodes, sizes: Sequence[int], width: int) -> list[Code]:
    """Return the codes of columns' states, which nobody may have made longer than they may be.

    Columns have `sizes` states, and codes at most `width` coordinates; ProtocolError, naming the
    sender, if they are others than there can be.
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
