"""Playing the game of an audit: models are trained and observed, attackers learn and are judged.

They are judged by models that did not teach them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Hashable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import islice
from typing import Any

import joblib
import numpy as np

from vflsynth.adversary import Adversary, default_adversaries
from vflsynth.adversary.encoding import Booleans, Floats
from vflsynth.adversary.intervals import auc, models_to_find
from vflsynth.adversary.learners import RegularisedLogistic
from vflsynth.audit.criteria import Criteria
from vflsynth.audit.findings import Attack, Claim, PaperAccuracy, TargetAudit
from vflsynth.audit.game import MODEL, THREAT_MODELS, LeaveOneOutGame, World
from vflsynth.audit.observers import label_of, weakest_claim
from vflsynth.audit.questions import audit_disclosure
from vflsynth.audit.results import POWER, AuditReport, joint_confidence, say_power
from vflsynth.audit.schedule import Schedule
from vflsynth.audit.settings import LEAST_MODELS, Protocol
from vflsynth.audit.shadow import Shadows
from vflsynth.exceptions import PartyDataError

STACKED = "all attacks together"
"""What the stack is called in place of a statistic."""

_STACK_PENALTIES = (1e-2, 1.0)

PAPER_SPLITS, PAPER_TRAINING_SHARE = 5, 0.7


def judge_attack(
    statistic: str, adversary: Adversary, features: Floats, random_state: int, **levels: float
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
    taught = features[for_training], is_member[for_training]
    judged = features[~for_training], is_member[~for_training]
    return _learned(statistic, adversary, taught, judged, **levels)


Known = tuple[Floats, Booleans]
"""Features of models, (model, feature), and which were trained with the target."""


def _learned(
    statistic: str, adversary: Adversary, taught: Known, judged: Known, **levels: float
) -> Attack:
    """Teach an adversary by some models, and judge it by others."""
    adversary.fit(*taught)
    return Attack.judge(
        statistic,
        adversary.name,
        adversary.score(judged[0]),
        judged[1],
        boundary=adversary.boundary,
        training_scores=adversary.training_scores,
        training_members=taught[1],
        training_auc=auc(adversary.training_scores, taught[1]),
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
    taught, judged = (ranks, training_members), (test_ranks, attacks[0].is_member)
    return _learned(STACKED, adversary, taught, judged, **levels)


def _rank(known: Floats, scores: Floats) -> Floats:
    """Return the share of sorted known scores that are lower, ties counted half."""
    below, up_to = (np.searchsorted(known, scores, side=side) for side in ("left", "right"))
    return (below + up_to) / (2.0 * len(known))


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


logger = logging.getLogger("vflsynth")

_REHEARSED_MODELS, _REHEARSED_FEATURES = 100, 40
_REHEARSED_LEVELS = {"delta": 0.0, "confidence": 0.95, "bound_confidence": 0.95}
_WORTH_FINDING = 0.8  # AUC that an audit of limited time must find, before training longer


@dataclass(frozen=True, eq=False)
class Play:
    """The game for every target and source.

    `chosen` says how each target was chosen; `shadows` are in the game's worlds. `sources` are what
    is looked at, and of each the names of statistics by their labels in observations. The claim is
    by default what the models claim. `disclosure` has options of `audit_disclosure`, if the three
    questions are asked.
    """

    scheme: str
    game: LeaveOneOutGame
    chosen: Mapping[Hashable, list[str]]
    shadows: Shadows
    sources: Mapping[str, Mapping[str, str]]
    claim: Claim | None = None
    disclosure: Mapping[str, Any] | None = None

    @property
    def asked(self) -> list[tuple[World, str]]:
        """Every audit: the world without a target, and what is looked at."""
        return [(world, source) for world in self.shadows.worlds[1:] for source in self.sources]

    @property
    def learners(self) -> Sequence[Adversary]:
        """Those who learn to tell models apart."""
        given = self.shadows.settings.adversaries
        return default_adversaries() if given is None else given

    def report(self) -> AuditReport:
        """Train, learn, judge."""
        started = time.perf_counter()
        settings = self.shadows.settings
        level = (1.0 - settings.confidence) / len(self.asked)
        enough = 2 * models_to_find(_WORTH_FINDING, level=level, power=POWER)
        schedule = Schedule(
            self.shadows,
            started=started,
            enough=max(LEAST_MODELS, min(settings.n_models, enough)),
            learning=self._learning,
            alone=0 if self.disclosure is None else 1,
        )
        criteria = self._questions(schedule.run.shadows)
        n_asked, confidence = len(self.asked), settings.confidence
        run = schedule.train(lambda n: say_power(n - n // 2, n - n // 2, n_asked, confidence))
        observations = run.observations
        claim = weakest_claim(observations.values()) if self.claim is None else self.claim
        known = [THREAT_MODELS[self.scheme]]
        known += [THREAT_MODELS[MODEL]] if MODEL in self.sources else []
        return AuditReport(
            self.scheme,
            " ".join(known),
            self._judged(observations, claim),
            run.n_models,
            len(self.game.table),
            settings.confidence,
            claim,
            run.seconds,
            run.cpu_seconds,
            run.n_trained,
            run.memory,
            criteria,
            schedule.shortened,
        )

    def _learning(self, n_models: int) -> float:
        """Return about how many seconds it takes to learn from so many models."""
        n_learned = sum(len(self.sources[source]) for _, source in self.asked)
        size = 2 * min(n_models, _REHEARSED_MODELS), _REHEARSED_FEATURES
        features = np.random.default_rng(0).normal(size=size)
        started = time.perf_counter()
        for adversary in self.learners:
            judge_attack("", copy(adversary), features, 0, **_REHEARSED_LEVELS)
        return n_learned * (time.perf_counter() - started) / self.shadows.workers

    def _questions(self, shadows: Shadows) -> Criteria | None:
        """Ask the three questions; if nobody named a column, as far as there are records for it."""
        if self.disclosure is None:
            return None
        settings = shadows.settings
        options: dict[str, Any] = {
            "confidence": settings.confidence,
            "random_state": settings.random_state,
            **self.disclosure,
        }
        frames = self.game.party_frames
        try:
            return audit_disclosure(shadows.synthesizer, frames, shadows.on, **options)
        except PartyDataError as error:
            if options.get("sensitive") or options.get("quasi_identifiers"):
                raise
            logger.warning("singling out and linkability were not looked at: %s", error)
            return None

    def _judged(
        self, observations: Mapping[str, Mapping[str, Floats]], claim: Claim | None
    ) -> tuple[TargetAudit, ...]:
        """Let every adversary learn from every statistic, and judge them."""
        settings, asked = self.shadows.settings, self.asked
        full = observations[self.shadows.worlds[0].name]
        levels = {
            "delta": 0.0 if claim is None else claim.delta,
            "confidence": settings.confidence,
            "bound_confidence": joint_confidence(settings.confidence, len(asked)),
        }
        tasks = [
            joblib.delayed(_judge)(
                name,
                adversary,
                np.concatenate([full[key], observations[world.name][key]]),
                settings.random_state,
                settings.protocol,
                **levels,
            )
            for world, source in asked
            for label, name in self.sources[source].items()
            for key in [label_of(label, world.targets[0])]
            for adversary in self.learners
        ]
        judged = iter(joblib.Parallel(n_jobs=settings.n_jobs)(tasks))
        audits = []
        for world, source in asked:
            n_attacks = len(self.sources[source]) * len(self.learners)
            attacks, paper = zip(*islice(judged, n_attacks), strict=True)
            if len(attacks) > 1:
                attacks = (*attacks, stack(attacks, settings.random_state, **levels))
            (target,) = world.targets
            cells = tuple(cell for cell in paper if cell is not None)
            audits.append(TargetAudit(target, tuple(self.chosen[target]), source, attacks, cells))
        return tuple(audits)


def _judge(
    statistic: str,
    adversary: Adversary,
    features: Floats,
    random_state: int,
    protocol: Protocol,
    **options: float,
) -> tuple[Attack, PaperAccuracy | None]:
    """Judge one adversary with one statistic; runs in a worker."""
    adversary = copy(adversary)  # workers may be threads
    attack = judge_attack(statistic, adversary, features, random_state, **options)
    if protocol == "holdout":
        return attack, None
    return attack, paper_accuracy(statistic, adversary, features, random_state)
