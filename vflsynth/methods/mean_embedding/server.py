"""The server that publishes a noisy kernel mean embedding and trains the parties' generators."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from vflsynth._random import RandomStreams
from vflsynth.columns.histograms import estimate_n_records
from vflsynth.exceptions import ProtocolError
from vflsynth.learning.messages import SumShares
from vflsynth.learning.party import labelled, section
from vflsynth.methods.gan.settings import Settings
from vflsynth.methods.mean_embedding.embedding import feature_moments, shrink_mean_embedding
from vflsynth.methods.mean_embedding.mechanism import MeanEmbeddingPlan
from vflsynth.methods.mean_embedding.messages import (
    DRAWN_RECORDS,
    GeneratorWeights,
    MaskedPoints,
    NoisyHistograms,
    WindowWidth,
    frequencies_of,
    published_encoding,
)
from vflsynth.methods.mean_embedding.training import GeneratorTraining
from vflsynth.privacy.events import NeighbouringRelation
from vflsynth.privacy.secure_sums import FeatureSum
from vflsynth.protocol import SERVER
from vflsynth.secure import RotationServer, Turning, bytes_per_angle


class MeanEmbeddingServer:
    """Adds up masked points, publishes the noisy mean of the features, and learns from it.

    Fakes are compared with the release as `shrink_mean_embedding` reads it, not with the release
    itself, whose errors they would learn. `features` are as if every record counted at all
    frequencies, and as it does once that is chosen; `largest_count` is that of a published
    histogram, of either sign; `n_steps` are of training; `relation` tells whether the number of
    records is public; `streams` are the server's own. `released` and `target`, (n_features,), are
    the noisy mean embedding and what fakes are compared with, None before the release.

    Sees masked points, turns and shares, which are uniformly random but for the noisy sum that all
    add up to (`vflsynth.secure.rotations`), and noisy histograms. All that it learns is made of
    these two releases.
    """

    training: GeneratorTraining

    def __init__(
        self,
        names: Sequence[str],
        features: FeatureSum,
        embedding: MeanEmbeddingPlan,
        settings: Settings,
        *,
        largest_count: float,
        n_steps: int,
        relation: NeighbouringRelation,
        streams: RandomStreams,
    ) -> None:
        self.features, self.relation, self.streams = features, relation, streams
        self._embedding, self._settings, self._n_steps = embedding, settings, n_steps
        self._names, self._largest_count = sorted(names), largest_count
        self.released: Tensor | None = None
        self.target: Tensor | None = None

    @property
    def n_blocks(self) -> int:
        """Blocks of records that are summed."""
        return len(self._rotations.blocks)

    def widths(self) -> dict[str, WindowWidth]:
        """Choose at how many frequencies every record counts, and tell all parties.

        At all, or as many as parties may send bytes of: a hundredth is left for what is not about
        records. All that it depends on is published.
        """
        features, n_parties = self.features, len(self._names)
        n_records, width = math.ceil(self._n_records()), features.n_frequencies
        bits = replace(features, n_records=n_records).arithmetic.bits
        if per_angle := bytes_per_angle(n_parties, bits):
            most = int(0.99e6 * self._embedding.most_megabytes / (n_records * per_angle))
            width = max(1, min(width, most))
        self.features = replace(features, width=width)
        self._rotations = RotationServer(
            self._names,
            features.n_records,
            features.n_frequencies,
            self.features.arithmetic,
            width,
        )
        return {name: WindowWidth(SERVER, name, 0, width) for name in self._names}

    def add(self, block: int, received: Mapping[str, MaskedPoints]) -> None:
        """Add up a block of records."""
        sent = {name: Turning(m.points, m.turns, m.windows) for name, m in received.items()}
        self._rotations.add(block, sent)

    def learn_columns(self, histograms: Mapping[str, NoisyHistograms]) -> None:
        """Learn how columns are encoded; ProtocolError names a party that sent what is wrong."""
        self._published = {name: histograms[name] for name in self._names}
        self._encodings = {
            name: published_encoding(m, self._largest_count) for name, m in self._published.items()
        }
        frequencies = [
            frequencies_of(self._published[name].seed, encoding.width_, self._embedding)
            for name, encoding in self._encodings.items()
        ]
        self._frequencies = torch.cat(frequencies)

    def publish(self, shares: Mapping[str, SumShares]) -> None:
        """Release the mean embedding, once; a second release would cost a second budget."""
        if self.released is not None:
            raise ProtocolError("the mean embedding has already been released")
        total = self._rotations.totals({name: m.shares for name, m in shares.items()})
        encodings, n_records = self._encodings.values(), self._n_records()
        released = self.features.features(total) / n_records
        (rng,) = self.streams.numpy_generators("independent records")
        drawn = [encoding.draw_independent(DRAWN_RECORDS, rng) for encoding in encodings]
        target = shrink_mean_embedding(
            released,
            *feature_moments(torch.tensor(np.concatenate(drawn, 1)) @ self._frequencies),
            noise_std=self.features.error_std(n_records),
            n_records=n_records,
        )
        device = self.streams.device
        self.released, self.target = (x.to(device, torch.float32) for x in (released, target))
        self._make_generators(self.target)

    def _n_records(self) -> float:
        """Return the number of records, as far as it is published."""
        if self.relation is NeighbouringRelation.REPLACE_ONE:
            return float(self.features.n_records)
        encodings = self._encodings.values()
        return estimate_n_records(
            [h.counts for encoding in encodings for h in encoding.histograms_.values()]
        )

    def _make_generators(self, target: Tensor) -> None:
        self.training = GeneratorTraining(
            self._settings,
            self._encodings,
            self._frequencies.to(self.streams.device),
            target,
            n_steps=self._n_steps,
            streams=self.streams,
        )

    def weights(self) -> dict[str, GeneratorWeights]:
        """Return every party's generator."""
        return {
            name: GeneratorWeights(SERVER, name, 0, self.training.weights_of(name))
            for name in self._published
        }

    def state(self) -> dict[str, Tensor]:
        """Return the releases, of which a resumed run must not make others, and the generators."""
        if self.released is None or self.target is None:
            return {}
        state = {"released": self.released, "target": self.target}
        for name, message in self._published.items():
            values = {k: v for k, v in message.contents() if isinstance(v, Tensor)}
            state |= labelled(f"published/{name}", values)
        return state | labelled("training", self.training.state())

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore `state`."""
        self.released, self.target = state["released"], state["target"]
        self.learn_columns(
            {
                name: NoisyHistograms(name, SERVER, 0, **section(state, f"published/{name}"))
                for name in self._names
            }
        )
        self._make_generators(self.target)
        self.training.load_state(section(state, "training"))
