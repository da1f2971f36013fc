"""Attacks of the label holder on the passive parties' columns.

It has what a party sent: outputs of the bottom model at several stages of training, which are as
many different functions of the same columns, and after it. Beside them it has labels and columns of
its own. Of some records it knows the party's columns, say because these people are customers of
both. All attacks are measured on the other records.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from numpy.random import Generator
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, RidgeCV

from vflsynth._random import RandomStreams
from vflsynth.columns.base import OutputSpan
from vflsynth.networks.layers import FlatAdam
from vflsynth.registry import Members, register
from vflsynth.splitdefense.leakage.base import (
    Floats,
    Found,
    LeakageAttack,
    Rows,
    as_frame,
    others_than,
    standardised,
)
from vflsynth.splitdefense.leakage.monitor import Evidence
from vflsynth.splitdefense.objectives.base import descend
from vflsynth.splitdefense.settings import Perceptron

KNOWN_RECORDS = (40, 400)
"""Numbers of records whose columns the attacker knows, beside none at all."""

_STEPS, _TREES = 300, 40
_MOST_RECORDS = 4000


class Inversion(LeakageAttack):
    """Guesses encoded columns of all records from some numbers of each."""

    known: ClassVar[tuple[int, ...]] = KNOWN_RECORDS
    """How many records must be known."""

    repeats: ClassVar[int] = 3
    """Draws of the known records, whose results are averaged."""

    reads: ClassVar[tuple[str, ...]] = ("identity", "softmax")
    """Numbers ("identity"), categories ("softmax"), or both."""

    @abstractmethod
    def guess(
        self, seen: Floats, known: Rows, truth: Floats, spans: Sequence[OutputSpan], rng: Generator
    ) -> Floats:
        """Return guesses of every record's columns.

        Parameters
        ----------
        seen : ndarray, shape (record, number)
            Standardised.
        known : ndarray of int, shape (known,)
        truth : ndarray, shape (known, column)
            Encoded columns of the known records.
        spans : sequence of OutputSpan
            Which of them belong together, and what they are.
        rng : numpy.random.Generator

        Returns
        -------
        ndarray, shape (record, column)
            Numbers, and of categories how likely each is.
        """


@register
class PrincipalDirection(Inversion):
    """The position of a record along the first principal direction, with no record known.

    Which way up it is, and its scale, count as known: the R² is a squared correlation.
    """

    name = "principal direction"
    known, repeats, reads = (0,), 1, ("identity",)

    def guess(
        self, seen: Floats, known: Rows, truth: Floats, spans: Sequence[OutputSpan], rng: Generator
    ) -> Floats:
        """Repeat the direction for every column; `truth` is all there is to scale it by."""
        line = standardised(seen @ np.linalg.svd(seen, full_matrices=False)[2][0][:, None])
        slopes = (line * standardised(truth)).mean(axis=0) * truth.std(axis=0)
        return np.asarray(line * slopes + truth.mean(axis=0))


@register
class RidgeInversion(Inversion):
    """Linear regression whose penalty is chosen by leaving out known records."""

    name = "ridge inversion"
    reads = ("identity",)

    def guess(
        self, seen: Floats, known: Rows, truth: Floats, spans: Sequence[OutputSpan], rng: Generator
    ) -> Floats:
        """Regress all columns at once."""
        model = RidgeCV(np.logspace(-2, 5, 15), alpha_per_target=True).fit(seen[known], truth)
        guesses: Floats = model.predict(seen).reshape(len(seen), -1)  # of one column it is flat
        return guesses


class _ColumnByColumn(Inversion):
    """One model per column, fitted to the known records."""

    @abstractmethod
    def model(self, span: OutputSpan) -> Any:
        """Return an estimator for a column."""

    def guess(
        self, seen: Floats, known: Rows, truth: Floats, spans: Sequence[OutputSpan], rng: Generator
    ) -> Floats:
        """Fit the models."""
        guesses = np.zeros((len(seen), truth.shape[1]))
        for span in spans:
            columns = slice(span.start, span.stop)
            wanted, model = truth[:, columns], self.model(span)
            if span.activation == "identity":
                guesses[:, columns] = model.fit(seen[known], wanted[:, 0]).predict(seen)[:, None]
                continue
            codes = wanted.argmax(axis=1)
            if len(np.unique(codes)) == 1:
                guesses[:, span.start + codes[0]] = 1.0
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                model.fit(seen[known], codes)
            guesses[:, span.start + model.classes_] = model.predict_proba(seen)
        return guesses


@register
class AttributeInference(_ColumnByColumn):
    """Multinomial logistic regression of each category.

    Source: attribute inference of VFLAIR (Zou et al. 2023), with a linear model.
    """

    name = "attribute inference"
    reads = ("softmax",)

    def model(self, span: OutputSpan) -> Any:
        """Return a regression."""
        return LogisticRegression(C=0.1, max_iter=200)


@register
class BoostedInversion(_ColumnByColumn):
    """Boosted trees, column by column."""

    name = "boosted trees"
    repeats = 1

    def model(self, span: OutputSpan) -> Any:
        """Return trees."""
        options = {"max_iter": _TREES, "min_samples_leaf": 5, "learning_rate": 0.15}
        if span.activation == "softmax":
            return HistGradientBoostingClassifier(**options)
        return HistGradientBoostingRegressor(**options)


@register
class GenerativeInversion(Inversion):
    """A network that guesses columns, and one that says what these would have sent.

    Source: the generative regression network of Luo et al. 2021, which asks the party's own model
    what a guess would send. Nobody can ask it here, so a surrogate learns it from the known
    records; both are trained at once, and all records that were sent teach the first one.
    """

    name = "generative regression"
    repeats = 1

    def guess(
        self, seen: Floats, known: Rows, truth: Floats, spans: Sequence[OutputSpan], rng: Generator
    ) -> Floats:
        """Train both networks."""
        streams = RandomStreams([rng.bytes(32)])
        sent = torch.tensor(seen, dtype=torch.float32).unsqueeze(0)
        columns = torch.tensor(truth, dtype=torch.float32).unsqueeze(0)
        middle, spread = columns.mean(1, keepdim=True), columns.std(1, keepdim=True)
        scaled = (columns - middle) / spread.clamp_min(1e-6)
        wide, narrow = sent.shape[-1], columns.shape[-1]
        generator = Perceptron([wide, 64, narrow], streams=streams, name="generator")
        surrogate = Perceptron([narrow, 64, wide], streams=streams, name="surrogate")
        steps = [
            FlatAdam(one, learning_rate=3e-3, weight_decay=0.1) for one in (generator, surrogate)
        ]
        for _ in range(_STEPS):
            rows = torch.tensor(rng.integers(sent.shape[1], size=256))
            loss = F.mse_loss(generator(sent[:, known]), scaled)
            loss = loss + F.mse_loss(surrogate(scaled), sent[:, known])
            loss = loss + 0.1 * F.mse_loss(surrogate(generator(sent[:, rows])), sent[:, rows])
            descend(loss, *steps)
        with torch.no_grad():
            guesses: Floats = (generator(sent) * spread + middle)[0].numpy()
        return guesses


def column_attacks(evidence: Evidence, random_state: int = 0) -> pd.DataFrame:
    """Run every registered `Inversion` on what one party sent, of no more than 4,000 records.

    Returns, as `base.as_frame` does, per attack and number of known records the column of numbers
    (R²) and the categorical one (accuracy) of which most is disclosed, and the mean R². The
    baseline is the better of guessing the mean, or the most frequent category, and of the same
    attack without the cut: from labels and the label holder's own columns alone. Rows are NaN where
    fewer other records are left than are known.
    """
    rng = np.random.default_rng([random_state, 5])
    rows = np.sort(rng.permutation(len(evidence.labels))[:_MOST_RECORDS])
    own = np.concatenate(
        [np.eye(evidence.n_classes)[evidence.labels[rows]], evidence.beside[rows]], axis=1
    )
    sent = np.concatenate([evidence.snapshots, evidence.features], axis=1)[rows]
    both = standardised(np.concatenate([sent, own], axis=1))
    own, truth = standardised(own), evidence.encoded[rows].astype(np.float64)
    varies = [s for s in evidence.spans if np.ptp(truth[:, s.start : s.stop], 0).any()]
    found: list[Found] = []
    for attack in Members("leakage_attacks").values():
        if not issubclass(attack, Inversion):
            continue
        spans = [span for span in varies if span.activation in attack.reads]
        for n_known in attack.known if spans else ():
            draws = [rng.permutation(len(rows))[:n_known] for _ in range(attack.repeats)]
            found += _of_attack(attack(), n_known, draws, own, both, truth, spans, rng)
    return as_frame(evidence.party, found)


def _of_attack(
    attack: Inversion,
    n_known: int,
    draws: Sequence[Rows],
    own: Floats,
    both: Floats,
    truth: Floats,
    spans: Sequence[OutputSpan],
    rng: Generator,
) -> Iterator[Found]:
    """Measure an attack with some known records, per kind of column."""
    values, floors = np.full((2, len(spans)), np.nan)
    if len(truth) >= 2 * n_known + 2:
        measured = []
        for known in draws:
            taught = truth[known] if n_known else truth  # else scale and sign are given
            guesses = [attack.guess(seen, known, taught, spans, rng) for seen in (both, own)]
            measured.append([_measures(guess, truth, known, spans) for guess in guesses])
        values, floors = np.mean(measured, axis=0)
        guessing = [
            # The mean is worth nothing, the most frequent category its share.
            0.0 if s.activation == "identity" else truth[:, s.start : s.stop].mean(axis=0).max()
            for s in spans
        ]
        floors = np.maximum(floors, guessing)
    knows = f"{n_known} records" if n_known else "no record"
    disclosed = (values - floors) / np.maximum(1.0 - floors, 1e-9)
    for kind, measure in (("identity", "R²"), ("softmax", "accuracy")):
        of_kind = [i for i, span in enumerate(spans) if span.activation == kind]
        if not of_kind:
            continue
        worst = max(of_kind, key=lambda i: -np.inf if np.isnan(disclosed[i]) else disclosed[i])
        yield Found(attack.name, knows, measure, values[worst], floors[worst], spans[worst].column)
        if kind == "identity":
            mean, floor = float(values[of_kind].mean()), float(floors[of_kind].mean())
            yield Found(attack.name, knows, "mean R²", mean, floor)


def _measures(
    guesses: Floats, truth: Floats, known: Rows, spans: Sequence[OutputSpan]
) -> list[float]:
    """R² or accuracy of every span, on the records that are not known."""
    rows = others_than(known, len(truth))
    found = []
    for span in spans:
        columns = slice(span.start, span.stop)
        guess, real = guesses[rows, columns], truth[rows, columns]
        if span.activation == "softmax":
            found.append(float((guess.argmax(1) == real.argmax(1)).mean()))
        else:
            left = np.square(guess - real).sum()
            found.append(float(1.0 - left / max(np.square(real - real.mean(0)).sum(), 1e-12)))
    return found
