"""Audit of a mechanism by itself: what its release tells about one record."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from vflsynth._validation import Number, check_parameters
from vflsynth.adversary import Adversary, default_adversaries
from vflsynth.adversary.encoding import Floats
from vflsynth.audit.findings import Claim, TargetAudit
from vflsynth.audit.game import THREAT_MODELS
from vflsynth.audit.judging import judge_attack
from vflsynth.audit.results import AuditReport
from vflsynth.exceptions import ParameterError

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
    check_parameters(
        "audit_mechanism",
        {"n_runs": n_runs, "confidence": confidence, "random_state": random_state},
        {
            "n_runs": Number(10, whole=True),
            "confidence": Number(0.5, 1, closed=(True, False)),
            "random_state": Number(0, whole=True),
        },
    )
    started, cpu = time.perf_counter(), time.process_time()
    features = _releases(release, n_runs)
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


def _releases(release: Release, n_runs: int) -> Floats:
    """Run the mechanism in both worlds; shape (run, number)."""
    runs = [
        np.asarray(release(inside), dtype=np.float64)
        for inside in (True, False)
        for _ in range(n_runs)
    ]
    shapes = {run.shape for run in runs}
    if len(shapes) > 1 or not all(np.isfinite(run).all() for run in runs):
        raise ParameterError(
            "release must return finite numbers, always of the same shape; got the shapes "
            + ", ".join(map(str, sorted(shapes)))
        )
    return np.stack(runs).reshape(len(runs), -1)
