"""What all parties and the server agree on before training, and small tools that both use."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from vflsynth.exceptions import ProtocolError
from vflsynth.networks.layers import FlatAdam

_RECENT = 64
"""Steps whose losses are kept before they are summed."""


class RunningMeans:
    """Means by name over the steps since the last look."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}
        self._recent: dict[str, list[Tensor]] = {}  # of a few steps, summed now and then

    def add(self, values: Mapping[str, Tensor]) -> None:
        """Add one step's values, each of shape (replica,)."""
        for name, value in values.items():
            recent = self._recent.setdefault(name, [])
            recent.append(value.detach())
            if len(recent) == _RECENT:
                self._sum_up(name)

    def pop(self) -> dict[str, Tensor]:
        """Return the means, each of shape (replica,), and start again."""
        for name in self._recent:
            self._sum_up(name)
        means = {name: total / self._counts[name] for name, total in self._sums.items()}
        self._sums, self._counts, self._recent = {}, {}, {}
        return means

    def _sum_up(self, name: str) -> None:
        recent = self._recent[name]
        if not recent:
            return
        total = torch.stack(recent).sum(0)
        past = self._sums.get(name)
        self._sums[name] = total if past is None else past + total
        self._counts[name] = self._counts.get(name, 0) + len(recent)
        recent.clear()


class RunningLosses:
    """Means of the Wasserstein estimate and the penalty over the steps since the last look."""

    def __init__(self) -> None:
        self._means = RunningMeans()

    def add(self, wasserstein: Tensor, penalty: Tensor) -> None:
        """Add one step's values, each of shape (replica,)."""
        self._means.add({"wasserstein": wasserstein, "penalty": penalty})

    def pop(self) -> tuple[Tensor, Tensor]:
        """Return the two means, each of shape (replica,), and start again."""
        means = self._means.pop()
        if not means:
            raise ProtocolError("a report was asked for before any training step")
        return means["wasserstein"], means["penalty"]


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


def floats(module: nn.Module) -> list[Tensor]:
    """Parameters and running statistics, in a fixed order, without gradients."""
    return [value for value in module.state_dict().values() if value.is_floating_point()]


def move_average(averaged: list[Tensor], current: list[Tensor], n_steps: int, decay: float) -> None:
    """Move averaged weights, from `floats`, towards those after so many steps."""
    # A short average at first, so that it forgets the random start.
    decay = min(decay, (1 + n_steps) / (10 + n_steps))
    torch._foreach_lerp_(averaged, current, 1.0 - decay)


def labelled(label: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Put a label in front of every name."""
    return {f"{label}/{name}": value for name, value in state.items()}


def section(state: Mapping[str, Tensor], label: str) -> dict[str, Tensor]:
    """Undo `labelled`, leaving out everything else."""
    prefix = f"{label}/"
    return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
