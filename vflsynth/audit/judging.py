"""How adversaries are judged: by models that did not teach them."""

from __future__ import annotations

import numpy as np

from vflsynth.audit.adversary import Adversary
from vflsynth.audit.encoding import Booleans, Floats
from vflsynth.audit.findings import Attack, PaperAccuracy
from vflsynth.audit.intervals import auc

PAPER_SPLITS, PAPER_TRAINING_SHARE = 5, 0.7


def judge_attack(
    statistic: str,
    adversary: Adversary,
    features: Floats,
    random_state: int,
    **levels: float,
) -> Attack:
    """Train an adversary on half of the models of each world and judge it on the others.

    Parameters
    ----------
    statistic : str
        What the features are called.
    adversary : Adversary
    features : ndarray, shape (2 * model, feature)
        Of models trained with the target, then of as many trained without.
    random_state : int
        Of the split.
    **levels
        `delta`, `confidence` and `bound_confidence`, see `Attack.judge`.
    """
    n_models = len(features) // 2
    is_member = np.repeat([True, False], n_models)
    rng = np.random.default_rng([random_state, 1])
    for_training = np.zeros(2 * n_models, bool)
    for start in (0, n_models):
        for_training[start + rng.permutation(n_models)[: n_models // 2]] = True
    adversary.fit(features[for_training], is_member[for_training])
    training_scores = adversary.training_scores
    return Attack.judge(
        statistic,
        adversary.name,
        adversary.score(features[~for_training]),
        is_member[~for_training],
        boundary=adversary.boundary,
        training_scores=training_scores,
        training_members=is_member[for_training],
        training_auc=auc(training_scores, is_member[for_training]),
        **levels,
    )


def paper_accuracy(
    statistic: str, adversary: Adversary, features: Floats, random_state: int
) -> PaperAccuracy:
    """Five splits of 70 % and 30 %, the same models' numbers in both worlds."""
    n_models = len(features) // 2
    is_member = np.repeat([True, False], n_models)
    rng = np.random.default_rng([random_state, 2])
    accuracies = []
    for _ in range(PAPER_SPLITS):
        order = rng.permutation(n_models)
        in_training: Booleans = np.isin(
            np.arange(n_models), order[: round(PAPER_TRAINING_SHARE * n_models)]
        )
        training = np.tile(in_training, 2)
        adversary.fit(features[training], is_member[training])
        guesses = adversary.score(features[~training]) >= adversary.boundary
        accuracies.append(float((guesses == is_member[~training]).mean()))
    return PaperAccuracy(
        statistic, adversary.name, float(np.mean(accuracies)), 2.0 * float(np.std(accuracies))
    )
