"""A noisy kernel mean embedding: one release, of which generators learn as long as they like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vflsynth._validation import Number
from vflsynth.exceptions import PrivacyParameterError
from vflsynth.mechanisms.base import POSITIVE, Asked, Cover, HistogramMechanism, Plan
from vflsynth.mechanisms.discriminators import SERVER
from vflsynth.mechanisms.planning import (
    SERVER_TRAINS,
    audience,
    histogram_event,
    ledger_of,
    split_budget,
)
from vflsynth.methods.mean_embedding.embedding import mean_embedding_sensitivity
from vflsynth.privacy.discovery import ColumnCounts
from vflsynth.privacy.events import GaussianRelease, Sampler
from vflsynth.privacy.ledger import LedgerEntry
from vflsynth.registry import register

_COVERS = {
    "NoisyHistograms": Cover("preprocessing", noised=True),
    "WindowWidth": Cover("preprocessing", noised=True),
    "MaskedPoints": Cover("mean embedding", noised=False),
    "SumShares": Cover("mean embedding", noised=False),
    "GeneratorWeights": Cover("mean embedding", noised=True),
}


@dataclass(frozen=True, kw_only=True)
class MeanEmbeddingPlan(Plan):
    """What parties and server work with; see `Plan` for the rest.

    `noise_multiplier` is of the sum of all records' features: noise standard deviation over
    sensitivity. `noise_std` is what every party adds to that sum, in every feature, in units of a
    record's norm.
    """

    noise_multiplier: float
    noise_std: float
    n_features: int
    bandwidths: tuple[float, ...]
    most_megabytes: float


@register
@dataclass(repr=False, eq=False, kw_only=True)
class MeanEmbedding(HistogramMechanism):
    """Noisy histograms of the columns, and the noisy mean of random features of the joint records.

    Parties publish histograms of their columns. They and a server add up random Fourier features of
    all joint records such that nobody sees any (`vflsynth.secure.rotations`), and the sum has every
    party's noise. The server trains all parties' generators on these releases alone, and sends
    every party its own.

    Parameters
    ----------
    **shared
        See `HistogramMechanism`; `preprocessing_share` is more than 0.
    n_features : int, default=2000
        Random Fourier features, even.
    most_megabytes : float, default=100.0
        That a party sends, in 10^6 bytes. Where there are so many records, by the published
        histograms, that all their features would take more, every record counts in so many only,
        drawn at random: two parties send 3.5 bytes of a record and pair of features.
    bandwidths : sequence of float, default=(2.0, 4.0, 8.0)
        Length scales of the kernels, in standard deviations.

    Notes
    -----
    Source: DP-MERF (Harder et al. 2021); see `vflsynth.methods.mean_embedding.embedding`.

    Privacy: recipients of the synthetic data and of the generators are protected, and so are
    parties from each other and from the server, which sees uniform numbers and noisy releases,
    whatever it does (`vflsynth.secure.rotations`). ε counts one party's noise: a party knows its
    own. A party and the server together are not kept from other parties' records. Nor is whoever
    joins the tables. The server has all generators, and
    can draw synthetic records, without the names, units and labels of columns; it can also send
    generators that are no good, which harms the synthetic data and tells it nothing.

    Departs from the paper in what is learned, an estimate that takes errors of the release back
    (`mean_embedding.embedding`), and in that numeric columns get the published marginals after
    training (`vflsynth.columns.bins`).
    """

    name = "kernel_mean_embedding"
    sampler = Sampler.NONE
    one_release = True
    secure_sums = True
    needs_histograms = True
    rules = HistogramMechanism.rules | {
        "n_features": Number(2, whole=True),
        "most_megabytes": POSITIVE,
    }

    n_features: int = 2000
    most_megabytes: float = 100.0
    bandwidths: Sequence[float] = (2.0, 4.0, 8.0)

    def check(self) -> None:
        """Check all parameters, before any record is read; see `Mechanism.check`."""
        super().check()
        if self.n_features % 2:
            raise PrivacyParameterError("n_features", self.n_features, "even")
        widths = self.bandwidths if isinstance(self.bandwidths, Sequence) else ()
        if not widths or not all(POSITIVE.accepts(width) for width in widths):
            raise PrivacyParameterError(
                "bandwidths", self.bandwidths, "a sequence of at least one positive number"
            )

    def plan(self, columns: Mapping[str, ColumnCounts], asked: Asked) -> MeanEmbeddingPlan:
        """Calibrate the noise by numbers of columns alone; see `Mechanism.plan`."""
        self.check()
        share, relation, holder = self.preprocessing_share, self.relation, asked.holder
        noise = split_budget(self, columns, {"histograms": share, "features": 1.0 - share})
        features = GaussianRelease(
            released=f"sum of {self.n_features} random Fourier features of the joint records, with "
            "this noise of every party",
            party=holder or SERVER,
            noise_multiplier=noise["features"],
            sensitivity=mean_embedding_sensitivity(relation),
            relation=relation,
            record_norm=1.0,
        )
        histograms = histogram_event(self, columns, noise["histograms"])
        return MeanEmbeddingPlan(
            ledger=ledger_of(
                self,
                columns,
                [LedgerEntry("preprocessing", histograms), LedgerEntry("mean embedding", features)],
                words="noisy histograms and kernel mean embedding (one-shot)",
                **audience(self, columns, holder=holder, insiders=SERVER_TRAINS, proofs=False),
                public=("random frequencies",),
            ),
            histogram_noise_multiplier=noise["histograms"],
            covers=_COVERS,
            noise_multiplier=noise["features"],
            noise_std=noise["features"] * features.sensitivity,
            n_features=self.n_features,
            bandwidths=tuple(self.bandwidths),
            most_megabytes=self.most_megabytes,
        )
