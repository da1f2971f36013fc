"""The automatic choice of GAFM's margin."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

from vflsynth._random import derive, secret_from
from vflsynth.exceptions import ParameterError
from vflsynth.splitdefense.fitting import RunOptions
from vflsynth.splitdefense.leakage.monitor import LeakageMonitor

if TYPE_CHECKING:
    from vflsynth.splitdefense.classifiers import GAFMClassifier

MARGINS = (0.05, 0.1, 0.2, 0.3, 0.5)
"""Margins that "auto" tries."""

_SHARE, _REPEATS, _LEAST_AUC = 0.1, 5, 0.6
_FEWEST_RECORDS = 50


def margin_trials(
    classifier: GAFMClassifier,
    X: Any,
    y: Any,
    on: Hashable,
    rows: npt.NDArray[np.int64] | None = None,
) -> pd.DataFrame:
    """Train on random tenths of the records with every margin, all at once.

    Parameters
    ----------
    classifier : GAFMClassifier
    X, y, on
        See `GAFMClassifier.fit`.
    rows : ndarray of int64, shape (record,), optional
        Positions, among the matched records, that the classifier will be trained on. Default: all.

    Returns
    -------
    DataFrame
        ``train_auc``, ``leak_auc`` and their ``ratio`` by margin, means over 5 repetitions.

    Raises
    ------
    ParameterError
        If labels are to be private: every trial would send other responses about the same labels,
        and the choice itself looks at the true ones.

    Notes
    -----
    Source: GAFM appendix C.2. The ratio is the mean of leak AUC over training AUC. The first is
    that of the last epoch's batches, the second that of the predictions. An AUC below 1/2 counts
    as one above: see `GAFMClassifier`.
    """
    if classifier.label_privacy is not None:
        raise ParameterError(
            "pseudo_label_margin='auto' cannot be had with label_privacy: it trains 25 times on "
            "the same labels, randomised anew, and chooses by the true ones, so that ε would not "
            "be what was given. Pass a number, such as 0.05"
        )
    if rows is None:
        probe = clone(classifier).set_params(
            pseudo_label_margin=MARGINS[0], epochs=1, monitor=False, random_state=0
        )
        probe.fit(X, y, on)  # matches the records
        rows = np.arange(probe.alignment_.n_matched)
    rng = np.random.default_rng(list(derive(secret_from(classifier.random_state), "margins")))
    size = min(len(rows), max(_FEWEST_RECORDS, round(_SHARE * len(rows))))
    tenths = [rng.permutation(rows)[:size] for _ in range(_REPEATS)]
    trials = [
        clone(classifier).set_params(
            pseudo_label_margin=margin,
            monitor=LeakageMonitor(every=1),
            random_state=int(rng.integers(2**31)),
        )
        for margin in MARGINS
        for _ in tenths
    ]
    for trial in trials:
        trial._prepare(X, y)
    trained = trials[0]._train(trials, X, y, on, np.stack(tenths * len(MARGINS)), RunOptions())
    measured = []
    for replica, trial in enumerate(trials):
        evidence = next(iter(trial.evidence_.values()))
        batches = evidence.batches
        last = batches[batches["epoch"] == batches["epoch"].max()]
        leak = float(last[["norm", "mean_threshold", "median_threshold"]].mean().mean())
        features = {name: found.double() for name, found in trained.features(replica).items()}
        train_auc = roc_auc_score(evidence.labels, trial.top_.probabilities(features)[:, 1])
        measured.append(
            {
                "margin": trial.pseudo_label_margin,
                "train_auc": max(train_auc, 1.0 - train_auc),
                "leak_auc": leak,
            }
        )
    found = pd.DataFrame(measured)
    found["ratio"] = found["leak_auc"] / found["train_auc"]
    return found.groupby("margin").mean()


def best_margin(trials: pd.DataFrame) -> float:
    """Return the margin of the lowest ratio among those that train well enough, if any does."""
    useful = trials[trials["train_auc"] >= _LEAST_AUC]
    useful = trials if useful.empty else useful
    return float(useful.index[int(useful["ratio"].to_numpy().argmin())])
