"""Keys of nobody among those that a party shows, so that numbers of common ones are hidden.

Every group of two parties and more draws its own number of dummies (`vflsynth.privacy.padding`) of
the parties' secret, and each of its members has them. Without those of smaller groups, the
difference of what all have in common and what some have would be told to the last record. Keys that
the party alone has fill its list up to a length that depends on public numbers only.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from vflsynth._random import derive
from vflsynth.exceptions import ParameterError
from vflsynth.privacy.padding import Padding

_MOST_PARTIES = 10  # of which a party shares 511 groups


@dataclass(frozen=True, slots=True)
class Dummies:
    """The dummies of one party: texts in place of keys, those of the group of all parties first.

    `n_common` is how many of them all parties have.
    """

    texts: tuple[str, ...] = ()
    n_common: int = 0

    @classmethod
    def of(
        cls, padding: Padding | None, name: str, names: Sequence[str], session: bytes
    ) -> Dummies:
        """Draw the dummies of a run; the session is of the parties' secret, new in every run.

        Raises ParameterError if there are too many parties.
        """
        if padding is None:
            return cls()
        if len(names) > _MOST_PARTIES:
            raise ParameterError(
                f"intersection_epsilon is for at most {_MOST_PARTIES} parties, as every group of "
                f"them needs dummies of its own; there are {len(names)}"
            )
        texts: list[str] = []
        common = 0
        for size in range(len(names), 1, -1):
            for group in combinations(sorted(names), size):
                if name in group:
                    secret = derive(session, f"dummies of|{'|'.join(group)}")
                    number = padding.draw(secret)
                    texts += [f"x{secret.hex()}|{i}" for i in range(number)]
                    common = number if size == len(names) else common
        while len(texts) < n_dummies(padding, len(names)):
            texts.append(f"x{os.urandom(32).hex()}")
        return cls(tuple(texts), common)


def n_dummies(padding: Padding | None, n_parties: int) -> int:
    """Return how many dummies every party shows, which everybody may know."""
    return 0 if padding is None else (2 ** (n_parties - 1) - 1) * padding.largest
