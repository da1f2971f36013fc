"""Samplers: how one party draws its encoded rows, given latents that all parties share.

And what is known of records that are completed (`Known`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vflsynth._random import RandomStreams
from vflsynth.columns import OutputSpan
from vflsynth.columns.evidence import Evidence
from vflsynth.models.choosing import RowScores


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

    `allowed` says by column which codes the records may have, bool (record or 1, code), None where
    nothing is known; `lower` and `upper`, (record or 1, numeric column), between which the number
    lies where the code is 0.
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
            repeated(np.stack(own, 1) if own else np.zeros((1, 0)))
            for own in (facts.lower, facts.upper)
        ]
        return cls([None if own is None else repeated(own) for own in facts.allowed], *numbers)

    def bounded(self, place: int) -> bool:
        """Whether anything is known of the number of any record."""
        known = (self.lower[:, place] > -torch.inf) | (self.upper[:, place] < torch.inf)
        return bool(known.any())


@dataclass(frozen=True, slots=True)
class Completion:
    """A block of records that are completed, given what is known of them (`facts`), by party.

    The draws of a record come one after the other; what is random is derived from the secret and
    the block's `number`.
    """

    facts: Mapping[str, Evidence]
    n_records: int
    n_draws: int
    secret: bytes
    number: int

    @property
    def n_rows(self) -> int:
        """Draws of all records."""
        return self.n_records * self.n_draws


SAMPLE_BLOCK = 8192
"""Rows generated at once; part of what a sample's bytes depend on."""


class RowSampler(ABC):
    """Draws encoded rows of one party; saved as a JSON-safe dict and named tensors."""

    registry_group: ClassVar[str] = "samplers"
    kind: ClassVar[str]
    """Its name in saved models."""

    has_likelihood: ClassVar[bool] = False
    """Whether `draw_jointly` says how probable it is what is known of a record."""

    draws_exactly: ClassVar[bool] = False
    """Whether it does so exactly: all draws of a record weigh the same."""

    scores: RowScores | None = None
    """The party's part of what chooses among drawn rows, if more are drawn than are wanted."""

    @property
    @abstractmethod
    def latent_dim(self) -> int:
        """Length of the latents that parties share; 0 if parties share nothing."""

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return torch.device("cpu")

    def latents(self, shared: RandomStreams, index: int, n: int) -> Tensor:
        """Draw what rows of all parties have in common, shape (1, n, latent).

        It is draw `index` of streams that are the same at all parties; standard normal, if not said
        otherwise.
        """
        return shared.normal("sample", index, (n, self.latent_dim))

    @abstractmethod
    def draw(self, latent: Tensor, streams: RandomStreams, index: int) -> Tensor:
        """Draw encoded rows, (n, encoded), for latents that are the same for all parties.

        Randomness that is not shared is draw `index` of the party's own streams.
        """

    @property
    def after(self) -> tuple[str, ...]:
        """Parties that have to draw first, and to pass something on to this one."""
        return ()

    def draw_given(
        self, received: Mapping[str, Tensor], latent: Tensor, streams: RandomStreams, index: int
    ) -> Tensor:
        """Draw encoded rows, given numbers (n, number) that the parties of `after` passed on."""
        return self.draw(latent, streams, index)

    def pass_on(self, rows: Tensor) -> dict[str, Tensor]:
        """Compute what other parties need of drawn rows, by party, each (row, number)."""
        return {}

    @classmethod
    def draw_jointly(
        cls, samplers: Mapping[str, Self], asked: Completion
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Draw all parties' encoded rows, (record * draw, encoded), given what is known of records.

        The second result are log probabilities of what is known, estimated by every draw, of shape
        (record or 1, draw or 1).
        """
        raise NotImplementedError(f"draws of {cls.__name__} cannot be given what is known")

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return everything but the tensors, JSON-safe."""

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors."""

    @classmethod
    @abstractmethod
    def restore(
        cls, content: Mapping[str, Any], tensors: Mapping[str, Tensor], spans: Sequence[OutputSpan]
    ) -> Self:
        """Undo `to_dict` and `tensors`, for encoded rows of these spans, where the tensors are."""
