"""The automatic choice of GAFM's margin."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

from vflsynth._random import derive, secret_from

if TYPE_CHECKING:
    from vflsynth.splitdefense.classifiers import GAFMClassifier

MARGINS = (0.05, 0.1, 0.2, 0.3, 0.5)
"""Margins that "auto" tries."""

_SHARE, _REPEATS, _LEAST_AUC = 0.1, 5, 0.6
_FEWEST_RECORDS = 50


def margin_trials(classifier: GAFMClassifier, X: Any, y: Any, on: Hashable) -> pd.DataFrame:
    """Train on random tenths of the records with every margin, all at once.

    Returns
    -------
    DataFrame
        ``train_auc``, ``leak_auc`` and their ``ratio`` by margin, means over 5 repetitions.

    Notes
    -----
    Source: GAFM appendix C.2. The ratio is the mean of leak AUC over training AUC.
    """
    probe = clone(classifier).set_params(pseudo_label_margin=MARGINS[0], epochs=1)
    n = probe.fit_replicas(X, y, on, random_states=[0])[0].alignment_.n_matched
    rng = np.random.default_rng(list(derive(secret_from(classifier.random_state), "margins")))
    size = min(n, max(_FEWEST_RECORDS, round(_SHARE * n)))
    tenths = [rng.permutation(n)[:size] for _ in range(_REPEATS)]
    trials = clone(classifier).set_params(pseudo_label_margin=MARGINS[0], monitor=True)
    models = trials.fit_replicas(
        X,
        y,
        on,
        random_states=[int(rng.integers(2**31)) for _ in MARGINS for _ in tenths],
        parameters=[{"pseudo_label_margin": margin} for margin in MARGINS for _ in tenths],
        replica_rows=np.stack(tenths * len(MARGINS)),
    )
    rows = []
    for model in models:
        evidence = next(iter(model.evidence_.values()))
        batches = evidence.batches
        last = batches[batches["epoch"] == batches["epoch"].max()]
        leak = float(last[["norm", "mean_threshold", "median_threshold"]].mean().mean())
        fused = np.mean([e.features for e in model.evidence_.values()], 0)[:, 0]
        train_auc = roc_auc_score(evidence.labels, fused)
        rows.append(
            {
                "margin": model.pseudo_label_margin,
                "train_auc": max(train_auc, 1.0 - train_auc),
                "leak_auc": leak,
            }
        )
    found = pd.DataFrame(rows)
    found["ratio"] = found["leak_auc"] / found["train_auc"]
    return found.groupby("margin").mean()


def best_margin(trials: pd.DataFrame) -> float:
    """Return the margin of the lowest ratio among those that train well enough, if any does."""
    useful = trials[trials["train_auc"] >= _LEAST_AUC]
    useful = trials if useful.empty else useful
    return float(useful.index[int(useful["ratio"].to_numpy().argmin())])
