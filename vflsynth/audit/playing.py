"""Playing the game of an audit: models are trained and observed, attackers learn, all is judged."""

from __future__ import annotations

import logging
import time
from collections.abc import Hashable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, Literal

import joblib
import numpy as np

from vflsynth.adversary import Adversary, default_adversaries
from vflsynth.adversary.encoding import Floats
from vflsynth.adversary.verdicts import models_to_find
from vflsynth.audit.criteria import Criteria
from vflsynth.audit.findings import Attack, Claim, PaperAccuracy, TargetAudit
from vflsynth.audit.game import MODEL, THREAT_MODELS, LeaveOneOutGame, PartyFrames
from vflsynth.audit.judging import judge_attack, paper_accuracy, stack
from vflsynth.audit.observers import label_of, weakest_claim
from vflsynth.audit.questions import audit_disclosure
from vflsynth.audit.results import POWER, AuditReport, joint_confidence, say_power
from vflsynth.audit.schedule import shorten
from vflsynth.audit.shadow import LEAST_MODELS, Observer, run_shadow_models
from vflsynth.exceptions import PartyDataError

logger = logging.getLogger("vflsynth")

Protocol = Literal["holdout", "paper"]

_REHEARSED_MODELS, _REHEARSED_FEATURES = 100, 40
_REHEARSED_LEVELS = {"delta": 0.0, "confidence": 0.95, "bound_confidence": 0.95}
_WORTH_FINDING = 0.8  # AUC that an audit of limited time must find, before training longer


def play(
    scheme: str,
    game: LeaveOneOutGame,
    chosen: Mapping[Hashable, list[str]],
    synthesizer: Any,
    on: Any,
    observer: Observer,
    sources: Mapping[str, Mapping[str, str]],
    claim: Claim | None,
    disclosure: Mapping[str, Any] | None,
    *,
    adversaries: Sequence[Adversary] | None,
    protocol: Protocol,
    confidence: float,
    n_models: int,
    random_state: int,
    **options: Any,
) -> AuditReport:
    """Play the game for every target and source."""
    started = time.perf_counter()
    worlds = game.worlds(list(chosen))
    n_audits = (len(worlds) - 1) * len(sources)

    def power(n: int) -> str:
        return say_power(n - n // 2, n - n // 2, n_audits, confidence)

    learners = default_adversaries() if adversaries is None else adversaries

    def learning(n: int) -> float:
        n_learned = (len(worlds) - 1) * sum(map(len, sources.values()))
        workers: int = joblib.effective_n_jobs(options["n_jobs"])
        return n_learned * _rehearsed(learners, n) / workers

    shortened = None
    if options["minutes"] is not None:
        level = (1.0 - confidence) / n_audits
        enough = 2 * models_to_find(_WORTH_FINDING, level=level, power=POWER)
        enough = max(LEAST_MODELS, min(n_models, enough))
        synthesizer, shortened = shorten(
            synthesizer,
            worlds,
            on,
            observer,
            n_models=enough,
            started=started,
            learning=partial(learning, enough),
            alone=0 if disclosure is None else 1,
            random_state=random_state,
            **{name: value for name, value in options.items() if name != "verbose"},
        )
        n_models = n_models if shortened is None else enough
    criteria = None
    if disclosure is not None:
        shared = {"confidence": confidence, "random_state": random_state}
        criteria = _ask(synthesizer, game.party_frames, on, shared | dict(disclosure))
    timed = options["minutes"] is not None or options["verbose"] > 0
    run = run_shadow_models(
        synthesizer,
        worlds,
        on,
        observer,
        n_models=n_models,
        started=started,
        power=power,
        learning=learning(n_models) if timed else 0.0,
        random_state=random_state,
        **options,
    )
    claim = weakest_claim(run.observations.values()) if claim is None else claim
    full = run.observations[worlds[0].name]
    asked = [(world, source) for world in worlds[1:] for source in sources]
    levels = {
        "delta": 0.0 if claim is None else claim.delta,
        "confidence": confidence,
        "bound_confidence": joint_confidence(confidence, len(asked)),
    }
    tasks = [
        joblib.delayed(_judge)(
            name,
            adversary,
            np.concatenate([full[key], run.observations[world.name][key]]),
            random_state,
            protocol,
            **levels,
        )
        for world, source in asked
        for label, name in sources[source].items()
        for key in [label_of(label, world.targets[0])]
        for adversary in learners
    ]
    judged = joblib.Parallel(n_jobs=options["n_jobs"])(tasks)
    each = len(judged) // len(asked)
    audits = []
    for i, (world, source) in enumerate(asked):
        attacks, paper = zip(*judged[i * each : (i + 1) * each], strict=True)
        if len(attacks) > 1:
            attacks = (*attacks, stack(attacks, random_state, **levels))
        (target,) = world.targets
        cells = tuple(cell for cell in paper if cell is not None)
        audits.append(TargetAudit(target, tuple(chosen[target]), source, attacks, cells))
    return AuditReport(
        scheme,
        " ".join([THREAT_MODELS[scheme], *([THREAT_MODELS[MODEL]] if MODEL in sources else [])]),
        tuple(audits),
        run.n_models,
        len(game.table),
        confidence,
        claim,
        run.seconds,
        run.cpu_seconds,
        run.n_trained,
        run.memory,
        criteria,
        shortened,
    )


def _ask(
    synthesizer: Any, party_frames: PartyFrames, on: Any, options: Mapping[str, Any]
) -> Criteria | None:
    """Ask the three questions; where nobody named a column, as far as there are records for it."""
    try:
        return audit_disclosure(synthesizer, party_frames, on, **options)
    except PartyDataError as error:
        if options.get("sensitive") or options.get("quasi_identifiers"):
            raise
        logger.warning("singling out and linkability were not looked at: %s", error)
        return None


def _rehearsed(adversaries: Sequence[Adversary], n_models: int) -> float:
    """Return about how many seconds it takes to learn from one statistic of so many models."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(2 * min(n_models, _REHEARSED_MODELS), _REHEARSED_FEATURES))
    started = time.perf_counter()
    for adversary in adversaries:
        judge_attack("", copy(adversary), features, 0, **_REHEARSED_LEVELS)
    return time.perf_counter() - started


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
