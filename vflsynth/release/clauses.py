"""Clauses of a release: what was measured, the limit, and the contract that binds it."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from vflsynth.codec import to_json
from vflsynth.contract import CLAUSES, Contract, ReleaseTerms
from vflsynth.exceptions import ParameterError
from vflsynth.reporting import number_text

if TYPE_CHECKING:
    from vflsynth.methods.synthesizer import BaseSynthesizer

Verdict = Literal["passed", "failed", "not measured", "waived", "not applicable", "withheld"]


class _Title(NamedTuple):
    """What a clause is called, how its number is written, and what to do if it fails."""

    words: str
    unit: Literal["share", "count", "number"]
    fix: str
    reads_records: bool = True
    is_audited: bool = False


_LIKENESS = (
    "more records, another method, a larger ε of a private one; across parties a rule, or more "
    "bits_per_record of an AutoregressiveSynthesizer"
)
_RARE = (
    "a larger rare_records for the column, a coarser column (decimals, fewer categories), or one "
    "that is not modelled"
)
_ATTACKED = "a larger limit before the fit, fewer epochs, more records, or a mechanism of privacy"

TITLES = {
    "worst_column": _Title("Worst single column", "number", f"another kind of it; {_LIKENESS}"),
    "worst_pair": _Title("Worst pair of columns", "number", _LIKENESS),
    "mass_at_extremes": _Title(
        "Rows piled up at a column's ends", "share", "wider bounds of the column"
    ),
    "real_extremes": _Title("Real extreme values that come out", "count", "no extremes = true"),
    "copied_rows": _Title("Copied rows", "share", _ATTACKED),
    "copied_values": _Title("Copied values", "share", _RARE),
    "rare_categories": _Title("Rare categories that come out", "count", _RARE),
    "unique_combinations": _Title(
        "Unique combinations that come out", "share", "coarser or fewer quasi-identifiers"
    ),
    "identifiers": _Title(
        "Real identifiers that come out", "share", 'replacement = "pseudonym", or "drop"'
    ),
    "rule_violations": _Title(
        "Rows that break a rule", "share", "a fit with this contract", reads_records=False
    ),
    "incoherent_rows": _Title("Rows whose values do not go together", "share", _LIKENESS),
    "exact_structure": _Title(
        "Rows that break a relation all real rows keep",
        "share",
        "a rule that says it; one about columns of several parties stands at the contract's top",
    ),
    "detection": _Title("Detection by boosted trees (AUC)", "number", _LIKENESS),
    "utility": _Title("Loss of a model trained on it (TSTR beside TRTR)", "number", _LIKENESS),
    "membership": _Title(
        "Membership: the strongest audited attack (AUC)", "number", _ATTACKED, is_audited=True
    ),
    "singling_out": _Title("Singling out", "share", _ATTACKED, is_audited=True),
    "linkability": _Title("Linkability", "share", _ATTACKED, is_audited=True),
    "inference": _Title("Attribute inference", "share", _ATTACKED, is_audited=True),
    "epsilon": _Title(
        "Differential privacy (ε)", "number", "a smaller epsilon", reads_records=False
    ),
}
"""Every clause in words, what its number is, what mends it, whether real records decide it, and
whether it is measured if and only if somebody gives an audit."""


@dataclass(frozen=True)
class Measured:
    """A number to hold against a limit.

    The value is what the limit is for: never a mean over columns or pairs, but that of the worst
    `column` or pair. `says` has what it was measured on, and holds no value of any record. The
    interval has 95 %, where there is one.
    """

    value: float
    says: str
    interval: tuple[float, float] | None = None
    column: Hashable = None


@dataclass(frozen=True)
class NotMeasured:
    """Why there is no number: completes "not measured: ...".

    A clause does not apply if the contract declares nothing that it could be about.
    """

    because: str
    applies: bool = True


@dataclass(frozen=True)
class Clause:
    """One line of a dossier; value and interval are None if nothing was measured."""

    name: str
    title: str
    verdict: Verdict
    says: str
    limit: float
    value: float | None = None
    interval: tuple[float, float] | None = None
    column: Hashable = None

    @classmethod
    def of(cls, name: str, found: Measured | NotMeasured, terms: ReleaseTerms) -> Clause:
        """Hold a measurement against the contract's limit."""
        title, limit = TITLES[name].words, terms.limit(name)
        interval = None
        if isinstance(found, Measured) and TITLES[name].is_audited and found.interval is not None:
            low, high = interval = found.interval
            if low <= limit < high:
                said = "the attacks are too few to tell, the limit lies within their interval"
                found = NotMeasured(f"{said}. {found.says.removesuffix('.')}")
        if isinstance(found, Measured):
            passed = math.isfinite(found.value) and found.value <= limit + 1e-12
            verdict: Verdict = "passed" if passed else "failed"
            value = found.value if math.isfinite(found.value) else None
            return cls(name, title, verdict, found.says, limit, value, found.interval, found.column)
        if not found.applies:
            because = found.because[:1].upper() + found.because[1:]
            return cls(name, title, "not applicable", f"{because}.", limit)
        says = f"Not measured: {found.because}."
        if name in terms.waived:
            says += f" Waived: {terms.waived[name]}"
            return cls(name, title, "waived", says, limit, interval=interval)
        says += " The contract does not waive it."
        return cls(name, title, "not measured", says, limit, interval=interval)

    @property
    def fix(self) -> str:
        """What to do about a clause that does not pass, or nothing."""
        if self.verdict == "failed":
            return f"What helps: {TITLES[self.name].fix}."
        if self.verdict == "not measured" and self.interval is not None:
            return "What helps: more records, or more models attacked; or a waiver that says why."
        return ""

    @property
    def withheld(self) -> Clause:
        """The clause without anything that real records decided, be it that it was measured."""
        title = TITLES[self.name]
        if not title.reads_records:
            return self
        if title.is_audited and self.verdict == "waived" and self.interval is None:
            return self
        return replace(
            self,
            verdict="withheld",
            says="Measured on real records, for the publisher only: the ε of this release does not "
            "pay for publishing it.",
            value=None,
            interval=None,
            column=None,
        )

    def written(self, number: float | None) -> str:
        """Write one of its numbers."""
        if number is None:
            return "–"
        unit = TITLES[self.name].unit
        if unit == "share":
            return f"{number:.2%}"
        return f"{number:,.0f}" if unit == "count" else number_text(number)

    def __str__(self) -> str:
        line = f"{self.verdict:<15} {self.title}: {self.says}"
        if self.value is not None:
            line += f" Counts as {self.written(self.value)}; limit {self.written(self.limit)}."
        return f"{line} {self.fix}".rstrip()

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "name": self.name,
            "title": self.title,
            "verdict": self.verdict,
            "value": self.value,
            "limit": self.limit,
            "interval": None if self.interval is None else list(self.interval),
            "column": None if self.column is None else str(self.column),
            "says": self.says,
        }


assert set(TITLES) == set(CLAUSES)


def changes_since_fit(contract: Contract, model: BaseSynthesizer | None) -> tuple[str, ...]:
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
