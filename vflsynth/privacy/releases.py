"""The one way in which numbers computed from records leave: as whole numbers on a public grid.

Whatever is published is a sum of contributions, one per record, with noise. Each contribution is
rounded to a grid *before* it is added to others, the sum is of whole numbers and hence exact, and
the noise is a whole number too (`vflsynth.privacy.noise`). Then every value of the grid is possible
whatever the records are, and ε is about what is published, not about real numbers that a computer
only approximates: floating-point sums of signal and noise have gaps that depend on the signal, by
which whoever knows the other records can tell one with certainty (Mironov 2012).

The grid follows from the noise's standard deviation, which is public, and is about 10⁹ times finer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vflsynth.exceptions import PrivacyParameterError, ProtocolError
from vflsynth.privacy.noise import BLOCKS, LARGEST_SIGMA, discrete_gaussian

RESOLUTION = 30
"""A standard deviation of noise has from 2**30 to 2**31 steps, if nothing else is said."""

TAIL = 20
"""Standard deviations of noise that there is room for; more are for once in 10^88 draws."""

_LARGEST_SUM = 2**62

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_watcher: ContextVar[list[Release] | None] = ContextVar("releases of this thread", default=None)


@contextmanager
def watched_releases() -> Iterator[list[Release]]:
    """Keep what this thread publishes: for audits, which look at nothing else of a private run."""
    found: list[Release] = []
    token = _watcher.set(found)
    try:
        yield found
    finally:
        _watcher.reset(token)


@dataclass(frozen=True, slots=True)
class Grid:
    """Public multiples of a power of two, and the noise of what is published on them.

    The step is ``2**exponent``, in units of what is published. `sigma` is the standard deviation of
    the discrete Gaussian noise, in steps: a multiple of 16. PrivacyParameterError if a number is
    out of range.

    Examples
    --------
    >>> grid = Grid.of(2.5)
    >>> grid.exponent, grid.sigma
    (-29, 1342177296)
    >>> grid.truncate([0.75, -0.3]).tolist()
    [402653184, -161061273]
    """

    exponent: int
    sigma: int

    def __post_init__(self) -> None:
        if not -900 <= self.exponent <= 900:
            raise PrivacyParameterError("exponent", self.exponent, "between -900 and 900")
        if self.sigma % BLOCKS or not 0 < self.sigma <= LARGEST_SIGMA:
            raise PrivacyParameterError(
                "sigma", self.sigma, f"a multiple of {BLOCKS} from {BLOCKS} to {LARGEST_SIGMA}"
            )

    @classmethod
    def of(cls, noise_std: float, resolution: int = RESOLUTION) -> Grid:
        """Choose the grid by the standard deviation of the continuous noise that is accounted for.

        It has from ``2**resolution`` steps on. The grid has ``sigma**2 >= (noise_std / step)**2 +
        16``, which is what the accounting needs (see `vflsynth.privacy.noise`), and a standard
        deviation that is larger than `noise_std` by at most 3 in 10⁸.
        """
        if not (math.isfinite(noise_std) and noise_std > 0.0):
            raise PrivacyParameterError("noise_std", noise_std, "a positive finite number")
        exponent = math.frexp(noise_std)[1] - 1 - resolution
        steps = math.ldexp(noise_std, -exponent)  # exact, at least 2**resolution
        return cls(exponent, BLOCKS * (math.ceil(steps / BLOCKS) + 1))

    @property
    def step(self) -> float:
        """Distance of neighbouring values, a power of two."""
        return math.ldexp(1.0, self.exponent)

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise that is drawn, in units of what is published."""
        return math.ldexp(float(self.sigma), self.exponent)

    def most(self, n_records: int) -> float:
        """Return how large a published count of so many records can be, of either sign."""
        return n_records + TAIL * self.noise_std

    def count(self, counts: Ints) -> Ints:
        """Turn numbers of records, or of other whole units of either sign, into steps, exactly.

        Zeros if the noise is above 2**31, of which one step is more than a record. ProtocolError if
        there are so many records, for so little noise, that they cannot be added up.
        """
        per_record = 1 << -self.exponent if self.exponent <= 0 else 0
        if counts.size and int(np.abs(counts).max()) * per_record > _LARGEST_SUM:
            raise ProtocolError("counts are too large for their noise. Fix: use more noise")
        return counts * np.int64(per_record)

    def truncate(self, values: npt.ArrayLike) -> Ints:
        """Round numbers to the grid towards zero, in steps, so that no vector becomes longer.

        They are one record's contributions, or many records' side by side; never sums over records.
        ProtocolError if one is not finite or too large: it would void the sensitivity.
        """
        scaled = np.ldexp(np.asarray(values, dtype=np.float64), -self.exponent)
        if not (np.abs(scaled) < _LARGEST_SUM).all():
            raise ProtocolError(
                "a number to be published is not finite, or too large for its noise. "
                "Fix: the bounds of what it is computed from."
            )
        return np.trunc(scaled).astype(np.int64)

    def noise(self, shape: Sequence[int], *, rng: torch.Generator | None = None) -> Ints:
        """Draw the noise of a release, in steps; see `discrete_gaussian`."""
        return discrete_gaussian(shape, self.sigma, rng=rng)

    def release(self, total: Ints, *, rng: torch.Generator | None = None) -> Release:
        """Add noise to a sum of contributions and publish it.

        The sum is in steps and exact: of what `truncate` returned, or what `count` did.
        ProtocolError if it is not of whole numbers, or adding to it might overflow. `rng` is for
        tests only.
        """
        if total.dtype != np.int64:
            raise ProtocolError(f"only whole numbers are published, not {total.dtype}")
        if total.size and max(-int(total.min()), int(total.max())) > _LARGEST_SUM:
            raise ProtocolError("a sum over records is too large for its noise to be added")
        published = Release(total + self.noise(total.shape, rng=rng), self)
        if (watcher := _watcher.get()) is not None:
            watcher.append(published)
        return published

    def release_tensor(self, vector: Tensor, *, rng: torch.Generator | None = None) -> Tensor:
        """Publish one bounded vector that is not a sum over records, rounded to the grid.

        It was clipped as a whole, and rounding towards zero makes it no longer. What is returned is
        rounded to the tensor's type. `rng` is for tests only.
        """
        published = self.release(self.truncate(vector.detach().cpu().numpy()), rng=rng)
        return torch.tensor(published.values).to(vector)


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """Published whole numbers: so many steps of a grid."""

    steps: Ints
    grid: Grid

    @property
    def values(self) -> Floats:
        """What was published, in its own units, as near as doubles come to it."""
        return np.ldexp(self.steps.astype(np.float64), self.grid.exponent)
