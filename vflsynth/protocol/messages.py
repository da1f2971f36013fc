"""The protocol: every message that may cross a party boundary. Nothing else does.

R replicas, B records per batch, d_i intermediate features and w_i encoded columns of party i. A
plain fit has R = 1.

================== ================ =================================== =======================
message            from → to        contents                            when
================== ================ =================================== =======================
KeyList            party → server   the party's record keys             once, before training
AlignmentNotice    server → party   the common keys, in common order    once
Shape              party → server   n records, w_i, d_i                 once
IntermediateFea-   party → server   f_i (R, kB, d_i): real, fake and,   every discriminator step
tures                               with the layer-wise penalty,        (k = 2 or 3); fake only,
                                    interpolated records                every generator step
SampledFeatures    party → server   features as above, but of as many   DP-SGD: every
                                    real records as the Poisson sample  discriminator step
                                    has, and their number (R,)
CutGradients       server → party   dL/df_i, same shape                 the reply to each
BackboneGradients  both ways        dL/d(weights of the generators'     every generator step of
                                    shared backbone) (R, weights): the  VertiGAN, instead of the
                                    party's own, answered by the sum    two above
MaskedRecords      party → server   Q [1, x_i] (R, m, w_i + 1), rotated real records once, fakes
                                    by a secret rotation Q of the       at every evaluation
                                    records
CopulaLoadings     server → party   L_i (columns of all, columns of i)  Gaussian copula, once, after
                                                                        masked normal scores
NoisyHistograms    party → server   counts of the cells of all columns, kernel mean embedding:
                                    with Gaussian noise                 once, before training
IndependentPro-    party → server   w_i^k x'_i of 20,000 records drawn  kernel mean embedding:
jections                            column by column from the           once, before training
                                    histograms (20,000, K)
RecordProjections  party → server   w_i^k x_i of every record (n, K),   kernel mean embedding:
                                    in the clear                        once, before training
FakeProjections    party → server   w_i^k x~_i of fakes (R, B, K)       kernel mean embedding:
                                                                        every step
ProjectionGrad-    server → party   dL/d(projections), same shape       the reply
ients
LatentCodes        party → server   every record's latent states (n,    DPLT: once, after noisy
                                    groups), in the clear               tables of its own columns
LatentTree         server → party   noisy conditional distributions of  DPLT: once
                                    all parties' latent attributes
Hello, Terms       both ways        versions, counts, keyed digests;    once; only between
                                    widths of all, where to go on       processes
BlindedKeys        both ways        record keys as points of a curve,   once; only between
                                    blinded by one or more parties      processes
CommonPositions    server → party   which of the party's blinded keys   once; only between
                                    all parties have                    processes
EncodedSize        party → server   w_i                                 once; only between
                                                                        processes
CheckpointNotice   server → party   write a checkpoint now              every few epochs, only
                                                                        between processes
SelectionNotice    server → party   which replicas to keep as the best  at every evaluation
TrainingReport     party → server   mean losses of the epoch (R,)       every epoch
================== ================ =================================== =======================

In split learning (`vflsynth.splitdefense`) the server is the active party, which has the labels.
IntermediateFeatures are the outputs (R, B, d_i) of a party's bottom model, at every step and once
more for all records after training; CutGradients are the reply to each batch, as the classifier's
protection leaves it. What a party learns about labels from the replies is what
`vflsynth.splitdefense.leakage` measures.

What an honest-but-curious receiver could learn:

- *KeyList*: the keys themselves. The in-process default computes the plain intersection; private
  set intersection replaces this one message when parties are really apart.
- *BlindedKeys*, *CommonPositions*: between processes these replace the two above, see
  `vflsynth.federation.psi`. Parties learn the keys that all have and how many the others have; the
  server learns how many keys every group of parties has in common, and no key.
- *Hello*, *Terms*: numbers of rows, the kind of the keys and, except in private runs, the digits of
  the largest, which columns two parties both have (none may), numbers of columns, of those that a
  private run has to pay for because no site file lists them, and of encoded columns, which
  checkpoints there are.
- *AlignmentNotice*: which of the party's records every other party also has.
- *IntermediateFeatures* of real records: one vector per record and step, without noise. The server
  does not know the first part of the discriminator nor which record a row belongs to, but nothing
  proves that it cannot learn about the records from them; the paper only measures this (its ASIF
  audit). This is the largest exposure of VFLGAN.
- *SampledFeatures*: the same, of fewer records. DP-SGD's noise is added to what is *computed* from
  them, so it protects recipients of the generators and not the features from the server, which also
  sees how many records were sampled.
- *CutGradients*: how the shared discriminator, trained on all parties, scores the party's records.
- *BackboneGradients* (VertiGAN): no record enters them, only fakes judged by a discriminator that
  was trained on the party's records. With two parties each learns the other's from the sum.
- *MaskedRecords*: the joint mean and covariance of the encoded columns, which is what they are for
  (the Fréchet distance of model selection; they are not sent when the last model is kept). A
  rotation unknown to the server leaves inner products of columns, so no row can be read, but one
  caveat remains: where a single record of the table holds a category, that category's covariances
  *are* its record. The transformers' pooling of rare categories is the remedy.
- *CopulaLoadings*: with L_i alone a party can compute the correlations of its own columns. The
  masked records before them are of normal scores: the server learns the correlations of all
  columns.
- *NoisyHistograms*: published; the privacy ledger counts them.
- *RecordProjections*: K linear functions of every record's encoded columns, without noise. The
  server does not know the frequencies w, which the party draws, but with that many projections of
  each record nothing is hidden from it: **the server sees the records in the clear**, as far as the
  guarantee of `vflsynth.privacy` goes, and must be trusted to add noise and to forget. It needs
  only the sums over records of cos and sin of the parties' added projections, which a later version
  can compute under secure aggregation (`vflsynth.privacy.mean_embedding`).
- *LatentCodes*: a few discrete functions of every record's columns, without noise, such as which of
  eight classes of laboratory values a patient is in. The server counts pairs of them, which a later
  version can compute as inner products of indicators under secure aggregation.
- *LatentTree*: published; the privacy ledger counts it.
- *IndependentProjections*, *FakeProjections*, *ProjectionGradients*: functions of the noisy
  releases and of fakes.
- *SelectionNotice*, *TrainingReport*, *Shape*: scalars as listed.

The shared secret (batches, latents, rotations) is known to the parties and never to the server.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import pandas as pd
from torch import Tensor

SERVER = "server"
"""Name of the server in `sender` and `receiver`; no party may be called this."""


@dataclass(frozen=True, slots=True)
class Message:
    """What every message carries.

    Parameters
    ----------
    sender, receiver : str
        Party names, or ``"server"``.
    step : int
        The discriminator step, generator step or epoch it belongs to; 0 before training.
    """

    sender: str
    receiver: str
    step: int

    def contents(self) -> Iterator[tuple[str, object]]:
        """Name and value of everything beyond the envelope."""
        for field in fields(self)[3:]:
            yield field.name, getattr(self, field.name)


@dataclass(frozen=True, slots=True)
class KeyList(Message):
    """A party's record keys."""

    keys: pd.Index


@dataclass(frozen=True, slots=True)
class AlignmentNotice(Message):
    """The keys that all parties have, in the order that all parties use."""

    common_keys: pd.Index


@dataclass(frozen=True, slots=True)
class Shape(Message):
    """Sizes that the server needs to build the shared discriminator."""

    n_records: int
    encoded_dim: int
    feature_dim: int


@dataclass(frozen=True, slots=True)
class IntermediateFeatures(Message):
    """Outputs of the first part of a local discriminator, shape (replica, k * batch, feature)."""

    features: Tensor


@dataclass(frozen=True, slots=True)
class SampledFeatures(Message):
    """Features of a Poisson sample of real records, then of fakes, then of points between.

    Those points lie between fakes, or, one for every real row, between a real record and a fake:
    whichever the parties agreed on.

    ``n_real``, of shape (replica,), says how many of the real rows count; those after them only
    fill a replica's block up to the largest.
    """

    features: Tensor
    n_real: Tensor


@dataclass(frozen=True, slots=True)
class CutGradients(Message):
    """Gradients of the server's loss with respect to a party's intermediate features."""

    gradients: Tensor


@dataclass(frozen=True, slots=True)
class BackboneGradients(Message):
    """Gradients of VertiGAN's shared generator backbone, shape (replica, weight)."""

    gradients: Tensor


@dataclass(frozen=True, slots=True)
class MaskedRecords(Message):
    """Encoded records with a constant column in front, rotated by a secret orthogonal matrix."""

    records: Tensor


@dataclass(frozen=True, slots=True)
class CopulaLoadings(Message):
    """What turns shared latents into a party's normal scores, shape (latent, column)."""

    loadings: Tensor


@dataclass(frozen=True, slots=True)
class NoisyHistograms(Message):
    """Published counts of a party's columns, one after the other, and their numbers of cells."""

    counts: Tensor
    n_cells: Tensor


@dataclass(frozen=True, slots=True)
class IndependentProjections(Message):
    """Projections of records with independent columns, shape (record, frequency)."""

    projections: Tensor


@dataclass(frozen=True, slots=True)
class RecordProjections(Message):
    """Projections of every record's encoded columns, shape (record, frequency)."""

    projections: Tensor


@dataclass(frozen=True, slots=True)
class LatentCodes(Message):
    """Latent state of every record in each of a party's groups of columns, and how many there are.

    `codes` has shape (record, group), `sizes` (group,).
    """

    codes: Tensor
    sizes: Tensor


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class FakeProjections(Message):
    """Projections of fakes, shape (replica, batch, frequency)."""

    projections: Tensor


@dataclass(frozen=True, slots=True)
class ProjectionGradients(Message):
    """Gradients of the server's loss with respect to a party's fake projections."""

    gradients: Tensor


@dataclass(frozen=True, slots=True)
class Hello(Message):
    """What a party says of itself when it joins a run across processes; JSON values."""

    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Terms(Message):
    """What the server tells every party of the others before training; JSON values."""

    terms: dict[str, Any]


@dataclass(frozen=True, slots=True)
class BlindedKeys(Message):
    """Keys under commutative encryption, uint8 of shape (key, 33)."""

    points: Tensor


@dataclass(frozen=True, slots=True)
class CommonPositions(Message):
    """Positions, int64, in the list of blinded keys that the party sent first."""

    positions: Tensor


@dataclass(frozen=True, slots=True)
class EncodedSize(Message):
    """Number of a party's encoded columns."""

    encoded_dim: int


@dataclass(frozen=True, slots=True)
class CheckpointNotice(Message):
    """The epoch, as the step, after which every node writes a checkpoint."""


@dataclass(frozen=True, slots=True)
class SelectionNotice(Message):
    """For each replica, whether the current generator is the one to keep, shape (replica,)."""

    keep: Tensor


@dataclass(frozen=True, slots=True)
class TrainingReport(Message):
    """Means over an epoch, each of shape (replica,)."""

    wasserstein: Tensor
    penalty: Tensor
