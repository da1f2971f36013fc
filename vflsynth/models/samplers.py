"""Samplers: how one party draws its encoded rows, given latents that all parties share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from vflsynth._random import RandomStreams
from vflsynth.columns import OutputSpan
from vflsynth.latent_tree import top_down
from vflsynth.marginals import Marginal, draw_marginals
from vflsynth.models.calibration import (
    MarginalMap,
    PlaceOffsets,
    logit_offsets,
    places_of,
)
from vflsynth.models.inference import for_draws
from vflsynth.networks import Generator, SequentialGenerator, sample_encoded
from vflsynth.networks.generator import turns_of
from vflsynth.networks.mixtures import Known, pick

# Generated rows that a calibration looks at, and what the names of its tensors begin with.
_CALIBRATION_ROWS, _MARGINALS, _PLACES = 1 << 14, "marginals.", "places."


class RowSampler(ABC):
    """Draws encoded rows of one party; saved as a JSON-safe dict and named tensors."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def latent_dim(self) -> int:
        """Length of the latents that parties share; 0 if parties share nothing."""

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return torch.device("cpu")

    def latents(self, shared: RandomStreams, index: int, n: int) -> Tensor:
        """Draw what rows of all parties have in common.

        Parameters
        ----------
        shared : RandomStreams
            The same at all parties.
        index : int
            Which draw of the streams.
        n : int
            Rows.

        Returns
        -------
        Tensor, shape (1, n, latent)
            Standard normal, if not said otherwise.
        """
        return shared.normal("sample", index, (n, self.latent_dim))

    @abstractmethod
    def draw(self, latent: Tensor, streams: RandomStreams, index: int) -> Tensor:
        """Draw encoded rows.

        Parameters
        ----------
        latent : Tensor, shape (1, n, latent)
            As `latents` draws them, the same for all parties.
        streams : RandomStreams
            The party's own, for all randomness that is not shared.
        index : int
            Which draw of the streams.

        Returns
        -------
        Tensor, shape (n, encoded)
        """

    @property
    def after(self) -> tuple[str, ...]:
        """Parties that have to draw first, and to pass something on to this one."""
        return ()

    def draw_given(
        self, received: Mapping[str, Tensor], latent: Tensor, streams: RandomStreams, index: int
    ) -> Tensor:
        """Draw encoded rows, given what the parties of `after` passed on.

        Parameters
        ----------
        received : mapping of party to Tensor, shape (n, number)
        latent, streams, index
            As of `draw`.
        """
        return self.draw(latent, streams, index)

    def pass_on(self, rows: Tensor) -> dict[str, Tensor]:
        """Compute what other parties need of drawn rows, by party, each (row, number)."""
        return {}

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return everything but the tensors, JSON-safe."""

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors."""

    @classmethod
    @abstractmethod
    def restore(
        cls,
        content: Mapping[str, Any],
        tensors: Mapping[str, Tensor],
        spans: Sequence[OutputSpan],
        device: torch.device | str,
    ) -> Self:
        """Undo `to_dict` and `tensors`, for encoded rows of these spans."""


@dataclass(frozen=True, slots=True)
class GeneratorSpec:
    """What is needed to build a generator besides the spans of the encoded row.

    With `head`, its columns are drawn one after the other, see `SequentialGenerator`.
    """

    latent_dim: int
    hidden: tuple[int, ...]
    bias: bool
    temperature: float
    batch_norm_eps: float | None
    head: int | None = None

    def build(
        self,
        spans: Sequence[OutputSpan],
        streams: RandomStreams,
        hidden_streams: RandomStreams | None = None,
    ) -> Generator:
        """Build a generator; see `Generator` for where its initial weights come from."""
        kind = Generator if self.head is None else partial(SequentialGenerator, head=self.head)
        return kind(
            self.latent_dim,
            self.hidden,
            spans,
            bias=self.bias,
            temperature=self.temperature,
            batch_norm_eps=self.batch_norm_eps,
            streams=streams,
            hidden_streams=hidden_streams,
        )

    def n_weights(self, spans: Sequence[OutputSpan]) -> int:
        """Return how many weights a generator has at least."""
        width = sum(span.width for span in spans)
        sizes = [self.latent_dim, *self.hidden, width]
        heads = 0 if self.head is None else self.head * (sizes[-2] * len(turns_of(spans)) + width)
        return sum(a * b for a, b in zip(sizes[:-1], sizes[1:])) + heads


class GeneratorSampler(RowSampler):
    """A trained generator in evaluation mode.

    Parameters
    ----------
    spec : GeneratorSpec
    spans : sequence of OutputSpan
    weights : mapping of str to Tensor
        State of the generator, one replica.
    device : torch.device, default="cpu"
    marginals : MarginalMap, optional
        What becomes of generated numbers.
    places : PlaceOffsets, optional
        What is added to logits of places, for every group.
    """

    kind = "generator"

    def __init__(
        self,
        spec: GeneratorSpec,
        spans: Sequence[OutputSpan],
        weights: Mapping[str, Tensor],
        device: torch.device | str = "cpu",
        marginals: MarginalMap | None = None,
        places: PlaceOffsets | None = None,
    ) -> None:
        self.spec, self.spans, self.marginals = spec, tuple(spans), marginals
        self.places = places
        # The initial weights are overwritten.
        self.generator = spec.build(spans, RandomStreams([b""], device))
        self.generator.load_state_dict(dict(weights))

    @classmethod
    def of_replicas(
        cls, spec: GeneratorSpec, spans: Sequence[OutputSpan], weights: Mapping[str, Tensor]
    ) -> list[Self]:
        """One sampler per replica of a trained stack of generators.

        Parameters
        ----------
        spec : GeneratorSpec
        spans : sequence of OutputSpan
        weights : mapping
            State of the stack.
        """
        device = weights["output.weight"].device
        return [
            cls(spec, spans, {k: v[replica : replica + 1] for k, v in weights.items()}, device)
            for replica in range(len(weights["output.weight"]))
        ]

    def calibrated(self, records: Tensor, streams: RandomStreams) -> Self:
        """Return a sampler whose rows have the marginals of records.

        Parameters
        ----------
        records : Tensor, shape (record, encoded)
        streams : RandomStreams
            The party's own, of one replica; what is drawn here is drawn nowhere else.
        """
        streams = streams.child("calibration")
        latent = streams.normal("latent", 0, (_CALIBRATION_ROWS, self.latent_dim))
        weights = {name: value.clone() for name, value in self.generator.state_dict().items()}
        own = type(self)(self.spec, self.spans, weights, self.device)

        def give_shares(place: slice, logits: Tensor, rows: Tensor) -> Tensor:
            offsets = logit_offsets(logits[0], records[:, place], _spans_in(self.spans, place))
            weights["output.bias"][..., place] += offsets
            return logits + offsets

        sample_encoded(own.generator, latent, streams, 0, give_shares)
        own.generator.load_state_dict(weights)
        found: list[PlaceOffsets] = []

        def give_places(place: slice, logits: Tensor, rows: Tensor) -> Tensor:
            found.append(PlaceOffsets.fit(self.spans, place, logits[0], rows[0], records))
            return found[-1].apply(place, logits, rows)

        adjust = give_places if places_of(self.spans) else None
        rows = sample_encoded(own.generator, latent, streams, 0, adjust)[0]
        if adjust is not None:
            own.places = PlaceOffsets.joined(found)
        own.marginals = MarginalMap.fit(self.spans, rows, records)
        return own

    def part(self, spans: Sequence[OutputSpan], place: slice) -> Self:
        """Return what draws some adjacent encoded columns alone.

        Parameters
        ----------
        spans : sequence of OutputSpan
            Of these columns, counted from the first of them.
        place : slice
        """
        weights = dict(self.generator.state_dict())
        for name in ("output.weight", "output.bias"):
            weights[name] = weights[name][..., place]
        marginals = None if self.marginals is None else self.marginals.part(place)
        places = None if self.places is None else self.places.part(place, spans)
        return type(self)(self.spec, spans, weights, self.device, marginals, places)

    @property
    def latent_dim(self) -> int:
        """Length of z."""
        return self.spec.latent_dim

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.generator.output.weight.device

    def draw(self, latent: Tensor, streams: RandomStreams, index: int) -> Tensor:
        """Generate; Gumbel noise is the party's own."""
        adjust = None if self.places is None else self.places.apply
        rows = sample_encoded(self.generator, latent, streams, index, adjust)[0]
        return rows if self.marginals is None else self.marginals.apply(rows)

    def to_dict(self) -> dict[str, Any]:
        """Return the sizes."""
        return asdict(self.spec)

    def tensors(self) -> dict[str, Tensor]:
        """Return weights, running statistics and what becomes of generated numbers."""
        state: dict[str, Tensor] = self.generator.state_dict()
        if self.marginals is not None:
            state |= {_MARGINALS + name: v for name, v in self.marginals.tensors().items()}
        if self.places is not None:
            state |= {_PLACES + name: v for name, v in self.places.tensors().items()}
        return state

    @classmethod
    def restore(
        cls,
        content: Mapping[str, Any],
        tensors: Mapping[str, Tensor],
        spans: Sequence[OutputSpan],
        device: torch.device | str,
    ) -> Self:
        """Undo `to_dict` and `tensors`."""
        spec = GeneratorSpec(**{**content, "hidden": tuple(content["hidden"])})
        weights = {k: v for k, v in tensors.items() if not k.startswith((_MARGINALS, _PLACES))}
        if spec.n_weights(spans) > sum(tensor.numel() for tensor in weights.values()):
            # Said before anything of this size is allocated.
            raise ValueError(f"there are too few weights for layers of sizes {spec.hidden}")
        maps, offsets = (
            {k.removeprefix(label): v for k, v in tensors.items() if k.startswith(label)}
            for label in (_MARGINALS, _PLACES)
        )
        marginals = MarginalMap.restore(maps, spans) if maps else None
        places = PlaceOffsets.restore(offsets, spans) if offsets else None
        return cls(spec, spans, weights, device, marginals, places)


def _spans_in(spans: Sequence[OutputSpan], place: slice) -> list[OutputSpan]:
    """Return the spans of some adjacent encoded columns, counted from the first of them."""
    return [s.shifted(-place.start) for s in spans if place.start <= s.start < place.stop]


class MarginalSampler(RowSampler):
    """One marginal distribution per column, perhaps tied together by a Gaussian copula.

    Parameters
    ----------
    marginals : sequence of Marginal
    loadings : Tensor, shape (latent, column), optional
        Columns of unit length: ``latent @ loadings`` are the columns' normal scores, and over all
        parties they have the correlations of the copula. None draws scores independently.
    width : int
        Columns of the encoded row.
    """

    kind = "marginals"

    def __init__(
        self, marginals: Sequence[Marginal], loadings: Tensor | None, *, width: int
    ) -> None:
        if loadings is not None and loadings.shape[1] != len(marginals):
            raise ValueError(f"{len(marginals)} columns, but loadings of {loadings.shape[1]}")
        self.marginals, self.loadings, self.width = tuple(marginals), loadings, width

    @property
    def latent_dim(self) -> int:
        """Number of columns of all parties, or 0."""
        return 0 if self.loadings is None else self.loadings.shape[0]

    def draw(self, latent: Tensor, streams: RandomStreams, index: int) -> Tensor:
        """Draw scores, and look up the quantiles they stand for."""
        if self.loadings is None:
            scores = streams.normal("scores", index, (latent.shape[1], len(self.marginals)))
        else:
            scores = latent.double() @ self.loadings.double()
        rows = draw_marginals(self.marginals, scores[0].double().numpy(), self.width)
        return torch.tensor(rows.astype(np.float32))

    def to_dict(self) -> dict[str, Any]:
        """Return the marginals."""
        return {"marginals": [m.to_dict() for m in self.marginals], "width": self.width}

    def tensors(self) -> dict[str, Tensor]:
        """Return the loadings, if there are any."""
        return {} if self.loadings is None else {"loadings": self.loadings}

    @classmethod
    def restore(
        cls,
        content: Mapping[str, Any],
        tensors: Mapping[str, Tensor],
        spans: Sequence[OutputSpan],
        device: torch.device | str,
    ) -> Self:
        """Undo `to_dict` and `tensors`."""
        marginals = [Marginal.from_dict(m) for m in content["marginals"]]
        loadings = tensors.get("loadings")
        return cls(marginals, None if loadings is None else loadings.cpu(), width=content["width"])


@dataclass(frozen=True, slots=True)
class Fit:
    """Which part of a column's cells goes with what is known of it.

    Parameters
    ----------
    cells : Tensor, shape (record or 1, cell)
        Shares of each cell.
    within : (Tensor, Tensor), optional
        Between which encoded numbers a number lies, shape (record or 1,). Default: categories.
    """

    cells: Tensor
    within: tuple[Tensor, Tensor] | None = None


class LatentTreeSampler(RowSampler):
    """A tree of latent attributes that all parties draw alike, and own columns given them.

    Parameters
    ----------
    parents : sequence of int
        Of all parties' latent attributes; -1 for the root.
    shares : sequence of Tensor
        Of every attribute: of the root, shape (state,); else given the parent, (parent state,
        state).
    columns : sequence of Tensor, shape (latent state, cell)
        p(cell | latent attribute) of the party's columns, in the order of the encoded row: bins or
        categories, and then missing values if the column is gated.
    latent_of : sequence of int
        Each column's latent attribute.
    bins : sequence of Tensor or None
        Where a numeric column's bins begin and end in its encoding, shape (2, bin); None:
        categories.
    gated : sequence of bool
        Whether a column's encoding has a state "missing".

    Notes
    -----
    Latent attributes and columns are quantiles at the points of Latin hypercubes (McKay, Beckman
    and Conover 1979): each row has the distribution of the tree, and a table's shares of single
    attributes are closer to the tree's than those of as many independent rows. Points that are
    even in pairs of dimensions, too, leave marks: see the decisions.
    """

    kind = "latent tree"

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
        shared, states = latent[0].double().cpu(), dict[int, Tensor]()
        for node in self._order:
            table, parent = self.shares[node], self.parents[node]
            given = table.unsqueeze(0) if parent < 0 else table[states[parent]]
            states[node] = pick(given, shared[:, node])
        (levels,) = streams.latin_hypercube("cells", index, len(shared), len(self.columns)).cpu()
        parts = [
            self._encode(number, table[states[self.latent_of[number]]], levels[:, number])
            for number, table in enumerate(self.columns)
        ]
        return torch.cat(parts, dim=1).float()

    def fits(self, known: Known) -> dict[int, Fit]:
        """Compare cells with what is known, of columns of which anything is.

        Parameters
        ----------
        known : Known

        Returns
        -------
        dict of int to Fit
            By the position of the column. A number where it has none counts as the nearest.
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

        Parameters
        ----------
        fits : mapping of int to Fit

        Returns
        -------
        list of (int, Tensor of shape (record or 1, state))
            One for each column of which anything is known.
        """
        return [
            (self.latent_of[number], (fit.cells @ self.columns[number].mT).log())
            for number, fit in fits.items()
        ]

    def draw_known(
        self, states: Tensor, levels: Tensor, fits: Mapping[int, Fit], n_draws: int
    ) -> Tensor:
        """Draw encoded rows that go with what is known, given the latent attributes.

        Parameters
        ----------
        states : int64 Tensor, shape (draw, latent attribute)
            Of each record all draws, one after the other.
        levels : Tensor, shape (draw, column)
            Uniform.
        fits : mapping of int to Fit
            Of the records, or one for all.
        n_draws : int
            Of each record.
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
        cls,
        content: Mapping[str, Any],
        tensors: Mapping[str, Tensor],
        spans: Sequence[OutputSpan],
        device: torch.device | str,
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

    Parameters
    ----------
    ends : Tensor, shape (2, bin)
        The same number twice: a single value.
    lower, upper : Tensor, shape (record, 1)
    there : bool Tensor, shape (bin,)
        Bins that have anything; where none of these does, the nearest one counts.
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
    """Return where in its state, from 0 to 1, a level in the unit interval is, per row.

    Parameters
    ----------
    shares : Tensor, shape (row, state)
    states : int64 Tensor, shape (row,)
        Of `pick`.
    levels : Tensor, shape (row,)
    """
    share, end = (
        table.gather(1, states.unsqueeze(1)).squeeze(1) for table in (shares, shares.cumsum(1))
    )
    return (1.0 - (end - levels) / share).clamp(0.0, 1.0)
