"""What protects labels in one classifier, and the parameters that every classifier has."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Literal, TypedDict

from vflsynth._random import RandomState
from vflsynth.columns import TableTransformer
from vflsynth.registry import register
from vflsynth.splitdefense.label_privacy import RandomizedResponse
from vflsynth.splitdefense.leakage.monitor import LeakageMonitor
from vflsynth.splitdefense.malicious import MaliciousSGD
from vflsynth.splitdefense.objectives import Objective
from vflsynth.splitdefense.parts import Part
from vflsynth.splitdefense.protections import Protection
from vflsynth.splitdefense.settings import Fusion


class Shared(TypedDict, total=False):
    """Parameters that every split classifier has, see `BaseSplitClassifier`."""

    party_columns: Mapping[str, Sequence[Hashable]] | None
    active: str | None
    bottom_hidden: Sequence[int]
    intermediate_dim: int
    bottom_output: Literal["linear", "sigmoid"]
    fusion: Fusion
    top_hidden: Sequence[int]
    label_privacy: RandomizedResponse | None
    joint_protection: bool
    party_dropout: float | Mapping[str, float]
    absent: Literal["zero", "multihead"]
    malicious: Mapping[str, MaliciousSGD] | None
    monitor: LeakageMonitor | bool
    epochs: int
    batch_size: int
    learning_rate: float
    betas: tuple[float, float]
    transformer: TableTransformer | None
    device: str
    random_state: RandomState
    verbose: int


@register
class Defense(Part):
    """All that protects labels in one classifier.

    Parameters
    ----------
    objective, protection, label_privacy, joint_protection, party_dropout, absent
        See `BaseSplitClassifier`.
    """

    def __init__(
        self,
        objective: Objective,
        protection: Protection | None = None,
        label_privacy: RandomizedResponse | None = None,
        joint_protection: bool = False,
        party_dropout: float | Mapping[str, float] = 0.0,
        absent: Literal["zero", "multihead"] = "zero",
    ) -> None:
        self.objective = objective
        self.protection = protection
        self.label_privacy = label_privacy
        self.joint_protection = joint_protection
        self.party_dropout = party_dropout
        self.absent = absent
