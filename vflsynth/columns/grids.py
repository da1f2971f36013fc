"""Grids that nearly all values of a numeric column lie on: tenths, hundreds, whole hours.

An axis knows the grid of *all* values, and one odd value spoils it. Generated values go to the grid
of nearly all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

NEARLY_ALL = 0.95
"""Share of the values that lie on a grid that generated ones are put on."""

# Powers of ten that steps are looked for between, the precision of a value that arithmetic may have
# gone through, and values looked at.
_LARGEST, _SMALLEST = 9, -9
_PRECISION = 1e-9
_LOOKED_AT = 20_000

SPACINGS = 16.0
"""Of a type's floats, that a step has at least: each of them is a multiple of less."""

_SECONDS = (86_400, 3_600, 900, 60, 1)
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass(frozen=True)
class ColumnGrid:
    """Whole multiples of a step.

    Parameters
    ----------
    step : int or float
        An int for columns of whole numbers and times.
    decimals : int
        Of the step.
    lower, upper : int or float
        Outermost multiples inside the column's range.
    """

    step: int | float
    decimals: int
    lower: int | float
    upper: int | float

    def __post_init__(self) -> None:
        if not 0 < self.step < math.inf or not self.lower <= self.upper or self.decimals < 0:
            raise ValueError(f"not a grid: {self}")

    @classmethod
    def fit(
        cls,
        ordered: npt.NDArray[Any],
        steps: Iterable[tuple[int | float, int]],
        precision: float = 0.0,
    ) -> Self | None:
        """Find the widest step whose multiples nearly all values are.

        Parameters
        ----------
        ordered : array of float64, int64 or uint64, shape (value,)
            Sorted, at least one.
        steps : iterable of (int or float, int)
            Steps with their decimals, wide ones first.
        precision : float, default=0
            Relative precision of the column's own dtype.

        Returns
        -------
        ColumnGrid or None
            None if there is none with three places or more within the range.
        """
        some = ordered[:: -(-len(ordered) // _LOOKED_AT)]
        lowest, highest = ordered[0].item(), ordered[-1].item()
        finest = SPACINGS * max(precision, 2.0**-52) * max(abs(lowest), abs(highest))
        for step, decimals in steps:
            if step < finest and not isinstance(step, int):
                return None  # every float of this size would be on it
            if 2 * step > highest - lowest or _on_grid(some, step, precision) < NEARLY_ALL:
                continue
            if isinstance(step, int):
                lower, upper = -(-lowest // step) * step, highest // step * step
            else:
                lower = round(math.ceil(lowest / step - _PRECISION) * step, decimals)
                upper = round(math.floor(highest / step + _PRECISION) * step, decimals)
            return cls(step, decimals, lower, upper) if upper - lower >= 1.99 * step else None
        return None

    def nearest(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the nearest place of the grid, shape and dtype of `values`."""
        inside = np.clip(values, self.lower, self.upper)
        nearest: npt.NDArray[Any]
        if isinstance(self.step, int):
            beyond = (inside - self.lower) % self.step
            down = inside - beyond
            nearest = np.where(2 * beyond > self.step, down + self.step, down).astype(values.dtype)
        else:
            nearest = np.round(np.rint(inside / self.step) * self.step, self.decimals)
        return nearest


def decimal_steps() -> Iterator[tuple[float, int]]:
    """List steps of 5, 2.5, 2 and 1 times powers of ten, wide first, with their decimals."""
    for power in range(_LARGEST, _SMALLEST - 1, -1):
        for digits in (50, 25, 20, 10):
            decimals = max(0, 1 - power - (digits % 10 == 0))
            yield round(digits * 10.0 ** (power - 1), decimals), decimals


def whole_steps() -> Iterator[tuple[int, int]]:
    """Those of them that are whole, but for 1."""
    return ((int(step), 0) for step, decimals in decimal_steps() if not decimals and step > 1)


def time_steps(unit: str) -> Iterator[tuple[int, int]]:
    """List a day, an hour, a quarter of one, a minute and a second, as counts of a unit."""
    return ((seconds * _UNITS[unit], 0) for seconds in _SECONDS)


def _on_grid(values: npt.NDArray[Any], step: int | float, precision: float) -> float:
    """Share of the values that are multiples of a step."""
    if isinstance(step, int):
        return float((values % step == 0).mean())
    multiples = values / step
    off = np.abs(multiples - np.rint(multiples)) * step
    error = max(precision, _PRECISION) * np.maximum(np.abs(values), step)
    return float((off <= np.minimum(error, 0.01 * step)).mean())
