"""Standard scores."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from vflsynth.columns.arrays import Floats
from vflsynth.columns.encoders.base import Curve
from vflsynth.registry import register


@register
class Standardizer(Curve):
    """``(x - mean) / std``.

    Notes
    -----
    Source: VFLGAN §4.1, Eq. 22.

    Departs from the paper's words, not from its code: the paper calls the divisor "variance", the
    release divides by the standard deviation with n - 1 in its denominator. So do we; the test is
    ``tests/unit/columns/test_encoders.py``.
    """

    name: ClassVar[str] = "standard"
    is_straight: ClassVar[bool] = True

    def bend(self, numbers: Floats) -> Floats:
        """Return the numbers."""
        return numbers

    def unbend(self, bent: Floats) -> Floats:
        """Return the numbers."""
        return bent

    def error(self, lower: float, upper: float) -> float:
        """Bound the rounding of the scaled number to float32 and of the float64 arithmetic."""
        return self._error_of_bent(np.array([lower, upper]))
