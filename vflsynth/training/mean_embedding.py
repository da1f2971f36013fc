"""Learning from a noisy kernel mean embedding, from the coordinator's chair."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from vflsynth.parties import MeanEmbeddingServer
from vflsynth.protocol import (
    Channel,
    FakeProjections,
    IndependentProjections,
    NoisyHistograms,
    RecordProjections,
    SelectionNotice,
)
from vflsynth.protocol.channel import Verb
from vflsynth.protocol.messages import SERVER
from vflsynth.training.algorithm import Algorithm


class MeanEmbedding(Algorithm):
    """Two releases, an estimate made of both, then one exchange per step that reads no record.

    Parameters
    ----------
    channel : Channel
        Reaches the parties.
    server : MeanEmbeddingServer

    Notes
    -----
    Source: DP-MERF (Harder, Adamczewski and Park 2021), with the parties' generators in place of
    one, and with `vflsynth.privacy.shrinkage`. The last (averaged) generators are kept: choosing
    among epochs by the records would not be private.
    """

    def __init__(self, channel: Channel, server: MeanEmbeddingServer) -> None:
        super().__init__(channel)
        self.server = server

    @property
    def device(self) -> torch.device:
        """Where the server computes."""
        return self.server.device

    def begin(self) -> None:
        """Release: the only time that records are read. A resumed run has the release."""
        if self.server.released is not None:
            return
        histograms = self.channel.gather(Verb.NOISY_HISTOGRAMS, 0, NoisyHistograms)
        independent = self.channel.gather(Verb.INDEPENDENT_PROJECTIONS, 0, IndependentProjections)
        projections = self.channel.gather(Verb.RECORD_PROJECTIONS, 0, RecordProjections)
        self.server.publish(histograms, independent, projections)

    def step(self, step: int) -> None:
        """Compare fakes with the release."""
        fakes = self.channel.gather(Verb.FAKE_PROJECTIONS, step, FakeProjections)
        self.channel.scatter(Verb.UPDATE_GENERATOR, self.server.score_fakes(step, fakes))

    def report(self, epoch: int) -> dict[str, Tensor]:
        """Mean squared distance to the release since the last report."""
        return {"squared_distance": self.server.pop_loss()}

    def end(self, epoch: int) -> None:
        """Keep the last generators."""
        keep = torch.ones(1, dtype=torch.bool, device=self.device)
        self.channel.scatter(
            Verb.SELECT,
            {name: SelectionNotice(SERVER, name, epoch, keep) for name in self.channel.names},
        )

    def state(self) -> dict[str, Tensor]:
        """Return the release."""
        return self.server.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore `state`."""
        self.server.load_state(state)
