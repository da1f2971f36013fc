"""What the training loop needs of an algorithm."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vflsynth.protocol import Channel


class Algorithm(ABC):
    """One training step after the other, from the coordinator's chair.

    Parameters
    ----------
    channel : Channel
        Reaches the parties.
    """

    advice = "Lower learning_rate"
    """What to do when a loss is no longer finite."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where the coordinator computes."""

    @abstractmethod
    def step(self, step: int) -> None:
        """Do training step number `step`, counted from 0 over all epochs."""

    @abstractmethod
    def report(self, epoch: int) -> dict[str, Tensor]:
        """Mean losses since the last report by name, each of shape (replica,)."""

    def begin(self) -> None:  # noqa: B027 (most algorithms have nothing to do)
        """Do what is to be done once, before the first step of a run or of a resumed run."""

    def end_epoch(self, epoch: int, *, evaluate: bool) -> dict[str, Any]:
        """Further entries of the epoch's record; `evaluate` tells whether an evaluation is due.

        ``kept`` says whether the models after this epoch are those that will be kept.
        """
        return {"kept": True}

    def end(self, epoch: int) -> None:  # noqa: B027
        """Do what is to be done once, after the last epoch."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Everything of the coordinator's that a resumed run needs."""

    @abstractmethod
    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore `state`."""

    def fingerprint(self) -> dict[str, Any]:
        """Return what must be equal for a checkpoint to be continued, JSON-safe."""
        return {}
