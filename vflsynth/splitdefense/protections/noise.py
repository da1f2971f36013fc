"""Protections that add noise without looking at labels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from vflsynth._validation import Choice, Number
from vflsynth.registry import register
from vflsynth.splitdefense.protections.base import (
    Context,
    Protection,
    check_finite,
    root_mean_square,
    row_norms,
)


@register
@dataclass(repr=False, eq=False)
class Isotropic(Protection):
    """Gaussian noise of the same variance in every direction.

    Parameters
    ----------
    power_scale : float, default=25.0
        Expected squared norm of the noise, in units of the batch's largest squared gradient norm.

    Notes
    -----
    Source: Marvell §4 ("iso"), whose t is `power_scale`; its code's ``ratio`` is the square root.
    """

    _rules: ClassVar = {"power_scale": Number(0)}

    power_scale: float = 25.0

    def protect(self, gradients: Tensor, context: Context) -> Tensor:
        """Add N(0, t max‖g‖² / d · I)."""
        check_finite(gradients)
        largest = row_norms(gradients).amax(1, keepdim=True)
        noise = context.draws.normal("isotropic", tuple(gradients.shape[1:]))
        return gradients + noise * (largest * math.sqrt(self.power_scale / gradients.shape[-1]))


@register
class MaxNorm(Protection):
    """Noise along each gradient that gives all the expected norm of the largest one.

    Notes
    -----
    Source: Marvell §4.1 ("max_norm"). Hides the norm on average, and leaves the direction as it is.
    Our figure for its norm leak is far below that of GAFM's table 1, which is what gradients give
    *before* the noise; see ``benchmarks/split_defences.py``.
    """

    def protect(self, gradients: Tensor, context: Context) -> Tensor:
        """Multiply g by ``1 + ξ sqrt(max‖g‖²/‖g‖² - 1)``."""
        check_finite(gradients)
        squares = gradients.square().sum(-1, keepdim=True)
        largest = squares.amax(1, keepdim=True)
        # A zero gradient has no direction to put noise on, and stays zero.
        spread = (largest / squares.clamp_min(1e-38) - 1.0).clamp_min(0.0).sqrt()
        noise = context.draws.normal("max_norm", (gradients.shape[1], 1))
        return gradients * (1.0 + noise * spread * (squares > 0))


@register
@dataclass(repr=False, eq=False)
class NoisyGradient(Protection):
    """Independent noise on every entry.

    Parameters
    ----------
    scale : float, default=1.0
        Scale of the noise (Laplace's b, or a standard deviation) in units of the root mean square
        of the batch's gradient entries.
    distribution : {"laplace", "gaussian"}, default="laplace"

    Notes
    -----
    Source: the baseline "NG" of DIMIP §5.1, after Fu et al. 2022; theirs is in absolute units.
    """

    _rules: ClassVar = {"scale": Number(0), "distribution": Choice(("laplace", "gaussian"))}

    scale: float = 1.0
    distribution: Literal["laplace", "gaussian"] = "laplace"

    def protect(self, gradients: Tensor, context: Context) -> Tensor:
        """Add the noise."""
        check_finite(gradients)
        draw = context.draws.laplace if self.distribution == "laplace" else context.draws.normal
        noise = draw("noisy_gradient", tuple(gradients.shape[1:]))
        return gradients + noise * (self.scale * root_mean_square(gradients))
