"""VertiGAN and WGAN-GP with noisy gradients, from the coordinator's chair."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from vflsynth.parties import VertiGANServer
from vflsynth.protocol import Channel
from vflsynth.training.dpsgd import released_losses
from vflsynth.training.vertigan import VertiGAN


class PrivateVertiGAN(VertiGAN):
    """VertiGAN whose last generators are kept, with reports that hold what was paid for.

    Parameters
    ----------
    channel : Channel
        Reaches the parties, or the one holder of the joined table, which makes it WGAN-GP.
    server : VertiGANServer
    discriminator_steps : int
    reports : {"nothing", "fake scores", "fake scores and penalties"}
        What is a function of released parameters: nothing of unreleased discriminators (GS-WGAN),
        no penalty if it is taken at records.
    """

    def __init__(
        self,
        channel: Channel,
        server: VertiGANServer,
        *,
        discriminator_steps: int,
        reports: Literal["nothing", "fake scores", "fake scores and penalties"],
    ) -> None:
        super().__init__(
            channel, server, discriminator_steps=discriminator_steps, model_selection="last"
        )
        self.reports = reports

    def report(self, epoch: int) -> dict[str, Tensor]:
        """Gather mean losses since the last report by name, each of shape (replica,)."""
        if self.reports == "nothing":
            return {}
        penalties = self.reports == "fake scores and penalties"
        return released_losses(super().report(epoch), penalties=penalties)
