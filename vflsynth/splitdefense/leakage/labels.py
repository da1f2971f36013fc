"""Attacks of a passive party on labels of which it knows none.

Each ranks the records, by what the party averaged of the gradients it received, by its own outputs,
or by both together. A party that wants to know which of them to trust simulates the training on its
own columns with labels that it made up (`chosen_by_simulation`).
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
import torch
from numpy.random import Generator
from scipy.special import expit
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.mixture import GaussianMixture
from torch import Tensor, nn

from vflsynth._random import RandomStreams
from vflsynth.exceptions import ParameterError, PublishingWarning, TrainingDivergedError
from vflsynth.networks.layers import FlatAdam
from vflsynth.registry import Members, register
from vflsynth.splitdefense.leakage.base import (
    Floats,
    Found,
    LeakageAttack,
    Rows,
    auc,
    fold,
    one_against_rest,
    principal_direction,
    standardised,
)
from vflsynth.splitdefense.leakage.monitor import Evidence
from vflsynth.splitdefense.objectives.base import descend
from vflsynth.splitdefense.settings import Perceptron

VIEWS: Mapping[str, str] = {
    "averaging": "mean_gradients",
    "averaging of the first epochs": "early_gradients",
    "residual": "residuals",
    "residual of all epochs": "all_residuals",
    "signs of residuals": "signs",
}
"""What is averaged of a record's gradients, by the name that attacks have for it."""

_MATCHED_RECORDS = 2000
_MATCHING_STEPS = 300
_SIMULATED_RECORDS = 2000
_TEACHER_NOISE = 0.7
MOST_COMPONENTS, _LEAST_RECORDS = 10, 5  # of a mixture, and per component
_FITTED_RECORDS, _STARTS = 5000, 3
_WEIGHINGS, _MOST_TRUST = 20, 5.0  # log odds: outputs never outweigh what gradients tell surely


class Ranking(LeakageAttack):
    """Ranks records by their labels without knowing one."""

    knows: ClassVar[str] = "no label"
    views: ClassVar[tuple[str, ...]] = tuple(VIEWS)
    """What it is tried on, in turn; none if it decides by itself."""

    def title(self, view: str) -> str:
        """Name the attack on a view."""
        return f"{self.name}, {view}" if view else self.name

    @abstractmethod
    def scores(self, evidence: Evidence, view: str, rng: Generator) -> Floats | None:
        """Return a score per record and group, (record, group); None where it cannot be had.

        One group ranks the records; of several, whichever fits a class best is taken for it.
        """


def _kept(evidence: Evidence, view: str) -> Floats:
    values: Floats = getattr(evidence, VIEWS[view])
    return values.astype(np.float64)


def line_of(values: Floats) -> Floats:
    """Position along the first principal direction, (record, 1)."""
    if not values.shape[1]:  # no column varies: all records are alike
        return np.zeros((len(values), 1))
    rows = torch.tensor(values, dtype=torch.float64).unsqueeze(0)
    return (rows @ principal_direction(rows))[0].numpy()


def _odds(
    values: Floats, evidence: Evidence, rng: Generator, covariance: Literal["full", "tied"] = "full"
) -> Floats | None:
    """Return how much more likely each of as many Gaussians as classes made a record than others.

    The result has shape (record, component). It is None for more than 10 components or fewer than 5
    records for each: such a mixture finds nothing. It is fitted to at most 5,000 records.
    Covariances are of each component, or one for all ("tied": odds are then linear); the best of
    three starts from k-means is taken by its likelihood.
    """
    records, n = values.astype(np.float64), evidence.n_classes
    rng = np.random.default_rng([int(rng.integers(2**31)), 12])
    varies = records.std(axis=0) > 0.0
    if n > MOST_COMPONENTS or len(records) < _LEAST_RECORDS * n:
        return None
    if not varies.any():
        return np.zeros((len(records), n))
    scaled = (records - records.mean(axis=0))[:, varies] / records.std(axis=0)[varies]
    mixture = GaussianMixture(
        n,
        covariance_type=covariance,
        n_init=_STARTS,
        reg_covar=1e-5,
        random_state=int(rng.integers(2**31)),
    )
    with warnings.catch_warnings():
        # Fewer different records than components, or a start that would go on a little longer.
        warnings.simplefilter("ignore", ConvergenceWarning)
        mixture.fit(scaled[rng.permutation(len(scaled))[:_FITTED_RECORDS]])
    shares = mixture.predict_proba(scaled)
    tiny = np.finfo(np.float64).tiny
    odds: Floats = np.log(np.maximum(shares, tiny)) - np.log(np.maximum(1.0 - shares, tiny))
    return odds


@register
class Direction(Ranking):
    """The position along the first principal direction."""

    name = "direction"

    def title(self, view: str) -> str:
        """Name the view alone."""
        return view

    def scores(self, evidence: Evidence, view: str, rng: Generator) -> Floats | None:
        """Return the positions."""
        return line_of(_kept(evidence, view))


@register
class Mixture(Ranking):
    """The odds of each of as many Gaussians as there are classes."""

    name = "mixture"

    def scores(self, evidence: Evidence, view: str, rng: Generator) -> Floats | None:
        """Fit the mixture."""
        return _odds(_kept(evidence, view), evidence, rng)


@register
class JointMixture(Ranking):
    """The same of averaged gradients together with the party's outputs: all numbers of both."""

    name = "joint mixture"

    def scores(self, evidence: Evidence, view: str, rng: Generator) -> Floats | None:
        """Fit the mixture."""
        return _odds(np.concatenate([evidence.features, _kept(evidence, view)], 1), evidence, rng)


@register
class NarrowJointMixture(Ranking):
    """The same of the first principal directions of both, where the other numbers are noise."""

    name = "joint mixture of directions"

    def scores(self, evidence: Evidence, view: str, rng: Generator) -> Floats | None:
        """Fit the mixture."""
        outputs = line_of(standardised(evidence.features))
        return _odds(np.concatenate([outputs, line_of(_kept(evidence, view))], 1), evidence, rng)


@register
class Posterior(Ranking):
    """The odds of a label given both, as if they were independent given the label.

    Outputs are a guess of the true label; groups of averaged gradients are those of the labels that
    were trained on, which may be randomised. How often the two differ is estimated with the odds by
    expectation and maximisation (Dawid and Skene 1979). For two classes.
    """

    name = "posterior"

    def scores(self, evidence: Evidence, view: str, rng: Generator) -> Floats | None:
        """Weigh the two against each other."""
        if evidence.n_classes != 2:
            return None
        outputs = _odds(line_of(standardised(evidence.features)), evidence, rng, "tied")
        groups = _odds(_kept(evidence, view), evidence, rng)
        if outputs is None or groups is None:
            return None
        prior, second = outputs[:, :1].clip(-_MOST_TRUST, _MOST_TRUST), expit(groups[:, :1])
        if ((expit(prior) - 0.5) * (second - 0.5)).mean() < 0.0:
            second = 1.0 - second
        odds = prior
        for _ in range(_WEIGHINGS):
            true = expit(odds)
            differ = float((true * (1.0 - second) + (1.0 - true) * second).mean())
            differ = min(max(differ, 1e-3), 0.5)
            same = 1.0 - differ
            odds = prior + np.log(same * second + differ * (1.0 - second))
            odds = odds - np.log(differ * second + same * (1.0 - second))
        return odds


@register
class GradientMatching(Ranking):
    """Soft labels and a surrogate top model whose gradients match the averaged ones.

    Source: ExPLoit (Kariyappa and Qureshi 2021). Minimises, over soft labels of every record and a
    surrogate top model g, the squared distance between the gradient of the cross-entropy of g with
    respect to the party's own outputs and the averaged gradients, plus the divergence of the mean
    soft label from the classes' shares. Looks at 2,000 records; the others get even odds.
    """

    name = "gradient matching"
    knows = "shares of classes"
    views = ("",)

    def scores(self, evidence: Evidence, view: str, rng: Generator) -> Floats | None:
        """Descend."""
        labels, n_classes = evidence.labels, evidence.n_classes
        rows = rng.permutation(len(labels))[:_MATCHED_RECORDS]
        outputs = torch.tensor(standardised(evidence.last_features[rows])).float().unsqueeze(0)
        target = torch.tensor(evidence.mean_gradients[rows].astype(np.float32)).unsqueeze(0)
        target = target / target.square().mean().sqrt().clamp_min(1e-30)
        prior = torch.tensor(np.bincount(labels, minlength=n_classes) / len(labels)).float()
        streams = RandomStreams([rng.bytes(32)])
        dims = [outputs.shape[-1], 32, n_classes]
        surrogate = Perceptron(dims, streams=streams, name="surrogate")
        guess = nn.Parameter(0.01 * streams.normal("guess", 0, (len(rows), n_classes)))
        steps = [
            FlatAdam(one, learning_rate=rate)
            for one, rate in ((surrogate, 0.01), (nn.ParameterList([guess]), 0.1))
        ]
        for _ in range(_MATCHING_STEPS):
            soft = guess.softmax(-1)
            inputs = outputs.clone().requires_grad_()
            loss = -(soft * surrogate(inputs).log_softmax(-1)).sum()
            (gradient,) = torch.autograd.grad(loss, inputs, create_graph=True)
            gradient = gradient / gradient.square().mean().sqrt().clamp_min(1e-30)
            share = soft.mean((0, 1))
            divergence = (share * (share.clamp_min(1e-9) / prior.clamp_min(1e-9)).log()).sum()
            descend((gradient - target).square().mean() + divergence, *steps)
        found = np.full((len(labels), n_classes), np.nan)
        found[rows] = guess.detach().softmax(-1)[0].numpy()
        return found


def rankings(evidence: Evidence, rng: Generator) -> Iterator[tuple[str, str, Floats | None]]:
    """Run every registered `Ranking` on every view; yield title, what it knows, and scores."""
    for attack in Members("leakage_attacks").values():
        if issubclass(attack, Ranking):
            for view in attack.views:
                one = attack()
                yield one.title(view), one.knows, one.scores(evidence, view, rng)


def folded_auc(scores: Floats | None, labels: Rows, n_classes: int) -> float:
    """How well scores, (record, group), rank the records: each class against the rest, folded.

    NaN where there are no scores; records without any count for nothing.
    """
    if scores is None:
        return float("nan")
    there = ~np.isnan(scores).any(axis=1)
    groups, truth = torch.tensor(scores[there].T.copy()), torch.tensor(labels[there])

    def best(positive: Tensor) -> Tensor:
        return fold(auc(groups, positive)).amax()

    return float(one_against_rest(best, truth, n_classes))


def ranking(values: Floats, evidence: Evidence) -> float:
    """Folded AUC along the first principal direction."""
    return folded_auc(line_of(values), evidence.labels, evidence.n_classes)


def chosen_by_simulation(
    classifier: Any,
    evidence: Evidence,
    real: Sequence[tuple[str, str, Floats | None]],
    forward: float,
    random_state: int = 0,
) -> list[Found]:
    """Measure what a party gets that decides without the true labels.

    *chosen by simulation* is the ranking that did best on simulated labels; *learned from
    simulation* a logistic regression of the ranks of all of them, taught there. `real` is what
    `rankings` yields of the evidence with a generator of `random_state`. The baseline, `forward`,
    is what the party's outputs alone tell. Empty where the classifier cannot be trained on one
    party's columns alone.

    The attacker trains the same classifier, for as many epochs, on its own encoded columns and
    labels drawn from a random network of them, in the shares of the classes; it attacks that
    training, whose labels it knows, and does the same with the real one. At most 2,000 records.
    """
    rng = np.random.default_rng([random_state, 7])
    simulated = _simulated(classifier, evidence, rng)
    if simulated is None:
        return []
    teaching = list(rankings(simulated, np.random.default_rng(random_state)))
    labels, n_classes = evidence.labels, evidence.n_classes
    told = [folded_auc(scores, simulated.labels, n_classes) for *_, scores in teaching]
    best = int(np.nanargmax(told))
    value = folded_auc(real[best][2], labels, n_classes)
    found = [Found(f"chosen by simulation ({real[best][0]})", "no label", "AUC", value, forward)]
    if n_classes == 2:
        lessons, questions = _ranks(simulated, teaching, best), _ranks(evidence, real, best)
        head = LogisticRegression(C=1.0, max_iter=500).fit(lessons, simulated.labels)
        value = folded_auc(head.decision_function(questions)[:, None], labels, 2)
        found.append(Found("learned from simulation", "no label", "AUC", value, forward))
    return found


def _simulated(classifier: Any, evidence: Evidence, rng: Generator) -> Evidence | None:
    """Return the evidence of a training on the party's own columns and made-up labels."""
    if not evidence.encoded.shape[1]:
        return None
    rows = rng.permutation(len(evidence.labels))[:_SIMULATED_RECORDS]
    encoded = standardised(evidence.encoded[rows])
    hidden = np.tanh(encoded @ rng.normal(size=(encoded.shape[1], 8)) / encoded.shape[1] ** 0.5)
    logit = standardised(hidden @ rng.normal(size=(8, 1)))[:, 0]
    logit = logit + _TEACHER_NOISE * rng.logistic(size=len(rows))
    shares = np.bincount(evidence.labels, minlength=evidence.n_classes) / len(evidence.labels)
    labels = np.searchsorted(np.quantile(logit, shares.cumsum()[:-1]), logit, side="right")
    table = pd.DataFrame(encoded, columns=[f"column {i}" for i in range(encoded.shape[1])])
    unlike = ("active", "party_columns", "malicious", "classes", "class_weight", "transformer")
    twin = clone(classifier).set_params(
        **dict.fromkeys(unlike),
        patience=None,
        party_dropout=0.0,
        monitor=True,
        epochs=len(classifier.history_),
        random_state=int(rng.integers(2**31)),
        verbose=0,
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PublishingWarning)
            twin.fit(table, labels)
    except (ParameterError, TrainingDivergedError):
        return None
    simulated: Evidence = next(iter(twin.evidence_.values()))
    return simulated


def _ranks(
    evidence: Evidence, found: Sequence[tuple[str, str, Floats | None]], reference: int
) -> Floats:
    """Ranks of outputs and of what attacks found, turned to agree with one of these."""
    outputs = line_of(standardised(evidence.features))
    columns = [
        outputs if scores is None or np.isnan(scores).any() else scores[:, :1]
        for *_, scores in [*found, ("", "", outputs)]
    ]
    ranks = [standardised(column.argsort(0).argsort(0).astype(np.float64)) for column in columns]
    return np.hstack([(np.sign((one * ranks[reference]).mean()) or 1.0) * one for one in ranks])
