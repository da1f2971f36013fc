"""Audits: of synthetic data (ASSD), of intermediate features (ASIF), of a mechanism by itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence, Sized
from typing import Any, Literal, Unpack

import numpy as np
import numpy.typing as npt

from vflsynth.adversary import (
    DEFAULT_STATISTICS,
    Adversary,
    Correlation,
    Naive,
    Neighbourhood,
    Statistic,
    default_adversaries,
)
from vflsynth.audit.findings import Claim, TargetAudit
from vflsynth.audit.game import (
    MODEL,
    PUBLISHED,
    THREAT_MODELS,
    LeaveOneOutGame,
    PartyFrames,
    check_model,
    columns_left_out,
    publishes_releases,
)
from vflsynth.audit.observers import (
    DensityObserver,
    FeatureObserver,
    Observers,
    ReleaseObserver,
    TableObserver,
)
from vflsynth.audit.playing import Play, judge_attack
from vflsynth.audit.results import AuditReport
from vflsynth.audit.settings import AuditOptions, AuditSettings, check_values
from vflsynth.audit.shadow import Shadows
from vflsynth.exceptions import ParameterError


def audit_synthetic_data(
    synthesizer: Any,
    party_frames: PartyFrames,
    on: Any = None,
    *,
    targets: Sequence[Any] = ("farthest", "most_outlying"),
    categorical: Sequence[Hashable] = (),
    n_synthetic: int | None = None,
    statistics: Sequence[Statistic] = DEFAULT_STATISTICS,
    attacker: Literal["table", "model"] = "table",
    claim: Claim | None = None,
    disclosure: Mapping[str, Any] | None = None,
    **options: Unpack[AuditOptions],
) -> AuditReport:
    """Ask what a synthetic table would tell about single records (ASSD).

    Trains `n_models` synthesizers on all records and as many without each target, and lets
    adversaries learn to tell the two kinds of synthetic tables apart.

    Source: VFLGAN §4.1, Algorithms 2 and 3. Departs from the paper's code: every model has a fresh
    seed, the test models are used once, the world with all records serves all targets, and
    encodings are learned anew in every world. Private synthesizers are trained one by one.

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
    n_synthetic : int, optional
        Synthetic records per table. Default: as many as there are matched records.
    statistics : sequence of Statistic, default=DEFAULT_STATISTICS
        Attacked one by one, then all of them stacked.
    attacker : {"table", "model"}, default="table"
        What they hold. "model" adds, as a source of its own, how probable a model with
        ``log_prob`` calls the record, and each party's part of it: ask this before the model
        itself is passed on.
    claim : Claim, optional
        What the synthesizer says of its privacy, to be compared with. Default: what the models'
        `privacy_ledger_` says, if they have one that covers the synthetic data.
    disclosure : mapping of str to object, optional
        Options of `audit_disclosure`, such as ``sensitive``, or none: the three questions are asked
        of the same synthesizer in the same time, for the same attacker, and answered in the report.
        If too few records match and no column is named, a warning takes their place.
    **options
        `n_models`, `minutes`, `n_jobs`, `cache` and others, see
        `vflsynth.audit.settings.AuditSettings`.

    Returns
    -------
    AuditReport

    Raises
    ------
    ParameterError
        If a parameter is out of range, `minutes` do not suffice, or `attacker` is "model" and the
        synthesizer has no ``log_prob``.
    PartyDataError
        If the tables are unusable, or a target is no matched record.

    Examples
    --------
    >>> from vflsynth import GaussianCopulaSynthesizer
    >>> from vflsynth.datasets import make_party_frames
    >>> frames = make_party_frames(60, 2, random_state=0)
    >>> synth = GaussianCopulaSynthesizer()
    >>> audit = audit_synthetic_data(
    ...     synth, frames, "record_id", targets=["most_outlying"], n_models=10, verbose=0
    ... )
    >>> len(audit.targets)
    1
    """
    owner = "audit_synthetic_data"
    settings = _checked(owner, targets, statistics, options)
    check_values(owner, n_synthetic=n_synthetic, attacker=attacker)
    game = LeaveOneOutGame(party_frames, on, columns_left_out(synthesizer))
    chosen = game.choose(targets, categorical)
    records = {target: game.table.loc[[target]] for target in chosen}
    observer: Any = TableObserver(
        [statistic.fit(game.table, categorical) for statistic in statistics],
        records,
        n_synthetic or len(game.table),
        categorical,
    )
    sources = {"synthetic data": observer.labels()}
    if attacker == "model":
        check_model(synthesizer)
        parties = [list(frame.columns) for frame in game.aligned.values()]
        density = DensityObserver(game.table, records, parties)
        sources[MODEL] = {density.label: density.label}
        observer = Observers(observer, density)
    asked = disclosure if disclosure is None else {"attacker": attacker} | dict(disclosure)
    game.check_columns(*map((disclosure or {}).get, ("sensitive", "quasi_identifiers")))
    shadows = Shadows(synthesizer, game.worlds(list(chosen)), on, observer, settings)
    return Play("ASSD", game, chosen, shadows, sources, claim, asked).report()


def audit_intermediate_features(
    synthesizer: Any,
    party_frames: PartyFrames,
    on: Any = None,
    *,
    targets: Sequence[Any] = ("farthest", "most_outlying"),
    categorical: Sequence[Hashable] = (),
    statistics: Sequence[Statistic] = (Naive(), Correlation(), Neighbourhood()),
    **options: Unpack[AuditOptions],
) -> AuditReport:
    """Ask what the intermediate features that a party sends would tell about single records (ASIF).

    Trains models as `audit_synthetic_data` does; the attacker sees the features that the first part
    of one party's local discriminator gives for all records. Every party is audited by itself. Of a
    private run whose mechanism publishes once and sends no features (`PairwiseTables` and others)
    they see all releases, with the noise that they were published with.

    Source: VFLGAN §4.2 and Appendix A.3, Algorithms 4 and 5. Departs from the paper's code, which
    fed raw values in the file's column order: here they are encoded by the model's own transformer,
    as in training. Naive statistics are per feature, where the code had three for the whole matrix.
    The features are those after training; an attacker who collects them in every step sees more.

    Parameters
    ----------
    synthesizer : synthesizer
        With local discriminators in two parts and ``fit_replicas(keep_discriminators=True)``, also
        with `privacy`: the mechanism is in place in every shadow model, and features cross without
        noise all the same. Or private, and publishing once.
    party_frames, on, targets, categorical, **options
        As in `audit_synthetic_data`.
    statistics : sequence of Statistic, default=(Naive(), Correlation(), Neighbourhood())
        Of the matrix of features, whose columns are all numbers. Releases are taken as they are.

    Returns
    -------
    AuditReport
        One `TargetAudit` per target and party. Releases are compared with what the models claim;
        no ε is about features.

    Raises
    ------
    ParameterError
        If a parameter is out of range, or the synthesizer sends no intermediate features.
    UnseenValueError
        If a named target alone has some label: the world without it cannot encode the record. Rules
        pass over such records.
    """
    settings = _checked("audit_intermediate_features", targets, statistics, options)
    publishes = publishes_releases(synthesizer)
    if not publishes and not hasattr(synthesizer, "fit_replicas"):
        raise ParameterError(
            "audit_intermediate_features looks at local discriminators, which only synthesizers "
            "with fit_replicas(keep_discriminators=True) show, or at the releases of a private "
            f"run; got a {type(synthesizer).__name__}"
        )
    game = LeaveOneOutGame(party_frames, on, columns_left_out(synthesizer))
    observer: Any
    if publishes:
        chosen = game.choose(targets, categorical)
        observer = ReleaseObserver()
        sources = {PUBLISHED: {observer.label: observer.label}}
    else:
        chosen = game.choose(targets, categorical, encodable_without=True)
        observer = FeatureObserver(list(statistics), game.aligned, list(chosen))
        sources = {
            f"intermediate features of {each}": observer.labels(each) for each in game.aligned
        }
    shadows = Shadows(synthesizer, game.worlds(list(chosen)), on, observer, settings)
    return Play("ASIF", game, chosen, shadows, sources).report()


def _checked(
    owner: str, targets: object, statistics: object, options: AuditOptions
) -> AuditSettings:
    """Check what all audits are told, and return how one is carried out."""
    for name, values in (("targets", targets), ("statistics", statistics)):
        if isinstance(values, (str, Statistic)) or not (isinstance(values, Sized) and len(values)):
            raise ParameterError(
                f"{owner}: {name} must be a sequence of at least one, got {values!r}"
            )
    _check_adversaries(owner, options.get("adversaries"))
    return AuditSettings.of(owner, options)


def _check_adversaries(owner: str, learners: Any) -> None:
    several = isinstance(learners, Sequence) and len(learners) > 0
    if learners is not None and not (several and all(isinstance(a, Adversary) for a in learners)):
        raise ParameterError(
            f"{owner}: adversaries must be one Adversary or more, got {learners!r}"
        )


Release = Callable[[bool], npt.ArrayLike]


def audit_mechanism(
    release: Release,
    *,
    n_runs: int = 1000,
    adversaries: Sequence[Adversary] | None = None,
    claim: Claim | None = None,
    confidence: float = 0.95,
    random_state: int = 0,
) -> AuditReport:
    """Ask what a mechanism's release, such as one noisy gradient, would tell about a record.

    Run this on one step of differentially private training. It costs so little that thousands of
    runs are affordable. Noise that is missing, too small or not independent shows here first.

    Parameters
    ----------
    release : callable
        ``release(True)`` returns numbers computed with the target record, ``release(False)``
        without it, or with another in its place. Always of one shape, with fresh noise.
    n_runs : int, default=1000
        Per world, at least 10. Half of them train the adversaries, the others test them.
    adversaries : sequence of Adversary, optional
        Default: `default_adversaries`.
    claim : Claim, optional
        What the mechanism is said to guarantee, about inputs that differ as those of `release` do.
    confidence : float, default=0.95
        Of all intervals and bounds.
    random_state : int, default=0
        Of the split into training and test runs; the mechanism has its own randomness.

    Returns
    -------
    AuditReport
        With a single target.

    Raises
    ------
    ParameterError
        If a parameter is out of range, or a release is not finite or changes its shape.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> honest = audit_mechanism(lambda inside: inside + rng.normal(size=3), n_runs=200)
    >>> broken = audit_mechanism(lambda inside: inside + 0 * rng.normal(size=3), n_runs=200)
    >>> honest.targets[0].strongest.auc.value < broken.targets[0].strongest.auc.value
    True
    """
    values = {"n_runs": n_runs, "confidence": confidence, "random_state": random_state}
    check_values("audit_mechanism", **values)
    _check_adversaries("audit_mechanism", adversaries)
    started, cpu = time.perf_counter(), time.process_time()
    worlds = [inside for inside in (True, False) for _ in range(n_runs)]
    runs = [np.asarray(release(inside), dtype=np.float64) for inside in worlds]
    shapes = {run.shape for run in runs}
    if len(shapes) > 1 or not runs[0].size or not all(np.isfinite(run).all() for run in runs):
        raise ParameterError(
            "release must return finite numbers, always of the same shape; got the shapes "
            + ", ".join(map(str, sorted(shapes)))
        )
    features = np.stack(runs).reshape(len(runs), -1)  # (run, number)
    attacks = tuple(
        judge_attack(
            "release",
            adversary,
            features,
            random_state,
            delta=0.0 if claim is None else claim.delta,
            confidence=confidence,
            bound_confidence=confidence,
        )
        for adversary in (default_adversaries() if adversaries is None else adversaries)
    )
    return AuditReport(
        "mechanism",
        THREAT_MODELS["mechanism"],
        (TargetAudit(None, (), "release", attacks),),
        n_runs,
        None,
        confidence,
        claim,
        time.perf_counter() - started,
        time.process_time() - cpu,
        2 * n_runs,
    )
