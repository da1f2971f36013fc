"""Attacks of one passive party on everything it kept of a training.

All are measured on the training records against the true labels. What the party's own outputs tell
without any gradient is the baseline: only what goes beyond it did the gradients give away.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
import torch.nn.functional as F
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from torch import Tensor, nn

from vflsynth._random import RandomStreams
from vflsynth.adversary.intervals import auc as area
from vflsynth.networks.layers import FlatAdam
from vflsynth.splitdefense.leakage.base import (
    Floats,
    Found,
    Rows,
    as_frame,
    others_than,
    standardised,
)
from vflsynth.splitdefense.leakage.labels import (
    VIEWS,
    chosen_by_simulation,
    folded_auc,
    ranking,
    rankings,
)
from vflsynth.splitdefense.leakage.monitor import Evidence
from vflsynth.splitdefense.objectives.base import descend
from vflsynth.splitdefense.settings import Perceptron

N_KNOWN = 40
"""About so many labels are known to the attacks with few: equally many of each class."""

REPEATS = 5
"""Draws of the known labels, whose results are averaged."""

_FINE_TUNING_STEPS = 200

COMPLETION_MEASURES = ("accuracy", "balanced accuracy", "AUC")
"""What attacks that know some labels are measured by."""

Measures = npt.NDArray[np.float64]
"""One value per measure."""

_NOT_APPLICABLE: Measures = np.full(len(COMPLETION_MEASURES), np.nan)


def transcript_attacks(
    evidence: Evidence, random_state: int = 0, classifier: Any = None
) -> pd.DataFrame:
    """Run every attack on labels that works on the whole transcript; see `base.as_frame`.

    With a `classifier`, as it was trained, attackers also choose by simulation, see
    `labels.chosen_by_simulation`.

    Attacks without labels (`Ranking`, registered) rank records; several classes are each taken
    against the rest. They are folded: upside down counts as right. They look at averages over
    epochs of each record's scaled gradients, of all epochs or the first, when gradients tell most
    and noise hides least; at what the party's own outputs do not explain of them, the residuals,
    and at their signs; by themselves or jointly with the outputs. The baseline is *forward output*:
    the party's own outputs, along their first principal direction. Its own baseline is the better
    of the party's columns and its untrained bottom model: the difference it learned.

    Attacks with labels know about 40, equally many of each class but at least one, and are measured
    on the other records: logistic regression on the outputs alone (the baseline), and with averaged
    gradients or residuals. Accuracy, balanced accuracy and AUC: where one class is rare, accuracy
    is that of naming the other. They are not applicable (NaN) where no other record is left, or
    none of a class that is known.
    """
    labels, n_classes = evidence.labels, evidence.n_classes
    forward = ranking(evidence.features, evidence)
    floors = [ranking(v, evidence) for v in (evidence.encoded, evidence.random_features)]
    ranked = list(rankings(evidence, np.random.default_rng(random_state)))
    found = [
        Found("forward output", "no label", "AUC", forward, max(floors)),
        *(
            Found(title, knows, "AUC", folded_auc(scores, labels, n_classes), forward)
            for title, knows, scores in ranked
        ),
    ]
    if classifier is not None:
        found += chosen_by_simulation(classifier, evidence, ranked, forward, random_state)
    known = list(_known_rows(labels, n_classes, np.random.default_rng(random_state)))

    def few(features: Floats) -> Measures:
        return _mean(_completion(features, labels, rows, n_classes) for rows in known)

    baseline = few(evidence.features)
    knows = f"{len(known[0])} labels"
    found += _measured("forward output", knows, baseline, baseline)
    for view, name in VIEWS.items():
        joined = np.concatenate([evidence.features, getattr(evidence, name)], 1)
        found += _measured(view, knows, few(joined), baseline)
    return as_frame(evidence.party, found)


def completion_attacks(
    evidence: Evidence, bottom_model: Perceptron, random_state: int = 0
) -> pd.DataFrame:
    """Complete the party's bottom model to a classifier of its own (Fu et al. 2022; DIMIP §3.3).

    `bottom_model` is the party's, as trained, of one replica. The baseline is the better of two
    floors that need no training with the active party: the party's raw columns, and its bottom
    model before training.

    Features are always standardised: an attacker who does not do so is fooled by their scale. Few
    labels train a logistic head or a perceptron on the frozen bottom model, or head and bottom
    model together, from these labels alone or with guesses of the others
    (`completed_with_guesses`). All labels of one half of the records, measured on the other, train
    the first three. Floors are the better of logistic head and perceptron on columns and on the
    untrained bottom model.

    Departs from DIMIP §5.1, whose perceptron has layers of 512 and 256 for images; ours has one of
    64.

    The attack is a passive one where the party followed the protocol, and an active one where it
    trained its bottom model with `MaliciousSGD`. It is not applicable (NaN) where no record of a
    known class is left to measure it on, or all known labels are the same; columns without any
    variation are no floor.
    """
    rng = np.random.default_rng(random_state)
    labels, n_classes = evidence.labels, evidence.n_classes
    known = list(_known_rows(labels, n_classes, rng))
    half = rng.permutation(len(labels))[: len(labels) // 2]

    def completed(draws: Sequence[Rows], features: npt.NDArray[np.float32], model: str) -> Measures:
        return _mean(
            _completion(features, labels, rows, n_classes, model, random_state) for rows in draws
        )

    guessed = _NOT_APPLICABLE
    if all(_measurable(labels[rows], np.delete(labels, rows)) for rows in known):
        odds = completed_with_guesses(evidence.encoded, labels, known, bottom_model, n_classes, rng)
        guessed = _mean(
            _judged(p, labels, others_than(r, len(labels))) for p, r in zip(odds, known)
        )
    heads = {"logistic": "completion, frozen", "perceptron": "completion, MLP"}
    found = []
    for knows, draws, more in (
        (f"{len(known[0])} labels", known, {"semi-supervised": guessed}),
        ("half of the labels", [half], {}),
    ):
        floor: Measures = np.fmax.reduce(  # of those that are applicable
            [
                completed(draws, features, model)
                for features in (evidence.encoded, evidence.random_features)
                for model in heads
            ]
        )
        for model, name in heads.items():
            found += _measured(name, knows, completed(draws, evidence.features, model), floor)
        tuned = _mean(_fine_tuned(evidence, bottom_model, rows, random_state) for rows in draws)
        for name, values in {"fine-tuned": tuned, **more}.items():
            found += _measured(f"completion, {name}", knows, values, floor)
    return as_frame(evidence.party, found)


def _known_rows(labels: Rows, n_classes: int, rng: np.random.Generator) -> Iterator[Rows]:
    """Rows of known labels, about as many of each class."""
    per_class = max(1, N_KNOWN // n_classes)
    for _ in range(REPEATS):
        yield np.concatenate(
            [rng.permutation(np.flatnonzero(labels == c))[:per_class] for c in np.unique(labels)]
        )


def _completion(
    features: npt.NDArray[np.floating],
    labels: Rows,
    known: Rows,
    n_classes: int,
    model: str = "logistic",
    random_state: int = 0,
) -> Measures:
    """Measure, on the other records, a head trained on the known ones; NaN if not applicable."""
    others = others_than(known, len(labels))
    if not features.shape[1] or not _measurable(labels[known], labels[others]):
        return _NOT_APPLICABLE
    scaled = standardised(features)
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
    others = others_than(known, len(evidence.labels))
    if not _measurable(evidence.labels[known], evidence.labels[others]):
        return _NOT_APPLICABLE
    labels = torch.tensor(evidence.labels)
    records = torch.tensor(evidence.encoded).unsqueeze(0)
    bottom = copy.deepcopy(bottom_model).float()
    secret = np.random.default_rng(random_state).bytes(32)
    head, logits_of = _with_head(bottom, records, evidence.n_classes, [secret])
    optimizers = [FlatAdam(one, learning_rate=rate) for one, rate in ((head, 1e-2), (bottom, 1e-3))]
    few, truth = records[:, known], labels[known]
    for _ in range(_FINE_TUNING_STEPS):
        descend(F.cross_entropy(logits_of(few)[0], truth), *optimizers)
    with torch.no_grad():
        probabilities = logits_of(records)[0].softmax(-1).numpy()
    return _judged(probabilities, evidence.labels, others)


def _with_head(
    bottom: Perceptron, records: Tensor, n_classes: int, secrets: Sequence[bytes]
) -> tuple[Perceptron, Callable[[Tensor], Tensor]]:
    """Make a head for a bottom model, and logits by both, features standardised as of `records`."""
    streams = RandomStreams(secrets)
    head = Perceptron([bottom.dims[-1], n_classes], streams=streams, name="head")
    with torch.no_grad():
        features = bottom(records)
    mean, spread = features.mean(1, keepdim=True), features.std(1, keepdim=True).clamp_min(1e-6)
    return head, lambda rows: head((bottom(rows) - mean) / spread)


def _judged(probabilities: npt.NDArray[np.floating], labels: Rows, rows: Rows) -> Measures:
    """Return the `COMPLETION_MEASURES` of probabilities, (record, class), on some records."""
    found, truth = probabilities[rows], labels[rows]
    right = found.argmax(1) == truth
    classes = np.unique(truth)
    recalls = [float(right[truth == c].mean()) for c in classes]
    ranked = classes[-1:] if probabilities.shape[1] == 2 else classes
    areas = [area(found[:, c].astype(np.float64), truth == c) for c in ranked if (truth != c).any()]
    return np.array([right.mean(), np.mean(recalls), np.mean(areas) if areas else np.nan])


def _measured(attack: str, knows: str, values: Measures, floor: Measures) -> list[Found]:
    """Return one row per measure."""
    rows = zip(COMPLETION_MEASURES, values, floor, strict=True)
    return [Found(attack, knows, name, float(value), float(low)) for name, value, low in rows]


def _mean(values: Iterable[Measures]) -> Measures:
    found: Measures = np.mean(list(values), axis=0)
    return found


def _measurable(known: Rows, others: Rows) -> bool:
    """Whether labels can be learned from the known ones, and found again in the others."""
    return len(np.unique(known)) > 1 and bool(np.isin(others, known).any())


_STEPS = 500
_BATCH = 64
_LEARNING_RATE = 2e-3
_TEMPERATURE = 0.8
_MIXING = 0.75
_GUESSES_WEIGHT = 50.0
_AVERAGE = 0.99


def completed_with_guesses(
    records: npt.NDArray[np.float32],
    labels: npt.NDArray[np.int64],
    known: Sequence[npt.NDArray[np.intp]],
    bottom_model: Perceptron,
    n_classes: int,
    rng: np.random.Generator,
) -> npt.NDArray[np.float32]:
    """Probabilities by bottom model and head, trained on known labels and on guesses of the others.

    `records`, (record, column), are the party's own, encoded; `bottom_model` is as trained with the
    active party, of one replica. `known` are draws, of equal size, of the records whose labels are
    known; all are trained at once, one replica each. Returns an array (draw, record, class).

    Source: Fu et al. 2022 and their code, which is MixMatch (Berthelot et al. 2019) without
    augmentation: guesses sharpened at temperature 0.8, records and labels mixed in proportions from
    Beta(0.75, 0.75), squared error of guesses with a weight that rises to 50, averaged weights.

    Departs from the code: 500 steps of 64 known and 64 other records (25,600 of 16), with an
    average over about 100 steps (1,000); the last model is taken (the best by true labels);
    features are standardised before the head (batch normalisation). Where the bottom model has
    learned nothing, the weight of 50 can draw all guesses to one class.
    """
    n, repeats = len(records), len(known)
    x = torch.tensor(records)
    one_hot = F.one_hot(torch.tensor(labels), n_classes).float()
    others = np.stack([others_than(rows, n) for rows in known])
    bottom = _repeated(copy.deepcopy(bottom_model).float(), repeats)
    everybody = x.expand(repeats, -1, -1)
    head, logits = _with_head(bottom, everybody, n_classes, [rng.bytes(32) for _ in known])

    def drawn(pools: npt.NDArray[np.intp]) -> Tensor:
        places = rng.integers(pools.shape[1], size=(repeats, _BATCH))
        return torch.tensor(np.take_along_axis(pools, places, 1))

    whole = nn.ModuleList([bottom, head])
    optimizer = FlatAdam(whole, learning_rate=_LEARNING_RATE)
    average = optimizer.flat.clone()
    for step in range(_STEPS):
        labelled, unlabelled = drawn(np.stack(known)), drawn(others)
        with torch.no_grad():
            guesses = (logits(x[unlabelled]) / _TEMPERATURE).softmax(-1)
        rows = torch.cat([x[labelled], x[unlabelled]], 1)
        targets = torch.cat([one_hot[labelled], guesses], 1)
        partners = torch.tensor(rng.permutation(2 * _BATCH))
        share = float(max(portion := rng.beta(_MIXING, _MIXING), 1.0 - portion))
        rows = torch.lerp(rows[:, partners], rows, share)
        targets = torch.lerp(targets[:, partners], targets, share)
        found = logits(rows)
        supervised = -(targets * found.log_softmax(-1))[:, :_BATCH].sum(-1).mean(1)
        guessed = (found.softmax(-1) - targets)[:, _BATCH:].square().mean((1, 2))
        loss = supervised + _GUESSES_WEIGHT * step / _STEPS * guessed
        descend(loss, optimizer)
        average.lerp_(optimizer.flat, 1.0 - _AVERAGE)
    with torch.no_grad():
        optimizer.flat.copy_(average)
        odds: npt.NDArray[np.float32] = logits(everybody).softmax(-1).numpy()
    return odds


def _repeated(module: Perceptron, n_replicas: int) -> Perceptron:
    """Copy a network of one replica as one of several equal ones."""
    copies: dict[int, Any] = {
        id(p): nn.Parameter(p.detach().repeat(n_replicas, *[1] * (p.dim() - 1)))
        for p in module.parameters()
    }
    return copy.deepcopy(module, copies)
