"""VFLGAN with DP-SGD on all discriminators, from the coordinator's chair."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from vflsynth.parties import DPSGDServer
from vflsynth.protocol import SampledFeatures
from vflsynth.protocol.channel import Verb
from vflsynth.training.vflgan import VFLGAN


class DPSGD(VFLGAN):
    """Algorithm 1 of VFLGAN with Poisson batches of real records.

    Notes
    -----
    In place of the Wasserstein estimate reports hold its half that is computed from fakes, their
    mean score. The other half would be one more release, and so would a penalty at records.
    """

    server: DPSGDServer

    def update_discriminators(self, step: int) -> None:
        """Train D_1..D_M and D_s."""
        features = self.channel.gather(Verb.DISCRIMINATOR_FEATURES, step, SampledFeatures)
        cut_gradients = self.server.update_on_sample(step, features)
        self.channel.scatter(Verb.UPDATE_DISCRIMINATOR, cut_gradients)

    def report(self, epoch: int) -> dict[str, Tensor]:
        """Gather mean losses since the last report by name, each of shape (replica,)."""
        at_records = self.server.descent.settings.penalty_at_records
        return released_losses(super().report(epoch), penalties=not at_records)


def released_losses(losses: Mapping[str, Tensor], *, penalties: bool) -> dict[str, Tensor]:
    """Name what a private report holds, and leave penalties out where they are not public."""
    return {
        name.replace("wasserstein_", "fake_score_"): value
        for name, value in losses.items()
        if penalties or not name.startswith("penalty_")
    }
