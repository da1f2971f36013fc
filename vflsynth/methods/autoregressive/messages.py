"""What parties and the server of an autoregressive model tell each other: features and contexts."""

from __future__ import annotations

import torch
from torch import Tensor

from vflsynth.protocol.channel import REAL, MadeOf, Message, Uses, When, holds, message
from vflsynth.protocol.messages import CutGradients, IntermediateFeatures


@message(
    from_party=True,
    made_of=MadeOf.RECORDS,
    when=When.BLOCK,
    slow=True,
    contents="fixed random features of a block of records (R, m, F): of all blocks, but of at "
    "most 32,768 records where contexts have a bound",
    tells="one vector per record, without noise, once. Whoever knows some of the party's records "
    "reads its other columns from them by regression. A server that knows nobody can match their "
    "distribution to that of features of synthetic rows, and reads columns with few categories",
)
class RecordFeatures(IntermediateFeatures):
    """Fixed random features of a block of records, in an order that the parties drew alike."""


@message(
    from_party=True,
    made_of=MadeOf.RECORDS,
    slow=True,
    contents="what the party's features contribute to the contexts of every party after it "
    "(R, n, parties, w)",
    tells="a few functions of each record's columns, without noise: the server adds the noise that "
    "bounds what receivers learn",
)
class ContextParts(Message):
    """Contributions to contexts of all records, shape (replica, record, receiver, context)."""

    parts: Tensor = holds(REAL, "replica", "record", "receiver", "context")


@message(
    from_party=False,
    made_of=MadeOf.RECORDS,
    contents="c_i (R, n, w): numbers made of the features of the parties before i, squares summing "
    "to at most w, with Gaussian noise; the bound on their information in bits",
    tells="a record's own context at most `bits_per_record` bits about it, of all parties before "
    "together, whatever the receiver knows or does, from this snapshot, which a run that begins "
    "again sends again; what made the contexts was trained on all records, without a bound. Which "
    "bits, a receiver chooses that sends made-up features and knows some hundred records. Bits of "
    "other jobs add up, and so do those of receivers who pool theirs: every site books both, and "
    "its site file says how many there may be",
)
class RecordContexts(Message):
    """Noisy contexts of all records, shape (replica, record, context)."""

    contexts: Tensor = holds(REAL, "replica", "record", "context")
    bits_per_record: float


@message(
    from_party=False,
    made_of=MadeOf.RECORDS,
    when=When.BLOCK,
    contents="features of the parties before i, side by side (R, m, F)",
    tells="what `RecordFeatures` contains: a receiver who knows a few hundred of the senders' "
    "records can read nearly everything of the others. For parties that may know each other's "
    "columns",
)
class RelayedFeatures(IntermediateFeatures):
    """Features of a block of records that the server hands on as they are."""


@message(
    from_party=False,
    made_of=MadeOf.NETWORKS,
    contents="weights of what makes contexts of the party's own features (R, weights)",
    tells="which functions of the party's columns say most about the later parties' columns: a "
    "network that was trained on all records, those of later parties among them, without a bound",
)
class SenderWeights(Message):
    """Weights by which a party makes synthetic contexts for later ones, shape (replica, weight)."""

    weights: Tensor = holds(REAL, "replica", "weight")


@message(
    from_party=True,
    made_of=MadeOf.RECORDS,
    when=When.STEP,
    uses=(Uses.ROWS,),
    contents="gradients of the party's loss with respect to the contexts of a batch (R, B, w)",
    tells="one vector per record and step, without noise, that depends on the party's columns as "
    "gradients depend on labels in split learning",
)
class ContextGradients(CutGradients):
    """What a party's training step says about its contexts."""

    gradients: Tensor = holds(REAL, "replica", "record", "context")


@message(
    from_party=True,
    made_of=MadeOf.RECORDS,
    when=When.STEP,
    slow=True,
    uses=(Uses.ROWS,),
    contents="the rows of `RecordFeatures` that a batch has (R, B)",
    tells="which records a batch has, by their places in the common order",
)
class BatchRows(Message):
    """Places of a batch's records, int64, shape (replica, batch)."""

    rows: Tensor = holds(torch.int64, "replica", "record")


@message(
    from_party=False,
    made_of=MadeOf.RECORDS,
    when=When.STEP,
    contents="contexts of a batch without noise (R, B, w)",
    tells="numbers made of the features of the parties before it, squares summing to at most w, by "
    "weights that change at every step: many snapshots, and no bound",
)
class BatchContexts(Message):
    """Contexts of a batch, shape (replica, batch, context)."""

    contexts: Tensor = holds(REAL, "replica", "record", "context")


@message(
    from_party=False,
    made_of=MadeOf.RECORDS,
    when=When.EPOCH,
    contents="contexts of the held-out records without noise (R, m, w)",
    tells="as `BatchContexts`",
)
class HeldOutContexts(Message):
    """Contexts of the held-out records, shape (replica, held-out record, context)."""

    contexts: Tensor = holds(REAL, "replica", "record", "context")


@message(
    from_party=True,
    made_of=MadeOf.NETWORKS,
    when=When.EPOCH,
    slow=True,
    contents="mean log-likelihood of its columns over training and over held-out records (R,), "
    "and whether the party goes on",
)
class LikelihoodReport(Message):
    """Mean log-likelihoods per record in nats, and where training stands, each (replica,)."""

    trained: Tensor = holds(REAL, "replica")
    held_out: Tensor = holds(REAL, "replica")
    improved: Tensor = holds(torch.bool, "replica")
    waiting: Tensor = holds(torch.bool, "replica")
