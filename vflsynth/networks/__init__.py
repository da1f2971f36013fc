"""Replicated networks and losses: pure functions of tensors.

Every network carries a leading replica dimension: inputs are ``(replica, batch, feature)``, weights
``(replica, in, out)``. R models train at the cost of a few, and a plain fit is one replica.
Nothing here draws random numbers except from the streams it is given, and nothing does I/O.
"""

from vflsynth.networks.layers import MLP

__all__ = ["MLP"]
