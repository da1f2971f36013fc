"""What the training of every GAN over party frames has in common, from the coordinator's chair."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from vflsynth.parties import GANServer
from vflsynth.protocol import Channel, MaskedRecords, SelectionNotice, TrainingReport
from vflsynth.protocol.channel import Verb
from vflsynth.protocol.messages import SERVER
from vflsynth.training.algorithm import Algorithm


class GANAlgorithm(Algorithm):
    """Steps, reports and model selection; subclasses say what a step is.

    Parameters
    ----------
    channel : Channel
        Reaches the parties.
    server : GANServer
    discriminator_steps : int
        T_d: discriminator steps per generator step.
    model_selection : {"best", "last"}
        Keep the generators of the evaluation with the lowest Fréchet distance, or those of the last
        epoch.
    """

    advice = "Lower learning_rate or raise gradient_penalty_weight"

    def __init__(
        self,
        channel: Channel,
        server: GANServer,
        *,
        discriminator_steps: int,
        model_selection: Literal["best", "last"],
    ) -> None:
        super().__init__(channel)
        self.server = server
        self.discriminator_steps = discriminator_steps
        self.model_selection = model_selection
        replicas = len(server.streams.secrets)
        self.best_distance = torch.full((replicas,), torch.inf, dtype=torch.float64)

    @property
    def device(self) -> torch.device:
        """Where the server computes."""
        return self.server.streams.device

    def begin(self) -> None:
        """Let the server learn the real moments that model selection compares with."""
        if self.model_selection == "best":
            self.server.learn_real_moments(self.channel.gather(Verb.MASKED_REAL, 0, MaskedRecords))

    def report(self, epoch: int) -> dict[str, Tensor]:
        """Gather mean losses since the last report by name, each of shape (replica,)."""
        values = {}
        for name, message in self.channel.gather(Verb.REPORT, epoch, TrainingReport).items():
            values[f"wasserstein_{name}"] = message.wasserstein
            values[f"penalty_{name}"] = message.penalty
        return values

    def end_epoch(self, epoch: int, *, evaluate: bool) -> dict[str, Any]:
        """Fréchet distance, if it is due, and whether this epoch's generators are to be kept."""
        if self.model_selection == "last":
            return {"kept": True}
        if not evaluate:
            return {"kept": False}
        distance, best = self.evaluate(epoch)
        return {"frechet_distance": distance, "kept": best}

    def evaluate(self, epoch: int) -> tuple[Tensor, Tensor]:
        """Compute the Fréchet distance of the published generators, and compare it with the best.

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

    def end(self, epoch: int) -> None:
        """Keep the last generators where none were: no selection, or no evaluation was reached."""
        nothing_selected = ~torch.isfinite(self.best_distance)
        if nothing_selected.any():
            self.select(epoch, nothing_selected)

    def select(self, epoch: int, keep: Tensor) -> None:
        """Tell the parties which replicas' generators to keep, a bool of shape (replica,)."""
        keep = keep.to(self.device)
        self.channel.scatter(
            Verb.SELECT,
            {name: SelectionNotice(SERVER, name, epoch, keep) for name in self.channel.names},
        )

    def state(self) -> dict[str, Tensor]:
        """Return the server's state and the best distance so far."""
        return self.server.state() | {"best_distance": self.best_distance}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore `state`."""
        self.best_distance = state["best_distance"].cpu()
        self.server.load_state({k: v for k, v in state.items() if k != "best_distance"})

    def fingerprint(self) -> dict[str, Any]:
        """Schedule and selection."""
        return {
            "discriminator_steps": self.discriminator_steps,
            "model_selection": self.model_selection,
        }
