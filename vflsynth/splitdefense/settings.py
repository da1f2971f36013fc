"""What all parties of a split network agree on before training, resolved."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from vflsynth.networks.adam import FlatAdam

Fusion = Literal["concat", "sum", "mean"]


@dataclass(frozen=True, slots=True)
class SplitSettings:
    """Sizes and rates; `BaseSplitClassifier` documents them."""

    batch_size: int
    bottom_hidden: tuple[int, ...]
    intermediate_dim: int
    bottom_output: Literal["linear", "sigmoid"]
    fusion: Fusion
    top_hidden: tuple[int, ...]
    learning_rate: float
    betas: tuple[float, float]

    def for_records(self, n_records: int) -> SplitSettings:
        """Return the settings of a training on so many records."""
        return replace(self, batch_size=min(self.batch_size, n_records))

    def optimizer(self, module: nn.Module) -> FlatAdam:
        """Return the optimiser of every network."""
        return FlatAdam(module, learning_rate=self.learning_rate, betas=self.betas)

    def fused_dim(self, n_parties: int) -> int:
        """Return the width of the top model's input."""
        return self.intermediate_dim * (n_parties if self.fusion == "concat" else 1)

    def fuse(self, features: list[Tensor]) -> Tensor:
        """Join the parties' features, each (replica, batch, intermediate)."""
        if self.fusion == "concat":
            return torch.cat(features, -1)
        total = torch.stack(features).sum(0)
        return total / len(features) if self.fusion == "mean" else total
