"""What one attack, and all attacks together, found out about one record, and how it is shown."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.metrics import roc_curve

from vflsynth.adversary.encoding import Booleans, Floats
from vflsynth.adversary.intervals import (
    Estimate,
    auc_interval,
    best_threshold,
    binomial_interval,
    epsilon_lower_bound,
    most_telling,
    rank_sum_p_value,
    resolves,
    tpr_at_fpr,
)
from vflsynth.privacy import NeighbouringRelation
from vflsynth.privacy.ledger import conditional
from vflsynth.registry import Number, check_parameters
from vflsynth.reporting import INK, REAL, SYNTHETIC, Picture, encode_svg, new_figure

LOW_FPRS = (0.01, 0.1)
"""False positive rates at which the true positive rate is reported, where there are enough test
models that one of them is such a share."""

RELATION_WORDS = {
    NeighbouringRelation.ADD_OR_REMOVE_ONE: "one record across all parties, added or removed",
    NeighbouringRelation.REPLACE_ONE: "one record across all parties, replaced",
}
"""What ε is about: the unit of privacy, and what is done to it."""


@dataclass(frozen=True)
class Claim:
    """What a model says of its own privacy.

    Parameters
    ----------
    epsilon : float
    delta : float, default=0
    relation : NeighbouringRelation, default=NeighbouringRelation.ADD_OR_REMOVE_ONE
        Which tables the claim says are hard to tell apart. An audit of other tables says nothing
        about it.
    condition : str, default=""
        What it depends on beyond theorems; see `vflsynth.privacy.PrivacyLedger`.

    Raises
    ------
    ParameterError
        If ε is no number ≥ 0, or δ none from 0 to 1: nothing could contradict it.
    """

    epsilon: float
    delta: float = 0.0
    relation: NeighbouringRelation = NeighbouringRelation.ADD_OR_REMOVE_ONE
    condition: str = ""

    def __post_init__(self) -> None:
        rules = {"epsilon": Number(0), "delta": Number(0, 1)}
        check_parameters("a claim", {"epsilon": self.epsilon, "delta": self.delta}, rules)
        object.__setattr__(self, "relation", NeighbouringRelation(self.relation))

    @classmethod
    def of_model(cls, model: Any) -> Claim | None:
        """Return what a model's privacy ledger says of its synthetic data; None if nothing."""
        ledger = getattr(model, "privacy_ledger_", None)
        if ledger is None or not ledger.covers_synthetic_data:
            return None
        if not math.isfinite(ledger.epsilon()):
            return None
        return cls(ledger.epsilon(), ledger.delta, ledger.relation, ledger.condition)

    def roc(self) -> tuple[Floats, Floats]:
        """Return false positive rates, shape (point,), and the most true ones that it allows."""
        fpr = np.linspace(0.0, 1.0, 201)
        scale = np.exp(self.epsilon)
        most = np.minimum(scale * fpr + self.delta, 1.0 - (1.0 - fpr - self.delta) / scale)
        return fpr, np.clip(most, 0.0, 1.0)

    def contradicted_by(self, bound: float, relation: NeighbouringRelation | None) -> bool:
        """Whether a lower bound on epsilon, about tables that differ so, is above the claim."""
        return relation is self.relation and bound > self.epsilon

    def verdict(
        self, bound: float, relation: NeighbouringRelation | None, confidence: float
    ) -> str:
        """Say in a sentence what a lower bound on epsilon, at the claim's delta, means for it.

        `relation` is how the tables differed that were told apart; None if nobody knows.
        """
        if relation is not self.relation:
            return (
                f"The claimed {self} is about other tables than those compared here, and neither "
                "contradicted nor supported."
            )
        if self.contradicted_by(bound, relation):
            return (
                f"This contradicts the claimed {self}: the mechanism, its code or its accounting "
                f"is wrong, or this is one of the {1 - confidence:.0%} of audits that err."
            )
        return f"The claimed {self} is not contradicted; an audit cannot confirm it."

    def __str__(self) -> str:
        said = f"ε = {self.epsilon:.4g}" + (f" at δ = {self.delta:g}" if self.delta else "")
        return f"{said} ({conditional(RELATION_WORDS[self.relation], self.condition)})"


@dataclass(frozen=True, eq=False)
class Attack:
    """One adversary with one statistic, on test models that it was not trained on.

    Parameters
    ----------
    statistic, adversary : str
    accuracy, auc : Estimate
        Chance is 0.5 for both.
    tpr : dict of float to Estimate
        True positive rate by false positive rate, of those in `LOW_FPRS` that so many test models
        can tell from none; chance is the false positive rate.
    epsilon : float
        Lower bound, see `vflsynth.adversary.intervals.epsilon_lower_bound`.
    training_auc : float
        On the training models, cross-validated: what the strongest attack is chosen by.
    scores : ndarray, shape (model,)
        Of the test models.
    is_member : ndarray of bool, shape (model,)
        Whether each was trained with the target.
    training_scores : ndarray, shape (training model,)
        Cross-validated; members first.
    p_value : float
        That scores of no meaning rank members as high. Of this attack by itself.
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
    training_scores: Floats = field(repr=False)
    p_value: float

    @property
    def words(self) -> dict[str, str]:
        """What it looks at, and who looks."""
        return {"statistic": self.statistic, "adversary": self.adversary}

    @property
    def numbers(self) -> dict[str, float]:
        """What it found, beside estimates with intervals."""
        return {
            "p_value": self.p_value,
            "epsilon_at_least": self.epsilon,
            "training_auc": self.training_auc,
            "n_test": len(self.scores),
        }

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
        bound_confidence: float,
    ) -> Attack:
        """Compute every number from scores; all choices come from the training models."""
        guesses = scores >= boundary
        threshold = best_threshold(
            training_scores, training_members, delta=delta, confidence=bound_confidence
        )
        called = scores >= threshold
        return cls(
            statistic,
            adversary,
            binomial_interval(int((guesses == is_member).sum()), len(scores), confidence),
            auc_interval(scores, is_member, confidence),
            {
                fpr: tpr_at_fpr(scores, is_member, fpr, confidence)
                for fpr in LOW_FPRS
                if resolves(fpr, int((~is_member).sum()))
            },
            epsilon_lower_bound(
                int(called[is_member].sum()),
                int(is_member.sum()),
                int(called[~is_member].sum()),
                int((~is_member).sum()),
                delta=delta,
                confidence=bound_confidence,
            ),
            training_auc,
            scores,
            is_member,
            training_scores,
            rank_sum_p_value(scores, is_member),
        )


@dataclass(frozen=True)
class PaperAccuracy:
    """One cell of the VFLGAN paper's Tables 2 and 4.

    Mean and two deviations are of the accuracies over five overlapping splits. The deviation is not
    a standard error: the splits share models, and more of them would not shrink it.
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
        chosen = f" ({', '.join(self.chosen_by).replace('_', ' ')})" if self.chosen_by else ""
        return f"{self.record[0].upper()}{self.record[1:]}{chosen}, {self.source}"

    @property
    def strongest(self) -> Attack:
        """The attack that was best on the training models; its test results are unbiased."""
        return max(self.attacks, key=lambda attack: attack.training_auc)

    @property
    def most_telling(self) -> Attack:
        """The attack that the verdict rests on: the best of all, what the choice costs counted."""
        return self.attacks[self._verdict[0]]

    @property
    def p_value(self) -> float:
        """That scores of no meaning would have `most_telling` tell as much, of this audit alone."""
        return self._verdict[1]

    @cached_property
    def _verdict(self) -> tuple[int, float]:
        known = len(self.attacks[0].training_scores) // 2
        return most_telling(
            np.stack([attack.scores for attack in self.attacks]),
            self.attacks[0].is_member,
            np.stack([attack.training_scores for attack in self.attacks]),
            np.repeat([True, False], known),
        )


def vars_of(value: Any) -> dict[str, Any]:
    """Return the fields of a flat dataclass as JSON can hold them."""
    return {name: plain(getattr(value, name)) for name in value.__dataclass_fields__}


def plain(value: Any) -> Any:
    """Return numbers and text as they are, anything else in words."""
    if isinstance(value, np.generic):
        return value.item()
    return value if isinstance(value, (str, int, float, bool, type(None))) else repr(value)


def roc_picture(attack: Attack, claim: Claim | None, confidence: float) -> Picture:
    """Draw the strongest attack's ROC with its band, and what the claim allows."""
    scores = np.nan_to_num(attack.scores)  # somebody's adversary may be sure beyond all floats
    fprs, tprs, _ = roc_curve(attack.is_member, scores, drop_intermediate=False)
    n_in = int(attack.is_member.sum())
    intervals = [binomial_interval(round(tpr * n_in), n_in, confidence) for tpr in tprs]
    low, high = [one.low for one in intervals], [one.high for one in intervals]
    figure, axes = new_figure(3.3, 3.0)
    axes.fill_between(fprs, low, high, color=SYNTHETIC, alpha=0.2, lw=0, step="post")
    axes.plot(fprs, tprs, color=SYNTHETIC, lw=1.5, drawstyle="steps-post")
    axes.plot([0, 1], [0, 1], color=INK, lw=0.8, ls=":")
    if claim is not None:
        fprs, most = claim.roc()
        axes.plot(fprs, most, color=REAL, lw=1.2, ls="--")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_aspect("equal")
    axes.set_xlabel("false positive rate", fontsize=7.5, color=INK)
    axes.set_ylabel("true positive rate", fontsize=7.5, color=INK)
    words = f"{attack.statistic}, {attack.adversary}: AUC {attack.auc}"
    return Picture(
        title=f"{words}. Dotted: guessing."
        + ("" if claim is None else f" Dashed: the most that {claim} allows."),
        alt=f"ROC curve with a band, {words}.",
        source=encode_svg(figure),
    )
