"""Logarithms."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from vflsynth._validation import Number
from vflsynth.columns.arrays import Floats
from vflsynth.columns.encoders.base import Curve
from vflsynth.registry import register


@register
class Log(Curve):
    """``sign(x) log(1 + |x| / linear)``, standardised: for amounts that span orders of magnitude.

    Parameters
    ----------
    linear : float, default=1.0
        Numbers that are small against this keep their distances, so that 0 and negative numbers
        have a place. In the column's unit; of times, the unit of their type.
    """

    name: ClassVar[str] = "log"
    rules: ClassVar = {"linear": Number(0, closed=(False, True))}

    def __init__(self, linear: float = 1.0) -> None:
        self.linear = linear

    def bend(self, numbers: Floats) -> Floats:
        """Take the logarithm."""
        return np.copysign(np.log1p(np.abs(numbers) / self.linear), numbers)

    def unbend(self, bent: Floats) -> Floats:
        """Take the exponential."""
        with np.errstate(over="ignore"):  # what a generator makes has no end
            return np.copysign(np.expm1(np.abs(bent)) * self.linear, bent)
