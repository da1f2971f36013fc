"""What all parties of a split estimator agree on: parameters of parts, sizes, and batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from sklearn.base import BaseEstimator
from torch import Tensor, nn

from vflsynth._random import RandomStreams
from vflsynth._validation import Rule, check_parameters
from vflsynth.networks.adam import FlatAdam
from vflsynth.protocol import HeldOutSchedule, PoissonSchedule, Schedule


class Part(BaseEstimator):  # type: ignore[misc]
    """Parameters of one exchangeable part of a classifier; holds nothing learned.

    ``get_params``, ``set_params`` and ``clone`` reach into it, so that a grid search can go over,
    for example, ``protection__power_scale``.
    """

    registry_group: ClassVar[str] = "parameters"
    _rules: ClassVar[Mapping[str, Rule]] = {}

    def check(self) -> None:
        """Check the parameters (ParameterError)."""
        check_parameters(type(self).__name__, self.get_params(deep=False), self._rules)


Fusion = Literal["concat", "sum", "mean"]
ClassWeight = Mapping[Any, float] | Literal["balanced"] | None

_FEWEST_TO_HOLD_OUT = 100
"""Records without which none are held out: a tenth of fewer says nothing."""


AS_PUBLISHED: dict[str, Any] = {
    "patience": None,
    "weight_decay": 0.0,
    "epochs": 50,
    "numeric_bins": 0,
}
"""What the papers do: numbers as they are, so many epochs, nothing that prevents overfitting."""


@dataclass(frozen=True, slots=True)
class SplitSettings:
    """Sizes and rates; `BaseSplitEstimator` documents them.

    `n_held_out` counts the records that are in no batch and say when to stop.
    """

    batch_size: int
    n_held_out: int
    bottom_hidden: tuple[int, ...]
    intermediate_dim: int
    bottom_output: Literal["linear", "sigmoid"]
    fusion: Fusion
    top_hidden: tuple[int, ...]
    learning_rate: float
    betas: tuple[float, float]
    weight_decay: float
    numeric_bins: int = 0

    def for_records(self, n_records: int, validation_fraction: float) -> SplitSettings:
        """Return the settings of a training on so many records, some of them held out."""
        held_out = min(round(validation_fraction * n_records), n_records - 1)
        if n_records < _FEWEST_TO_HOLD_OUT:
            held_out = 0
        batch_size = min(self.batch_size, n_records - held_out)
        return replace(self, batch_size=batch_size, n_held_out=held_out)

    def optimizer(self, module: nn.Module) -> FlatAdam:
        """Return the optimiser of every network."""
        return FlatAdam(
            module,
            learning_rate=self.learning_rate,
            betas=self.betas,
            weight_decay=self.weight_decay,
        )

    @property
    def scalar_probability(self) -> bool:
        """Whether a party's output is one number in (0, 1), which the residual attack exploits."""
        return self.intermediate_dim == 1 and self.bottom_output == "sigmoid"

    def fused_dim(self, n_parties: int) -> int:
        """Return the width of the top model's input."""
        return self.intermediate_dim * (n_parties if self.fusion == "concat" else 1)

    def fuse(self, features: list[Tensor]) -> Tensor:
        """Join the parties' features, each (replica, batch, intermediate)."""
        if self.fusion == "concat":
            return torch.cat(features, -1)
        total = torch.stack(features).sum(0)
        return total / len(features) if self.fusion == "mean" else total


class HoldingOut(HeldOutSchedule):
    """A schedule whose batches are positions among the matched records; see `HeldOutSchedule`.

    `held_out` and `trained_on`, (replica, record), are the positions of the records that are in no
    batch, and of all others.
    """

    def __init__(
        self,
        streams: RandomStreams,
        *,
        n_records: int,
        n_held_out: int,
        batch_size: int,
        replica_rows: Tensor | None = None,
    ) -> None:
        super().__init__(
            streams,
            n_records=n_records,
            n_held_out=n_held_out,
            batch_size=batch_size,
            replica_rows=replica_rows,
        )
        parts = torch.split(self.order, [n_held_out, n_records - n_held_out], dim=1)
        self.held_out, self.trained_on = parts

    def rows(self, step: int) -> Tensor:
        """Choose the record positions of a batch, int64, shape (replica, batch)."""
        return self.order.gather(1, super().rows(step))


def n_records(schedule: Schedule, step: int) -> int:
    """Count the rows of a batch that are records: a Poisson sample is filled up with others."""
    if isinstance(schedule, PoissonSchedule):
        return int(schedule.n_real(step)[0])
    return schedule.batch_size
