"""Label differential privacy: labels are randomised once, before anything is trained."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from vflsynth._random import derive, hidden_uniform
from vflsynth.privacy import LedgerEntry, PrivacyLedger
from vflsynth.privacy.events import LabelRelease
from vflsynth.registry import Number, register
from vflsynth.splitdefense.settings import Part

_SMALLEST_SHARE = 1e-3
_ANY_DELTA = 1e-12  # a ledger has one; ε holds with none

ACTIVE = "the active party"


@register
@dataclass(repr=False, eq=False)
class RandomizedResponse(Part):
    """Keep each label with probability ``e^ε / (e^ε + C - 1)``, else draw another class.

    Parameters
    ----------
    epsilon : float, default=2.0
        ε of label differential privacy, at most 30: doubles round larger ones to no change at all.
        At least 1e-6: networks' floats round smaller ones to nothing that could be learned.

    Notes
    -----
    Source: Warner 1965; as label privacy, Ghazi et al. 2021. Everything that the passive parties
    see in training is computed from the randomised labels, which are drawn once per record. So
    what they see, for any number of epochs, is ε-differentially private with respect to each single
    label: the unit is one label, the relation is its replacement by another, the release is one
    training. No attack can tell a label with higher accuracy than the mechanism keeps it plus what
    the columns tell anyway.

    Which classes there are is taken to be public.

    Networks learn the classes *through* the response: the loss is that of the probabilities that
    the response makes of theirs ("forward correction", Patrini et al. 2017), so that they estimate
    probabilities of the true classes. When to stop is decided by the same loss on responses that
    are held out. Both are computed from the responses alone, and spend nothing.

    It does not protect columns. Responses are drawn from the operating system, whatever
    ``random_state`` is: every training is a release of its own, and epsilons add up. One that goes
    on from a checkpoint has the responses that it had.
    """

    _rules: ClassVar = {"epsilon": Number(1e-6, 30)}

    epsilon: float = 2.0

    def keep_probability(self, n_classes: int) -> float:
        """Return the probability that a label is what it was."""
        return 1.0 / (1.0 + (n_classes - 1) * math.exp(-self.epsilon))

    def transform(self, labels: Tensor, n_classes: int, key: bytes | None = None) -> Tensor:
        """Randomise labels, int64 of shape (record,).

        A `key` is for tests only, as whoever has it can undo the responses; by default it is of the
        operating system.
        """
        key = os.urandom(32) if key is None else key
        draws = [hidden_uniform(derive(key, of), (len(labels),)) for of in ("keep", "other")]
        keep, other = (torch.tensor(drawn, device=labels.device) for drawn in draws)
        shift = 1 + (other * (n_classes - 1)).long()
        kept = keep < self.keep_probability(n_classes)
        return torch.where(kept, labels, (labels + shift) % n_classes)

    def ledger(self) -> PrivacyLedger:
        """Return what one training releases of the labels."""
        release = LabelRelease("randomised labels of all records", ACTIVE, self.epsilon)
        return PrivacyLedger(
            mechanism="randomised response (label differential privacy)",
            claim=(
                "ε bounds what everything computed from the randomised labels, all messages to "
                "passive parties and all networks included, reveals about one label besides what "
                "the columns tell anyway."
            ),
            covers_synthetic_data=True,  # there are none
            delta=_ANY_DELTA,
            entries=(LedgerEntry("labels", release),),
            protected_against=("passive parties and recipients of the networks",),
            not_protected_against=("the active party, which has the labels",),
            not_covered=("columns", "which individuals the parties have in common"),
            public=("which classes there are",),
            noise="drawn from the operating system's cryptographic generator",
        )

    def shares(self, n_classes: int) -> tuple[float, float]:
        """Probabilities that a label stays, and that it becomes one other class in particular."""
        keep = self.keep_probability(n_classes)
        return keep, (1.0 - keep) / (n_classes - 1)


@dataclass(frozen=True)
class LabelChannel:
    """What randomised responses do to probabilities of classes, replica by replica.

    `log_change`, (replica, 1), is the logarithm of the probability that a label becomes one other
    class in particular; `log_gain` of how much more probable it is that it stays.
    """

    log_change: Tensor
    log_gain: Tensor

    @classmethod
    def of(
        cls, privacies: Sequence[RandomizedResponse | None], n_classes: int, device: torch.device
    ) -> Self:
        """Make the channel of one replica per entry; None leaves labels as they are."""
        shares = [(1.0, 0.0) if p is None else p.shares(n_classes) for p in privacies]
        keep, change = torch.tensor(shares, device=device).T.unsqueeze(-1)
        return cls(change.log(), (keep - change).log())

    def replica(self, index: int) -> LabelChannel:
        """Return the channel of one replica."""
        one = slice(index, index + 1)
        return LabelChannel(self.log_change[one], self.log_gain[one])

    def start_from(self, shares: Tensor, biases: Tensor) -> Tensor:
        """Return `biases` of a last layer, (replica, 1, output), that start from classes' shares.

        `shares`, (replica, class), are those of the responses; the response's matrix is undone.
        Replicas whose labels are not randomised keep their biases. With much noise, few steps are
        taken before the loss on held-out responses rises: they should not be spent on shares.
        """
        estimated = (shares - self.log_change.exp()) / self.log_gain.exp()
        logs = estimated.clamp_min(_SMALLEST_SHARE).log()
        logs = logs[:, 1:] - logs[:, :1] if biases.shape[-1] == 1 else logs
        randomised = self.log_change.isfinite().unsqueeze(-1)
        return torch.where(randomised, logs.unsqueeze(1), biases)

    def log_probability(self, log_probability: Tensor) -> Tensor:
        """Turn log-probabilities of classes, (replica, record), into those of their responses.

        Returns ``log(change + (keep - change) p)``.
        """
        return torch.logaddexp(self.log_change, self.log_gain + log_probability)
