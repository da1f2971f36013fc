"""A party whose generator the server trains, on two noisy releases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vflsynth._keys import Purpose
from vflsynth._random import RandomStreams, derive
from vflsynth.exceptions import ProtocolError
from vflsynth.learning.messages import SumShares
from vflsynth.learning.party import TrainableParty
from vflsynth.methods.gan.generator import sample_encoded
from vflsynth.methods.gan.settings import Settings
from vflsynth.methods.mean_embedding.embedding import project_records
from vflsynth.methods.mean_embedding.mechanism import MeanEmbeddingPlan
from vflsynth.methods.mean_embedding.messages import (
    GeneratorWeights,
    MaskedPoints,
    NoisyHistograms,
    WindowWidth,
)
from vflsynth.methods.mean_embedding.published import (
    DRAWN_RECORDS,
    frequencies_of,
    published_histograms,
)
from vflsynth.methods.mean_embedding.training import weights_from
from vflsynth.privacy.secure_sums import FeatureSum
from vflsynth.protocol import SERVER, Schedule, answers, takes
from vflsynth.protocol.messages import Presence
from vflsynth.secure import RotationParty, angles_of

_ROWS = 4096  # records that are encoded and projected at a time


class MeanEmbeddingParty(TrainableParty):
    """A party whose records are read twice, for two noisy releases, and not again.

    Parameters
    ----------
    name, frame, on
        See `Party`.

    Attributes
    ----------
    weights : dict of str to Tensor
        State of the generator that the server sent.

    Notes
    -----
    Source: DP-MERF (Harder, Adamczewski and Park 2021), here with several parties. Reads its
    records for the histograms and for its share of the joint features' sum, and adds noise to
    both. Everything else is post-processing.
    """

    weights: Mapping[str, Tensor]
    _rotations: RotationParty | None = None

    def build_for(
        self,
        embedding: MeanEmbeddingPlan,
        settings: Settings,
        schedule: Schedule,
        streams: RandomStreams,
    ) -> None:
        """Draw the frequencies w_i.

        Parameters
        ----------
        embedding : MeanEmbeddingPlan
        settings : Settings
        schedule : Schedule
            From the secret shared by the parties.
        streams : RandomStreams
            The party's own.
        """
        self.settings, self.schedule, self.streams = settings, schedule, streams
        seed = bytearray(derive(streams.secrets[0], "frequencies"))
        self._seed = torch.frombuffer(seed, dtype=torch.uint8)
        self.frequencies = frequencies_of(self._seed, self.transformer.width_, embedding)

    @answers(NoisyHistograms)
    def noisy_histograms(self, step: int) -> NoisyHistograms:
        """Hand over the published histograms."""
        return published_histograms(self.name, step, self.transformer, self._seed)

    def share(
        self,
        features: FeatureSum,
        names: Sequence[str],
        noise: torch.Generator | None,
        n_dummies: int = 0,
    ) -> None:
        """Prepare to share the sum of the joint records' features.

        Parameters
        ----------
        features : FeatureSum
        names : sequence of str
            All parties.
        noise : torch.Generator, optional
            For tests only; see `vflsynth.privacy.noise`.
        n_dummies : int, default=0
            Among the records that are masked.
        """
        self._features, self._names, self._noise = features, names, noise
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
            self.schedule.keys.key(Purpose.MASKS),
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

    # -- what is learned of them -----------------------------------------------------------------

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
            self.weights = weights_from(weights, self._generator)
        except ValueError as error:
            raise ProtocolError(
                f"the server sent party {self.name!r} a generator with {error}"
            ) from None

    def map_quantiles(self) -> None:
        """Let generated columns have the published marginals, once training is over."""
        self._generator.load_state_dict(dict(self.weights))
        latent = self.schedule.evaluation_latent(0, DRAWN_RECORDS)
        rows = sample_encoded(self._generator, latent, self.streams, 0)[0]
        self.transformer = self.transformer.mapped(rows.cpu().numpy())

    def state(self) -> dict[str, Tensor]:
        """Return nothing: the server has what is learned."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore nothing."""
