"""What parties could have learned of each other: one table, and one page for newcomers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from vflsynth.exceptions import ParameterError
from vflsynth.registry import Number, check_parameters
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
from vflsynth.splitdefense.estimator import BaseSplitClassifier
from vflsynth.splitdefense.leakage.base import BATCH_ATTACKS, Floats
from vflsynth.splitdefense.leakage.labels import line_of
from vflsynth.splitdefense.leakage.measured import (
    AT_THE_CUT,
    BROKEN,
    COALITION,
    OWN_OUTPUTS,
    PARTLY,
    measured,
)
from vflsynth.splitdefense.leakage.monitor import Evidence
from vflsynth.splitdefense.objectives.base import CrossEntropy

LEVELS = {
    "broken": "Disclosed",
    "partly": "Partly disclosed",
    "held": "Close to the baseline",
    "not applicable": "Not applicable",
}

_NO_ATTACK = ("baseline", "not applicable")
_CSS_LEVELS = {"broken": "far", "partly": "partly", "held": "close", "not applicable": ""}


def leakage_report(classifier: BaseSplitClassifier, random_state: int = 0) -> LeakageReport:
    """Attack a classifier's training as each party could have: labels, and columns.

    Parameters
    ----------
    classifier : split classifier
        Fitted in this process with ``monitor`` on; evidence is not saved with a classifier.
    random_state : int, default=0
        Which labels attackers know, and where their training starts.

    Returns
    -------
    LeakageReport

    Raises
    ------
    ParameterError
        If there is no evidence.

    Notes
    -----
    Attacks on labels get what an honest-but-curious party sees: its columns, its bottom model, and
    every gradient as sent, summed over the training. Where there are several passive parties, all
    of them together are attackers, too, with what they have of the whole training. Attacks on
    columns get what the label holder sees: outputs of several epochs, labels and its own columns,
    and the columns of 0, 40 or 400 records. No result is a guarantee: an attack that was not tried
    may do better. Where too few records are left to measure an attack on, its verdict is "not
    applicable".

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from vflsynth.splitdefense import MarvellClassifier, leakage_report
    >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    >>> classifier = MarvellClassifier(epochs=5, random_state=0).fit(X[X.columns[:6]], y)
    >>> report = leakage_report(classifier)
    >>> "forward output" in set(report.to_frame()["attack"])
    True
    """
    check_is_fitted(classifier, "parties_")
    seed = Number(0, 2**32 - 1, whole=True)
    check_parameters("leakage_report", {"random_state": random_state}, {"random_state": seed})
    if not classifier.evidence_:
        raise ParameterError(
            "there is no evidence of what passive parties received: fit with monitor=True and at "
            "least one passive party, and make the report in the same process"
        )
    if len(set(next(iter(classifier.evidence_.values())).labels)) < 2:
        raise ParameterError("all records that were trained on have one label: nothing can be told")
    return LeakageReport(measured(classifier, random_state), classifier)


@dataclass(frozen=True, eq=False)
class LeakageReport(Page):
    """How far labels and columns leaked, by party and attack, as a table and as a page."""

    frame: pd.DataFrame
    classifier: BaseSplitClassifier

    def to_frame(self) -> pd.DataFrame:
        """Return one row per party and attack.

        There are ``party``, ``attack``, the ``column`` it reads, if any, what it ``sees`` and
        ``knows``, ``measure``, ``value``, ``baseline`` (what the party's own outputs tell; for
        these themselves, and for completion, what its own columns tell without the active party's
        help; for columns, guessing and what labels and the label holder's own columns tell),
        ``gain``, ``disclosed`` (gain as a share of what the baseline leaves open) and ``verdict``;
        numbers are NaN where it is "not applicable". AUCs of one message are 95 % quantiles over
        batches.
        """
        return self.frame.copy()

    @property
    def sentences(self) -> list[str]:
        """What is protected and what is not, in words."""
        return _sentences(self.frame, self.classifier)

    @property
    def headline(self) -> str:
        """The verdict in one sentence; never that anything is safe."""
        attacks = _tried(self.frame)
        of_labels = attacks[attacks["sees"] != AT_THE_CUT]
        worst, count = _strongest(of_labels), int((of_labels["verdict"] == "broken").sum())
        who = f"{worst['attack']} ({worst['sees']})"
        if count:
            said = f"{count} of {len(of_labels)} attacks disclose labels, the worst is {who}, "
        elif worst["verdict"] == "partly":
            said = f"Labels are partly disclosed, by {who}, "
        elif worst["disclosed"] > 0.0:
            said = (
                f"The attacks tried disclose less than {PARTLY:.0%} of what the baseline leaves "
                f"open of labels, {who} {worst['disclosed']:.0%}, "
            )
        else:
            said = "None of the attacks tried tells more of labels than the baseline, "
        said += f"{worst['measure']} {worst['value']:.2f}; {self._columns}."
        # What outputs alone tell is the baseline of other attacks, and a leak by itself.
        best = _top(self.frame[self.frame["sees"] == OWN_OUTPUTS])
        return (
            f"{said} Other attacks may disclose more. Without any gradient, outputs of "
            f"{best['party']} rank records by label with AUC {best['value']:.2f}, columns and "
            f"untrained models with {best['baseline']:.2f}."
        )

    @property
    def _columns(self) -> str:
        """What the label holder reads of columns, at worst."""
        tried = _tried(self.frame[self.frame["sees"] == AT_THE_CUT])
        tried = tried[tried["column"] != ""]
        if tried.empty:
            return "attacks on columns could not be measured"
        worst = _strongest(tried)
        what = f"{worst['column']!r} of {worst['party']}"
        how = f"{worst['attack']}, {worst['knows']} known"
        guess = f"{worst['measure']} {worst['value']:.2f}, without the cut {worst['baseline']:.2f}"
        return f"of columns, {what} is read best ({how}: {guess})"

    @cached_property
    def html(self) -> str:
        """The page, made when first asked for: one file, no network."""
        require_packages("leakage_report")
        page = render(
            "vflsynth.splitdefense.leakage",
            "report.html",
            title="Leakage report",
            facts=_facts(self.classifier),
            headline=self.headline,
            cards=[_card(self.frame, sees) for sees in self.frame["sees"].unique()],
            sentences=self.sentences,
            pictures=_pictures(self.classifier.evidence_),
            rows=_cells(self.frame),
            meanings=BATCH_ATTACKS,
            broken=f"{BROKEN:.0%}",
            partly=f"{PARTLY:.0%}",
        )
        return str(page)


def _sentences(frame: pd.DataFrame, classifier: BaseSplitClassifier) -> list[str]:
    sentences = []
    label_privacy = classifier.label_privacy
    for party in classifier.evidence_:
        rows = frame[frame["party"] == party]
        forward = rows[rows["sees"] == OWN_OUTPUTS]
        message = rows[rows["sees"] == "one message"]
        training = _tried(rows[(rows["sees"] == "whole training") & _knows_no_label(rows)])
        baseline = float(forward["value"].iloc[0])
        sentences.append(
            f"{party} can rank its records by label with AUC {baseline:.2f} from its own bottom "
            "model's outputs, without a look at gradients. Protecting gradients does not change it."
        )
        if len(message):
            best = _top(message)
            sentences.append(
                f"From one message, the best of the published attacks ({best['attack']}) gives "
                f"{party} AUC {best['value']:.2f} (95 % quantile over batches)."
            )
        best = _top(training)
        more = best["value"] > baseline
        sentences.append(
            f"Over the whole training, {best['attack']} reaches AUC {best['value']:.2f}: "
            + (
                f"{best['disclosed']:.0%} of what the outputs leave open."
                if more
                else "not more than the outputs tell anyway."
            )
        )
        if party in (classifier.malicious or {}):
            sentences.append(
                f"{party} did not follow the protocol: it amplified its updates, and nothing in "
                "its messages showed it."
            )
        sentences.append(_completion_sentence(party, rows))
    together = frame[frame["party"] == COALITION]
    if len(together):
        gradients = together[(together["sees"] == "whole training") & _knows_no_label(together)]
        best = _top(_tried(gradients))
        sentences.append(
            f"{COALITION[0].upper()}{COALITION[1:]}, if they pool what they have, reach AUC "
            f"{best['value']:.2f} over the whole training ({best['attack']})."
        )
    if label_privacy is not None:
        epsilon = label_privacy.epsilon
        keep = label_privacy.keep_probability(len(classifier.classes_))
        sentences.append(
            f"Labels were randomised once with ε = {epsilon:g}: each was kept with probability "
            f"{keep:.2f}. Unit of protection: one label, replaced by another; covered: everything "
            "that this training sent to passive parties, for any number of epochs. It bounds what "
            "any attack can tell about a single label beyond what the columns tell; columns are "
            "not protected by it, and a training with other random labels is a release of its own."
        )
    last = classifier.history_.iloc[-1]
    for party in classifier.evidence_:
        if f"auc_bound_{party}" in last:
            sentences.append(
                f"Marvell's theorem bounds the AUC of any attack on one message to {party} by "
                f"{last[f'auc_bound_{party}']:.2f} if gradients are Gaussian (best attack in that "
                f"model: {last[f'auc_gaussian_{party}']:.2f}; means over the last epoch). It says "
                "nothing about several messages."
            )
    plain = isinstance(classifier.make_objective(), CrossEntropy)
    if plain and classifier.make_protection() is None and label_privacy is None:
        sentences.append("Neither gradients nor labels were perturbed.")
    return sentences


def _completion_sentence(party: str, rows: pd.DataFrame) -> str:
    completion = _tried(rows[rows["sees"] == "trained bottom model"])
    if completion.empty:
        return (
            f"What {party}'s trained bottom model is worth as a classifier was not measured: there "
            "are too few records of each class."
        )
    best = _strongest(completion)
    return (
        f"With {best['knows']}, {party}'s trained bottom model makes a classifier of "
        f"{best['measure']} {best['value']:.2f}; its own columns or an untrained model make one of "
        f"{best['baseline']:.2f}."
    )


def _tried(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of attacks that were measured, without baselines."""
    return frame[~frame["verdict"].isin(_NO_ATTACK)]


def _top(frame: pd.DataFrame) -> Any:
    """Return the row with the largest value."""
    return frame.iloc[int(frame["value"].to_numpy().argmax())]


def _strongest(frame: pd.DataFrame) -> Any:
    """Return the row that disclosed most; where none discloses anything, the one that came nearest.

    What is disclosed is never below zero, so that many rows may share the least of it.
    """
    order = np.lexsort([frame[name].to_numpy() for name in ("value", "gain", "disclosed")])
    return frame.iloc[int(order[-1])]


def _knows_no_label(frame: pd.DataFrame) -> pd.Series[bool]:
    return frame["knows"].isin(["no label", "shares of classes"])


def _facts(classifier: BaseSplitClassifier) -> list[str]:
    parts = [classifier.make_objective(), classifier.make_protection(), classifier.label_privacy]
    evidence = next(iter(classifier.evidence_.values()))
    return [
        type(classifier).__name__,
        *(str(part) for part in parts if part is not None),
        f"{len(evidence.labels):,} records",
        f"{evidence.n_classes} classes",
        f"passive parties: {', '.join(classifier.evidence_)}",
        f"cut of width {evidence.features.shape[1]}",
    ]


def _card(frame: pd.DataFrame, sees: str) -> dict[str, Any]:
    question = {
        OWN_OUTPUTS: "Do a party's outputs alone tell labels?",
        "whole training": "Do gradients of the whole training tell labels?",
        "one message": "Does one message tell labels?",
        "first layer": "Do gradients at a party's first layer tell labels?",
        "trained bottom model": "Is the trained bottom model of use to its owner?",
        AT_THE_CUT: "Do outputs at the cut tell the label holder columns?",
    }[sees]
    rows = _tried(frame[frame["sees"] == sees])
    value, verdict = "–", "not applicable"
    text = "There are too few records of each class to measure these attacks."
    if len(rows):
        worst = _strongest(rows)
        value, verdict = f"{worst['value']:.2f}", worst["verdict"]
        read = f"{worst['column']} of " if worst["column"] else ""
        text = (
            f"{worst['measure']} of {worst['attack']} at {read}{worst['party']}; it knows: "
            f"{worst['knows']}. Baseline {worst['baseline']:.2f}; {worst['disclosed']:.0%} of what "
            "it leaves open."
        )
    answer, level = LEVELS[verdict], _CSS_LEVELS[verdict]
    return {"question": question, "level": level, "answer": answer, "value": value, "text": text}


def _cells(frame: pd.DataFrame) -> list[dict[str, Any]]:
    texts = ["party", "column", "sees", "attack", "knows", "measure"]
    return [
        {name: getattr(row, name) for name in texts}
        | {
            "value": _number(row.value),
            "baseline": _number(row.baseline),
            "gain": _number(row.gain, "+.3f").replace("-", "−"),
            "verdict": LEVELS.get(str(row.verdict), "Baseline"),
        }
        for row in frame.itertuples()
    ]


def _number(value: Any, form: str = ".3f") -> str:
    return "–" if np.isnan(value) else format(value, form)


def _pictures(evidence: dict[str, Evidence]) -> list[Picture]:
    pictures = []
    for name, found in evidence.items():
        pictures.append(_by_class(name, line_of(found.last_gradients)[:, 0], found.labels))
        if not found.batches.empty:
            pictures.append(_over_training(name, found.batches))
    return pictures


def _by_class(party: str, line: Floats, labels: npt.NDArray[np.int64]) -> Picture:
    figure, axes = new_figure(4.2, 2.3)
    low, high = (float(q) for q in np.quantile(line, [0.005, 0.995]))
    if low == high:
        low, high = low - 0.5, high + 0.5
    bins = np.linspace(low, high, 41)
    for mask, color in ((labels == 0, REAL), (labels != 0, SYNTHETIC)):
        shown = np.clip(line[mask], low, high)
        axes.hist(shown, bins=bins.tolist(), density=True, color=color, alpha=0.6)
    axes.set_xlabel("gradient as sent, first principal direction", fontsize=7, color=INK)
    axes.set_yticks([])
    return Picture(
        title=f"{party}: gradients of the last epoch, by class",
        alt=f"Histograms of the gradients sent to {party} for the two classes.",
        source=encode_svg(figure),
    )


def _over_training(party: str, batches: pd.DataFrame) -> Picture:
    figure, axes = new_figure(4.2, 2.3)
    means = batches.groupby("epoch").mean()
    for attack, color in (("norm", INK), ("mean_threshold", REAL), ("direction", SYNTHETIC)):
        axes.plot(means.index, means[attack], color=color, lw=1.2, label=attack.replace("_", " "))
    axes.set_ylim(0.48, 1.02)
    axes.set_xlabel("epoch", fontsize=7, color=INK)
    axes.set_ylabel("AUC from one message", fontsize=7, color=INK)
    axes.legend(fontsize=6.5, frameon=False)
    return Picture(
        title=f"{party}: leak of one message over training",
        alt=f"AUC of attacks on single messages to {party} by epoch.",
        source=encode_svg(figure),
    )
