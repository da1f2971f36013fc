"""What an attack on a split training is, and what it is measured by."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.preprocessing import StandardScaler

Rows = npt.NDArray[np.intp]
Floats = npt.NDArray[np.floating]


class LeakageAttack(ABC):
    """One way to read labels off what a passive party has, or columns off what it sent.

    Subclasses are `Ranking` and `Inversion`; those that are registered are tried by every
    `leakage_report`, ours and those of other packages.
    """

    registry_group: ClassVar[str] = "leakage_attacks"
    name: ClassVar[str]


@dataclass(frozen=True)
class Found:
    """What an attack is, and how well it did.

    `knows` says what of the truth the attacker knows. `measure` is "AUC", "accuracy", "balanced
    accuracy" or "R²"; "mean R²" is over all columns of numbers. `value` and `baseline` are with
    what crosses at the cut, and without; NaN where the attack is not applicable. `column` was read;
    none where labels were.
    """

    attack: str
    knows: str
    measure: str
    value: float
    baseline: float
    column: str = ""


def as_frame(party: str, found: Sequence[Found]) -> pd.DataFrame:
    """Return one row per attack, with ``party`` and ``gain``, the difference to the baseline."""
    frame = pd.DataFrame(found, columns=list(Found.__dataclass_fields__))
    frame.insert(0, "party", party)
    return frame.assign(gain=frame["value"] - frame["baseline"])


def standardised(features: Floats) -> Floats:
    """Return columns of mean 0 and deviation 1; constant ones are 0."""
    scaled: Floats = StandardScaler().fit_transform(features) if features.shape[1] else features
    return scaled


def others_than(known: Rows, n: int) -> Rows:
    """Return the rows of n that are not known."""
    return np.setdiff1d(np.arange(n), known)
