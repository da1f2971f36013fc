"""The VFLGAN paper's mechanism: noise on the gradients of the discriminators' first layers.

It bounds what the *noisy first-layer gradients* reveal. It does not protect the synthetic data:
every other layer is trained on raw records, and the generators learn through them (the paper's
Theorem 1 takes those layers for data-independent). It is here for reproduction and comparison.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from vflsynth.exceptions import PrivacyParameterError
from vflsynth.mechanisms.base import CLIPPING, Asked, Cover, Mechanism, Plan
from vflsynth.mechanisms.discriminators import Discriminators
from vflsynth.mechanisms.planning import (
    PARTIES_KNOW_BATCHES,
    RECIPIENTS,
    SERVER_SEES_FEATURES,
    WHO_JOINS,
    calibrate,
    delta_of,
    sample_rate_of,
)
from vflsynth.privacy.accountants import Accountant, RDPAccountant, WangAccountant
from vflsynth.privacy.discovery import ColumnCounts
from vflsynth.privacy.dpsgd import clip_factors, scaled
from vflsynth.privacy.events import GaussianRelease, NeighbouringRelation, SampledRelease, Sampler
from vflsynth.privacy.ledger import LedgerEntry, PrivacyLedger
from vflsynth.privacy.noise import DISCRETE_NOISE
from vflsynth.privacy.releases import Grid
from vflsynth.registry import Choice, register


def clip_gradient(gradient: Sequence[Tensor], max_grad_norm: float) -> list[Tensor]:
    """Scale a whole-batch gradient, of parts (replica, ...), down to C, one norm per replica.

    A gradient that is not finite becomes zero: no clip factor could bound it. Source: VFLGAN §3.4,
    Eq. 20. The norm is that of the *batch* gradient, so the sensitivity is 2C whatever one record
    does to it, and the batch size does not help.
    """
    squares = [part.double().square().flatten(1).sum(1) for part in gradient]
    factor = clip_factors(torch.stack(squares).sum(0).sqrt(), max_grad_norm)  # (replica,)
    return [scaled(part, factor.view(-1, *[1] * (part.dim() - 1))) for part in gradient]


def perturb_gradient(
    gradient: Sequence[Tensor],
    max_grad_norm: float,
    noise_multiplier: float,
    *,
    rng: torch.Generator | None = None,
) -> list[Tensor]:
    """Clip a whole-batch gradient and add discrete Gaussian noise to every coordinate.

    The noise has standard deviation ``noise_multiplier * 2 * max_grad_norm``; `rng` is for tests
    only. Source: VFLGAN §3.4, Eq. 21, noise as printed. Departs from the reference code, whose
    red-wine scripts add one scalar to the whole matrix: then every projection orthogonal to the
    all-ones vector is released exactly.
    """
    grid = Grid.of(noise_multiplier * first_layer_sensitivity(max_grad_norm))
    return [grid.release_tensor(part, rng=rng) for part in clip_gradient(gradient, max_grad_norm)]


def first_layer_sensitivity(max_grad_norm: float) -> float:
    """L2 sensitivity of a clipped batch gradient when one record is replaced: 2C."""
    if not max_grad_norm > 0.0:
        raise PrivacyParameterError("max_grad_norm", max_grad_norm, "a positive number")
    return 2.0 * max_grad_norm


_COVERS = {
    "DiscriminatorFeatures": Cover("training", noised=False),
    "BackboneGradients": Cover("training", noised=False),
}
_NOT_PROTECTED = {
    Discriminators.LOCAL_AND_SHARED: (SERVER_SEES_FEATURES, PARTIES_KNOW_BATCHES),
    Discriminators.PRIVATE: (
        "the server: it sees backbone gradients, which come through layers that are trained on raw "
        "records",
        PARTIES_KNOW_BATCHES,
    ),
    Discriminators.JOINED: (WHO_JOINS,),
}
_WITHOUT_NOISE = {
    Discriminators.LOCAL_AND_SHARED: (
        "all layers above the first, private heads and shared discriminator: raw gradients",
        "the records themselves, which the released features are computed from again",
    ),
    Discriminators.PRIVATE: (
        "all layers above the first, in every party: raw gradients",
        "private heads and shared backbone of the generators: they learn through those layers",
    ),
    Discriminators.JOINED: (
        "all layers above the first: raw gradients",
        "the generator: it learns through those layers",
    ),
}


@dataclass(frozen=True, kw_only=True)
class FirstLayerPlan(Plan):
    """What every owner of a first layer works with: `max_grad_norm` bounds a batch's gradient."""

    max_grad_norm: float
    noise_multiplier: float


@register
@dataclass(repr=False, eq=False, kw_only=True)
class FirstLayer(Mechanism):
    """A clipped and noisy gradient of the first layer; **no guarantee for the synthetic data**.

    Every party scales its batch's gradient of its discriminator's first layer down to a bound and
    adds noise. Its ε is the budget of these gradients alone: all other layers learn from raw
    records, and the generators through them. It is for reproduction and comparison.

    Parameters
    ----------
    **shared
        See `Mechanism`; the neighbouring relation is "replace_one".
    max_grad_norm : float, default=1.0
        Clipping bound C, in gradient units, of the gradient of a whole batch. VFLGAN's code has 1.5
        divided by the batch size.
    calibration : {"tight", "paper"}, default="tight"
        By which bound noise is calibrated to `epsilon`. "tight" is dp-accounting's by Rényi
        divergences, which comes with the extra ``privacy``. "paper" is Proposition 4, which gave
        the paper's experiments their noise: with its red wine 1.1, 1.1 and 64 times as much at ε
        10, 5 and 1, with its Adult 1.2 times as much at ε 1.

    Notes
    -----
    Source: VFLGAN §3.4, Eqs. 20 and 21, Proposition 4 for the accounting.

    Privacy: nobody is protected as far as the synthetic data are concerned. Columns are scaled with
    private statistics; the ledger says so.

    Departs from the paper, which states the budget of one party's gradient: the same record moves
    all parties' gradients, so that for N parties the same ε needs ``sqrt(N)`` times the noise.
    """

    name = "first_layer"
    protects_synthetic_data = False
    sampler = Sampler.WITHOUT_REPLACEMENT
    default_relation = NeighbouringRelation.REPLACE_ONE
    rules = Mechanism.rules | {"max_grad_norm": CLIPPING, "calibration": Choice(("tight", "paper"))}

    max_grad_norm: float = 1.0
    calibration: Literal["tight", "paper"] = "tight"

    def plan(self, columns: Mapping[str, ColumnCounts], asked: Asked) -> FirstLayerPlan:
        """Calibrate the noise for all parties together; see `Mechanism.plan`."""
        self.check()
        length = asked.plain
        assert length is not None, "the method says how it trains without privacy"
        rate = sample_rate_of(length, asked.n_records)

        def training(noise_multiplier: float) -> SampledRelease:
            releases = tuple(
                GaussianRelease(
                    released="clipped batch gradient of the first layer",
                    party=party,
                    noise_multiplier=noise_multiplier,
                    sensitivity=first_layer_sensitivity(self.max_grad_norm),
                    relation=self.relation,
                )
                for party in columns
            )
            return SampledRelease(releases, self.sampler, rate, length.steps)

        bounds: dict[str, Accountant] = {"tight": RDPAccountant(), "paper": WangAccountant()}
        noise = calibrate(self, training, bounds[self.calibration])
        ledger = PrivacyLedger(
            mechanism="perturbed first-layer gradients (the VFLGAN paper's)",
            claim=(
                "ε bounds what the noisy gradients of the discriminators' first layers reveal. The "
                "generators also learn through all other layers, which are trained on raw records."
            ),
            covers_synthetic_data=False,
            delta=delta_of(self),
            target_epsilon=self.epsilon,
            entries=(LedgerEntry("training", training(noise)),),
            protected_against=("nobody, as far as the synthetic data are concerned",),
            not_protected_against=(RECIPIENTS, *_NOT_PROTECTED[asked.owners]),
            not_covered=(
                *_WITHOUT_NOISE[asked.owners],
                "scaling, category lists and the choice of the best epoch: read off the records",
            ),
            noise=DISCRETE_NOISE,
            public=("number of records", "sample rate and number of steps"),
        )
        return FirstLayerPlan(
            ledger=ledger,
            length=length,
            covers=_COVERS,
            max_grad_norm=self.max_grad_norm,
            noise_multiplier=noise,
        )
