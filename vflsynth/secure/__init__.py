"""Sums over records of what several parties hold, of which nobody sees anything else.

Parties share a secret that the server lacks; messages go through the server alone. Nobody sees a
record of another: what is sent is hidden by masks of that secret, and what comes out has every
party's noise. `products` has the tables of all pairs of columns, `phases` the random features of
joint records. Both say who sees what, and why.
"""

from vflsynth.secure.phases import (
    RADIUS,
    Opening,
    PhaseParty,
    PhaseServer,
    angles_of,
    circle,
    unit,
)
from vflsynth.secure.products import Pair, ProductParty, ProductServer, pairs_of
from vflsynth.secure.ring import Arithmetic, Masks, record_blocks

__all__ = [
    "RADIUS",
    "Arithmetic",
    "Masks",
    "Opening",
    "Pair",
    "PhaseParty",
    "PhaseServer",
    "ProductParty",
    "ProductServer",
    "angles_of",
    "circle",
    "pairs_of",
    "record_blocks",
    "unit",
]
