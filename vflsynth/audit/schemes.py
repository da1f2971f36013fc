"""The two auditing schemes: of synthetic data (ASSD) and of intermediate features (ASIF)."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal

from vflsynth._validation import Choice, Number, Optional, Rule, check_parameters
from vflsynth.adversary import (
    DEFAULT_STATISTICS,
    Adversary,
    Correlation,
    Naive,
    Neighbourhood,
    Statistic,
)
from vflsynth.audit.findings import Claim
from vflsynth.audit.game import (
    MODEL,
    LeaveOneOutGame,
    PartyFrames,
    check_model,
    trains_many,
)
from vflsynth.audit.observers import DensityObserver, FeatureObserver, Observers, TableObserver
from vflsynth.audit.playing import Protocol, play
from vflsynth.audit.results import AuditReport
from vflsynth.audit.shadow import LEAST_MODELS
from vflsynth.exceptions import ParameterError

_RULES: dict[str, Rule] = {
    "n_models": Number(LEAST_MODELS, whole=True),
    "minutes": Optional(Number(0, closed=(False, True))),
    "n_synthetic": Optional(Number(2, whole=True)),
    "protocol": Choice(("holdout", "paper")),
    "attacker": Choice(("table", "model")),
    "confidence": Number(0.5, 1, closed=(True, False)),
    "block_size": Optional(Number(1, whole=True)),
    "random_state": Number(0, whole=True),
}

_SHARED: tuple[str, ...] = ("adversaries", "protocol", "confidence", "n_models", "minutes")
_SHARED += ("random_state", "pair_seeds", "block_size", "n_jobs", "cache", "verbose")


def audit_synthetic_data(
    synthesizer: Any,
    party_frames: PartyFrames,
    on: Any = None,
    *,
    targets: Sequence[Any] = ("farthest", "most_outlying"),
    categorical: Sequence[Hashable] = (),
    n_models: int = 100,
    minutes: float | None = None,
    n_synthetic: int | None = None,
    statistics: Sequence[Statistic] = DEFAULT_STATISTICS,
    adversaries: Sequence[Adversary] | None = None,
    protocol: Protocol = "holdout",
    attacker: Literal["table", "model"] = "table",
    claim: Claim | None = None,
    confidence: float = 0.95,
    pair_seeds: bool = False,
    block_size: int | None = None,
    n_jobs: int | None = None,
    cache: str | os.PathLike[str] | None = None,
    random_state: int = 0,
    disclosure: Mapping[str, Any] | None = None,
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
    minutes : float, optional
        Time for everything. A short pilot says how many models there is time for, at most
        `n_models`; what so few would find is logged before they are trained, and in the report.
        Where there is no time for as many as an AUC of .8 takes, a synthesizer that chooses its
        number of epochs (``epochs=None``) gets fewer, the audited one and the attackers' alike,
        which is logged and in the report too.
    n_synthetic : int, optional
        Synthetic records per table. Default: as many as there are matched records.
    statistics : sequence of Statistic, default=DEFAULT_STATISTICS
        Attacked one by one, then all of them stacked; join some with ``+`` to have them attacked
        together.
    adversaries : sequence of Adversary, optional
        Default: the paper's random forest, a regularised linear one, and likelihood ratios.
    protocol : {"holdout", "paper"}, default="holdout"
        "paper" adds the paper's five splits, with mean and two standard deviations of accuracy.
    attacker : {"table", "model"}, default="table"
        What they hold. "model" adds, as a source of its own, how probable a model with
        ``log_prob`` calls the record, and each party's part of it: ask this before the model
        itself is passed on.
    claim : Claim, optional
        What the synthesizer says of its privacy, to be compared with. Default: what the models'
        `privacy_ledger_` says, if they have one that covers the synthetic data.
    confidence : float, default=0.95
        Of each interval, and of all bounds on epsilon at once.
    pair_seeds : bool, default=False
        Give model j the same seed in all worlds, which is not what an attacker faces.
    block_size : int, optional
        Models trained at once. Default: what is fast and fits into memory.
    n_jobs : int, optional
        Blocks trained, and attacks judged, at a time, as joblib understands it;
        ``joblib.parallel_config`` decides by default, and chooses where they run.
    cache : path-like, optional
        Directory for what was observed of each model, so that an interrupted audit can continue.
    random_state : int, default=0
    disclosure : mapping of str to object, optional
        Options of `audit_disclosure`, such as ``sensitive``, or none: the three questions are asked
        of the same synthesizer in the same time, for the same attacker, and answered in the report.
        Where too few records
        match and no column is named, a warning takes their place.
    verbose : int, default=1
        0 shows no progress bar.

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

    Notes
    -----
    Source: VFLGAN §4.1, Algorithms 2 and 3. Departs from the paper's code: every model has a fresh
    seed for everything, the test models are used once, the world with all records serves all
    targets, and encodings are learned anew in every world, as a publisher would.

    Synthesizers with ``privacy=...`` release anew in every fit, so that their models are trained
    one by one; the noise comes from the operating system, whatever the seed.

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
    options = _options(locals(), "audit_synthetic_data")
    game = LeaveOneOutGame(party_frames, on)
    chosen = game.choose(targets, categorical)
    records = {target: game.record(target) for target in chosen}
    observer: Any = TableObserver(
        [statistic.fit(game.table, categorical) for statistic in statistics],
        records,
        n_synthetic or len(game.table),
    )
    sources = {"synthetic data": observer.labels()}
    if attacker == "model":
        check_model(synthesizer)
        parties = [list(frame.columns) for frame in game.aligned.values()]
        density = DensityObserver(game.table, records, parties)
        sources[MODEL] = density.labels()
        observer = Observers(observer, density)
    return play(
        "ASSD",
        game,
        chosen,
        synthesizer,
        on,
        observer,
        sources,
        claim,
        disclosure if disclosure is None else {"attacker": attacker} | dict(disclosure),
        **options,
    )


def audit_intermediate_features(
    synthesizer: Any,
    party_frames: PartyFrames,
    on: Any = None,
    *,
    targets: Sequence[Any] = ("farthest", "most_outlying"),
    categorical: Sequence[Hashable] = (),
    n_models: int = 100,
    minutes: float | None = None,
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
    party_frames, on, targets, categorical, n_models, minutes, adversaries, protocol, confidence
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
    options = _options(locals(), "audit_intermediate_features")
    if not trains_many(synthesizer):
        raise ParameterError(
            "audit_intermediate_features looks at local discriminators, which only synthesizers "
            "with fit_replicas(keep_discriminators=True) show, and none with privacy= does; "
            f"got a {type(synthesizer).__name__}"
        )
    game = LeaveOneOutGame(party_frames, on)
    chosen = game.choose(targets, categorical, encodable_without=True)
    observer = FeatureObserver(list(statistics), game.aligned, list(chosen))
    return play(
        "ASIF",
        game,
        chosen,
        synthesizer,
        on,
        observer,
        {f"intermediate features of {party}": observer.labels(party) for party in game.aligned},
        None,
        None,
        **options,
    )


def _options(values: Mapping[str, Any], owner: str) -> dict[str, Any]:
    """Check an audit's parameters, and return those that are not about one scheme only."""
    check_parameters(owner, values, {name: _RULES[name] for name in _RULES if name in values})
    for name in ("targets", "statistics"):
        if isinstance(values[name], (str, Statistic)) or not len(values[name]):
            raise ParameterError(
                f"{owner}: {name} must be a sequence of at least one, got {values[name]!r}"
            )
    return {name: values[name] for name in _SHARED}
