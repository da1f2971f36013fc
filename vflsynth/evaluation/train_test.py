"""How useful synthetic rows are for training a model: TRTR, TSTS, TRTS and TSTR."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Hashable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.model_selection import ShuffleSplit

from vflsynth.evaluation.columns import (
    Floats,
    Integers,
    NumericColumn,
    TableEncoder,
    is_categorical,
    kind_of,
    numbers,
    numeric_column,
    present,
)
from vflsynth.evaluation.intervals import BOOTSTRAP, DRAWS, around, random_halves, sample_rows
from vflsynth.evaluation.metric import Metric, MetricResult, MetricResults, Reading
from vflsynth.evaluation.tables import Tables, check_estimator, check_max_rows
from vflsynth.exceptions import ColumnKindError, ParameterError, PartyDataError

Task = Literal["auto", "classification", "regression"]
Protocol = Literal["holdout", "paper"]

MOST_CODES = 20
"""An integer target with at most this many values is a class, unless `task` says otherwise."""

LARGEST_TARGET = 1e30
"""Numeric targets beyond this, or varying by less than its inverse, are standardised first."""

TSTR = Metric(
    name="train_synthetic_test_real",
    title="Train on synthetic, test on real (TSTR)",
    direction="higher",
    minimum=-np.inf,
    measures="How well a model that saw only synthetic rows predicts the target of real rows "
    "(accuracy for classes, R² for numbers).",
    baseline="the same model, trained on real rows (TRTR)",
    naive="an answer that ignores the row: the most frequent class, or the mean",
)
TOTAL_DIFFERENCE = Metric(
    name="total_difference",
    title="Total difference of TSTS, TRTS and TSTR from TRTR",
    direction="lower",
    maximum=np.inf,
    measures="How differently real and synthetic rows behave when models are trained and tested on "
    "them: six absolute differences, added up.",
    baseline="the same sum with one half of the real rows in place of the synthetic ones",
)

SETTINGS = {
    "TRTR": ("real", "real"),
    "TSTS": ("synthetic", "synthetic"),
    "TRTS": ("real", "synthetic"),
    "TSTR": ("synthetic", "real"),
}
"""What each setting trains on and tests on."""


def utility(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    target: Hashable,
    *,
    holdout: pd.DataFrame | None = None,
    protocol: Protocol = "holdout",
    task: Task = "auto",
    model: BaseEstimator | None = None,
    categorical: Collection[Hashable] = (),
    max_rows: int | None = 50_000,
    random_state: int = 0,
) -> MetricResults:
    """Train and test a model on real and on synthetic rows, in all four combinations.

    Parameters
    ----------
    real, synthetic : DataFrame
    target : hashable
        Column to predict from all others.
    holdout : DataFrame, optional
        Real rows that the synthesizer was not trained on; the tests on real rows use only these.
        Default: 30 % of `real` are set aside, which says less, since the synthesizer may know them.
    protocol : {"holdout", "paper"}, default "holdout"
        ``"paper"`` repeats the VFLGAN paper's code: no held-out rows (TRTS and TSTR train on all of
        one table and test on all of the other), ten random 70:30 splits for TRTR and TSTS, every
        table standardised with its own statistics.
    task : {"auto", "classification", "regression"}, default "auto"
        ``"auto"``: classification if the target is text, boolean, a category, named in
        `categorical`, or an integer of at most 20 values.
    model : estimator, optional
        Of scikit-learn's interface; it is cloned. Default: the paper's forest, of depth 3, under
        its protocol; otherwise one of full depth.
    categorical : collection of hashable, default ()
        Numeric feature columns to read as labels.
    max_rows : int or None, default 50000
        Largest number of rows taken, at random, from each table.
    random_state : int, default 0

    Returns
    -------
    MetricResults
        ``"train_synthetic_test_real"`` and ``"total_difference"``. ``parts`` of both has one row
        per setting and score: accuracy and macro-averaged F1, or R² and the mean absolute error in
        standard deviations of the real target.

    Raises
    ------
    ParameterError
        If `protocol` or `task` is none of those above, or `model` no estimator.
    PartyDataError
        If the tables cannot be compared or have no column `target`; its child ColumnKindError if
        ``task="regression"`` and the target is no number.

    Notes
    -----
    Source: VFLGAN §5.1.3, with the release's evaluation code for everything that the text leaves
    open: RandomForest(n_estimators=100, max_depth=3, max_features=1.0, random_state=0),
    ShuffleSplit(10, test_size=0.3, random_state=0), population standard deviation.

    The paper's protocol tests TSTR on rows that the synthesizer was trained on, and its separate
    standardisation hides wrong locations and scales of synthetic columns; hence the other default.

    Intervals come from bootstrap draws of the test rows, for the paper's TRTR and TSTS from draws
    of the ten splits.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> wine = load_wine(as_frame=True).frame
    >>> scores = utility(wine, wine, "target")
    >>> scores["train_synthetic_test_real"].value > 0.95
    True
    """
    check_max_rows(max_rows)
    tables = Tables(
        real,
        synthetic,
        target=target,
        holdout=holdout,
        categorical=categorical,
        random_state=random_state,
    )
    return Usefulness(tables, protocol, task, model, max_rows).measured()


class _Rows(NamedTuple):
    """Rows that have a target: all of each table by its name, and those that are used."""

    whole: dict[str, pd.DataFrame]
    used: list[pd.DataFrame]
    notes: list[str]


@dataclass(frozen=True, eq=False)
class Usefulness:
    """A plan for `utility`: choose rows, see whether they will do, try, compare."""

    tables: Tables
    protocol: Protocol = "holdout"
    task: Task = "auto"
    model: BaseEstimator | None = None
    max_rows: int | None = 50_000

    @cached_property
    def names(self) -> list[Hashable]:
        """The columns, the target among them."""
        names, target = list(self.tables.columns or ()), self.tables.target
        if target not in names:
            raise PartyDataError("is not a column", fix="name the column to predict", column=target)
        return names

    @cached_property
    def is_classification(self) -> bool:
        """Whether the target is a class."""
        target: pd.Series[Any] = self.tables.real[self.tables.target]
        task, kind = self.task, kind_of(target)
        if task not in ("auto", "classification", "regression"):
            raise ParameterError(
                f"task must be 'auto', 'classification' or 'regression', not {task!r}"
            )
        predictable = kind in ("numbers", "booleans", "missing")
        if task == "regression" and is_categorical(target) and not predictable:
            raise ColumnKindError(
                f"holds {'values' if kind == 'mixed' else kind} of type {target.dtype} in the real "
                "table, but task='regression' predicts numbers",
                fix="turn the column into numbers, or pass task='classification'",
                column=target.name,
            )
        if task != "auto":
            return task == "classification"
        if self.tables.target in set(self.tables.categorical) or is_categorical(target):
            return True
        values = present(numbers(target))
        return len(np.unique(values)) <= MOST_CODES and bool((values == np.round(values)).all())

    @cached_property
    def target_is_numeric(self) -> bool:
        """Whether the target is read as a number."""
        real = self.tables.real[self.tables.target]
        return not self.is_classification or not is_categorical(real)

    def measured(self) -> MetricResults:
        """Train and test, for the result and once more for its baseline."""
        if self.protocol not in ("holdout", "paper"):
            raise ParameterError(f"protocol must be 'holdout' or 'paper', not {self.protocol!r}")
        check_estimator("model", self.model, "fit")
        rng = self.tables.generator(TSTR.name)
        rows = self.rows(rng)
        if because := self.obstacle(rows):
            return not_applicable(because)
        trial = self.trial(rows, rng)
        run = trial.paper if self.protocol == "paper" else trial.holdout
        scores = run(*rows.used)
        halves = random_halves(rows.used[0], rng)
        assert halves is not None
        baseline = run(*halves, *rows.used[2:])
        return _results(scores, baseline, self.is_classification, tuple(rows.notes))

    def rows(self, rng: np.random.Generator) -> _Rows:
        """Choose rows at random among those that have a target."""
        tables, notes = self.tables, list[str]()
        frames = {"real": tables.real[self.names], "synthetic": tables.synthetic[self.names]}
        if tables.holdout is not None:
            frames["held-out"] = tables.holdout
        whole = {}
        for which, frame in frames.items():
            values: Any = frame[tables.target]
            gone = np.isnan(numbers(values)) if self.target_is_numeric else values.isna().to_numpy()
            if gone.any():
                notes.append(f"{int(gone.sum())} {which} rows without a target were left out")
            whole[which] = frame[~gone]
        used = [sample_rows(frame, self.max_rows, rng) for frame in whole.values()]
        notes += [
            f"a random {len(table)} of {len(frame)} {which} rows were used"
            for (which, frame), table in zip(whole.items(), used)
            if len(table) < len(frame)
        ]
        return _Rows(whole, used, notes)

    def obstacle(self, rows: _Rows) -> str:
        """Say why nothing can be learned from these rows; empty if it can."""
        n_real, target = len(rows.whole["real"]), self.tables.target
        n_labels = rows.whole["real"][target].nunique()
        if len(self.names) == 1:
            return "there is no column but the target"
        if any(len(table) < 10 for table in rows.used):
            return "a table has fewer than 10 rows with a target"
        if n_labels < 2:
            return "the target has a single value in the real table"
        if self.is_classification and n_labels > n_real / 2:
            return (
                f"the target has {n_labels} labels in {n_real} real rows, too few of each to learn "
                "from"
            )
        if self.is_classification or self.protocol == "paper":
            return ""
        tested = rows.used[-1][target].nunique()
        return (
            "" if tested > 1 else f"the target has a single value in the {[*rows.whole][-1]} rows"
        )

    def trial(self, rows: _Rows, rng: np.random.Generator) -> _Trial:
        """Decide how to encode, train and score, alike for all settings."""
        tables, target = self.tables, self.tables.target
        rescaled = None if self.is_classification else _rescaled(rows.used, target, rows.notes)
        # By the real table's types, whichever table a model is trained on.
        labels = [name for name in self.names if is_categorical(tables.real[name])]
        forest = _forest(self.protocol, self.is_classification, tables.random_state)
        unscaled = self.is_classification or rescaled
        if self.protocol == "holdout" and tables.holdout is None:
            rows.notes.append(
                "tested on 30 % of the real rows, which the synthesizer may know; better give "
                "rows that were held out (holdout=, --holdout)"
            )
        return _Trial(
            target=target,
            is_classification=self.is_classification,
            target_is_numeric=self.target_is_numeric,
            rescaled=rescaled,
            own_statistics=self.protocol == "paper",
            model=forest if self.model is None else self.model,
            categorical=[name for name in {*tables.categorical, *labels} if name != target],
            unit=1.0 if unscaled else float(np.nanstd(numbers(tables.real[target]))),
            seed=int(rng.integers(2**31)),
        )


@dataclass(frozen=True)
class _Scored:
    """Two scores of one setting, with bootstrap draws of them."""

    values: Floats  # (score,)
    draws: Floats  # (draw, score)
    naive: Floats  # (score,)


@dataclass(frozen=True)
class _Trial:
    """One way to encode, train and score, used for all four settings."""

    target: Hashable
    is_classification: bool
    target_is_numeric: bool
    rescaled: NumericColumn | None
    own_statistics: bool
    model: BaseEstimator
    categorical: list[Hashable]
    unit: float
    seed: int

    def paper(self, real: pd.DataFrame, synthetic: pd.DataFrame, *_: Any) -> dict[str, _Scored]:
        """Score the paper's way; held-out rows have no part in it."""
        tables = {"real": real, "synthetic": synthetic}
        scores = {}
        for setting, (train, test) in SETTINGS.items():
            if train != test:
                scores[setting] = self._fit_and_score(tables[train], tables[test])
                continue
            table = tables[train]
            features, targets = self._encode(table, table)[0], self._target(table)
            splits = ShuffleSplit(10, test_size=0.3, random_state=0).split(features)
            runs = [
                self._score(features[a], targets[a], features[b], targets[b], n_draws=0)
                for a, b in splits
            ]
            values = np.stack([run.values for run in runs])
            picked = np.random.default_rng(self.seed).integers(10, size=(DRAWS, 10))
            naive = np.mean([run.naive for run in runs], axis=0)
            scores[setting] = _Scored(values.mean(axis=0), values[picked].mean(axis=1), naive)
        return scores

    def holdout(
        self, real: pd.DataFrame, synthetic: pd.DataFrame, held_out: pd.DataFrame | None = None
    ) -> dict[str, _Scored]:
        """Score with test rows that the model did not see, and the training rows' statistics."""
        real_train, real_test = self._split(real) if held_out is None else (real, held_out)
        synthetic_train, synthetic_test = self._split(synthetic)
        tables = {"real": (real_train, real_test), "synthetic": (synthetic_train, synthetic_test)}
        return {
            setting: self._fit_and_score(
                # Only TSTS needs synthetic rows apart; TSTR may learn from all of them.
                synthetic if setting == "TSTR" else tables[train][0],
                synthetic if setting == "TRTS" else tables[test][1],
            )
            for setting, (train, test) in SETTINGS.items()
        }

    def _split(self, table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
        order = np.random.default_rng(self.seed).permutation(len(table))
        n_test = max(1, round(0.3 * len(table)))
        return table.iloc[order[n_test:]], table.iloc[order[:n_test]]

    def _fit_and_score(self, train: pd.DataFrame, test: pd.DataFrame) -> _Scored:
        features, test_features = self._encode(train, test)
        return self._score(
            features, self._target(train), test_features, self._target(test), n_draws=DRAWS
        )

    def _encode(self, train: pd.DataFrame, test: pd.DataFrame) -> tuple[Floats, Floats]:
        def encoder(first: pd.DataFrame, second: pd.DataFrame) -> TableEncoder:
            return TableEncoder(
                first,
                second,
                columns=[name for name in train.columns if name != self.target],
                categorical=self.categorical,
                ddof=0 if self.own_statistics else 1,
                checked=True,
            )

        of_train = of_test = encoder(train, test)
        if self.own_statistics:
            # Each table's own means and spreads, but one list of features for both.
            of_test = of_train.with_statistics_of(encoder(test, train))
        return of_train.encode(train), of_test.encode(test)

    def _target(self, table: pd.DataFrame) -> NDArray[Any]:
        if self.rescaled is not None:
            return self.rescaled.standardised(table)
        if self.target_is_numeric:
            return numbers(table[self.target])
        return table[self.target].astype(object).to_numpy(dtype=object)

    def _score(
        self,
        features: Floats,
        targets: NDArray[Any],
        test_features: Floats,
        test_targets: NDArray[Any],
        n_draws: int,
    ) -> _Scored:
        if not self.is_classification:
            fitted = _fit(clone(self.model), features, targets)
            guessed = np.full(len(test_targets), targets.mean())
            score = partial(_regression_score, self.unit)
            predicted = fitted.predict(test_features)
        else:
            # Labels are compared by equality and ordered by name, whatever their types.
            labels = pd.Index(sorted({*targets, *test_targets}, key=str), dtype=object)
            targets, test_targets = labels.get_indexer(targets), labels.get_indexer(test_targets)
            # A model needs two classes to learn from; with one there is one answer.
            one_class = len(np.unique(targets)) == 1
            model = DummyClassifier() if one_class else clone(self.model)
            predicted = _fit(model, features, targets).predict(test_features)
            guessed = np.full(len(test_targets), np.bincount(targets).argmax())
            score = partial(_classification_score, len(labels))
        rng = np.random.default_rng(self.seed)
        n = len(test_targets)
        # The same seed for every setting: settings that test on the same rows are drawn together.
        draws = [
            score(test_targets[rows], predicted[rows])
            for rows in (rng.integers(n, size=n) for _ in range(n_draws))
        ]
        return _Scored(
            values=score(test_targets, predicted),
            draws=np.array(draws),
            naive=score(test_targets, guessed),
        )


def _fit(model: BaseEstimator, features: Floats, targets: NDArray[Any]) -> Any:
    """Fit a model, without scikit-learn's warning, one per tree, of labels that occur once."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        return model.fit(features, targets)


def _classification_score(n_labels: int, truth: Integers, predicted: Integers) -> Floats:
    """Accuracy and macro-F1 (over the labels that occur, as scikit-learn does) of label codes."""
    hits = np.bincount(truth[truth == predicted], minlength=n_labels)
    either = np.bincount(truth, minlength=n_labels) + np.bincount(predicted, minlength=n_labels)
    occurs = either > 0
    f1 = 2.0 * hits[occurs] / either[occurs]
    return np.array([hits.sum() / len(truth), f1.mean()])


def _regression_score(unit: float, truth: Floats, predicted: Floats) -> Floats:
    """R² and the mean absolute error in `unit`."""
    residual = ((truth - predicted) ** 2).mean()
    spread = truth.var()
    # A draw of equal targets has no R²; by scikit-learn's convention it is 1 if all are hit.
    r2 = 1.0 - residual / spread if spread > 0 else float(residual == 0)
    return np.array([r2, np.abs(truth - predicted).mean() / unit])


def _results(
    scores: dict[str, _Scored],
    baseline: dict[str, _Scored],
    is_classification: bool,
    notes: tuple[str, ...],
) -> MetricResults:
    ranges = {"r2": (-np.inf, 1.0), "mean_absolute_error": (0.0, np.inf)}
    if is_classification:
        ranges = {"accuracy": (0.0, 1.0), "macro_f1": (0.0, 1.0)}
    reference = scores["TRTR"].values
    rows = []
    for setting, scored in scores.items():
        for k, (name, span) in enumerate(ranges.items()):
            value, deviation = float(scored.values[k]), float(scored.draws[:, k].std(ddof=1))
            interval = around(value, deviation, *span)
            reading = Reading(value, interval, float(reference[k]), float(scored.naive[k]))
            row: dict[str, object] = {"setting": setting, "score": name, **reading.row()}
            rows.append(row | {"difference": value - float(reference[k])})
            if setting == "TSTR" and k == 0:
                tstr = reading
    total = float(_total(scores, "values"))
    deviation = float(_total(scores, "draws").std(ddof=1))
    interval = around(total, deviation, 0.0, np.inf)
    difference = Reading(total, interval, float(_total(baseline, "values")), None)
    parts = pd.DataFrame(rows)
    return MetricResults(
        MetricResult(
            metric,
            **reading._asdict(),
            interval_method=f"{BOOTSTRAP} of test rows",
            parts=parts,
            notes=notes,
        )
        for metric, reading in ((TSTR, tstr), (TOTAL_DIFFERENCE, difference))
    )


def _total(scores: dict[str, _Scored], attribute: str) -> Floats:
    """Sum of |score - TRTR's score| over three settings and two scores."""
    reference = getattr(scores["TRTR"], attribute)
    return sum(
        (
            np.abs(getattr(scores[setting], attribute) - reference).sum(axis=-1)
            for setting in ("TSTS", "TRTS", "TSTR")
        ),
        start=np.zeros(()),
    )


def not_applicable(because: str) -> MetricResults:
    """Return both results without values; `because` completes "not applicable, because ..."."""
    return MetricResults([TSTR.not_applicable(because), TOTAL_DIFFERENCE.not_applicable(because)])


def _forest(protocol: Protocol, is_classification: bool, random_state: int) -> BaseEstimator:
    """Return the paper's forest under its protocol, else one of full depth."""
    options: dict[str, Any] = {"n_estimators": 100, "random_state": random_state % 2**32}
    if protocol == "paper":
        options |= {"max_depth": 3, "max_features": 1.0}
    else:
        options |= {"min_samples_leaf": 2, "max_features": "sqrt"}
    return (RandomForestClassifier if is_classification else RandomForestRegressor)(**options)


def _rescaled(
    tables: list[pd.DataFrame], target: Hashable, notes: list[str]
) -> NumericColumn | None:
    """Return how to standardise a target whose squares would overflow or vanish, or None."""
    columns = [table[target] for table in tables]
    largest = max(float(np.abs(numbers(column)).max()) for column in columns)
    with np.errstate(over="ignore"):
        spread = float(numbers(columns[0]).std())
    if largest < LARGEST_TARGET and spread > 1 / LARGEST_TARGET:
        return None
    return numeric_column(columns[0], columns[1:], 0, notes)
