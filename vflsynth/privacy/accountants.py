"""Accountants: events in, ε out, and a named refusal where the theory does not apply.

All accept unsampled releases under either neighbouring relation, and beyond those

| accountant | sampler, neighbouring relation | source |
|---|---|---|
| `GaussianDPAccountant` | nothing else | exact (`gaussian_dp`) |
| `WangAccountant` | without replacement, replace one | VFLGAN Prop. 4, by hand |
| `RDPAccountant` | Poisson, add or remove; without replacement, replace one | dp-accounting |
| `PLDAccountant` | Poisson, add or remove; Poisson, replace one | dp-accounting |

All of them are upper bounds, so the smallest of the valid ones is valid too. Opacus' ``gdp``, a
central limit approximation *below* the true value, is deliberately absent.
"""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from types import ModuleType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from vflsynth.exceptions import MissingExtraError, PrivacyParameterError, UnsupportedEventError
from vflsynth.privacy.events import (
    NeighbouringRelation,
    PrivacyEvent,
    SampledRelease,
    Sampler,
    label_releases,
    sampled_releases,
)
from vflsynth.privacy.gaussian_dp import epsilon_of_gaussian
from vflsynth.reporting import quiet

ADD_REMOVE, REPLACE = NeighbouringRelation.ADD_OR_REMOVE_ONE, NeighbouringRelation.REPLACE_ONE
Pair = tuple[Sampler, NeighbouringRelation]
_UNSAMPLED: frozenset[Pair] = frozenset({(Sampler.NONE, ADD_REMOVE), (Sampler.NONE, REPLACE)})


class Accountant(ABC):
    """Upper bound on ε for events of declared sampling schemes and neighbouring relations."""

    supported: frozenset[Pair]
    """Pairs of sampler and relation for which the bound is a theorem."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What the ledger calls this accountant."""

    @abstractmethod
    def _epsilon(self, parts: Sequence[SampledRelease], delta: float) -> float:
        """Bound for parts that are supported, have noise and at least one step."""

    def epsilon(self, event: PrivacyEvent, delta: float) -> float:
        """Bound ε of an event at δ.

        Parameters
        ----------
        event : PrivacyEvent
        delta : float
            In (0, 1).

        Returns
        -------
        float
            0 if nothing was released, infinity if something was released without noise.

        Raises
        ------
        UnsupportedEventError
            If a part's pair of sampler and relation is not in `supported`.
        PrivacyParameterError
            If δ is out of range.

        Notes
        -----
        What fails with probability p in either of two neighbouring tables, and otherwise is (ε, δ)
        private, is (ε - log(1 - p), δ + p) private: one table's failures are part of δ, and what
        does not fail has probability 1 - p at least in the other.
        """
        if not 0.0 < delta < 1.0:
            raise PrivacyParameterError("delta", delta, "a number strictly between 0 and 1")
        self._require_theory(event)
        parts = [part for part in sampled_releases(event) if part.steps > 0]
        if not parts:
            return 0.0
        if any(part.joint_noise_multiplier == 0.0 for part in parts):
            return math.inf
        failing = sum(p.steps * each.failure_probability for p in parts for each in p.releases)
        if failing >= delta:
            return math.inf
        nameless = tuple(  # parties that release alike have one bound
            replace(part, releases=tuple(replace(r, released="", party="") for r in part.releases))
            for part in parts
        )
        return max(0.0, _bound(self, nameless, delta - failing)) - math.log1p(-failing)

    def supports(self, event: PrivacyEvent) -> bool:
        """Whether `epsilon` accepts the event."""
        try:
            self._require_theory(event)
        except UnsupportedEventError:
            return False
        return True

    def for_search(self, event: PrivacyEvent) -> Accountant:
        """Return a faster version whose bound is nowhere below, for many events like this one."""
        return self

    def cheap_bound(self, event: PrivacyEvent) -> Accountant | None:
        """Return a much faster accountant that also covers the event, if there is one."""
        return None

    def _require_theory(self, event: PrivacyEvent) -> None:
        if label_releases(event):
            raise UnsupportedEventError(
                f"{self.name} counts Gaussian noise, and this is randomised response. Fix: epsilon "
                "of a ledger or an account, which add its epsilons up"
            )
        for part in sampled_releases(event):
            pair = part.sampler, part.relation
            if pair not in self.supported:
                valid = [a.name for a in ACCOUNTANTS if pair in a.supported]
                instead = " or ".join(valid) or "another sampler; no accountant covers the pair"
                raise UnsupportedEventError(
                    f"{self.name} is not valid for the sampler {part.sampler.value!r} under the "
                    f"neighbouring relation {part.relation.value!r}. Fix: use {instead}."
                )
            if pair == (Sampler.POISSON, REPLACE) and part.joint_record_noise_multiplier is None:
                raise UnsupportedEventError(
                    f"{self.name} covers Poisson sampling under 'replace_one' only for sums over "
                    "records. Fix: state the record_norm of every release, if it is such a sum."
                )


@lru_cache(maxsize=1024)
def _bound(accountant: Accountant, parts: tuple[SampledRelease, ...], delta: float) -> float:
    """Remember bounds: a plan is calibrated again for every fit, and read again by its ledger."""
    return accountant._epsilon(parts, delta)


@dataclass(frozen=True)
class GaussianDPAccountant(Accountant):
    """Exact composition of Gaussian releases without sampling (see `gaussian_dp`)."""

    name = "Gaussian DP, exact"
    supported = _UNSAMPLED

    def _epsilon(self, parts: Sequence[SampledRelease], delta: float) -> float:
        mu = math.hypot(*(math.sqrt(p.steps) / p.joint_noise_multiplier for p in parts))
        return epsilon_of_gaussian(mu, delta)


@dataclass(frozen=True)
class WangAccountant(Accountant):
    """The accountant of the VFLGAN paper: Rényi DP, sampling without replacement, replace one.

    Parameters
    ----------
    conversion : {"classic", "improved"}, default="classic"
        From Rényi DP to (ε, δ). "classic" is VFLGAN Eq. 1 (Mironov 2017), with which the paper's
        budgets come out; "improved" is Canonne, Kamath and Steinke 2020, Prop. 12, never larger.

    Notes
    -----
    Source: VFLGAN Prop. 2 and 4 (Wang, Balle and Kasiviswanathan 2019, Theorem 9) with ε(∞) = ∞.

    The terms of order three and above do not vanish with the noise: at red wine's sampling rate and
    steps ε is still 1.26 at noise multiplier 100. For small targets use `RDPAccountant`.
    """

    conversion: Literal["classic", "improved"] = "classic"
    supported = _UNSAMPLED | {(Sampler.WITHOUT_REPLACEMENT, REPLACE)}

    @property
    def name(self) -> str:
        """Name in the ledger."""
        return f"RDP, Wang et al. 2019, {self.conversion} conversion"

    def _epsilon(self, parts: Sequence[SampledRelease], delta: float) -> float:
        orders = _wang_table()[0]
        rdp = np.zeros(len(orders))
        for part in parts:
            if part.sampler is Sampler.NONE:
                per_step = orders / (2.0 * part.joint_noise_multiplier**2)
            else:
                per_step = wang_rdp(part.joint_noise_multiplier, part.sample_rate)
            rdp += part.steps * per_step
        epsilon = rdp - math.log(delta) / (orders - 1.0)
        if self.conversion == "improved":
            epsilon += np.log1p(-1.0 / orders) - np.log(orders) / (orders - 1.0)
        return float(epsilon.min())


def wang_rdp(noise_multiplier: float, sample_rate: float) -> npt.NDArray[np.float64]:
    """Rényi DP, in nats, of one step of the Gaussian mechanism on a batch without replacement.

    Of the orders of `_wang_table`, shape (order,), for a noise standard deviation over the
    replace-one sensitivity. Source: VFLGAN Prop. 4 with ``ε(α) = α / (2 σ²)`` and ε(∞) = ∞, capped
    by ε(α) as sampling never harms. Sums are taken in logarithms: at σ = 0.1 the largest term is
    exp(5e7).
    """
    from scipy.special import logsumexp

    orders, log_binomials, j = _wang_table()
    base = 1.0 / (2.0 * noise_multiplier**2)  # ε(α) = base * α
    log_q = math.log(sample_rate)
    second = 2.0 * base
    # min{4 (e^ε(2) - 1), 2 e^ε(2)}
    log_expm1 = second + math.log(-math.expm1(-second))
    log_terms = log_binomials + j * log_q + (j - 1.0) * j * base + math.log(2.0)
    log_terms[:, 0] = (
        2.0 * log_q + log_binomials[:, 0] + min(math.log(4.0) + log_expm1, math.log(2.0) + second)
    )
    log_sum = np.asarray(logsumexp(log_terms, axis=1), dtype=np.float64)
    rdp: npt.NDArray[np.float64] = np.logaddexp(0.0, log_sum) / (orders - 1.0)
    return np.minimum(rdp, base * orders)


@lru_cache(maxsize=1)
def _wang_table() -> tuple[
    npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]
]:
    """Orders α, log binomials (α, j) with -inf for j > α, and j = 2, 3, …."""
    from scipy.special import gammaln

    sparse = np.unique(np.geomspace(257, 1024, 40).round())
    orders = np.concatenate([np.arange(2.0, 257.0), sparse])
    j = np.arange(2.0, orders[-1] + 1.0)
    beyond = j > orders[:, None]
    rest = np.where(beyond, 0.0, orders[:, None] - j)
    log_binomials = gammaln(orders[:, None] + 1.0) - gammaln(j + 1.0) - gammaln(rest + 1.0)
    log_binomials[beyond] = -np.inf
    return orders, log_binomials, j


@dataclass(frozen=True)
class RDPAccountant(Accountant):
    """Rényi DP by dp-accounting (needs the extra ``privacy``).

    Notes
    -----
    Under replace-one dp-accounting's RDP reads its noise multiplier as std / (2C), which is ours;
    its PLD reads std / C (google/differential-privacy issue 378). ``tests/unit/privacy`` pins both.
    """

    name = "RDP, dp-accounting"
    supported = _UNSAMPLED | {(Sampler.POISSON, ADD_REMOVE), (Sampler.WITHOUT_REPLACEMENT, REPLACE)}

    def cheap_bound(self, event: PrivacyEvent) -> Accountant | None:
        """Return the slightly looser Wang bound where dp-accounting is slow: no replacement."""
        parts = sampled_releases(event)
        slow = any(part.sampler is Sampler.WITHOUT_REPLACEMENT for part in parts)
        return WangAccountant("improved") if slow else None

    def _epsilon(self, parts: Sequence[SampledRelease], delta: float) -> float:
        dp_accounting = _dp_accounting(self.name)
        # Without replacement the theorem is for integer orders; others are interpolated, slowly.
        integers_only = any(part.sampler is Sampler.WITHOUT_REPLACEMENT for part in parts)
        accountant = dp_accounting.rdp.RdpAccountant(
            orders=_INTEGER_ORDERS if integers_only else _FRACTIONAL_ORDERS + _INTEGER_ORDERS,
            neighboring_relation=_dp_accounting_relation(parts[0].relation),
        )
        for part in parts:
            noise = min(part.joint_noise_multiplier, _MOST_NOISE)
            lost = _ROUNDING * noise**2 / part.sample_rate
            if lost > 1e-9 and part.sampler is not Sampler.NONE:
                noise /= math.sqrt(1.0 + lost)
            event = dp_accounting.GaussianDpEvent(noise)
            if part.sampler is Sampler.POISSON:
                event = dp_accounting.PoissonSampledDpEvent(part.sample_rate, event)
            elif part.sampler is Sampler.WITHOUT_REPLACEMENT:
                # Only the ratio enters the bound; exact for up to 10^9 records.
                rate = Fraction(part.sample_rate).limit_denominator(10**9)
                event = dp_accounting.SampledWithoutReplacementDpEvent(
                    rate.denominator, rate.numerator, event
                )
            # One line of log per order that is left out, which only loosens the bound.
            with quiet(logging.ERROR, "absl"):
                accountant.compose(event, part.steps)
        return float(accountant.get_epsilon(delta))


_FRACTIONAL_ORDERS = tuple(1.0 + tenths / 10.0 for tenths in range(1, 100) if tenths % 10)
# Sparser above 32, as dp-accounting's cost without replacement grows fast: only ε below about
# log(1/δ) / 32 is decided there, and it changes slowly with the order.
_INTEGER_ORDERS = tuple(map(float, (*range(2, 33), *range(36, 65, 4), 72, 80, 96, 128, 256, 512)))

# A sampled step tells about (rate / noise)**2, read off logarithms of terms as large as the rate.
_ROUNDING = 1e-13  # of 1 / noise**2, times the rate: ten times what exact terms lie above it
_MOST_NOISE = 1e4  # more counts as this: dp-accounting rounds what it tells to nothing, or fails


@dataclass(frozen=True)
class PLDAccountant(Accountant):
    """Privacy loss distributions by dp-accounting (needs the extra ``privacy``).

    Parameters
    ----------
    value_discretization_interval : float, default=1e-4
        Width of a bin of privacy loss, in nats. Always rounded to the safe side; wider is faster.
        With noise multipliers below 0.5, whose losses are large, bins are wider, in proportion.

    Notes
    -----
    Poisson sampling under replace-one is accounted for sums over records of terms of bounded norm,
    so every release must state its ``record_norm``.
    """

    value_discretization_interval: float = 1e-4
    name = "PLD, dp-accounting"
    supported = _UNSAMPLED | {(Sampler.POISSON, ADD_REMOVE), (Sampler.POISSON, REPLACE)}

    def for_search(self, event: PrivacyEvent) -> PLDAccountant:
        """Return one with wider bins: a few times faster, for ε about half a percent higher.

        Rounding errors add up over the steps with the square of the width, hence the root.
        """
        steps = sum(part.steps for part in sampled_releases(event))
        width = min(1e-3, 0.2 / math.sqrt(max(1, steps)))
        return replace(
            self, value_discretization_interval=max(width, self.value_discretization_interval)
        )

    def cheap_bound(self, event: PrivacyEvent) -> Accountant | None:
        """Return the Rényi accountant unless it does not cover the event."""
        return rdp if (rdp := RDPAccountant()).supports(event) else None

    def _epsilon(self, parts: Sequence[SampledRelease], delta: float) -> float:
        relation = parts[0].relation
        # Without this 3,000 steps at 0.02 take hours; ε, a six-figure number, is .3% higher.
        least = min(part.joint_noise_multiplier for part in parts)
        if least < _NEXT_TO_NO_NOISE:
            raise PrivacyParameterError(
                "noise_multiplier", least, f"at least {_NEXT_TO_NO_NOISE}: ε is in the thousands"
            )
        coarse = _COARSE / least**2 if least < _LITTLE_NOISE else 0.0
        width = max(self.value_discretization_interval, coarse)
        distributions = _dp_accounting(self.name).pld.privacy_loss_distribution
        composed = distributions.identity(width)
        for part in parts:
            noise_multiplier = part.joint_noise_multiplier
            if part.relation is REPLACE:
                # dp-accounting's PLD reads std / C and doubles the distance itself.
                noise_multiplier *= 2.0
                if part.sampler is Sampler.POISSON:
                    noise_multiplier = part.joint_record_noise_multiplier or 0.0
            sample_rate = part.sample_rate if part.sampler is Sampler.POISSON else None
            # About the mu of all steps. What reveals much has a long distribution: it is not kept.
            spread = part.sample_rate * math.sqrt(
                part.steps * math.expm1(min(noise_multiplier**-2, 99.0))
            )
            make = _pld if spread < 10.0 else _pld.__wrapped__
            composed = composed.compose(
                make(width, relation, noise_multiplier, sample_rate, part.steps)
            )
        return float(composed.get_epsilon_for_delta(delta))


@lru_cache(maxsize=16)
def _pld(
    width: float,
    relation: NeighbouringRelation,
    noise_multiplier: float,
    sample_rate: float | None,
    steps: int,
) -> Any:
    """Compose one part with itself, as dp-accounting's own accountant does.

    It is remembered because most of the time goes into parts that stay: histograms while training
    is calibrated, and what a ledger's ε, shares and parties have in common.
    """
    dp_accounting = _dp_accounting("dp-accounting")
    make = dp_accounting.pld.privacy_loss_distribution.from_gaussian_mechanism
    options = {
        "value_discretization_interval": width,
        "neighboring_relation": _dp_accounting_relation(relation),
    }
    if sample_rate is None:  # many Gaussians are one
        return make(noise_multiplier / math.sqrt(steps), **options)
    return make(noise_multiplier, sampling_prob=sample_rate, **options).self_compose(steps)


_NEXT_TO_NO_NOISE, _LITTLE_NOISE, _COARSE = 0.003, 0.5, 0.005


ACCOUNTANTS: tuple[Accountant, ...] = (
    GaussianDPAccountant(),
    PLDAccountant(),
    RDPAccountant(),
    WangAccountant("improved"),
    WangAccountant("classic"),
)
"""One of each, tightest theory first."""


def valid_accountants(event: PrivacyEvent) -> tuple[Accountant, ...]:
    """Return the accountants whose theory covers every part of an event."""
    return tuple(accountant for accountant in ACCOUNTANTS if accountant.supports(event))


def _dp_accounting_relation(relation: NeighbouringRelation) -> object:
    relations = _dp_accounting("dp-accounting").NeighboringRelation
    return relations.REPLACE_ONE if relation is REPLACE else relations.ADD_OR_REMOVE_ONE


def _dp_accounting(feature: str) -> ModuleType:
    try:
        import dp_accounting
        import dp_accounting.pld
        import dp_accounting.rdp
    except ImportError as error:
        raise MissingExtraError(feature, "dp-accounting", "privacy") from error
    module: ModuleType = dp_accounting
    return module
