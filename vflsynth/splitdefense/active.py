"""The active party: labels, the top model, and what it does to a reply before it is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from vflsynth._random import RandomStreams
from vflsynth.exceptions import PayloadRejectedError
from vflsynth.methods.settings import RunningMeans, labelled, section
from vflsynth.protocol import SERVER, Schedule
from vflsynth.protocol.messages import BottomGradients, BottomOutputs
from vflsynth.splitdefense.inputs import Labels
from vflsynth.splitdefense.leakage.monitor import LeakageRecord
from vflsynth.splitdefense.objectives import Batch, Task
from vflsynth.splitdefense.passive import SplitParty
from vflsynth.splitdefense.protections import Context, Draws, Protection
from vflsynth.splitdefense.settings import SplitSettings


class ActiveParty:
    """Owns labels and top model; answers features with (protected) cut gradients.

    Parameters
    ----------
    settings : SplitSettings
    schedule : Schedule
        Shared with the passive parties.
    streams : RandomStreams
        Its own: no passive party can redraw the noise.
    task : Task
        The objective at work.
    own : SplitParty or None
        Its own columns, if it has any.
    labels : Tensor of int64, shape (replica, record)
        As trained on.
    truth : Tensor of int64, shape (record,)
        True classes; only leakage is measured with them.
    classes : ndarray, shape (class,)
        What users call them.
    protections : sequence of (Protection, Tensor)
        With the replicas, int64 (member,), that each is for.
    joint_protection : bool
        Protect what all passive parties receive as one gradient.
    party_dropout : mapping of str to Tensor
        Probability per replica, (replica,), that a passive party is left out of a step.
    records : mapping of str to LeakageRecord
        By passive party; empty if leakage is not watched.

    Attributes
    ----------
    notes : RunningMeans
        What protections say about themselves; NaN for replicas without such a protection.
    """

    def __init__(
        self,
        settings: SplitSettings,
        schedule: Schedule,
        streams: RandomStreams,
        task: Task,
        *,
        own: SplitParty | None,
        labels: Tensor,
        truth: Tensor,
        classes: Labels,
        protections: Sequence[tuple[Protection, Tensor]],
        joint_protection: bool,
        party_dropout: Mapping[str, Tensor],
        records: Mapping[str, LeakageRecord],
    ) -> None:
        self.settings, self.schedule, self.streams, self.task = settings, schedule, streams, task
        self.own, self.labels, self.truth, self.classes = own, labels, truth, classes
        self.protections, self.joint_protection = protections, joint_protection
        self.party_dropout, self.records = party_dropout, records
        self.passive = task.around.passive
        self._memories: dict[str, dict[str, Tensor]] = {}
        self.notes = RunningMeans()

    # -- a training step -------------------------------------------------------------------------

    def reply(self, step: int, received: Mapping[str, BottomOutputs]) -> dict[str, BottomGradients]:
        """Do one step of the top model and of the own bottom model; return what is sent back."""
        rows = self.schedule.rows(step)
        labels = self.labels.gather(1, rows)
        features = self._collect(step, received)
        draws = Draws(self.streams, step)
        batch = Batch(features, labels, self._present(draws), draws)

        clean = self.task.gradients(batch)
        if self.own is not None:
            name = self.own.name
            self.own.update_bottom_model(BottomGradients(SERVER, name, step, clean[name]))
        sent = self._protect({name: clean[name] for name in self.passive}, labels, draws)
        for name, record in self.records.items():
            record.add(step, rows, features[name].detach(), clean[name], sent[name])
        return {name: BottomGradients(SERVER, name, step, sent[name]) for name in self.passive}

    def _collect(self, step: int, received: Mapping[str, BottomOutputs]) -> dict[str, Tensor]:
        """Features of all parties in fusion order, ready to be differentiated with respect to."""
        shape = (len(self.labels), self.schedule.batch_size, self.settings.intermediate_dim)
        features = {}
        for name in self.task.around.parties:
            own = self.own if self.own is not None and name == self.own.name else None
            found = (received[name] if own is None else own.bottom_outputs(step)).features
            if tuple(found.shape) != shape:
                raise PayloadRejectedError(
                    f"sent intermediate features of shape {tuple(found.shape)}; expected {shape}",
                    fix="give all parties the same settings and version of vflsynth",
                    party=name,
                    step=step,
                )
            features[name] = found.detach().requires_grad_()
        return features

    def _present(self, draws: Draws) -> dict[str, Tensor]:
        """Party-wise dropout (DIMIP §4.1): whole batches, zeros, no rescaling."""
        return {
            name: (draws.uniform(f"dropout.{name}", (1, 1)) >= probability.view(-1, 1, 1)).float()
            for name, probability in self.party_dropout.items()
        }

    # -- protection ------------------------------------------------------------------------------

    @torch.no_grad()
    def _protect(self, clean: dict[str, Tensor], labels: Tensor, draws: Draws) -> dict[str, Tensor]:
        if not self.protections or not clean:
            return clean
        if self.joint_protection:
            joined = self._protect_one("all", torch.cat(list(clean.values()), -1), labels, draws)
            return dict(zip(clean, torch.split(joined, self.settings.intermediate_dim, -1)))
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
                len(self.classes),
                Draws(draws.streams, draws.step, members, draws.prefix),
                self._memories.setdefault(f"{name}/{i}", {}),
            )
            sent[members] = protection.protect(gradients[members], context)
            for key, value in context.log.items():
                log = logs.setdefault(f"{key}_{name}", torch.full((len(labels),), torch.nan))
                log[members.cpu()] = value.float()
        self.notes.add(logs)
        return sent

    # -- state -----------------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        """Return everything that a resumed run needs."""
        state = labelled("task", self.task.state())
        for name, memory in self._memories.items():
            state |= labelled(f"memory/{name}", memory)
        for name, record in self.records.items():
            state |= labelled(f"leakage/{name}", record.state())
        return state

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore `state`."""
        self.task.load_state(section(state, "task"))
        for name in ["all"] if self.joint_protection else self.passive:
            for i in range(len(self.protections)):
                self._memories[f"{name}/{i}"] = section(state, f"memory/{name}/{i}")
        for name, record in self.records.items():
            record.load_state(section(state, f"leakage/{name}"))
