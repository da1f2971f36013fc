"""A server that judges generators without seeing a record: model selection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from vflsynth._moments import frechet_distance_of_moments
from vflsynth._random import RandomStreams
from vflsynth.exceptions import ProtocolError, TrainingDivergedError
from vflsynth.learning.masked import moments
from vflsynth.learning.messages import MaskedRecords
from vflsynth.learning.training import RunningLosses
from vflsynth.methods.gan.resampling import RowFeatures, RowScorer, learn_to_tell
from vflsynth.methods.gan.settings import Settings
from vflsynth.protocol import SERVER


class GANServer:
    """Computes the Fréchet distance from masked records; subclasses add what they train.

    Streams are the server's own; never the parties' shared secret.
    """

    def __init__(self, settings: Settings, streams: RandomStreams) -> None:
        self.settings, self.streams = settings, streams
        self.losses = RunningLosses()
        self._real_moments: tuple[Tensor, Tensor] | None = None

    def state(self) -> dict[str, Tensor]:
        """Everything that a resumed run needs."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore `state`."""

    def learn_real_moments(self, received: Mapping[str, MaskedRecords]) -> None:
        """Keep mean and covariance of the real records for `frechet_distance`."""
        self._real_moments = moments(received)

    def frechet_distance(self, received: Mapping[str, MaskedRecords]) -> Tensor:
        """Compute the Fréchet distance (Eq. 23) of real and fake encoded records, (replica,).

        Raises TrainingDivergedError if a generator's records are no longer finite.
        """
        if self._real_moments is None:
            raise ProtocolError("the server has not received the masked real records")
        mean, covariance = moments(received)
        if not bool(torch.isfinite(covariance).all()):
            raise TrainingDivergedError("training diverged: generated records are not finite")
        return frechet_distance_of_moments(*self._real_moments, mean, covariance)

    def learn_to_tell(self, blocks: Sequence[Mapping[str, RowFeatures]]) -> dict[str, RowScorer]:
        """Train a classifier of drawn rows, of which nothing is kept, on all blocks of features."""
        received = {
            name: (
                torch.cat([block[name].real for block in blocks], 1),
                torch.cat([block[name].fake for block in blocks], 1),
            )
            for name in blocks[0]
        }
        found = learn_to_tell(received, self.streams.child("resampling"))
        return {name: RowScorer(SERVER, name, 0, *weights) for name, weights in found.items()}
