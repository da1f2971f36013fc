"""What parties and the server of VertiGAN tell each other: gradients of the shared backbone."""

from __future__ import annotations

from torch import Tensor

from vflsynth.protocol.channel import PACKED, MadeOf, Message, Uses, When, holds, message


@message(
    from_party=True,
    made_of=MadeOf.NETWORKS,
    when=When.STEP,
    uses=(Uses.LATENTS,),
    contents="dL/d(weights of the generators' shared backbone) (R, weights)",
    tells="no record enters them, only fakes judged by a discriminator that was trained on the "
    "party's records. With two parties each learns the other's from the sum",
)
class BackboneGradients(Message):
    """A party's gradients of VertiGAN's shared generator backbone, shape (replica, weight)."""

    gradients: Tensor = holds(PACKED, "replica", "weight")


@message(from_party=False, made_of=MadeOf.NETWORKS, when=When.STEP, contents="the parties' sum")
class SummedBackboneGradients(Message):
    """The sum of all parties' gradients of the backbone, shape (replica, weight)."""

    gradients: Tensor = holds(PACKED, "replica", "weight")
