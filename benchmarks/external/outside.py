"""Scores and attacks of two other packages, SynthEval and synthyverse, on synthetic rows.

Started by ``benchmarks/_field.py``, in an environment of its own; knows nothing of vflsynth. Prints
one JSON object. All is theirs and has their defaults, but for two things:

- at most `MOST` rows are drawn of the training rows, of the test rows and of the synthetic ones:
  distances of all pairs are computed, and members are to be as many as others;
- attributes are inferred of training rows and of test rows, for only what an attacker learns about
  the first beyond the second was learned from the records.

A membership AUC or precision of .5 is chance, and so is a share of .5 of rows whose nearest
neighbour is of the same table.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

MOST = 5_000
SCORES = {
    "h_dist": {},
    "p_mse": {"k_folds": 5, "max_iter": 100, "solver": "liblinear"},
    "nnaa": {"n_resample": 30},
    "eps_risk": {},
    "mia": {"num_eval_iter": 5},
}
"""Of SynthEval, with the settings of its "full_eval"."""


def main() -> None:
    """Read three tables, print scores."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("train", "test", "synthetic"):
        parser.add_argument(name, type=Path, help="parquet")
    parser.add_argument("--categorical", type=json.loads, required=True, help="JSON list")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    frames = [pd.read_parquet(path) for path in (args.train, args.test, args.synthetic)]
    n = min(MOST, *map(len, frames[:2]))
    train, test, synthetic = (
        frame[list(frames[0].columns)]
        .sample(min(n, len(frame)), random_state=args.seed)
        .reset_index(drop=True)
        for frame in frames
    )
    np.random.seed(args.seed)  # noqa: NPY002 - SynthEval draws by this generator
    found = by_syntheval(train, test, synthetic, args.categorical)
    print(json.dumps(found | by_synthyverse(train, test, synthetic, args.categorical, args.seed)))


def by_syntheval(
    train: pd.DataFrame, test: pd.DataFrame, synthetic: pd.DataFrame, categorical: list[str]
) -> dict[str, float]:
    """Return SynthEval's scores, by its own names."""
    from syntheval import SynthEval

    judge = SynthEval(
        train, test, categorical, console="off", enable_plots=False, verbose=False,
        show_warnings=False,
    )  # fmt: skip
    with contextlib.redirect_stdout(io.StringIO()):
        table = judge.evaluate(synthetic, **SCORES)
    return {name: float(value) for name, value in table.set_index("metric")["val"].items()}


def by_synthyverse(
    train: pd.DataFrame,
    test: pd.DataFrame,
    synthetic: pd.DataFrame,
    categorical: list[str],
    seed: int,
) -> dict[str, float]:
    """Return AUCs of membership attacks, and what inference of attributes gains by membership.

    The ensemble has DOMIAS and DPI as they are by themselves, and another classifier.
    """
    from synthyverse.evaluation.privacy import AIA, ClassifierMIA, EnsembleMIA

    found: dict[str, float] = {}
    for attack in (ClassifierMIA, EnsembleMIA):
        told = attack(random_state=seed).evaluate(
            train, synthetic, X_test=test, discrete_features=categorical
        )
        found |= {name: float(value) for name, value in told.items() if name.endswith(".auc")}
    inferred = [
        AIA(random_state=seed).evaluate(rows, synthetic, discrete_features=categorical)
        for rows in (train, test)
    ]
    return found | {"aia.gain": gain(*inferred)}


def gain(members: dict[str, float], others: dict[str, float]) -> float:
    """Return the mean by which AUCs and R2s of members are higher.

    A column's R2 below zero is no knowledge, and counts as zero; a column with a label that some
    rows lack has no AUC, and is left out.
    """
    scores = [
        (max(0.0, members[name]), max(0.0, others[name]))
        for name in members
        if name.endswith((".auc", ".r2")) and np.isfinite([members[name], others[name]]).all()
    ]
    return float(np.mean([own - other for own, other in scores]))


if __name__ == "__main__":
    main()
