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
    draw_number,
    known_number,
    mixture_log_density,
    moved,
    restrict,
)
from vflsynth.models.samplers import Known, pick
from vflsynth.networks.layers import log_softmax, pulled_back, softmax

_CALIBRATION_ROUNDS, _LARGEST_SHIFT = 10, 1.0

COLUMNS_AT_ONCE = 64
"""Columns of a wide table that are computed together."""

_DRAWN_AT_ONCE = 1024
"""Records of a wide table that are drawn together."""

_LEVEL_WIDTH, _LEVEL_SCALE = 8, 0.1
"""Of the embedding of one of many levels: numbers, and how large they are before training."""


class ConditionalNetwork(nn.Module):
    """p(column | columns before it, context) of every column, for R replicas.

    Every column has two hidden layers of `hidden` units, of which the second is added to the first,
    and sees `context_dim` numbers of context. `sees`, int64 (column, seen), are the earlier columns
    that each sees, see `layout.seen_columns`; by default all, and then the means of a number's
    mixture lie on a linear map of the earlier ordinary numbers, by `slopes`.
    """

    mask: Tensor
    earlier: Tensor
    padding: Tensor
    sees: Tensor | None
    places: Tensor

    def __init__(
        self,
        layout: Layout,
        context_dim: int,
        hidden: int,
        streams: RandomStreams,
        sees: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.layout, self.hidden = layout, hidden
        self.register_buffer("sees", sees)
        sizes = [column.n_codes for column in layout.columns]
        self.parts = {i: c.within for i, c in enumerate(layout.columns) if c.within is not None}
        n_embedded = list(sizes)
        for i, within in self.parts.items():
            n_embedded[i] = len(within) * sizes[i]
        widths = embedding_widths(layout)
        # Embeddings of one width are one table.
        self.groups = {
            width: [i for i, own in enumerate(widths) if own == width]
            for width in sorted(set(widths))
        }
        n_columns, device, replicas = len(sizes), streams.device, len(streams.secrets)
        self.tables = nn.ParameterDict()
        owners: list[int] = []
        self._embedded: dict[int, tuple[int, int, int]] = {}  # width, place in table, first input
        for width, members in self.groups.items():
            offsets = torch.tensor([0, *(n_embedded[i] for i in members)]).cumsum(0)
            shape = (int(offsets[-1]), width)
            table = streams.normal(f"embedding.{width}", 0, shape)
            for place, i in enumerate(members):
                self._embedded[i] = width, place, len(owners)
                owners += [i] * width
                if i in self.parts:
                    table[:, offsets[place] : offsets[place + 1]] *= _LEVEL_SCALE
            self.tables[str(width)] = nn.Parameter(table)
            self.register_buffer(f"offsets_{width}", offsets[:-1].to(device), persistent=False)
        self._numbers_at = len(owners)
        owners += [i for i in layout.numeric for _ in range(VALUE_FEATURES)]
        owners += [-1] * context_dim
        self.in_dim = in_dim = len(owners)
        if sees is None:
            before = torch.tensor(owners).unsqueeze(1) < torch.arange(n_columns)
            mask = before.repeat_interleave(hidden, 1).float().to(device)
            self.register_buffer("mask", mask, persistent=False)
            n_numbers = len(layout.numeric)
            earlier = torch.ones(n_numbers, n_numbers, device=device).triu(1)
            self.register_buffer("earlier", earlier, persistent=False)
            self.slopes = nn.Parameter(torch.zeros(replicas, *earlier.shape, device=device))
            first_shape: tuple[int, ...] = (in_dim, n_columns * hidden)
            bias_shape: tuple[int, ...] = (1, n_columns * hidden)
        else:
            places = self._places_of(sees, context_dim)
            self.register_buffer("places", places.to(device), persistent=False)
            in_dim = places.shape[1]
            first_shape, bias_shape = (n_columns, in_dim, hidden), (n_columns, 1, hidden)
        self.n_outputs = n_outputs_of(layout)
        self.first = nn.Parameter(streams.normal("first", 0, first_shape) / math.sqrt(in_dim))
        self.first_bias = nn.Parameter(torch.zeros(replicas, *bias_shape, device=device))
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
    def own_inputs(layout: Layout, sees: Tensor | None = None) -> int:
        """Count the inputs of the first layer, or of a column's, that are not the context's."""
        own = input_widths(layout)
        if sees is None:
            return sum(own)
        return int(torch.tensor([*own, 0], device=sees.device)[sees.long()].sum(1).max())

    def _places_of(self, sees: Tensor, context_dim: int) -> Tensor:
        """Where every column's inputs are among those of all, with 0 behind them as the filling.

        Shape (column, in): embedding and number of each seen column, the filling, and the context.
        """
        numbers = {i: k for k, i in enumerate(self.layout.numeric)}
        found, n_own = [], self.own_inputs(self.layout, sees)
        for row in sees.tolist():
            own: list[int] = []
            for i in row:
                if i >= 0:
                    width, _, start = self._embedded[i]
                    own += range(start, start + width)
                if i in numbers:
                    start = self._numbers_at + VALUE_FEATURES * numbers[i]
                    own += range(start, start + VALUE_FEATURES)
            own += [self.in_dim] * (n_own - len(own))
            found.append([*own, *range(self.in_dim - context_dim, self.in_dim)])
        return torch.tensor(found)

    @torch.no_grad()
    def start_from(self, codes: Tensor) -> None:
        """Let the output biases start as the training codes' own distributions are."""
        n_codes, bias = self.n_codes, self.last_bias
        counts = [torch.bincount(column, minlength=n_codes) for own in codes for column in own.T]
        of_columns = torch.stack(counts).view(len(codes), -1, n_codes)
        bias[:, :, 0, :n_codes] = (of_columns.float() + 0.5).log()
        for i, within in self.parts.items():
            bias[:, i, 0, :n_codes] = 0.0
            shares = [pair_counts(own[:, i - 1], own[:, i], len(within), n_codes) for own in codes]
            self.within[str(i)].copy_((torch.stack(shares).float() + 0.5).log())
        if self.layout.numeric:
            spread = torch.linspace(-1.8, 1.8, N_COMPONENTS, device=bias.device)
            bias[:, :, 0, -2 * N_COMPONENTS : -N_COMPONENTS] = spread
            bias[:, :, 0, -N_COMPONENTS:] = -0.5

    def inputs(self, codes: Tensor, values: Tensor, context: Tensor) -> Tensor:
        """Show records to the network, (replica, batch, in): their codes, numbers and contexts."""
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

    def outputs(self, inputs: Tensor, keep: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Compute what parametrises the distributions of all columns, each of which sees all.

        `keep` are factors of the hidden units, (replica, batch, hidden) twice: dropout. Returns
        (replica, column, batch, output): logits of codes, and 3 numbers for every component of a
        mixture, which count for numeric columns.
        """
        replicas, batch, _ = inputs.shape
        hidden = torch.baddbmm(self.first_bias, inputs, self.first * self.mask)
        hidden = hidden.relu().view(replicas, batch, -1, self.hidden).transpose(1, 2)
        return self._upper(hidden, self._upper_of(slice(None)), keep)

    def column_outputs(self, inputs: Tensor, column: int) -> tuple[Tensor, Tensor]:
        """Compute `outputs` of one column alone: logits of the codes that it has, and its mixture.

        They have shape (replica, batch, ...); the mixture's means are moved by the earlier numbers.

        Inputs are (replica, batch, in), or (in + 1, batch) of a wide table; what is after the
        column must be 0 in them.
        """
        if self.sees is None:
            own = slice(column * self.hidden, (column + 1) * self.hidden)
            hidden = torch.baddbmm(self.first_bias[..., own], inputs, self.first[..., own])
        else:
            shown = inputs.index_select(0, self.places[column])
            hidden = (self.first[:, column].mT @ shown).mT + self.first_bias[:, column]
        second, second_bias, last, last_bias = self._upper_of(slice(column, column + 1))
        n = self.layout.columns[column].n_codes
        if column not in self.layout.numeric:
            last, last_bias = last[..., :n], last_bias[..., :n]
        elif n < self.n_codes:
            wanted = [*range(n), *range(self.n_codes, self.n_outputs)]
            last, last_bias = last[..., wanted], last_bias[..., wanted]
        outputs = self._upper(hidden.relu().unsqueeze(1), (second, second_bias, last, last_bias))
        logits, mixture = outputs[:, 0, :, :n], outputs[:, 0, :, n:]
        if self.sees is None and column in self.layout.numeric:
            place = self.layout.numeric.index(column)
            numbers = slice(self._numbers_at, self._numbers_at + VALUE_FEATURES * place)
            shown = inputs[..., numbers][..., ::VALUE_FEATURES]
            mixture = moved(mixture, shown @ self.slopes[:, :place, place : place + 1])
        return logits, mixture

    def _upper_of(self, columns: slice) -> tuple[Tensor, ...]:
        """Return weights and biases of the second and the last layer of some columns."""
        upper = self.second, self.second_bias, self.last, self.last_bias
        return tuple(own[:, columns] for own in upper)

    @staticmethod
    def _upper(
        hidden: Tensor, upper: Sequence[Tensor], keep: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        """Map (replica, column, batch, hidden) to (replica, column, batch, output)."""
        second, second_bias, last, last_bias = upper
        shown = hidden if keep is None else hidden * keep[0].unsqueeze(1)
        added = torch.matmul(shown, second) + second_bias
        hidden = hidden + added.relu()
        shown = hidden if keep is None else hidden * keep[1].unsqueeze(1)
        return torch.matmul(shown, last) + last_bias

    def log_likelihood(
        self,
        codes: Tensor,
        values: Tensor,
        context: Tensor,
        keep: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        """Compute log p of every column, (replica, column, batch); see `inputs` and `outputs`."""
        inputs = self.inputs(codes, values, context)
        if self.sees is None:
            return self._log_density(slice(None), self.outputs(inputs, keep), codes, values)
        turned = self._turned(inputs)
        found = [
            self._log_likelihood_of(some, turned, self._parameters_of(some), codes, values, keep)
            for some in self._some_columns()
        ]
        return torch.cat(found, 1)

    def _log_density(
        self, columns: slice, outputs: Tensor, codes: Tensor, values: Tensor
    ) -> Tensor:
        """Compute log p of some columns, (replica, column, batch), from what parametrises them."""
        some = range(len(self.layout.columns))[columns]
        logits = outputs[..., : self.n_codes] + self.padding[columns]
        for i in self.parts:
            if i in some:
                own = i - some.start
                logits[:, own] = logits[:, own] + self._of_group(i, codes[:, :, i - 1])
        found = log_softmax(logits)
        chosen = codes[:, :, columns].transpose(1, 2).unsqueeze(-1)
        found = found.gather(-1, chosen).squeeze(-1)
        numbers = [k for k, i in enumerate(self.layout.numeric) if i in some]
        if not numbers:
            return found
        numeric = [self.layout.numeric[k] for k in numbers]
        places = torch.tensor(numeric, device=found.device) - some.start
        mixture, left = outputs[:, places, :, self.n_codes :], values
        if self.sees is None:
            shown = values * (codes[:, :, list(self.layout.numeric)] == 0)
            left = values - torch.bmm(shown, self.slopes * self.earlier)
        density = mixture_log_density(mixture, left[:, :, numbers].transpose(1, 2))
        ordinary = codes.transpose(1, 2)[:, numeric] == 0
        density = torch.where(ordinary, density, torch.zeros_like(density))
        return found.index_add(1, places, density)

    # -- some columns at a time -------------------------------------------------------------------

    def _some_columns(self) -> list[slice]:
        n = len(self.layout.columns)
        return [slice(k, min(n, k + COLUMNS_AT_ONCE)) for k in range(0, n, COLUMNS_AT_ONCE)]

    def _parameters_of(self, columns: slice) -> tuple[Tensor, ...]:
        return self.first[:, columns], self.first_bias[:, columns], *self._upper_of(columns)

    def _turned(self, inputs: Tensor) -> Tensor:
        """Put inputs, with 0 behind them, one below the other: (replica * in, batch)."""
        return F.pad(inputs, (0, 1)).transpose(1, 2).flatten(0, 1)

    def _log_likelihood_of(
        self,
        columns: slice,
        turned: Tensor,
        parameters: Sequence[Tensor],
        codes: Tensor,
        values: Tensor,
        keep: tuple[Tensor, Tensor] | None,
    ) -> Tensor:
        """Compute log p of some columns of a wide table, (replica, column, batch)."""
        first, first_bias, *upper = parameters
        replicas, places = len(codes), self.places[columns]
        rows = places.flatten() + (self.in_dim + 1) * torch.arange(
            replicas, device=places.device
        ).unsqueeze(1)
        shown = F.embedding(rows, turned).view(replicas, *places.shape, -1)
        hidden = torch.matmul(first.mT, shown).mT + first_bias
        outputs = self._upper(hidden.relu(), upper, keep)
        return self._log_density(columns, outputs, codes, values)

    def descend_some(
        self,
        codes: Tensor,
        values: Tensor,
        context: Tensor,
        shares: Tensor,
        keep: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Set the parameters' gradients of a wide table's loss, some columns at a time.

        `shares`, (batch,), are what every record's negative log-likelihood counts in the loss; for
        the rest see `inputs` and `outputs`. Returns log-likelihoods (replica, batch) of all columns
        together, and the gradient of the contexts, if they require one.
        """
        turned = self._turned(self.inputs(codes, values, context))
        shown = turned.detach().requires_grad_()
        at_inputs = torch.zeros_like(shown)
        total = codes.new_zeros(codes.shape[:2], dtype=values.dtype)
        of = {name: p.grad for name, p in self.named_parameters() if p.grad is not None}
        for some in self._some_columns():
            stored = self._parameters_of(some)
            own = [parameter.detach().requires_grad_() for parameter in stored]
            parts = [i for i in self.parts if some.start <= i < some.stop]
            within = [self.within[str(i)] for i in parts]
            found = self._log_likelihood_of(some, shown, own, codes, values, keep).sum(1)
            loss = -(found * shares).sum()
            at_shown, *gradients = torch.autograd.grad(loss, [shown, *own, *within])
            at_inputs += at_shown
            total += found.detach()
            places = ["first", "first_bias", "second", "second_bias", "last", "last_bias"]
            for name, gradient in zip(places, gradients):
                of[name][:, some] = gradient
            for i, gradient in zip(parts, gradients[len(places) :]):
                of[f"within.{i}"].copy_(gradient)
        wanted = [*self.tables.values(), *([context] if context.requires_grad else [])]
        last = pulled_back([turned], wanted, [at_inputs])
        for width, gradient in zip(self.tables, last):
            of[f"tables.{width}"].copy_(gradient)
        return total, last[-1] if context.requires_grad else None

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
        shares: Sequence[Tensor] | None = None,
        known: Known | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Draw records, column by column, from uniforms (2, record, column).

        The first choose codes, the second numbers. `shares`, (code,) or (group, code) of a
        place in a group, are distributions of the columns' codes: output biases are changed, column
        by column, so that the drawn records have them. Columns of which something is `known` are
        not drawn freely: they get what is known, and the records the weights of sequential
        importance sampling. Returns codes (record, column), values (record, numeric column), and
        the log probability of what is known, float64 (record,), each column given those before it.
        """
        n_records, n_columns = uniforms.shape[1:]
        freely = known is None and shares is None
        if self.sees is not None and freely and n_records > _DRAWN_AT_ONCE:
            n = _DRAWN_AT_ONCE
            some = [torch.split(part, n, 1) for part in (context, uniforms)]
            drawn = map(self.draw, *some)
            codes, values, log_weights = (torch.cat(own) for own in zip(*drawn))
            return codes, values, log_weights
        codes = torch.zeros(1, n_records, n_columns, dtype=torch.long, device=context.device)
        values = context.new_zeros(1, n_records, len(self.layout.numeric))
        if self.sees is None:
            inputs = context.new_zeros(1, n_records, self.in_dim)
            inputs[..., self.in_dim - context.shape[-1] :] = context
        else:
            inputs = context.new_zeros(self.in_dim + 1, n_records)
            inputs[self.in_dim - context.shape[-1] : -1] = context[0].T
        places = {column: k for k, column in enumerate(self.layout.numeric)}
        log_weights = torch.zeros(n_records, dtype=torch.float64, device=context.device)
        for column in range(n_columns):
            logits, mixture = self.column_outputs(inputs, column)
            if column in self.parts:
                of_group = self._of_group(column, codes[:, :, column - 1])
                logits = logits + of_group[..., : logits.shape[-1]]
            if shares is not None and column in self.parts:
                groups, biases = codes[0, :, column - 1], self.within[str(column)][0]
                for group in torch.unique(groups).tolist():
                    rows = groups == group
                    shift = _shift_to(logits[0, rows], shares[column][group])
                    logits[0, rows] += shift
                    biases[group, : len(shift)] += shift
            elif shares is not None:
                shift = _shift_to(logits[0], shares[column])
                logits = logits + shift
                self.last_bias[0, column, 0, : len(shift)] += shift
            k, own = places.get(column), logits[0]
            if known is not None:
                own, log_mass = restrict(known, column, k, own, None if k is None else mixture[0])
                log_weights += log_mass
                own = torch.where((log_mass > -torch.inf).unsqueeze(1), own, logits[0].double())
            codes[0, :, column] = pick(softmax(own), uniforms[0, :, column])
            if k is not None:
                value = draw_number(mixture[0], uniforms[1, :, column])
                values[0, :, k] = value
                if known is not None:
                    number = known_number(known, k, mixture[0], uniforms[1, :, column])
                    if number is not None:
                        # Where no ordinary value may be, the interval is empty.
                        number = number.to(values.dtype)
                        values[0, :, k] = torch.where(number.isfinite(), number, value)
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
        written = inputs[0] if self.sees is None else inputs.T  # (record, in)
        written[:, start : start + width] = F.embedding(rows[0], self.tables[str(width)][0])
        if k is not None:
            start = self._numbers_at + VALUE_FEATURES * k
            shown = value_features(values[0, :, [k]], codes[0, :, [column]] == 0)
            written[:, start : start + VALUE_FEATURES] = shown


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


def embedding_widths(layout: Layout) -> list[int]:
    """Return how many numbers later columns see of every column's code."""
    return [
        _LEVEL_WIDTH
        if column.within is not None
        else min(16, math.ceil(2.0 * column.n_codes**0.35))
        for column in layout.columns
    ]


def input_widths(layout: Layout) -> list[int]:
    """Return how many numbers later columns see of every column, its own number included."""
    widths = embedding_widths(layout)
    for i in layout.numeric:
        widths[i] += VALUE_FEATURES
    return widths


def n_outputs_of(layout: Layout) -> int:
    """Return how many numbers parametrise a column's distribution, as many as the widest has."""
    n_codes = max(column.n_codes for column in layout.columns)
    return n_codes + (3 * N_COMPONENTS if layout.numeric else 0)


def network_of(layout: Layout, weights: Mapping[str, Tensor]) -> ConditionalNetwork | None:
    """Make a network of one replica, of the sizes of its weights; None if there are no columns.

    ValueError if they are too few for the columns.
    """
    if not layout.columns:
        return None
    hidden, in_dim = weights["second"].shape[-1], weights["first"].shape[-2]
    streams, sees = RandomStreams([b""], weights["first"].device), weights.get("sees")
    context_dim = in_dim - ConditionalNetwork.own_inputs(layout, sees)
    if context_dim < 0:
        raise ValueError(f"a first layer of {in_dim} inputs is too narrow for the columns")
    network = ConditionalNetwork(layout, context_dim, hidden, streams, sees)
    network.load_state_dict(dict(weights), strict=True)
    return network
