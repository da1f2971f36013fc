"""The parameter object of differentially private training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from sklearn.base import BaseEstimator

from vflsynth._validation import Choice, Number, Optional, Rule, check_parameters
from vflsynth.exceptions import PrivacyParameterError
from vflsynth.privacy.events import NeighbouringRelation, Sampler
from vflsynth.privacy.schema import PublicSchema
from vflsynth.registry import register

Mechanism = Literal[
    "kernel_mean_embedding", "dpsgd", "first_layer", "dpsgd_gan", "gs_wgan", "latent_tree"
]

_DEFAULTS = {
    "kernel_mean_embedding": (NeighbouringRelation.ADD_OR_REMOVE_ONE, Sampler.NONE),
    "dpsgd": (NeighbouringRelation.ADD_OR_REMOVE_ONE, Sampler.POISSON),
    "first_layer": (NeighbouringRelation.REPLACE_ONE, Sampler.WITHOUT_REPLACEMENT),
    "dpsgd_gan": (NeighbouringRelation.REPLACE_ONE, Sampler.WITHOUT_REPLACEMENT),
    "gs_wgan": (NeighbouringRelation.REPLACE_ONE, Sampler.WITHOUT_REPLACEMENT),
    "latent_tree": (NeighbouringRelation.ADD_OR_REMOVE_ONE, Sampler.NONE),
}
_NEED_HISTOGRAMS = ("kernel_mean_embedding", "latent_tree")
_POSITIVE = Number(0, closed=(False, True))
_RULES: dict[str, Rule] = {
    "epsilon": Optional(_POSITIVE),
    "delta": Optional(Number(0, 1, closed=(False, False))),
    "noise_multiplier": Optional(_POSITIVE),
    "mechanism": Choice(tuple(_DEFAULTS)),
    "neighbouring_relation": Optional(Choice(tuple(map(str, NeighbouringRelation)))),
    "max_grad_norm": _POSITIVE,
    "n_records": Optional(Number(2, whole=True)),
    "preprocessing_share": Number(0, 1, closed=(True, False)),
    "n_bins": Number(2, whole=True),
    "n_features": Number(2, whole=True),
    "gradient_penalty_at": Choice(("fakes", "records")),
    "n_shards": Optional(Number(2, whole=True)),
}


@register
class GaussianPrivacy(BaseEstimator):  # type: ignore[misc]
    """Differential privacy by Gaussian noise.

    Parameters
    ----------
    epsilon : float, optional
        Budget of everything that is released, all parties and preprocessing included. Noise is
        calibrated so that it is never exceeded. Give this or ``noise_multiplier``, not both.
    delta : float
        Required. Well below one over the number of records; the VFLGAN paper uses 5e-4 for 1,599.
    noise_multiplier : float, optional
        Noise standard deviation over joint sensitivity, instead of ``epsilon``.
    mechanism : str, default="kernel_mean_embedding"
        - "kernel_mean_embedding": one noisy release of marginal histograms and of the joint table's
          mean random Fourier features; generators learn from the release alone (after DP-MERF), as
          `vflsynth.privacy.shrinkage` reads it, and numeric columns then get the published
          marginals (`vflsynth.privacy.quantile_mapping`).
        - "dpsgd": per-example clipping and noise for *all* discriminator parameters.
        - "first_layer": the VFLGAN paper's. Its ε is the budget of the first-layer gradients and
          **not a guarantee for the synthetic data** (see `vflsynth.privacy.first_layer`).
        - "dpsgd_gan": per-example clipping of the whole loss of pairs of a real and a fake record,
          in batches of fixed size, of `WGANGPSynthesizer` only (after Zhang, Ji and Wang 2018).
        - "gs_wgan": discriminators that see disjoint shards of the records, and noise on what they
          tell the generator, of `WGANGPSynthesizer` only (see `vflsynth.privacy.gs_wgan`).
        - "latent_tree": noisy contingency tables, of `DPLTSynthesizer` only.

        `VertiGANSynthesizer` has "dpsgd" and "first_layer".
    neighbouring_relation : {"add_or_remove_one", "replace_one"}, optional
        Default: "replace_one" for "first_layer", "dpsgd_gan" and "gs_wgan", which know no other,
        else "add_or_remove_one".
    max_grad_norm : float, default=1.0
        Clipping bound C in gradient units, of each block that is clipped, by the mechanisms that
        perturb gradients. VFLGAN's code has 1.5 divided by the batch size for "first_layer".
    public_schema : PublicSchema, optional
        Bounds and categories that are known without looking at the records. Ranges and categories
        of columns that it does not list are published with noise, out of ``preprocessing_share``
        (see `vflsynth.privacy.discovery`): stating them is cheaper and better. Types of columns are
        public; do not let a program infer them from the records. "first_layer" scales with private
        statistics and says so in its ledger.
    n_records : int, optional
        Public number of records, which may be rough: the sample rate of "dpsgd" comes from it.
        Required by "dpsgd" with "add_or_remove_one", where the true number is private; default with
        "replace_one": the true number.
    preprocessing_share : float, default=0.2
        Share of the budget (of squared Gaussian-DP mu) for the histograms that scale the columns,
        and for ranges and categories that `public_schema` does not list. 0 scales by the public
        bounds alone ("dpsgd", "dpsgd_gan", "gs_wgan").
    n_bins : int, default=32
        Bins of a numeric column's histogram.
    n_features : int, default=2000
        Random Fourier features, even ("kernel_mean_embedding").
    bandwidths : sequence of float, default=(2.0, 4.0, 8.0)
        Length scales of the kernels, in standard deviations ("kernel_mean_embedding").
    gradient_penalty_at : {"fakes", "records"}, default="fakes"
        Where "dpsgd" takes the gradient penalty: between fakes, where it costs nothing, or between
        real and fake records as WGAN-GP does, where it takes its part of every clipped gradient.
    n_shards : int, optional
        Discriminators of "gs_wgan", each with records of its own. Default: so many that each has
        about 60, as published for MNIST.

    Examples
    --------
    >>> GaussianPrivacy(epsilon=10, delta=5e-4, mechanism="dpsgd", max_grad_norm=2.0)
    GaussianPrivacy(delta=0.0005, epsilon=10, max_grad_norm=2.0, mechanism='dpsgd')
    """

    registry_group: ClassVar[str] = "mechanisms"

    def __init__(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        noise_multiplier: float | None = None,
        mechanism: Mechanism = "kernel_mean_embedding",
        neighbouring_relation: str | None = None,
        max_grad_norm: float = 1.0,
        public_schema: PublicSchema | None = None,
        n_records: int | None = None,
        preprocessing_share: float = 0.2,
        n_bins: int = 32,
        n_features: int = 2000,
        bandwidths: Sequence[float] = (2.0, 4.0, 8.0),
        gradient_penalty_at: Literal["fakes", "records"] = "fakes",
        n_shards: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.noise_multiplier = noise_multiplier
        self.mechanism = mechanism
        self.neighbouring_relation = neighbouring_relation
        self.max_grad_norm = max_grad_norm
        self.public_schema = public_schema
        self.n_records = n_records
        self.preprocessing_share = preprocessing_share
        self.n_bins = n_bins
        self.n_features = n_features
        self.bandwidths = bandwidths
        self.gradient_penalty_at = gradient_penalty_at
        self.n_shards = n_shards

    @property
    def relation(self) -> NeighbouringRelation:
        """The neighbouring relation in force: the one given, or the mechanism's own."""
        if self.neighbouring_relation is None:
            return _DEFAULTS[self.mechanism][0]
        return NeighbouringRelation(self.neighbouring_relation)

    @property
    def sampler(self) -> Sampler:
        """How the mechanism draws batches of real records."""
        return _DEFAULTS[self.mechanism][1]

    def validate(self) -> None:
        """Check all parameters, before any record is read.

        Raises
        ------
        ParameterError
            Naming the parameter, what it is and what it must be.
        """
        check_parameters(type(self).__name__, self.get_params(deep=False), _RULES)
        if (self.epsilon is None) == (self.noise_multiplier is None):
            raise PrivacyParameterError(
                "epsilon",
                self.epsilon,
                f"given, or else noise_multiplier (here {self.noise_multiplier!r}), but not both",
            )
        if self.delta is None:
            raise PrivacyParameterError(
                "delta", None, "given, and well below one over the number of records"
            )
        if (
            self.sampler is Sampler.WITHOUT_REPLACEMENT
            and self.relation is NeighbouringRelation.ADD_OR_REMOVE_ONE
        ):
            raise PrivacyParameterError(
                "neighbouring_relation",
                self.neighbouring_relation,
                f"'replace_one' for the mechanism {self.mechanism!r}: its fixed-size batches or "
                "shards are not accounted for under any other relation",
            )
        if self.gradient_penalty_at == "records" and self.mechanism != "dpsgd":
            raise PrivacyParameterError(
                "gradient_penalty_at",
                self.gradient_penalty_at,
                f"left alone for the mechanism {self.mechanism!r}: only 'dpsgd' has the choice",
            )
        if self.mechanism in _NEED_HISTOGRAMS and self.preprocessing_share == 0:
            raise PrivacyParameterError(
                "preprocessing_share",
                self.preprocessing_share,
                f"more than 0 for the mechanism {self.mechanism!r}, which needs histograms",
            )
        if self.n_features % 2:
            raise PrivacyParameterError("n_features", self.n_features, "even")
        widths = self.bandwidths if isinstance(self.bandwidths, Sequence) else ()
        if not widths or not all(_POSITIVE.accepts(width) for width in widths):
            raise PrivacyParameterError(
                "bandwidths", self.bandwidths, "a sequence of at least one positive number"
            )
        if not isinstance(self.public_schema, PublicSchema | None):
            raise PrivacyParameterError(
                "public_schema", self.public_schema, "a PublicSchema(bounds=..., categories=...)"
            )
        if (
            self.public_schema is None
            and self.preprocessing_share == 0
            and self.mechanism != "first_layer"
        ):
            raise PrivacyParameterError(
                "public_schema",
                None,
                "given where preprocessing_share is 0: bounds and categories cannot be read off "
                "the records for free",
            )
