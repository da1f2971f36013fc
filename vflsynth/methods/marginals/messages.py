"""What the server of a Gaussian copula tells a party."""

from __future__ import annotations

from torch import Tensor

from vflsynth.protocol.channel import REAL, MadeOf, Message, holds, message


@message(
    from_party=False,
    made_of=MadeOf.NETWORKS,
    contents="L_i (columns of all, columns of i)",
    tells="the correlations of the party's own columns; the masked records before it told the "
    "server those of all",
)
class CopulaLoadings(Message):
    """What turns shared latents into a party's normal scores, shape (latent, column)."""

    loadings: Tensor = holds(REAL, "latent", "column")
