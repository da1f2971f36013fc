"""What parties and the server of VFLGAN tell each other: features, and gradients of them."""

from __future__ import annotations

import torch
from torch import Tensor

from vflsynth.protocol.channel import PACKED, REAL, MadeOf, Message, Uses, When, holds, message
from vflsynth.protocol.messages import CutGradients, IntermediateFeatures


@message(from_party=True, made_of=MadeOf.COLUMNS, slow=True, contents="n records, w_i, d_i")
class Shape(Message):
    """Sizes that the server needs to build the shared discriminator."""

    n_records: int
    encoded_dim: int
    feature_dim: int


@message(
    from_party=True,
    made_of=MadeOf.RECORDS,
    when=When.STEP,
    uses=(Uses.ROWS, Uses.LATENTS),
    contents="f_i (R, kB, d_i): real, fake and, but for the paper's penalty, interpolated records "
    "(k = 2 or 3)",
    tells="one vector per record and step, without noise. The server does not know the first part "
    "of the discriminator nor which record a row belongs to, but nothing proves that it cannot "
    "learn about the records from them; the paper only measures this (its ASIF audit). This is the "
    "largest exposure of VFLGAN",
)
class DiscriminatorFeatures(IntermediateFeatures):
    """Features of real, fake and perhaps interpolated records."""

    features: Tensor = holds(PACKED, "replica", "row", "feature")


@message(
    from_party=True,
    made_of=MadeOf.RECORDS,
    when=When.STEP,
    uses=(Uses.ROWS, Uses.LATENTS),
    contents="features as above, but of as many real records as the Poisson sample has, and their "
    "number (R,)",
    tells="the same, of fewer records. DP-SGD's noise is added to what is *computed* from them, so "
    "it protects recipients of the generators and not the features from the server, which also "
    "sees how many records were sampled",
)
class SampledFeatures(Message):
    """Features of a Poisson sample of real records, then of fakes, then of points between.

    Those points lie between fakes, or, one for every real row, between a real record and a fake:
    whichever the parties agreed on.

    ``n_real``, of shape (replica,), says how many of the real rows count; those after them only
    fill a replica's block up to the largest.
    """

    features: Tensor = holds(PACKED, "replica", "row", "feature")
    n_real: Tensor = holds(torch.int64, "replica")


@message(
    from_party=False,
    made_of=MadeOf.RECORDS,
    when=When.STEP,
    contents="dL/df_i of real and fake records; with the end-to-end penalty then dD_s/df_i of "
    "interpolated ones",
    tells="how the shared discriminator scores the party's records, joint with those of the others",
)
class DiscriminatorGradients(CutGradients):
    """The reply to a discriminator step's features."""

    gradients: Tensor = holds(PACKED, "replica", "row", "feature")


@message(
    from_party=True,
    made_of=MadeOf.RECORDS,
    when=When.STEP,
    uses=(Uses.ROWS, Uses.LATENTS),
    contents="with the end-to-end penalty J_i J_i^T dD_s/df_i of interpolated records (R, B, d_i), "
    "J_i being the derivative of f_i with respect to the record",
    tells="how f_i changes around a point between a record and a fake, in one direction that the "
    "server chose by its critic: over many steps something of the first part of the discriminator, "
    "which features alone do not tell. Of the record nothing is in it but which units of the first "
    "part are active there, and that shows in the signs of the features, too",
)
class FeatureSlopes(IntermediateFeatures):
    """What a step along the shared critic's slope makes of the features."""

    features: Tensor = holds(PACKED, "replica", "row", "feature")


@message(
    from_party=False,
    made_of=MadeOf.RECORDS,
    when=When.STEP,
    contents="squared slopes of the shared discriminator at interpolated joint records (R, B), one "
    "number per record; with several steps per exchange, dL/df_i of fakes for the generators",
    tells="how steep the shared discriminator is at a joint record: less the party's own part, how "
    "steep it is in the columns of the others, who with two parties are one",
)
class JointSlopes(CutGradients):
    """The reply to `FeatureSlopes`."""

    squared: Tensor = holds(REAL, "replica", "record")
    gradients: Tensor = holds(PACKED, "replica", "row", "feature")


@message(
    from_party=True,
    made_of=MadeOf.NETWORKS,
    when=When.STEP,
    uses=(Uses.ROWS, Uses.LATENTS),
    contents="f_i of fakes (R, B, d_i)",
)
class GeneratorFeatures(IntermediateFeatures):
    """Features of fakes, for a generator step."""

    features: Tensor = holds(PACKED, "replica", "row", "feature")


@message(from_party=False, made_of=MadeOf.NETWORKS, when=When.STEP, contents="dL/df_i, same shape")
class GeneratorGradients(CutGradients):
    """The reply to a generator step's features."""

    gradients: Tensor = holds(PACKED, "replica", "row", "feature")
