"""Generators that draw the columns of a row one after the other, with all derivatives.

A column's operations are small: at a batch's size, automatic differentiation of each would take
longer than their products. So the columns are one operation for it, written out in both
directions, and what all have in common stays in large products around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from vflsynth._random import RandomStreams
from vflsynth.columns import OutputSpan
from vflsynth.methods.gan.generator import Adjust, Generator
from vflsynth.networks.layers import NEGATIVE_SLOPE, Linear, leaky_relu_backward, softmax


@dataclass(frozen=True, slots=True)
class Turn:
    """What is drawn at once: a category, or a number and the state that says whether it is there.

    `place` is that of its columns in the encoded row; all else counts from the first of them.
    `values` are where numbers are, `choices` where one-hot codes are, each with its noise in that
    of a row, `bounds` numbers that stay within a bound, and `gates` numbers with the places in
    codes that say whether they are there.
    """

    place: slice
    values: tuple[slice, ...]
    choices: tuple[tuple[slice, slice], ...]
    bounds: tuple[tuple[int, float], ...]
    gates: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, spans: Sequence[OutputSpan], noise: int) -> Self:
        """Make one of adjacent spans, whose noise begins at `noise`."""
        place = slice(spans[0].start, spans[-1].stop)
        own = [span.shifted(-place.start) for span in spans]
        choices = []
        for span in own:
            if span.activation == "softmax":
                stop = noise + span.width
                choices.append((slice(span.start, span.stop), slice(noise, stop)))
                noise = stop
        return cls(
            place,
            tuple(slice(s.start, s.stop) for s in own if s.activation != "softmax"),
            tuple(choices),
            tuple((s.start, s.bound) for s in own if s.bound is not None),
            tuple((s.start, s.gate) for s in own if s.gate is not None),
        )

    def activate(
        self, raw: Tensor, row: Tensor, gumbel: Tensor | None, temperature: float | None
    ) -> list[Tensor]:
        """Write what the raw outputs become into the row's columns, which are zero.

        Both have shape (replica, batch, own column); `raw` is changed in place. Gumbel noise has
        shape (replica, batch, noise). Returns the soft choices, if a gradient is wanted: with a
        temperature.
        """
        for column, bound in self.bounds:
            raw[..., column].div_(bound).tanh_().mul_(bound)
        for place in self.values:
            _of(row, place).copy_(_of(raw, place))
        soft = []
        for place, noise in self.choices:
            assert gumbel is not None
            logits = _of(raw, place) + gumbel[..., noise]
            _of(row, place).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
            if temperature is not None:
                soft.append(softmax(logits.div_(temperature)))
        for column, gate in self.gates:
            row[..., column].mul_(row[..., gate])
        return soft

    def backward(
        self, upstream: Tensor, raw: Tensor, row: Tensor, soft: Sequence[Tensor], temperature: float
    ) -> Tensor:
        """Pull the gradient with respect to the row's columns back to the raw outputs.

        A choice passes on the gradient of the soft one (straight-through).
        """
        for column, gate in self.gates:
            upstream[..., gate].addcmul_(upstream[..., column], raw[..., column])
            upstream[..., column].mul_(row[..., gate])
        for column, bound in self.bounds:
            value = raw[..., column]
            upstream[..., column].addcmul_(
                upstream[..., column], value.square(), value=-(bound**-2.0)
            )
        for (place, _), chosen in zip(self.choices, soft):
            own = _of(upstream, place)
            weighted = own * chosen
            weighted.addcmul_(weighted.sum(-1, keepdim=True), chosen, value=-1.0)
            torch.div(weighted, temperature, out=own)
        return upstream


def _of(values: Tensor, place: slice) -> Tensor:
    """Return columns; all of them as they are, for a view takes as long as a small product."""
    return values if place.stop - place.start == values.shape[-1] else values[..., place]


def _by_turn(values: Tensor, turns: Sequence[Turn]) -> Sequence[Tensor]:
    """Split rows, or weights, into the turns' columns, in one operation."""
    return values.split_with_sizes([t.place.stop - t.place.start for t in turns], -1)


def turns_of(spans: Sequence[OutputSpan]) -> list[list[OutputSpan]]:
    """Group spans that are drawn at once: a number, and the state that says whether it is there."""
    turns: list[list[OutputSpan]] = []
    stop = 0
    for span in spans:
        if span.start >= stop:
            turns.append([])
        turns[-1].append(span)
        stop = max(stop, span.stop, 0 if span.gate is None else span.gate + 1)
    return turns


@dataclass(slots=True)
class _Drawn:
    """A row, and what the gradient needs of every turn."""

    row: Tensor
    raw: list[Tensor] = field(default_factory=list)
    own: list[Tensor] = field(default_factory=list)
    soft: list[list[Tensor]] = field(default_factory=list)


def _draw(
    turns: Sequence[Turn],
    temperature: float | None,
    gumbel: Tensor | None,
    heads: Tensor,
    plain: Tensor,
    added: Tensor,
    earlier: Sequence[Tensor],
    adjust: Adjust | None = None,
) -> _Drawn:
    """Draw turn after turn; see `SequentialGenerator` for the tensors."""
    drawn = _Drawn(torch.zeros_like(plain))
    parts = (_by_turn(values, turns) for values in (plain, added, drawn.row))
    for i, (turn, own, base, weight, row) in enumerate(
        zip(turns, heads.chunk(len(turns), -1), *parts)
    ):
        seen = drawn.row[..., : turn.place.start]
        if i:
            own = torch.baddbmm(own, seen, earlier[i - 1])
        own = F.leaky_relu(own, NEGATIVE_SLOPE)
        raw = torch.baddbmm(base, own, weight)
        if adjust is not None:
            raw = adjust(turn.place, raw, seen)
        soft = turn.activate(raw, row, gumbel, temperature)
        if temperature is not None:
            drawn.raw.append(raw)
            drawn.own.append(own)
            drawn.soft.append(soft)
    return drawn


class _DrawWithGradient(torch.autograd.Function):
    """`_draw`, for automatic differentiation of what is around it."""

    @staticmethod
    def forward(
        ctx: Any,
        turns: Sequence[Turn],
        temperature: float,
        gumbel: Tensor | None,
        heads: Tensor,
        plain: Tensor,
        added: Tensor,
        *earlier: Tensor,
    ) -> Tensor:
        """Draw, and keep what the gradient needs."""
        drawn = _draw(turns, temperature, gumbel, heads, plain, added, earlier)
        ctx.save_for_backward(drawn.row, added, *earlier)
        ctx.turns, ctx.temperature = turns, temperature
        ctx.raw, ctx.own, ctx.soft = drawn.raw, drawn.own, drawn.soft
        return drawn.row

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Go back turn by turn; each gets what later ones saw of it."""
        row, added, *earlier = ctx.saved_tensors
        turns, upstream = ctx.turns, upstream.clone(memory_format=torch.contiguous_format)
        upstreams, rows, weights = (_by_turn(values, turns) for values in (upstream, row, added))
        of_heads, of_added, of_earlier = [], [], []
        for i in reversed(range(len(turns))):
            own, start = ctx.own[i], turns[i].place.start
            raw = turns[i].backward(upstreams[i], ctx.raw[i], rows[i], ctx.soft[i], ctx.temperature)
            of_added.append(torch.bmm(own.mT, raw))
            change = leaky_relu_backward(torch.bmm(raw, weights[i].mT), own)
            of_heads.append(change)
            if i:
                of_earlier.append(torch.bmm(row[..., :start].mT, change))
                upstream[..., :start].add_(torch.bmm(change, earlier[i - 1].mT))
        heads, weight = (torch.cat(found[::-1], -1) for found in (of_heads, of_added))
        return None, None, None, heads, upstream, weight, *reversed(of_earlier)


class SequentialGenerator(Generator):
    """A generator whose columns are drawn one after the other, in the order of the table.

    To what `Generator` would have a head of one hidden layer is added for each column, which sees
    the last layer that all have in common and the columns before it as they were drawn: a row is
    drawn as a row, not as columns that know of each other by the latent alone. `head` are the
    hidden units of a column's head; all else is as of `Generator`.

    Departs from the paper, whose generators draw all columns at once. What heads make of the layer
    in common is one product for all of them, and the gradient of a choice among categories goes on,
    straight through, into the columns after it.
    """

    def __init__(
        self, latent_dim: int, hidden: Sequence[int], spans: Sequence[OutputSpan], *, head: int,
        **options: Any,
    ) -> None:  # fmt: skip
        self._head = head
        super().__init__(latent_dim, hidden, spans, **options)

    def _build(
        self, width: int, spans: Sequence[OutputSpan], temperature: float, streams: RandomStreams
    ) -> None:
        head, self._temperature = self._head, temperature
        self._turns: list[Turn] = []
        self._n_noisy = 0
        for turn in turns_of(spans):
            self._turns.append(Turn.of(turn, self._n_noisy))
            self._n_noisy += sum(s.width for s in turn if s.activation == "softmax")
        self.heads = Linear(
            width, head * len(self._turns), bias=True, streams=streams, name="generator.heads"
        )
        earlier = [
            Linear(
                turn.place.start,
                head,
                bias=False,
                streams=streams,
                name=f"generator.earlier.{i}",
                fan_in=width + turn.place.start,
            )
            for i, turn in enumerate(self._turns[1:], 1)
        ]
        self.added = Linear(head, self.width, bias=False, streams=streams, name="generator.added")
        nn.init.zeros_(self.added.weight)  # it begins as a generator that draws all at once
        self.earlier = nn.ModuleList(earlier)
        # Without module look-ups, which take as long as a small product.
        self._earlier = [linear.weight for linear in earlier]

    @property
    def n_noisy(self) -> int:
        """Numbers of Gumbel noise that a row takes."""
        return self._n_noisy

    def forward(
        self, latent: Tensor, gumbel: Tensor | None, adjust: Adjust | None = None
    ) -> Tensor:
        """Map (replica, batch, latent) to encoded rows (replica, batch, width)."""
        hidden = self._hidden(latent)
        plain = self.output.forward(hidden)
        heads, weights = self.heads.forward(hidden), self.added.weight
        if plain.requires_grad and adjust is None:
            rows: Tensor = _DrawWithGradient.apply(  # type: ignore[no-untyped-call]
                self._turns, self._temperature, gumbel, heads, plain, weights, *self._earlier
            )
            return rows
        return _draw(self._turns, None, gumbel, heads, plain, weights, self._earlier, adjust).row
