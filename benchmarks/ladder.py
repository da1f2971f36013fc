"""Every synthesizer beside published figures of centralised generators, on the field's own metrics.

Two parties: A has the first columns, B the others, as in `benchmarks._data`. Two thirds of the rows
are for training, of Adult the 32,561 of ``adult.data``; the published figures of Adult are of the
same split, those of credit-default of another one of the same table; of ours, wgan-gp alone sees
the joined table. Default settings but for what
the name of a row says; nothing is tuned per table. 1 is best in Shape, Trend and both detection
scores; ours by boosted trees are scikit-learn's with 8,000 rows of each table, theirs XGBoost's
with all rows, which find more: they are not to be compared directly. With a star: of the test rows
that no training row equals. A quarter of the white wines are in the table twice, and who learns
from real rows knows these by heart.

    python -m benchmarks ladder --data red-wine --methods bounded one-message --seeds 0
    python -m benchmarks ladder --data red-wine --methods bounded --show
    python -m benchmarks ladder --data adult --samples theirs.csv     # somebody else's rows
    python -m benchmarks ladder --table mine.csv --target income --first 8 --methods bounded

What is there is not measured again. Whoever has another synthesizer adds a row with a class and an
entry in `METHODS`, or has its samples scored: ``--samples`` wants the columns of the table, as many
rows as the training rows at best. Neither these nor a table of one's own are recorded. TabDDPM has
no figures by these metrics in the source of the published ones.
"""

from __future__ import annotations

import resource
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import r2_score, roc_auc_score

from benchmarks import _commands, _private, _results
from benchmarks._data import BenchmarkTable, data_file, load_table
from benchmarks._schemas import SCHEMAS
from vflsynth import (
    AutoregressiveSynthesizer,
    GaussianCopulaSynthesizer,
    IndependentSynthesizer,
    VertiGANSynthesizer,
    VFLGANSynthesizer,
    WGANGPSynthesizer,
)
from vflsynth.evaluation import (
    detection_score,
    frechet_distance,
    incoherent_rows,
    precision_and_recall,
    proximity,
    rule_violations,
    shape,
    trend,
    utility,
)
from vflsynth.evaluation.columns import is_categorical
from vflsynth.frames import read_table

TABLES = (
    "adult",
    "credit-default",
    "california-housing",
    "red-wine",
    "white-wine",
    "spambase",
    "south-german-credit",
    "hcv",
)
METHODS: dict[str, Callable[[int], Any]] = {
    "bounded": lambda seed: AutoregressiveSynthesizer(random_state=seed, verbose=0),
    "trained": lambda seed: AutoregressiveSynthesizer(
        protocol="trained", random_state=seed, verbose=0
    ),
    "one-message": lambda seed: AutoregressiveSynthesizer(
        protocol="one_message", random_state=seed, verbose=0
    ),
    "vflgan": lambda seed: VFLGANSynthesizer(random_state=seed, verbose=0),
    "vertigan": lambda seed: VertiGANSynthesizer(random_state=seed, verbose=0),
    "wgan-gp": lambda seed: WGANGPSynthesizer(random_state=seed, verbose=0),
    "copula": lambda seed: GaussianCopulaSynthesizer(random_state=seed),
    "independent": lambda seed: IndependentSynthesizer(random_state=seed),
}
PRIVATE: dict[str, tuple[str, float]] = {
    f"{label}, ε {epsilon:g}": (method, epsilon)
    for label, method in (
        ("mean embedding", "kernel_mean_embedding"),
        ("pairwise tables", "pairwise_tables"),
        ("latent tree", "dplt"),
        ("autoregressive DP-SGD", "autoregressive_dpsgd"),
    )
    for epsilon in (10.0, 3.0, 1.0)
}
"""Methods and ε of `benchmarks.dp`, for the tables that have public schemas there."""

PUBLISHED: dict[str, dict[str, tuple[float, float, float, float, float]]] = {
    "adult": {
        "CTGAN": (0.809, 0.758, 0.588, 0.000, 0.862),
        "TVAE": (0.762, 0.666, 0.229, 0.000, 0.871),
        "TabSyn": (0.992, 0.980, 0.987, 0.794, 0.910),
        "TabDiff": (0.993, 0.985, 0.990, 0.841, 0.913),
        "TabPC": (0.994, 0.986, 0.996, 0.855, 0.916),
        "TabularARGN with DP": (0.956, 0.910, 0.764, 0.240, 0.851),
        "shallow mixture": (0.992, 0.981, float("nan"), 0.773, 0.902),
        "independent columns": (0.996, 0.925, float("nan"), 0.016, 0.516),
    },
    "credit-default": {
        "CTGAN": (0.831, 0.702, 0.413, 0.000, 0.727),
        "TVAE": (0.913, 0.814, 0.666, 0.002, 0.747),
        "TabSyn": (0.987, 0.971, 0.946, 0.402, 0.759),
        "TabDiff": (0.988, 0.973, 0.970, 0.591, 0.763),
        "TabPC": (0.995, 0.950, 1.000, 0.262, 0.744),
        "shallow mixture": (0.991, 0.977, float("nan"), 0.105, 0.732),
        "independent columns": (0.995, 0.888, float("nan"), 0.000, 0.490),
    },
}
"""Shape, Trend, detection by logistic regression and by XGBoost, AUC of models trained on synthetic
rows: arXiv 2603.23016 and its repository. TabularARGN's: the published samples of its paper's
repository, of another split, scored by these metrics; which ε they have is not said there."""

RULES: dict[str, dict[str, Callable[[pd.DataFrame], Any]]] = {
    "adult": {
        "a husband is a man": lambda t: (t["relationship"] != "Husband") | (t["sex"] == "Male"),
        "a wife is a woman": lambda t: (t["relationship"] != "Wife") | (t["sex"] == "Female"),
        "a spouse is married": lambda t: (
            ~t["relationship"].isin(["Husband", "Wife"])
            | t["marital-status"].str.startswith("Married")
        ),
        "education has its number": lambda t: t["education"].map(_EDUCATION) == t["education-num"],
    }
}
_EDUCATION = {
    name: number
    for number, name in enumerate(
        [
            "Preschool",
            "1st-4th",
            "5th-6th",
            "7th-8th",
            "9th",
            "10th",
            "11th",
            "12th",
            "HS-grad",
            "Some-college",
            "Assoc-voc",
            "Assoc-acdm",
            "Bachelors",
            "Masters",
            "Prof-school",
            "Doctorate",
        ],
        start=1,
    )
}
_MAX_ROWS = 8000
"""Of each table, for detection by boosted trees."""

COLUMNS = {
    "Shape": "shape",
    "Trend": "trend",
    "LR": "detection_logistic",
    "trees": "detection",
    "TSTR": "tstr",
    "TRTR": "trtr",
    "TSTR*": "tstr_of_new",
    "TRTR*": "trtr_of_new",
    "FD": "frechet_distance",
    "TD": "total_difference",
    "nearer": "closer_to_training_share",
    "α-prec": "alpha_precision",
    "β-rec": "beta_recall",
    "incoh.": "incoherent_rows",
    "rules": "rule_violations",
    "cpu s": "fit_cpu_seconds",
}
"""What is printed of a row, the first five as published figures have them; older rows lack some."""

STUDIED = {
    "Shape": "shape",
    "within": "trend_within",
    "across": "trend_across",
    "trees": "detection",
    "TSTR": "tstr",
    "TRTR": "trtr",
    "FD": "frechet_distance",
}
"""What studies by `fit_and_score` print of a row."""

_OWN: dict[str, BenchmarkTable] = {}
"""Tables that were given on the command line."""

_MOST_CLASSES = 20


def own_table(path: Path, target: str, n_first: int | None) -> str:
    """Take in a table from a file, its first columns being party A's, and return its name."""
    frame = read_table(path)
    n_first = n_first or len(frame.columns) // 2
    if target not in frame.columns[n_first:]:
        raise SystemExit(
            f"--target {target}: it must be one of the columns of B, from {n_first} on"
        )
    labels = tuple(str(c) for c in frame.columns if is_categorical(frame[c]))
    few = target in labels or frame[target].nunique() <= _MOST_CLASSES
    parts = {"A": frame.iloc[:, :n_first], "B": frame.iloc[:, n_first:]}
    task: Literal["classification", "regression"] = "classification" if few else "regression"
    _OWN[path.stem] = BenchmarkTable(path.stem, parts, target, task, labels)
    return path.stem


def adult() -> tuple[BenchmarkTable, int]:
    """Return all rows of Adult, `?` being a label, and how many are ``adult.data``'s."""
    frame = pd.read_parquet(data_file("adult.parquet"))
    labels = [c for c in frame.columns if not pd.api.types.is_numeric_dtype(frame[c])]
    frames = {"A": frame.iloc[:, :8], "B": frame.iloc[:, 8:]}
    return BenchmarkTable("adult", frames, "income", "classification", tuple(labels)), 32561


def split(name: str) -> tuple[BenchmarkTable, pd.DataFrame, pd.DataFrame]:
    """Return a table, its training rows and its test rows."""
    if name == "adult":
        table, n_train = adult()
        joined = table.joined()
        return table, joined.iloc[:n_train], joined.iloc[n_train:].reset_index(drop=True)
    table = _OWN[name] if name in _OWN else load_table(name)
    joined = table.joined()
    order = np.random.default_rng(0).permutation(len(joined))
    n_train = len(joined) * 2 // 3
    parts = (order[:n_train], order[n_train:])
    train, test = (joined.iloc[part].reset_index(drop=True) for part in parts)
    return table, train, test


def measure(name: str, method: str, seed: int) -> _results.Row:
    """Fit one method to one table, and score what it draws."""
    table, train, test = split(name)
    if method in METHODS:
        synth = METHODS[method](seed)
    else:
        synth = private(table, *PRIVATE[method]).set_params(random_state=seed)
    found, synthetic = fit_and_score(table, train, test, synth, seed)
    found |= _more_scores(table, train, test, synthetic, seed)
    return {"data": name, "method": method, "seed": seed, **found}


def private(table: BenchmarkTable, method: str, epsilon: float) -> Any:
    """Make a private method of `benchmarks.dp`."""
    if table.name not in SCHEMAS:
        raise SystemExit(f"{table.name} has no public schema; {', '.join(SCHEMAS)} have")
    return _private.make_synthesizer(table, method, epsilon)


def rescore(name: str, path: Path, seed: int) -> _results.Row:
    """Score rows that somebody else drew."""
    table, train, test = split(name)
    synthetic = read_table(path)[list(train.columns)]
    found = _scores(table, train, test, synthetic, seed)
    return found | _more_scores(table, train, test, synthetic, seed)


def _more_scores(
    table: BenchmarkTable, train: pd.DataFrame, test: pd.DataFrame, synthetic: pd.DataFrame,
    seed: int,
) -> _results.Row:  # fmt: skip
    """Return what only the ladder shows."""
    found: _results.Row = {}
    options: dict[str, Any] = {"categorical": table.categorical}
    found["detection_logistic"] = float(
        detection_score(
            train, synthetic, detector="logistic_regression", max_rows=_MAX_ROWS,
            random_state=seed, **options,
        )
    )  # fmt: skip
    utilities = utility(train, synthetic, table.target, holdout=test, task=table.task, **options)
    for result in utilities.values():
        if result.value is not None:
            found[result.metric.name] = float(result)
    for result in precision_and_recall(
        train, synthetic, max_rows=_MAX_ROWS, random_state=seed, **options
    ).values():
        found[result.metric.name] = float(result)
    incoherent = incoherent_rows(train, synthetic, random_state=seed, **options)
    found["incoherent_rows"] = float(incoherent)
    found["incoherent_rows_real"] = float(incoherent.baseline or 0.0)
    if table.name in RULES:
        broken = rule_violations(train, synthetic, RULES[table.name])
        found["rule_violations"] = float(broken)
        found["rule_violations_real"] = float(broken.baseline or 0.0)
    return found


def fit_and_score(
    table: BenchmarkTable, train: pd.DataFrame, test: pd.DataFrame, synth: Any, seed: int
) -> tuple[_results.Row, pd.DataFrame]:
    """Fit to a table's parties; return its rows' scores and what the fit took, and the rows."""
    frames = {party: train[list(columns)] for party, columns in table.party_columns.items()}
    started, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_utime
    synth.fit(frames, transcript=True)
    seconds = time.perf_counter() - started
    used = resource.getrusage(resource.RUSAGE_SELF).ru_utime - used
    synthetic = synth.sample(len(train))
    found = _scores(table, train, test, synthetic, seed)
    transcript = synth.transcript_
    trained = transcript[~transcript["message"].isin(["KeyList", "AlignmentNotice"])]
    found |= {
        "epochs": len(synth.history_),
        "messages": int(trained["messages"].sum()),
        "megabytes": float(trained["bytes"].sum() / 1e6),
        "fit_seconds": round(seconds, 1),
        "fit_cpu_seconds": round(used, 1),
    }
    return found, synthetic


def _scores(
    table: BenchmarkTable, train: pd.DataFrame, test: pd.DataFrame, synthetic: pd.DataFrame,
    seed: int,
) -> _results.Row:  # fmt: skip
    """Return the scores of synthetic rows that every study of ours asks for."""
    owner = {c: party for party, columns in table.party_columns.items() for c in columns}
    options: dict[str, Any] = {"categorical": table.categorical}
    pairs = trend(train, synthetic, **options)
    across = pairs.parts["column"].map(owner) != pairs.parts["other_column"].map(owner)
    of_test_rows, (trtr, trtr_of_new) = _of_real_rows(table.name, seed)
    tstr, tstr_of_new = _of_all_and_of_new(synthetic, test, table)
    found: _results.Row = {
        "shape": float(shape(train, synthetic, **options)),
        "trend": float(pairs),
        "trend_within": float(pairs.parts.loc[~across, "value"].mean()),
        "trend_across": float(pairs.parts.loc[across, "value"].mean()),
        "detection": float(
            detection_score(train, synthetic, max_rows=_MAX_ROWS, random_state=seed, **options)
        ),
        "detection_of_test_rows": of_test_rows,
        "tstr": tstr,
        "trtr": trtr,
        "tstr_of_new": tstr_of_new,
        "trtr_of_new": trtr_of_new,
        "frechet_distance": float(frechet_distance(train, synthetic, **options)),
    }
    near = proximity(train, synthetic, holdout=test, max_rows=2000, **options)
    share = near["closer_to_training_share"].value
    if share is not None:
        found["closer_to_training_share"] = share
    return found


@cache
def _of_real_rows(name: str, seed: int) -> tuple[float, tuple[float, float]]:
    """Return test rows' detection score, and what a model of training rows predicts of them."""
    table, train, test = split(name)
    some = test.sample(min(len(test), len(train)), random_state=0)
    found = detection_score(
        train, some, max_rows=_MAX_ROWS, random_state=seed, categorical=table.categorical
    )
    return float(found), _of_all_and_of_new(train, test, table)


def _of_all_and_of_new(
    rows: pd.DataFrame, test: pd.DataFrame, table: BenchmarkTable
) -> tuple[float, float]:
    """Judge what a model of `rows` predicts of all test rows, and of the new ones."""
    judged = _trained(rows, test, table)
    return judged(np.ones(len(test), bool)), judged(_is_new(table.name))


@cache
def _is_new(name: str) -> npt.NDArray[np.bool_]:
    """Find the test rows that no training row equals: others can be predicted by heart."""
    _, train, test = split(name)
    return ~pd.MultiIndex.from_frame(test).isin(pd.MultiIndex.from_frame(train))


def predictive(rows: pd.DataFrame, test: pd.DataFrame, table: BenchmarkTable) -> float:
    """AUC (mean of one against the rest), or R2, on test rows of boosted trees trained on `rows`.

    Published figures are AUCs of XGBoost, mean of several models.
    """
    return _trained(rows, test, table)(np.ones(len(test), bool))


def _trained(
    rows: pd.DataFrame, test: pd.DataFrame, table: BenchmarkTable
) -> Callable[[npt.NDArray[np.bool_]], float]:
    """Train on `rows`; return what says how good the predictions of some test rows are."""
    both = pd.concat([rows, test])
    features = pd.DataFrame(
        {
            c: both[c] if pd.api.types.is_numeric_dtype(both[c]) else pd.factorize(both[c])[0]
            for c in both.columns
            if c != table.target
        }
    ).to_numpy(float)
    own, others = features[: len(rows)], features[len(rows) :]
    answers = test[table.target].to_numpy()
    if table.task == "regression":
        fitted = HistGradientBoostingRegressor(random_state=0).fit(own, rows[table.target])
        numbers = fitted.predict(others)
        return lambda some: float(r2_score(answers[some], numbers[some]))
    fitted = HistGradientBoostingClassifier(random_state=0).fit(own, rows[table.target])
    shares = fitted.predict_proba(others)

    def judged(some: npt.NDArray[np.bool_]) -> float:
        found = []
        for k, label in enumerate(fitted.classes_):
            is_label = answers[some] == label
            if 5 < is_label.sum() < some.sum() - 5:
                found.append(roc_auc_score(is_label, shares[some, k]))
        return float(np.mean(found))

    return judged


def show(
    tables: Sequence[str] = TABLES,
    others: Mapping[tuple[str, str], Sequence[_results.Row]] | None = None,
) -> str:
    """Print results beside published ones, as means over seeds.

    Parameters
    ----------
    tables : sequence of str
    others : mapping of (table, name) to rows
        Beside the recorded ones.
    """
    order = [*METHODS, *PRIVATE]
    found = {key: frame for key, frame in _results.cells("ladder").items() if key[1] in order}
    found = dict(sorted(found.items(), key=lambda item: order.index(item[0][1])))
    found |= {key: pd.DataFrame(list(rows)) for key, rows in (others or {}).items()}
    lines = []
    for data in tables:
        mine = {key[1]: frame for key, frame in found.items() if key[0] == data}
        if not mine:
            continue
        lines.append(f"{data:<34}" + "".join(f"{head:>8}" for head in COLUMNS) + f"{'seeds':>7}")
        for method, values in PUBLISHED.get(data, {}).items():
            lines.append(f"  {method + ' (published)':<32}" + "".join(f"{v:>8.3f}" for v in values))
        for method, frame in mine.items():
            means = [frame[key].mean() if key in frame else np.nan for key in COLUMNS.values()]
            cells = ["-" if np.isnan(mean) else f"{mean:.3f}" for mean in means]
            text = "".join(f"{cell:>8}" for cell in cells)
            lines.append(f"  {method:<32}{text}{len(frame):>7}")
    return "\n".join(lines)


def main() -> None:
    """Measure what is missing, and print the ladder."""
    parser = _commands.parser(__doc__, data=TABLES, methods=(*METHODS, *PRIVATE))
    parser.set_defaults(methods=list(METHODS))
    _commands.add_seeds(parser, [0])
    parser.add_argument("--show", action="store_true", help="measure nothing")
    parser.add_argument("--samples", type=Path, help="csv or parquet to score, for one --data")
    parser.add_argument("--table", type=Path, help="csv or parquet, instead of --data")
    parser.add_argument("--target", help="column of --table to predict, one of B's")
    parser.add_argument("--first", type=int, help="columns of --table that A has; default: half")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    tables, others = list(arguments.data), {}
    if arguments.table is not None:
        tables = [own_table(arguments.table, arguments.target, arguments.first)]
    if arguments.samples is not None:
        if len(tables) != 1:
            parser.error("--samples needs one table: --data NAME or --table FILE")
        row = rescore(tables[0], arguments.samples, arguments.seeds[0])
        others[tables[0], arguments.samples.stem] = [row]
    elif arguments.table is not None:
        for method in arguments.methods:
            rows = [measure(tables[0], method, seed) for seed in arguments.seeds]
            others[tables[0], method] = rows
    elif not arguments.show:
        for name, method in product(tables, arguments.methods):
            for seed in _results.missing("ladder", arguments.seeds, data=name, method=method):
                _results.put("ladder", measure(name, method, seed))
    print(show(tables, others))


if __name__ == "__main__":
    main()
