"""What parties of a split classifier tell each other."""

from __future__ import annotations

from torch import Tensor

from vflsynth.protocol.channel import REAL, MadeOf, Uses, When, holds, message
from vflsynth.protocol.messages import CutGradients, IntermediateFeatures


@message(
    from_party=True,
    made_of=MadeOf.RECORDS,
    when=When.STEP,
    uses=(Uses.ROWS,),
    contents="outputs of the bottom model for a batch (R, B, d_i)",
    tells="one vector per record and step, without noise",
)
class BottomOutputs(IntermediateFeatures):
    """Outputs of a party's bottom model for a batch."""


@message(
    from_party=False,
    made_of=MadeOf.RECORDS,
    when=When.STEP,
    contents="dL/d(outputs), same shape, as the classifier's protection leaves them",
    tells="labels, as far as the protection lets them: `vflsynth.splitdefense.leakage` measures it",
)
class BottomGradients(CutGradients):
    """The reply to a batch's outputs."""

    gradients: Tensor = holds(REAL, "replica", "record", "feature")


@message(
    from_party=True,
    made_of=MadeOf.RECORDS,
    when=When.EPOCH,
    slow=True,
    contents="outputs of the trained bottom model for all records (R, n, d_i)",
    tells="one vector per record, without noise",
)
class AllBottomOutputs(IntermediateFeatures):
    """Outputs of a party's bottom model for all matched records, after training."""


@message(
    from_party=True,
    made_of=MadeOf.RECORDS,
    when=When.EPOCH,
    contents="outputs of the bottom model for records that are in no batch (R, h, d_i)",
    tells="one vector per held-out record and epoch, without noise",
)
class HeldOutOutputs(IntermediateFeatures):
    """Outputs of a party's bottom model for the records that say when to stop."""
