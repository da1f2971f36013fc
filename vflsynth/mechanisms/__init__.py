"""Mechanisms of differential privacy: values that plan noise and a ledger by public numbers.

Here is what a mechanism is, and those that serve several methods. One that serves a single method
is in that method's folder. Each has parameters, a calibration, and what pays for which message.
"""

from vflsynth.mechanisms.base import Asked, Cover, HistogramMechanism, Mechanism, Plan
from vflsynth.mechanisms.discriminators import Discriminators
from vflsynth.mechanisms.dpsgd import DPSGD, DPSGDPlan
from vflsynth.mechanisms.first_layer import FirstLayer, FirstLayerPlan

__all__ = [
    "DPSGD",
    "Asked",
    "Cover",
    "DPSGDPlan",
    "Discriminators",
    "FirstLayer",
    "FirstLayerPlan",
    "HistogramMechanism",
    "Mechanism",
    "Plan",
]
