"""What all parties of a split estimator agree on: networks, parameters, sizes, and batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.base import BaseEstimator
from torch import Tensor, nn

from vflsynth._random import RandomStreams
from vflsynth.networks.layers import FlatAdam, Linear
from vflsynth.protocol.schedule import HeldOutSchedule, PoissonSchedule, Schedule
from vflsynth.registry import Rule, check_parameters

NEGATIVE_SLOPE = 0.01
"""Slope of every LeakyReLU; the papers do not say, this is PyTorch's default."""


class PiecewiseLinear(nn.Module):
    """Encoded numbers, and beside each how far it is through every interval of its column.

    `columns`, (replica, interval), says whose interval it is, the same for all replicas; `low` and
    `high`, (replica, 1, interval), where it begins and ends.

    Source: Gorishniy et al. 2022 (piecewise linear encoding by quantiles). Departs from it in that
    the number itself is kept, which says how far beyond the outermost quantiles a value lies.
    """

    columns: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, columns: Tensor, low: Tensor, high: Tensor) -> None:
        super().__init__()
        self.register_buffer("columns", columns)
        self.register_buffer("low", low)
        self.register_buffer("high", high)

    @classmethod
    def learn(cls, records: Tensor, n_bins: int, n_replicas: int) -> Self | None:
        """Cut the columns of more than two values of encoded records, (record, column).

        Intervals are fewer than `n_bins` where quantiles coincide. None ends at the smallest or
        largest value, unless several records share it. Returns None if there is nothing to cut.
        """
        shares = (np.arange(n_bins + 1) + 0.5) / (n_bins + 1)
        found = []
        for column, values in enumerate(records.cpu().numpy().T):
            if len(np.unique(values)) > 2:
                edges = np.unique(np.quantile(values, shares).astype(np.float32))
                found += [(float(column), *pair) for pair in pairwise(edges.tolist())]
        if not found:
            return None
        intervals = torch.tensor(found, device=records.device).expand(n_replicas, -1, -1)
        columns, low, high = intervals.unbind(-1)
        return cls(columns, low.unsqueeze(1), high.unsqueeze(1))

    @classmethod
    def of(cls, weights: Mapping[str, Tensor]) -> Self | None:
        """Take it out of a perceptron's state; None if it has none."""
        found = [weights.get(f"encoding.{name}") for name in ("columns", "low", "high")]
        buffers = [buffer for buffer in found if buffer is not None]
        return cls(*buffers) if buffers else None

    def forward(self, inputs: Tensor) -> Tensor:
        """Map (replica, batch, in) to (replica, batch, in + interval)."""
        chosen = inputs.index_select(-1, self.columns[0].long())
        return torch.cat([inputs, ((chosen - self.low) / (self.high - self.low)).clamp(0, 1)], -1)


class Perceptron(nn.Module):
    """Linear layers with LeakyReLU(0.01) between them, differentiated automatically.

    `dims` are input, hidden and output sizes; an `encoding` goes before the first layer. Initial
    weights are the stream `name`'s.
    """

    def __init__(
        self,
        dims: Sequence[int],
        *,
        streams: RandomStreams,
        name: str,
        output: Literal["linear", "sigmoid"] = "linear",
        encoding: PiecewiseLinear | None = None,
    ) -> None:
        super().__init__()
        self.dims = tuple(dims)
        self.encoding = encoding
        wider = [dims[0] + (0 if encoding is None else encoding.columns.shape[1]), *dims[1:]]
        self.linears = nn.ModuleList(
            Linear(a, b, bias=True, streams=streams, name=f"{name}.{i}")
            for i, (a, b) in enumerate(pairwise(wider))
        )
        self.output = output

    def forward(self, inputs: Tensor) -> Tensor:
        """Map (replica, batch, in) to (replica, batch, out)."""
        return self.after_first(self.first(inputs))

    def first(self, inputs: Tensor) -> Tensor:
        """Return the sums of the first layer."""
        values: Tensor = self.linears[0](inputs if self.encoding is None else self.encoding(inputs))
        return values

    def after_first(self, values: Tensor) -> Tensor:
        """Go on from the sums of the first layer."""
        for linear in list(self.linears)[1:]:
            values = linear(F.leaky_relu(values, NEGATIVE_SLOPE))
        return values.sigmoid() if self.output == "sigmoid" else values


class KeptWeights:
    """A network's weights after the best epoch so far, which is each replica's own."""

    def __init__(self, optimizer: FlatAdam) -> None:
        self._optimizer = optimizer
        self.flat = optimizer.flat.clone()

    def keep(self, better: Tensor) -> None:
        """Keep the present weights of some replicas, a bool of shape (replica,)."""
        optimizer = self._optimizer
        self.flat = torch.where(better[optimizer.replica_of], optimizer.flat, self.flat)

    def restore(self) -> None:
        """Give the network the weights that were kept, once training is over."""
        self._optimizer.flat.copy_(self.flat)


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

    @classmethod
    def of(cls, estimator: BaseEstimator, **own: Any) -> Self:
        """Make one of an estimator's parameters of the same names, but for its `own`."""
        names = cls().get_params(deep=False)
        return cls(**{name: getattr(estimator, name) for name in names} | own)


Fusion = Literal["concat", "sum", "mean"]
ClassWeight = Mapping[Any, float] | Literal["balanced"] | None

AS_PUBLISHED: dict[str, Any] = {
    "patience": None,
    "weight_decay": 0.0,
    "epochs": 50,
    "numeric_bins": 0,
}
"""What the papers do: numbers as they are, so many epochs, nothing that prevents overfitting."""


@dataclass(frozen=True, slots=True)
class SplitSettings:
    """Sizes and rates; `BaseSplitClassifier` documents them.

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

    def __init__(self, streams: RandomStreams, *, n_held_out: int, **shared: Any) -> None:
        super().__init__(streams, n_held_out=n_held_out, **shared)
        self.held_out, self.trained_on = self.order[:, :n_held_out], self.order[:, n_held_out:]

    def rows(self, step: int) -> Tensor:
        """Choose the record positions of a batch, int64, shape (replica, batch)."""
        return self.order.gather(1, super().rows(step))


def n_records(schedule: Schedule, step: int) -> int:
    """Count the rows of a batch that are records: a Poisson sample is filled up with others."""
    if isinstance(schedule, PoissonSchedule):
        return int(schedule.n_real(step)[0])
    return schedule.batch_size
