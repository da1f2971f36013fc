"""Split-learning classifiers, protections of their labels, and the audit that judges these.

Several parties hold columns, one of them holds labels. A protection may act in three places and no
others: on the labels once before training (`RandomizedResponse`), on the objective (`GAFM`,
`DIMIP`, `MID`, `DistanceCorrelation`), and on each party's cut gradient before it is sent
(`Marvell` and others).
"""

from vflsynth.splitdefense.classifiers import (
    CutShiftClassifier,
    DIMIPClassifier,
    MarvellClassifier,
    SplitNNClassifier,
)
from vflsynth.splitdefense.estimator import BaseSplitClassifier
from vflsynth.splitdefense.gafm import GAFMClassifier
from vflsynth.splitdefense.inputs import AlignedFrames, aligned
from vflsynth.splitdefense.label_privacy import RandomizedResponse
from vflsynth.splitdefense.leakage.base import LeakageAttack
from vflsynth.splitdefense.leakage.columns import Inversion, column_attacks
from vflsynth.splitdefense.leakage.labels import Ranking
from vflsynth.splitdefense.leakage.monitor import Evidence, LeakageMonitor
from vflsynth.splitdefense.leakage.report import LeakageReport, leakage_report
from vflsynth.splitdefense.objectives.base import CrossEntropy, Objective
from vflsynth.splitdefense.objectives.gafm import GAFM
from vflsynth.splitdefense.objectives.information import DIMIP, MID, DistanceCorrelation
from vflsynth.splitdefense.passive import MaliciousSGD
from vflsynth.splitdefense.protections.gradients import (
    PPDL,
    DiscreteSGD,
    GradientCompression,
    Isotropic,
    MaxNorm,
    NoisyGradient,
    Protection,
)
from vflsynth.splitdefense.protections.marvell import Marvell

__all__ = [
    "DIMIP",
    "GAFM",
    "MID",
    "PPDL",
    "AlignedFrames",
    "BaseSplitClassifier",
    "CrossEntropy",
    "CutShiftClassifier",
    "DIMIPClassifier",
    "DiscreteSGD",
    "DistanceCorrelation",
    "Evidence",
    "GAFMClassifier",
    "GradientCompression",
    "Inversion",
    "Isotropic",
    "LeakageAttack",
    "LeakageMonitor",
    "LeakageReport",
    "MaliciousSGD",
    "Marvell",
    "MarvellClassifier",
    "MaxNorm",
    "NoisyGradient",
    "Objective",
    "Protection",
    "RandomizedResponse",
    "Ranking",
    "SplitNNClassifier",
    "aligned",
    "column_attacks",
    "leakage_report",
]
