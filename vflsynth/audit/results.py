"""What an audit found: numbers with intervals, and sentences that claim no more than they may."""

from __future__ import annotations

import json
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from vflsynth.audit._encoding import Booleans, Floats
from vflsynth.audit.intervals import (
    Estimate,
    auc_interval,
    best_threshold,
    binomial_interval,
    epsilon_lower_bound,
    most_epsilon,
    tpr_at_fpr,
)
from vflsynth.audit.report import make_page, make_section
from vflsynth.evaluation._page import Page

if TYPE_CHECKING:
    from markupsafe import Markup

LOW_FPRS = (0.01, 0.1)
"""False positive rates at which the true positive rate is reported."""


@dataclass(frozen=True)
class Claim:
    """What a model says of its own privacy.

    Parameters
    ----------
    epsilon : float
    delta : float, default=0
    """

    epsilon: float
    delta: float = 0.0

    def roc(self) -> tuple[Floats, Floats]:
        """Return the largest true positive rates that the claim allows, and at which rates.

        Returns
        -------
        fpr, tpr : ndarray, shape (point,)
        """
        fpr = np.linspace(0.0, 1.0, 201)
        scale = np.exp(self.epsilon)
        most = np.minimum(scale * fpr + self.delta, 1.0 - (1.0 - fpr - self.delta) / scale)
        return fpr, np.clip(most, 0.0, 1.0)

    def __str__(self) -> str:
        return f"ε = {self.epsilon:g}" + (f" at δ = {self.delta:g}" if self.delta else "")


@dataclass(frozen=True, eq=False)
class Attack:
    """One adversary with one statistic, on test models that it was not trained on.

    Parameters
    ----------
    statistic, adversary : str
    accuracy, auc : Estimate
        Chance is 0.5 for both.
    tpr : dict of float to Estimate
        True positive rate by false positive rate; chance is the false positive rate.
    epsilon : float
        Lower bound, see `vflsynth.audit.intervals.epsilon_lower_bound`.
    training_auc : float
        On the training models, cross-validated: what the strongest attack is chosen by.
    scores : ndarray, shape (model,)
        Of the test models.
    is_member : ndarray of bool, shape (model,)
        Whether each was trained with the target.
    """

    statistic: str
    adversary: str
    accuracy: Estimate
    auc: Estimate
    tpr: dict[float, Estimate]
    epsilon: float
    training_auc: float
    scores: Floats = field(repr=False)
    is_member: Booleans = field(repr=False)

    @classmethod
    def judge(
        cls,
        statistic: str,
        adversary: str,
        scores: Floats,
        is_member: Booleans,
        *,
        boundary: float,
        training_scores: Floats,
        training_members: Booleans,
        training_auc: float,
        delta: float,
        confidence: float,
    ) -> Attack:
        """Compute every number from scores; all choices come from the training models."""
        guesses = scores >= boundary
        threshold = best_threshold(
            training_scores, training_members, delta=delta, confidence=confidence
        )
        called = scores >= threshold
        return cls(
            statistic,
            adversary,
            binomial_interval(int((guesses == is_member).sum()), len(scores), confidence),
            auc_interval(scores, is_member, confidence),
            {fpr: tpr_at_fpr(scores, is_member, fpr, confidence) for fpr in LOW_FPRS},
            epsilon_lower_bound(
                int(called[is_member].sum()),
                int(is_member.sum()),
                int(called[~is_member].sum()),
                int((~is_member).sum()),
                delta=delta,
                confidence=confidence,
            ),
            training_auc,
            scores,
            is_member,
        )


@dataclass(frozen=True)
class PaperAccuracy:
    """One cell of the VFLGAN paper's Tables 2 and 4.

    Parameters
    ----------
    statistic, adversary : str
    mean, two_deviations : float
        Of the accuracies over five overlapping splits. The deviation is not a standard error: the
        splits share models, and more of them would not shrink it.
    """

    statistic: str
    adversary: str
    mean: float
    two_deviations: float


@dataclass(frozen=True)
class TargetAudit:
    """What all attacks found out about one target, from one source.

    Parameters
    ----------
    target : hashable
        Key of the record; None if it has none.
    chosen_by : tuple of str
    source : str
        What was looked at: "synthetic data", or whose intermediate features.
    attacks : tuple of Attack
        Every statistic with every adversary.
    paper_protocol : tuple of PaperAccuracy, default ()
    """

    target: Hashable
    chosen_by: tuple[str, ...]
    source: str
    attacks: tuple[Attack, ...]
    paper_protocol: tuple[PaperAccuracy, ...] = ()

    @property
    def record(self) -> str:
        """The target in words."""
        return "the target" if self.target is None else f"record {self.target!r}"

    @property
    def title(self) -> str:
        """The target, how it was chosen, and what was looked at."""
        chosen = f" ({', '.join(self.chosen_by)})" if self.chosen_by else ""
        return f"{self.record[0].upper()}{self.record[1:]}{chosen}, {self.source}"

    @property
    def strongest(self) -> Attack:
        """The attack that was best on the training models; its test results are unbiased."""
        return max(self.attacks, key=lambda attack: attack.training_auc)


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

    @property
    def epsilon_ceiling(self) -> float:
        """The bound on epsilon if the attack never erred: no audit of this size shows more."""
        n_in = int(self.targets[0].attacks[0].is_member.sum())
        n_out = len(self.targets[0].attacks[0].is_member) - n_in
        return most_epsilon(n_in, n_out, delta=self.delta, confidence=self.confidence)

    @property
    def contradicts_claim(self) -> bool:
        """Whether the bound of some target's strongest attack is above the claimed epsilon."""
        return self.claim is not None and any(
            target.strongest.epsilon > self.claim.epsilon for target in self.targets
        )

    @property
    def delta(self) -> float:
        """The δ that bounds on epsilon are computed at: the claimed one, else 0."""
        return 0.0 if self.claim is None else self.claim.delta

    def conclusion(self, audit: TargetAudit) -> list[str]:
        """Say in sentences what may, and what may not, be concluded about a target.

        Parameters
        ----------
        audit : TargetAudit
            One of `targets`.

        Returns
        -------
        list of str
        """
        best = audit.strongest
        share = f"{best.accuracy.value:.0%} of the time ({_percent(best.accuracy)})"
        sure = f"{self.confidence:.0%}"
        how = f"({best.statistic}, {best.adversary})"
        sentences = []
        if best.auc.low > 0.5:
            sentences.append(
                f"From the {audit.source} an attacker {how} can tell whether {audit.record} was "
                f"used: right {share}, where guessing is right 50%."
            )
        else:
            sentences.append(
                f"From the {audit.source} this attacker {how} told whether {audit.record} was "
                f"used {share}: not shown to be better than guessing (50%). That is no proof of "
                "safety: another attack, other statistics or more models may succeed, and this "
                "says nothing about other records."
            )
            if best.accuracy.high > 0.5:
                sentences.append(
                    f"With {len(best.scores)} test models, an attacker who is right up to "
                    f"{best.accuracy.high:.0%} of the time cannot be ruled out."
                )
        sentences.append(
            f"Measured lower bound: ε ≥ {best.epsilon:.2f}"
            + (f" at δ = {self.delta:g}" if self.delta else "")
            + f" with {sure} confidence; this many models cannot show more than "
            f"{self.epsilon_ceiling:.2f}."
        )
        if self.claim is not None:
            sentences.append(
                f"This contradicts the claimed {self.claim}: the mechanism, its code or its "
                f"accounting is wrong, or this is one of the {1 - self.confidence:.0%} of audits "
                "that err."
                if best.epsilon > self.claim.epsilon
                else f"The claimed {self.claim} is not contradicted; an audit cannot confirm it."
            )
        return sentences

    def to_frame(self) -> pd.DataFrame:
        """Return one row per target, source and attack, the strongest attack of each first."""
        rows = []
        for audit in self.targets:
            strongest = audit.strongest
            for attack in sorted(audit.attacks, key=lambda a: (a is not strongest, -a.auc.value)):
                rows.append(
                    {
                        "target": audit.target,
                        "source": audit.source,
                        "statistic": attack.statistic,
                        "adversary": attack.adversary,
                        "strongest": attack is strongest,
                        **_flat("accuracy", attack.accuracy),
                        **_flat("auc", attack.auc),
                        **{
                            name: value
                            for fpr, estimate in attack.tpr.items()
                            for name, value in _flat(f"tpr_at_{fpr:g}", estimate).items()
                        },
                        "epsilon_at_least": attack.epsilon,
                        "training_auc": attack.training_auc,
                        "n_test": len(attack.scores),
                    }
                )
        return pd.DataFrame(rows)

    def paper_protocol(self) -> pd.DataFrame:
        """Return the paper's mean and two deviations of accuracy, if they were asked for."""
        return pd.DataFrame(
            [
                {
                    "target": audit.target,
                    "source": audit.source,
                    "statistic": cell.statistic,
                    "adversary": cell.adversary,
                    "mean": cell.mean,
                    "two_deviations": cell.two_deviations,
                }
                for audit in self.targets
                for cell in audit.paper_protocol
            ]
        )

    def to_json(self) -> str:
        """Return every number and sentence as JSON."""
        content = {
            "scheme": self.scheme,
            "threat_model": self.threat_model,
            "n_models": self.n_models,
            "n_records": self.n_records,
            "confidence": self.confidence,
            "claim": None if self.claim is None else vars_of(self.claim),
            "epsilon_ceiling": self.epsilon_ceiling,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "n_trained": self.n_trained,
            "targets": [
                {
                    "target": _plain(audit.target),
                    "chosen_by": list(audit.chosen_by),
                    "source": audit.source,
                    "conclusion": self.conclusion(audit),
                    "attacks": [
                        {
                            "statistic": attack.statistic,
                            "adversary": attack.adversary,
                            "strongest": attack is audit.strongest,
                            "accuracy": vars_of(attack.accuracy),
                            "auc": vars_of(attack.auc),
                            "tpr": {f"{f:g}": vars_of(e) for f, e in attack.tpr.items()},
                            "epsilon_at_least": attack.epsilon,
                            "training_auc": attack.training_auc,
                            "n_test": len(attack.scores),
                        }
                        for attack in audit.attacks
                    ],
                    "paper_protocol": [vars_of(cell) for cell in audit.paper_protocol],
                }
                for audit in self.targets
            ],
        }
        return json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False)

    def section(self) -> Markup:
        """Return the audit as a piece of HTML, for `vflsynth.evaluation.report`."""
        return make_section(self)

    def page(self, title: str = "Privacy audit") -> Page:
        """Return the audit as a self-contained HTML page, with ``save(path)``.

        Parameters
        ----------
        title : str, default="Privacy audit"

        Returns
        -------
        Page

        Raises
        ------
        MissingExtraError
            If matplotlib or jinja2 is not installed.
        """
        return make_page(self, title)

    def _repr_html_(self) -> str:
        return self.page()._repr_html_()

    def __str__(self) -> str:
        lines = [f"{self.scheme}: {self.n_models} + {self.n_models} models per target"]
        for audit in self.targets:
            lines += ["", audit.title]
            lines += [f"  {sentence}" for sentence in self.conclusion(audit)]
        return "\n".join([*lines, "", self.threat_model])


def vars_of(value: Any) -> dict[str, Any]:
    """Fields of a flat dataclass."""
    return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    return value if isinstance(value, (str, int, float, bool, type(None))) else repr(value)


def _flat(name: str, estimate: Estimate) -> dict[str, float]:
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


def _percent(estimate: Estimate) -> str:
    return f"{estimate.confidence:.0%} interval {estimate.low:.0%} to {estimate.high:.0%}"
