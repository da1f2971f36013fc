"""How adversaries are judged: by models that did not teach them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vflsynth.adversary.encoding import Booleans, Floats
from vflsynth.adversary.intervals import auc
from vflsynth.adversary.learners import Adversary, RegularisedLogistic
from vflsynth.audit.findings import Attack, PaperAccuracy

STACKED = "all attacks together"
"""What the stack is called in place of a statistic."""

_STACK_PENALTIES = (1e-2, 1.0)

PAPER_SPLITS, PAPER_TRAINING_SHARE = 5, 0.7


def judge_attack(
    statistic: str,
    adversary: Adversary,
    features: Floats,
    random_state: int,
    **levels: float,
) -> Attack:
    """Train an adversary on half of the models of each world and judge it on the others.

    `features`, shape (2 * model, feature), are of models trained with the target, then of as many
    trained without. `random_state` splits them; for `levels` see `Attack.judge`.
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


def stack(attacks: Sequence[Attack], random_state: int, **levels: float) -> Attack:
    """Judge all attacks on one target, split alike, as one attack.

    It is a regularised logistic regression of the ranks of their scores among training models. It
    is taught by the training models' cross-validated scores, and judged by the same test models.
    """
    adversary = RegularisedLogistic(_STACK_PENALTIES, random_state=random_state)
    n_each = len(attacks[0].training_scores) // 2
    training_members = np.repeat([True, False], n_each)
    ordered = [np.sort(attack.training_scores) for attack in attacks]
    ranks, test_ranks = (
        np.column_stack([_rank(known, s) for known, s in zip(ordered, scores, strict=True)])
        for scores in ([a.training_scores for a in attacks], [a.scores for a in attacks])
    )
    adversary.fit(ranks, training_members)
    return Attack.judge(
        STACKED,
        adversary.name,
        adversary.score(test_ranks),
        attacks[0].is_member,
        boundary=adversary.boundary,
        training_scores=adversary.training_scores,
        training_members=training_members,
        training_auc=auc(adversary.training_scores, training_members),
        **levels,
    )


def _rank(known: Floats, scores: Floats) -> Floats:
    """Return the share of sorted known scores that are lower, ties counted half."""
    below, up_to = (np.searchsorted(known, scores, side=side) for side in ("left", "right"))
    ranks: Floats = (below + up_to) / (2.0 * len(known))
    return ranks


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
