"""A party whose generator the server trains, on two noisy releases.

`MeanEmbeddingParty` has the records; `MeanEmbeddingLearning` has what was published.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vflsynth._random import RandomStreams, derive
from vflsynth.exceptions import ProtocolError
from vflsynth.learning.messages import SumShares
from vflsynth.learning.party import Known, Learning, TrainableParty
from vflsynth.methods.gan.generator import sample_encoded
from vflsynth.methods.gan.sampler import GeneratorSampler
from vflsynth.methods.mean_embedding.embedding import project_records
from vflsynth.methods.mean_embedding.messages import (
    DRAWN_RECORDS,
    GeneratorWeights,
    MaskedPoints,
    NoisyHistograms,
    WindowWidth,
    published_histograms,
)
from vflsynth.methods.mean_embedding.training import weights_from
from vflsynth.models.samplers import RowSampler
from vflsynth.privacy.secure_sums import FeatureSum
from vflsynth.protocol import SERVER, answers, takes
from vflsynth.protocol.messages import Presence
from vflsynth.secure import RotationParty, angles_of

_ROWS = 4096  # records that are encoded and projected at a time


class MeanEmbeddingParty(TrainableParty):
    """A party that has records: they are read twice, for two noisy releases, and not again.

    For the histograms and for its share of the joint features' sum, and it adds noise to both.
    Everything else is post-processing.
    """

    _rotations: RotationParty | None = None

    def share(
        self,
        features: FeatureSum,
        frequencies: Tensor,
        names: Sequence[str],
        secret: bytes,
        noise: torch.Generator | None,
        n_dummies: int = 0,
    ) -> None:
        """Prepare to share the sum of the joint records' features, at public frequencies.

        `names` are all parties; `secret` is theirs, new in every attempt; `noise` is for tests
        only; `n_dummies` are among the records that are masked.
        """
        self._features, self._names, self._noise = features, names, noise
        self.frequencies, self._secret = frequencies, secret
        self._n_dummies = n_dummies

    @takes(WindowWidth)
    def take_width(self, message: WindowWidth) -> None:
        """Turn all records into angles, of which as many count as the server says.

        Whatever it says, the noise is in proportion to what a record adds at these.
        """
        planned, width = self._features.n_frequencies, message.width
        if self._rotations is not None or not 1 <= width <= planned:
            raise ProtocolError(
                f"the server lets records of party {self.name!r} count at {width} frequencies, or "
                f"said so twice; expected a number from 1 to {planned}, once"
            )
        self._features = replace(self._features, width=width)
        self._rotations = RotationParty(
            self.name,
            self._read(),
            self._names,
            self._secret,
            self._features.arithmetic,
            self._n_dummies,
            width,
        )

    @answers(MaskedPoints)
    def masked_points(self, step: int) -> MaskedPoints:
        """Mask a block's points and turns."""
        sent = self._sharing().mask(step)
        return MaskedPoints(self.name, SERVER, step, sent.points, sent.turns, sent.windows)

    @answers(SumShares)
    def sum_shares(self, step: int) -> SumShares:
        """Send the share of the sum, with noise at every frequency, once."""
        noise = self._features.grid.noise((self._features.n_features,), rng=self._noise)
        return SumShares(self.name, SERVER, step, self._sharing().shares(noise))

    def _sharing(self) -> RotationParty:
        if self._rotations is None:
            raise ProtocolError(
                f"party {self.name!r} was asked for its records before it was told at how "
                "many frequencies they count"
            )
        return self._rotations

    def _read(self) -> npt.NDArray[np.uint16]:
        """Turn all records into angles, shape (record, frequency)."""
        matched = self.matched()
        parts = [np.zeros((0, self.frequencies.shape[1]), np.uint16)]
        for start in range(0, len(matched), _ROWS):
            encoded = self.transformer.transform(matched.iloc[start : start + _ROWS])
            parts.append(angles_of(project_records(torch.tensor(encoded), self.frequencies)))
        return np.concatenate(parts)

    def state(self) -> dict[str, Tensor]:
        """Return nothing: the server has what is learned."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore nothing."""


class MeanEmbeddingLearning(Learning):
    """A party that has published histograms, and whose generator the server trains.

    Source: DP-MERF (Harder, Adamczewski and Park 2021), here with several parties.
    """

    _weights: Mapping[str, Tensor]

    def __init__(self, known: Known) -> None:
        super().__init__(known)
        self.settings, self.streams, self._shared = known.settings, known.streams, known.shared

    @answers(NoisyHistograms)
    def noisy_histograms(self, step: int) -> NoisyHistograms:
        """Hand over the published histograms."""
        seed = seed_of_frequencies(self.streams)
        return published_histograms(self.name, step, self.transformer, seed)

    @answers(Presence)
    def presence(self, step: int) -> Presence:
        """Say nothing: the server trains."""
        return Presence(self.name, SERVER, step)

    @takes(GeneratorWeights)
    def take_generator(self, message: GeneratorWeights) -> None:
        """Take the party's generator."""
        self._generator = self.settings.generator.build(self.transformer.spans_, self.streams)
        try:
            weights = message.weights.to(self.streams.device)
            self._weights = weights_from(weights, self._generator)
        except ValueError as error:
            raise ProtocolError(
                f"the server sent party {self.name!r} a generator with {error}"
            ) from None

    def samplers(self) -> Sequence[RowSampler]:
        """Return the generator that the server sent; its columns get the published marginals."""
        self._generator.load_state_dict(dict(self._weights))
        latent_dim = self.settings.latent_dim
        latent = self._shared.normal("marginals", 0, (DRAWN_RECORDS, latent_dim))
        rows = sample_encoded(self._generator, latent, self.streams, 0)[0]
        spans, spec = self.transformer.spans_, self.settings.generator
        self.transformer = self.transformer.mapped(rows.cpu().numpy())
        return GeneratorSampler.of_replicas(spec, spans, self._weights)


def seed_of_frequencies(streams: RandomStreams) -> Tensor:
    """Return what a party's frequencies are drawn of, from its own streams; it is published."""
    return torch.frombuffer(bytearray(derive(streams.secrets[0], "frequencies")), dtype=torch.uint8)
