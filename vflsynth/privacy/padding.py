"""Dummies that hide how many records parties have in common from whoever counts them.

Parties share a secret that the server lacks. Each derives the same number D of dummies of it, adds
the same D keys that nobody has to its own, and fills the D records that come of them with nothing.
Whoever counts what is common then counts N + D.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import accumulate

from vflsynth._random import derive

_ONE = 1 << 256  # weights are in units of 2^-256
_RATIO_BITS = 32
_DRAWN_BITS = 512


@dataclass(frozen=True, slots=True)
class Padding:
    """A number of dummies that hides one record more or less in a count.

    D is from 0 to twice a center c, with probability in proportion to ``exp(-epsilon |D - c|)``:
    the discrete Laplace distribution, shifted and cut off. Counts of N + D and of N + 1 + D' differ
    in probability by a factor of at most ``exp(epsilon)``, but for N and for N + 2 c + 1, which
    only one of them can be; c is the smallest with which that has a probability of at most `delta`.

    Both numbers are of one count. Counts of several runs add up as releases do: with the same
    records, k runs have k times `epsilon` and `delta`. D is new in every run, so that they do no
    worse.

    Examples
    --------
    >>> Padding(1.0, 1e-5).largest
    22
    """

    epsilon: float
    delta: float

    @classmethod
    def of_groups(cls, epsilon: float, delta: float, n_parties: int) -> Padding:
        """Choose the padding of every group of parties, for the budget of all groups.

        A record that one party has in place of another changes what two parties have in common by
        one at most. Among more parties it may leave one group's count for another's and the other
        record likewise, four counts in all, each of which gets a quarter.
        """
        parts = 1 if n_parties < 3 else 4
        return cls(epsilon / parts, delta / parts)

    @property
    def largest(self) -> int:
        """The largest D."""
        return 2 * self._center

    @property
    def _center(self) -> int:
        ratio = math.exp(-self.epsilon)

        def missed(center: int) -> float:
            others = ratio * (1.0 - ratio**center) / (1.0 - ratio)
            return ratio**center / (1.0 + 2.0 * others)

        enough = 1
        while missed(enough) > self.delta:
            enough *= 2
        return bisect_left(range(enough), True, lo=1, key=lambda n: missed(n) <= self.delta)

    def weights(self) -> list[int]:
        """Return what the probabilities of D = 0, 1, ... are in proportion to, as whole numbers.

        Neighbours' ratios are rounded towards one, so that none is above ``exp(epsilon)``.
        """
        ratio = math.floor(math.exp(-self.epsilon) * (1 << _RATIO_BITS)) + 1
        side = [_ONE]
        for _ in range(self._center):
            side.append(side[-1] * ratio >> _RATIO_BITS)
        return [*reversed(side[1:]), *side]

    def draw(self, secret: bytes) -> int:
        """Return the D of a secret, which must be new in every run.

        Its distribution is that of `weights` to 2^-255, for whoever cannot tell the secret's
        digests from random numbers.
        """
        drawn = derive(secret, "dummies|0") + derive(secret, "dummies|1")
        weights = self.weights()
        point = int.from_bytes(drawn, "big") * sum(weights) >> _DRAWN_BITS
        return bisect_right(list(accumulate(weights)), point)
