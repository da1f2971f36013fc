"""What the training of every GAN over party frames has in common, from the coordinator's chair."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor

from vflsynth.parties import GANServer
from vflsynth.protocol import Channel, MaskedRecords, SelectionNotice, TrainingReport
from vflsynth.protocol.channel import Verb
from vflsynth.protocol.messages import SERVER


class GANAlgorithm(ABC):
    """Steps, reports and model selection; subclasses say what a step is.

    Parameters
    ----------
    channel : Channel
        Reaches the parties.
    server : GANServer
    discriminator_steps : int
        T_d: discriminator steps per generator step.
    model_selection : {"best", "last"}
        Keep the generators of the evaluation with the lowest Fréchet distance, or of the last epoch.
    """

    def __init__(
        self,
        channel: Channel,
        server: GANServer,
        *,
        discriminator_steps: int,
        model_selection: Literal["best", "last"],
    ) -> None:
        self.channel, self.server = channel, server
        self.discriminator_steps = discriminator_steps
        self.model_selection = model_selection
        replicas = len(server.streams.secrets)
        self.best_distance = torch.full((replicas,), torch.inf, dtype=torch.float64)

    @abstractmethod
    def step(self, step: int) -> None:
        """One discriminator step, and after every T_d of them a generator step."""

    def begin(self) -> None:
        """Let the server learn the real moments that model selection compares with."""
        if self.model_selection == "best":
            self.server.learn_real_moments(self.channel.gather(Verb.MASKED_REAL, 0, MaskedRecords))

    def report(self, epoch: int) -> dict[str, Tensor]:
        """Mean losses since the last report by name, each of shape (replica,)."""
        values = {}
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

    def select(self, epoch: int, keep: Tensor) -> None:
        """Tell the parties which replicas' generators to keep, a bool of shape (replica,)."""
        keep = keep.to(self.server.streams.device)
        self.channel.scatter(
            Verb.SELECT,
            {name: SelectionNotice(SERVER, name, epoch, keep) for name in self.channel.names},
        )
