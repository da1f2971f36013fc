"""Laws of mechanisms of differential privacy, as values: what they are made of, and their plans."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sklearn.base import BaseEstimator, clone

from vflsynth.exceptions import ParameterError
from vflsynth.privacy import PrivacyLedger
from vflsynth.testing.laws import Case, Check, checks_of, refused, require, same
from vflsynth.testing.noninterference import carriers, check_private


@dataclass(frozen=True)
class MechanismCase(Case[BaseEstimator]):
    """A mechanism whose laws are checked, and how it plans for some public numbers."""

    plan: Callable[[Any], Any]

    def planned(self, **parameters: Any) -> Any:
        """Return the plan of a clone with other parameters."""
        return self.plan(clone(self.value).set_params(**parameters))


def a_budget_is_given_once(case: MechanismCase) -> None:
    """Epsilon or a noise multiplier, and delta."""
    for parameters, named in (
        ({"epsilon": None, "noise_multiplier": None}, "epsilon"),
        ({"epsilon": 1.0, "noise_multiplier": 1.0}, "epsilon"),
        ({"delta": None}, "delta"),
        ({"epsilon": -1.0, "noise_multiplier": None}, "epsilon"),
    ):
        with refused(ParameterError, f"{parameters}", says=named):
            clone(case.value).set_params(**parameters).check()


def noise_is_calibrated_to_epsilon(case: MechanismCase) -> None:
    """The ledger's epsilon never exceeds what was asked for, and rises with it."""
    spent = [0.0]
    for epsilon in (1.0, 2.0, 8.0):
        ledger = case.planned(epsilon=epsilon, noise_multiplier=None).ledger
        spent.append(ledger.epsilon())
        require(
            spent[-2] < spent[-1] <= epsilon,
            f"asked for an epsilon of {epsilon:g}, the ledger has {spent[-1]:g}, and had "
            f"{spent[-2]:g} before",
        )
        same(ledger.target_epsilon, epsilon, "the ledger's target_epsilon")
        same(ledger.delta, case.value.get_params()["delta"], "the ledger's delta")


def more_noise_costs_less(case: MechanismCase) -> None:
    """Epsilon falls with the noise multiplier."""
    found = [
        case.planned(epsilon=None, noise_multiplier=noise).ledger.epsilon()
        for noise in (2.0, 4.0, 8.0)
    ]
    require(found[0] > found[1] > found[2], f"noise of 2, 4 and 8 costs {found}")


def a_plan_depends_on_public_numbers_alone(case: MechanismCase) -> None:
    """The same parameters and numbers make the same ledger."""
    same(case.plan(case.value).ledger, case.plan(case.value).ledger, "a second plan's ledger")


def the_ledger_survives_json(case: MechanismCase) -> None:
    """It is saved with every model."""
    ledger = case.plan(case.value).ledger
    written = json.dumps(ledger.to_dict(), allow_nan=False)
    same(PrivacyLedger.from_dict(json.loads(written)), ledger, "what is read back")


def the_ledger_says_what_it_is_about(case: MechanismCase) -> None:
    """A claim, at least one release, and against whom."""
    ledger = case.plan(case.value).ledger
    for name in ("mechanism", "claim", "entries", "protected_against"):
        require(getattr(ledger, name), f"the ledger's {name} is empty")


def every_message_is_paid_for_by_an_entry(case: MechanismCase) -> None:
    """What leaves a party, made of real records, is covered by a release of the ledger."""
    plan = case.plan(case.value)
    purposes = {entry.purpose for entry in plan.ledger.entries}
    for message, cover in plan.covers.items():
        require(
            cover.purpose in purposes,
            f"{message} is covered by {cover.purpose!r}; the ledger has {sorted(purposes)}",
        )


def nothing_but_releases_shows(case: MechanismCase) -> None:
    """Of what any synthesizer that can have it makes of the same releases, see `carriers`."""
    for synthesizer in carriers(case.value):
        check_private(synthesizer)


def mechanism_checks(mechanism: BaseEstimator, plan: Callable[[Any], Any]) -> list[Check]:
    """Return one check for each law of a mechanism of differential privacy.

    Parameters
    ----------
    mechanism : Mechanism
        Calibrated to an epsilon.
    plan : callable
        From a mechanism of this class to its plan, for public numbers of your choice: numbers of
        columns and of records.
    """
    return checks_of(MechanismCase(mechanism, plan))
