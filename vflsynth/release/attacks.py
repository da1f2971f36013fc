"""What audits found, as clauses: membership, and the three questions of WP216.

An audit is read in the form that it has as JSON, so that one made elsewhere, at another time,
counts like one that was just made. Its targets' keys stay unread.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from vflsynth.exceptions import ParameterError
from vflsynth.release.clauses import Measured, NotMeasured

if TYPE_CHECKING:
    from vflsynth.audit import AuditReport, Criteria, Disclosure

QUESTIONS = {
    "singling_out": "singling out",
    "linkability": "linkability",
    "inference": "attribute inference",
}
"""Clauses about the questions of WP216, and what `vflsynth.audit` calls these."""


def limit_shown_by(n_records: int) -> float:
    """Return the limit of the three questions that an audit of so many records can show.

    Half of the records is in the model and half is not, and at most 1,000 of each are attacked. If
    half of the attacks on each succeed, which is the widest, 19 of 20 audits of a model that tells
    nothing have an interval of 95 % whose upper end is below the limit.

    Examples
    --------
    >>> limit_shown_by(400), limit_shown_by(1_300)
    (0.19, 0.1)
    """
    attacked = min(1_000, max(1, n_records // 2))
    upper = (NormalDist().inv_cdf(0.975) + NormalDist().inv_cdf(0.95)) * math.sqrt(0.5 / attacked)
    return math.ceil(100 * upper) / 100


@dataclass(frozen=True)
class _Answer:
    question: str
    column: Hashable
    value: float
    low: float
    high: float


def from_audits(
    audit: AuditReport | Criteria | Mapping[str, Any] | None, disclosures: Sequence[Disclosure]
) -> dict[str, Measured | NotMeasured]:
    """Return what audits found about membership and each of the three questions.

    `audit` may be the content of its JSON (ParameterError if it is not), and `disclosures` are
    answers beside those that it has. Audits that trained for fewer epochs than usual, to keep to
    their time, are of other models than the one that is to be published, and count for nothing.
    """
    content: Mapping[str, Any] = {}
    if audit is not None:
        content = audit if isinstance(audit, Mapping) else json.loads(audit.to_json())
    missing = "no audit was given", "no answer to this question was given"
    try:
        if "shortened" in content:
            epochs, usual = content["shortened"]["epochs"], content["shortened"]["usual"]
            missing = (
                f"the audit was of models of at most {epochs} epochs in place of {usual}; give one "
                "that had the time for all of them",
            ) * 2
            content = {}
        if content and "targets" not in content:
            missing = "only the three questions were asked", missing[1]
        membership = _membership(content) if "targets" in content else NotMeasured(missing[0])
        answers = [
            _Answer(a["question"], a["column"], a["excess"], a["excess_low"], a["excess_high"])
            for a in content.get("criteria", ())
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise ParameterError(
            f"this is not the JSON of an audit: {error!r}. Fix: that of 'vflsynth audit --json'"
        ) from error
    for each in disclosures:
        excess = each.excess
        answers.append(_Answer(each.question, each.column, excess.value, excess.low, excess.high))
    found = {clause: _question(name, answers, missing[1]) for clause, name in QUESTIONS.items()}
    return {"membership": membership, **found}


def _membership(content: Mapping[str, Any]) -> Measured:
    """Return the target and source that the strongest attack does best on, by its upper end."""
    strongest = [
        (target["source"], attack["auc"])
        for target in content["targets"]
        for attack in target["attacks"]
        if attack["strongest"]
    ]
    source, auc = max(strongest, key=lambda found: float(found[1]["high"]))
    low, high = float(auc["low"]), float(auc["high"])
    lows = [float(other["low"]) for _, other in strongest]
    return Measured(
        high,
        f"On the worst of {len(strongest)} audited targets the strongest attack on the {source} "
        f"has an AUC of {auc['value']:.2f}; what counts is the upper end of its interval, "
        f"{low:.2f} to {high:.2f}. It attacked with {content['n_models']} models with and without "
        "each target.",
        (max(lows), high),
    )


def _question(name: str, answers: Iterable[_Answer], missing: str) -> Measured | NotMeasured:
    own = [answer for answer in answers if answer.question == name]
    if not own:
        return NotMeasured(missing)
    worst = max(own, key=lambda answer: answer.high)
    about = "" if worst.column is None else f" of column {str(worst.column)!r}"
    return Measured(
        worst.high,
        f"The attack{about} succeeds {100 * worst.value:.1f} points more often for records that "
        f"were used than for others; what counts is the upper end of the interval, "
        f"{100 * worst.low:.1f} to {100 * worst.high:.1f}.",
        (max(answer.low for answer in own), worst.high),
        worst.column,
    )
