"""What packages that add classes need besides the base classes that these derive from.

Rules say which values a parameter may have. `RandomStreams` are what a method draws from.
`vflsynth.registry.register` makes a class known by its name.
"""

from vflsynth._random import RandomStreams
from vflsynth.registry import Choice, Number, Optional, Pair, Rule, Sizes, check_parameters

__all__ = [
    "Choice",
    "Number",
    "Optional",
    "Pair",
    "RandomStreams",
    "Rule",
    "Sizes",
    "check_parameters",
]
