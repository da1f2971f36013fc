"""The active party: labels, the top model, how it answers, and the steps that it leads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vflsynth._random import HiddenStreams, Purpose, repeatable
from vflsynth.learning.base import Algorithm, RunningMeans, labelled, section
from vflsynth.learning.messages import check_cut
from vflsynth.protocol.channel import SERVER, Channel
from vflsynth.protocol.messages import IntermediateFeatures, SelectionNotice
from vflsynth.protocol.schedule import Schedule
from vflsynth.splitdefense.leakage.monitor import LeakageRecord
from vflsynth.splitdefense.messages import (
    AllBottomOutputs,
    BottomGradients,
    BottomOutputs,
    HeldOutOutputs,
)
from vflsynth.splitdefense.objectives.base import Batch, Task
from vflsynth.splitdefense.passive import SplitParty
from vflsynth.splitdefense.protections.gradients import Context, Draws, Protection
from vflsynth.splitdefense.settings import HoldingOut, KeptWeights, n_records
from vflsynth.splitdefense.targets import Classes

Rows = npt.NDArray[np.int64] | slice
"""Positions of a classifier's training records among those that its parties share."""


@dataclass(eq=False)
class SplitLearning(Algorithm):
    """Outputs of bottom models forward, (protected) cut gradients back, by the active party.

    It owns labels and top model, and a bottom model of its own if it has columns.

    `labels`, (replica, record), are the int64 classes trained on. `truth`, (record,), are the true
    ones, with which only leakage is measured. `weights`, (replica, record), say what each record
    counts. Each of `protections` comes with the replicas, int64 (member,), that it is for.
    `party_dropout` has, per party, the probability (replica,) that it is left out of a step.
    `records` is empty if leakage is not watched. `notes` are what protections say about themselves;
    NaN for replicas without such a protection.
    """

    channel: Channel
    schedule: Schedule
    task: Task
    own: SplitParty | None
    labels: Tensor
    truth: Tensor
    target: Classes
    weights: Tensor | None
    patience: int | None
    protections: Sequence[tuple[Protection, Tensor]]
    party_dropout: Mapping[str, Tensor]
    records: Mapping[str, LeakageRecord]

    def __post_init__(self) -> None:
        around = self.task.around
        self.settings, self.streams, self.passive = around.settings, around.streams, around.passive
        # A step that is taken again after a break sends what it sent.
        keys = [repeatable(secret).key(Purpose.GRADIENTS) for secret in self.streams.secrets]
        self._hiding = HiddenStreams(keys)
        self._memories: dict[str, dict[str, Tensor]] = {}
        self.notes = RunningMeans()
        self.outputs: dict[str, Tensor] = {}
        self.kept: dict[str, KeptWeights] = {}
        if self.settings.n_held_out > 0 and self.patience is not None:
            networks = self.task.networks.items()
            self.kept = {name: KeptWeights(optimizer) for name, (_, optimizer) in networks}
        n, device = len(self.labels), self.labels.device
        self.best = torch.full((n,), torch.inf, device=device)
        self.waited = torch.zeros(n, dtype=torch.int64, device=device)

    # -- a training step -------------------------------------------------------------------------

    def step(self, step: int) -> None:
        """Do one step of the top model and of all bottom models."""
        rows = self.schedule.rows(step)
        labels = self.labels.gather(1, rows)
        found = self._features(BottomOutputs, step, rows.shape[1])
        features = {name: own.detach().requires_grad_() for name, own in found.items()}
        draws = self._draws(step)
        weights = None if self.weights is None else self.weights.gather(1, rows)
        present, drawn = self._present(step), n_records(self.schedule, step)
        batch = Batch(features, labels, present, draws, weights, drawn)

        clean = self.task.gradients(batch)
        if self.own is not None:
            name = self.own.name
            self.own.update_bottom_model(BottomGradients(SERVER, name, step, clean[name]))
        sent = self._protect({name: clean[name] for name in self.passive}, labels, draws)
        for name, record in self.records.items():
            record.add(step, rows, features[name].detach(), clean[name], sent[name])
        self.channel.scatter(
            {name: BottomGradients(SERVER, name, step, sent[name]) for name in self.passive}
        )

    def _gather(self, kind: type[IntermediateFeatures], step: int) -> dict[str, Any]:
        """Ask all parties, and the own bottom model, for features."""
        received: dict[str, Any] = {**self.channel.gather(kind, step)}
        if self.own is not None:
            received[self.own.name] = self.own.answer(kind, step)
        return received

    def _features(
        self, kind: type[IntermediateFeatures], step: int, n_rows: int
    ) -> dict[str, Tensor]:
        """Get the features of all parties, in fusion order."""
        received = self._gather(kind, step)
        for name, message in received.items():
            check_cut(name, message, (len(self.labels), n_rows, self.settings.intermediate_dim))
        return {name: received[name].features for name in self.task.around.parties}

    def _draws(self, step: int) -> Draws:
        return Draws(self._hiding, step, device=self.streams.device)

    def _present(self, step: int) -> dict[str, Tensor]:
        """Party-wise dropout (DIMIP §4.1): whole batches, zeros, no rescaling."""
        drawn = self.streams.uniform
        return {
            name: (drawn(f"dropout.{name}", step, (1, 1)) >= probability.view(-1, 1, 1)).float()
            for name, probability in self.party_dropout.items()
        }

    # -- when to stop ----------------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        """Whether no replica's loss on held-out records has fallen for as long as it may wait."""
        return self.patience is not None and bool((self.waited >= self.patience).all())

    def report(self, epoch: int) -> dict[str, Tensor]:
        """Mean losses since the last report by name, each of shape (replica,)."""
        losses = self.task.means.pop()
        if self.kept:
            losses["held_out_loss"] = self._judge(epoch)
        return losses

    @torch.no_grad()
    def _judge(self, epoch: int) -> Tensor:
        """Look at the records that are in no batch, and let all keep what is better than ever.

        Returns the loss (replica,) on the held-out labels as they are trained on, under label
        privacy on the responses. A replica that waited long enough keeps what it has, however long
        others go on.
        """
        assert isinstance(self.schedule, HoldingOut)
        assert self.patience is not None
        rows = self.schedule.held_out
        features = self._features(HeldOutOutputs, epoch, rows.shape[1])
        weights = None if self.weights is None else self.weights.gather(1, rows)
        batch = Batch(features, self.labels.gather(1, rows), {}, self._draws(epoch), weights)
        loss = self.task.held_out_loss(batch)
        going_on = self.waited < self.patience
        self._better = better = (loss < self.best) & going_on
        self.best = torch.where(better, loss, self.best)
        self.waited = torch.where(better, 0, self.waited + going_on)
        for kept in self.kept.values():
            kept.keep(better)
        if self.own is not None:
            self.own.keep(SelectionNotice(SERVER, self.own.name, epoch, better))
        self.tell(lambda name: SelectionNotice(SERVER, name, epoch, better))
        return loss

    def end_epoch(self, epoch: int, *, evaluate: bool) -> dict[str, Any]:
        """Return what protections say about themselves, and whether the epoch was kept."""
        kept = {"kept": self._better} if self.kept else super().end_epoch(epoch, evaluate=evaluate)
        return kept | self.notes.pop()

    def end(self, epoch: int) -> None:
        """Collect the outputs for all training records, which calibration and audit need.

        All networks become those of the best epoch, if records say which that is.
        """
        for kept in self.kept.values():
            kept.restore()
        received = self._gather(AllBottomOutputs, epoch)
        self.outputs = {name: message.features for name, message in received.items()}

    # -- protection ------------------------------------------------------------------------------

    @torch.no_grad()
    def _protect(self, clean: dict[str, Tensor], labels: Tensor, draws: Draws) -> dict[str, Tensor]:
        if not self.protections or not clean:
            return clean
        # Parties whose outputs are added receive the same gradient. Two draws of noise on it would
        # let them average the noise away, so they get the same draw.
        shared = self.settings.fusion != "concat"
        return {
            name: self._protect_one(
                name, gradients, labels, draws.within("shared" if shared else name)
            )
            for name, gradients in clean.items()
        }

    def _protect_one(self, name: str, gradients: Tensor, labels: Tensor, draws: Draws) -> Tensor:
        sent = gradients.clone()
        logs: dict[str, Tensor] = {}
        for i, (protection, members) in enumerate(self.protections):
            context = Context(
                labels[members],
                self.target.n_classes,
                replace(draws, members=members),
                self._memories.setdefault(f"{name}/{i}", {}),
            )
            sent[members] = protection.protect(gradients[members], context)
            for key, value in context.log.items():
                log = logs.setdefault(f"{key}_{name}", torch.full((len(labels),), torch.nan))
                log[members.cpu()] = value.float()
        self.notes.add(logs)
        return sent

    # -- state -----------------------------------------------------------------------------------

    def _responses(self) -> dict[str, Tensor]:
        around = self.task.around
        labels = {"labels": self.labels, "shares": around.label_shares}
        return {} if around.channel is None else labels

    def state(self) -> dict[str, Tensor]:
        """Return everything that a resumed run needs; other responses would tell more of labels."""
        state = labelled("task", self.task.state()) | labelled("responses", self._responses())
        for name, memory in self._memories.items():
            state |= labelled(f"memory/{name}", memory)
        for name, record in self.records.items():
            state |= labelled(f"leakage/{name}", record.state())
        if self.kept:
            state |= {"best": self.best, "waited": self.waited}
            state |= labelled("kept", {name: kept.flat for name, kept in self.kept.items()})
        return state

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore `state`."""
        self.task.load_state(section(state, "task"))
        for name, own in self._responses().items():
            own.copy_(state[f"responses/{name}"])
        for name in self.passive:
            for i in range(len(self.protections)):
                self._memories[f"{name}/{i}"] = section(state, f"memory/{name}/{i}")
        for name, record in self.records.items():
            record.load_state(section(state, f"leakage/{name}"))
        if self.kept:
            self.best, self.waited = state["best"], state["waited"]
        for name, kept in self.kept.items():
            kept.flat = state[f"kept/{name}"].clone()
