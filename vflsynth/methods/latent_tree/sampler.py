"""A tree of latent attributes and a party's columns given them, as a party keeps and saves them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from vflsynth._random import RandomStreams, derive
from vflsynth.columns import NoisyHistogram, OutputSpan
from vflsynth.columns.bins import Bins
from vflsynth.methods.latent_tree.model import for_draws, states_given, top_down
from vflsynth.models.samplers import SAMPLE_BLOCK, Completion, Known, RowSampler, pick
from vflsynth.registry import register


@dataclass(frozen=True, slots=True)
class Fit:
    """Which part of a column's cells, shares of (record or 1, cell), goes with what is known of it.

    And `within` which encoded numbers, (record or 1,), a number lies; None for categories.
    """

    cells: Tensor
    within: tuple[Tensor, Tensor] | None = None


@register
class LatentTreeSampler(RowSampler):
    """A tree of latent attributes that all parties draw alike, and own columns given them.

    `parents` are those of all parties' latent attributes, -1 for the root; `shares` their
    distributions, (state,) of the root and (parent state, state) of others. `columns` have p(cell |
    latent attribute), (latent state, cell), of the party's columns in the order of the encoded row:
    bins or categories, and then missing values if the column is `gated`. `latent_of` is each
    column's latent attribute. `bins` say where a numeric column's bins begin and end in its
    encoding, (2, bin); None: categories.

    Latent attributes and columns are quantiles at the points of Latin hypercubes (McKay, Beckman
    and Conover 1979): each row has the distribution of the tree, and a table's shares of single
    attributes are closer to the tree's than those of as many independent rows. Points that are even
    in pairs of dimensions, too, leave marks: see the decisions.
    """

    kind = "latent tree"
    draws_exactly = True

    def __init__(
        self,
        parents: Sequence[int],
        shares: Sequence[Tensor],
        columns: Sequence[Tensor],
        latent_of: Sequence[int],
        bins: Sequence[Tensor | None],
        gated: Sequence[bool],
    ) -> None:
        if not len(columns) == len(latent_of) == len(bins) == len(gated):
            raise ValueError("columns, their latent attributes and encodings differ in number")
        self.parents, self.shares = tuple(parents), [table.double().cpu() for table in shares]
        self.columns, self.latent_of = [table.double().cpu() for table in columns], tuple(latent_of)
        self.bins = [ends if ends is None else ends.double().cpu() for ends in bins]
        self.gated = tuple(gated)
        self._order = top_down(self.parents)
        if len(self._order) != len(self.shares):
            raise ValueError("not a tree of all latent attributes")

    @property
    def latent_dim(self) -> int:
        """Number of latent attributes of all parties."""
        return len(self.parents)

    def latents(self, shared: RandomStreams, index: int, n: int) -> Tensor:
        """Draw a quantile's level for every latent attribute, uniform."""
        return shared.latin_hypercube("sample", index, n, self.latent_dim)

    def draw(self, latent: Tensor, streams: RandomStreams, index: int) -> Tensor:
        """Draw the tree from the shared latents, then cells and places in them."""
        shared = latent[0].double().cpu()
        states = torch.zeros(shared.shape, dtype=torch.int64)
        for node in self._order:
            table, parent = self.shares[node], self.parents[node]
            given = table.unsqueeze(0) if parent < 0 else table[states[:, parent]]
            states[:, node] = pick(given, shared[:, node])
        (levels,) = streams.latin_hypercube("cells", index, len(shared), len(self.columns)).cpu()
        return self.draw_known(states, levels, {}, 1)

    def fits(self, known: Known) -> dict[int, Fit]:
        """Compare cells with what is known, of columns of which anything is, by their position.

        A number where the column has none counts as the nearest that it has.
        """
        found: dict[int, Fit] = {}
        numeric = 0
        for number, (ends, allowed) in enumerate(zip(self.bins, known.allowed, strict=True)):
            if ends is None:
                if allowed is not None:
                    found[number] = Fit(allowed.double())
                continue
            lower, upper = (end[:, numeric] for end in (known.lower, known.upper))
            numeric += 1
            if allowed is None and not bool((lower.isfinite() | upper.isfinite()).any()):
                continue
            there = (self.columns[number] > 0.0).any(0)[: ends.shape[1]]
            cells = _within_bins(ends, lower.unsqueeze(1), upper.unsqueeze(1), there)
            if allowed is not None:
                cells = torch.cat([cells * allowed[:, :1], allowed[:, 1:].double()], 1)
            found[number] = Fit(cells, (lower, upper))
        return found

    def evidence(self, fits: Mapping[int, Fit]) -> list[tuple[int, Tensor]]:
        """Return latent attributes, and log probabilities of a column's cells that fit, by state.

        One (record or 1, state) for each column of which anything is known.
        """
        return [
            (self.latent_of[number], (fit.cells @ self.columns[number].mT).log())
            for number, fit in fits.items()
        ]

    def draw_known(
        self, states: Tensor, levels: Tensor, fits: Mapping[int, Fit], n_draws: int
    ) -> Tensor:
        """Draw encoded rows that go with what is known, given the latent attributes.

        `states` are (draw, latent attribute), of each record all draws, one after the other;
        `levels` are uniform, (draw, column).
        """
        parts = []
        for number, table in enumerate(self.columns):
            shares, within = table[states[:, self.latent_of[number]]], None
            if (fit := fits.get(number)) is not None:
                possible = shares * for_draws(fit.cells, n_draws)
                total = possible.sum(1, keepdim=True)
                shares = torch.where(total > 0.0, possible / total, shares)
                if fit.within is not None:
                    within = [for_draws(end, n_draws) for end in fit.within]
            parts.append(self._encode(number, shares, levels[:, number], within))
        return torch.cat(parts, dim=1).float()

    def _encode(
        self, number: int, shares: Tensor, levels: Tensor, within: Sequence[Tensor] | None = None
    ) -> Tensor:
        """Write cells as the party's transformer encodes them, numbers at a place in their bin."""
        ends, gated, cells = self.bins[number], self.gated[number], pick(shares, levels)
        if ends is None:
            return torch.nn.functional.one_hot(cells, shares.shape[1]).double()
        places = _places_within(shares, cells, levels)
        missing = (cells == ends.shape[1]).double().unsqueeze(1)
        lows, highs = ends[:, cells.clamp_max(ends.shape[1] - 1)]
        if within is not None:
            lower, upper = within
            lows, highs = lower.clamp(lows, highs), upper.clamp(lows, highs)
        value = torch.lerp(lows, highs, places).unsqueeze(1) * (1.0 - missing)
        return torch.cat([value, 1.0 - missing, missing], 1) if gated else value

    @classmethod
    def draw_jointly(
        cls, samplers: Mapping[str, Self], asked: Completion
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Draw states, then columns, given all that is known of all parties' columns."""
        n, number = asked.n_rows, asked.number
        fits = {
            name: sampler.fits(Known.of(asked.facts[name], 1, sampler.device))
            for name, sampler in samplers.items()
        }
        evidence = [
            one for name, sampler in samplers.items() for one in sampler.evidence(fits[name])
        ]
        tree = next(iter(samplers.values()))
        levels = _levels(derive(asked.secret, f"states {number}"), n, tree.latent_dim)
        states, log_probability = states_given(
            tree.parents, tree.shares, evidence, levels, asked.n_draws
        )
        drawn = {}
        for name, sampler in samplers.items():
            secret = derive(asked.secret, f"cells {number} {name}")
            levels = _levels(secret, n, len(sampler.columns))
            drawn[name] = sampler.draw_known(states, levels, fits[name], asked.n_draws)
        return drawn, log_probability.unsqueeze(1)

    def to_dict(self) -> dict[str, Any]:
        """Return the shape of the tree and the encodings."""
        return {
            "parents": list(self.parents),
            "latent_of": list(self.latent_of),
            "gated": list(self.gated),
        }

    def tensors(self) -> dict[str, Tensor]:
        """Return the conditional distributions, and the bins of numbers."""
        tables = {f"shares.{node}": table for node, table in enumerate(self.shares)}
        tables |= {f"columns.{number}": table for number, table in enumerate(self.columns)}
        return tables | {f"bins.{n}": ends for n, ends in enumerate(self.bins) if ends is not None}

    @classmethod
    def restore(
        cls, content: Mapping[str, Any], tensors: Mapping[str, Tensor], spans: Sequence[OutputSpan]
    ) -> Self:
        """Undo `to_dict` and `tensors`; it always computes on the CPU."""
        return cls(
            content["parents"],
            [tensors[f"shares.{node}"] for node in range(len(content["parents"]))],
            [tensors[f"columns.{number}"] for number in range(len(content["gated"]))],
            content["latent_of"],
            [tensors.get(f"bins.{number}") for number in range(len(content["gated"]))],
            content["gated"],
        )


def _within_bins(ends: Tensor, lower: Tensor, upper: Tensor, there: Tensor) -> Tensor:
    """Which share of each bin lies in an interval, shape (record, bin).

    `ends` have shape (2, bin), twice the same number for a single value; `lower` and `upper`
    (record, 1). Where no bin that has anything (`there`) does, the nearest one counts.
    """
    lows, highs = ends
    common = torch.minimum(upper, highs) - torch.maximum(lower, lows)
    width = highs - lows
    shares = torch.where(width > 0.0, common.clamp_min(0.0) / width, (common >= 0.0).double())
    shares = shares.clamp_max(1.0) * there
    nearest = torch.where(there, common, -torch.inf).argmax(1)
    alone = torch.nn.functional.one_hot(nearest, len(lows)).double()
    return torch.where(shares.sum(1, keepdim=True) > 0.0, shares, alone)


def _places_within(shares: Tensor, states: Tensor, levels: Tensor) -> Tensor:
    """Return where in its state, of `pick`, a level in the unit interval is, from 0 to 1."""
    share, end = (
        table.gather(1, states.unsqueeze(1)).squeeze(1) for table in (shares, shares.cumsum(1))
    )
    return (1.0 - (end - levels) / share).clamp(0.0, 1.0)


def _levels(secret: bytes, n: int, n_dimensions: int) -> Tensor:
    """Draw points as rows that nothing is asked of are drawn: even in every dimension."""
    streams = RandomStreams([secret])
    parts = [
        streams.latin_hypercube("levels", block, min(SAMPLE_BLOCK, n - start), n_dimensions)[0]
        for block, start in enumerate(range(0, max(1, n), SAMPLE_BLOCK))
    ]
    return torch.cat(parts)


def encoded_bins(histogram: NoisyHistogram) -> Tensor | None:
    """Where the bins of a numeric column begin and end in its encoding, shape (2, bin)."""
    if not isinstance(histogram.cells, Bins):
        return None
    mean, std = histogram.mean_and_std()
    return torch.tensor((np.stack([*histogram.bent_bins()]) - mean) / std)
