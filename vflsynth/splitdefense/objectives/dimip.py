"""DIMIP: bottom outputs that tell little about labels, by an adversarial bound on information."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from vflsynth._validation import Choice, Number, Sizes
from vflsynth.registry import register
from vflsynth.splitdefense.objectives.base import (
    Batch,
    Objective,
    Surroundings,
    Task,
    descend,
    per_replica,
)
from vflsynth.splitdefense.objectives.cross_entropy import CrossEntropyTask


@register
@dataclass(repr=False, eq=False)
class DIMIP(Objective):
    """Cross-entropy, less what each passive party's features tell about the labels.

    Parameters
    ----------
    defense_weight : float, default=0.05
        λ in [0, 1]. 0 is plain split learning. .02 to .1 suits images with one predictor step; .1
        to .5 with five steps suits tables.
    predictor_steps : int, default=1
        Steps of the label predictors per training step.
    bound : {"vclub", "prior"}, default="vclub"
        "vclub" minimises the sampled vCLUB bound of the paper, which is unbounded below; "prior"
        the divergence of the predicted labels from the labels' shares, which is 0 at best (ours).
    regularizer : bool, default=True
        Whether L_R, the pull towards random labels, is part of "vclub".
    predictor_hidden : sequence of int, default=(64, 32)
        Hidden sizes of the label predictors g_ψ, one predictor per passive party.

    Notes
    -----
    Source: DIMIP Algorithm 1, Eqs. 8-11, for any number of passive parties.

    As the listing has it: predictors move before anything else; the active party's networks descend
    the unscaled task loss; passive parties get the gradient of (1 - λ) L_C + λ (L_A + L_R). L_A is
    taken at the predictors after their steps, so that it is the maximum over ψ that Eq. 10 asks
    for.
    """

    has_held_out_loss = True
    per_replica = frozenset({"defense_weight"})
    _rules: ClassVar = {
        "defense_weight": Number(0, 1),
        "predictor_steps": Number(1, whole=True),
        "bound": Choice(("vclub", "prior")),
        "regularizer": Choice((True, False)),
        "predictor_hidden": Sizes(at_least=0),
    }

    defense_weight: float = 0.05
    predictor_steps: int = 1
    bound: Literal["vclub", "prior"] = "vclub"
    regularizer: bool = True
    predictor_hidden: Sequence[int] = (64, 32)

    def make(self, members: Sequence[DIMIP], around: Surroundings) -> Task:
        """Build top model and label predictors."""
        return DIMIPTask(members, around)


class DIMIPTask(CrossEntropyTask):
    """Top model, and one label predictor g_ψ per passive party."""

    def __init__(self, members: Sequence[DIMIP], around: Surroundings) -> None:
        super().__init__(around)
        self.shared = members[0]
        self.weight = per_replica(members, lambda m: m.defense_weight, around.label_shares)
        for name in around.passive:
            dims = [around.settings.intermediate_dim, *self.shared.predictor_hidden]
            self.network(f"predictor of {name}", [*dims, around.n_classes])

    def gradients(self, batch: Batch) -> dict[str, Tensor]:
        """Run one iteration of Algorithm 1 at the active party."""
        for name in self.around.passive:  # lines 3-5
            self.update_predictor(name, batch.features[name].detach(), batch.labels)
        task = super().gradients(batch)  # lines 6-8
        random_labels = sample_labels(self.around.label_shares, batch)  # line 9
        clean = {}
        for name, gradient in task.items():  # line 11
            if name not in self.around.passive:
                clean[name] = gradient
                continue
            features = batch.features[name].detach().requires_grad_()
            information = self.information(name, features, batch.labels, random_labels)
            (away,) = torch.autograd.grad(information.sum(), features)
            clean[name] = (1.0 - self.weight) * gradient + self.weight * away
            self.means.add({f"information_{name}": information})
        return clean

    def update_predictor(self, name: str, features: Tensor, labels: Tensor) -> None:
        """Ascend L_A = E log q(y | h) (lines 4-5)."""
        predictor, optimizer = self.networks[f"predictor of {name}"]
        for _ in range(self.shared.predictor_steps):
            descend(-log_likelihood(predictor(features), labels), optimizer)

    def information(
        self, name: str, features: Tensor, labels: Tensor, random_labels: Tensor
    ) -> Tensor:
        """L_A + L_R, the sampled vCLUB bound, or the bounded variant; shape (replica,)."""
        logits = self.networks[f"predictor of {name}"][0](features)
        if self.shared.bound == "prior":
            prior = self.around.label_shares.clamp_min(1e-6).log().unsqueeze(1)
            predicted = logits.log_softmax(-1)
            divergence: Tensor = (predicted.exp() * (predicted - prior)).sum(-1)
            return divergence.mean(-1)
        bound = log_likelihood(logits, labels)
        if self.shared.regularizer:
            bound = bound - log_likelihood(logits, random_labels)
        return bound


def log_likelihood(logits: Tensor, labels: Tensor) -> Tensor:
    """E log q(y | h) per replica, shape (replica,)."""
    return -F.cross_entropy(logits.mT, labels, reduction="none").mean(-1)


def sample_labels(shares: Tensor, batch: Batch) -> Tensor:
    """Labels of random records out of all of them, int64, (replica, batch)."""
    uniform = batch.draws.uniform("dimip.labels", (batch.labels.shape[1],))
    return torch.searchsorted(shares.cumsum(-1)[:, :-1].contiguous(), uniform, right=True)
