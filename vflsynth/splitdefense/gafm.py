"""The GAFM classifier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Unpack

from vflsynth.registry import register
from vflsynth.splitdefense.base import BaseSplitClassifier
from vflsynth.splitdefense.objectives import GAFM, Objective
from vflsynth.splitdefense.protections import Protection
from vflsynth.splitdefense.settings import AS_PUBLISHED, Shared


@register
class GAFMClassifier(BaseSplitClassifier):
    """GAFM: cut gradients of an adversarial loss and of noisy labels, which partly cancel.

    Parameters
    ----------
    pseudo_label_margin, penalty_weight, gan_weight, label_noise_std, weight_clip
        See `GAFM`.
    discriminator_hidden : sequence of int, default=(64, 32, 16)
    protection : Protection, optional
        On top; the authors propose Marvell.
    **shared
        See `BaseSplitEstimator`. GAFM needs scalar bottom outputs in (0, 1) that are added, so the
        defaults are ``intermediate_dim=1``, ``bottom_output="sigmoid"``, ``fusion="mean"`` and
        ``top_hidden=(32, 16)``. Trains as published: 50 epochs,
        nothing held out, no weight decay, numbers as they are.

    Notes
    -----
    The generator learns which way up to rank from nothing but the distribution of its outputs, so
    its raw output ranks upside down for many seeds. The active party fits the probabilities' slope
    and intercept to the training labels, which `predict_proba` applies.
    """

    _defaults: ClassVar[Shared] = {
        "intermediate_dim": 1,
        "bottom_output": "sigmoid",
        "fusion": "mean",
        "top_hidden": (32, 16),
        **AS_PUBLISHED,
    }

    def __init__(
        self,
        *,
        pseudo_label_margin: float = 0.05,
        penalty_weight: float = 1.0,
        gan_weight: float = 1.0,
        label_noise_std: float = 0.01,
        weight_clip: float = 0.1,
        discriminator_hidden: Sequence[int] = (64, 32, 16),
        protection: Protection | None = None,
        **shared: Unpack[Shared],
    ) -> None:
        super().__init__(**(self._defaults | shared))
        self.pseudo_label_margin = pseudo_label_margin
        self.penalty_weight = penalty_weight
        self.gan_weight = gan_weight
        self.label_noise_std = label_noise_std
        self.weight_clip = weight_clip
        self.discriminator_hidden = discriminator_hidden
        self.protection = protection

    def make_objective(self) -> Objective:
        """Return what is minimised."""
        return GAFM(
            self.pseudo_label_margin,
            self.penalty_weight,
            self.gan_weight,
            self.label_noise_std,
            self.weight_clip,
            self.discriminator_hidden,
        )
