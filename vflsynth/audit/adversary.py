"""Adversaries: classifiers on the statistics of shadow models (Algorithms 3 and 5)."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from typing import Self

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from vflsynth.audit.encoding import Booleans, Floats


class Adversary(ABC):
    """Learns from shadow models which statistics point to the target's presence."""

    name: str
    boundary: float
    """Score from which on the guess is "trained with the target"."""

    @abstractmethod
    def fit(self, features: Floats, is_member: Booleans) -> Self:
        """Train on the shadow models' statistics, shape (model, feature)."""

    @abstractmethod
    def score(self, features: Floats) -> Floats:
        """Return a score per model, shape (model,): higher means trained with the target."""

    @property
    @abstractmethod
    def training_scores(self) -> Floats:
        """Scores of the training models, none from a classifier that saw its label."""


class RandomForest(Adversary):
    """The paper's adversary.

    Parameters
    ----------
    n_trees : int, default=1000
    max_depth : int, default=3
    random_state : int, default=0

    Notes
    -----
    Source: VFLGAN §4.1 and Algorithm 3; sizes from its code. Scores are shares of votes.
    """

    name = "random forest"
    boundary = 0.5

    def __init__(self, n_trees: int = 1000, max_depth: int = 3, random_state: int = 0) -> None:
        self.n_trees, self.max_depth, self.random_state = n_trees, max_depth, random_state

    def fit(self, features: Floats, is_member: Booleans) -> Self:
        """Train on the shadow models' statistics, shape (model, feature)."""
        self._forest = RandomForestClassifier(
            self.n_trees,
            max_depth=self.max_depth,
            oob_score=True,
            random_state=self.random_state,
        )
        with warnings.catch_warnings():
            # A model that is in every tree's bootstrap draw has no out-of-bag score: even odds.
            warnings.filterwarnings("ignore", "Some inputs do not have OOB scores")
            self._forest.fit(features, is_member)
        return self

    def score(self, features: Floats) -> Floats:
        """Return the share of votes for "trained with the target", shape (model,)."""
        scores: Floats = self._forest.predict_proba(features)[:, 1]
        return scores

    @property
    def training_scores(self) -> Floats:
        """Out-of-bag votes for the training models."""
        votes: Floats = np.nan_to_num(self._forest.oob_decision_function_[:, 1], nan=0.5)
        return votes


class RegularisedLogistic(Adversary):
    """Logistic regression on standardised statistics; cross-validation chooses how regularised.

    Weakly regularised it can tell worlds apart by a direction of almost no variance, which a forest
    of axis-parallel splits cannot: noise that is missing from some direction is found this way.

    Parameters
    ----------
    inverse_penalties : tuple of float, default=(1e-3, 1e-1, 1e1, 1e4)
        Candidates for scikit-learn's C.
    n_folds : int, default=5
    random_state : int, default=0
        Of the folds.

    Notes
    -----
    Not in the paper. Scores are log odds.
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
        self._search = GridSearchCV(
            make_pipeline(StandardScaler(), LogisticRegression(max_iter=200)),
            {"logisticregression__C": list(self.inverse_penalties)},
            scoring="neg_log_loss",
            cv=folds,
        )
        with warnings.catch_warnings():
            # Separable statistics have no finite optimum; any point on the way is as good.
            warnings.simplefilter("ignore", ConvergenceWarning)
            self._search.fit(features, is_member)
            self._training_scores: Floats = cross_val_predict(
                self._search.best_estimator_,
                features,
                is_member,
                cv=folds,
                method="decision_function",
            )
        return self

    def score(self, features: Floats) -> Floats:
        """Return log odds of "trained with the target", shape (model,)."""
        scores: Floats = self._search.decision_function(features)
        return scores

    @property
    def training_scores(self) -> Floats:
        """Log odds from the folds that left the model out; how regularised was chosen from all."""
        return self._training_scores


def default_adversaries() -> tuple[Adversary, ...]:
    """Return the paper's adversary and the linear one."""
    return RandomForest(), RegularisedLogistic()
