"""Attacks of one passive party on everything it kept of a training.

All are measured on the training records against the true labels. What the party's own outputs tell
without any gradient is the baseline: only what goes beyond it did the gradients give away.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
import torch.nn.functional as F
from numpy.random import Generator
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from vflsynth._random import RandomStreams
from vflsynth.adversary.intervals import auc as area
from vflsynth.adversary.mixtures import component_log_odds
from vflsynth.networks.adam import FlatAdam
from vflsynth.splitdefense.leakage.monitor import Evidence
from vflsynth.splitdefense.leakage.scores import (
    auc,
    fold,
    one_against_rest,
    principal_direction,
)
from vflsynth.splitdefense.leakage.semi_supervised import completed_with_guesses
from vflsynth.splitdefense.networks import Perceptron
from vflsynth.splitdefense.objectives.base import descend

N_KNOWN = 40
"""About so many labels are known to the attacks with few: equally many of each class."""

REPEATS = 5
"""Draws of the known labels, whose results are averaged."""

_MATCHED_RECORDS = 2000
_MATCHING_STEPS = 300
_FINE_TUNING_STEPS = 200

COMPLETION_MEASURES = ("accuracy", "balanced accuracy", "AUC")
"""What attacks that know some labels are measured by."""

Measures = npt.NDArray[np.float64]
"""One value per measure."""

Rows = npt.NDArray[np.intp]

_NOT_APPLICABLE: Measures = np.full(len(COMPLETION_MEASURES), np.nan)


@dataclass(frozen=True)
class Attack:
    """What an attack is, and how well it did.

    Parameters
    ----------
    attack : str
    knows : str
        What of the labels the attacker knows.
    measure : {"AUC", "accuracy", "balanced accuracy"}
    value, baseline : float
        With gradients, and without. NaN where the attack is not applicable.
    """

    attack: str
    knows: str
    measure: str
    value: float
    baseline: float


def transcript_attacks(evidence: Evidence, random_state: int = 0) -> pd.DataFrame:
    """Run every attack that works on the whole transcript.

    Parameters
    ----------
    evidence : Evidence
    random_state : int, default=0

    Returns
    -------
    DataFrame
        One row per attack: ``party``, ``attack``, ``knows``, ``measure``, ``value``, ``baseline``
        and ``gain``, which is the difference.

    Notes
    -----
    Attacks without labels rank records by one number; several classes are each taken against the
    rest. They are folded: upside down counts as right.

    - *forward output*: the party's own outputs, along their first principal direction. Its baseline
      is the better of its columns and its untrained bottom model: the difference it learned.
    - *averaging*: the mean over epochs of each record's scaled gradient, likewise; *averaging of
      the first epochs* before the model fits, when gradients tell most and noise hides least.
    - *residual*: what the party's own outputs do not explain of the gradients of the first epochs,
      averaged; *residual of all epochs* likewise.
    - *mixture* of one of these: the odds of a component of a mixture of as many Gaussians as there
      are classes, see `vflsynth.adversary.mixtures`. Not applicable to more than ten classes.
    - *gradient matching*: soft labels and a surrogate top model whose gradients match the averaged
      ones (ExPLoit, Kariyappa and Qureshi 2021). Knows the classes' shares.

    Attacks with labels know about 40, equally many of each class but at least one, and are measured
    on the other records: logistic regression on the outputs alone (the baseline), and with averaged
    gradients or residuals. Accuracy, balanced accuracy and AUC: where one class is rare, accuracy
    is that of naming the other. They are not applicable (NaN) where no other record is left, or
    none of a class that is known.
    """
    rng = np.random.default_rng(random_state)
    labels, n_classes = evidence.labels, evidence.n_classes
    forward = _ranking(evidence.features, labels, n_classes)
    kept = {
        "averaging": evidence.mean_gradients,
        "averaging of the first epochs": evidence.early_gradients,
        "residual": evidence.residuals,
        "residual of all epochs": evidence.all_residuals,
    }
    floors = [_ranking(v, labels, n_classes) for v in (evidence.encoded, evidence.random_features)]
    found = [
        Attack("forward output", "no label", "AUC", forward, max(floors)),
        *(
            Attack(name, "no label", "AUC", _ranking(values, labels, n_classes), forward)
            for name, values in kept.items()
        ),
        *(
            Attack(f"mixture, {name}", "no label", "AUC", _grouping(values, evidence, rng), forward)
            for name, values in kept.items()
        ),
    ]
    matched = gradient_matching(evidence, random_state)
    found.append(Attack("gradient matching", "shares of classes", "AUC", matched, forward))
    known = list(_known_rows(labels, n_classes, rng))

    def few(features: npt.NDArray[np.floating]) -> Measures:
        return _mean(_completion(features, labels, rows, n_classes) for rows in known)

    baseline = few(evidence.features)
    knows = _few(known)
    found += _measured("forward output", knows, baseline, baseline)
    for name, values in kept.items():
        joined = np.concatenate([evidence.features, values], 1)
        found += _measured(name, knows, few(joined), baseline)
    return _frame(evidence.party, found)


def completion_attacks(
    evidence: Evidence, bottom_model: Perceptron, random_state: int = 0
) -> pd.DataFrame:
    """Complete the party's bottom model to a classifier of its own (Fu et al. 2022; DIMIP §3.3).

    Parameters
    ----------
    evidence : Evidence
    bottom_model : Perceptron
        The party's, as trained; one replica.
    random_state : int, default=0

    Returns
    -------
    DataFrame
        As `transcript_attacks` returns. The baseline is the better of two floors that need no
        training with the active party: the party's raw columns, and its bottom model before
        training.

    Notes
    -----
    Features are always standardised: an attacker who does not do so is fooled by their scale. Few
    labels train a logistic head or a perceptron on the frozen bottom model, or head and bottom
    model together, from these labels alone or with guesses of the others (`semi_supervised`). All
    labels of one half of the records, measured on the other, train the first three. Floors are the
    better of logistic head and perceptron on columns and on the untrained bottom model.

    Departs from DIMIP §5.1, whose perceptron has layers of 512 and 256 for images; ours has one
    of 64.

    The attack is a passive one where the party followed the protocol, and an active one where it
    trained its bottom model with `MaliciousSGD`. It is not applicable (NaN) where no record of a
    known class is left to measure it on, or all known labels are the same; columns without any
    variation are no floor.
    """
    rng = np.random.default_rng(random_state)
    labels, n_classes = evidence.labels, evidence.n_classes
    known = list(_known_rows(labels, n_classes, rng))
    half = rng.permutation(len(labels))[: len(labels) // 2]

    def few(features: npt.NDArray[np.float32], model: str) -> Measures:
        return _mean(
            _completion(features, labels, rows, n_classes, model, random_state) for rows in known
        )

    def many(features: npt.NDArray[np.float32], model: str) -> Measures:
        return _completion(features, labels, half, n_classes, model, random_state)

    def tuned(rows: Rows) -> Measures:
        return _fine_tuned(evidence, bottom_model, rows, random_state)

    guessed = _NOT_APPLICABLE
    if all(_measurable(labels[rows], np.delete(labels, rows)) for rows in known):
        odds = completed_with_guesses(evidence.encoded, labels, known, bottom_model, n_classes, rng)
        guessed = _mean(_judged(p, labels, _others(labels, r)) for p, r in zip(odds, known))
    heads = {"logistic": "completion, frozen", "perceptron": "completion, MLP"}
    found = []
    tuned_by_few = _mean(tuned(rows) for rows in known)
    for knows, complete, tunings in (
        (_few(known), few, {"fine-tuned": tuned_by_few, "semi-supervised": guessed}),
        ("half of the labels", many, {"fine-tuned": tuned(half)}),
    ):
        floor = _best(
            complete(features, model)
            for features in (evidence.encoded, evidence.random_features)
            for model in heads
        )
        for model, name in heads.items():
            found += _measured(name, knows, complete(evidence.features, model), floor)
        for name, values in tunings.items():
            found += _measured(f"completion, {name}", knows, values, floor)
    return _frame(evidence.party, found)


def gradient_matching(evidence: Evidence, random_state: int = 0) -> float:
    """AUC of labels found by matching gradients with those of a surrogate top model.

    Notes
    -----
    Minimises, over soft labels of every record and a surrogate top model g, the squared distance
    between the gradient of the cross-entropy of g with respect to the party's own outputs and the
    averaged gradients, plus the divergence of the mean soft label from the classes' shares.
    """
    rng = np.random.default_rng(random_state)
    labels, n_classes = evidence.labels, evidence.n_classes
    rows = rng.permutation(len(labels))[:_MATCHED_RECORDS]
    outputs = torch.tensor(_standardised(evidence.last_features[rows])).unsqueeze(0)
    target = torch.tensor(evidence.mean_gradients[rows].astype(np.float32)).unsqueeze(0)
    target = target / target.square().mean().sqrt().clamp_min(1e-30)
    prior = torch.tensor(np.bincount(labels, minlength=n_classes) / len(labels)).float()
    streams = RandomStreams([rng.bytes(32)])
    surrogate = Perceptron([outputs.shape[-1], 32, n_classes], streams=streams, name="surrogate")
    guess = torch.zeros(1, len(rows), n_classes)
    guess += 0.01 * streams.normal("guess", 0, tuple(guess.shape[1:]))
    guess.requires_grad_()
    parameters = [*surrogate.parameters(), guess]
    optimizer = torch.optim.Adam(
        [{"params": parameters[:-1], "lr": 0.01}, {"params": [guess], "lr": 0.1}]
    )
    for _ in range(_MATCHING_STEPS):
        soft = guess.softmax(-1)
        inputs = outputs.clone().requires_grad_()
        loss = -(soft * surrogate(inputs).log_softmax(-1)).sum()
        (gradient,) = torch.autograd.grad(loss, inputs, create_graph=True)
        gradient = gradient / gradient.square().mean().sqrt().clamp_min(1e-30)
        share = soft.mean((0, 1))
        divergence = (share * (share.clamp_min(1e-9) / prior.clamp_min(1e-9)).log()).sum()
        objective = (gradient - target).square().mean() + divergence
        optimizer.zero_grad()
        objective.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    soft = guess.detach().softmax(-1)
    truth = torch.tensor(labels[rows])

    def folded(positive: Tensor) -> Tensor:
        return torch.stack([fold(auc(soft[0, :, c], positive)) for c in range(n_classes)]).amax()

    return float(one_against_rest(folded, truth, n_classes))


def _ranking(values: npt.NDArray[np.float32], labels: Rows, n_classes: int) -> float:
    """Folded AUC along the first principal direction; of each class against the rest."""
    if not values.shape[1]:  # no column varies: all records are alike
        return 0.5
    rows = torch.tensor(values.astype(np.float64)).unsqueeze(0)
    main = (rows @ principal_direction(rows))[0, :, 0]
    truth = torch.tensor(labels)
    return float(one_against_rest(lambda positive: fold(auc(main, positive)), truth, n_classes))


def _grouping(values: npt.NDArray[np.float32], evidence: Evidence, rng: Generator) -> float:
    """Folded AUC of the component that fits each class best; NaN where there is no mixture."""
    odds = component_log_odds(
        values.astype(np.float64), evidence.n_classes, int(rng.integers(2**31))
    )
    if odds is None:
        return float("nan")
    scores, truth = torch.tensor(odds.T.copy()), torch.tensor(evidence.labels)

    def best(positive: Tensor) -> Tensor:
        return fold(auc(scores, positive)).amax()

    return float(one_against_rest(best, truth, evidence.n_classes))


def _known_rows(labels: Rows, n_classes: int, rng: np.random.Generator) -> Iterator[Rows]:
    """Rows of known labels, about as many of each class."""
    per_class = max(1, N_KNOWN // n_classes)
    for _ in range(REPEATS):
        yield np.concatenate(
            [rng.permutation(np.flatnonzero(labels == c))[:per_class] for c in np.unique(labels)]
        )


def _few(known: Sequence[Rows]) -> str:
    """Say how many labels are known."""
    return f"{len(known[0])} labels"


def _completion(
    features: npt.NDArray[np.floating],
    labels: Rows,
    known: Rows,
    n_classes: int,
    model: str = "logistic",
    random_state: int = 0,
) -> Measures:
    """Measure, on the other records, a head trained on the known ones; NaN if not applicable."""
    others = _others(labels, known)
    if not features.shape[1] or not _measurable(labels[known], labels[others]):
        return _NOT_APPLICABLE
    scaled = _standardised(features)
    if model == "logistic":
        head = LogisticRegression(max_iter=1000)
    else:
        head = MLPClassifier((64,), alpha=0.01, max_iter=60, random_state=random_state)
    with warnings.catch_warnings():
        # Some more iterations would fit the known labels a little better.
        warnings.simplefilter("ignore", ConvergenceWarning)
        # Where there are many classes, the fit has said so already.
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        head.fit(scaled[known], labels[known])
    probabilities = np.zeros((len(labels), n_classes))
    probabilities[:, head.classes_] = head.predict_proba(scaled)
    return _judged(probabilities, labels, others)


def _fine_tuned(
    evidence: Evidence, bottom_model: Perceptron, known: Rows, random_state: int
) -> Measures:
    """Measure bottom model and head, trained together; NaN as in `_completion`."""
    others = _others(evidence.labels, known)
    if not _measurable(evidence.labels[known], evidence.labels[others]):
        return _NOT_APPLICABLE
    labels = torch.tensor(evidence.labels)
    records = torch.tensor(evidence.encoded).unsqueeze(0)
    bottom = copy.deepcopy(bottom_model).float()
    secret = np.random.default_rng(random_state).bytes(32)
    head = Perceptron(
        [bottom.dims[-1], evidence.n_classes], streams=RandomStreams([secret]), name="head"
    )
    features = bottom(records).detach()
    mean, spread = features.mean(1, keepdim=True), features.std(1, keepdim=True).clamp_min(1e-6)
    optimizers = [
        FlatAdam(m, learning_rate=1e-2 if m is head else 1e-3, betas=(0.9, 0.999))
        for m in (head, bottom)
    ]
    few, truth = records[:, known], labels[known]
    for _ in range(_FINE_TUNING_STEPS):
        logits = head((bottom(few) - mean) / spread)[0]
        descend(F.cross_entropy(logits, truth), *optimizers)
    with torch.no_grad():
        probabilities = head((bottom(records) - mean) / spread)[0].softmax(-1).numpy()
    return _judged(probabilities, evidence.labels, others)


def _others(labels: Rows, known: Rows) -> Rows:
    return np.setdiff1d(np.arange(len(labels)), known)


def _judged(probabilities: npt.NDArray[np.floating], labels: Rows, rows: Rows) -> Measures:
    """Return the `COMPLETION_MEASURES` of probabilities, (record, class), on some records."""
    found, truth = probabilities[rows], labels[rows]
    right = found.argmax(1) == truth
    classes = np.unique(truth)
    recalls = [float(right[truth == c].mean()) for c in classes]
    ranked = classes[-1:] if probabilities.shape[1] == 2 else classes
    areas = [area(found[:, c].astype(np.float64), truth == c) for c in ranked if (truth != c).any()]
    return np.array([right.mean(), np.mean(recalls), np.mean(areas) if areas else np.nan])


def _measured(attack: str, knows: str, values: Measures, floor: Measures) -> list[Attack]:
    """Return one row per measure."""
    rows = zip(COMPLETION_MEASURES, values, floor, strict=True)
    return [Attack(attack, knows, name, float(value), float(low)) for name, value, low in rows]


def _mean(values: Iterable[Measures]) -> Measures:
    found: Measures = np.mean(list(values), axis=0)
    return found


def _measurable(known: Rows, others: Rows) -> bool:
    """Whether labels can be learned from the known ones, and found again in the others."""
    return len(np.unique(known)) > 1 and bool(np.isin(others, known).any())


def _best(values: Iterable[Measures]) -> Measures:
    """Return the largest value of each measure of those that are applicable, NaN if none is."""
    found: Measures = np.fmax.reduce(list(values))
    return found


def _standardised(features: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    scaled: npt.NDArray[np.floating] = StandardScaler().fit_transform(features)
    return scaled


def _frame(party: str, found: list[Attack]) -> pd.DataFrame:
    frame = pd.DataFrame(found)
    frame.insert(0, "party", party)
    return frame.assign(gain=frame["value"] - frame["baseline"])
