"""A party of a split network: its columns and its bottom model."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from vflsynth._random import RandomStreams
from vflsynth.exceptions import ProtocolError
from vflsynth.parties import TrainableParty
from vflsynth.parties.settings import load_network_state, network_state
from vflsynth.protocol import CutGradients, IntermediateFeatures, Message, Schedule
from vflsynth.protocol.channel import Verb
from vflsynth.protocol.messages import SERVER
from vflsynth.splitdefense.malicious import MaliciousSGD
from vflsynth.splitdefense.networks import Perceptron
from vflsynth.splitdefense.settings import SplitSettings

_BLOCK = 4096
"""Records that go through a bottom model at once outside training."""


class SplitParty(TrainableParty):
    """Owns columns and a bottom model f_i; never sees a label.

    Parameters
    ----------
    name, frame, on, transformer
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

    def bottom_output(self, step: int) -> Tensor:
        """Return a batch's outputs, (replica, batch, intermediate), and keep their graph."""
        outputs: Tensor = self.bottom_model(F.embedding(self.schedule.rows(step), self.records))
        self._pending = outputs
        return outputs.detach()

    def update_bottom_model(self, gradients: Tensor) -> None:
        """Descend along the cut gradients of the last batch."""
        if self._pending is None:
            raise ProtocolError(f"party {self.name!r} got cut gradients it did not ask for")
        outputs, self._pending = self._pending, None
        if gradients.shape != outputs.shape:
            raise ProtocolError(
                f"party {self.name!r} got cut gradients of shape {tuple(gradients.shape)}; "
                f"expected {tuple(outputs.shape)}"
            )
        optimizer = self.optimizer
        optimizer.set_gradient(torch.autograd.grad(outputs, optimizer.parameters, gradients))
        optimizer.step()

    def all_bottom_outputs(self) -> Tensor:
        """Return outputs for all matched records, (replica, record, intermediate)."""
        return outputs_of(self.bottom_model, self.records, len(self.schedule.streams.secrets))

    def state(self) -> dict[str, Tensor]:
        """Return everything that a resumed run needs."""
        return network_state("bottom", self.bottom_model, self.optimizer)

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore `state`."""
        load_network_state(state, "bottom", self.bottom_model, self.optimizer)

    def answer(self, verb: Verb, step: int) -> Message:
        """Compute the message that `verb` asks for at `step`."""
        match verb:
            case Verb.BOTTOM_OUTPUT:
                return IntermediateFeatures(self.name, SERVER, step, self.bottom_output(step))
            case Verb.ALL_BOTTOM_OUTPUTS:
                return IntermediateFeatures(self.name, SERVER, step, self.all_bottom_outputs())
            case _:
                return super().answer(verb, step)

    def take(self, verb: Verb, message: Message) -> None:
        """Act on a message from the active party."""
        if verb is Verb.UPDATE_BOTTOM_MODEL and isinstance(message, CutGradients):
            self.update_bottom_model(message.gradients)
        else:
            super().take(verb, message)


@torch.no_grad()
def outputs_of(model: Perceptron, records: Tensor, n_replicas: int) -> Tensor:
    """Return outputs of a network for (record, in), block by block; (replica, record, out)."""
    parts = [model(block.expand(n_replicas, -1, -1)) for block in torch.split(records, _BLOCK)]
    return torch.cat(parts, 1)
