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
import torch
from torch import Tensor

from vflsynth.protocol.declaration import MadeOf, Message, Uses, When, message
from vflsynth.protocol.tensors import holds

_REAL = torch.float32, torch.float64
"""Of what networks and other models compute."""
_PACKED = *_REAL, torch.float16, torch.int8
"""The same as senders round it, see `vflsynth.protocol.precision`."""
_STEPS = torch.int32, torch.int64
"""Whole numbers of 32 bits or, where sums need more, of 64."""

# -- joining and matching -------------------------------------------------------------------------


@message(
    from_party=True,
    made_of=MadeOf.COLUMNS,
    when=When.ONCE,
    slow=True,
    contents="versions, counts, keyed digests of column names and of the party's part of the "
    "contract, which checkpoints there are, heads of the privacy account",
    tells="number of rows, the kind of the keys and, except in private runs, the digits of the "
    "largest, which columns two parties both have (none may), numbers of columns and of those that "
    "a private run has to pay for, because nobody said what is public about them; how often the "
    "party took part in private runs; under a contract, which columns of the job's rules it has, "
    "and whether it leaves out rows",
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
    "keys every group of parties has in common (with `intersection_epsilon` plus random numbers) "
    "and cannot test guesses of keys, which are keyed digests under the parties' secret "
    "(`vflsynth.federation.psi`)"
)


@message(
    from_party=True,
    made_of=MadeOf.KEYS,
    when=When.ONCE,
    slow=True,
    contents="keyed digests of record keys, of three parties or more two of each, as points of a "
    "curve, blinded by the party; its seal",
    tells=_BLINDED,
)
class BlindedKeys(Message):
    """A party's keys under commutative encryption, uint8 of shape (key, 33).

    ``seal``, uint8 of shape (32,): proves to whoever has the parties' secret that these are the
    points of this party, in this run, blinded by so many; nobody else can make or check it.
    """

    points: Tensor = holds(torch.uint8, "key", 33)
    seal: Tensor = holds(torch.uint8, "byte")


@message(
    from_party=False,
    made_of=MadeOf.KEYS,
    when=When.STEP,
    contents="another party's blinded keys, with the seal of the party that blinded them last",
    tells=_BLINDED,
)
class KeysToReblind(Message):
    """Another party's blinded keys, for this one to blind too, uint8 of shape (key, 33)."""

    points: Tensor = holds(torch.uint8, "key", 33)
    seal: Tensor = holds(torch.uint8, "byte")


@message(
    from_party=True,
    made_of=MadeOf.KEYS,
    when=When.STEP,
    slow=True,
    contents="the same, blinded once more, and sealed",
    tells=_BLINDED,
)
class ReblindedKeys(Message):
    """Keys that one party more has blinded, uint8 of shape (key, 33)."""

    points: Tensor = holds(torch.uint8, "key", 33)
    seal: Tensor = holds(torch.uint8, "byte")


@message(
    from_party=False,
    made_of=MadeOf.KEYS,
    when=When.ONCE,
    contents="of two parties: the party's own keys, blinded by both, with the other's seal",
    tells=_BLINDED,
)
class ReturnedKeys(Message):
    """The party's own keys, blinded by all; with them it finds the common ones by itself.

    Of two parties only: with more, lists blinded by all would tell a party which of its keys each
    of the others has, which only the server learns.
    """

    points: Tensor = holds(torch.uint8, "key", 33)
    seal: Tensor = holds(torch.uint8, "byte")


@message(
    from_party=False,
    made_of=MadeOf.KEYS,
    when=When.ONCE,
    contents="which of the party's blinded keys all parties have",
    tells=_BLINDED,
)
class CommonPositions(Message):
    """Positions, int64, in the list of blinded keys that the party sent first."""

    positions: Tensor = holds(torch.int64, "key")


@message(
    from_party=True,
    made_of=MadeOf.KEYS,
    when=When.ONCE,
    slow=True,
    contents="a keyed digest of the common keys, which only this party can have sent",
    tells="nothing without the parties' secret",
)
class MatchProof(Message):
    """Proof of what this party was told is common, uint8 of shape (32,)."""

    proof: Tensor = holds(torch.uint8, 32)


@message(
    from_party=False,
    made_of=MadeOf.KEYS,
    when=When.ONCE,
    contents="the proofs of all parties, which every party compares before it goes on",
    tells="that all parties were told of the same keys, or not",
)
class MatchProofs(Message):
    """Proofs as hexadecimal digits, by party name; JSON values."""

    proofs: dict[str, Any]


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


@message(
    from_party=True,
    made_of=MadeOf.COLUMNS,
    when=When.EPOCH,
    contents="heads of the party's privacy account: once it has booked what comes before the "
    "second epoch, and when the run is over",
    tells="how often the party took part in private runs; heads are random to whoever lacks the "
    "account",
)
class AccountHeads(Message):
    """What `vflsynth.privacy.PrivacyAccount.show` returns; JSON values."""

    shown: dict[str, Any]


@message(
    from_party=False,
    made_of=MadeOf.COLUMNS,
    when=When.EPOCH,
    contents="what all parties' accounts showed",
    tells="how often each of them took part in private runs",
)
class AllAccountHeads(Message):
    """Party name to `AccountHeads`; every site refuses accounts that lack what it remembers."""

    shown: dict[str, Any]


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
    from_party=True,
    made_of=MadeOf.PLANS,
    when=When.EPOCH,
    slow=True,
    contents="nothing",
)
class Presence(Message):
    """That the party is still there, while the server trains without it; the epoch, as the step."""


@message(
    from_party=False,
    made_of=MadeOf.NETWORKS,
    when=When.EPOCH,
    contents="which replicas to keep as the best (R,)",
    tells="whether this epoch is the best so far; in split learning by the held-out labels, after "
    "label privacy",
)
class SelectionNotice(Message):
    """For each replica, whether the current networks are the ones to keep, shape (replica,)."""

    keep: Tensor = holds(torch.bool, "replica")


@message(
    from_party=True,
    made_of=MadeOf.NETWORKS,
    when=When.EPOCH,
    contents="mean losses of the epoch (R,)",
)
class TrainingReport(Message):
    """Means over an epoch, each of shape (replica,)."""

    wasserstein: Tensor = holds(_REAL, "replica")
    penalty: Tensor = holds(_REAL, "replica")


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
    when=When.BLOCK,
    slow=True,
    contents="a block of the rows of Q [1, x_i] (R, m, w_i + 1), rotated by a secret rotation Q of "
    "the records; of normal scores for the Gaussian copula",
    tells=_MASKED,
)
class MaskedReal(MaskedRecords):
    """Real records, masked, of which no block is larger than 32 MiB."""

    records: Tensor = holds(_REAL, "replica", "record", "column")


@message(
    from_party=True,
    made_of=MadeOf.NETWORKS,
    when=When.EPOCH,
    contents="the same of fakes",
    tells=_MASKED,
)
class MaskedFake(MaskedRecords):
    """Fresh fakes, masked."""

    records: Tensor = holds(_REAL, "replica", "fake", "column")


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
    contents="f_i (R, kB, d_i): real, fake and, but for the paper's penalty, interpolated records "
    "(k = 2 or 3)",
    tells="one vector per record and step, without noise. The server does not know the first part "
    "of the discriminator nor which record a row belongs to, but nothing proves that it cannot "
    "learn about the records from them; the paper only measures this (its ASIF audit). This is the "
    "largest exposure of VFLGAN",
)
class DiscriminatorFeatures(IntermediateFeatures):
    """Features of real, fake and perhaps interpolated records."""

    features: Tensor = holds(_PACKED, "replica", "row", "feature")


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

    features: Tensor = holds(_PACKED, "replica", "row", "feature")
    n_real: Tensor = holds(torch.int64, "replica")


@message(
    from_party=False,
    made_of=MadeOf.NETWORKS,
    when=When.STEP,
    contents="dL/df_i of real and fake records; with the end-to-end penalty then dD_s/df_i of "
    "interpolated ones",
    tells="how the shared discriminator, trained on all parties, scores the party's records",
)
class DiscriminatorGradients(CutGradients):
    """The reply to a discriminator step's features."""

    gradients: Tensor = holds(_PACKED, "replica", "row", "feature")


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

    features: Tensor = holds(_PACKED, "replica", "row", "feature")


@message(
    from_party=False,
    made_of=MadeOf.NETWORKS,
    when=When.STEP,
    contents="squared slopes of the shared discriminator at interpolated joint records (R, B), one "
    "number per record; with several steps per exchange, dL/df_i of fakes for the generators",
    tells="how steep the shared discriminator is at a joint record: less the party's own part, how "
    "steep it is in the columns of the others, who with two parties are one",
)
class JointSlopes(CutGradients):
    """The reply to `FeatureSlopes`."""

    squared: Tensor = holds(_REAL, "replica", "record")
    gradients: Tensor = holds(_PACKED, "replica", "row", "feature")


@message(
    from_party=True,
    made_of=MadeOf.NETWORKS,
    when=When.STEP,
    uses=(Uses.ROWS, Uses.LATENTS),
    contents="f_i of fakes (R, B, d_i)",
)
class GeneratorFeatures(IntermediateFeatures):
    """Features of fakes, for a generator step."""

    features: Tensor = holds(_PACKED, "replica", "row", "feature")


@message(from_party=False, made_of=MadeOf.NETWORKS, when=When.STEP, contents="dL/df_i, same shape")
class GeneratorGradients(CutGradients):
    """The reply to a generator step's features."""

    gradients: Tensor = holds(_PACKED, "replica", "row", "feature")


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

    gradients: Tensor = holds(_PACKED, "replica", "weight")


@message(from_party=False, made_of=MadeOf.NETWORKS, when=When.STEP, contents="the parties' sum")
class SummedBackboneGradients(Message):
    """The sum of all parties' gradients of the backbone, shape (replica, weight)."""

    gradients: Tensor = holds(_PACKED, "replica", "weight")


# -- secure sums, whatever the method -------------------------------------------------------------

_UNIFORM = "nothing: uniformly random to its receiver, whatever the records are"


@message(
    from_party=True,
    made_of=MadeOf.RECORDS,
    when=When.BLOCK,
    slow=True,
    masked=True,
    contents="of angles w_i^k x_i of the block's records, each with a dither that is drawn of the "
    "shared secret, points of the circle (2, b, K, bytes), masked, or turns in 2^8ths of the "
    "circle (b, K); both at parties but the first and last of three and more; at which frequencies "
    "a record counts, drawn of the secret and sorted",
    tells=_UNIFORM + ", and whatever it does (`vflsynth.secure.rotations`)",
)
class MaskedPoints(Message):
    """Masked points and turns of a block of records: `vflsynth.secure.Turning`."""

    points: Tensor = holds(torch.uint8, 2, "masked record", "frequency", "byte")
    turns: Tensor = holds(torch.uint8, "turned record", "frequency")
    windows: Tensor = holds(torch.int32, "record")


@message(
    from_party=True,
    made_of=MadeOf.RECORDS,
    when=When.BLOCK,
    slow=True,
    masked=True,
    contents="codes of the states of the block's records (b, coordinates), each number with a mask "
    "that is drawn of the shared secret; a proof that they are codes: places (b, columns), turned "
    "by it, the sum of their pads, which are drawn of it, too; for the proofs of others tags of "
    "all their places (b, places), a random seed and its seal",
    tells=_UNIFORM + ", and whatever it does (`vflsynth.secure.products`, "
    "`vflsynth.secure.membership`)",
)
class MaskedStates(Message):
    """Masked codes of a block of records, and `vflsynth.secure.Proof`."""

    numbers: Tensor = holds(_STEPS, "record", "coordinate")
    places: Tensor = holds(torch.int16, "record", "column")
    openings: Tensor = holds(torch.int64, "verifier")
    tags: Tensor = holds(torch.int64, "record", "place")
    seed: Tensor = holds(torch.uint8, 32)
    seal: Tensor = holds(torch.uint8, 32)


@message(
    from_party=False,
    made_of=MadeOf.NETWORKS,
    when=When.ONCE,
    contents="seeds of the other parties' tags of every block, with their seals, and a hash of the "
    "tags that each of them sent",
    tells="random numbers: with these the party computes the tags itself, and ends the run if "
    "others were sent (`vflsynth.secure.membership`)",
)
class VerifierSeeds(Message):
    """What a party is told of its verifiers after the last block: `vflsynth.secure.Challenge`."""

    seeds: Tensor = holds(torch.uint8, "verifier", "block", 32)
    seals: Tensor = holds(torch.uint8, "verifier", "block", 32)
    digests: Tensor = holds(torch.uint8, "verifier", 32)


@message(
    from_party=True,
    made_of=MadeOf.PLANS,
    when=When.ONCE,
    slow=True,
    contents="nothing",
)
class TagsAgreed(Message):
    """That the tags of a party's records are those that it can compute: proofs may be judged."""


@message(
    from_party=True,
    made_of=MadeOf.RECORDS,
    when=When.ONCE,
    slow=True,
    masked=True,
    contents="a share of sums over records, with the party's own noise in full and a part of zero "
    "that is drawn of the shared secret",
    tells="all parties' shares together: the published sums with every party's noise, which the "
    "privacy ledger counts; fewer are uniformly random (`vflsynth.secure`)",
)
class SumShares(Message):
    """A party's share of noisy sums, int64, one after the other."""

    shares: Tensor = holds(torch.int64, "sum")


# -- kernel mean embedding ------------------------------------------------------------------------


@message(
    from_party=True,
    made_of=MadeOf.RECORDS,
    when=When.ONCE,
    slow=True,
    contents="counts of the cells of all columns, with discrete Gaussian noise, in whole steps; "
    "the noise; which columns are numeric; where their bins begin and end, between 0 and 1; the "
    "seed of the public random frequencies",
    tells="published; the privacy ledger counts it. No name, unit or label of a column",
)
class NoisyHistograms(Message):
    """Published counts of a party's columns, one after the other, and what they are counts of.

    Counts are whole numbers of steps; those of column i are ``2**exponents[i]``, and their noise
    has standard deviation ``noise_stds[i]``, in counts. Bins of numeric columns, one column's after
    the other, are where `lows` and `highs` say, scaled to the unit interval. The encoding of the
    columns follows, but for names, units and labels. `seed`, uint8 of shape (32,), is that of the
    party's frequencies.
    """

    counts: Tensor = holds(torch.int64, "cell")
    n_cells: Tensor = holds(torch.int64, "column")
    exponents: Tensor = holds(torch.int64, "column")
    noise_stds: Tensor = holds(torch.float64, "column")
    numeric: Tensor = holds(torch.bool, "column")
    lows: Tensor = holds(torch.float64, "bin")
    highs: Tensor = holds(torch.float64, "bin")
    seed: Tensor = holds(torch.uint8, 32)


@message(
    from_party=False,
    made_of=MadeOf.RECORDS,
    when=When.ONCE,
    contents="at how many of the K random frequencies every record counts",
    tells="a function of the noisy histograms: how many records there are, about",
)
class WindowWidth(Message):
    """At how many frequencies, of those that were planned, the server lets a record count."""

    width: int


@message(
    from_party=False,
    made_of=MadeOf.NETWORKS,
    when=When.ONCE,
    contents="weights of the party's generator (R, weights)",
    tells="a function of the noisy releases",
)
class GeneratorWeights(Message):
    """A party's generator, which the server trained on the noisy releases, (replica, weight)."""

    weights: Tensor = holds(_REAL, "replica", "weight")


# -- latent tree ----------------------------------------------------------------------------------


@message(
    from_party=True,
    made_of=MadeOf.RECORDS,
    when=When.ONCE,
    slow=True,
    contents="counts of all pairs of the party's latent states, with discrete Gaussian noise, in "
    "whole steps, and numbers of states (groups,)",
    tells="published; the privacy ledger counts it",
)
class LatentTables(Message):
    """Published tables of pairs of a party's own latent attributes, one after the other.

    `counts` are whole numbers of steps, int64; `sizes` are the attributes' numbers of states,
    shape (group,).
    """

    counts: Tensor = holds(torch.int64, "cell")
    sizes: Tensor = holds(torch.int64, "group")


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

    parents: Tensor = holds(torch.int64, "latent")
    sizes: Tensor = holds(torch.int64, "latent")
    shares: Tensor = holds(torch.float64, "share")
    first: int


# -- tables of pairs ------------------------------------------------------------------------------


@message(
    from_party=True,
    made_of=MadeOf.RECORDS,
    when=When.ONCE,
    slow=True,
    contents="sums of products of codes of all pairs of the party's columns, with discrete "
    "Gaussian noise, in whole steps; kinds and numbers of states (columns,), their shares, codes "
    "and the number of records by the published histograms",
    tells="published; the privacy ledger counts it",
)
class ColumnTables(Message):
    """Published sums of products of a party's own columns, one pair after the other.

    `counts` are whole numbers of steps, int64; `sizes` are the columns' numbers of states, shape
    (column,); `shares` are those of all states, float64, column by column; `kinds`, shape
    (column,), say whether states are ordered. Codes follow from both
    (`vflsynth.networks.column_codes`): `coordinates`, shape (column,), are how many numbers one
    has, and `codes` are those of all states, column by column. `n_records`, shape (1,), is what the
    party's histograms say.
    """

    counts: Tensor = holds(torch.int64, "product")
    sizes: Tensor = holds(torch.int64, "column")
    shares: Tensor = holds(torch.float64, "state")
    kinds: Tensor = holds(torch.int64, "column")
    coordinates: Tensor = holds(torch.int64, "column")
    codes: Tensor = holds(torch.int64, "number")
    n_records: Tensor = holds(torch.float64, 1)


@message(
    from_party=False,
    made_of=MadeOf.RECORDS,
    when=When.ONCE,
    contents="numbers of states and coordinates, and codes, of all parties' columns",
    tells="a function of the noisy histograms: how many records have each state, about",
)
class StateCodes(Message):
    """The codes that records are masked as, of all parties by name, column by column.

    `sizes` and `coordinates` have shape (column,); `codes` are those of all states of a column,
    one after the other.
    """

    sizes: Tensor = holds(torch.int64, "column")
    coordinates: Tensor = holds(torch.int64, "column")
    codes: Tensor = holds(torch.int64, "number")


@message(
    from_party=False,
    made_of=MadeOf.NETWORKS,
    when=When.ONCE,
    contents="weights of a mixture (K,), shares of the party's states in each of them (K, states)",
    tells="published; the privacy ledger counts it",
)
class Mixture(Message):
    """The mixture that was fitted to all noisy tables, as far as it is about one party's columns.

    `weights` have shape (component,), `shares` (component, state), column by column.
    """

    weights: Tensor = holds(torch.float32, "component")
    shares: Tensor = holds(torch.float32, "component", "state")


# -- split autoregressive model -------------------------------------------------------------------


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

    features: Tensor = holds(_REAL, "replica", "record", "feature")


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

    parts: Tensor = holds(_REAL, "replica", "record", "receiver", "context")


@message(
    from_party=False,
    made_of=MadeOf.RECORDS,
    when=When.ONCE,
    contents="c_i (R, n, w): numbers made of the features of the parties before i, squares summing "
    "to at most w, with Gaussian noise; the bound on their information in bits",
    tells="at most `bits_per_record` bits about each record of all parties before it together, "
    "whatever the receiver knows or does, from this one snapshot. Which bits, a receiver chooses "
    "that sends made-up features and knows some hundred records. A second run sends a second "
    "snapshot, and its bits add up; so do those of receivers who pool theirs",
)
class RecordContexts(Message):
    """Noisy contexts of all records, shape (replica, record, context)."""

    contexts: Tensor = holds(_REAL, "replica", "record", "context")
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

    features: Tensor = holds(_REAL, "replica", "record", "feature")


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

    weights: Tensor = holds(_REAL, "replica", "weight")


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

    gradients: Tensor = holds(_REAL, "replica", "record", "context")


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

    contexts: Tensor = holds(_REAL, "replica", "record", "context")


@message(
    from_party=False,
    made_of=MadeOf.RECORDS,
    when=When.EPOCH,
    contents="contexts of the held-out records without noise (R, m, w)",
    tells="as `BatchContexts`",
)
class HeldOutContexts(Message):
    """Contexts of the held-out records, shape (replica, held-out record, context)."""

    contexts: Tensor = holds(_REAL, "replica", "record", "context")


@message(
    from_party=True,
    made_of=MadeOf.NETWORKS,
    when=When.EPOCH,
    slow=True,
    contents="mean log-likelihood of its columns over training and over held-out records (R,), "
    "zeros under privacy, and whether the party goes on",
)
class LikelihoodReport(Message):
    """Mean log-likelihoods per record in nats, and where training stands, each (replica,)."""

    trained: Tensor = holds(_REAL, "replica")
    held_out: Tensor = holds(_REAL, "replica")
    improved: Tensor = holds(torch.bool, "replica")
    waiting: Tensor = holds(torch.bool, "replica")


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

    loadings: Tensor = holds(_REAL, "latent", "column")


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

    features: Tensor = holds(_REAL, "replica", "record", "feature")


@message(
    from_party=False,
    made_of=MadeOf.RECORDS,
    when=When.STEP,
    contents="dL/d(outputs), same shape, as the classifier's protection leaves them",
    tells="labels, as far as the protection lets them: `vflsynth.splitdefense.leakage` measures it",
)
class BottomGradients(CutGradients):
    """The reply to a batch's outputs."""

    gradients: Tensor = holds(_REAL, "replica", "record", "feature")


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

    features: Tensor = holds(_REAL, "replica", "record", "feature")


@message(
    from_party=True,
    made_of=MadeOf.RECORDS,
    when=When.EPOCH,
    contents="outputs of the bottom model for records that are in no batch (R, h, d_i)",
    tells="one vector per held-out record and epoch, without noise",
)
class HeldOutOutputs(IntermediateFeatures):
    """Outputs of a party's bottom model for the records that say when to stop."""

    features: Tensor = holds(_REAL, "replica", "record", "feature")
