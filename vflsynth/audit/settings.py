"""How an audit is carried out: what all audits that train models have in common."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from vflsynth.adversary import Adversary
from vflsynth.exceptions import ParameterError, did_you_mean
from vflsynth.registry import Choice, Jobs, Number, Optional, Rule, check_parameters

LEAST_MODELS = 10
"""Models per world without which nothing can be said."""

Protocol = Literal["holdout", "paper"]

RULES: dict[str, Rule] = {
    "n_models": Number(LEAST_MODELS, whole=True),
    "n_runs": Number(10, whole=True),
    "n_canaries": Number(10, whole=True),
    "n_attacks": Number(10, whole=True),
    "n_synthetic": Optional(Number(2, whole=True)),
    "minutes": Optional(Number(0, closed=(False, True))),
    "attacker": Choice(("table", "model")),
    "protocol": Choice(("holdout", "paper")),
    "confidence": Number(0.5, 1, closed=(True, False)),
    "block_size": Optional(Number(1, whole=True)),
    "n_jobs": Jobs(),
    "random_state": Number(0, whole=True),
}
"""What parameters of audits may be, whichever audit has them."""


def check_values(owner: str, **values: Any) -> None:
    """Check parameters of an audit by `RULES` (ParameterError)."""
    check_parameters(owner, values, {name: RULES[name] for name in values})


def check_names(owner: str, options: Mapping[str, Any], known: type[Any]) -> None:
    """Refuse keywords that are not those of a TypedDict (ParameterError)."""
    names = known.__annotations__
    for name in options:
        if name not in names:
            raise ParameterError(
                f"{owner} has no parameter {name!r}{did_you_mean(name, names)}. Fix: give some of "
                f"{', '.join(names)}, or none of them"
            )


class AuditOptions(TypedDict, total=False):
    """Keywords of every audit that trains models, see `AuditSettings`."""

    n_models: int
    minutes: float | None
    adversaries: Sequence[Adversary] | None
    protocol: Protocol
    confidence: float
    block_size: int | None
    n_jobs: int | None
    cache: str | os.PathLike[str] | None
    random_state: int
    verbose: int


@dataclass(frozen=True)
class AuditSettings:
    """How an audit is carried out.

    Parameters
    ----------
    n_models : int, default=100
        Per world, at least 10. Half of them train the adversaries. The results rest on the others.
    minutes : float, optional
        Time for everything. A pilot says how many models there is time for, at most `n_models`.
        What so few would find is logged before they are trained, and is in the report. If they are
        fewer than an AUC of .8 takes, all models get fewer epochs, provided that the synthesizer
        chooses its number of epochs (``epochs=None``). The log and the report say so.
    adversaries : sequence of Adversary, optional
        Default: the paper's random forest, a regularised linear one, and likelihood ratios.
    protocol : {"holdout", "paper"}, default="holdout"
        "paper" adds the paper's five splits, with mean and two standard deviations of accuracy.
    confidence : float, default=0.95
        Of each interval, and of all bounds on epsilon at once.
    block_size : int, optional
        Models trained at once. Default: what is fast and fits into memory.
    n_jobs : int, optional
        Blocks trained, and attacks judged, at a time, as joblib understands it;
        ``joblib.parallel_config`` decides by default, and chooses where they run.
    cache : path-like, optional
        Directory for what was observed of each model, never a model or a record. An interrupted
        audit continues there; a longer one adds to it.
    random_state : int, default=0
        Model j of a world has the same seed whatever the blocks, workers and other worlds are.
    verbose : int, default=1
        0 shows no progress bar.
    """

    n_models: int = 100
    minutes: float | None = None
    adversaries: Sequence[Adversary] | None = None
    protocol: Protocol = "holdout"
    confidence: float = 0.95
    block_size: int | None = None
    n_jobs: int | None = None
    cache: str | os.PathLike[str] | None = None
    random_state: int = 0
    verbose: int = 1

    @classmethod
    def of(cls, owner: str, options: Mapping[str, Any]) -> AuditSettings:
        """Return the settings that an audit was called with; errors name the audit."""
        check_names(owner, options, AuditOptions)
        made = cls(**options)
        check_values(owner, **{name: value for name, value in vars(made).items() if name in RULES})
        return made
