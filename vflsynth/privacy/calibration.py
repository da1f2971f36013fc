"""From a budget to noise, always on the safe side of the target, and steps that are paid for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from vflsynth.exceptions import PrivacyBudgetError, PrivacyParameterError
from vflsynth.privacy.accountants import Accountant
from vflsynth.privacy.events import PrivacyEvent
from vflsynth.privacy.gaussian_dp import mu_of_gaussian

_LARGEST_LOG_NOISE = math.log(1e7)


def split_gaussian_budget(
    epsilon: float, delta: float, shares: Mapping[str, float]
) -> dict[str, float]:
    """Noise multipliers of several unsampled Gaussian releases that together spend (ε, δ).

    Parameters
    ----------
    epsilon, delta : float
        The budget of all releases together.
    shares : mapping of str to float
        Share of the squared Gaussian-DP mu for every release; positive, adding up to 1.

    Returns
    -------
    dict of str to float
        Noise multiplier (std over sensitivity) of every release.

    Raises
    ------
    PrivacyParameterError
        If the shares are not positive or do not add up to 1.

    Notes
    -----
    Composition is exact: with noise multipliers σ_k the whole has ``mu² = Σ 1 / σ_k²``.
    """
    if not shares or min(shares.values()) <= 0.0 or abs(sum(shares.values()) - 1.0) > 1e-9:
        raise PrivacyParameterError("shares", dict(shares), "positive numbers that add up to 1")
    mu = mu_of_gaussian(epsilon, delta)
    # Round up by more than the rounding errors of composing the parts again.
    return {name: (1.0 + 1e-12) / (mu * math.sqrt(share)) for name, share in shares.items()}


def calibrate_noise_multiplier(
    event_for: Callable[[float], PrivacyEvent],
    *,
    epsilon: float,
    delta: float,
    accountant: Accountant,
    relative_tolerance: float = 1e-4,
) -> float:
    """Smallest noise multiplier found whose event stays within (ε, δ).

    Parameters
    ----------
    event_for : callable
        Builds the event of a run from its noise multiplier; more noise must mean a smaller ε.
    epsilon, delta : float
        The budget, never exceeded.
    accountant : Accountant
        The search starts from its `cheap_bound` and refines with its `for_search`.
    relative_tolerance : float, default=1e-4
        How far above the smallest sufficient noise multiplier the result may be.

    Raises
    ------
    PrivacyBudgetError
        If no amount of noise meets the target, or none is needed.
    UnsupportedEventError
        If the accountant is not valid for the event.
    """
    if not (math.isfinite(epsilon) and epsilon > 0.0):
        raise PrivacyParameterError("epsilon", epsilon, "a positive finite number")
    search = accountant.for_search(event_for(1.0))

    def log_excess(log_noise: float) -> float:
        try:
            spent = search.epsilon(event_for(math.exp(log_noise)), delta)
        except PrivacyParameterError as error:
            if error.name != "noise_multiplier":
                raise
            raise PrivacyBudgetError(
                f"epsilon {epsilon:g} leaves so little noise that {search.name} does not account "
                "for it. Fix: a smaller epsilon"
            ) from error
        return math.log(max(spent, 1e-12) / epsilon)

    high, factor = 0.0, math.log(2.0)
    if (cheap := accountant.cheap_bound(event_for(1.0))) is not None:
        enough = calibrate_noise_multiplier(
            event_for, epsilon=epsilon, delta=delta, accountant=cheap, relative_tolerance=1e-2
        )
        high = math.log(enough)
        factor = math.log(1.1)
        if log_excess(high) > 0.0:  # the coarse search version is the looser of the two bounds here
            return math.exp(high)
    low = high - factor
    while log_excess(high) > 0.0:
        low, high = high, high + factor
        if high > _LARGEST_LOG_NOISE:
            raise PrivacyBudgetError(
                f"epsilon {epsilon} at delta {delta} is out of reach of {accountant.name} even at "
                f"noise multiplier {math.exp(_LARGEST_LOG_NOISE):.0g}. Fix: fewer steps, a smaller "
                "sample rate or another accountant."
            )
    while log_excess(low) <= 0.0:
        factor *= 2.0  # the cheap bound may be many times too high, as Wang's is at small epsilon
        low, high = low - factor, low
        if low < -_LARGEST_LOG_NOISE:
            raise PrivacyBudgetError(
                f"epsilon {epsilon} is met with almost no noise at all: the event releases nothing "
                "in any step. Fix: check the number of steps."
            )
    from scipy.optimize import brentq

    root = brentq(log_excess, low, high, xtol=relative_tolerance / 4.0, rtol=1e-9)
    margin = relative_tolerance / 2.0
    while log_excess(root) > 0.0:  # found from either side, returned from the safe one
        root += margin
    return math.exp(root)


class StepBudget:
    """Counts private steps and refuses the one that would overshoot, before it is taken.

    Parameters
    ----------
    steps : int
        Number of steps that are paid for, from the calibrated event.

    Attributes
    ----------
    taken : int
        Steps taken so far.
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.taken = 0

    def take(self) -> None:
        """Pay for one step; call it before the records of the step are read.

        Raises
        ------
        PrivacyBudgetError
            If all steps are spent.
        """
        if self.taken >= self.steps:
            raise PrivacyBudgetError(
                f"All {self.steps} private steps are spent; one more would exceed epsilon. "
                "Fix: stop training, or start again with a larger budget or more noise."
            )
        self.taken += 1
