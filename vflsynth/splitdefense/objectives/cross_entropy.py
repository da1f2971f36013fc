"""Plain split learning: the top model minimises cross-entropy, or the squared error of numbers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from vflsynth.registry import register
from vflsynth.splitdefense.objectives.base import (
    Batch,
    Objective,
    Surroundings,
    Task,
    cross_entropy,
    descend,
    weighted_mean,
)


@register
class CrossEntropy(Objective):
    """Cross-entropy of the top model's outputs, and nothing that protects."""

    has_held_out_loss = True

    def make(self, members: Sequence[CrossEntropy], around: Surroundings) -> Task:
        """Build the top model and the heads."""
        return CrossEntropyTask(around)


class CrossEntropyTask(Task):
    """A top model over all parties' features, and one per group of parties that has its own head.

    All heads are trained at once on the sum of their losses ("multi-head training" of DIMIP §5.1,
    which does not say whether the bottom models learn from all heads; here they do).
    """

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        settings = around.settings
        for name, parties in self.heads.items():
            dims = [settings.fused_dim(len(parties)), *settings.top_hidden, around.n_outputs]
            bias = self.network(name, dims).output_bias
            if around.channel is not None:
                with torch.no_grad():
                    bias.copy_(around.channel.start_from(around.label_shares, bias))

    @property
    def heads(self) -> dict[str, tuple[str, ...]]:
        """Names of the networks that predict, and whose features each takes."""
        extra = {"top of " + " ".join(group): group for group in self.around.heads}
        return super().heads | extra

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Loss of every head, each of shape (replica,)."""
        losses = {}
        for name, parties in self.heads.items():
            fused = self.around.settings.fuse(batch.contributions(parties))
            losses[name] = self.loss(self.networks[name][0](fused), batch)
        return losses

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Return the loss of a head's outputs, (replica,)."""
        return cross_entropy(outputs, batch.labels, self.around.channel, batch.weights)

    def held_out_loss(self, batch: Batch) -> Tensor:
        """Loss of the head of all parties."""
        return self.losses(batch)["top"]

    def gradients(self, batch: Batch) -> dict[str, Tensor]:
        """Descend the loss by one step of the top model; return its cut gradients."""
        losses = self.losses(batch)
        self.means.add({"loss": losses["top"]})
        optimizers = [self.networks[name][1] for name in losses]
        total = torch.stack(list(losses.values()))
        return dict(zip(batch.features, descend(total, *optimizers, at=batch.features.values())))


@register
class SquaredError(Objective):
    """Squared error of the top model's output, in variances of the target."""

    has_held_out_loss = True
    of_classes = False

    def make(self, members: Sequence[SquaredError], around: Surroundings) -> Task:
        """Build the top model and the heads."""
        return SquaredErrorTask(around)


class SquaredErrorTask(CrossEntropyTask):
    """The same networks, with another loss."""

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Return the mean squared error of a head's output, (replica,)."""
        return weighted_mean((outputs.squeeze(-1) - batch.labels).square(), batch.weights)
