"""Objectives: what the active party minimises, and which clean cut gradients follow from it."""

from vflsynth.splitdefense.objectives.base import (
    Batch,
    CrossEntropy,
    Objective,
    Surroundings,
    Task,
)
from vflsynth.splitdefense.objectives.gafm import GAFM
from vflsynth.splitdefense.objectives.information import DIMIP, MID, DistanceCorrelation

__all__ = [
    "DIMIP",
    "GAFM",
    "MID",
    "Batch",
    "CrossEntropy",
    "DistanceCorrelation",
    "Objective",
    "Surroundings",
    "Task",
]
