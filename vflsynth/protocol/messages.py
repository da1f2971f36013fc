"""The protocol: every message that may cross a party boundary. Nothing else does.

R replicas, B records per batch, d_i intermediate features and w_i encoded columns of party i. A
plain fit has R = 1. Every class declares sender, receiver, time, what it is made of and what its
receiver can learn: `vflsynth.protocol.tables` makes the tables of the documentation of it, and
transports, schedules and privacy accounts read the same declarations.

The shared secret (batches, latents, rotations) is known to the parties and never to the server.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
from torch import Tensor

from vflsynth.protocol.declaration import MadeOf, Message, Uses, When, message

# -- joining and matching -------------------------------------------------------------------------


@message(
    from_party=True,
    made_of=MadeOf.COLUMNS,
    when=When.ONCE,
    slow=True,
    contents="versions, counts, keyed digests of column names, which checkpoints there are",
    tells="number of rows, the kind of the keys and, except in private runs, the digits of the "
    "largest, which columns two parties both have (none may), numbers of columns and of those that "
    "a private run has to pay for, because nobody said what is public about them",
)
class Hello(Message):
    """What a party says of itself when it joins a run; JSON values."""

    facts: dict[str, Any]


@message(
    from_party=False,
    made_of=MadeOf.COLUMNS,
    when=When.ONCE,
    contents="what the hellos said of all parties, and where to go on",
)
class Terms(Message):
    """What the server tells every party of the others before training; JSON values."""

    terms: dict[str, Any]


@message(
    from_party=True,
    made_of=MadeOf.KEYS,
    when=When.ONCE,
    in_process=True,
    contents="the party's record keys",
    tells="the keys themselves; between processes blinded keys replace it",
)
class KeyList(Message):
    """A party's record keys."""

    keys: pd.Index


@message(
    from_party=False,
    made_of=MadeOf.KEYS,
    when=When.ONCE,
    in_process=True,
    contents="the common keys, in common order",
    tells="which of the party's records every other party also has",
)
class AlignmentNotice(Message):
    """The keys that all parties have, in the order that all parties use."""

    common_keys: pd.Index


_BLINDED = (
    "parties learn the keys that all have and how many the others have; the server learns how many "
    "keys every group of parties has in common, and no key (`vflsynth.federation.psi`)"
)


@message(
    from_party=True,
    made_of=MadeOf.KEYS,
    when=When.ONCE,
    slow=True,
    contents="record keys as points of a curve, blinded by the party",
    tells=_BLINDED,
)
class BlindedKeys(Message):
    """A party's keys under commutative encryption, uint8 of shape (key, 33)."""

    points: Tensor


@message(
    from_party=False,
    made_of=MadeOf.KEYS,
    when=When.STEP,
    contents="another party's blinded keys",
    tells=_BLINDED,
)
class KeysToReblind(Message):
    """Another party's blinded keys, for this one to blind too, uint8 of shape (key, 33)."""

    points: Tensor


@message(
    from_party=True,
    made_of=MadeOf.KEYS,
    when=When.STEP,
    slow=True,
    contents="the same, blinded once more",
    tells=_BLINDED,
)
class ReblindedKeys(Message):
    """Keys that one party more has blinded, uint8 of shape (key, 33)."""

    points: Tensor


@message(
    from_party=False,
    made_of=MadeOf.KEYS,
    when=When.ONCE,
    contents="which of the party's blinded keys all parties have",
    tells=_BLINDED,
)
class CommonPositions(Message):
    """Positions, int64, in the list of blinded keys that the party sent first."""

    positions: Tensor


@message(
    from_party=True,
    made_of=MadeOf.COLUMNS,
    when=When.ONCE,
    slow=True,
    contents="w_i",
)
class EncodedSize(Message):
    """Number of a party's encoded columns."""

    encoded_dim: int


@message(from_party=False, made_of=MadeOf.COLUMNS, when=When.ONCE, contents="w_i of all parties")
class EncodedSizes(Message):
    """Numbers of all parties' encoded columns, by party: the networks can be built."""

    widths: dict[str, Any]


# -- during training, whatever the method ---------------------------------------------------------


@message(
    from_party=False,
    made_of=MadeOf.PLANS,
    when=When.EPOCH,
    contents="write a checkpoint now",
)
class CheckpointNotice(Message):
    """The epoch, as the step, after which every node writes a checkpoint."""


@message(
    from_party=False,
    made_of=MadeOf.NETWORKS,
    when=When.EPOCH,
    contents="which replicas to keep as the best (R,)",
)
class SelectionNotice(Message):
    """For each replica, whether the current generator is the one to keep, shape (replica,)."""

    keep: Tensor


@message(
    from_party=True,
    made_of=MadeOf.NETWORKS,
    when=When.EPOCH,
    contents="mean losses of the epoch (R,)",
)
class TrainingReport(Message):
    """Means over an epoch, each of shape (replica,)."""

    wasserstein: Tensor
    penalty: Tensor


class MaskedRecords(Message):
    """Encoded records with a constant column in front, rotated by a secret orthogonal matrix."""

    __slots__ = ()
    records: Tensor


_MASKED = (
    "the joint mean and covariance of the encoded columns, which is what they are for. A rotation "
    "unknown to the server leaves inner products of columns, so no row can be read, but where a "
    "single record holds a category, that category's covariances *are* its record: the pooling of "
    "rare categories is the remedy"
)


@message(
    from_party=True,
    made_of=MadeOf.RECORDS,
    when=When.ONCE,
    slow=True,
    contents="Q [1, x_i] (R, m, w_i + 1), rotated by a secret rotation Q of the records; of normal "
    "scores for the Gaussian copula",
    tells=_MASKED,
)
class MaskedReal(MaskedRecords):
    """Real records, masked."""

    records: Tensor


@message(
    from_party=True,
    made_of=MadeOf.NETWORKS,
    when=When.EPOCH,
    contents="the same of fakes",
    tells=_MASKED,
)
class MaskedFake(MaskedRecords):
    """Fresh fakes, masked."""

    records: Tensor


class IntermediateFeatures(Message):
    """Outputs at the cut of a network, shape (replica, row, feature)."""

    __slots__ = ()
    features: Tensor


class CutGradients(Message):
    """Gradients of the server's loss with respect to what a party sent, of the same shape."""

    __slots__ = ()
    gradients: Tensor


# -- VFLGAN ---------------------------------------------------------------------------------------


@message(
    from_party=True,
    made_of=MadeOf.COLUMNS,
    when=When.ONCE,
    slow=True,
    contents="n records, w_i, d_i",
)
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
    contents="f_i (R, kB, d_i): real, fake and, with the layer-wise penalty, interpolated records "
    "(k = 2 or 3)",
    tells="one vector per record and step, without noise. The server does not know the first part "
    "of the discriminator nor which record a row belongs to, but nothing proves that it cannot "
    "learn about the records from them; the paper only measures this (its ASIF audit). This is the "
    "largest exposure of VFLGAN",
)
class DiscriminatorFeatures(IntermediateFeatures):
    """Features of real, fake and perhaps interpolated records."""

    features: Tensor


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

    features: Tensor
    n_real: Tensor


@message(
    from_party=False,
    made_of=MadeOf.NETWORKS,
    when=When.STEP,
    contents="dL/df_i, same shape",
    tells="how the shared discriminator, trained on all parties, scores the party's records",
)
class DiscriminatorGradients(CutGradients):
    """The reply to a discriminator step's features."""

    gradients: Tensor


@message(
    from_party=True,
    made_of=MadeOf.NETWORKS,
    when=When.STEP,
    uses=(Uses.ROWS, Uses.LATENTS),
    contents="f_i of fakes (R, B, d_i)",
)
class GeneratorFeatures(IntermediateFeatures):
    """Features of fakes, for a generator step."""

    features: Tensor


@message(from_party=False, made_of=MadeOf.NETWORKS, when=When.STEP, contents="dL/df_i, same shape")
class GeneratorGradients(CutGradients):
    """The reply to a generator step's features."""

    gradients: Tensor


# -- VertiGAN -------------------------------------------------------------------------------------


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

    gradients: Tensor


@message(from_party=False, made_of=MadeOf.NETWORKS, when=When.STEP, contents="the parties' sum")
class SummedBackboneGradients(Message):
    """The sum of all parties' gradients of the backbone, shape (replica, weight)."""

    gradients: Tensor


# -- kernel mean embedding ------------------------------------------------------------------------


@message(
    from_party=True,
    made_of=MadeOf.RECORDS,
    when=When.ONCE,
    slow=True,
    contents="counts of the cells of all columns, with Gaussian noise",
    tells="published; the privacy ledger counts it",
)
class NoisyHistograms(Message):
    """Published counts of a party's columns, one after the other, and their numbers of cells."""

    counts: Tensor
    n_cells: Tensor


@message(
    from_party=True,
    made_of=MadeOf.NETWORKS,
    when=When.ONCE,
    slow=True,
    contents="w_i^k x'_i of 20,000 records drawn column by column from the histograms (20,000, K)",
    tells="a function of the published histograms",
)
class IndependentProjections(Message):
    """Projections of records with independent columns, shape (record, frequency)."""

    projections: Tensor


@message(
    from_party=True,
    made_of=MadeOf.RECORDS,
    when=When.ONCE,
    slow=True,
    contents="w_i^k x_i of every record (n, K), in the clear",
    tells="K linear functions of every record's encoded columns, without noise. The server does "
    "not know the frequencies w, which the party draws, but with that many projections of each "
    "record nothing is hidden from it: **the server sees the records in the clear** and must be "
    "trusted to add noise and to forget. It needs only the sums over records of cos and sin of the "
    "parties' added projections, which secure aggregation can give it",
)
class RecordProjections(Message):
    """Projections of every record's encoded columns, shape (record, frequency)."""

    projections: Tensor


@message(
    from_party=True,
    made_of=MadeOf.NETWORKS,
    when=When.STEP,
    uses=(Uses.LATENTS,),
    contents="w_i^k x~_i of fakes (R, B, K)",
    tells="functions of the noisy releases and of fakes",
)
class FakeProjections(Message):
    """Projections of fakes, shape (replica, batch, frequency)."""

    projections: Tensor


@message(
    from_party=False,
    made_of=MadeOf.NETWORKS,
    when=When.STEP,
    contents="dL/d(projections), same shape",
    tells="functions of the noisy releases and of fakes",
)
class ProjectionGradients(Message):
    """Gradients of the server's loss with respect to a party's fake projections."""

    gradients: Tensor


# -- latent tree ----------------------------------------------------------------------------------


@message(
    from_party=True,
    made_of=MadeOf.RECORDS,
    when=When.ONCE,
    slow=True,
    contents="every record's latent states (n, groups), in the clear",
    tells="a few discrete functions of every record's columns, without noise, such as which of "
    "eight classes of laboratory values a patient is in. The server counts pairs of them, which "
    "secure aggregation can give it",
)
class LatentCodes(Message):
    """Latent state of every record in each of a party's groups of columns, and how many there are.

    `codes` has shape (record, group), `sizes` (group,).
    """

    codes: Tensor
    sizes: Tensor


@message(
    from_party=False,
    made_of=MadeOf.NETWORKS,
    when=When.ONCE,
    contents="noisy conditional distributions of all parties' latent attributes",
    tells="published; the privacy ledger counts it",
)
class LatentTree(Message):
    """The published tree of all parties' latent attributes.

    `parents` and `sizes` have shape (latent,); the root's parent is -1. `shares` are the root's
    distribution and the others' given their parents (parent state, state), one after the other.
    `first` is the number of the receiver's first latent attribute.
    """

    parents: Tensor
    sizes: Tensor
    shares: Tensor
    first: int


# -- split autoregressive model -------------------------------------------------------------------


@message(
    from_party=True,
    made_of=MadeOf.RECORDS,
    when=When.ONCE,
    slow=True,
    contents="fixed random features of records (R, m, F): of all, but of at most 32,768 where "
    "contexts have a bound",
    tells="one vector per record, without noise, once. Whoever knows some of the party's records "
    "reads its other columns from them by regression; a server that owns no table and knows nobody "
    "has nothing to fit that regression to but the features' distribution",
)
class RecordFeatures(IntermediateFeatures):
    """Fixed random features of the first records, in an order that the parties drew alike."""

    features: Tensor


@message(
    from_party=True,
    made_of=MadeOf.RECORDS,
    when=When.ONCE,
    slow=True,
    contents="what the party's features contribute to the contexts of every party after it "
    "(R, n, parties, w)",
    tells="a few functions of each record's columns, without noise: the server adds the noise that "
    "bounds what receivers learn",
)
class ContextParts(Message):
    """Contributions to contexts of all records, shape (replica, record, receiver, context)."""

    parts: Tensor


@message(
    from_party=False,
    made_of=MadeOf.RECORDS,
    when=When.ONCE,
    contents="c_i (R, n, w): numbers in [-1, 1] made of the features of the parties before i, with "
    "Gaussian noise; the bound on their information in bits",
    tells="at most `bits_per_record` bits about each record of all parties before it together, "
    "whatever the receiver knows, from this one snapshot. A second run sends a second one, and its "
    "bits add up; so do those of receivers who pool theirs",
)
class RecordContexts(Message):
    """Noisy contexts of all records, shape (replica, record, context)."""

    contexts: Tensor
    bits_per_record: float


@message(
    from_party=False,
    made_of=MadeOf.RECORDS,
    when=When.ONCE,
    contents="features of the parties before i, side by side (R, n, F)",
    tells="what `RecordFeatures` contains: a receiver who knows a few hundred of the senders' "
    "records can read nearly everything of the others. For parties that may know each other's "
    "columns",
)
class RelayedFeatures(IntermediateFeatures):
    """Features that the server hands on as they are."""

    features: Tensor


@message(
    from_party=False,
    made_of=MadeOf.NETWORKS,
    when=When.ONCE,
    contents="weights of what makes contexts of the party's own features (R, weights)",
    tells="which functions of the party's columns say most about the later parties' columns: a "
    "network that was trained on all records",
)
class SenderWeights(Message):
    """Weights by which a party makes synthetic contexts for later ones, shape (replica, weight)."""

    weights: Tensor


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

    gradients: Tensor


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

    rows: Tensor


@message(
    from_party=False,
    made_of=MadeOf.RECORDS,
    when=When.STEP,
    contents="contexts of a batch without noise (R, B, w)",
    tells="numbers in [-1, 1] made of the features of the parties before it by weights that change "
    "at every step: many snapshots, and no bound",
)
class BatchContexts(Message):
    """Contexts of a batch, shape (replica, batch, context)."""

    contexts: Tensor


@message(
    from_party=False,
    made_of=MadeOf.RECORDS,
    when=When.EPOCH,
    contents="contexts of the held-out records without noise (R, m, w)",
    tells="as `BatchContexts`",
)
class HeldOutContexts(Message):
    """Contexts of the held-out records, shape (replica, held-out record, context)."""

    contexts: Tensor


@message(
    from_party=True,
    made_of=MadeOf.NETWORKS,
    when=When.EPOCH,
    slow=True,
    contents="mean log-likelihood of its columns over training and over held-out records (R,), and "
    "whether the party goes on",
)
class LikelihoodReport(Message):
    """Mean log-likelihoods per record in nats, and where training stands, each (replica,)."""

    trained: Tensor
    held_out: Tensor
    improved: Tensor
    waiting: Tensor


# -- Gaussian copula ------------------------------------------------------------------------------


@message(
    from_party=False,
    made_of=MadeOf.NETWORKS,
    when=When.ONCE,
    contents="L_i (columns of all, columns of i)",
    tells="the correlations of the party's own columns; the masked records before it told the "
    "server those of all",
)
class CopulaLoadings(Message):
    """What turns shared latents into a party's normal scores, shape (latent, column)."""

    loadings: Tensor


# -- split learning, where the server is the active party, which has the labels --------------------


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

    features: Tensor


@message(
    from_party=False,
    made_of=MadeOf.RECORDS,
    when=When.STEP,
    contents="dL/d(outputs), same shape, as the classifier's protection leaves them",
    tells="labels, as far as the protection lets them: `vflsynth.splitdefense.leakage` measures it",
)
class BottomGradients(CutGradients):
    """The reply to a batch's outputs."""

    gradients: Tensor


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

    features: Tensor
