"""A training step of split learning, from the coordinator's chair."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vflsynth.learning.base import Algorithm
from vflsynth.protocol import SERVER, Channel
from vflsynth.protocol.messages import SelectionNotice
from vflsynth.splitdefense.active import ActiveParty
from vflsynth.splitdefense.messages import AllBottomOutputs, BottomOutputs, HeldOutOutputs

Rows = npt.NDArray[np.int64] | slice
"""Positions of a classifier's training records among those that its parties share."""


class SplitLearning(Algorithm):
    """Outputs of bottom models forward, cut gradients back."""

    def __init__(self, channel: Channel, active: ActiveParty) -> None:
        super().__init__(channel)
        self.active = active
        self.outputs: dict[str, Tensor] = {}

    @property
    def device(self) -> torch.device:
        """Where the active party computes."""
        return self.active.streams.device

    def step(self, step: int) -> None:
        """One batch."""
        outputs = self.channel.gather(BottomOutputs, step)
        self.channel.scatter(self.active.reply(step, outputs))

    @property
    def finished(self) -> bool:
        """Whether the loss on held-out records has not fallen for long enough."""
        return self.active.finished

    def report(self, epoch: int) -> dict[str, Tensor]:
        """Mean losses since the last report by name, each of shape (replica,)."""
        losses = self.active.task.means.pop()
        if self.active.kept:
            received = self.channel.gather(HeldOutOutputs, epoch)
            losses["held_out_loss"], better = self.active.judge(epoch, received)
            self._better = better
            self.channel.scatter(
                {name: SelectionNotice(SERVER, name, epoch, better) for name in self.channel.names}
            )
        return losses

    def end_epoch(self, epoch: int, *, evaluate: bool) -> dict[str, Any]:
        """Return what protections say about themselves, and whether the epoch was kept."""
        kept = super().end_epoch(epoch, evaluate=evaluate)
        if self.active.kept:
            kept = {"kept": self._better}
        return kept | self.active.notes.pop()

    def end(self, epoch: int) -> None:
        """Collect the outputs for all training records, which calibration and audit need.

        All networks become those of the best epoch, if records say which that is.
        """
        self.active.restore()
        received = self.channel.gather(AllBottomOutputs, epoch)
        if (own := self.active.own) is not None:
            received[own.name] = own.all_bottom_outputs(epoch)
        self.outputs = {name: message.features for name, message in received.items()}

    def state(self) -> dict[str, Tensor]:
        """Return the active party's state."""
        return self.active.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore `state`."""
        self.active.load_state(state)
