"""A trained generator, as a party keeps and saves it, and what of numbers it is trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from vflsynth._random import RandomStreams
from vflsynth.columns import OutputSpan
from vflsynth.learning.base import section
from vflsynth.methods.gan.calibration import (
    MarginalMap,
    PlaceOffsets,
    logit_offsets,
    places_of,
    places_of_numbers,
)
from vflsynth.methods.gan.generator import Generator, sample_encoded
from vflsynth.methods.gan.relations import Relations
from vflsynth.methods.gan.sequential import SequentialGenerator, turns_of
from vflsynth.models.choosing import CHOOSER, RowScores
from vflsynth.models.samplers import RowSampler
from vflsynth.registry import register

CALIBRATION_ROWS = 1 << 14
"""Generated rows that a calibration looks at."""

_FEWEST = 100

# Of the mean absolute deviation, what a regression must leave to be worth while, at most.
_LARGEST = 0.95

# Least absolute deviations are found by reweighting: steps, the smallest residual that counts, as
# a share of their mean, and pseudo-records by regressor that say that nothing depends on anything.
_STEPS, _SMALLEST, _PRIOR = 12, 0.02, 0.5


@dataclass(frozen=True)
class Residuals:
    """Regressions of the numbers of one party's encoded rows, each on the columns before it.

    Two columns of a party may agree but for a hundredth of their spread. A critic of bounded slope
    hardly sees that hundredth, and a generator that misses it is told apart at once. So a number is
    learned as its residual: what a linear regression on the columns before it does not explain, as
    normal scores. Once rows are drawn, every number is put together again.

    `weights`, (value, encoded), and `offsets`, (value,), are those of the regressions, 0 from a
    number's own column on. `scores` maps normal scores to what is left.
    """

    weights: Tensor
    offsets: Tensor
    scores: MarginalMap

    @classmethod
    def fit(cls, spans: Sequence[OutputSpan], records: Tensor) -> tuple[Self, Tensor]:
        """Learn them from encoded records, (record, encoded); also return what training sees."""
        columns, gates = places_of_numbers(spans)
        bounded = {span.start for span in spans if span.bound is not None}
        rows = records.double().cpu()
        left, seen = rows.clone(), rows.clone()
        weights = torch.zeros(len(columns), rows.shape[1], dtype=torch.float64)
        offsets = torch.zeros(len(columns), dtype=torch.float64)
        for i, (column, gate) in enumerate(zip(columns.tolist(), gates.tolist())):
            there = slice(None) if gate == column else torch.nonzero(rows[:, gate] > 0.0)[:, 0]
            own = rows[there, column]
            if column == 0 or column in bounded or len(own) < _FEWEST:
                continue
            found, offset = _least_deviations(rows[there, :column], own)
            unexplained = own - rows[there, :column] @ found - offset
            if unexplained.abs().mean() < _LARGEST * (own - own.median()).abs().mean():
                weights[i, :column], offsets[i] = found, offset
                left[there, column] = unexplained
                seen[there, column] = _normal_scores(unexplained)
        device, dtype = records.device, records.dtype
        scores = MarginalMap.fit(spans, seen.to(device, dtype), left.to(device, dtype))
        made = cls(weights.to(device, dtype), offsets.to(device, dtype), scores)
        return made, seen.to(device, dtype)

    def calibrated(self, spans: Sequence[OutputSpan], generated: Tensor, records: Tensor) -> Self:
        """Return those that give generated rows the residuals of records, both as trained."""
        scores = MarginalMap.fit(spans, generated, self.scores.apply(records))
        return replace(self, scores=scores)

    def put_together(self, rows: Tensor) -> Tensor:
        """Put numbers together in rows (n, encoded), those before a number first."""
        rows = self.scores.apply(rows)
        for i, column in enumerate(self.scores.columns.tolist()):
            rows[:, column] += self._explained(rows, i)
        return rows

    def take_out(self, rows: Tensor) -> Tensor:
        """Make of encoded rows (n, encoded) what training sees of them, but for its map's knots."""
        left = rows.clone()
        for i, column in enumerate(self.scores.columns.tolist()):
            left[:, column] -= self._explained(rows, i)
        return self.scores.inverse().apply(left)

    def _explained(self, rows: Tensor, i: int) -> Tensor:
        """Return what the columns before a number say of it, 0 where there is none."""
        column, gate = int(self.scores.columns[i]), int(self.scores.gates[i])
        explained = rows[:, :column] @ self.weights[i, :column] + self.offsets[i]
        return explained if gate == column else explained * (rows[:, gate] > 0.0)

    def tensors(self) -> dict[str, Tensor]:
        """Return what has to be saved besides the spans."""
        return {"weights": self.weights, "offsets": self.offsets, **self.scores.tensors()}

    @classmethod
    def restore(cls, tensors: Mapping[str, Tensor], spans: Sequence[OutputSpan]) -> Self:
        """Undo `tensors`; ValueError if they are not of encoded rows of these spans."""
        scores = MarginalMap.restore(tensors, spans)
        weights, offsets, columns = tensors["weights"], tensors["offsets"], scores.columns
        if weights.shape != (len(columns), sum(span.width for span in spans)):
            raise ValueError(f"regressions of shape {tuple(weights.shape)} do not fit the columns")
        if offsets.shape != columns.shape:
            raise ValueError("every regression needs an offset")
        if any(own[column:].any() for own, column in zip(weights, columns.tolist())):
            raise ValueError("a number can only be explained by the columns before it")
        return cls(weights, offsets, scores)


# What becomes of generated rows; the names of the tensors begin with these labels.
_PARTS: dict[str, Any] = {
    "marginals": MarginalMap,
    "places": PlaceOffsets,
    "residuals": Residuals,
    "relations": Relations,
}


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
        own = asdict(self) | {"spans": spans, "streams": streams, "hidden_streams": hidden_streams}
        if own["head"] is not None and spans:
            return SequentialGenerator(**own)
        del own["head"]  # also of constants, which nobody draws
        return Generator(**own)

    def n_weights(self, spans: Sequence[OutputSpan]) -> int:
        """Return how many weights a generator has, biases and normalisation not counted."""
        width = sum(span.width for span in spans)
        sizes = [self.latent_dim, *self.hidden, width]
        starts = [turn[0].start for turn in turns_of(spans)]
        heads = (self.head or 0) * (sizes[-2] * len(starts) + sum(starts) + width)
        return sum(a * b for a, b in zip(sizes[:-1], sizes[1:])) + heads


@register
class GeneratorSampler(RowSampler):
    """A trained generator in evaluation mode, of one replica.

    `residuals` put generated numbers together, `marginals` say what becomes of them then, `places`
    what is added to logits of places, for every group. `relations` mend whole rows in the end;
    `scores` judge them, if more are drawn than are wanted.
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
        residuals: Residuals | None = None,
        relations: Relations | None = None,
    ) -> None:
        self.spec, self.spans, self.marginals = spec, tuple(spans), marginals
        self.places, self.residuals, self.relations = places, residuals, relations
        # The initial weights are overwritten.
        self.generator = spec.build(spans, RandomStreams([b""], device))
        self.generator.load_state_dict(dict(weights))

    @classmethod
    def of_replicas(
        cls,
        spec: GeneratorSpec,
        spans: Sequence[OutputSpan],
        weights: Mapping[str, Tensor],
        residuals: Residuals | None = None,
    ) -> list[Self]:
        """One sampler per replica of a trained stack of generators, whose state `weights` is."""
        device = weights["output.weight"].device
        return [
            cls(
                spec,
                spans,
                {k: v[replica : replica + 1] for k, v in weights.items()},
                device,
                residuals=residuals,
            )
            for replica in range(len(weights["output.weight"]))
        ]

    def calibrated(
        self, records: Tensor, streams: RandomStreams, *, relations: bool = False
    ) -> Self:
        """Return a sampler whose rows have the marginals of records, (record, encoded), as trained.

        With `relations`, also the records' relations between the party's columns. Streams are the
        party's own, of one replica; what is drawn here is drawn nowhere else.
        """
        streams = streams.child("calibration")
        latent = streams.normal("latent", 0, (CALIBRATION_ROWS, self.latent_dim))
        weights = {name: value.clone() for name, value in self.generator.state_dict().items()}
        own = type(self)(self.spec, self.spans, weights, self.device, residuals=self.residuals)

        def give_shares(place: slice, logits: Tensor, rows: Tensor) -> Tensor:
            there = [s for s in self.spans if place.start <= s.start < place.stop]
            spans = [span.shifted(-place.start) for span in there]
            offsets = logit_offsets(logits[0], records[:, place], spans)
            weights["output.bias"][..., place] += offsets
            return logits + offsets

        sample_encoded(own.generator, latent, streams, 0, give_shares)
        own.generator.load_state_dict(weights)
        found = PlaceOffsets({})

        def give_places(place: slice, logits: Tensor, rows: Tensor) -> Tensor:
            found.learn(self.spans, place, logits[0], rows[0], records)
            return found.apply(place, logits, rows)

        adjust = give_places if places_of(self.spans) else None
        rows = sample_encoded(own.generator, latent, streams, 0, adjust)[0]
        if adjust is not None:
            own.places = found
        if self.residuals is not None:
            own.residuals = self.residuals.calibrated(self.spans, rows, records)
        rows, whole = own.whole(rows), self.whole(records)
        own.marginals = MarginalMap.fit(self.spans, rows, whole)
        if relations:
            uniform = streams.uniform("relations", 0, (len(rows), 2))[0]
            own.relations = Relations.fit(self.spans, own.marginals.apply(rows), whole, uniform)
        return own

    def whole(self, rows: Tensor) -> Tensor:
        """Put numbers together in rows as they are trained on, (n, encoded)."""
        return rows if self.residuals is None else self.residuals.put_together(rows)

    def part(self, spans: Sequence[OutputSpan], place: slice) -> Self:
        """Return what draws some adjacent encoded columns alone; spans count from their first.

        Relations are not mended, as they may be to columns that are not among them.
        """
        weights = dict(self.generator.state_dict())
        for name in ("output.weight", "output.bias"):
            weights[name] = weights[name][..., place]
        marginals = None if self.marginals is None else self.marginals.part(place)
        places = None if self.places is None else self.places.part(place)
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
        rows = self.whole(sample_encoded(self.generator, latent, streams, index, adjust)[0])
        if self.marginals is not None:
            rows = self.marginals.apply(rows)
        if self.relations is None:
            return rows
        uniform = streams.uniform("relations", index, (len(rows), self.relations.n_uniform))
        return self.relations.apply(rows, uniform[0])

    def pass_on(self, rows: Tensor) -> dict[str, Tensor]:
        """Score drawn rows for whoever chooses among them."""
        return {} if self.scores is None else {CHOOSER: self.scores.part(rows)}

    def to_dict(self) -> dict[str, Any]:
        """Return the sizes."""
        return asdict(self.spec) | {"resample": 1 if self.scores is None else self.scores.times}

    def tensors(self) -> dict[str, Tensor]:
        """Return weights, running statistics and what becomes of generated numbers."""
        state: dict[str, Tensor] = self.generator.state_dict()
        for label in (*_PARTS, "scores"):
            if (part := getattr(self, label)) is not None:
                state |= {f"{label}.{name}": value for name, value in part.tensors().items()}
        return state

    @classmethod
    def restore(
        cls, content: Mapping[str, Any], tensors: Mapping[str, Tensor], spans: Sequence[OutputSpan]
    ) -> Self:
        """Undo `to_dict` and `tensors`."""
        content = dict(content)
        times = content.pop("resample")
        spec = GeneratorSpec(**{**content, "hidden": tuple(content["hidden"])})
        own = {label: section(tensors, label, ".") for label in (*_PARTS, "scores")}
        weights = {k: v for k, v in tensors.items() if k.partition(".")[0] not in own}
        if spec.n_weights(spans) > sum(tensor.numel() for tensor in weights.values()):
            # Said before anything of this size is allocated.
            raise ValueError(f"there are too few weights for layers of sizes {spec.hidden}")
        parts = {k: kind.restore(own[k], spans) for k, kind in _PARTS.items() if own[k]}
        made = cls(spec, spans, weights, weights["output.weight"].device, **parts)
        if times > 1:
            made.scores = RowScores.restore(times, own["scores"], sum(s.width for s in spans))
        return made


def _least_deviations(regressors: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """Find weights and offset with the smallest absolute residuals, roughly.

    Where most records follow a line and some are far off it, the line is theirs.
    """
    design = torch.cat([regressors, torch.ones_like(own).unsqueeze(1)], 1)
    prior = torch.full_like(design[0], _PRIOR)
    prior[-1] = 1e-9
    weight, found = torch.ones_like(own), prior
    for _ in range(_STEPS):
        weighted = design * weight.unsqueeze(1)
        found = torch.linalg.solve(weighted.T @ design + torch.diag(prior), weighted.T @ own)
        size = (own - design @ found).abs()
        weight = size.mean() / size.clamp_min(_SMALLEST * size.mean() + 1e-12)
    return found[:-1], found[-1]


def _normal_scores(values: Tensor) -> Tensor:
    """Return standard normal scores of ranks; equal values get neighbouring ones."""
    ranks = values.argsort(stable=True).argsort().to(values)
    scores: Tensor = torch.special.ndtri((ranks + 0.5) / len(values))
    return scores
