"""The two auditing schemes: of synthetic data (ASSD) and of intermediate features (ASIF)."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch

from vflsynth._validation import Choice, Number, Optional, Rule, check_parameters
from vflsynth.audit._encoding import Booleans, Floats
from vflsynth.audit.adversary import Adversary, default_adversaries
from vflsynth.audit.game import THREAT_MODELS, LeaveOneOutGame, PartyFrames
from vflsynth.audit.intervals import auc
from vflsynth.audit.results import Attack, AuditReport, Claim, PaperAccuracy, TargetAudit
from vflsynth.audit.shadow import Observation, Observer, describe_frames, run_shadow_models
from vflsynth.audit.statistics import (
    DEFAULT_STATISTICS,
    Correlation,
    Naive,
    Neighbourhood,
    Statistic,
)
from vflsynth.exceptions import ParameterError, UnseenValueError

Protocol = Literal["holdout", "paper"]

PAPER_SPLITS, PAPER_TRAINING_SHARE = 5, 0.7
_RULES: dict[str, Rule] = {
    "n_models": Number(10, whole=True),
    "n_synthetic": Optional(Number(2, whole=True)),
    "protocol": Choice(("holdout", "paper")),
    "confidence": Number(0.5, 1, closed=(True, False)),
    "block_size": Optional(Number(1, whole=True)),
    "random_state": Number(0, whole=True),
}


def audit_synthetic_data(
    synthesizer: Any,
    party_frames: PartyFrames,
    on: Hashable = None,
    *,
    targets: Sequence[Any] = ("farthest", "most_outlying"),
    categorical: Sequence[Hashable] = (),
    n_models: int = 100,
    n_synthetic: int | None = None,
    statistics: Sequence[Statistic] = DEFAULT_STATISTICS,
    adversaries: Sequence[Adversary] | None = None,
    protocol: Protocol = "holdout",
    claim: Claim | None = None,
    confidence: float = 0.95,
    pair_seeds: bool = False,
    block_size: int | None = None,
    n_jobs: int | None = None,
    cache: str | os.PathLike[str] | None = None,
    random_state: int = 0,
    verbose: int = 1,
) -> AuditReport:
    """Ask what a synthetic table would tell about single records (ASSD).

    Trains `n_models` synthesizers on all records and as many without each target, and lets
    adversaries learn to tell the two kinds of synthetic tables apart.

    Parameters
    ----------
    synthesizer : estimator or callable
        Unfitted; anything with ``clone``, ``fit(party_frames, on)`` and ``sample(n)``, or a
        function of ``(party_frames, random_state)`` that returns a table. Models are trained many
        at once if it has ``fit_replicas``.
    party_frames : mapping of str to DataFrame
    on : hashable, optional
        Key column. Default: the index.
    targets : sequence, default=("farthest", "most_outlying")
        Records to ask about: these rules (see `vflsynth.audit.targets`), or keys of matched
        records.
    categorical : sequence of hashable, default ()
        Numeric columns that the attacker should read as labels, such as codes.
    n_models : int, default=100
        Per world, at least 10. Half of them train the adversaries; the others, on which the results
        rest, are not looked at before.
    n_synthetic : int, optional
        Synthetic records per table. Default: as many as there are matched records.
    statistics : sequence of Statistic, default=DEFAULT_STATISTICS
        Attacked one by one; join some with ``+`` to have them attacked together.
    adversaries : sequence of Adversary, optional
        Default: the paper's random forest, and a regularised linear one.
    protocol : {"holdout", "paper"}, default="holdout"
        "paper" adds the paper's five splits, with mean and two standard deviations of accuracy.
    claim : Claim, optional
        What the synthesizer says of its privacy, to be compared with.
    confidence : float, default=0.95
        Of all intervals and bounds.
    pair_seeds : bool, default=False
        Give model j the same seed in all worlds, which is not what an attacker faces.
    block_size : int, optional
        Models trained at once. Default: what is fast and fits into memory.
    n_jobs : int, optional
        Blocks trained at a time, as joblib understands it; ``joblib.parallel_config`` decides by
        default, and chooses where they run.
    cache : path-like, optional
        Directory for what was observed of each model, so that an interrupted audit can continue.
    random_state : int, default=0
    verbose : int, default=1
        0 shows no progress bar.

    Returns
    -------
    AuditReport

    Raises
    ------
    ParameterError
        If a parameter is out of range.
    PartyDataError
        If the tables are unusable, or a target is no matched record.

    Notes
    -----
    Source: VFLGAN §4.1, Algorithms 2 and 3. Departs from the paper's code: every model has a fresh
    seed for everything, the test models are used once, the world with all records serves all
    targets, and encodings are learned anew in every world, as a publisher would.

    Examples
    --------
    >>> from vflsynth import VFLGANSynthesizer
    >>> from vflsynth.datasets import make_party_frames
    >>> frames = make_party_frames(60, 2, random_state=0)
    >>> synth = VFLGANSynthesizer(epochs=1, first_part=(4,), generator_hidden=(4,))
    >>> audit = audit_synthetic_data(
    ...     synth, frames, "record_id", targets=["most_outlying"], n_models=10, verbose=0
    ... )
    >>> len(audit.targets)
    1
    """
    _check(locals(), "audit_synthetic_data")
    game = LeaveOneOutGame(party_frames, on)
    chosen = game.choose(targets, categorical)
    observer = _TableObserver(
        [statistic.fit(game.table, categorical) for statistic in statistics],
        {target: game.record(target) for target in chosen},
        n_synthetic or len(game.table),
    )
    return _audit(
        "ASSD",
        game,
        chosen,
        synthesizer,
        on,
        observer,
        {"synthetic data": observer.labels()},
        adversaries=adversaries,
        protocol=protocol,
        claim=claim,
        confidence=confidence,
        n_models=n_models,
        pair_seeds=pair_seeds,
        block_size=block_size,
        n_jobs=n_jobs,
        cache=cache,
        random_state=random_state,
        verbose=verbose,
    )


def audit_intermediate_features(
    synthesizer: Any,
    party_frames: PartyFrames,
    on: Hashable = None,
    *,
    targets: Sequence[Any] = ("farthest", "most_outlying"),
    categorical: Sequence[Hashable] = (),
    n_models: int = 100,
    statistics: Sequence[Statistic] = (Naive(), Correlation(), Neighbourhood()),
    adversaries: Sequence[Adversary] | None = None,
    protocol: Protocol = "holdout",
    confidence: float = 0.95,
    pair_seeds: bool = False,
    block_size: int | None = None,
    n_jobs: int | None = None,
    cache: str | os.PathLike[str] | None = None,
    random_state: int = 0,
    verbose: int = 1,
) -> AuditReport:
    """Ask what the intermediate features that a party sends would tell about single records (ASIF).

    Trains models as `audit_synthetic_data` does; the attacker sees the features that the first part
    of one party's local discriminator gives for all records. Every party is audited by itself.

    Parameters
    ----------
    synthesizer : GANSynthesizer
        With local discriminators in two parts and ``fit_replicas(keep_discriminators=True)``.
    party_frames, on, targets, categorical, n_models, adversaries, protocol, confidence
        As in `audit_synthetic_data`.
    statistics : sequence of Statistic, default=(Naive(), Correlation(), Neighbourhood())
        Of the matrix of features, whose columns are all numbers.
    pair_seeds, block_size, n_jobs, cache, random_state, verbose
        As in `audit_synthetic_data`.

    Returns
    -------
    AuditReport
        One `TargetAudit` per target and party.

    Raises
    ------
    ParameterError
        If a parameter is out of range, or the synthesizer sends no intermediate features.
    UnseenValueError
        If a named target alone has some label: the world without it cannot encode the record. Rules
        pass over such records.

    Notes
    -----
    Source: VFLGAN §4.2 and Appendix A.3, Algorithms 4 and 5. Departs from the paper's code, which
    fed raw values in the file's column order: here they are encoded by the model's own transformer,
    as in training. Naive statistics are per feature, where the code had three for the whole matrix.
    The features are those after training; an attacker who collects them in every step sees more.
    """
    _check(locals(), "audit_intermediate_features")
    game = LeaveOneOutGame(party_frames, on)
    chosen = game.choose(targets, categorical, encodable_without=True)
    observer = _FeatureObserver(list(statistics), game.aligned, list(chosen))
    return _audit(
        "ASIF",
        game,
        chosen,
        synthesizer,
        on,
        observer,
        {f"intermediate features of {party}": observer.labels(party) for party in game.aligned},
        adversaries=adversaries,
        protocol=protocol,
        claim=None,
        confidence=confidence,
        n_models=n_models,
        pair_seeds=pair_seeds,
        block_size=block_size,
        n_jobs=n_jobs,
        cache=cache,
        random_state=random_state,
        verbose=verbose,
    )


class _TableObserver:
    """Statistics of one synthetic table per model.

    Parameters
    ----------
    statistics : sequence of Statistic
        Fitted.
    targets : dict of key to DataFrame
        The targets' records.
    n_synthetic : int
    """

    keep_discriminators = False

    def __init__(
        self,
        statistics: Sequence[Statistic],
        targets: Mapping[Hashable, pd.DataFrame],
        n_synthetic: int,
    ) -> None:
        self._statistics, self._targets = statistics, targets
        self._n_synthetic = n_synthetic

    def labels(self) -> dict[str, str]:
        """Name of each statistic, by the label that goes before the target's in observations."""
        return {repr(statistic): statistic.name for statistic in self._statistics}

    def describe(self) -> str:
        """Say what is observed."""
        records = describe_frames({repr(key): row for key, row in self._targets.items()})
        return f"{self._n_synthetic} records: {list(map(repr, self._statistics))} of {records}"

    def observe(self, models: Sequence[Any], targets: Sequence[Hashable]) -> list[Observation]:
        """Return statistics of a table of each model."""
        observations = []
        for model in models:
            table = model.sample(self._n_synthetic)
            observations.append(
                {
                    _label(repr(statistic), target): statistic.measure(table, self._targets[target])
                    for statistic in self._statistics
                    for target in targets
                }
            )
        return observations


class _FeatureObserver:
    """Statistics of each party's intermediate features of all records.

    Parameters
    ----------
    statistics : sequence of Statistic
    frames : mapping of str to DataFrame
        All matched records, keys as the index.
    targets : sequence of hashable
    """

    keep_discriminators = True

    def __init__(
        self,
        statistics: Sequence[Statistic],
        frames: Mapping[str, pd.DataFrame],
        targets: Sequence[Hashable],
    ) -> None:
        self._statistics, self._frames, self._targets = statistics, frames, targets

    def labels(self, party: str) -> dict[str, str]:
        """Name of each statistic, by the label that goes before the target's in observations."""
        return {f"{party}: {statistic!r}": statistic.name for statistic in self._statistics}

    def describe(self) -> str:
        """Say what is observed."""
        return f"features of {describe_frames(self._frames)}: {list(map(repr, self._statistics))}"

    def observe(self, models: Sequence[Any], targets: Sequence[Hashable]) -> list[Observation]:
        """Return statistics of the features that each model's parties would send."""
        observations: list[Observation] = [{} for _ in models]
        for party, frame in self._frames.items():
            encoded = _encode(models[0].parties_[party].transformer, frame)
            for model, observation in zip(models, observations):
                features = _features(model, party, encoded).set_axis(frame.index, axis=0)
                for statistic in self._statistics:
                    fitted = statistic.fit(features)
                    for target in targets:
                        observation[_label(f"{party}: {statistic!r}", target)] = fitted.measure(
                            features, features.loc[[target]]
                        )
        return observations


def _encode(transformer: Any, frame: pd.DataFrame) -> torch.Tensor:
    try:
        return torch.from_numpy(transformer.transform(frame)).unsqueeze(0)
    except UnseenValueError as error:
        raise UnseenValueError(
            f"{error.problem}; it occurs in the target only, so that the world without the target "
            "has no code for it",
            fix="audit another record here: this value alone in the synthetic data tells that this "
            "one was used, see audit_synthetic_data",
            party=error.party,
            column=error.column,
        ) from error


def _features(model: Any, party: str, encoded: torch.Tensor) -> pd.DataFrame:
    """Intermediate features of all records, shape (record, feature)."""
    discriminator = model.local_discriminators_.get(party)
    if not hasattr(discriminator, "first_part"):
        raise ParameterError(
            f"{type(model).__name__} sends no intermediate features; there is nothing to audit"
        )
    with torch.no_grad():
        features = discriminator.first_part.trace(encoded.to(model.device_))[-1][0]
    columns = [f"feature {i}" for i in range(features.shape[1])]
    return pd.DataFrame(features.cpu().numpy().astype(np.float64), columns=columns)


def _audit(
    scheme: str,
    game: LeaveOneOutGame,
    chosen: Mapping[Hashable, list[str]],
    synthesizer: Any,
    on: Hashable,
    observer: Observer,
    sources: Mapping[str, Mapping[str, str]],
    *,
    adversaries: Sequence[Adversary] | None,
    protocol: Protocol,
    claim: Claim | None,
    confidence: float,
    n_models: int,
    random_state: int,
    **options: Any,
) -> AuditReport:
    """Play the game for every target and source."""
    worlds = game.worlds(list(chosen))
    run = run_shadow_models(
        synthesizer, worlds, on, observer, n_models=n_models, random_state=random_state, **options
    )
    full = run.observations[worlds[0].name]
    adversaries = default_adversaries() if adversaries is None else tuple(adversaries)
    audits = []
    for world in worlds[1:]:
        (target,) = world.targets
        for source, labels in sources.items():
            attacks, paper = [], []
            for label, name in labels.items():
                key = _label(label, target)
                features = np.concatenate([full[key], run.observations[world.name][key]])
                for adversary in adversaries:
                    attacks.append(
                        judge_attack(
                            name,
                            adversary,
                            features,
                            random_state,
                            delta=0.0 if claim is None else claim.delta,
                            confidence=confidence,
                        )
                    )
                    if protocol == "paper":
                        paper.append(_paper_accuracy(name, adversary, features, random_state))
            audits.append(
                TargetAudit(target, tuple(chosen[target]), source, tuple(attacks), tuple(paper))
            )
    return AuditReport(
        scheme,
        THREAT_MODELS[scheme],
        tuple(audits),
        n_models,
        len(game.table),
        confidence,
        claim,
        run.seconds,
        run.cpu_seconds,
        run.n_trained,
    )


def judge_attack(
    statistic: str,
    adversary: Adversary,
    features: Floats,
    random_state: int,
    *,
    delta: float,
    confidence: float,
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
    delta, confidence : float

    Returns
    -------
    Attack
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
        delta=delta,
        confidence=confidence,
    )


def _paper_accuracy(
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


def _label(statistic: str, target: Hashable) -> str:
    return f"{statistic} | {target!r}"


def _check(values: Mapping[str, Any], owner: str) -> None:
    rules = {name: rule for name, rule in _RULES.items() if name in values}
    check_parameters(owner, values, rules)
    for name in ("targets", "statistics"):
        if isinstance(values[name], (str, Statistic)) or not len(values[name]):
            raise ParameterError(
                f"{owner}: {name} must be a sequence of at least one, got {values[name]!r}"
            )
