"""Per-record gradients of conditional densities, layer by layer and column by column.

Every column of a `ConditionalNetwork` has an embedding and three linear layers of its own. In each
of them a record's gradient is an outer product, which is all that clipping records one by one takes
(`vflsynth.privacy.dpsgd`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from vflsynth.methods.autoregressive.conditional import ConditionalNetwork
from vflsynth.methods.autoregressive.mixtures import N_COMPONENTS
from vflsynth.privacy.dpsgd import LayerTrace


@torch.enable_grad()
def likelihood_traces(
    network: ConditionalNetwork, codes: Tensor, values: Tensor, context: Tensor
) -> list[LayerTrace]:
    """Trace every record's negative log-likelihood of all columns; see `ConditionalNetwork.inputs`.

    Embeddings, then first, second and last layers, each column by column: only the weights that the
    column has. `per_parameter` puts their gradients together.
    """
    seen: list[tuple[Tensor, Tensor]] = []
    found = network.log_likelihood(codes, values, context, seen=seen)
    (inputs, first), (shown, second), (upper, last) = seen
    gradients = torch.autograd.grad(-found.sum(), [inputs, first, second, last])
    inputs, shown, upper = inputs.detach(), shown.detach(), upper.detach()
    at_inputs, at_first, at_second, at_last = gradients
    traces, start = [], 0
    for width, members in network.groups.items():
        for i in members:
            one_hot = F.one_hot(codes[:, :, i], network.layout.columns[i].n_codes)
            own = at_inputs[:, :, start : start + width]
            traces.append(LayerTrace(one_hot.to(own.dtype), own, has_bias=False))
            start += width
    columns = range(len(network.layout.columns))
    for i in columns:
        own = at_first[:, :, _units(network, i)]
        traces.append(LayerTrace(inputs[:, :, _before(network, i)], own, has_bias=True))
    traces += [LayerTrace(shown[:, i], at_second[:, i], has_bias=True) for i in columns]
    for i in columns:
        own = at_last[:, i][:, :, _outputs(network, i)]
        traces.append(LayerTrace(upper[:, i], own, has_bias=True))
    return traces


def per_parameter(
    network: ConditionalNetwork, layers: Sequence[tuple[Tensor, Tensor | None]]
) -> list[Tensor]:
    """Put gradients of `likelihood_traces` together, one per parameter in the network's order.

    `layers` have the shapes of `rounded_gradient_sum`. 0 for weights that no column has.
    """
    found = {name: torch.zeros_like(p) for name, p in network.named_parameters()}
    rest = iter(layers)
    for width, members in network.groups.items():
        tables = [next(rest)[0] for _ in members]
        found[f"tables.{width}"].copy_(torch.cat(tables, 1))
    columns = range(len(network.layout.columns))
    for i in columns:
        weight, bias = _pair(next(rest))
        own = found["first"][:, :, _units(network, i)]
        own[:, _before(network, i)] = weight.to(own)
        found["first_bias"][:, :, _units(network, i)] = bias.to(own)
    for i in columns:
        weight, bias = _pair(next(rest))
        found["second"][:, i], found["second_bias"][:, i] = weight, bias
    for i in columns:
        weight, bias = _pair(next(rest))
        own, outputs = found["last"][:, i], _outputs(network, i)
        own[:, :, outputs] = weight.to(own)
        found["last_bias"][:, i][:, :, outputs] = bias.to(own)
    return list(found.values())


def _pair(layer: tuple[Tensor, Tensor | None]) -> tuple[Tensor, Tensor]:
    weight, bias = layer
    assert bias is not None
    return weight, bias


def _units(network: ConditionalNetwork, column: int) -> slice:
    """Return where a column's units are in the first layer."""
    return slice(column * network.hidden, (column + 1) * network.hidden)


def _before(network: ConditionalNetwork, column: int) -> Tensor:
    """Which inputs a column sees, shape (in,)."""
    return network.mask[:, column * network.hidden] > 0


def _outputs(network: ConditionalNetwork, column: int) -> Tensor:
    """Which outputs parametrise a column's distribution, shape (output,)."""
    own = torch.zeros(network.n_outputs, dtype=torch.bool, device=network.mask.device)
    own[: network.layout.columns[column].n_codes] = True
    if column in network.layout.numeric:
        own[-3 * N_COMPONENTS :] = True
    return own
