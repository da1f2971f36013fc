"""Generated columns get the marginals of the records, once training is over.

A generative adversarial network learns how columns belong together better than how often each value
occurs. What is left of the marginals is simple to mend, by every party on its own columns: offsets
of the logits give categories and states their shares, and an increasing map of every number gives
it the records' quantiles. Order stays, and with it the relations between columns.

Sees: one party's encoded records and generator. Sends: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from vflsynth.columns import OutputSpan
from vflsynth.networks.layers import softmax

# Quantiles of a map, each the mean of so many records at least: none of them is one record's value.
_MOST_KNOTS, _RECORDS_PER_KNOT = 200, 10

# Fitting offsets: steps at most, shares that are close enough, and the largest offset. A category
# that the generator all but forgot would need more, and get it wherever the latent happens to lie.
_STEPS, _CLOSE, _LARGEST_OFFSET = 200, 1e-4, 10.0

_LARGEST_SLOPE = 10.0

_HOPELESS = -1e9
"""Offset of a place that a group does not have."""


@dataclass(frozen=True)
class MarginalMap:
    """Increasing maps of the encoded values of one party's numeric columns.

    `columns`, (value,), says where the values are in the encoded row, `gates` where it says whether
    a record has the value: the same if all have it. `before` and `after`, (value, knot), are
    generated values and what they become, rising; values between knots are interpolated. `slopes`,
    (value, 2), are those of the map below the first knot and above the last.
    """

    columns: Tensor
    gates: Tensor
    before: Tensor
    after: Tensor
    slopes: Tensor

    @classmethod
    def fit(cls, spans: Sequence[OutputSpan], generated: Tensor, records: Tensor) -> Self:
        """Learn the maps from generated rows and records, both (n, encoded)."""
        columns, gates = places_of_numbers(spans)
        pairs = [
            (_present(generated, *where), _present(records, *where))
            for where in zip(columns, gates)
        ]
        device, dtype = generated.device, generated.dtype
        maps = (table.to(device, dtype) for table in quantile_maps(pairs)[:3])
        return cls(columns.to(device), gates.to(device), *maps)

    def apply(self, rows: Tensor) -> Tensor:
        """Map encoded rows, shape (n, encoded)."""
        x = rows[:, self.columns].T
        y = interpolated(x, self.before, self.after, self.slopes)
        there = (rows[:, self.gates] > 0.0).T | (self.columns == self.gates).unsqueeze(1)
        return rows.index_copy(1, self.columns, torch.where(there, y, x).T)

    def inverse(self) -> MarginalMap:
        """Return the maps the other way."""
        slopes = (1.0 / self.slopes.clamp_min(1e-12)).clamp_max(_LARGEST_SLOPE)
        return replace(self, before=self.after, after=self.before, slopes=slopes)

    def part(self, place: slice) -> MarginalMap:
        """Return the maps of some adjacent encoded columns."""
        own = (self.columns >= place.start) & (self.columns < place.stop)
        maps = (table[own] for table in (self.before, self.after, self.slopes))
        return MarginalMap(self.columns[own] - place.start, self.gates[own] - place.start, *maps)

    def tensors(self) -> dict[str, Tensor]:
        """Return what has to be saved besides the spans."""
        return {"before": self.before, "after": self.after, "slopes": self.slopes}

    @classmethod
    def restore(cls, tensors: Mapping[str, Tensor], spans: Sequence[OutputSpan]) -> Self:
        """Undo `tensors`, for encoded rows of these spans.

        Raises ValueError if they are not of these spans, or do not rise.
        """
        columns, gates = places_of_numbers(spans)
        before, after, slopes = (tensors[name] for name in ("before", "after", "slopes"))
        check_maps(len(columns), before, after, slopes)
        device = before.device
        return cls(columns.to(device), gates.to(device), before, after, slopes)


@dataclass(frozen=True)
class PlaceOffsets:
    """Offsets of the logits of places, for each group: of columns that have a code in two parts.

    Group and place come from the same latent and are drawn apart, so that what is common in one
    group would be drawn in all. With these every group has its own shares, and only places that it
    has. `offsets`, (group, place), are by span of the places; the span before it has the groups.
    """

    offsets: dict[OutputSpan, Tensor]

    def learn(
        self,
        spans: Sequence[OutputSpan],
        place: slice,
        logits: Tensor,
        rows: Tensor,
        records: Tensor,
    ) -> None:
        """Learn the offsets of some adjacent encoded columns, at a place in the encoded row.

        Logits, (n, column), are of these columns; rows, (n, encoded), were drawn, for their groups.
        """
        for span in places_of([s for s in spans if place.start <= s.start < place.stop]):
            groups, codes = _groups(rows, span), _groups(records, span)
            own = logits[:, span.start - place.start : span.stop - place.start]
            there = records[:, span.start : span.stop]
            wanted = torch.zeros(len(span.within or ()), span.width, device=logits.device)
            wanted.index_add_(0, codes, there)
            wanted /= wanted.sum(1, keepdim=True).clamp_min(1.0)
            beyond = torch.arange(span.width) >= torch.tensor(span.within).unsqueeze(1)
            table = torch.zeros(beyond.shape).masked_fill(beyond, _HOPELESS).to(logits.device)
            for group, shares in enumerate(wanted):
                of_group = own[groups == group]
                some = of_group if len(of_group) >= _RECORDS_PER_KNOT else own
                table[group] += offsets_to(some + table[group], shares)
            self.offsets[span] = table

    def apply(self, place: slice, logits: Tensor, rows: Tensor) -> Tensor:
        """Add the offsets of the rows' groups to logits of some adjacent encoded columns."""
        shifted = logits.clone()
        for span, table in self.offsets.items():
            if place.start <= span.start < place.stop:
                own = slice(span.start - place.start, span.stop - place.start)
                shifted[..., own] += table[_groups(rows, span)]
        return shifted

    def part(self, place: slice) -> PlaceOffsets:
        """Return those of some adjacent encoded columns, which are counted from the first."""
        own = (item for item in self.offsets.items() if place.start <= item[0].start < place.stop)
        return PlaceOffsets({span.shifted(-place.start): table for span, table in own})

    def tensors(self) -> dict[str, Tensor]:
        """Return what has to be saved besides the spans."""
        return {str(k): table for k, table in enumerate(self.offsets.values())}

    @classmethod
    def restore(cls, tensors: Mapping[str, Tensor], spans: Sequence[OutputSpan]) -> Self:
        """Undo `tensors`.

        Raises ValueError if they are not of these spans.
        """
        own = {span: tensors[str(k)] for k, span in enumerate(places_of(spans))}
        if any(table.shape != (len(s.within or ()), s.width) for s, table in own.items()):
            raise ValueError("offsets of other groups or places")
        return cls(own)


def places_of(spans: Sequence[OutputSpan]) -> tuple[OutputSpan, ...]:
    """Return the spans that are the second part of a code."""
    return tuple(span for span in spans if span.within is not None)


def _groups(rows: Tensor, span: OutputSpan) -> Tensor:
    """Group of every row, from the span before its places."""
    return rows[..., span.start - len(span.within or ()) : span.start].argmax(-1)


def logit_offsets(logits: Tensor, records: Tensor, spans: Sequence[OutputSpan]) -> Tensor:
    """Find what to add to logits so that categories and states get their shares of the records.

    A softmax of the logits, (n, encoded), of a span is the probability of its categories, given the
    latent; records, (record, encoded), are one-hot there. The result, (encoded,), is at most 10 in
    size, 0 where there is no softmax: the maximum of a concave function, found by iterative
    scaling.
    """
    offsets = torch.zeros_like(logits[0])
    for span in spans:
        if span.activation != "softmax":
            continue
        place = slice(span.start, span.stop)
        offsets[place] = offsets_to(logits[:, place], records[:, place].mean(0))
    return offsets


def offsets_to(logits: Tensor, wanted: Tensor) -> Tensor:
    """Find what to add to logits, (n, code), for their mean softmax to be these shares."""
    wanted = wanted.clamp_min(1e-12)
    found = torch.zeros_like(wanted)
    for _ in range(_STEPS):
        shares = softmax(logits + found).mean(0)
        if (shares - wanted).abs().max() < _CLOSE:
            break
        found = found + torch.log(wanted / shares.clamp_min(1e-12))
        found = (found - found.mean()).clamp(-_LARGEST_OFFSET, _LARGEST_OFFSET)
    return found


def places_of_numbers(spans: Sequence[OutputSpan]) -> tuple[Tensor, Tensor]:
    """Return encoded columns that are numbers, and of their gates."""
    places = [
        (column, column if span.gate is None else span.gate)
        for span in spans
        if span.activation == "identity"
        for column in range(span.start, span.stop)
    ]
    columns, gates = torch.tensor(places, dtype=torch.int64).view(-1, 2).unbind(1)
    return columns, gates


def _present(rows: Tensor, column: Tensor, gate: Tensor) -> Tensor:
    """Values of the rows that have one."""
    values = rows[:, column]
    return values if gate == column else values[rows[:, gate] > 0.0]


def quantile_maps(pairs: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Find increasing maps that give generated values the quantiles of records' values.

    `pairs` are the two, unsorted. Returns knots before and after, (map, knot), slopes outside them,
    (map, 2), and the standard deviations of the records whose means the outermost knots are,
    (map, 2), float64. Where there are too few values the map changes nothing.
    """
    sizes = [min(map(len, pair)) // _RECORDS_PER_KNOT for pair in pairs]
    most = max(2, min(_MOST_KNOTS, max(sizes, default=0)))
    before, after = torch.zeros(2, len(pairs), most, dtype=torch.float64)
    slopes, spread = torch.ones(2, len(pairs), 2, dtype=torch.float64)
    for i, (values, size) in enumerate(zip(pairs, sizes)):
        if size < 2:
            continue
        ours, theirs = (value.double().cpu().sort().values for value in values)
        before[i], before_ends = _quantiles(ours, min(most, size), most)
        after[i], spread[i] = _quantiles(theirs, min(most, size), most)
        slopes[i] = (spread[i] / before_ends.clamp_min(1e-12)).clamp_max(_LARGEST_SLOPE)
    return before, after, slopes, spread


def check_maps(n: int, before: Tensor, after: Tensor, slopes: Tensor) -> None:
    """Raise ValueError unless these are n maps as `quantile_maps` finds them, which rise."""
    if before.dim() != 2 or before.shape != after.shape or before.shape[1] < 2:
        raise ValueError("a map needs as many values after as before")
    if len(before) != n or slopes.shape != (n, 2):
        raise ValueError(f"there are {len(before)} maps; it must be {n}")
    if (before.diff(dim=1) < 0).any() or (after.diff(dim=1) < 0).any() or (slopes < 0).any():
        raise ValueError("a map must rise")


def interpolated(
    x: Tensor, before: Tensor, after: Tensor, slopes: Tensor, reach: Tensor | None = None
) -> Tensor:
    """Map values, (map, value), by maps as `quantile_maps` finds them.

    If there is a `reach`, (map, 2), a value lies less than this beyond the outermost knots before.
    """
    last = before.shape[1] - 1
    right = torch.searchsorted(before, x.contiguous()).clamp(1, last)
    x0, x1 = before.gather(1, right - 1), before.gather(1, right)
    y0, y1 = after.gather(1, right - 1), after.gather(1, right)
    inside = ((x - x0) / (x1 - x0).clamp_min(1e-12)).clamp(0.0, 1.0)
    y = torch.lerp(y0, y1, inside)
    below, above = (x - before[:, :1]).clamp_max(0.0), (x - before[:, -1:]).clamp_min(0.0)
    if reach is not None:
        below, above = below / (1.0 - below / reach[:, :1]), above / (1.0 + above / reach[:, 1:])
    return y + slopes[:, :1] * below + slopes[:, 1:] * above


def _quantiles(ordered: Tensor, n_knots: int, n_slots: int) -> tuple[Tensor, Tensor]:
    """Means of equal parts of sorted values, and the standard deviations of the outermost two.

    The last knot is repeated to fill the slots.
    """
    parts = torch.tensor_split(ordered, n_knots)
    means = torch.stack([part.mean() for part in parts]).cummax(0).values
    ends = torch.stack([parts[0].std(correction=0), parts[-1].std(correction=0)])
    return torch.cat([means, means[-1:].expand(n_slots - n_knots)]), ends
