"""Layers with a leading replica dimension."""

from __future__ import annotations

import copy
import math
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from vflsynth._random import RandomStreams

Module = TypeVar("Module", bound=nn.Module)

_MOMENTUM = 0.1  # of the newest batch in batch normalisation's running statistics, as in torch


def one_replica(module: Module, replica: int) -> Module:
    """Copy one replica of a replicated network, as a network of a single replica."""
    slices: dict[int, Any] = {
        id(value): nn.Parameter(value.detach()[replica : replica + 1].clone())
        for value in module.parameters()
    }
    slices |= {id(value): value[replica : replica + 1].clone() for value in module.buffers()}
    return copy.deepcopy(module, slices)  # the slices stand in for what they were cut from


class Linear(nn.Module):
    """R independent affine maps, one per replica.

    Parameters
    ----------
    in_dim, out_dim : int
    bias : bool
    streams : RandomStreams
        Where the initial weights are drawn from.
    name : str
        Name of the stream.
    fan_in : int, optional
        Inputs of the layer that this map is a part of. Default: `in_dim`.

    Notes
    -----
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
    """Batch normalisation with separate statistics for every replica.

    Parameters
    ----------
    n_replicas, dim : int
    eps : float
        Added to the variance.
    """

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
