"""Does the federation pay? Default classifiers beside a member alone and beside a joined table.

    VFLSYNTH_DATA=... python -m benchmarks.split_defaults run                 # everything missing
    VFLSYNTH_DATA=... python -m benchmarks.split_defaults run --data adult --method default
    python -m benchmarks.split_defaults show

All shared tables of classes, split between two parties as everywhere in the benchmarks; B has the
target. 70 % of the records train, 30 % test, a new split per seed. Nothing is tuned per table. IMDB
is whether each of the 500 most frequent words occurs in a review; the parties have every other one.

- "label holder": scikit-learn's HistGradientBoosting on B's columns, as it is.
- "joined": what the federation could have if nobody had to split anything: the same layers,
  encoding and stopping on the joined table. "joined, sklearn": scikit-learn's MLP with
  ``early_stopping=True``, numbers standardised, categories one-hot. The better one counts.
- "default": `SplitNNClassifier()`; "as published": 50 epochs, nothing held out, no weight decay.
- "label privacy": ε 1 by default settings, learned through the response. "debiased": as it was
  before, with the settings as published: networks learn the responses, and probabilities are
  corrected and clipped afterwards. "label privacy, linear": networks without hidden layers.

Differences are paired by seed, with their standard errors. HCV's target is at chance for everybody,
over ten seeds. AUC of several classes is one against the rest, weighted by their sizes. The
log-loss of the training shares is what a constant gets. A quarter of the wines repeat another one
in every column, so that part of the test records is known from training, which rewards a memory and
no prediction: "new records" are the test records that repeat none of the training's.

A blend with boosted trees on B's own columns, its two weights learned on a held-out quarter, gains
.033 AUC on red and .038 on white wine, and loses .005 and .003 on new records and .012 of log-loss
on South German credit; on HCV it does nothing (three seeds, not in the table). What it adds is the
memory of repeats, so it is no default.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from benchmarks import _commands, _results
from benchmarks._data import LOADERS, BenchmarkTable
from benchmarks._split import Frames, Rows, divided, imdb, rows_of, splits
from vflsynth._random import secret_from
from vflsynth.columns import TableTransformer
from vflsynth.splitdefense import RandomizedResponse, SplitNNClassifier
from vflsynth.splitdefense.settings import AS_PUBLISHED

EPSILON = 1.0
SEEDS = (0, 1, 2)
PUBLISHED: dict[str, Any] = {**AS_PUBLISHED}
LINEAR: dict[str, Any] = {"bottom_hidden": (), "top_hidden": (), "intermediate_dim": 4}
LINEAR |= {"numeric_bins": 0}

Scores = dict[str, float]


def load_imdb() -> BenchmarkTable:
    """Return which words reviews have, dealt out to two parties; B has the label."""
    table, label = imdb()
    first, second = divided(table.astype(np.int8), 2).values()
    frames = {"A": first, "B": second.assign(positive=label)}
    return BenchmarkTable("imdb", frames, "positive", "classification", tuple(table.columns))


TABLES = {name: load for name, load in LOADERS.items() if name != "california-housing"}
TABLES |= {"imdb": load_imdb}


class Case:
    """One table, divided into training and test records by a seed."""

    def __init__(self, table: BenchmarkTable, seed: int) -> None:
        joined = table.joined()
        self.seed = seed
        self.y: npt.NDArray[Any] = joined.pop(table.target).to_numpy()
        self.joined = joined
        self.categorical = [c for c in table.categorical if c != table.target]
        self.frames = {
            party: joined[[c for c in columns if c != table.target]]
            for party, columns in table.party_columns.items()
        }
        (self.train,), (self.test,) = splits(len(joined), [seed])
        known = pd.util.hash_pandas_object(joined, index=False).to_numpy()
        self.new = ~np.isin(known[self.test], known[self.train])

    def encoder(self) -> TableTransformer:
        """Return the default encoding, told which codes are categories."""
        return TableTransformer(kinds=dict.fromkeys(self.categorical, "categorical"))

    def rows(self, which: Rows) -> Frames:
        """Take some records of both parties."""
        return rows_of(self.frames, which)

    def scores(self, predicted: npt.NDArray[Any], classes: npt.NDArray[Any]) -> Scores:
        """Compare probabilities of classes with the test records."""
        truth, new = self.y[self.test], self.new
        several = {"multi_class": "ovr", "average": "weighted", "labels": classes}
        options = several if len(classes) > 2 else {}
        found = predicted[:, 1] if len(classes) == 2 else predicted
        return {
            "auc": float(roc_auc_score(truth, found, **options)),
            "new_auc": float(roc_auc_score(truth[new], found[new], **options)),
            "log_loss": float(log_loss(truth, predicted, labels=classes)),
        }


def label_holder(case: Case) -> Scores:
    """Boost B's own columns."""
    own = case.frames["B"].copy()
    for column in own.columns.intersection(case.categorical):
        own[column] = own[column].astype("category")
    model = HistGradientBoostingClassifier(
        random_state=case.seed, categorical_features="from_dtype"
    )
    return _scikit_learn(case, model, own)


def joined(case: Case) -> Scores:
    """Train scikit-learn's perceptron on the table that no party has."""
    encoder = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), case.categorical),
        remainder=StandardScaler(),
    )
    model = MLPClassifier(early_stopping=True, max_iter=200, random_state=case.seed)
    return _scikit_learn(case, make_pipeline(encoder, model), case.joined)


def _scikit_learn(case: Case, model: Any, table: pd.DataFrame) -> Scores:
    model.fit(table.iloc[case.train], case.y[case.train])
    return case.scores(model.predict_proba(table.iloc[case.test]), model.classes_)


def split(together: bool = False, **parameters: Any) -> Callable[[Case], Scores]:
    """Train our classifier with parameters beside its defaults.

    `together` gives B all columns.
    """

    def run(case: Case) -> Scores:
        fixed = {"transformer": case.encoder(), "random_state": case.seed, "device": "cpu"}
        options: dict[str, Any] = fixed | parameters
        if together:
            case.frames = {"B": case.joined}
        train, y = case.rows(case.train), case.y[case.train]
        classifier = SplitNNClassifier(active="B", monitor=False, **options).fit(train, y)
        found = classifier.predict_proba(case.rows(case.test))
        return case.scores(found, classifier.classes_) | {"epochs": len(classifier.history_)}

    return run


def debiased(case: Case) -> Scores:
    """Learn the responses themselves, and correct probabilities afterwards."""
    privacy = RandomizedResponse(EPSILON)
    classes, codes = np.unique(case.y, return_inverse=True)
    labels = torch.from_numpy(codes[case.train])
    responses = privacy.transform(labels, len(classes), secret_from(case.seed))
    model = SplitNNClassifier(
        active="B",
        monitor=False,
        transformer=case.encoder(),
        random_state=case.seed,
        device="cpu",
        **PUBLISHED,
    ).fit(case.rows(case.train), responses.numpy())
    keep, change = privacy.shares(len(classes))
    seen = model.predict_proba(case.rows(case.test))
    found = np.clip((seen - change) / (keep - change), 0.0, 1.0)
    return case.scores(found / found.sum(1, keepdims=True), classes)


def constant(case: Case) -> Scores:
    """Predict the training shares."""
    classes, counts = np.unique(case.y[case.train], return_counts=True)
    shares = np.tile(counts / counts.sum(), (len(case.test), 1))
    return case.scores(shares, classes)


METHODS: dict[str, Callable[[Case], Scores]] = {
    "constant": constant,
    "label holder": label_holder,
    "joined": split(together=True),
    "joined, sklearn": joined,
    "default": split(),
    "as published": split(**PUBLISHED),
    "label privacy": split(label_privacy=RandomizedResponse(EPSILON)),
    "label privacy, linear": split(label_privacy=RandomizedResponse(EPSILON), **LINEAR),
    "debiased": debiased,
}
MEASURES = {"auc": "AUC", "new_auc": "AUC, new records", "log_loss": "Log-loss"}


def main() -> None:
    """Measure what is missing, or show."""
    parser = _commands.parser(__doc__, "run", "show", data=TABLES, method=METHODS)
    _commands.add_seeds(parser, SEEDS)
    arguments = parser.parse_args()
    if arguments.action == "show":
        show()
        return
    torch.set_num_threads(1)
    for data, method in product(arguments.data, arguments.method):
        table = TABLES[data]()
        seeds = arguments.seeds
        for seed in _results.missing("split_defaults", seeds, data=data, method=method):
            started = time.process_time()
            found = METHODS[method](Case(table, seed))
            seconds = round(time.process_time() - started, 1)
            row = {"data": data, "method": method, "seed": seed, **found, "cpu_seconds": seconds}
            _results.put("split_defaults", row)
            print(row, flush=True)


def show() -> None:
    """Print means over seeds, and what was promised of the defaults, with standard errors."""
    cells_of = _results.cells("split_defaults")
    found: dict[Any, dict[str, float]] = {
        cell: rows.mean(numeric_only=True).to_dict()  # type: ignore[misc]
        for cell, rows in cells_of.items()
    }
    tables = list(dict.fromkeys(data for data, _ in found))
    heads = [
        name.replace("label privacy", "ε 1").replace("debiased", "ε 1, before") for name in METHODS
    ]
    for measure, text in MEASURES.items():
        print(f"{text:<20}" + "".join(f"{name:>17}" for name in heads))
        for data in tables:
            cells = [found.get((data, method), {}).get(measure, np.nan) for method in METHODS]
            if not np.isnan(cells).all():
                print(
                    f"{data:<20}"
                    + "".join(f"{'' if np.isnan(c) else f'{c:.3f}':>17}" for c in cells)
                )
        print()
    for data, new in product(tables, (False, True)):
        measure = "new_auc" if new else "auc"
        values = {
            m: found[data, m][measure] for m in METHODS if measure in found.get((data, m), {})
        }
        if not {"default", "label holder", "joined", "joined, sklearn"} <= values.keys():
            continue
        best = max("joined", "joined, sklearn", key=lambda method: values[method])
        of_seeds = {m: cells_of[data, m].set_index("seed")[measure] for m in values}
        gains = of_seeds["default"] - of_seeds["label holder"]
        behind = of_seeds[best] - of_seeds["default"]
        name = f"{data}, new records" if new else data
        print(
            f"{name:<33}beyond the label holder {gains.mean():+.4f} ±{gains.sem():.4f}: "
            f"{_results.verdict(gains.mean() > 0)}; behind the joined table {behind.mean():+.4f} "
            f"±{behind.sem():.4f}, at most .003: {_results.verdict(behind.mean() <= 0.003)}"
        )


if __name__ == "__main__":
    main()
