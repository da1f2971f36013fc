"""Adam over one flat buffer per network."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor, nn

_EPS = 1e-8  # as `torch.optim.Adam` has it


class FlatAdam:
    """Adam whose parameters, gradients and moments are each one contiguous buffer.

    The module's parameters are moved into the flat buffer; each ``parameter.grad`` becomes a view
    of the flat gradient, so that gradients can be written in place. Weight decay is decoupled:
    every step first takes ``learning_rate * weight_decay`` of the weights away.

    The update is that of `torch.optim.Adam`, or of `torch.optim.AdamW` (Loshchilov and Hutter 2019)
    with weight decay, which ``tests/equations`` compares with. It is element-wise, so replicas do
    not mix. One fused operation per network and step, without the lists and hooks of `torch.optim`:
    with networks this small the number of operations is the time.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        learning_rate: float,
        betas: tuple[float, float],
        weight_decay: float = 0.0,
    ) -> None:
        self.learning_rate, self.betas = learning_rate, betas
        self.weight_decay = weight_decay
        self._update = torch._fused_adamw_ if weight_decay else torch._fused_adam_
        self.parameters = list(module.parameters())
        self.flat = torch.cat([p.detach().reshape(-1) for p in self.parameters])
        self.gradient = torch.zeros_like(self.flat)
        self.first_moment = torch.zeros_like(self.flat)
        self.second_moment = torch.zeros_like(self.flat)
        self.steps = 0
        self._step = torch.zeros((), device=self.flat.device)
        start = 0
        for parameter in self.parameters:
            stop = start + parameter.numel()
            parameter.data = self.flat[start:stop].view(parameter.shape)
            parameter.grad = self.gradient[start:stop].view(parameter.shape)
            start = stop

    @cached_property
    def replica_of(self) -> Tensor:
        """Which replica each number of the flat buffer belongs to, int64."""
        if all(len(p) == 1 for p in self.parameters):  # takes no memory
            return torch.zeros(1, dtype=torch.long, device=self.flat.device).expand_as(self.flat)
        owners = [torch.arange(len(p)).repeat_interleave(p[0].numel()) for p in self.parameters]
        return torch.cat(owners).to(self.flat.device)

    @torch.no_grad()
    def set_gradient(self, gradients: Sequence[Tensor]) -> None:
        """Write gradients given one per parameter, in the module's order."""
        torch.cat([g.reshape(-1) for g in gradients], out=self.gradient)

    @torch.no_grad()
    def step(self) -> None:
        """Update the parameters from the flat gradient."""
        self.steps += 1
        self._step.fill_(self.steps)
        beta1, beta2 = self.betas
        self._update(
            [self.flat],
            [self.gradient],
            [self.first_moment],
            [self.second_moment],
            [],
            [self._step],
            lr=self.learning_rate,
            beta1=beta1,
            beta2=beta2,
            weight_decay=self.weight_decay,
            eps=_EPS,
            amsgrad=False,
            maximize=False,
        )

    def state(self) -> dict[str, Tensor]:
        """Everything that a resumed run needs, besides the parameters."""
        return {
            "first_moment": self.first_moment,
            "second_moment": self.second_moment,
            "steps": torch.tensor(self.steps),
        }

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore `state`."""
        self.first_moment.copy_(state["first_moment"])
        self.second_moment.copy_(state["second_moment"])
        self.steps = int(state["steps"])
