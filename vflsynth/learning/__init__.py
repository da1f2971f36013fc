"""What every method of learning is made of: a party, a server's step, an agreement.

The methods themselves are in `vflsynth.methods`, a folder each; `vflsynth.run` calls them.
"""

from vflsynth.learning.base import Algorithm, Duration, Method
from vflsynth.learning.party import (
    FromRecords,
    Known,
    Learning,
    Party,
    Releasing,
    TrainableParty,
    TrainedLearning,
)

__all__ = [
    "Algorithm",
    "Duration",
    "FromRecords",
    "Known",
    "Learning",
    "Method",
    "Party",
    "Releasing",
    "TrainableParty",
    "TrainedLearning",
]
