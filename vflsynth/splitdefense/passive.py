"""A party of a split network: its columns and its bottom model."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from vflsynth._random import RandomStreams
from vflsynth.exceptions import ProtocolError
from vflsynth.methods.party import TrainableParty
from vflsynth.methods.settings import load_network_state, network_state
from vflsynth.protocol import SERVER, Schedule, answers, takes
from vflsynth.protocol.messages import AllBottomOutputs, BottomGradients, BottomOutputs
from vflsynth.splitdefense.malicious import MaliciousSGD
from vflsynth.splitdefense.networks import Perceptron
from vflsynth.splitdefense.settings import SplitSettings

_BLOCK = 4096
"""Records that go through a bottom model at once outside training."""


class SplitParty(TrainableParty):
    """Owns columns and a bottom model f_i; never sees a label.

    Parameters
    ----------
    name, frame, on
        See `Party`.

    Notes
    -----
    Sees its own records, the shared schedule and the cut gradients it is sent. Sends the outputs of
    its bottom model. The active party uses the same object for its own columns.
    """

    def build(
        self,
        settings: SplitSettings,
        schedule: Schedule,
        streams: RandomStreams,
        malicious: MaliciousSGD | None = None,
    ) -> None:
        """Encode the records, and make the bottom model and its optimiser."""
        self.schedule = schedule
        self.records = torch.from_numpy(self.encode()).to(streams.device)
        self.bottom_model = Perceptron(
            [self.transformer.width_, *settings.bottom_hidden, settings.intermediate_dim],
            streams=streams,
            name="bottom",
            output=settings.bottom_output,
        )
        self.optimizer = (settings if malicious is None else malicious).optimizer(self.bottom_model)
        self.untrained = copy.deepcopy(self.bottom_model)
        self._pending: Tensor | None = None

    @answers(BottomOutputs)
    def bottom_outputs(self, step: int) -> BottomOutputs:
        """Return a batch's outputs, (replica, batch, intermediate), and keep their graph."""
        outputs: Tensor = self.bottom_model(F.embedding(self.schedule.rows(step), self.records))
        self._pending = outputs
        return BottomOutputs(self.name, SERVER, step, outputs.detach())

    @takes(BottomGradients)
    def update_bottom_model(self, message: BottomGradients) -> None:
        """Descend along the cut gradients of the last batch."""
        if self._pending is None:
            raise ProtocolError(f"party {self.name!r} got cut gradients it did not ask for")
        outputs, self._pending = self._pending, None
        gradients = message.gradients
        if gradients.shape != outputs.shape:
            raise ProtocolError(
                f"party {self.name!r} got cut gradients of shape {tuple(gradients.shape)}; "
                f"expected {tuple(outputs.shape)}"
            )
        optimizer = self.optimizer
        optimizer.set_gradient(torch.autograd.grad(outputs, optimizer.parameters, gradients))
        optimizer.step()

    @answers(AllBottomOutputs)
    def all_bottom_outputs(self, step: int) -> AllBottomOutputs:
        """Return outputs for all matched records, (replica, record, intermediate)."""
        replicas = len(self.schedule.streams.secrets)
        outputs = outputs_of(self.bottom_model, self.records, replicas)
        return AllBottomOutputs(self.name, SERVER, step, outputs)

    def state(self) -> dict[str, Tensor]:
        """Return everything that a resumed run needs."""
        return network_state("bottom", self.bottom_model, self.optimizer)

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore `state`."""
        load_network_state(state, "bottom", self.bottom_model, self.optimizer)


@torch.no_grad()
def outputs_of(model: Perceptron, records: Tensor, n_replicas: int) -> Tensor:
    """Return outputs of a network for (record, in), block by block; (replica, record, out)."""
    parts = [model(block.expand(n_replicas, -1, -1)) for block in torch.split(records, _BLOCK)]
    return torch.cat(parts, 1)
