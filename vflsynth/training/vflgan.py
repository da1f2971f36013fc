"""Algorithm 1 of VFLGAN, from the coordinator's chair."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from vflsynth.parties import VFLGANServer
from vflsynth.protocol import (
    Channel,
    IntermediateFeatures,
    MaskedRecords,
    SelectionNotice,
    TrainingReport,
)
from vflsynth.protocol.channel import Verb
from vflsynth.protocol.messages import SERVER


class VFLGAN:
    """What happens in a training step and at an evaluation, without a word about how.

    Parameters
    ----------
    channel : Channel
        Reaches the parties.
    server : VFLGANServer
    discriminator_steps : int
        T_d: discriminator steps per generator step.
    model_selection : {"best", "last"}
        Keep the generators of the evaluation with the lowest Fréchet distance, or of the last epoch.

    Notes
    -----
    Source: VFLGAN Algorithm 1. The reference code updates the generators after the first of every five
    discriminator steps, the listing after the last; this follows the listing. Both use the latents
    of that step.
    """

    def __init__(
        self,
        channel: Channel,
        server: VFLGANServer,
        *,
        discriminator_steps: int,
        model_selection: Literal["best", "last"],
    ) -> None:
        self.channel, self.server = channel, server
        self.discriminator_steps = discriminator_steps
        self.model_selection = model_selection
        replicas = len(server.streams.secrets)
        self.best_distance = torch.full((replicas,), torch.inf, dtype=torch.float64)

    def begin(self) -> None:
        """Let the server learn the real moments that model selection compares with."""
        if self.model_selection == "best":
            self.server.learn_real_moments(self.channel.gather(Verb.MASKED_REAL, 0, MaskedRecords))

    def step(self, step: int) -> None:
        """One discriminator step, and after every T_d of them a generator step."""
        self.update_discriminators(step)
        if (step + 1) % self.discriminator_steps == 0:
            self.update_generators(step)

    def update_discriminators(self, step: int) -> None:
        """Lines of Algorithm 1 that train D_1..D_M and D_s."""
        features = self.channel.gather(Verb.DISCRIMINATOR_FEATURES, step, IntermediateFeatures)
        cut_gradients = self.server.update_discriminator(step, features)
        self.channel.scatter(Verb.UPDATE_DISCRIMINATOR, cut_gradients)

    def update_generators(self, step: int) -> None:
        """Lines of Algorithm 1 that train G_1..G_M."""
        features = self.channel.gather(Verb.GENERATOR_FEATURES, step, IntermediateFeatures)
        cut_gradients = self.server.score_fakes(step, features)
        self.channel.scatter(Verb.UPDATE_GENERATOR, cut_gradients)

    def report(self, epoch: int) -> dict[str, Tensor]:
        """Mean losses since the last report by name, each of shape (replica,)."""
        wasserstein, penalty = self.server.losses.pop()
        values = {"wasserstein_shared": wasserstein, "penalty_shared": penalty}
        for name, message in self.channel.gather(Verb.REPORT, epoch, TrainingReport).items():
            values[f"wasserstein_{name}"] = message.wasserstein
            values[f"penalty_{name}"] = message.penalty
        return values

    def evaluate(self, epoch: int) -> tuple[Tensor, Tensor]:
        """Fréchet distance of the published generators, and whether it is the best so far.

        Returns
        -------
        distance : Tensor of float64, shape (replica,)
        best : Tensor of bool, shape (replica,)
        """
        received = self.channel.gather(Verb.MASKED_FAKE, epoch, MaskedRecords)
        distance = self.server.frechet_distance(received).cpu()
        best = distance < self.best_distance
        self.best_distance = torch.minimum(self.best_distance, distance)
        if best.any():
            self.select(epoch, best)
        return distance, best

    def select(self, epoch: int, keep: Tensor | None = None) -> None:
        """Tell the parties which replicas' generators to keep; all of them by default."""
        device = self.server.streams.device
        keep = torch.ones_like(self.best_distance, dtype=torch.bool) if keep is None else keep
        self.channel.scatter(
            Verb.SELECT,
            {
                name: SelectionNotice(SERVER, name, epoch, keep.to(device))
                for name in self.server.feature_dims
            },
        )
