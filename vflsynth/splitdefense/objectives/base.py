"""What an objective is, and the plain one: cross-entropy.

It trains the active party's networks and returns clean cut gradients.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from vflsynth._random import RandomStreams
from vflsynth.codec import to_json
from vflsynth.learning.base import RunningMeans, load_network_state, network_state
from vflsynth.networks.layers import FlatAdam
from vflsynth.registry import register
from vflsynth.splitdefense.label_privacy import LabelChannel
from vflsynth.splitdefense.protections.gradients import Draws
from vflsynth.splitdefense.settings import Part, Perceptron, SplitSettings


@dataclass(frozen=True)
class Surroundings:
    """What a task is built from.

    `parties` are all that contribute features, in the order in which they are fused, `passive`
    those that are not the active party, `heads` groups that get a head of their own besides the
    group of all. `label_shares`, (replica, class), are of the labels that are trained on.
    `streams` are the active party's own, for initial weights; `channel` is what labels went through
    before training.
    """

    settings: SplitSettings
    parties: tuple[str, ...]
    passive: tuple[str, ...]
    n_classes: int
    label_shares: Tensor
    heads: tuple[tuple[str, ...], ...]
    streams: RandomStreams
    channel: LabelChannel | None = None


@dataclass
class Batch:
    """One training step's input.

    `features` were received, (replica, batch, intermediate), to be differentiated with respect to.
    `labels`, (replica, batch), are int64 classes as trained on. `present` is 1 or 0,
    (replica, 1, 1), for parties that may be dropped out. `weights`, (replica, batch), say what each
    record counts, 1 on average; by default all the same. `n_records` counts the rows that are
    records, where further ones fill a Poisson sample up.
    """

    features: dict[str, Tensor]
    labels: Tensor
    present: dict[str, Tensor]
    draws: Draws
    weights: Tensor | None = None
    n_records: int | None = None

    def if_present(self, name: str, values: Tensor) -> Tensor:
        """Return values of a party, zero where it is dropped out."""
        return values * self.present[name] if name in self.present else values

    def contributions(self, parties: Sequence[str]) -> list[Tensor]:
        """Features with those of dropped-out parties set to zero."""
        return [self.if_present(name, self.features[name]) for name in parties]


class Task(ABC):
    """An objective at work: the active party's networks for R replicas.

    `members` are the replicas' objectives, `networks` each network with its optimiser by name,
    `means` the losses for the history.
    """

    calibrated = True
    """Whether the top model's outputs are log-odds fitted to labels."""

    def __init__(self, members: Sequence[Any], around: Surroundings) -> None:
        self.members, self.around = members, around
        self.networks: dict[str, tuple[Perceptron, FlatAdam]] = {}
        self.means = RunningMeans()

    @property
    def heads(self) -> dict[str, tuple[str, ...]]:
        """Names of the networks that predict, and whose features each takes."""
        extra = {"top of " + " ".join(group): group for group in self.around.heads}
        return {"top": self.around.parties} | extra

    @abstractmethod
    def gradients(self, batch: Batch) -> dict[str, Tensor]:
        """Do one step of the active party's networks; return clean cut gradients by party."""

    def held_out_loss(self, batch: Batch) -> Tensor:
        """Loss on held-out records, (replica,); see `Objective.has_held_out_loss`."""
        raise NotImplementedError

    def of_members(self, name: str) -> Tensor:
        """Return a parameter of every replica, (replica, 1, 1)."""
        values = [float(getattr(member, name)) for member in self.members]
        return self.around.label_shares.new_tensor(values).view(-1, 1, 1)

    def network(self, name: str, dims: Sequence[int], **options: Any) -> Perceptron:
        """Make a network of the active party, with its optimiser."""
        module = Perceptron(dims, streams=self.around.streams, name=name, **options)
        self.networks[name] = module, self.around.settings.optimizer(module)
        return module

    def state(self) -> dict[str, Tensor]:
        """Return everything that a resumed run needs."""
        state: dict[str, Tensor] = {}
        for name, (module, optimizer) in self.networks.items():
            state |= network_state(name, module, optimizer)
        return state

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore `state`."""
        for name, (module, optimizer) in self.networks.items():
            load_network_state(state, name, module, optimizer)


class Objective(Part):
    """Parameters of what is minimised."""

    task: ClassVar[type[Task]]
    """What trains the networks, by these parameters."""

    binary_only = False
    has_held_out_loss = False
    """Whether a loss on held-out records says when to stop, and records can be weighted."""

    per_replica: ClassVar[frozenset[str]] = frozenset()
    """Parameters that may differ between classifiers trained at once."""

    def structure(self) -> dict[str, Any]:
        """Return what must be the same for classifiers trained at once."""
        content: dict[str, Any] = to_json(self)
        parameters = content["parameters"]
        own = {name: value for name, value in parameters.items() if name not in self.per_replica}
        return content | {"parameters": own}

    def check_architecture(self, settings: SplitSettings) -> None:
        """Refuse settings that the objective is not defined for (ParameterError)."""


def cross_entropy(
    logits: Tensor,
    labels: Tensor,
    channel: LabelChannel | None = None,
    weights: Tensor | None = None,
) -> Tensor:
    """Mean cross-entropy per replica, shape (replica,); see `record_losses`.

    With a `channel` the logits are those of the true classes, and `labels` what the channel made of
    these: the loss is minus the logarithm of what the channel makes of the probabilities. Weights,
    1 on average, have shape (replica, batch).
    """
    loss = record_losses(logits, labels)
    if channel is not None:
        loss = -channel.log_probability(-loss)
    return (loss if weights is None else loss * weights).mean(-1)


def record_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of every record, shape (replica, batch), by logits (replica, batch, output).

    One output is the logit of class 1 of two.
    """
    if logits.shape[-1] > 1:
        return F.cross_entropy(logits.mT, labels, reduction="none")
    return F.binary_cross_entropy_with_logits(
        logits.squeeze(-1), labels.to(logits.dtype), reduction="none"
    )


def descend(loss: Tensor, *optimizers: FlatAdam, at: Iterable[Tensor] = ()) -> list[Tensor]:
    """One step of each optimiser down the sum of a loss; return its gradients at other tensors."""
    groups: list[Sequence[Tensor]] = [list(at), *(o.parameters for o in optimizers)]
    found = iter(torch.autograd.grad(loss.sum(), [tensor for group in groups for tensor in group]))
    others, *own = [list(islice(found, len(group))) for group in groups]
    for optimizer, gradients in zip(optimizers, own):
        optimizer.set_gradient(gradients)
        optimizer.step()
    return others


class CrossEntropyTask(Task):
    """A top model over all parties' features, and one per group of parties that has its own head.

    All heads are trained at once on the sum of their losses ("multi-head training" of DIMIP §5.1,
    which does not say whether the bottom models learn from all heads; here they do).
    """

    def __init__(self, members: Sequence[Any], around: Surroundings) -> None:
        super().__init__(members, around)
        settings = around.settings
        n_outputs = 1 if around.n_classes == 2 else around.n_classes  # one logit for two classes
        for name, parties in self.heads.items():
            fused = settings.intermediate_dim * (len(parties) if settings.fusion == "concat" else 1)
            dims = [fused, *settings.top_hidden, n_outputs]
            bias: Any = self.network(name, dims).linears[-1].bias  # (replica, 1, output)
            if around.channel is not None:
                with torch.no_grad():
                    bias.copy_(around.channel.start_from(around.label_shares, bias))

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Loss of every head, each of shape (replica,)."""
        losses = {}
        for name, parties in self.heads.items():
            fused = self.around.settings.fuse(batch.contributions(parties))
            logits = self.networks[name][0](fused)
            losses[name] = cross_entropy(logits, batch.labels, self.around.channel, batch.weights)
        return losses

    def held_out_loss(self, batch: Batch) -> Tensor:
        """Loss of the head of all parties."""
        return self.losses(batch)["top"]

    def gradients(self, batch: Batch) -> dict[str, Tensor]:
        """Descend the loss by one step of the top model; return its cut gradients."""
        return self.cut_gradients(batch, self.losses(batch))

    def cut_gradients(
        self, batch: Batch, losses: dict[str, Tensor], prices: Sequence[Tensor] = ()
    ) -> dict[str, Tensor]:
        """Descend the sum of losses, of heads by name, and of further prices of the features."""
        self.means.add({"loss": losses["top"]})
        optimizers = [self.networks[name][1] for name in losses]
        total = torch.stack([*losses.values(), *prices])
        return dict(zip(batch.features, descend(total, *optimizers, at=batch.features.values())))


@register
class CrossEntropy(Objective):
    """Cross-entropy of the top model's outputs, and nothing that protects."""

    task = CrossEntropyTask
    has_held_out_loss = True
