"""What later parties see of earlier ones: fixed features, and a narrow noisy channel for them."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from vflsynth._random import RandomStreams
from vflsynth.methods.autoregressive.layout import VALUE_FEATURES, Layout, value_features
from vflsynth.networks.layers import Linear

_CHUNK = 8192
"""Records whose features are computed at once."""


class FixedFeatures(nn.Module):
    """Random features of a party's encoded records that nothing ever trains.

    ``relu(g W x + b)``, with x the one-hot codes and the numbers as networks see them, W Gaussian
    such that ``W x`` has unit variance, g = 2 and b standard normal. Of one of many levels, x has
    the group and the neighbourhood in it, a square root of the group's places: what random vectors
    of single levels say cannot be learned from few records of each. A party without columns has
    none of them; the streams are the party's own.
    """

    codes: Tensor
    values: Tensor
    bias: Tensor
    offsets: Tensor

    def __init__(self, layout: Layout, n_features: int, streams: RandomStreams) -> None:
        super().__init__()
        self.layout = layout
        sizes = [column.n_codes for column in layout.columns]
        self._near = {
            i: (math.isqrt(column.n_codes), -(-column.n_codes // math.isqrt(column.n_codes)))
            for i, column in enumerate(layout.columns)
            if column.within is not None
        }
        """Places of a neighbourhood, and neighbourhoods of a group, by column."""
        for i, (_, n_near) in self._near.items():
            sizes[i] = len(layout.columns[i].within or ()) * n_near
        gain = 2.0 / math.sqrt(max(1, len(sizes)))
        offsets = torch.tensor([0, *sizes]).cumsum(0)
        numbers = VALUE_FEATURES * len(layout.numeric)
        draw = streams.normal
        self.register_buffer("codes", gain * draw("codes", 0, (int(offsets[-1]), n_features)))
        # The bumps of one number add up to about two.
        self.register_buffer("values", 0.5 * gain * draw("values", 0, (numbers, n_features)))
        self.register_buffer("bias", draw("bias", 0, (1, n_features)))
        self.offsets = offsets[:-1].to(streams.device)

    @torch.no_grad()
    def forward(self, codes: Tensor, values: Tensor) -> Tensor:
        """Compute features, (replica, record, feature), of codes and numbers."""
        replicas, n_records, _ = codes.shape
        found = self.bias.new_empty(replicas, n_records, self.bias.shape[-1])
        numeric = list(self.layout.numeric)
        for replica in range(replicas):
            for start in range(0, n_records, _CHUNK):
                own = codes[replica, start : start + _CHUNK]
                numbers = values[replica, start : start + _CHUNK]
                table = self.codes[replica]
                places = own.long() + self.offsets
                for i, (n_places, n_near) in self._near.items():
                    place = own[:, i - 1].long() * n_near + own[:, i] // n_places
                    places[:, i] = place + self.offsets[i]
                total = torch.nn.functional.embedding_bag(places, table, mode="sum")
                if numeric:
                    shown = value_features(numbers, own[:, numeric] == 0)
                    total = torch.addmm(total, shown, self.values[replica])
                out = found[replica, start : start + _CHUNK]
                torch.add(total, self.bias[replica], out=out)
                out.relu_()
        return found


class Sender(nn.Module):
    """What a party's features contribute to the contexts of later parties, for R replicas.

    A hidden layer and a linear one per receiver, or the linear one alone if `hidden` is 0.
    """

    def __init__(
        self,
        n_features: int,
        n_receivers: int,
        hidden: int,
        context_dim: int,
        streams: RandomStreams,
        name: str,
    ) -> None:
        super().__init__()

        def linears(label: str, a: int, b: int) -> nn.ModuleList:
            return nn.ModuleList(
                Linear(a, b, bias=True, streams=streams, name=f"{name}.{label}.{k}")
                for k in range(n_receivers)
            )

        self.hidden = linears("hidden", n_features, hidden) if hidden else None
        self.output = linears("output", hidden or n_features, context_dim)

    def forward(self, features: Tensor, receiver: int) -> Tensor:
        """Contribute to the contexts of one receiver, (replica, record, context)."""
        if self.hidden is not None:
            features = self.hidden[receiver](features).relu()
        found: Tensor = self.output[receiver](features)
        return found


class PairCritic(nn.Module):
    """Says how well contexts and features go together, for R replicas.

    A hidden layer and a linear one for either; the score is a scalar product.
    """

    def __init__(
        self, context_dim: int, n_features: int, hidden: int, out: int, streams: RandomStreams
    ) -> None:
        super().__init__()

        def layers(label: str, n_in: int) -> nn.Sequential:
            first, last = (
                Linear(*size, bias=True, streams=streams, name=f"critic.{label}.{k}")
                for k, size in enumerate([(n_in, hidden), (hidden, out)])
            )
            return nn.Sequential(first, nn.ReLU(), last)

        self.of_contexts = layers("contexts", context_dim)
        self.of_features = layers("features", n_features)
        self.scale = out**-0.5

    def forward(self, contexts: Tensor, features: Tensor) -> Tensor:
        """Score every context with every record's features, (replica, context, record)."""
        told, wanted = self.of_contexts(contexts), self.of_features(features)
        found: Tensor = self.scale * torch.bmm(told, wanted.mT)
        return found


def into_ball(total: Tensor) -> Tensor:
    """Move w numbers towards 0 until their squares sum to less than w, which bounds a context.

    It is ``total / sqrt(1 + |total|**2 / w)``, a hair less for rounding.
    """
    radius = math.sqrt(total.shape[-1])
    length = torch.linalg.vector_norm(total, dim=-1, keepdim=True)
    length = torch.hypot(length, torch.full_like(length, radius))
    return total * (radius * (1.0 - 1e-6) / length)


def bits_of_channel(context_dim: int, noise_std: float) -> float:
    """Bound the information, in bits, that a noisy context carries about a record.

    It is ``context_dim / 2 * log2(1 + 1 / noise_std**2)``, with independent Gaussian noise on
    numbers whose squares sum to at most `context_dim` (`into_ball`). Whatever the distribution of
    the numbers is, also given anything that a receiver knows, their second moments p_i sum to at
    most `context_dim`. The noises are independent, so that the numbers together carry at most
    ``sum_i log2(1 + p_i / noise_std**2) / 2`` bits, the capacities of Gaussian channels of these
    powers (Shannon 1948), which is largest with all p_i = 1. A cube of numbers in [-1, 1] lies in
    the ball and has the same bound, but lets fewer bits through.
    """
    return 0.5 * context_dim * math.log2(1.0 + noise_std**-2)


def noise_for_bits(context_dim: int, bits: float) -> float:
    """Undo `bits_of_channel`: the noise at which `context_dim` numbers carry at most so many."""
    return 1.0 / math.sqrt(math.expm1(2.0 * bits / context_dim * math.log(2.0)))
