"""What a release's limits are bound to: the contract that the model was fitted with."""

from __future__ import annotations

from typing import Any, Protocol

from vflsynth.contract import CLAUSES, Contract, Rule
from vflsynth.exceptions import ParameterError
from vflsynth.parameters import to_json
from vflsynth.privacy import PrivacyLedger


class IsModel(Protocol):
    """A fitted synthesizer, as far as a release asks for it."""

    contract: Contract | None
    privacy_ledger_: PrivacyLedger | None
    settings_: dict[str, Any]

    def rules(self) -> tuple[Rule, ...]:
        """Return the rules that every sampled row keeps."""


def changes_since_fit(contract: Contract, model: IsModel | None) -> tuple[str, ...]:
    """Say in sentences what is judged otherwise than agreed before the model was fitted.

    Without a model, nothing binds the contract.
    """
    if model is None:
        return ("No model was given: nothing shows that these limits were agreed before.",)
    bound = model.settings_.get("contract")
    if bound is None:
        return ("The contract of the fit has a function as a rule: no digest binds its limits.",)
    fitted = model.contract or Contract()
    if fitted.digest != bound:
        return ("The model's contract was replaced after the fit: its limits then are not known.",)
    old, new = fitted.release, contract.release
    found = [
        f"The limit of {clause} was {old.limit(clause):g} and is {new.limit(clause):g}."
        for clause in CLAUSES
        if old.limit(clause) != new.limit(clause)
    ]
    for clause in CLAUSES:
        before, now = old.waived.get(clause), new.waived.get(clause)
        if before == now:
            continue
        if now is None:
            found.append(f"{clause} was waived and is not.")
        elif before is None:
            found.append(f"{clause} need not be measured any more: {now}")
        else:
            found.append(f"{clause} is waived for another reason: {now}")
    others = {"parties": "columns", "rules": "rules", "rare_records": "rare records"}
    others["least_records"] = "the fewest records"
    others["readers"] = "readers"
    for name, words in others.items():
        if _written(getattr(fitted, name)) != _written(getattr(contract, name)):
            found.append(f"What the contract says of {words} was changed.")
    return tuple(found)


def _written(value: Any) -> Any:
    try:
        return to_json(value)
    except ParameterError:
        return value
