"""A party of a split network: its columns and its bottom model."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vflsynth._random import RandomStreams
from vflsynth.exceptions import ProtocolError
from vflsynth.learning.base import TrainableParty, load_network_state, network_state
from vflsynth.networks.layers import FlatAdam, pulled_back
from vflsynth.protocol.channel import SERVER, answers, takes
from vflsynth.protocol.messages import SelectionNotice
from vflsynth.protocol.schedule import Schedule
from vflsynth.registry import Number, register
from vflsynth.splitdefense.messages import (
    AllBottomOutputs,
    BottomGradients,
    BottomOutputs,
    HeldOutOutputs,
)
from vflsynth.splitdefense.settings import (
    HoldingOut,
    KeptWeights,
    Part,
    Perceptron,
    PiecewiseLinear,
    SplitSettings,
    n_records,
)

_BLOCK = 4096
"""Records that go through a bottom model at once outside training."""


class SplitParty(TrainableParty):
    """Owns columns and a bottom model f_i; never sees a label.

    Sees its own records, the shared schedule and the cut gradients it is sent. Sends the outputs of
    its bottom model, and learns which epoch did best on the held-out records. The active party uses
    the same object for its own columns.
    """

    def build(
        self,
        settings: SplitSettings,
        schedule: Schedule,
        streams: RandomStreams,
        malicious: MaliciousSGD | None = None,
        descent: Callable[[Perceptron, FlatAdam], Any] | None = None,
    ) -> None:
        """Encode the records, and make the bottom model and its optimiser.

        `descent` makes what takes the steps under privacy, a `PrivateDescent`.
        """
        self.schedule = schedule
        self.records = torch.tensor(self.encode()).to(streams.device)
        encoding = None
        if settings.numeric_bins:
            replicas = len(streams.secrets)
            encoding = PiecewiseLinear.learn(self.records, settings.numeric_bins, replicas)
        self.bottom_model = Perceptron(
            [self.transformer.width_, *settings.bottom_hidden, settings.intermediate_dim],
            streams=streams,
            name="bottom",
            output=settings.bottom_output,
            encoding=encoding,
        )
        self.optimizer = (settings if malicious is None else malicious).optimizer(self.bottom_model)
        self.untrained = copy.deepcopy(self.bottom_model)
        self.kept = KeptWeights(self.optimizer) if settings.n_held_out else None
        self.descent = None if descent is None else descent(self.bottom_model, self.optimizer)
        self._pending: tuple[int, Tensor] | None = None

    @answers(BottomOutputs)
    def bottom_outputs(self, step: int) -> BottomOutputs:
        """Return a batch's outputs, (replica, batch, intermediate), and keep their graph."""
        model = self.bottom_model if self.descent is None else self.descent.module
        outputs: Tensor = model(F.embedding(self.schedule.rows(step), self.records))
        self._pending = step, outputs
        return BottomOutputs(self.name, SERVER, step, outputs.detach())

    @takes(BottomGradients)
    def update_bottom_model(self, message: BottomGradients) -> None:
        """Descend along the cut gradients of the last batch."""
        if self._pending is None:
            raise ProtocolError(f"party {self.name!r} got cut gradients it did not ask for")
        (step, outputs), self._pending = self._pending, None
        gradients = message.gradients
        self.check_shape("cut gradients", gradients, tuple(outputs.shape))
        if self.descent is not None:
            torch.autograd.backward(outputs, gradients)
            self.descent.step(n_records(self.schedule, step))
            return
        optimizer = self.optimizer
        optimizer.set_gradient(pulled_back([outputs], optimizer.parameters, [gradients]))
        optimizer.step()

    @answers(HeldOutOutputs)
    @torch.no_grad()
    def held_out_outputs(self, step: int) -> HeldOutOutputs:
        """Return outputs for the records that are in no batch, (replica, record, intermediate)."""
        schedule = self.schedule
        if not isinstance(schedule, HoldingOut):
            raise ProtocolError(f"party {self.name!r} holds out no records")
        outputs = self.bottom_model(F.embedding(schedule.held_out, self.records))
        return HeldOutOutputs(self.name, SERVER, step, outputs)

    @takes(SelectionNotice)
    def keep(self, message: SelectionNotice) -> None:
        """Keep the bottom models of replicas that are better than ever."""
        if self.kept is None or message.keep.shape != (len(self.schedule.streams.secrets),):
            raise ProtocolError(f"party {self.name!r} was told to keep what it does not have")
        self.kept.keep(message.keep)

    @answers(AllBottomOutputs)
    def all_bottom_outputs(self, step: int) -> AllBottomOutputs:
        """Return outputs for all matched records, (replica, record, intermediate).

        Training is over when this is asked: the weights become those that were kept.
        """
        if self.kept is not None:
            self.kept.restore()
        replicas = len(self.schedule.streams.secrets)
        outputs = outputs_of(self.bottom_model, self.records, replicas)
        return AllBottomOutputs(self.name, SERVER, step, outputs)

    def trained(self) -> Mapping[str, Tensor]:
        """Return the weights of the bottom models."""
        return self.bottom_model.state_dict()

    def state(self) -> dict[str, Tensor]:
        """Return everything that a resumed run needs."""
        state = network_state("bottom", self.bottom_model, self.optimizer)
        return state if self.kept is None else state | {"kept": self.kept.flat}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore `state`."""
        load_network_state(state, "bottom", self.bottom_model, self.optimizer)
        if self.kept is not None:
            self.kept.flat = state["kept"].clone()


@torch.no_grad()
def outputs_of(model: Perceptron, records: Tensor, n_replicas: int) -> Tensor:
    """Return outputs of a network for (record, in), block by block; (replica, record, out)."""
    parts = [model(block.expand(n_replicas, -1, -1)) for block in torch.split(records, _BLOCK)]
    return torch.cat(parts, 1)


@register
@dataclass(repr=False, eq=False)
class MaliciousSGD(Part):
    """Updates of an active model completion attack, in place of Adam's.

    Parameters
    ----------
    learning_rate : float, default=0.05
        Of the party's own gradient descent.
    momentum : float, default=0.9
    most : float, default=5.0
        Largest factor on an update, ≥ 1; 1 is plain descent with momentum.

    Notes
    -----
    Source: Fu et al. 2022, "Label inference attacks against vertical federated learning" (AMC): a
    party whose weights move faster than the others' makes the top model rely on it. Each entry of
    the velocity v is multiplied by ``min(max(1 + v_t / v_{t-1}, 1), most)``.

    Departs from the authors' code: there the scaled velocity overwrites the momentum, or what is
    left of it, depending on the version of PyTorch; here the momentum stays unscaled.

    Nothing that crosses a boundary shows that a party does this: it sends outputs of a bottom model
    like any other.
    """

    _rules: ClassVar = {
        "learning_rate": Number(0, closed=(False, True)),
        "momentum": Number(0, 1, closed=(True, False)),
        "most": Number(1),
    }

    learning_rate: float = 0.05
    momentum: float = 0.9
    most: float = 5.0

    def optimizer(self, module: nn.Module) -> FlatAdam:
        """Make the optimiser of the party's bottom model."""
        return _FlatMaliciousSGD(self, module)


class _FlatMaliciousSGD(FlatAdam):
    """Adam's buffers with another update: the moments hold this velocity and the last one."""

    def __init__(self, rule: MaliciousSGD, module: nn.Module) -> None:
        super().__init__(module, learning_rate=rule.learning_rate, betas=(rule.momentum, 0.0))
        self._most = rule.most

    @torch.no_grad()
    def step(self) -> None:
        """Update the parameters from the flat gradient."""
        self.steps += 1
        velocity, last = self.first_moment, self.second_moment
        last.copy_(velocity)
        velocity.mul_(self.betas[0]).add_(self.gradient)
        growth = torch.where(last == 0.0, 0.0, velocity / last)
        factor = (1.0 + growth).clamp(1.0, self._most)
        self.flat.addcmul_(velocity, factor, value=-self.learning_rate)
