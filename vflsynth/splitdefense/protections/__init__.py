"""Protections of a party's cut gradients, applied by the active party before it sends them."""

from vflsynth.splitdefense.protections.gradients import (
    PPDL,
    Context,
    DiscreteSGD,
    Draws,
    GradientCompression,
    Isotropic,
    MaxNorm,
    NoisyGradient,
    Protection,
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
