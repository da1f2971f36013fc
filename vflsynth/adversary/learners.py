"""Adversaries: classifiers on the statistics of shadow models (Algorithms 3 and 5)."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from typing import ClassVar, Self

import numpy as np
from sklearn import config_context
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from vflsynth.adversary.encoding import Booleans, Floats
from vflsynth.registry import register

_LEAST_VARIANCE = 1e-3


class Adversary(ABC):
    """Learns from shadow models which statistics point to the target's presence."""

    registry_group: ClassVar = "adversaries"
    name: str
    boundary: float
    """Score from which on the guess is "trained with the target"."""
    training_scores: Floats
    """Of the training models, none from a classifier that saw its label; once it is fitted."""

    @abstractmethod
    def fit(self, features: Floats, is_member: Booleans) -> Self:
        """Train on the shadow models' statistics, shape (model, feature)."""

    @abstractmethod
    def score(self, features: Floats) -> Floats:
        """Return a score per model, shape (model,): higher means trained with the target."""


@register
class RandomForest(Adversary):
    """The paper's adversary.

    Source: VFLGAN §4.1 and Algorithm 3; sizes from its code: trees are 3 deep. Scores are shares of
    votes.

    Parameters
    ----------
    n_trees : int, default=1000
    """

    name = "random forest"
    boundary = 0.5

    def __init__(self, n_trees: int = 1000) -> None:
        self.n_trees = n_trees

    def fit(self, features: Floats, is_member: Booleans) -> Self:
        """Train on the shadow models' statistics, shape (model, feature)."""
        self._forest = RandomForestClassifier(
            self.n_trees, max_depth=3, oob_score=True, random_state=0
        )
        # Each of a thousand trees has its parameters checked: a quarter of the time.
        with warnings.catch_warnings(), config_context(skip_parameter_validation=True):
            # A model that is in every tree's bootstrap draw has no out-of-bag score: even odds.
            warnings.filterwarnings("ignore", "Some inputs do not have OOB scores")
            self._forest.fit(features, is_member)
        votes = self._forest.oob_decision_function_[:, 1]  # out of bag
        self.training_scores = np.nan_to_num(votes, nan=0.5)
        return self

    def score(self, features: Floats) -> Floats:
        """Return the share of votes for "trained with the target", shape (model,)."""
        scores: Floats = self._forest.predict_proba(features)[:, 1]
        return scores


@register
class RegularisedLogistic(Adversary):
    """Logistic regression on standardised statistics; cross-validation chooses how regularised.

    Weakly regularised it can tell worlds apart by a direction of almost no variance, which a forest
    of axis-parallel splits cannot: noise that is missing from some direction is found this way.

    Not in the paper. Scores are log odds.

    Parameters
    ----------
    inverse_penalties : tuple of float, default=(1e-3, 1e-1, 1e1, 1e4)
        Candidates for scikit-learn's C.
    n_folds : int, default=5
    random_state : int, default=0
        Of the folds.
    """

    name = "regularised logistic"
    boundary = 0.0

    def __init__(
        self,
        inverse_penalties: tuple[float, ...] = (1e-3, 1e-1, 1e1, 1e4),
        n_folds: int = 5,
        random_state: int = 0,
    ) -> None:
        self.inverse_penalties, self.n_folds = inverse_penalties, n_folds
        self.random_state = random_state

    def fit(self, features: Floats, is_member: Booleans) -> Self:
        """Train on the shadow models' statistics, shape (model, feature)."""
        folds = StratifiedKFold(self.n_folds, shuffle=True, random_state=self.random_state)
        parts = list(folds.split(features, is_member))
        losses, left_out = [], []
        with warnings.catch_warnings():
            # Separable statistics have no finite optimum; any point on the way is as good.
            warnings.simplefilter("ignore", ConvergenceWarning)
            for inverse in self.inverse_penalties:
                odds, of_folds = np.empty(len(features)), []
                for learned, judged in parts:
                    self._learn(features[learned], is_member[learned], inverse)
                    odds[judged] = self.score(features[judged])
                    signed = np.where(is_member[judged], odds[judged], -odds[judged])
                    of_folds.append(np.logaddexp(0.0, -signed).mean())
                losses.append(np.mean(of_folds))
                left_out.append(odds)
            chosen = int(np.argmin(losses))  # how regularised is chosen from all
            self.training_scores = left_out[chosen]
            self._learn(features, is_member, self.inverse_penalties[chosen])
        return self

    def _learn(self, features: Floats, is_member: Booleans, inverse_penalty: float) -> None:
        self._middle, spread = features.mean(axis=0), features.std(axis=0)
        self._spread = np.where(spread > 0.0, spread, 1.0)
        model = LogisticRegression(C=inverse_penalty, max_iter=200)
        self._model = model.fit((features - self._middle) / self._spread, is_member)

    def score(self, features: Floats) -> Floats:
        """Return log odds of "trained with the target", shape (model,)."""
        scaled = (features - self._middle) / self._spread
        scores: Floats = scaled @ self._model.coef_[0] + self._model.intercept_[0]
        return scores


@register
class LikelihoodRatio(Adversary):
    """Ratio of the likelihoods that the statistics have with and without the target.

    Each feature is taken for Gaussian in both worlds, independent of the others and with one
    variance, as is advised for few shadow models.

    Source: Carlini et al. 2022, Algorithm 1 (LiRA) with its pooled variance, on statistics of what
    is published in place of a model's confidence. The variance is at least a thousandth of the
    feature's over both worlds, so that a few equal values are no certainty. Scores are log ratios.
    """

    name = "likelihood ratio"
    boundary = 0.0

    def fit(self, features: Floats, is_member: Booleans) -> Self:
        """Train on the shadow models' statistics, shape (model, feature)."""
        self.training_scores = np.empty(len(features))
        folds = StratifiedKFold(5, shuffle=True, random_state=0)
        for learned, left_out in folds.split(features, is_member):
            self._learn(features[learned], is_member[learned])
            self.training_scores[left_out] = self.score(features[left_out])
        self._learn(features, is_member)
        return self

    def _learn(self, features: Floats, is_member: Booleans) -> None:
        inside, outside = features[is_member], features[~is_member]
        self._middle = (inside.mean(axis=0) + outside.mean(axis=0)) / 2.0
        within = (inside.var(axis=0) + outside.var(axis=0)) / 2.0
        variance = np.maximum(within, _LEAST_VARIANCE * features.var(axis=0))
        apart = inside.mean(axis=0) - outside.mean(axis=0)
        varies = variance > 1e-300
        self._weights = np.divide(apart, variance, out=np.zeros_like(apart), where=varies)

    def score(self, features: Floats) -> Floats:
        """Return log likelihood ratios of "trained with the target", shape (model,)."""
        scores: Floats = (features - self._middle) @ self._weights
        return scores


def default_adversaries() -> tuple[Adversary, ...]:
    """Return the paper's adversary, the linear one, and the one of likelihood ratios."""
    return RandomForest(), RegularisedLogistic(), LikelihoodRatio()
