"""The answer of an audit: numbers with intervals, sentences that claim no more than they may."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from vflsynth.adversary.intervals import holm, least_leak_found, most_epsilon
from vflsynth.audit.criteria import Criteria
from vflsynth.audit.findings import (
    LOW_FPRS,
    RELATION_WORDS,
    Claim,
    TargetAudit,
    plain,
    roc_picture,
    vars_of,
)
from vflsynth.audit.game import RELEASES
from vflsynth.audit.schedule import Shortened
from vflsynth.privacy import NeighbouringRelation
from vflsynth.reporting import Page, render, require_packages

if TYPE_CHECKING:
    from markupsafe import Markup

POWER = 0.8
"""Probability for which it is said what would have been found."""

_HEADINGS = {
    "ASSD": "What the synthetic table tells about single records",
    "ASIF": "What the intermediate features tell about single records",
    "mechanism": "What the mechanism's release tells about a record",
}


@dataclass(frozen=True, eq=False)
class AuditReport:
    """The answer of an audit.

    Parameters
    ----------
    scheme : {"ASSD", "ASIF", "mechanism"}
    threat_model : str
        Who the attacker is, in words.
    targets : tuple of TargetAudit
    n_models : int
        Shadow models per world; half train the adversary, the others test it.
    n_records : int or None
        Matched records; None for a mechanism.
    confidence : float
    claim : Claim or None
    seconds, cpu_seconds : float
        Wall time of training and observing shadow models, and processor time of all workers.
    n_trained : int
        Shadow models that this took; others came from a cache.
    memory : int or None, default=None
        Estimate of what all workers took together, in bytes; None if there is none.
    criteria : Criteria or None, default=None
        Answers to the three questions, if they were asked; see `audit_disclosure`.
    shortened : Shortened or None, default=None
        For how long the models were trained, if that was cut short to keep to the time.
    """

    scheme: str
    threat_model: str
    targets: tuple[TargetAudit, ...]
    n_models: int
    n_records: int | None
    confidence: float
    claim: Claim | None
    seconds: float
    cpu_seconds: float
    n_trained: int
    memory: int | None = None
    criteria: Criteria | None = None
    shortened: Shortened | None = None

    @property
    def bound_confidence(self) -> float:
        """Confidence of each bound on epsilon, so that all of them hold at once with `confidence`.

        One strongest attack per target and source; Bonferroni.
        """
        return joint_confidence(self.confidence, len(self.targets))

    @property
    def relation(self) -> NeighbouringRelation | None:
        """What the bounds on epsilon are about; None if only the mechanism's owner knows."""
        if self.scheme == "mechanism":
            return None if self.claim is None else self.claim.relation
        return NeighbouringRelation.ADD_OR_REMOVE_ONE

    @property
    def epsilon_ceiling(self) -> float:
        """The bound on epsilon if the attack never erred: no audit of this size shows more."""
        return most_epsilon(*self._n_test, delta=self.delta, confidence=self.bound_confidence)

    @cached_property
    def p_values(self) -> list[float]:
        """That guessing does as well as the best attack, per audit; adjusted for all of them.

        The choice of the attack is paid for (`most_telling`), targets by Holm's method, so that a
        release that tells nothing is called out in at most a share of ``1 - confidence`` of
        reports, however many attacks and targets these have.
        """
        return holm([audit.p_value for audit in self.targets])

    def beats_guessing(self, audit: TargetAudit) -> bool:
        """Whether one of `targets` was told apart, with `confidence` for all of them at once."""
        place = next(i for i, one in enumerate(self.targets) if one is audit)
        return self.p_values[place] <= self.level

    @property
    def level(self) -> float:
        """Share of reports on releases that tell nothing which may say that they do."""
        return round(1.0 - self.confidence, 12)

    @property
    def least_leak_found(self) -> float:
        """How often a leak must show for this many models to find it with probability `POWER`."""
        level = self.level / len(self.targets)
        return least_leak_found(*self._n_test, level=level, power=POWER)

    @property
    def power(self) -> str:
        """What this audit would have found, in a sentence."""
        return say_power(*self._n_test, len(self.targets), self.confidence)

    @property
    def _n_test(self) -> tuple[int, int]:
        """Test models with the target and without."""
        inside = self.targets[0].attacks[0].is_member
        return int(inside.sum()), int((~inside).sum())

    @property
    def contradicts_claim(self) -> bool:
        """Whether the bound of some target's strongest attack is above the claimed epsilon."""
        return self.claim is not None and any(
            self.claim.contradicted_by(audit.strongest.epsilon, self.relation)
            for audit in self.targets
        )

    @property
    def delta(self) -> float:
        """The δ that bounds on epsilon are computed at: the claimed one, else 0."""
        return 0.0 if self.claim is None else self.claim.delta

    def conclusion(self, audit: TargetAudit) -> list[str]:
        """Say in sentences what may, and what may not, be concluded about one of the targets."""
        best = audit.strongest
        sure, right = f"{self.confidence:.0%}", best.accuracy
        interval = f"{sure} interval {right.low:.0%} to {right.high:.0%}"
        share = f"{right.value:.0%} of the time ({interval})"
        how = f"({best.statistic}, {best.adversary})"
        sentences = []
        if self.beats_guessing(audit):
            sentences.append(
                f"From the {audit.source} an attacker {how} can tell whether {audit.record} was "
                f"used: right {share}, where guessing is right 50%."
            )
            telling = audit.most_telling
            if telling is not best:
                sentences.append(
                    f"Of {len(audit.attacks)} attacks {telling.statistic}, {telling.adversary} "
                    f"tells most (AUC {telling.auc.value:.2f}); the verdict counts that it was "
                    "chosen after the fact."
                )
        else:
            sentences.append(
                f"From the {audit.source} this attacker {how} was right {share} about whether "
                f"{audit.record} was used: not shown to be better than guessing (50%). That is no "
                "proof of safety: another attack, other statistics or more models may succeed, and "
                "this says nothing about other records."
            )
            if best.accuracy.high > 0.5:
                sentences.append(
                    f"With {len(best.scores)} test models, an attacker who is right up to "
                    f"{best.accuracy.high:.0%} of the time cannot be ruled out."
                )
            sentences.append(self.power)
        jointly = f" in all {len(self.targets)} audits at once" if len(self.targets) > 1 else ""
        about = (
            "the two inputs compared" if self.relation is None else RELATION_WORDS[self.relation]
        )
        sentences.append(
            f"Measured lower bound: ε ≥ {best.epsilon:.2f}"
            + (f" at δ = {self.delta:g}" if self.delta else "")
            + f" with {sure} confidence{jointly}, about {about}, for whoever sees "
            f"{RELEASES.get(audit.source, RELEASES[self.scheme])}; this many models cannot show "
            f"more than {self.epsilon_ceiling:.2f}."
        )
        if self.claim is not None:
            sentences.append(self.claim.verdict(best.epsilon, self.relation, self.confidence))
        return sentences

    def to_frame(self) -> pd.DataFrame:
        """Return one row per target, source and attack, the strongest attack of each first."""
        rows = []
        for audit in self.targets:
            strongest = audit.strongest
            for attack in sorted(audit.attacks, key=lambda a: (a is not strongest, -a.auc.value)):
                estimates = {"accuracy": attack.accuracy, "auc": attack.auc}
                estimates |= {f"tpr_at_{fpr:g}": rate for fpr, rate in attack.tpr.items()}
                row = {"target": audit.target, "source": audit.source, **attack.words}
                row["strongest"] = attack is strongest
                for name, found in estimates.items():
                    row |= {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
                rows.append(row | attack.numbers)
        return pd.DataFrame(rows)

    def paper_protocol(self) -> pd.DataFrame:
        """Return the paper's mean and two deviations of accuracy, if they were asked for."""
        return pd.DataFrame(
            [
                {"target": audit.target, "source": audit.source} | vars_of(cell)
                for audit in self.targets
                for cell in audit.paper_protocol
            ]
        )

    def to_json(self) -> str:
        """Return every number and sentence as JSON."""
        size = ("scheme", "threat_model", "n_models", "n_records", "confidence")
        cost = ("seconds", "cpu_seconds", "n_trained", "memory")
        content = {name: getattr(self, name) for name in size} | {
            "chance": {"accuracy": 0.5, "auc": 0.5, "tpr": {f"{f:g}": f for f in LOW_FPRS}},
            "relation": self.relation,
            "claim": None if self.claim is None else vars_of(self.claim),
            "epsilon_ceiling": self.epsilon_ceiling,
            "least_leak_found": least if math.isfinite(least := self.least_leak_found) else None,
            **{name: getattr(self, name) for name in cost},
            "targets": [
                {
                    "target": plain(audit.target),
                    "chosen_by": list(audit.chosen_by),
                    "source": audit.source,
                    "conclusion": self.conclusion(audit),
                    "beats_guessing": self.beats_guessing(audit),
                    "p_value": p_value,
                    "attacks": [
                        {
                            **attack.words,
                            "strongest": attack is audit.strongest,
                            "accuracy": vars_of(attack.accuracy),
                            "auc": vars_of(attack.auc),
                            "tpr": {f"{f:g}": vars_of(rate) for f, rate in attack.tpr.items()},
                            **attack.numbers,
                        }
                        for attack in audit.attacks
                    ],
                    "paper_protocol": [vars_of(cell) for cell in audit.paper_protocol],
                }
                for audit, p_value in zip(self.targets, self.p_values, strict=True)
            ],
        }
        if self.shortened is not None:
            content["shortened"] = vars_of(self.shortened) | {"conclusion": self._cost_of_time}
        if self.criteria is not None:
            content["criteria"] = self.criteria.to_list()
        return json.dumps(
            content, indent=1, allow_nan=False, ensure_ascii=False, default=np.generic.item
        )

    @property
    def headline(self) -> str:
        """The verdict, and what the questions found; never that anything is safe."""
        exposed = [] if self.criteria is None else self.criteria.exposed
        sentences = [self._verdict]
        if exposed:
            sentences.append(f"Having been used exposes records to {', '.join(exposed)}.")
        if self.shortened is not None:
            sentences.append(str(self.shortened))
        return " ".join(sentences)

    @property
    def _cost_of_time(self) -> str:
        """What was audited in place of what was asked for, and what so many models find."""
        return "" if self.shortened is None else f"{self.shortened} {self.power}"

    @property
    def _verdict(self) -> str:
        caught = [target for target in self.targets if self.beats_guessing(target)]
        if self.contradicts_claim:
            return f"The claimed {self.claim} is contradicted."
        if not caught:
            return (
                "These attacks were not shown to beat guessing. That is no proof of safety. "
                + self.power
            )
        if len(self.targets) == 1:
            return "An attacker beats guessing."
        return f"In {len(caught)} of {len(self.targets)} audits an attacker beats guessing."

    def _facts(self) -> list[str]:
        n_targets = len({target.target for target in self.targets})
        return [
            self.scheme,
            *([] if self.n_records is None else [f"{self.n_records:,} records"]),
            f"{n_targets} {'target' if n_targets == 1 else 'targets'}",
            f"{self.n_models} models with and {self.n_models} without each",
            "no privacy claimed" if self.claim is None else f"claimed: {self.claim}",
        ]

    def section(self) -> Markup:
        """Return the audit as a piece of HTML, for `vflsynth.evaluation.report`."""
        require_packages("the page of an audit")
        return render(
            "vflsynth.audit",
            "section.html",
            heading=_HEADINGS[self.scheme],
            criteria="" if self.criteria is None else self.criteria.section(),
            facts=self._facts(),
            threat_model=self.threat_model,
            confidence=f"{self.confidence:.0%}",
            cost_of_time=self._cost_of_time,
            audits=list(map(self._shown, self.targets)),
        )

    def _shown(self, audit: TargetAudit) -> dict[str, Any]:
        """Return what the page says and shows about one target."""
        strongest, caught = audit.strongest, self.beats_guessing(audit)
        fprs = list(strongest.tpr)
        return {
            "title": audit.title,
            "level": "far" if caught else "unknown",
            "answer": "Better than guessing" if caught else "Not shown to be better than guessing",
            "sentences": self.conclusion(audit),
            "picture": roc_picture(strongest, self.claim, self.confidence),
            "header": [
                "Statistic",
                "Adversary",
                "Accuracy",
                "AUC",
                *(f"TPR at FPR {fpr:.0%}" for fpr in fprs),
                "ε at least",
            ],
            "rows": [
                [
                    attack.statistic + (" (strongest in training)" if attack is strongest else ""),
                    attack.adversary,
                    *(
                        f"{own.value:.2f} ({own.low:.2f}–{own.high:.2f})"
                        for own in (attack.accuracy, attack.auc, *(attack.tpr[f] for f in fprs))
                    ),
                    f"{attack.epsilon:.2f}",
                ]
                for attack in sorted(audit.attacks, key=lambda attack: -attack.training_auc)
            ],
        }

    def page(self, title: str = "Privacy audit") -> Page:
        """Return the audit as a self-contained HTML page, with ``save(path)``."""
        values = {"facts": (), "headline": self.headline, "section": self.section()}
        return Page(render("vflsynth.audit", "page.html", title=title, **values))

    def _repr_html_(self) -> str:
        return self.page()._repr_html_()

    def __str__(self) -> str:
        lines = [f"{self.scheme}: {self.n_models} + {self.n_models} models per target"]
        if self.shortened is not None:
            lines += ["", self._cost_of_time]
        for audit in self.targets:
            lines += ["", audit.title]
            lines += [f"  {sentence}" for sentence in self.conclusion(audit)]
        if self.criteria is not None:
            lines += ["", *self.criteria.sentences]
        return "\n".join([*lines, "", self.threat_model])


def joint_confidence(confidence: float, n: int) -> float:
    """Confidence that each of n bounds needs so that all hold at once with `confidence`."""
    return 1.0 - (1.0 - confidence) / n


def say_power(n_in: int, n_out: int, n_audits: int, confidence: float) -> str:
    """Say what so many test models, with and without the record, find in each of some audits."""
    share = least_leak_found(n_in, n_out, level=(1.0 - confidence) / n_audits, power=POWER)
    if share > 1.0:
        return "So few models cannot show even a leak that is in every release."
    return (
        f"With {n_in} + {n_out} test models, a record that shows in {share:.0%} of the releases "
        "with it and in none without it, in a way that these attacks can learn, is found with "
        f"probability {POWER:.0%}."
    )
