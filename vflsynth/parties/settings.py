"""What all parties and the server agree on before training, and small tools that both use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from vflsynth.exceptions import ProtocolError
from vflsynth.networks.adam import FlatAdam


@dataclass(frozen=True, slots=True)
class Settings:
    """Sizes and rates, resolved; `VFLGANSynthesizer` documents them.

    For a discriminator that is not cut, `first_part` is all of its hidden layers.
    """

    batch_size: int
    latent_dim: int
    generator_hidden: tuple[int, ...]
    first_part: tuple[int, ...]
    shared_hidden: tuple[int, ...]
    private_heads: bool
    bias: bool
    batch_norm_eps: float | None
    gumbel_temperature: float
    gradient_penalty: Literal["layerwise", "paper"]
    gradient_penalty_weight: float
    learning_rate: float
    betas: tuple[float, float]
    generator_average: float
    n_evaluation: int

    @property
    def sent_blocks(self) -> int:
        """Blocks of a batch that parties send: real, fake and, layer-wise, interpolated."""
        return 3 if self.gradient_penalty == "layerwise" else 2

    def optimizer(self, module: nn.Module) -> FlatAdam:
        """Make a network's optimiser."""
        return FlatAdam(module, learning_rate=self.learning_rate, betas=self.betas)


class RunningLosses:
    """Means of the Wasserstein estimate and the penalty over the steps since the last look."""

    def __init__(self) -> None:
        self._sum: Tensor | None = None
        self._recent: list[Tensor] = []  # two of each step, summed now and then
        self._steps = 0

    def add(self, wasserstein: Tensor, penalty: Tensor) -> None:
        """Add one step's values, each of shape (replica,)."""
        self._recent += wasserstein, penalty
        self._steps += 1
        if len(self._recent) == 128:
            self._flush()

    def pop(self) -> tuple[Tensor, Tensor]:
        """Return the two means, each of shape (replica,), and start again."""
        self._flush()
        if self._sum is None:
            raise ProtocolError("a report was asked for before any training step")
        wasserstein, penalty = self._sum / self._steps
        self._sum, self._steps = None, 0
        return wasserstein, penalty

    def _flush(self) -> None:
        if self._recent:
            total = torch.stack(self._recent).view(len(self._recent) // 2, 2, -1).sum(0)
            self._sum = total if self._sum is None else self._sum + total
            self._recent.clear()


def network_state(label: str, module: nn.Module, optimizer: FlatAdam) -> dict[str, Tensor]:
    """Collect the state of a network and its optimiser, under names that begin with `label`."""
    return {
        **labelled(label, module.state_dict()),
        **labelled(f"{label}.adam", optimizer.state()),
    }


def load_network_state(
    state: Mapping[str, Tensor], label: str, module: nn.Module, optimizer: FlatAdam
) -> None:
    """Restore `network_state`, in place: the optimiser's flat buffer stays the storage."""
    module.load_state_dict(section(state, label))
    optimizer.load_state(section(state, f"{label}.adam"))


def labelled(label: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Put a label in front of every name."""
    return {f"{label}/{name}": value for name, value in state.items()}


def section(state: Mapping[str, Tensor], label: str) -> dict[str, Tensor]:
    """Undo `labelled`, leaving out everything else."""
    prefix = f"{label}/"
    return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
