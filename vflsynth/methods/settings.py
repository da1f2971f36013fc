"""What all parties and the server agree on before training, and small tools that both use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vflsynth.exceptions import ProtocolError
from vflsynth.models.samplers import GeneratorSpec
from vflsynth.networks import Penalty
from vflsynth.networks.adam import FlatAdam
from vflsynth.protocol import Precision

_RECENT = 64
"""Steps whose losses are kept before they are summed."""


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
    gradient_penalty: Penalty
    gradient_penalty_weight: float
    learning_rate: float
    betas: tuple[float, float]
    generator_average: float
    n_evaluation: int
    discriminator_steps: int = 5
    steps_per_exchange: int = 1
    wire_precision: Precision = "float32"
    n_masked_blocks: int = 1
    generator_head: int | None = None

    def window(self, step: int, steps_per_epoch: int) -> range:
        """Return the discriminator steps that are taken with the exchange that `step` belongs to.

        A window does not go on in the next epoch, before which checkpoints may be written.
        """
        epoch, place = divmod(step, steps_per_epoch)
        first = step - place % self.steps_per_exchange
        return range(first, min(first + self.steps_per_exchange, (epoch + 1) * steps_per_epoch))

    def moves_generators(self, step: int) -> bool:
        """Whether a generator step follows this discriminator step."""
        return (step + 1) % self.discriminator_steps == 0

    def replies_for_generators(self, window: range) -> bool:
        """Whether the reply to a window's features says how the generators are to move."""
        return self.steps_per_exchange > 1 and any(map(self.moves_generators, window))

    @property
    def sent_blocks(self) -> int:
        """Blocks of a batch that parties send: real, fake and, mostly, interpolated."""
        return 2 if self.gradient_penalty == "paper" else 3

    @property
    def end_to_end(self) -> bool:
        """Whether slopes at joint records are penalised, which takes an exchange of its own."""
        return self.gradient_penalty == "end_to_end"

    @property
    def generator(self) -> GeneratorSpec:
        """What a generator is built from."""
        return GeneratorSpec(
            self.latent_dim,
            self.generator_hidden,
            self.bias,
            self.gumbel_temperature,
            self.batch_norm_eps,
            self.generator_head,
        )

    def optimizer(self, module: nn.Module) -> FlatAdam:
        """Make a network's optimiser."""
        return FlatAdam(module, learning_rate=self.learning_rate, betas=self.betas)


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
