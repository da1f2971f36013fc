"""DP-SGD of a split network: every owner clips and perturbs its own part of a record's gradient.

It is one Gaussian mechanism, whose parts are added by those who own them; nobody needs the norm of
another's part (`vflsynth.privacy.dpsgd.joint_sensitivity`). What an owner computes of a record
depends on that record, on the released weights, and on nothing else in the batch. Whatever would
break this is refused (`SplitMethod.reason_against`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from vflsynth.mechanisms import DPSGDPlan
from vflsynth.networks.layers import FlatAdam
from vflsynth.privacy.opacus import ExactDPOptimizer, PerRecordModule
from vflsynth.splitdefense.objectives.base import (
    Batch,
    CrossEntropyTask,
    Surroundings,
    record_losses,
)
from vflsynth.splitdefense.settings import Perceptron


class PrivateDescent:
    """Takes the steps of one owner's network, of one replica, along clipped and noisy gradients.

    A generator of `noise` is for tests only, see `vflsynth.privacy.noise`.
    """

    def __init__(
        self,
        network: Perceptron,
        optimizer: FlatAdam,
        plan: DPSGDPlan,
        noise: torch.Generator | None = None,
    ) -> None:
        assert plan.length is not None, "it trains step by step"
        self.module = PerRecordModule(network, batch_first=False, loss_reduction="sum")
        self.parameters = optimizer.parameters
        self.optimizer = ExactDPOptimizer(
            _TorchOptimizer(optimizer),
            noise_multiplier=plan.noise_multiplier * plan.sensitivity / plan.max_grad_norm,
            max_grad_norm=plan.max_grad_norm,
            expected_batch_size=plan.length.batch_size,
            steps=plan.steps,
            noise=noise,
        )

    def step(self, n_records: int) -> None:
        """Take a step, after a backward pass through `module`; rows beyond `n_records` are none."""
        for parameter in self.parameters:
            found: Any = parameter
            found.grad_sample = found.grad_sample[:n_records]
        self.optimizer.step()
        self.optimizer.zero_grad()


class PrivateCrossEntropy(CrossEntropyTask):
    """Cross-entropy of a top model that is trained by `PrivateDescent`; reports no loss."""

    def __init__(
        self,
        members: Sequence[Any],
        around: Surroundings,
        plan: DPSGDPlan,
        noise: torch.Generator | None = None,
    ) -> None:
        super().__init__(members, around)
        self.descent = PrivateDescent(*self.networks["top"], plan, noise)

    def gradients(self, batch: Batch) -> dict[str, Tensor]:
        """Take one noisy step; return the gradients of every record's own loss at its features."""
        fused = self.around.settings.fuse(batch.contributions(self.around.parties))
        losses = record_losses(self.descent.module(fused), batch.labels)
        found = torch.autograd.grad(losses.sum(), list(batch.features.values()))
        assert batch.n_records is not None, "batches are Poisson samples"
        self.descent.step(batch.n_records)
        return dict(zip(batch.features, found))


class _TorchOptimizer(torch.optim.Optimizer):
    """`FlatAdam` as Opacus wants optimisers to be."""

    def __init__(self, flat: FlatAdam) -> None:
        super().__init__(flat.parameters, {})
        self._flat = flat

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update the parameters from their gradients."""
        gradients = [parameter.grad for parameter in self._flat.parameters]
        self._flat.set_gradient([gradient for gradient in gradients if gradient is not None])
        self._flat.step()
