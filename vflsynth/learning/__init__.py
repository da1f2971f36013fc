"""What every method of learning is made of: a party, a server's step, an agreement.

The methods themselves are in `vflsynth.methods`, a folder each; `vflsynth.run` calls them.
"""

from vflsynth.learning.base import Algorithm, Learning, Method, Party, Releasing

__all__ = ["Algorithm", "Learning", "Method", "Party", "Releasing"]
