"""Standard scores, and the choice between them and normal scores by the column's shape."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from vflsynth.columns.arrays import Floats
from vflsynth.columns.encoders.base import Curve, Encoder
from vflsynth.columns.encoders.quantile import NormalScores
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


# A column has long tails if its standard deviation is so many times that of a normal column of the
# same interquartile range, or if a value is so many standard deviations from the mean.
_WIDE, _FAR = 2.0, 8.0
_IQR_OF_NORMAL = 1.349


@register
class Auto(Standardizer):
    """Standard scores, and normal scores of ranks for a column with long tails.

    Standardised, most values of such a column would lie within a few hundredths of each other,
    where a network cannot tell them apart.
    """

    name: ClassVar[str] = "auto"

    def fit(
        self, ordered: Floats, *, least: int = 1, zero: float = 0.0, unit: float = 1.0
    ) -> Encoder:
        """Return a fitted `Standardizer` or `NormalScores`."""
        standard = Standardizer().fit(ordered)
        scaled = standard.scale(ordered)
        low, high = np.quantile(scaled, [0.25, 0.75])
        wide = _WIDE * (high - low) < _IQR_OF_NORMAL
        long_tails = wide or max(-scaled[0], scaled[-1]) > _FAR
        return NormalScores().fit(ordered) if long_tails else standard

    def published(self) -> Standardizer:
        """Return standard scores: histograms tell no ranks."""
        return Standardizer()
