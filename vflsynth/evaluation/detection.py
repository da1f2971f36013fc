"""Whether a classifier can tell synthetic rows from real ones."""

from __future__ import annotations

from typing import Unpack

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GroupKFold

from vflsynth.evaluation.intervals import around
from vflsynth.evaluation.metric import Metric, MetricResult
from vflsynth.evaluation.tables import Compared, Tables, check_estimator, check_max_rows

DETECTION_AUC = Metric(
    name="detection_auc",
    title="Classifier two-sample test (AUC)",
    direction="lower",
    measures="How often a classifier, shown one real and one synthetic row that it never saw, says "
    "rightly which is which: 0.5 is guessing, 1 is always right.",
    baseline="rows that cannot be told apart",
    naive="rows that can always be told apart",
)

FOLDS = 5
"""Folds of the cross-validation."""


def detection_auc(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    *,
    classifier: BaseEstimator | None = None,
    max_rows: int | None = 10_000,
    **known: Unpack[Compared],
) -> MetricResult:
    """Train a classifier to tell the two tables apart, and report its cross-validated AUC.

    Parameters
    ----------
    real, synthetic, **known
        As in `evaluate`. The larger table is thinned out at random to the other's size.
    classifier : estimator, optional
        With ``predict_proba``; it is cloned. Default: gradient boosting, 50 trees.
    max_rows : int or None, default 10000
        Largest number of rows taken from each table.

    Returns
    -------
    MetricResult
        Mean AUC over 5 folds, with a t interval over the folds. ``parts`` has one row per fold.

    Notes
    -----
    Equal rows always fall into the same fold. Otherwise a synthetic table of copies would score
    *below* 0.5: each test row's twin, with the opposite label, would be among the training rows.

    An AUC below 0.5 by chance is reported as it is; only its distance above 0.5 means anything.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> real = pd.DataFrame({"a": np.arange(100.0)})
    >>> float(detection_auc(real, real + 1000)) > 0.99
    True
    """
    check_max_rows(max_rows)
    check_estimator("classifier", classifier, "predict_proba")
    return told_apart(Tables(real, synthetic, **known), classifier, max_rows)


def told_apart(
    tables: Tables, classifier: BaseEstimator | None = None, max_rows: int | None = 5_000
) -> MetricResult:
    """Compute `detection_auc`, which see."""
    real, synthetic, encoder = tables.real, tables.synthetic, tables.encoder
    n = min(len(real), len(synthetic), max_rows or len(real))
    if n < 2 * FOLDS:
        return DETECTION_AUC.not_applicable(f"{2 * FOLDS} rows of each table are needed")
    rng = tables.generator(DETECTION_AUC.name)
    features = np.vstack(
        [
            encoder.encode(frame.take(np.sort(rng.choice(len(frame), n, replace=False))))
            for frame in (real, synthetic)
        ]
    )
    is_synthetic = np.repeat([0, 1], n)
    # Negative zero equals zero but not byte for byte.
    twins = pd.util.hash_pandas_object(pd.DataFrame(features + 0.0), index=False).to_numpy()
    groups = np.unique(twins, return_inverse=True)[1]
    if groups.max() < FOLDS:
        return DETECTION_AUC.not_applicable("nearly all rows are equal, so they cannot be split")
    if classifier is None:
        classifier = HistGradientBoostingClassifier(
            max_iter=50, early_stopping=False, random_state=int(rng.integers(2**31))
        )
    folds = GroupKFold(FOLDS, shuffle=True, random_state=int(rng.integers(2**31)))
    rows = []
    for fold, (train, test) in enumerate(folds.split(features, groups=groups)):
        if len(set(is_synthetic[train])) < 2 or len(set(is_synthetic[test])) < 2:
            continue
        fitted = clone(classifier).fit(features[train], is_synthetic[train])
        scores = fitted.predict_proba(features[test])[:, 1]
        auc = float(roc_auc_score(is_synthetic[test], scores))
        rows.append({"fold": fold, "rows": len(test), "value": auc})
    if len(rows) < 2:
        return DETECTION_AUC.not_applicable("nearly all rows are equal, so they cannot be split")
    values = np.array([row["value"] for row in rows])
    deviation = float(values.std(ddof=1) / np.sqrt(len(values)))
    thinned = f"a random {n} rows of each table were used"
    return MetricResult(
        metric=DETECTION_AUC,
        value=float(values.mean()),
        interval=around(float(values.mean()), deviation, 0.0, 1.0, freedom=len(values) - 1),
        interval_method=f"95 %, {len(values)} cross-validation folds",
        baseline=0.5,
        naive=1.0,
        parts=pd.DataFrame(rows),
        notes=encoder.notes + ((thinned,) if n < max(len(real), len(synthetic)) else ()),
    )
