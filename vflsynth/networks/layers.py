"""Networks with a leading replica dimension: layers, softmax, the perceptron of critics, and Adam.

**Softmax.** Most columns have few categories, and most batches many records. torch's CPU kernels
compute row by row, and leave their vector instructions where a row is shorter than a vector: 20
times slower for rows of 5 than the same numbers computed column by column.

**The perceptron's gradients are written out.** A critic with LeakyReLUs is piecewise linear: its
input gradient is a product of weights and slopes, and the slopes have derivative zero almost
everywhere. So the gradient penalty needs no double backward, and everything a critic's training
needs follows from two sweeps over the layers:

- `cotangents`, backwards: the gradient of an output with respect to every pre-activation;
- `push`, forwards: what a change of the input gradient does to every layer.

Written out, a step takes a third of the operations of automatic differentiation.
``tests/equations`` compares every gradient here with it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vflsynth._random import RandomStreams

Module = TypeVar("Module", bound=nn.Module)

_MOMENTUM = 0.1  # of the newest batch in batch normalisation's running statistics, as in torch


def at_rows(values: Tensor, rows: Tensor) -> Tensor:
    """Look up records, (replica, record, feature), at places of shape (replica, batch)."""
    if len(values) == 1:  # several times faster
        return values[0].index_select(0, rows[0]).unsqueeze(0)
    return values.gather(1, rows.unsqueeze(-1).expand(-1, -1, values.shape[-1]))


def one_replica(module: Module, replica: int) -> Module:
    """Copy one replica of a replicated network, as a network of a single replica."""
    slices: dict[int, Any] = {
        id(value): nn.Parameter(value.detach()[replica : replica + 1].clone())
        for value in module.parameters()
    }
    slices |= {id(value): value[replica : replica + 1].clone() for value in module.buffers()}
    return copy.deepcopy(module, slices)  # the slices stand in for what they were cut from


def pulled_back(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    upstreams: Sequence[Tensor],
    *,
    allow_unused: bool = False,
) -> tuple[Tensor, ...]:
    """Return the gradients of ``(upstream * output).sum()``, of all outputs, for each input.

    They are those of `torch.autograd.grad` given the upstreams, which imports 500 modules about
    symbolic shapes for that, in a third of a second.
    """
    with torch.enable_grad():
        total = sum((upstream * output).sum() for upstream, output in zip(upstreams, outputs))
    return torch.autograd.grad(total, inputs, allow_unused=allow_unused)  # type: ignore[arg-type]


class Linear(nn.Module):
    """R independent affine maps, one per replica.

    `fan_in` are inputs of the layer that this map is a part of, by default `in_dim`.

    Weights and biases start uniform in ±1/sqrt(fan_in), PyTorch's default for ``nn.Linear`` and
    therefore that of the reference code.
    """

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        *,
        bias: bool,
        streams: RandomStreams,
        name: str,
        fan_in: int | None = None,
    ) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(max(1, fan_in or in_dim))
        self.weight = nn.Parameter(_symmetric(streams, f"{name}.weight", (in_dim, out_dim), bound))
        self.bias = (
            nn.Parameter(_symmetric(streams, f"{name}.bias", (1, out_dim), bound)) if bias else None
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """Map (replica, batch, in) to (replica, batch, out)."""
        return affine(inputs, self.weight, self.bias)


def affine(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Compute ``inputs @ weight + bias`` per replica."""
    if bias is None:
        return torch.bmm(inputs, weight)
    return torch.baddbmm(bias, inputs, weight)


class BatchNorm(nn.Module):
    """Batch normalisation with separate statistics for every replica; eps adds to variances."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, n_replicas: int, dim: int, *, eps: float, device: torch.device) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(n_replicas, 1, dim, device=device))
        self.bias = nn.Parameter(torch.zeros(n_replicas, 1, dim, device=device))
        self.register_buffer("running_mean", torch.zeros(n_replicas, 1, dim, device=device))
        self.register_buffer("running_var", torch.ones(n_replicas, 1, dim, device=device))

    def forward(self, inputs: Tensor) -> Tensor:
        """Normalise (replica, batch, dim) over the batch dimension."""
        replicas, batch, dim = inputs.shape
        # One fused kernel for all replicas: they become channels of one batch normalisation.
        channels = inputs.transpose(0, 1).reshape(batch, replicas * dim)
        normalised = torch.batch_norm(
            channels,
            self.weight.view(-1),
            self.bias.view(-1),
            self.running_mean.view(-1),
            self.running_var.view(-1),
            self.training,
            _MOMENTUM,
            self.eps,
            cudnn_enabled=False,
        )
        return normalised.view(batch, replicas, dim).transpose(0, 1)


def _symmetric(streams: RandomStreams, name: str, shape: tuple[int, ...], bound: float) -> Tensor:
    return streams.uniform(name, 0, shape).mul(2.0 * bound).sub(bound)


_VECTOR = 16
"""Numbers of 32 bits in the widest vectors of today's processors."""


def softmax(logits: Tensor) -> Tensor:
    """Compute ``logits.softmax(-1)``."""
    return _by_column(torch.softmax, logits)


def log_softmax(logits: Tensor) -> Tensor:
    """Compute ``logits.log_softmax(-1)``."""
    return _by_column(torch.log_softmax, logits)


def _by_column(compute: Callable[[Tensor, int], Tensor], logits: Tensor) -> Tensor:
    """Compute along the last dimension, column by column where rows are shorter than a vector."""
    if logits.device.type != "cpu" or not 0 < logits.shape[-1] < _VECTOR:
        return compute(logits, -1)
    columns = logits.reshape(-1, logits.shape[-1]).T.contiguous()
    return compute(columns, 0).T.reshape(logits.shape)


NEGATIVE_SLOPE = 0.2
"""Slope of every LeakyReLU (reference code of VFLGAN)."""


class Slope(NamedTuple):
    """An `MLP`'s input gradient, (replica, batch, in), with its trace and cotangents."""

    trace: list[Tensor]
    cotangents: list[Tensor]
    gradient: Tensor


class MLP(nn.Module):
    """Linear layers with LeakyReLU(0.2) between them, and after the last one if it says so.

    `dims` are input, hidden and output sizes; initial weights are those of the streams called
    `name`. Gradients of the parameters are written into ``parameter.grad``, which must exist
    (`FlatAdam` makes it).
    """

    def __init__(
        self,
        dims: Sequence[int],
        *,
        bias: bool,
        activate_last: bool,
        streams: RandomStreams,
        name: str,
    ) -> None:
        super().__init__()
        linears = [
            Linear(a, b, bias=bias, streams=streams, name=f"{name}.{i}")
            for i, (a, b) in enumerate(zip(dims[:-1], dims[1:]))
        ]
        self.linears = nn.ModuleList(linears)
        # The same parameters without module look-ups, which cost as much as a small product.
        self.layers = [(linear.weight, linear.bias) for linear in linears]
        self._activated = [activate_last or i + 1 < len(linears) for i in range(len(linears))]

    def forward(self, inputs: Tensor) -> Tensor:
        """Map (replica, batch, in) to (replica, batch, out)."""
        return self.trace(inputs)[-1]

    def trace(self, inputs: Tensor) -> list[Tensor]:
        """Compute all layers' outputs, the inputs first: L + 1 tensors (replica, batch, dim)."""
        outputs = [inputs]
        for (weight, bias), activated in zip(self.layers, self._activated):
            value = affine(outputs[-1], weight, bias)
            outputs.append(F.leaky_relu_(value, NEGATIVE_SLOPE) if activated else value)
        return outputs

    def cotangents(self, trace: Sequence[Tensor], upstream: Tensor) -> list[Tensor]:
        """Compute the gradient of ``(upstream * outputs).sum()`` for every pre-activation.

        `trace` is from `trace`, `upstream` has shape (replica, batch, out). Returns one per layer,
        (replica, batch, dim), first layer first.
        """
        found: list[Tensor] = []
        for i in reversed(range(len(self.layers))):
            if self._activated[i]:
                upstream = leaky_relu_backward(upstream, trace[i + 1])
            found.append(upstream)
            if i:
                upstream = torch.bmm(upstream, self.layers[i][0].mT)
        found.reverse()
        return found

    def input_gradient(self, cotangents: Sequence[Tensor]) -> Tensor:
        """Compute the gradient with respect to the inputs, shape (replica, batch, in)."""
        return torch.bmm(cotangents[0], self.layers[0][0].mT)

    def write_gradient(
        self, trace: Sequence[Tensor], cotangents: Sequence[Tensor], changes: Sequence[Tensor] = ()
    ) -> None:
        """Set the parameters' gradients: inputs times cotangents of every layer.

        `changes`, of `push`, take the place of the inputs of the last records: of these the
        gradient is that of ``(change * input_gradient).sum()``.
        """
        rows = cotangents[0].shape[1] - (changes[0].shape[1] if changes else 0)
        for i, ((weight, bias), inputs, cotangent) in enumerate(
            zip(self.layers, trace, cotangents)
        ):
            assert weight.grad is not None
            own = cotangent[:, :rows]
            torch.bmm(inputs[:, :rows].mT, own, out=weight.grad)
            if changes:
                weight.grad.baddbmm_(changes[i].mT, cotangent[:, rows:])
            if bias is not None:
                torch.sum(own, 1, keepdim=True, out=bias.grad)

    def push(self, trace: Sequence[Tensor], change: Tensor) -> list[Tensor]:
        """Carry a change of the input gradient forwards, layer by layer.

        `change`, (replica, batch, in), is of the last records of the trace. Returns L + 1 tensors
        (replica, batch, dim), the change itself first. One record's derivative with respect to a
        weight is the outer product of the layer's entry and its cotangent; with respect to the
        upstream that the cotangents started from, it is the last entry.
        """
        changes, batch = [change], change.shape[1]
        for (weight, _), activated, outputs in zip(self.layers, self._activated, trace[1:]):
            change = torch.bmm(change, weight)
            if activated:
                change = leaky_relu_backward(change, outputs[:, -batch:])
            changes.append(change)
        return changes


# The overload itself: to find it by its arguments at every call takes a sixth of the time.
_leaky_relu_backward = torch.ops.aten.leaky_relu_backward.default


def leaky_relu_backward(gradient: Tensor, outputs: Tensor) -> Tensor:
    """Multiply by the LeakyReLU's slope, which shows in the sign of its output."""
    return _leaky_relu_backward(  # type: ignore[no-any-return]
        gradient, outputs, NEGATIVE_SLOPE, True
    )


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
        betas: tuple[float, float] = (0.9, 0.999),
        weight_decay: float = 0.0,
    ) -> None:
        self.learning_rate, self.betas = learning_rate, betas
        self.weight_decay = weight_decay
        self._update = torch._fused_adamw_ if weight_decay else torch._fused_adam_
        self.parameters = list(module.parameters())
        parts = [p.detach().reshape(-1) for p in self.parameters]
        self.flat = torch.cat(parts) if parts else torch.zeros(0)
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

    def set_gradient(self, gradients: Sequence[Tensor | None]) -> None:
        """Write gradients given one per parameter, in the module's order; None stands for zeros."""
        found = (
            torch.zeros_like(p) if g is None else g
            for p, g in zip(self.parameters, gradients, strict=True)
        )
        torch.cat([g.reshape(-1) for g in found], out=self.gradient)

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


def frechet_distance_of_moments(
    mean: Tensor, covariance: Tensor, other_mean: Tensor, other_covariance: Tensor
) -> Tensor:
    r"""Fréchet distance between two Gaussians with the given moments, float64 of shape (...).

    Means, (..., feature), are in standardised units; leading dimensions broadcast. Covariances,
    (..., feature, feature), may be singular.

    Source: VFLGAN §5.1.3, Eq. 23.

    Departs from the reference code, which takes the real part of ``scipy.linalg.sqrtm`` of the
    plain product: one-hot blocks are collinear, the product is singular and ``sqrtm`` may return
    NaN or complex numbers. The trace of the root is computed from eigenvalues of the symmetric
    :math:`V^{1/2} \tilde V V^{1/2}` instead, with round-off below zero cut off, so the result is
    always finite. ``tests/equations/test_frechet_distance.py`` pins the agreement.
    """
    mean, covariance = mean.double(), covariance.double()
    other_mean, other_covariance = other_mean.double(), other_covariance.double()
    eigenvalues, vectors = torch.linalg.eigh(covariance)
    root = (vectors * eigenvalues.clamp_min(0.0).sqrt().unsqueeze(-2)) @ vectors.mT
    product = root @ other_covariance @ root
    product = (product + product.mT) / 2
    trace_of_root = torch.linalg.eigvalsh(product).clamp_min(0.0).sqrt().sum(-1)
    traces = torch.diagonal(covariance, dim1=-2, dim2=-1).sum(-1) + torch.diagonal(
        other_covariance, dim1=-2, dim2=-1
    ).sum(-1)
    distance = (mean - other_mean).square().sum(-1) + traces - 2.0 * trace_of_root
    result: Tensor = distance.clamp_min(0.0)
    return result
