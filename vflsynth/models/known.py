"""What is known of records that are completed, and how a state is chosen by its share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vflsynth.columns.evidence import Evidence


def pick(shares: Tensor, places: Tensor) -> Tensor:
    """Choose the states, int64 (row,), that places in the unit interval stand for.

    `shares` have shape (row or 1, state).
    """
    levels = places.unsqueeze(int(len(shares) != 1)).contiguous()
    found = torch.searchsorted(shares.cumsum(1), levels, right=True).flatten()
    beyond = found == shares.shape[1]  # by rounding: the last state that has any share
    if bool(beyond.any()):
        rows = shares if len(shares) == 1 else shares[beyond]
        found[beyond] = shares.shape[1] - 1 - (rows.flip(1) > 0.0).float().argmax(1)
    return found


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of records that are completed.

    Parameters
    ----------
    allowed : sequence of Tensor of bool, shape (record or 1, code), or None
        By column, which codes the records may have; None where nothing is known.
    lower, upper : Tensor of float64, shape (record or 1, numeric column)
        Between which the number lies where the code is 0.
    """

    allowed: Sequence[Tensor | None]
    lower: Tensor
    upper: Tensor

    @classmethod
    def of(cls, facts: Evidence, n_draws: int, device: torch.device) -> Self:
        """Repeat what is known of every record for all its draws."""

        def repeated(own: npt.NDArray[Any]) -> Tensor:
            return torch.tensor(own if len(own) == 1 else own.repeat(n_draws, 0)).to(device)

        numbers = [
            repeated(np.stack(own, 1))
            if own
            else torch.zeros(1, 0, dtype=torch.float64, device=device)
            for own in (facts.lower, facts.upper)
        ]
        return cls([None if own is None else repeated(own) for own in facts.allowed], *numbers)

    def bounded(self, place: int) -> bool:
        """Whether anything is known of the number of any record."""
        return bool((self.lower[:, place] > -torch.inf).any()) or bool(
            (self.upper[:, place] < torch.inf).any()
        )
