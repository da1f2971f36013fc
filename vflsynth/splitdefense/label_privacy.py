"""Label differential privacy: labels are randomised once, before anything is trained."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vflsynth._random import RandomStreams
from vflsynth._validation import Number
from vflsynth.registry import register
from vflsynth.splitdefense.parts import Part


@register
class RandomizedResponse(Part):
    """Keep each label with probability ``e^ε / (e^ε + C - 1)``, else draw another class.

    Parameters
    ----------
    epsilon : float, default=2.0
        ε of label differential privacy.

    Notes
    -----
    Source: Warner 1965; as label privacy, Ghazi et al. 2021. Everything that the passive parties
    see in training is computed from the randomised labels, which are drawn once per record. So
    what they see, for any number of epochs, is ε-differentially private with respect to each single
    label: the unit is one label, the relation is its replacement by another, the release is one
    training. No attack can tell a label with higher accuracy than the mechanism keeps it plus what
    the columns tell anyway.

    Which classes there are is taken to be public.

    It does not protect columns. A training with other draws is a release of its own, and epsilons
    add up; one with the same ``random_state`` draws the same responses. The guarantee takes that
    state to be unknown to those it protects against: a number such as 0 can be guessed, None draws
    it from the operating system.
    """

    _rules: ClassVar = {"epsilon": Number(0, closed=(False, True))}

    def __init__(self, epsilon: float = 2.0) -> None:
        self.epsilon = epsilon

    def keep_probability(self, n_classes: int) -> float:
        """Return the probability that a label is what it was."""
        return 1.0 / (1.0 + (n_classes - 1) * math.exp(-self.epsilon))

    def transform(self, labels: Tensor, n_classes: int, streams: RandomStreams) -> Tensor:
        """Randomise.

        Parameters
        ----------
        labels : Tensor of int64, shape (record,)
        n_classes : int
        streams : RandomStreams
            The active party's own.

        Returns
        -------
        Tensor of int64, shape (replica, record)
        """
        n = len(labels)
        keep = streams.uniform("label_privacy.keep", 0, (n,)) < self.keep_probability(n_classes)
        other = streams.uniform("label_privacy.other", 0, (n,)) * (n_classes - 1)
        shift = 1 + other.long().clamp_max(n_classes - 2)
        return torch.where(keep, labels, (labels + shift) % n_classes)

    def debias(self, probabilities: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Turn probabilities of randomised labels into those of the labels, (record, class)."""
        n_classes = probabilities.shape[1]
        keep = self.keep_probability(n_classes)
        change = (1.0 - keep) / (n_classes - 1)
        debiased = np.clip((probabilities - change) / (keep - change), 0.0, 1.0)
        total: npt.NDArray[np.float64] = debiased / debiased.sum(1, keepdims=True)
        return total
