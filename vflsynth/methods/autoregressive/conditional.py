"""Conditional densities of a party's columns, each given those before it and a context.

One small network per column, all computed at once: the first layer of all columns is one product
with a mask that lets a column see only what is before it. Categories have a softmax; numbers have
states (an ordinary value, missing, spikes) and, where ordinary, a mixture of Gaussians. A column of
many levels is two, the group and the place in it: the softmax of the place has a bias for every
group, and what comes after sees an embedding of the level.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vflsynth._random import RandomStreams
from vflsynth.methods.autoregressive.layout import VALUE_FEATURES, Layout, value_features
from vflsynth.methods.autoregressive.mixtures import (
    IMPOSSIBLE,
    N_COMPONENTS,
    known_number,
    mixture_log_density,
    mixture_parameters,
    restrict,
)
from vflsynth.models.known import Known, pick
from vflsynth.networks.adam import FlatAdam
from vflsynth.networks.layers import log_softmax, softmax

_CALIBRATION_ROUNDS, _LARGEST_SHIFT = 10, 1.0
_STARTING_STEPS, _STARTING_RATE = 200, 0.05

_LEVEL_WIDTH, _LEVEL_SCALE = 8, 0.1
"""Of the embedding of one of many levels: numbers, and how large they are before training."""


class ConditionalNetwork(nn.Module):
    """p(column | columns before it, context) of every column, for R replicas.

    Parameters
    ----------
    layout : Layout
        At least one column.
    context_dim : int
        Numbers that all columns see.
    hidden : int
        Units of the two hidden layers of every column; the second is added to the first.
    streams : RandomStreams
        Initial weights.
    """

    mask: Tensor
    padding: Tensor

    def __init__(
        self, layout: Layout, context_dim: int, hidden: int, streams: RandomStreams
    ) -> None:
        super().__init__()
        self.layout, self.hidden = layout, hidden
        sizes = [column.n_codes for column in layout.columns]
        self.parts = {i: c.within for i, c in enumerate(layout.columns) if c.within is not None}
        n_embedded = list(sizes)
        for i, within in self.parts.items():
            n_embedded[i] = len(within) * sizes[i]
        widths = _embedding_widths(layout)
        # Embeddings of one width are one table.
        self.groups = {w: [i for i, own in enumerate(widths) if own == w] for w in set(widths)}
        self.groups = dict(sorted(self.groups.items()))
        n_columns, device, replicas = len(sizes), streams.device, len(streams.secrets)
        self.tables = nn.ParameterDict()
        owners: list[int] = []
        self._embedded: dict[int, tuple[int, int, int]] = {}  # width, place in table, first input
        for width, members in self.groups.items():
            offsets = torch.tensor([0, *(n_embedded[i] for i in members)]).cumsum(0)
            shape = (int(offsets[-1]), width)
            table = streams.normal(f"embedding.{width}", 0, shape)
            for k, i in enumerate(members):
                if i in self.parts:
                    table[:, offsets[k] : offsets[k + 1]] *= _LEVEL_SCALE
            self.tables[str(width)] = nn.Parameter(table)
            self.register_buffer(f"offsets_{width}", offsets[:-1].to(device), persistent=False)
            for place, i in enumerate(members):
                self._embedded[i] = width, place, len(owners)
                owners += [i] * width
        self._numbers_at = len(owners)
        owners += [i for i in layout.numeric for _ in range(VALUE_FEATURES)]
        owners += [-1] * context_dim
        in_dim = len(owners)
        before = torch.tensor(owners).unsqueeze(1) < torch.arange(n_columns)
        mask = before.repeat_interleave(hidden, 1).float().to(device)
        self.register_buffer("mask", mask, persistent=False)
        self.n_outputs = max(sizes) + (3 * N_COMPONENTS if layout.numeric else 0)
        self.first = nn.Parameter(
            streams.normal("first", 0, (in_dim, n_columns * hidden)) / math.sqrt(in_dim)
        )
        self.first_bias = nn.Parameter(torch.zeros(replicas, 1, n_columns * hidden, device=device))
        self.second = nn.Parameter(
            streams.normal("second", 0, (n_columns, hidden, hidden)) / math.sqrt(hidden)
        )
        self.second_bias = nn.Parameter(torch.zeros(replicas, n_columns, 1, hidden, device=device))
        self.last = nn.Parameter(
            streams.normal("last", 0, (n_columns, hidden, self.n_outputs)) * 0.02
        )
        bias = torch.zeros(replicas, n_columns, 1, self.n_outputs, device=device)
        self.last_bias = nn.Parameter(bias)
        self.n_codes = max(sizes)
        padding = torch.zeros(n_columns, 1, self.n_codes, device=device)
        for i, size in enumerate(sizes):
            padding[i, :, size:] = IMPOSSIBLE
        self.register_buffer("padding", padding, persistent=False)
        self.within = nn.ParameterDict()
        for i, within in self.parts.items():
            beyond = torch.arange(sizes[i]) >= torch.tensor(within).unsqueeze(1)
            lacking = torch.zeros(len(within), self.n_codes).masked_fill(
                F.pad(beyond, (0, self.n_codes - sizes[i])), IMPOSSIBLE
            )
            self.register_buffer(f"lacking_{i}", lacking.to(device), persistent=False)
            biases = torch.zeros(replicas, len(within), self.n_codes, device=device)
            self.within[str(i)] = nn.Parameter(biases)

    @staticmethod
    def own_inputs(layout: Layout) -> int:
        """Count the inputs that are not the context's."""
        return sum(_embedding_widths(layout)) + VALUE_FEATURES * len(layout.numeric)

    @torch.no_grad()
    def start_from(self, codes: Tensor) -> None:
        """Let the output biases start as the columns' own distributions have them.

        Parameters
        ----------
        codes : Tensor of integers, shape (replica, record, column)
            Of the training records.
        """
        n_codes, bias = self.n_codes, self.last_bias
        counts = torch.stack(
            [
                torch.stack([torch.bincount(column, minlength=n_codes) for column in own.T])
                for own in codes
            ]
        )
        bias[:, :, 0, :n_codes] = (counts.float() + 0.5).log()
        for i, within in self.parts.items():
            bias[:, i, 0, :n_codes] = 0.0
            shares = [pair_counts(own[:, i - 1], own[:, i], len(within), n_codes) for own in codes]
            self.within[str(i)].copy_((torch.stack(shares).float() + 0.5).log())
        if self.layout.numeric:
            spread = torch.linspace(-1.8, 1.8, N_COMPONENTS, device=bias.device)
            bias[:, :, 0, -2 * N_COMPONENTS : -N_COMPONENTS] = spread
            bias[:, :, 0, -N_COMPONENTS:] = -0.5

    def start_numbers_from(self, codes: Tensor, values: Tensor) -> None:
        """Let the output biases of the numbers fit those of the ordinary ones by likelihood.

        Parameters
        ----------
        codes : Tensor of integers, shape (replica, record, column)
        values : Tensor, shape (replica, record, numeric column)
        """
        if not self.layout.numeric:
            return
        numeric, n = list(self.layout.numeric), 3 * N_COMPONENTS
        ordinary = codes.transpose(1, 2)[:, numeric] == 0
        shares = ordinary / ordinary.sum(2, keepdim=True).clamp_min(1)
        biases = nn.ParameterList([self.last_bias.detach()[:, numeric, :, -n:].clone()])
        optimizer = FlatAdam(biases, learning_rate=_STARTING_RATE, betas=(0.9, 0.999))
        for _ in range(_STARTING_STEPS):
            density = mixture_log_density(biases[0], values.transpose(1, 2))
            gradients = torch.autograd.grad(-(density * shares).sum(), list(biases))
            optimizer.set_gradient(gradients)
            optimizer.step()
        with torch.no_grad():
            self.last_bias[:, numeric, :, -n:] = biases[0]

    def inputs(self, codes: Tensor, values: Tensor, context: Tensor) -> Tensor:
        """Show records to the network.

        Parameters
        ----------
        codes : Tensor of int64, shape (replica, batch, column)
        values : Tensor, shape (replica, batch, numeric column)
        context : Tensor, shape (replica, batch, context)

        Returns
        -------
        Tensor, shape (replica, batch, in)
        """
        parts = []
        replicas = torch.arange(len(codes), device=codes.device).view(-1, 1, 1)
        seen = codes
        if self.parts:
            seen = codes.clone()
            for i in self.parts:
                seen[:, :, i] += self.layout.columns[i].n_codes * codes[:, :, i - 1]
        for width, members in self.groups.items():
            table = self.tables[str(width)]
            places = seen[:, :, members] + self.get_buffer(f"offsets_{width}")
            places = places + replicas * table.shape[1]
            parts.append(F.embedding(places, table.flatten(0, 1)).flatten(2))
        if self.layout.numeric:
            ordinary = codes[:, :, list(self.layout.numeric)] == 0
            parts.append(value_features(values, ordinary))
        parts.append(context)
        return torch.cat(parts, 2)

    def outputs(
        self,
        inputs: Tensor,
        keep: tuple[Tensor, Tensor] | None = None,
        seen: list[tuple[Tensor, Tensor]] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Compute what parametrises the distributions of all columns.

        Parameters
        ----------
        inputs : Tensor, shape (replica, batch, in)
        keep : tuple of two Tensor, shape (replica, batch, hidden), optional
            Factors of the hidden units: dropout.
        seen : list, optional
            Gets what goes into each of the three layers and what comes out before the
            nonlinearity: (replica, batch, unit) of all columns in the first, and (replica, column,
            batch, unit) above.

        Returns
        -------
        logits : Tensor, shape (replica, column, batch, code)
        mixture : Tensor, shape (replica, numeric column, batch, 3 * component)
        """
        replicas, batch, _ = inputs.shape
        hidden = torch.baddbmm(self.first_bias, inputs, self.first * self.mask)
        if seen is not None:
            seen.append((inputs, hidden))
        hidden = hidden.relu().view(replicas, batch, -1, self.hidden).transpose(1, 2)
        upper = self.second, self.second_bias, self.last, self.last_bias
        return self._upper(hidden, *upper, keep, seen)

    def column_outputs(self, inputs: Tensor, column: int) -> tuple[Tensor, Tensor]:
        """Compute `outputs` of one column alone; what is after it must be 0 in the inputs."""
        own = slice(column * self.hidden, (column + 1) * self.hidden)
        hidden = torch.baddbmm(self.first_bias[..., own], inputs, self.first[..., own])
        one = slice(column, column + 1)
        logits, mixture = self._upper(
            hidden.relu().unsqueeze(1),
            self.second[:, one],
            self.second_bias[:, one],
            self.last[:, one],
            self.last_bias[:, one],
        )
        return logits[:, 0] + self.padding[column], mixture[:, 0] if mixture.shape[1] else mixture

    def _upper(
        self,
        hidden: Tensor,
        second: Tensor,
        second_bias: Tensor,
        last: Tensor,
        last_bias: Tensor,
        keep: tuple[Tensor, Tensor] | None = None,
        seen: list[tuple[Tensor, Tensor]] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Map (replica, column, batch, hidden) to what `outputs` returns, without padding."""
        shown = hidden if keep is None else hidden * keep[0].unsqueeze(1)
        added = torch.matmul(shown, second) + second_bias
        if seen is not None:
            seen.append((shown, added))
        hidden = hidden + added.relu()
        shown = hidden if keep is None else hidden * keep[1].unsqueeze(1)
        outputs = torch.matmul(shown, last) + last_bias
        if seen is not None:
            seen.append((shown, outputs))
        logits, mixture = outputs[..., : self.n_codes], outputs[..., self.n_codes :]
        if mixture.shape[1] == len(self.layout.columns) and mixture.shape[1] > 1:
            mixture = mixture[:, list(self.layout.numeric)]
        return logits, mixture

    def log_likelihood(
        self,
        codes: Tensor,
        values: Tensor,
        context: Tensor,
        keep: tuple[Tensor, Tensor] | None = None,
        seen: list[tuple[Tensor, Tensor]] | None = None,
    ) -> Tensor:
        """Compute log p of every column, shape (replica, column, batch).

        Parameters
        ----------
        codes, values, context : Tensor
            As of `inputs`.
        keep, seen : optional
            As of `outputs`.
        """
        logits, mixture = self.outputs(self.inputs(codes, values, context), keep, seen)
        logits = logits + self.padding
        for i in self.parts:
            logits[:, i] = logits[:, i] + self._of_group(i, codes[:, :, i - 1])
        found = log_softmax(logits)
        found = found.gather(-1, codes.transpose(1, 2).unsqueeze(-1)).squeeze(-1)
        if not self.layout.numeric:
            return found
        numeric = list(self.layout.numeric)
        density = mixture_log_density(mixture, values.transpose(1, 2))
        ordinary = codes.transpose(1, 2)[:, numeric] == 0
        density = torch.where(ordinary, density, torch.zeros_like(density))
        return found.index_add(1, torch.tensor(numeric, device=found.device), density)

    def _of_group(self, column: int, groups: Tensor) -> Tensor:
        """Look up what a place's logits have in each record's group, (replica, batch, code)."""
        table = self.within[str(column)] + self.get_buffer(f"lacking_{column}")
        replicas = torch.arange(len(groups), device=groups.device).unsqueeze(1)
        return F.embedding(groups + replicas * table.shape[1], table.flatten(0, 1))

    @torch.no_grad()
    def draw(
        self,
        context: Tensor,
        uniforms: Tensor,
        normals: Tensor,
        shares: Sequence[Tensor] | None = None,
        known: Known | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Draw records, column by column.

        Parameters
        ----------
        context : Tensor, shape (1, record, context)
        uniforms : Tensor, shape (2, record, column)
            Choose codes and components of mixtures.
        normals : Tensor, shape (record, numeric column)
        shares : sequence of Tensor, each (code,), optional
            Distributions of the columns' codes: output biases are changed, column by column, so
            that the drawn records have them. Of a place in a group, (group, code).
        known : Known, optional
            Columns that are not drawn freely: they get what is known of them, and the records the
            weights of sequential importance sampling.

        Returns
        -------
        codes : Tensor of int64, shape (record, column)
        values : Tensor, shape (record, numeric column)
        log_weights : Tensor of float64, shape (record,)
            Log probability of what is known, each column given those before it; 0 without any.
        """
        n_records, n_columns = uniforms.shape[1:]
        codes = torch.zeros(1, n_records, n_columns, dtype=torch.long, device=context.device)
        values = normals.new_zeros(1, *normals.shape)
        inputs = context.new_zeros(1, n_records, self.mask.shape[0])
        inputs[..., inputs.shape[-1] - context.shape[-1] :] = context
        places = {column: k for k, column in enumerate(self.layout.numeric)}
        log_weights = torch.zeros(n_records, dtype=torch.float64, device=context.device)
        for column in range(n_columns):
            logits, mixture = self.column_outputs(inputs, column)
            if column in self.parts:
                logits = logits + self._of_group(column, codes[:, :, column - 1])
            if shares is not None and column in self.parts:
                groups, biases = codes[0, :, column - 1], self.within[str(column)][0]
                for group in torch.unique(groups).tolist():
                    rows = groups == group
                    shift = _shift_to(logits[0, rows], shares[column][group])
                    logits[0, rows] += shift
                    biases[group] += shift
            elif shares is not None:
                shift = _shift_to(logits[0], shares[column])
                logits = logits + shift
                self.last_bias[0, column, 0, : self.n_codes] += shift
            k, own = places.get(column), logits[0]
            if known is not None:
                own, log_mass = restrict(known, column, k, own, None if k is None else mixture[0])
                log_weights += log_mass
                own = torch.where((log_mass > -torch.inf).unsqueeze(1), own, logits[0].double())
            codes[0, :, column] = pick(softmax(own), uniforms[0, :, column])
            if k is not None:
                weights, means, deviations = mixture_parameters(mixture[0])
                chosen = pick(weights.exp(), uniforms[1, :, column]).unsqueeze(1)
                value = means.gather(1, chosen) + deviations.gather(1, chosen) * normals[:, [k]]
                values[0, :, k] = value[:, 0]
                if known is not None:
                    inside = uniforms[1, :, column], torch.special.ndtr(normals[:, k])
                    if (number := known_number(known, k, mixture[0], inside)) is not None:
                        # Where no ordinary value may be, the interval is empty.
                        number = number.to(values.dtype)
                        values[0, :, k] = torch.where(number.isfinite(), number, value[:, 0])
            self._show(column, k, codes, values, inputs)
        return codes[0], values[0], log_weights

    def _show(
        self, column: int, k: int | None, codes: Tensor, values: Tensor, inputs: Tensor
    ) -> None:
        """Write a column, and its number if it has the k-th, of one replica's records to inputs."""
        width, place, start = self._embedded[column]
        rows = codes[:, :, column] + self.get_buffer(f"offsets_{width}")[place]
        if column in self.parts:
            rows = rows + self.layout.columns[column].n_codes * codes[:, :, column - 1]
        inputs[..., start : start + width] = F.embedding(rows, self.tables[str(width)][0])
        if k is not None:
            start = self._numbers_at + VALUE_FEATURES * k
            ordinary = codes[:, :, [column]] == 0
            shown = value_features(values[:, :, [k]], ordinary)
            inputs[..., start : start + VALUE_FEATURES] = shown


def _shift_to(logits: Tensor, shares: Tensor) -> Tensor:
    """Find what to add to logits, (record, code), for their mean softmax to be these shares."""
    wanted = logits.new_zeros(logits.shape[1])
    wanted[: len(shares)] = shares
    shift, there = torch.zeros_like(wanted), wanted > 0.0
    for _ in range(_CALIBRATION_ROUNDS):
        found = softmax(logits + shift).mean(0)
        step = (wanted[there] / found[there].clamp_min(1e-9)).log()
        shift[there] += step.clamp(-_LARGEST_SHIFT, _LARGEST_SHIFT)
    return shift


def pair_counts(groups: Tensor, places: Tensor, n_groups: int, n_places: int) -> Tensor:
    """Count records by the two parts of a code, (group, place), from codes of shape (record,)."""
    pairs = groups.long() * n_places + places.long()
    return torch.bincount(pairs, minlength=n_groups * n_places).view(n_groups, n_places)


def _embedding_widths(layout: Layout) -> list[int]:
    return [
        _LEVEL_WIDTH
        if column.within is not None
        else min(16, math.ceil(2.0 * column.n_codes**0.35))
        for column in layout.columns
    ]


def network_of(layout: Layout, weights: Mapping[str, Tensor]) -> ConditionalNetwork | None:
    """Make a network of one replica of weights; None if there are no columns.

    Parameters
    ----------
    layout : Layout
    weights : mapping of str to Tensor
        All sizes are those of the weights.

    Raises
    ------
    ValueError
        If they are too few for the columns.
    """
    if not layout.columns:
        return None
    hidden, in_dim = weights["second"].shape[-1], weights["first"].shape[1]
    streams = RandomStreams([b""], weights["first"].device)
    context_dim = in_dim - ConditionalNetwork.own_inputs(layout)
    if context_dim < 0:
        raise ValueError(f"a first layer of {in_dim} inputs is too narrow for the columns")
    network = ConditionalNetwork(layout, context_dim, hidden, streams)
    network.load_state_dict(dict(weights), strict=True)
    return network
