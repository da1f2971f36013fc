"""The adversary: what is computed, how it is learned from shadows, how surely it beats guessing.

Audits of synthetic data and reports on label leakage share it. Nothing in here knows what is
attacked.
"""

from vflsynth.adversary.learners import (
    Adversary,
    LikelihoodRatio,
    RandomForest,
    RegularisedLogistic,
    default_adversaries,
)
from vflsynth.adversary.statistics import (
    Correlation,
    Density,
    Extremes,
    Histogram,
    Naive,
    Neighbourhood,
    Statistic,
)
from vflsynth.adversary.targeted import NearestValues, SharedValues, TargetedQueries

DEFAULT_STATISTICS: tuple[Statistic, ...] = (
    Naive(),
    Histogram(),
    Extremes(),
    Correlation(),
    Neighbourhood(),
    TargetedQueries(),
    SharedValues(),
    NearestValues(),
    Density(),
)
"""What an audit looks at unless told otherwise, each by itself; then all of them are stacked."""

__all__ = [
    "DEFAULT_STATISTICS",
    "Adversary",
    "Correlation",
    "Density",
    "Extremes",
    "Histogram",
    "LikelihoodRatio",
    "Naive",
    "NearestValues",
    "Neighbourhood",
    "RandomForest",
    "RegularisedLogistic",
    "SharedValues",
    "Statistic",
    "TargetedQueries",
    "default_adversaries",
]
