"""Every synthesizer on the field's metrics, and beside published figures by their own judge.

Two parties: A has the first columns, B the others, as in `benchmarks._data`. Two thirds of the rows
are for training, of Adult the 32,561 of ``adult.data``; wgan-gp alone sees the joined table.
Default settings but for what the name of a row says; nothing is tuned per table. 1 is best in
Shape, Trend and both detection scores; boosted trees are scikit-learn's with 8,000 rows of each
table. With a star: of the test rows that no training row equals. A quarter of the white wines are
in the table twice, and who learns from real rows knows these by heart.

    python -m benchmarks ladder --data red-wine --methods bounded one-message --seeds 0
    python -m benchmarks ladder --data red-wine --methods bounded --show
    python -m benchmarks ladder --table mine.csv --target income --first 8 --methods bounded

``--judge field`` is the published ladder's own judge, on Adult and credit-default with the
published rows (`benchmarks._field`); its figures stand beside the published ones, and its detector
is stronger. ``--judge outside`` has scores and attacks of two other packages. What is there is not
measured again. Others add a row with one file or one class:

    python -m benchmarks ladder --judge field --data adult --write-rows real     # what to train on
    python -m benchmarks ladder --judge field --data adult --rows theirs.csv --name theirs
    python -m benchmarks ladder --judge field --data adult --synthesizer my_package:Theirs

A file wants the columns of the table, and as many rows as the training rows. A class wants
``fit(frames)``, of a mapping of party to DataFrame, ``sample(n)`` and ``random_state``. With a
``--name`` the row is recorded, else shown; a table of one's own is never recorded. TabDDPM has no
figures by these metrics in the source of the published ones.
"""

from __future__ import annotations

import resource
import time
import warnings
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import r2_score, roc_auc_score

from benchmarks import _commands, _field, _private, _results
from benchmarks._data import BenchmarkTable, data_file, in_two, load_table
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
from vflsynth.methods.synthesizer import BaseSynthesizer

TABLES = (
    "adult",
    "credit-default",
    "california-housing",
    "red-wine",
    "white-wine",
    "spambase",
    "south-german-credit",
    "hcv",
    "small-mixed",
    "small-tight",
)
METHODS: dict[str, Callable[..., Any]] = {
    "bounded": partial(AutoregressiveSynthesizer, verbose=0),
    "16 bits": partial(AutoregressiveSynthesizer, bits_per_record=16.0, verbose=0),
    "trained": partial(AutoregressiveSynthesizer, protocol="trained", verbose=0),
    "one-message": partial(AutoregressiveSynthesizer, protocol="one_message", verbose=0),
    "vflgan": partial(VFLGANSynthesizer, verbose=0),
    "vertigan": partial(VertiGANSynthesizer, verbose=0),
    "wgan-gp": partial(WGANGPSynthesizer, verbose=0),
    "copula": GaussianCopulaSynthesizer,
    "independent": IndependentSynthesizer,
}
FIELD = ("bounded", "16 bits", "trained", "one-message", "vflgan")
"""Of these, what `benchmarks._field` judges by default."""
EPSILONS = (10.0, 3.0, 1.0)
PRIVATE: dict[str, tuple[str, float]] = {
    f"{label}, ε {epsilon:g}": (method, epsilon)
    for label, method in (
        ("pairwise tables", "pairwise_tables"),
        ("latent tree", "dplt"),
        ("AIM, joined table", _private.AIM_PIPELINE),
    )
    for epsilon in EPSILONS
}
"""Methods and ε of `benchmarks.dp`, for the tables that have public schemas there."""
RIVAL_AIMS = {
    "trees": ("detection", 0.02),
    "TSTR": ("tstr", -0.02),
    "relations across": ("trend_across", -0.01),
}
"""What pairs of columns are to have beside AIM's mean, 1 at most; set before measuring."""

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
_LEVELS = (
    "Preschool 1st-4th 5th-6th 7th-8th 9th 10th 11th 12th HS-grad Some-college Assoc-voc "
    "Assoc-acdm Bachelors Masters Prof-school Doctorate"
)
_EDUCATION = {name: number for number, name in enumerate(_LEVELS.split(), start=1)}
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
"""What is printed of a row; older rows lack some."""

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
    labels = [str(c) for c in frame.columns if is_categorical(frame[c])]
    table = in_two(path.stem, frame, n_first, target, labels)
    if frame[target].nunique() <= _MOST_CLASSES:
        table = replace(table, task="classification")
    _OWN[path.stem] = table
    return path.stem


def adult() -> tuple[BenchmarkTable, int]:
    """Return all rows of Adult, `?` being a label, and how many are ``adult.data``'s."""
    frame = pd.read_parquet(data_file("adult.parquet"))
    labels = [c for c in frame.columns if not pd.api.types.is_numeric_dtype(frame[c])]
    return in_two("adult", frame, 8, "income", labels), 32561


def split(name: str, number: int = 0) -> tuple[BenchmarkTable, pd.DataFrame, pd.DataFrame]:
    """Return a table, its training rows and its test rows; those of Adult are always the same."""
    if name == "adult":
        table, n_train = adult()
        joined = table.joined()
        return table, joined.iloc[:n_train], joined.iloc[n_train:].reset_index(drop=True)
    table = _OWN[name] if name in _OWN else load_table(name)
    joined = table.joined()
    order = np.random.default_rng(number).permutation(len(joined))
    n_train = len(joined) * 2 // 3
    parts = (order[:n_train], order[n_train:])
    train, test = (joined.iloc[part].reset_index(drop=True) for part in parts)
    return table, train, test


def measure(name: str, method: str, seed: int) -> _results.Row:
    """Fit one method to one table, and score what it draws."""
    table, train, test = split(name)
    synthetic, taken = drawn(table, train, method, seed)
    found = scores(table, train, test, synthetic, seed) | taken
    found |= _more_scores(table, train, test, synthetic, seed)
    return {"data": name, "method": method, "seed": seed, **found}


def drawn(
    table: BenchmarkTable, train: pd.DataFrame, method: str, seed: int
) -> tuple[pd.DataFrame, _results.Row]:
    """Fit one method to training rows; return as many rows, and what the fit took."""
    if method in PRIVATE and PRIVATE[method][0] in _private.MARGINAL_METHODS:
        rival, epsilon = PRIVATE[method]
        frames = {party: train[list(columns)] for party, columns in table.party_columns.items()}
        release = _private.rival_release(replace(table, party_frames=frames), rival, epsilon, seed)
        taken = {"fit_seconds": round(release.seconds, 1), "parameters": release.parameters}
        return release.sample, taken
    made = METHODS[method]() if method in METHODS else private(table, *PRIVATE[method])
    return _fitted(table, train, made.set_params(random_state=seed))


def private(table: BenchmarkTable, method: str, epsilon: float) -> Any:
    """Make a private method of `benchmarks.dp`."""
    if table.name not in SCHEMAS:
        raise SystemExit(f"{table.name} has no public schema; {', '.join(SCHEMAS)} have")
    return _private.make_synthesizer(table, method, epsilon)


def rescore(name: str, path: Path, seed: int) -> _results.Row:
    """Score rows that somebody else drew."""
    table, train, test = split(name)
    synthetic = _rows_of(path, train)
    found = scores(table, train, test, synthetic, seed)
    return found | _more_scores(table, train, test, synthetic, seed)


def _rows_of(path: Path, train: pd.DataFrame) -> pd.DataFrame:
    """Read somebody's rows, in the order and the types of the training rows."""
    rows = read_table(path)
    if lacking := [c for c in train if c not in rows]:
        raise SystemExit(f"{path} lacks the columns {', '.join(map(str, lacking))}")
    return rows[list(train.columns)]


def field_split(name: str) -> tuple[BenchmarkTable, pd.DataFrame, pd.DataFrame]:
    """Return a table with its published training and test rows, or the ladder's own."""
    return _field.split_credit_default() if name == "credit-default" else split(name)


def judge(
    name: str, method: str, seed: int, make: Callable[..., Any] | None, by: str = "field"
) -> _results.Row:
    """Fit one method and have an outside judge score its rows; without `make`, real ones."""
    table, train, test = field_split(name)
    taken: _results.Row = {}
    options = ["--seen"] if by == "field" else []
    if make is not None:
        rows, taken = _field.kept(
            name, method, seed, lambda: _fitted(table, train, make(random_state=seed))
        )
    elif by == "field":
        options = []
        train, rows = _halves(train.sample(frac=1, random_state=seed))
    else:
        rows, test = _halves(test)
    found = _field.judge(table, train, test, rows, seed, *options, by=by)
    return {"data": name, "method": method, "seed": seed, **found, **taken}


def _halves(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """Take every other row."""
    return [rows.iloc[start::2].reset_index(drop=True) for start in (0, 1)]


def _more_scores(
    table: BenchmarkTable, train: pd.DataFrame, test: pd.DataFrame, synthetic: pd.DataFrame,
    seed: int,
) -> _results.Row:  # fmt: skip
    """Return what only the ladder shows."""
    options: dict[str, Any] = {"categorical": table.categorical}
    seeded = options | {"random_state": seed, "max_rows": _MAX_ROWS}
    logistic = detection_score(train, synthetic, detector="logistic_regression", **seeded)
    found: _results.Row = {"detection_logistic": float(logistic)}
    utilities = utility(train, synthetic, table.target, holdout=test, task=table.task, **options)
    for result in utilities.values():
        if result.value is not None:
            found[result.metric.name] = float(result)
    for result in precision_and_recall(train, synthetic, **seeded).values():
        found[result.metric.name] = float(result)
    incoherent = incoherent_rows(train, synthetic, random_state=seed, **options)
    found["incoherent_rows"] = float(incoherent)
    found["incoherent_rows_real"] = float(incoherent.baseline or 0.0)
    return found | broken_rules(table, train, synthetic)


def broken_rules(
    table: BenchmarkTable, train: pd.DataFrame, synthetic: pd.DataFrame
) -> _results.Row:
    """Return the share of rows that break a rule of the table, if it has some."""
    if table.name not in RULES:
        return {}
    broken = rule_violations(train, synthetic, RULES[table.name])
    real = float(broken.baseline or 0.0)
    return {"rule_violations": float(broken), "rule_violations_real": real}


def fit_and_score(
    table: BenchmarkTable, train: pd.DataFrame, test: pd.DataFrame, synth: Any, seed: int
) -> tuple[_results.Row, pd.DataFrame]:
    """Fit to a table's parties; return its rows' scores and what the fit took, and the rows."""
    synthetic, taken = _fitted(table, train, synth)
    return scores(table, train, test, synthetic, seed) | taken, synthetic


def _fitted(
    table: BenchmarkTable, train: pd.DataFrame, synth: Any
) -> tuple[pd.DataFrame, _results.Row]:
    """Fit to a table's parties; return as many rows, and what the fit took."""
    frames = {party: train[list(columns)] for party, columns in table.party_columns.items()}
    ours = isinstance(synth, BaseSynthesizer)
    started, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_utime
    synth.fit(frames, **({"transcript": True} if ours else {}))
    taken: _results.Row = {
        "fit_seconds": round(time.perf_counter() - started, 1),
        "fit_cpu_seconds": round(resource.getrusage(resource.RUSAGE_SELF).ru_utime - used, 1),
    }
    if ours:
        transcript = synth.transcript_
        trained = transcript[~transcript["message"].isin(["KeyList", "AlignmentNotice"])]
        taken |= {
            "epochs": len(synth.history_),
            "messages": int(trained["messages"].sum()),
            "megabytes": float(trained["bytes"].sum() / 1e6),
        }
    return synth.sample(len(train)), taken


def scores(
    table: BenchmarkTable, train: pd.DataFrame, test: pd.DataFrame, synthetic: pd.DataFrame,
    seed: int,
) -> _results.Row:  # fmt: skip
    """Return the scores of synthetic rows that every study of ours asks for."""
    options: dict[str, Any] = {"categorical": table.categorical}
    of_test_rows, (trtr, trtr_of_new) = _of_real_rows(table.name, seed)
    tstr, tstr_of_new = _of_all_and_of_new(synthetic, test, table)
    found: _results.Row = {
        "shape": float(shape(train, synthetic, **options)),
        **trends(table, train, synthetic),
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


def trends(table: BenchmarkTable, real: pd.DataFrame, synthetic: pd.DataFrame) -> _results.Row:
    """Return Trend over all pairs of columns, over those of a party and over others."""
    owner = {c: party for party, columns in table.party_columns.items() for c in columns}
    pairs = trend(real, synthetic, categorical=table.categorical)
    across = pairs.parts["column"].map(owner) != pairs.parts["other_column"].map(owner)
    values = pairs.parts["value"]
    within = {"trend_within": float(values[~across].mean())}
    return {"trend": float(pairs), **within, "trend_across": float(values[across].mean())}


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
    """Print results as means over seeds; `others` are rows beside the recorded ones."""
    order = [*METHODS, *PRIVATE]
    found = {key: frame for key, frame in _results.cells("ladder").items() if key[1] in order}
    found = dict(sorted(found.items(), key=lambda item: order.index(item[0][1])))
    found |= {key: pd.DataFrame(list(rows)) for key, rows in (others or {}).items()}
    lines = []
    for data in tables:
        mine = {key[1]: frame for key, frame in found.items() if key[0] == data}
        if not mine:
            continue
        lines += _results.means(data, mine, COLUMNS, wide=34, each=8)
        lines += beside_rival(mine)
    return "\n".join(lines)


def beside_rival(mine: Mapping[str, pd.DataFrame]) -> list[str]:
    """Say at each ε whether pairs of columns are what `RIVAL_AIMS` wants beside AIM."""
    lines = []
    for epsilon in EPSILONS:
        ours, rival = f"pairwise tables, ε {epsilon:g}", f"AIM, joined table, ε {epsilon:g}"
        if not {ours, rival} <= mine.keys():
            continue
        told = []
        for label, (key, margin) in RIVAL_AIMS.items():
            mean, least = mine[ours][key].mean(), min(mine[rival][key].mean() + margin, 1.0)
            verdict = _results.verdict(mean >= least)
            told.append(f"{label} {mean:.3f} (AIM's {margin:+.2f}: {verdict})")
        lines.append(f"  {ours}: {', '.join(told)}")
    return lines


def study(
    parser: ArgumentParser,
    table: str,
    cells: Callable[[Namespace], Iterable[Sequence[Any]]],
    measure: Callable[..., _results.Row],
    show: Callable[[], None],
    seeds: Sequence[int] = (0,),
) -> None:
    """Measure what a table of results lacks, of cells that were asked for, and print it.

    A cell is a key of the table without the seed; `measure` takes its parts, and a seed.
    """
    _commands.add_seeds(parser, seeds)
    parser.add_argument("--show", action="store_true", help="measure nothing")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for cell in () if arguments.show else cells(arguments):
        key = dict(zip(_results.KEYS[table], cell))
        for seed in _results.missing(table, arguments.seeds, **key):
            _results.put(table, measure(*cell, seed))
    show()


def main() -> None:
    """Measure what is missing, and print the ladder."""
    parser = _commands.parser(
        __doc__, data=TABLES, methods=(*METHODS, *PRIVATE, *_field.REAL.values())
    )
    _commands.add_seeds(parser, [0])
    parser.set_defaults(data=None, methods=None)
    parser.add_argument("--judge", choices=("ours", *_field.COLUMNS), default="ours")
    parser.add_argument("--show", action="store_true", help="measure nothing")
    parser.add_argument("--rows", type=Path, help="csv or parquet to score, for one --data")
    parser.add_argument("--synthesizer", help="module:Class to fit, with an outside --judge")
    parser.add_argument("--name", help="of --rows or --synthesizer, to have the row recorded")
    parser.add_argument("--write-rows", type=Path, help="folder for train.csv and test.csv")
    parser.add_argument(
        "--seen", action="store_true", help="--judge field: also say what tells the rows"
    )
    parser.add_argument("--table", type=Path, help="csv or parquet, instead of --data")
    parser.add_argument("--target", help="column of --table to predict, one of B's")
    parser.add_argument("--first", type=int, help="columns of --table that A has; default: half")
    arguments = parser.parse_args()
    is_outside = arguments.judge != "ours"
    if arguments.seen and arguments.judge != "field":
        parser.error("--seen needs --judge field")
    for by, real in _field.REAL.items():
        if real in (arguments.methods or ()) and by != arguments.judge:
            parser.error(f"{real}: these are for --judge {by}")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    tables = arguments.data or list(_field.TABLES if is_outside else TABLES)
    if arguments.table is not None:
        tables = [own_table(arguments.table, arguments.target, arguments.first)]
    alone = (arguments.rows, arguments.write_rows, arguments.synthesizer)
    if any(option is not None for option in alone) and len(tables) != 1:
        parser.error("that needs one table: --data NAME or --table FILE")
    if arguments.write_rows is not None:
        _write_rows(tables[0], arguments.write_rows, field_split if is_outside else split)
        return
    others: dict[tuple[str, str], list[_results.Row]] = {}
    if is_outside:
        _measure_outside(arguments, tables, others)
        methods = arguments.methods or METHODS
        print(_field.show(tables, methods, others, arguments.judge))
        return
    if arguments.rows is not None:
        row = rescore(tables[0], arguments.rows, arguments.seeds[0])
        others[tables[0], arguments.name or arguments.rows.stem] = [row]
    elif arguments.table is not None:
        for method in arguments.methods or METHODS:
            rows = [measure(tables[0], method, seed) for seed in arguments.seeds]
            others[tables[0], method] = rows
    elif not arguments.show:
        for name, method in product(tables, arguments.methods or METHODS):
            for seed in _results.missing("ladder", arguments.seeds, data=name, method=method):
                _results.put("ladder", measure(name, method, seed))
    print(show(tables, others))


def _write_rows(
    name: str, folder: Path, parts: Callable[[str], tuple[Any, pd.DataFrame, pd.DataFrame]]
) -> None:
    """Write what others train on and are tested on."""
    _, train, test = parts(name)
    folder.mkdir(parents=True, exist_ok=True)
    for part, frame in (("train", train), ("test", test)):
        frame.to_csv(folder / f"{part}.csv", index=False)
        print(folder / f"{part}.csv", len(frame), "rows")


def _measure_outside(
    arguments: Any, tables: Sequence[str], others: dict[tuple[str, str], list[_results.Row]]
) -> None:
    """Have an outside judge score what was asked for; record what has a name or is ours."""
    seed, by = arguments.seeds[0], arguments.judge
    if arguments.show:
        return
    if arguments.rows is not None:
        table, train, test = field_split(tables[0])
        rows = _rows_of(arguments.rows, train)
        options = ["--seen"] if by == "field" else []
        found = _field.judge(table, train, test, rows, seed, *options, by=by)
        if arguments.seen:
            print(_field.told(found["seen"]))
        found |= {"rows": len(rows), "brought": f"--rows {arguments.rows.name}"}
        method = arguments.name or arguments.rows.stem
        made = [{"data": tables[0], "method": method, "seed": seed, **found}]
    elif arguments.synthesizer is not None:
        make = _field.synthesizer_of(arguments.synthesizer)
        method = arguments.name or arguments.synthesizer.rpartition(":")[2]
        brought = {"brought": f"--synthesizer {arguments.synthesizer}"}
        made = [judge(tables[0], method, seed, make, by) | brought for seed in arguments.seeds]
        if arguments.seen:
            print(_field.told(made[0]["seen"]))
    else:
        for name, method in product(tables, arguments.methods or (_field.REAL[by], *FIELD)):
            for seed in _results.missing(by, arguments.seeds, data=name, method=method):
                _results.put(by, judge(name, method, seed, METHODS.get(method), by))
                print(f"{name} {method} {seed}: judged", flush=True)
        return
    if arguments.name and arguments.table is None:
        _results.put(by, *made)
    else:
        others[tables[0], method] = made


if __name__ == "__main__":
    main()
