"""A passive party that amplifies what it is sent, to own a better bottom model than it should."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from vflsynth._validation import Number
from vflsynth.networks.adam import FlatAdam
from vflsynth.registry import register
from vflsynth.splitdefense.parts import Part


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
