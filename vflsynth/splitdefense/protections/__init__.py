"""Protections of a party's cut gradients, applied by the active party before it sends them."""

from vflsynth.splitdefense.protections.base import Context, Draws, Protection
from vflsynth.splitdefense.protections.baselines import (
    PPDL,
    DiscreteSGD,
    GradientCompression,
    Isotropic,
    MaxNorm,
    NoisyGradient,
)
from vflsynth.splitdefense.protections.marvell import Marvell

__all__ = [
    "PPDL",
    "Context",
    "DiscreteSGD",
    "Draws",
    "GradientCompression",
    "Isotropic",
    "Marvell",
    "MaxNorm",
    "NoisyGradient",
    "Protection",
]
