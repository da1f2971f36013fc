"""Pages and sections of pages about an audit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vflsynth.audit.intervals import Estimate, roc
from vflsynth.reporting import (
    INK,
    REAL,
    SYNTHETIC,
    Page,
    Picture,
    encode_svg,
    new_figure,
    render,
    require_packages,
)

if TYPE_CHECKING:
    from markupsafe import Markup

    from vflsynth.audit.findings import TargetAudit
    from vflsynth.audit.results import AuditReport

_HEADINGS = {
    "ASSD": "What the synthetic table tells about single records",
    "ASIF": "What the intermediate features tell about single records",
    "mechanism": "What the mechanism's release tells about a record",
}


def make_section(audit: AuditReport) -> Markup:
    """Return an audit as a piece of HTML."""
    require_packages("the page of an audit")
    return render(
        "vflsynth.audit",
        "section.html",
        heading=_HEADINGS[audit.scheme],
        facts=_facts(audit),
        threat_model=audit.threat_model,
        confidence=f"{audit.confidence:.0%}",
        audits=[_describe(audit, target) for target in audit.targets],
    )


def make_page(audit: AuditReport, title: str) -> Page:
    """Return an audit as a page of its own."""
    return Page(
        render(
            "vflsynth.audit",
            "page.html",
            title=title,
            facts=(),
            headline=_headline(audit),
            section=make_section(audit),
        )
    )


def _headline(audit: AuditReport) -> str:
    caught = [target for target in audit.targets if target.strongest.auc.low > 0.5]
    if audit.contradicts_claim:
        return f"The claimed {audit.claim} is contradicted."
    if not caught:
        return "These attacks were not shown to beat guessing. That is no proof of safety."
    if len(audit.targets) == 1:
        return "An attacker beats guessing."
    return f"In {len(caught)} of {len(audit.targets)} audits an attacker beats guessing."


def _facts(audit: AuditReport) -> list[str]:
    n_targets = len({target.target for target in audit.targets})
    return [
        audit.scheme,
        *([] if audit.n_records is None else [f"{audit.n_records:,} records"]),
        f"{n_targets} {'target' if n_targets == 1 else 'targets'}",
        f"{audit.n_models} models with and {audit.n_models} without each",
        "no privacy claimed" if audit.claim is None else f"claimed: {audit.claim}",
    ]


def _describe(audit: AuditReport, target: TargetAudit) -> dict[str, Any]:
    strongest = target.strongest
    caught = strongest.auc.low > 0.5
    attacks = sorted(target.attacks, key=lambda attack: -attack.training_auc)
    fprs = list(strongest.tpr)
    return {
        "title": target.title,
        "level": "far" if caught else "unknown",
        "answer": "Better than guessing" if caught else "Not shown to be better than guessing",
        "sentences": audit.conclusion(target),
        "picture": _roc_picture(audit, target),
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
                _cell(attack.accuracy),
                _cell(attack.auc),
                *(_cell(attack.tpr[fpr]) for fpr in fprs),
                f"{attack.epsilon:.2f}",
            ]
            for attack in attacks
        ],
    }


def _cell(estimate: Estimate) -> str:
    return f"{estimate.value:.2f} ({estimate.low:.2f}–{estimate.high:.2f})"


def _roc_picture(audit: AuditReport, target: TargetAudit) -> Picture:
    """Draw the strongest attack's ROC with its band, and what the claim allows."""
    attack = target.strongest
    curve = roc(attack.scores, attack.is_member, audit.confidence)
    figure, axes = new_figure(3.3, 3.0)
    axes.fill_between(
        curve.fpr, curve.low, curve.high, color=SYNTHETIC, alpha=0.2, lw=0, step="post"
    )
    axes.plot(curve.fpr, curve.tpr, color=SYNTHETIC, lw=1.5, drawstyle="steps-post")
    axes.plot([0, 1], [0, 1], color=INK, lw=0.8, ls=":")
    if audit.claim is not None:
        fprs, most = audit.claim.roc()
        axes.plot(fprs, most, color=REAL, lw=1.2, ls="--")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_aspect("equal")
    axes.set_xlabel("false positive rate", fontsize=7.5, color=INK)
    axes.set_ylabel("true positive rate", fontsize=7.5, color=INK)
    words = f"{attack.statistic}, {attack.adversary}: AUC {attack.auc}"
    return Picture(
        title=f"{words}. Dotted: guessing."
        + ("" if audit.claim is None else f" Dashed: the most that {audit.claim} allows."),
        alt=f"ROC curve with a band, {words}.",
        source=encode_svg(figure),
    )
