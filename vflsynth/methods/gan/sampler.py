"""A trained generator, as a party keeps and saves it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor

from vflsynth._random import RandomStreams
from vflsynth.columns import OutputSpan
from vflsynth.methods.gan.calibration import MarginalMap, PlaceOffsets, logit_offsets, places_of
from vflsynth.methods.gan.generator import Generator, sample_encoded
from vflsynth.methods.gan.relations import Relations
from vflsynth.methods.gan.residuals import Residuals
from vflsynth.methods.gan.sequential import SequentialGenerator, turns_of
from vflsynth.models.choosing import CHOOSER, RowScores
from vflsynth.models.samplers import RowSampler
from vflsynth.registry import register

CALIBRATION_ROWS = 1 << 14
"""Generated rows that a calibration looks at."""

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
        make: Callable[..., Generator] = Generator  # also of constants, which nobody draws
        if self.head is not None and spans:
            make = partial(SequentialGenerator, head=self.head)
        return make(
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
        head = self.head or 0
        heads = head * (sizes[-2] * len(turns_of(spans)) + width) if spans else 0
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
        weights, own = dict(tensors), {}
        for label in (*_PARTS, "scores"):
            names = [name for name in weights if name.startswith(f"{label}.")]
            own[label] = {name.removeprefix(f"{label}."): weights.pop(name) for name in names}
        if spec.n_weights(spans) > sum(tensor.numel() for tensor in weights.values()):
            # Said before anything of this size is allocated.
            raise ValueError(f"there are too few weights for layers of sizes {spec.hidden}")
        parts = {k: kind.restore(own[k], spans) for k, kind in _PARTS.items() if own[k]}
        made = cls(spec, spans, weights, weights["output.weight"].device, **parts)
        if times > 1:
            made.scores = RowScores.restore(times, own["scores"], sum(s.width for s in spans))
        return made
