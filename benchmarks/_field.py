"""Outside judges of the ladder: the published one's, and two other packages' scores and attacks.

``benchmarks/external/field.py`` judges as published generators were judged, and
``benchmarks/external/outside.py`` by SynthEval and synthyverse. Each judge runs in an environment
of its own, ``benchmarks/.envs``, made on first use, and has a table of results of its name.

Adult has the 32,561 rows of ``adult.data`` for training and ``adult.test`` for testing;
credit-default the published split, nine tenths, made by the same random numbers. Other tables have
the ladder's own split, and no published rows. Synthetic rows of ours are kept in
``benchmarks/cache/field``, so that a new score does not need a new fit.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import _results
from benchmarks._data import BenchmarkTable, load_table
from benchmarks.external.run import prepare_environment

TABLES = ("adult", "credit-default")
"""Those that have published rows and splits here."""

SCRIPTS = Path(__file__).parent / "external"
CACHE = _results.CACHE / "field"

COLUMNS = {
    "field": {
        "XGB": "detection_xgboost",
        "LR": "detection_logistic",
        "Shape": "shape",
        "Trend": "trend",
        "MLE": "mle",
        "α-prec": "alpha_precision",
        "β-rec": "beta_recall",
        "nearer": "nearer_share",
        "cpu s": "fit_cpu_seconds",
    },
    "outside": {
        "Helling": "avg_h_dist",
        "pMSE": "avg_pMSE",
        "NNAA": "nnaa",
        "loss": "priv_loss_nnaa",
        "ε-risk": "eps_identif_risk",
        "ε-loss": "priv_loss_eps",
        "MIA": "mia_precision",
        "DOMIAS": "mia.ensemble.mia_domias.auc",
        "DPI": "mia.ensemble.mia_dpi.auc",
        "classif": "mia.classifier.auc",
        "all": "mia.ensemble.auc",
        "AIA": "aia.gain",
    },
}
"""What is printed of a row, by judge."""

PUBLISHED = "published"
"""The table of published rows, means of five models: arXiv 2603.23016 and its repository. Their
"nearer" is of models of half a table. TabularARGN's: the published samples of its paper's
repository, of another split, scored by these metrics; which ε they have is not said there."""

AIMS = {
    "adult": {"bounded": 0.90, "16 bits": 0.90, "trained": 0.93},
    "credit-default": {"bounded": 0.60, "16 bits": 0.60, "trained": 0.80},
}
"""Set before measuring, for detection by XGBoost."""

REAL = {"field": "real rows, by halves", "outside": "real test rows"}
"""What a generator is to be like, by judge: half of the training rows, or of the test rows, judged
beside the other half."""

_PUBLISHED_SEED = 1234


def published_split(frame: pd.DataFrame, labels: Iterable[str]) -> tuple[pd.DataFrame, ...]:
    """Part nine tenths of the rows for training, as the published code does.

    Its generator shuffles on, with the next seed, until the training rows have every label.
    """
    order, n_train, seed = np.arange(len(frame)), int(0.9 * len(frame)), _PUBLISHED_SEED
    while True:
        np.random.RandomState(seed).shuffle(order)
        train, test = (frame.iloc[part] for part in (order[:n_train], order[n_train:]))
        if all(train[c].nunique() == frame[c].nunique() for c in labels):
            return train.reset_index(drop=True), test.reset_index(drop=True)
        seed += 1


def split_credit_default() -> tuple[BenchmarkTable, pd.DataFrame, pd.DataFrame]:
    """Return credit-default, and its published training and test rows."""
    table = load_table("credit-default")
    labels = [c for c in table.categorical if c != table.target]
    train, test = published_split(table.joined(), labels)
    return table, train, test


def judge(
    table: BenchmarkTable,
    train: pd.DataFrame,
    test: pd.DataFrame,
    synthetic: pd.DataFrame,
    seed: int,
    *options: str,
    by: str = "field",
) -> _results.Row:
    """Return a judge's scores of synthetic rows; an option of "field" is ``--seen``."""
    script = SCRIPTS / f"{by}.py"
    python = prepare_environment(by, SCRIPTS / f"{by}-requirements.txt", complete=True)
    frames = {"train": train, "test": test, "synthetic": synthetic[list(train.columns)]}
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{name}.parquet" for name in frames]
        for path, frame in zip(paths, frames.values()):
            frame.to_parquet(path, index=False)
        command = [python, script, *paths, "--categorical", json.dumps(table.categorical)]
        command += ["--target", table.target] if by == "field" else []
        command += ["--seed", seed, *options]
        told = subprocess.run(
            list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True, cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        )  # fmt: skip
    found: _results.Row = json.loads(told.stdout)
    return found


def told(seen: Mapping[str, Any]) -> str:
    """Write down what a detector uses: columns by gain and by AUC lost, and the worst leaves."""
    lines = [f"AUC {seen['auc']:.3f} on the third of the rows that it was not fitted to"]
    for what, label in (("gain", "share of gain"), ("auc_lost", "AUC lost without")):
        most = list(seen[what].items())[:6]
        lines.append(f"{label}: " + ", ".join(f"{column} {value:.3f}" for column, value in most))
    return "\n".join([*lines, *seen["rules"]])


def kept(
    name: str, method: str, seed: int, make: Callable[[], tuple[pd.DataFrame, _results.Row]]
) -> tuple[pd.DataFrame, _results.Row]:
    """Return the rows that a method drew and what the fit took, made unless they are kept."""
    path = CACHE / f"{name}-{method.replace(' ', '-')}-{seed}.parquet"
    cost = path.with_suffix(".json")
    if path.exists() and cost.exists():
        return pd.read_parquet(path), json.loads(cost.read_text(encoding="utf-8"))
    synthetic, taken = make()
    CACHE.mkdir(parents=True, exist_ok=True)
    synthetic.to_parquet(path, index=False)
    cost.write_text(json.dumps(taken), encoding="utf-8")
    return synthetic, taken


def synthesizer_of(name: str) -> Callable[..., Any]:
    """Return what makes somebody's synthesizer, of ``module:Class``."""
    module, _, kind = name.partition(":")
    if not kind:
        raise SystemExit(f"--synthesizer {name}: wanted module:Class, as in my_package:Mine")
    made: Callable[..., Any] = getattr(importlib.import_module(module), kind)
    return made


def show(
    tables: Iterable[str],
    order: Iterable[str],
    others: Mapping[tuple[str, str], list[_results.Row]] | None = None,
    by: str = "field",
) -> str:
    """Print a judge's rows, `others` too, beside published ones; methods in order come first."""
    rank = {method: place for place, method in enumerate([REAL[by], *order])}
    found = _results.cells(by)
    found |= {key: pd.DataFrame(rows) for key, rows in (others or {}).items()}
    found = dict(sorted(found.items(), key=lambda item: rank.get(item[0][1], len(rank))))
    lines = []
    for data in tables:
        mine = {key[1]: frame for key, frame in found.items() if key[0] == data}
        if not mine:
            continue
        heads = "".join(f"{head:>8}" for head in COLUMNS[by])
        lines.append(f"{data:<34}{heads}{'seeds':>7}")
        published = _results.rows(PUBLISHED, data=data) if by == "field" else []
        for row in sorted(published, key=lambda row: float(row["detection_xgboost"])):
            lines.append(_line(f"{row['method']} (published)", pd.DataFrame([row]), by))
        lines += [f"{_line(method, frame, by)}{len(frame):>7}" for method, frame in mine.items()]
        if by != "field":
            continue
        for method, least in AIMS.get(data, {}).items():
            if method in mine:
                score = mine[method]["detection_xgboost"].mean()
                verdict = _results.verdict(score >= least)
                lines.append(f"  XGB of {method}: {score:.3f} (at least {least:.2f}: {verdict})")
        if "bounded" in mine and "seen" in mine["bounded"]:
            seen = told(mine["bounded"]["seen"].iloc[0]).splitlines()
            lines += ["", f"  what tells bounded, seed 0: {seen[0]}"]
            lines += [f"    {line}" for line in seen[1:]]
    return "\n".join(lines)


def _line(name: str, frame: pd.DataFrame, by: str) -> str:
    """Write a row of the ladder, as means."""
    cells = []
    for head, key in COLUMNS[by].items():
        mean = frame[key].mean() if key in frame else float("nan")
        form = ".0f" if head == "cpu s" else ".3f"
        cells.append("-" if np.isnan(mean) else format(mean, form))
    return f"  {name:<32}" + "".join(f"{cell:>8}" for cell in cells)
