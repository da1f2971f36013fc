"""A party that learns from a noisy kernel mean embedding instead of from a discriminator."""

from __future__ import annotations

import copy
import math
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vflsynth._random import RandomStreams
from vflsynth.columns import TableTransformer
from vflsynth.exceptions import ProtocolError
from vflsynth.parties.gan_party import GANParty, sample_encoded
from vflsynth.parties.settings import Settings
from vflsynth.privacy.encoding import PublicEncoding
from vflsynth.privacy.mean_embedding import random_frequencies
from vflsynth.protocol import (
    FakeProjections,
    IndependentProjections,
    Message,
    NoisyHistograms,
    ProjectionGradients,
    RecordProjections,
    Schedule,
)
from vflsynth.protocol.channel import Verb
from vflsynth.protocol.messages import SERVER

FINAL_LEARNING_RATE = 0.02
"""Learning rate at the end of training, as a share of that at the beginning."""

DRAWN_RECORDS = 20_000
"""Records that tell a distribution: of independent columns, and of what generators have learned."""


@dataclass(frozen=True, slots=True)
class MeanEmbeddingSettings:
    """What the parties agree on for the two releases and for learning from them.

    Parameters
    ----------
    encoding : PublicEncoding
        With noise.
    n_features : int
        Random Fourier features, even.
    bandwidths : tuple of float
    n_steps : int
        Over which the learning rate falls.
    """

    encoding: PublicEncoding
    n_features: int
    bandwidths: tuple[float, ...]
    n_steps: int


class MeanEmbeddingParty(GANParty):
    """A party with a generator, whose records are read twice and then dropped.

    Parameters
    ----------
    name, frame, on, transformer
        See `Party`; the transformer is replaced by one made of the published histograms.
    embedding : MeanEmbeddingSettings
    noise : torch.Generator, optional
        For tests only; see `vflsynth.privacy.noise`.

    Notes
    -----
    Source: DP-MERF (Harder, Adamczewski and Park 2021), here with several parties. Reads its
    records for the histograms (noise added here) and for the projections (noise added by the
    server). Afterwards it has no encoded record any more, and everything is post-processing.
    """

    def __init__(
        self,
        name: str,
        frame: pd.DataFrame,
        on: Hashable | None,
        transformer: TableTransformer,
        embedding: MeanEmbeddingSettings,
        noise: torch.Generator | None = None,
    ) -> None:
        super().__init__(name, frame, on, transformer)
        self.embedding, self._noise = embedding, noise
        self._pending: tuple[int, Tensor] | None = None

    def prepare(self) -> None:
        """Publish noisy histograms and make the encoding of them.

        Raises
        ------
        PartyDataError
            If a column has no public bounds or categories, or they do not fit its type.
        """
        matched, encoding = self.matched(), self.embedding.encoding
        self.histograms = encoding.histograms(self.name, matched, self._noise)
        self.transformer = encoding.transformer(self.name, matched, self.histograms)

    def build(self, settings: Settings, schedule: Schedule, streams: RandomStreams) -> None:
        """Encode the records, make the generator and draw the frequencies w_i."""
        super().build(settings, schedule, streams)
        embedding = self.embedding
        self.frequencies = random_frequencies(
            self.transformer.width_,
            embedding.n_features,
            embedding.bandwidths,
            streams.numpy_generators("frequencies")[0],
        ).to(streams.device, torch.float32)

    # -- the releases ----------------------------------------------------------------------------

    def noisy_histograms(self, step: int) -> NoisyHistograms:
        """Hand over the published histograms."""
        counts = [histogram.counts for histogram in self.histograms.values()]
        sizes = torch.tensor([len(column) for column in counts])
        return NoisyHistograms(
            self.name, SERVER, step, torch.from_numpy(np.concatenate(counts)), sizes
        )

    def independent_projections(self, step: int) -> IndependentProjections:
        """Project records drawn from the published histograms, every column on its own."""
        (rng,) = self.streams.numpy_generators("independent records")
        drawn = self.transformer.draw_independent(DRAWN_RECORDS, rng)
        projections = torch.from_numpy(drawn).to(self.frequencies.device) @ self.frequencies
        return IndependentProjections(self.name, SERVER, step, projections)

    def record_projections(self, step: int) -> RecordProjections:
        """Project every record, x_i @ W_i, once: the encoded records are dropped afterwards."""
        projections = self._records @ self.frequencies
        del self._records
        return RecordProjections(self.name, SERVER, step, projections)

    # -- learning from them ----------------------------------------------------------------------

    def fake_projections(self, step: int) -> FakeProjections:
        """Generate fakes and project them."""
        self._fakes = self.fake(step, "generator")
        projections = self._fakes.detach() @ self.frequencies
        self._pending = step, projections
        return FakeProjections(self.name, SERVER, step, projections)

    def update_generator(self, message: ProjectionGradients) -> None:
        """Descend the distance between the mean embeddings of fakes and of records."""
        if self._pending is None or message.step != self._pending[0]:
            raise ProtocolError(
                f"party {self.name!r} got gradients of step {message.step} that it did not ask for"
            )
        (step, projections), self._pending = self._pending, None
        if message.gradients.shape != projections.shape:
            raise ProtocolError(
                f"party {self.name!r} got gradients of shape {tuple(message.gradients.shape)}; "
                f"expected {tuple(projections.shape)}"
            )
        optimizer = self.generator_optimizer
        progress = min(1.0, step / self.embedding.n_steps)
        decay = 0.5 * (1.0 + math.cos(math.pi * progress))
        optimizer.learning_rate = self.settings.learning_rate * (
            FINAL_LEARNING_RATE + (1.0 - FINAL_LEARNING_RATE) * decay
        )
        upstream = message.gradients @ self.frequencies.mT
        optimizer.set_gradient(torch.autograd.grad(self._fakes, optimizer.parameters, upstream))
        optimizer.step()
        self.average_generator()

    def map_quantiles(self) -> None:
        """Let generated columns have the published marginals, once training is over."""
        generator = copy.deepcopy(self.published)
        generator.load_state_dict(self.selected)
        latent = self.schedule.evaluation_latent(0, DRAWN_RECORDS)
        rows = sample_encoded(generator, latent, self.streams, 0)[0]
        self.histograms = self.transformer.mapped_histograms(rows.cpu().numpy())
        self.transformer = TableTransformer.from_histograms(
            self.matched(), self.histograms, party=self.name
        )

    # -- messages --------------------------------------------------------------------------------

    def answer(self, verb: Verb, step: int) -> Message:
        """Compute the message that `verb` asks for at `step`."""
        match verb:
            case Verb.NOISY_HISTOGRAMS:
                return self.noisy_histograms(step)
            case Verb.INDEPENDENT_PROJECTIONS:
                return self.independent_projections(step)
            case Verb.RECORD_PROJECTIONS:
                return self.record_projections(step)
            case Verb.FAKE_PROJECTIONS:
                return self.fake_projections(step)
            case Verb.MASKED_REAL | Verb.MASKED_FAKE | Verb.REPORT:
                raise ProtocolError(
                    f"party {self.name!r} refuses {verb.value!r}: the privacy ledger has no entry "
                    "for it"
                )
            case _:
                return super().answer(verb, step)

    def take(self, verb: Verb, message: Message) -> None:
        """Act on a message from the server."""
        if verb is Verb.UPDATE_GENERATOR and isinstance(message, ProjectionGradients):
            self.update_generator(message)
        else:
            super().take(verb, message)
