"""The published ladder's judge: scores of synthetic rows as TabSyn, TabDiff and TabPC compute them.

Started by ``benchmarks/_field.py``, in an environment of its own; knows nothing of vflsynth. Prints
one JSON object. Each score follows the published code, its peculiarities included:

- detection is SDMetrics' ``ScikitLearnClassifierDetectionMetric``, three folds, with logistic
  regression and with ``XGBClassifier(random_state=0)``; codes that are integers stay numbers;
- Shape and Trend are those of SDMetrics' quality report;
- α-precision and β-recall (Alaa et al. 2022) are of rows scaled to the real table's range and
  one-hot labels, without an embedding, 30 values of α and β;
- MLE is the AUC, or the RMSE of logarithms, on real test rows of the XGBoost model that does best
  on a ninth of the synthetic rows, of 36 settings;
- the nearer share is that of synthetic rows with a training row closer than any test row, by L1 of
  numbers over their range and one-hot labels. Published ones train on half of a table and test on
  the other; here as many training rows as test rows are drawn.

A label that the real table lacks would stop SDMetrics: it gets a column of its own.
"""

from __future__ import annotations

import argparse
import itertools
import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score, root_mean_squared_error
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder

SHARES = np.linspace(0.0, 1.0, 30)
MOST_NEAR = 5_000
"""Synthetic rows whose nearest real row is looked for."""
ROUNDS = (10, 50, 100)
GRID = {"min_child_weight": (1, 10), "max_depth": (5, 10, 20), "gamma": (0.0, 1.0)}
"""The published grid, but for `ROUNDS`, which one fit of the most rounds has all of."""


def main() -> None:
    """Read three tables, print scores."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("train", "test", "synthetic"):
        parser.add_argument(name, type=Path, help="parquet")
    parser.add_argument("--categorical", type=json.loads, required=True, help="JSON list")
    parser.add_argument("--target", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seen", action="store_true", help="also print what the detector uses")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    train, test, synthetic = (
        pd.read_parquet(path) for path in (args.train, args.test, args.synthetic)
    )
    synthetic = synthetic[list(train.columns)]
    np.random.seed(args.seed)  # noqa: NPY002 - SDMetrics draws its folds by this generator
    found = detection(train, synthetic) | report(train, synthetic, args.categorical)
    spaces = features(train, test, synthetic, args.categorical)
    found |= precision_and_recall(spaces[0], spaces[2])
    found["nearer_share"] = nearer_share(*spaces, args.seed)
    found["mle"] = utility(synthetic, test, args.categorical, args.target, args.seed)
    if args.seen:
        found["seen"] = what_is_seen(train, synthetic)
    print(json.dumps(found))


def detection(real: pd.DataFrame, synthetic: pd.DataFrame) -> dict[str, float]:
    """Score by SDMetrics' detectors; 1 is indistinguishable."""
    from sdmetrics.single_table import LogisticDetection
    from sdmetrics.single_table.detection.sklearn import ScikitLearnClassifierDetectionMetric
    from xgboost import XGBClassifier

    class Trees(ScikitLearnClassifierDetectionMetric):
        @staticmethod
        def _get_classifier() -> XGBClassifier:
            return XGBClassifier(random_state=0)

    one, other = without_new_labels(real, synthetic)
    return {
        "detection_logistic": float(LogisticDetection.compute(one.copy(), other.copy())),
        "detection_xgboost": float(Trees.compute(one.copy(), other.copy())),
    }


def without_new_labels(
    real: pd.DataFrame, synthetic: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One-hot the columns of text with labels that the real table lacks, others as they are."""
    new = [
        c for c in real if real[c].dtype == object and not synthetic[c].isin(real[c].unique()).all()
    ]
    if not new:
        return real, synthetic
    both = pd.get_dummies(pd.concat([real, synthetic], ignore_index=True), columns=new, dtype=float)
    return both.iloc[: len(real)], both.iloc[len(real) :].reset_index(drop=True)


def report(real: pd.DataFrame, synthetic: pd.DataFrame, categorical: list[str]) -> dict[str, float]:
    """Return Shape and Trend of SDMetrics' quality report."""
    from sdmetrics.reports.single_table import QualityReport

    kinds = {True: "categorical", False: "numerical"}
    metadata = {"columns": {c: {"sdtype": kinds[c in categorical]} for c in real}}
    quality = QualityReport()
    quality.generate(real.copy(), synthetic.copy(), metadata, verbose=False)
    scores = quality.get_properties().set_index("Property")["Score"]
    return {"shape": scores["Column Shapes"], "trend": scores["Column Pair Trends"]}


def features(
    train: pd.DataFrame, test: pd.DataFrame, synthetic: pd.DataFrame, categorical: list[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scale numbers to the training rows' range, and make labels one-hot."""
    labels = [c for c in train if c in categorical]
    numbers = [c for c in train if c not in categorical]
    encoder = OneHotEncoder(sparse_output=False, dtype=np.float64)
    encoder.fit(pd.concat([train, test, synthetic])[labels].astype(str)) if labels else None
    scaler = MinMaxScaler().fit(train[numbers]) if numbers else None
    made = []
    for frame in (train, test, synthetic):
        parts = [scaler.transform(frame[numbers])] if numbers else []
        parts += [encoder.transform(frame[labels].astype(str))] if labels else []
        made.append(np.concatenate(parts, axis=1))
    return made[0], made[1], made[2]


def precision_and_recall(real: np.ndarray, synthetic: np.ndarray) -> dict[str, float]:
    """Return integrated α-precision and β-recall of two arrays of rows."""

    def length(rows: np.ndarray, centre: np.ndarray) -> np.ndarray:
        return np.sqrt(np.square(rows - centre).sum(axis=1))

    centre = real.mean(axis=0)
    radii = np.quantile(length(real, centre), SHARES)
    precision = (length(synthetic, centre)[:, None] <= radii).mean(axis=0)
    own = NearestNeighbors(n_neighbors=2).fit(real).kneighbors(real)[0][:, 1]
    distance, nearest = NearestNeighbors(n_neighbors=1).fit(synthetic).kneighbors(real)
    typical = length(synthetic[nearest[:, 0]], synthetic.mean(axis=0))
    within = typical[:, None] <= np.quantile(typical, SHARES)
    recall = (within & (distance <= own[:, None])).mean(axis=0)
    return {
        name: 1.0 - float(np.abs(SHARES - curve).sum() / SHARES.sum())
        for name, curve in (("alpha_precision", precision), ("beta_recall", recall))
    }


def nearer_share(train: np.ndarray, test: np.ndarray, synthetic: np.ndarray, seed: int) -> float:
    """Return the share of synthetic rows that are closer to a training row than to any test row."""
    rng = np.random.default_rng(seed)
    n = min(len(train), len(test))
    rows = rng.permutation(synthetic)[:MOST_NEAR]
    nearest = [
        NearestNeighbors(n_neighbors=1, metric="l1", algorithm="brute")
        .fit(rng.permutation(real)[:n])
        .kneighbors(rows)[0][:, 0]
        for real in (train, test)
    ]
    return float((nearest[0] < nearest[1]).mean())


def utility(
    rows: pd.DataFrame, test: pd.DataFrame, categorical: list[str], target: str, seed: int
) -> float:
    """Train all models of the grid, keep the best on a ninth of the rows, judge it on test rows."""
    from xgboost import XGBClassifier, XGBRegressor

    labels = [c for c in rows if c in categorical and c != target]
    numbers = [c for c in rows if c not in categorical and c != target]
    encoder = OneHotEncoder(sparse_output=False, handle_unknown="ignore")
    encoder.fit(rows[labels].astype(str)) if labels else None
    # The published code takes logarithms of all numbers if the first column of them asks for it.
    first = rows[numbers[0]] if numbers else pd.Series([0.0])
    logarithms = first.min() >= 0 and first.max() >= 1e3

    def prepared(frame: pd.DataFrame) -> np.ndarray:
        values = frame[numbers].to_numpy(np.float32)
        parts = [np.log(np.maximum(values, 1e-2)) if logarithms else values]
        parts += [encoder.transform(frame[labels].astype(str))] if labels else []
        return np.concatenate(parts, axis=1)

    classes = target in categorical
    if classes:
        codes = {label: i for i, label in enumerate(sorted(rows[target].unique()))}
        known = test[test[target].isin(codes)]
        targets = [frame[target].map(codes).to_numpy(int) for frame in (rows, known)]
    else:
        known = test
        targets = [np.log(np.clip(f[target].to_numpy(np.float32), 1, 20_000)) for f in (rows, test)]
    inputs = prepared(rows), prepared(known)
    order = np.random.default_rng(seed).permutation(len(rows))
    judged, used = order[: len(rows) // 9], order[len(rows) // 9 :]

    def score(model, values: np.ndarray, wanted: np.ndarray, rounds: int) -> float:
        window = {"iteration_range": (0, rounds)}
        if not classes:
            return -float(root_mean_squared_error(wanted, model.predict(values, **window)))
        shares = model.predict_proba(values, **window)
        if shares.shape[1] == 2:
            return float(roc_auc_score(wanted, shares[:, 1]))
        there = np.unique(wanted)  # one against the rest, for classes that occur
        return float(np.mean([roc_auc_score(wanted == k, shares[:, k]) for k in there]))

    best = (-np.inf, 0.0)
    for chosen in itertools.product(*GRID.values()):
        kind = XGBClassifier if classes else XGBRegressor
        options = dict(zip(GRID, chosen))
        model = kind(n_estimators=max(ROUNDS), tree_method="hist", n_jobs=1, **options)
        model.fit(inputs[0][used], targets[0][used])
        for rounds in ROUNDS:
            held = score(model, inputs[0][judged], targets[0][judged], rounds)
            if held > best[0]:
                best = (held, score(model, inputs[1], targets[1], rounds))
    return best[1] if classes else -best[1]


def what_is_seen(real: pd.DataFrame, synthetic: pd.DataFrame) -> dict[str, object]:
    """Fit the detector to two thirds of all rows: what it uses, and the rule that tells most.

    Rules are the leaves of one tree of depth four in which the other third's share of real rows
    departs most from that of all rows, in standard errors.
    """
    from sklearn.tree import DecisionTreeClassifier
    from xgboost import XGBClassifier

    both = pd.concat([real, synthetic], ignore_index=True)
    labels = [c for c in both if both[c].dtype == object]
    coded = pd.get_dummies(both, columns=labels, prefix_sep="=", dtype=float)
    is_real = np.arange(len(both)) < len(real)
    order = np.random.default_rng(0).permutation(len(both))
    used, judged = order[: len(both) * 2 // 3], order[len(both) * 2 // 3 :]
    values = coded.to_numpy(float)
    model = XGBClassifier(random_state=0, n_jobs=1).fit(values[used], is_real[used])
    scores = model.predict_proba(values[judged])[:, 1]
    gains = model.get_booster().get_score(importance_type="total_gain")
    by_column: dict[str, float] = {}
    for name, gain in gains.items():
        column = coded.columns[int(name[1:])].split("=")[0]
        by_column[column] = by_column.get(column, 0.0) + gain
    total = sum(by_column.values())
    tree = DecisionTreeClassifier(max_depth=4, min_samples_leaf=100, random_state=0)
    tree.fit(values[used], is_real[used])
    leaves = tree.apply(values[judged])
    share = pd.Series(is_real[judged]).groupby(leaves).agg(["mean", "size"])
    errors = (share["mean"] - is_real.mean()).abs() * np.sqrt(share["size"])
    worst = share.loc[errors.sort_values(ascending=False).index[:3]]
    shuffled = {}
    for column in real:  # what the detector loses without a column's relation to the others
        of_column = [i for i, c in enumerate(coded) if c.split("=")[0] == column]
        other = values[judged].copy()
        other[:, of_column] = np.random.default_rng(0).permutation(other[:, of_column])
        shuffled[column] = float(roc_auc_score(is_real[judged], model.predict_proba(other)[:, 1]))
    auc = float(roc_auc_score(is_real[judged], scores))
    return {
        "auc": auc,
        "gain": {c: g / total for c, g in sorted(by_column.items(), key=lambda item: -item[1])},
        "auc_lost": {c: auc - s for c, s in sorted(shuffled.items(), key=lambda item: item[1])},
        "rules": [
            _rule(tree, coded.columns, leaf, *row)
            for leaf, row in zip(worst.index, worst.to_numpy())
        ],
    }


def _rule(tree, columns, leaf: int, share: float, n: int) -> str:
    """Write a leaf of a tree as text."""
    parts, made, node = tree.tree_, [], leaf
    while node != 0:
        left = node in parts.children_left
        above = int(
            np.flatnonzero((parts.children_left if left else parts.children_right) == node)[0]
        )
        sign = "<=" if left else ">"
        made.append(f"{columns[parts.feature[above]]} {sign} {parts.threshold[above]:.6g}")
        node = above
    return f"{' and '.join(reversed(made))}: {n:.0f} rows, {share:.1%} real"


if __name__ == "__main__":
    main()
