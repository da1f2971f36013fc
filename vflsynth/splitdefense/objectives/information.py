"""Cross-entropy, and bottom outputs that tell little: DIMIP, distance correlation, MID."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from vflsynth.registry import Choice, Number, Sizes, register
from vflsynth.splitdefense.objectives.base import (
    Batch,
    CrossEntropyTask,
    Objective,
    Surroundings,
    descend,
)


class DIMIPTask(CrossEntropyTask):
    """Top model, and one label predictor g_ψ per passive party."""

    def __init__(self, members: Sequence[DIMIP], around: Surroundings) -> None:
        super().__init__(members, around)
        self.shared = members[0]
        self.weight = self.of_members("defense_weight")
        for name in around.passive:
            dims = [around.settings.intermediate_dim, *self.shared.predictor_hidden]
            self.network(f"predictor of {name}", [*dims, around.n_classes])

    def gradients(self, batch: Batch) -> dict[str, Tensor]:
        """Run one iteration of Algorithm 1 at the active party."""
        for name in self.around.passive:  # lines 3-5
            self.update_predictor(name, batch.features[name].detach(), batch.labels)
        clean = super().gradients(batch)  # lines 6-8
        random_labels = sample_labels(self.around.label_shares, batch)  # line 9
        for name in self.around.passive:  # line 11
            features = batch.features[name].detach().requires_grad_()
            information = self.information(name, features, batch.labels, random_labels)
            (away,) = torch.autograd.grad(information.sum(), features)
            clean[name] = (1.0 - self.weight) * clean[name] + self.weight * away
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

    task = DIMIPTask


def log_likelihood(logits: Tensor, labels: Tensor) -> Tensor:
    """E log q(y | h) per replica, shape (replica,)."""
    return -F.cross_entropy(logits.mT, labels, reduction="none").mean(-1)


def sample_labels(shares: Tensor, batch: Batch) -> Tensor:
    """Labels of random records out of all of them, int64, (replica, batch)."""
    uniform = batch.draws.uniform("dimip.labels", (batch.labels.shape[1],))
    return torch.searchsorted(shares.cumsum(-1)[:, :-1].contiguous(), uniform, right=True)


_SMALL = 1e-12


class DistanceCorrelationTask(CrossEntropyTask):
    """A top model; the defence has no network."""

    def gradients(self, batch: Batch) -> dict[str, Tensor]:
        """Add the defence's gradient to that of the task, for passive parties."""
        clean, weight = super().gradients(batch), self.of_members("defense_weight")
        one_hot = F.one_hot(batch.labels, self.around.n_classes).float()
        for name in self.around.passive:
            features = batch.features[name].detach().requires_grad_()
            correlation = distance_correlation(features, one_hot)
            (away,) = torch.autograd.grad(correlation.clamp_min(_SMALL).log().sum(), features)
            clean[name] = clean[name] + weight * away
            self.means.add({f"distance_correlation_{name}": correlation})
        return clean


@register
@dataclass(repr=False, eq=False)
class DistanceCorrelation(Objective):
    """Make each passive party's features less dependent on the labels.

    Parameters
    ----------
    defense_weight : float, default=0.1
        Weight of the logarithm of the distance correlation, ≥ 0. 0 is plain split learning.

    Notes
    -----
    Source: Sun et al. 2022, "Label leakage and protection from forward embedding in vertical
    federated learning". Acts against leakage through the forward outputs, which no protection of
    gradients can. Takes memory for the batch's pairs of records: replica · batch² floats.
    """

    has_held_out_loss = True
    per_replica = frozenset({"defense_weight"})
    _rules: ClassVar = {"defense_weight": Number(0)}

    defense_weight: float = 0.1

    task = DistanceCorrelationTask


def distance_correlation(first: Tensor, second: Tensor) -> Tensor:
    """Distance correlation of two samples (replica, batch, feature), shape (replica,).

    Székely, Rizzo and Bakirov 2007, Definition 4; 0 if either sample is constant.
    """
    a, b = (_centred_distances(sample) for sample in (first, second))
    product = (a * b).mean((1, 2))
    scale = (a.square().mean((1, 2)) * b.square().mean((1, 2))).clamp_min(_SMALL**2).sqrt()
    return (product.clamp_min(0.0) / scale + _SMALL).sqrt()


def _centred_distances(sample: Tensor) -> Tensor:
    squares = sample.square().sum(-1, keepdim=True)
    distances = (squares + squares.mT - 2.0 * sample @ sample.mT).clamp_min(_SMALL).sqrt()
    return (
        distances
        - distances.mean(1, keepdim=True)
        - distances.mean(2, keepdim=True)
        + distances.mean((1, 2), keepdim=True)
    )


class MIDTask(CrossEntropyTask):
    """A top model behind the bottleneck."""

    def gradients(self, batch: Batch) -> dict[str, Tensor]:
        """Descend the loss at noisy outputs, and the price of the information in them."""
        noisy, prices = dict(batch.features), []
        weight = self.of_members("information_weight").view(-1)
        for name in self.around.passive:
            sent = batch.features[name]
            noisy[name] = sent + batch.draws.normal(f"mid.{name}", tuple(sent.shape[1:]))
            information = 0.5 * sent.square().sum(-1).mean(-1)
            prices.append(weight * information)
            self.means.add({f"information_{name}": information.detach()})
        return self.cut_gradients(batch, self.losses(replace(batch, features=noisy)), prices)


@register
@dataclass(repr=False, eq=False)
class MID(Objective):
    """Cross-entropy of noisy outputs, and a price on the information in them.

    Parameters
    ----------
    information_weight : float, default=0.1
        λ ≥ 0: price of a nat. 0 leaves the noise alone.

    Notes
    -----
    Source: Zou et al. 2023, "Mutual information regularization for vertical federated learning". A
    variational bottleneck (Alemi et al. 2017) between what a passive party sends, h, and what the
    top model sees, z = h + ε with ε from N(0, I): adds λ KL(N(h, I) ‖ N(0, I)) = λ‖h‖² / 2, an
    upper bound on what z tells of the party's columns, and so of the labels through them.

    Departs from it in that the variance is 1 rather than learned, which makes h itself the mean: no
    network is added, and predictions use h. The noise is the label holder's. It keeps gradients
    from telling labels message by message; a party that averages a whole training undoes that, as
    of all noise on gradients, and h itself crosses without noise, so columns are not protected.
    """

    has_held_out_loss = True
    per_replica = frozenset({"information_weight"})
    _rules: ClassVar = {"information_weight": Number(0)}

    information_weight: float = 0.1

    task = MIDTask
