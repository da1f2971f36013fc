"""What parties and the server tell each other of a tree of latent attributes."""

from __future__ import annotations

import torch
from torch import Tensor

from vflsynth.learning.messages import PublishedTables
from vflsynth.protocol.channel import MadeOf, Message, holds, message


@message(
    from_party=True,
    made_of=MadeOf.RECORDS,
    slow=True,
    contents="counts of all pairs of the party's latent states, with discrete Gaussian noise, in "
    "whole steps, and numbers of states (groups,)",
    tells="published; the privacy ledger counts it",
)
class LatentTables(PublishedTables):
    """Published tables of pairs of a party's own latent attributes, one after the other."""

    of = "latent attributes"

    counts: Tensor = holds(torch.int64, "cell")
    sizes: Tensor = holds(torch.int64, "group")


@message(
    from_party=False,
    made_of=MadeOf.NETWORKS,
    contents="noisy conditional distributions of all parties' latent attributes",
    tells="published; the privacy ledger counts it",
)
class LatentTree(Message):
    """The published tree of all parties' latent attributes.

    `parents` and `sizes` have shape (latent,); the root's parent is -1. `shares` are the root's
    distribution and the others' given their parents (parent state, state), one after the other.
    `first` is the number of the receiver's first latent attribute.
    """

    parents: Tensor = holds(torch.int64, "latent")
    sizes: Tensor = holds(torch.int64, "latent")
    shares: Tensor = holds(torch.float64, "share")
    first: int
