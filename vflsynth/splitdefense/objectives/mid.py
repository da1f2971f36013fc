"""MID: a variational bottleneck at the cut, so that outputs pay for what they tell of labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from vflsynth._validation import Number
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

    def make(self, members: Sequence[MID], around: Surroundings) -> Task:
        """Build the top model."""
        return MIDTask(members, around)


class MIDTask(CrossEntropyTask):
    """A top model behind the bottleneck."""

    def __init__(self, members: Sequence[MID], around: Surroundings) -> None:
        super().__init__(around)
        self.weight = per_replica(members, lambda m: m.information_weight, around.label_shares)

    def gradients(self, batch: Batch) -> dict[str, Tensor]:
        """Descend the loss at noisy outputs, and the price of the information in them."""
        noisy, prices = dict(batch.features), []
        for name in self.around.passive:
            sent = batch.features[name]
            noisy[name] = sent + batch.draws.normal(f"mid.{name}", tuple(sent.shape[1:]))
            information = 0.5 * sent.square().sum(-1).mean(-1)
            prices.append(self.weight.view(-1) * information)
            self.means.add({f"information_{name}": information.detach()})
        losses = self.losses(
            Batch(noisy, batch.labels, batch.present, batch.draws, batch.weights, batch.n_records)
        )
        self.means.add({"loss": losses["top"]})
        total = torch.stack([*losses.values(), *prices]).sum(0)
        optimizers = [self.networks[name][1] for name in losses]
        return dict(zip(batch.features, descend(total, *optimizers, at=batch.features.values())))
