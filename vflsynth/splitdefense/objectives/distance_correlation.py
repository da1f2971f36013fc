"""Cross-entropy and the distance correlation of bottom outputs with labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from vflsynth._validation import Number
from vflsynth.registry import register
from vflsynth.splitdefense.objectives.base import (
    Batch,
    Objective,
    Surroundings,
    Task,
    per_replica,
)
from vflsynth.splitdefense.objectives.cross_entropy import CrossEntropyTask

_SMALL = 1e-12


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

    def make(self, members: Sequence[DistanceCorrelation], around: Surroundings) -> Task:
        """Build the top model."""
        return DistanceCorrelationTask(members, around)


class DistanceCorrelationTask(CrossEntropyTask):
    """A top model; the defence has no network."""

    def __init__(self, members: Sequence[DistanceCorrelation], around: Surroundings) -> None:
        super().__init__(around)
        self.weight = per_replica(members, lambda m: m.defense_weight, around.label_shares)

    def gradients(self, batch: Batch) -> dict[str, Tensor]:
        """Add the defence's gradient to that of the task, for passive parties."""
        clean = super().gradients(batch)
        one_hot = F.one_hot(batch.labels, self.around.n_classes).float()
        for name in self.around.passive:
            features = batch.features[name].detach().requires_grad_()
            correlation = distance_correlation(features, one_hot)
            (away,) = torch.autograd.grad(correlation.clamp_min(_SMALL).log().sum(), features)
            clean[name] = clean[name] + self.weight * away
            self.means.add({f"distance_correlation_{name}": correlation})
        return clean


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
