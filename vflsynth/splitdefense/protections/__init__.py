"""Protections of a party's cut gradients, applied by the active party before it sends them."""

from vflsynth.splitdefense.protections.base import Chain, Context, Draws, Protection
from vflsynth.splitdefense.protections.compression import (
    PPDL,
    DiscreteSGD,
    GradientCompression,
)
from vflsynth.splitdefense.protections.marvell import Marvell
from vflsynth.splitdefense.protections.noise import Isotropic, MaxNorm, NoisyGradient

__all__ = [
    "PPDL",
    "Chain",
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
