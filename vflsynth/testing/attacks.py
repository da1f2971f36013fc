"""Laws of what audits attack with: statistics of tables, and adversaries that learn from them."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pandas as pd

from vflsynth.adversary import Adversary, Statistic
from vflsynth.adversary.encoding import Booleans, Floats
from vflsynth.adversary.intervals import auc
from vflsynth.exceptions import ColumnMismatchError
from vflsynth.testing.laws import (
    Case,
    Check,
    checks_of,
    global_random_state_left_alone,
    refused,
    require,
    same,
    same_table,
    zoo,
)
from vflsynth.testing.metrics import NASTY_LABELS, NASTY_NUMBERS, nasty_table


class StatisticCase(Case[Statistic]):
    """A statistic whose laws are checked."""

    def __str__(self) -> str:
        return f"{type(self.value).__name__} ({self.value.name!r})"

    def of(self, table: pd.DataFrame, known: pd.DataFrame) -> Floats:
        """Describe a table to who has seen another one, whose first record is asked about."""
        return self.value.fit(known).measure(table, known.head(1))


class AdversaryCase(Case[Adversary]):
    """An adversary whose laws are checked."""

    def __str__(self) -> str:
        return f"{type(self.value).__name__} ({self.value.name!r})"

    def learned(self, shift: float, seed: int = 0) -> Floats:
        """Teach it of worlds so far apart, and return its scores of the same models."""
        features, is_member = worlds(shift, seed)
        return self.value.fit(features, is_member).score(features)


def worlds(shift: float, seed: int = 0) -> tuple[Floats, Booleans]:
    """Return six statistics of 160 models, those of half of them shifted by so much."""
    is_member = np.repeat([True, False], 80)
    noise = np.random.default_rng(seed).normal(size=(160, 6))
    return noise + shift * is_member[:, None], is_member


def mixed_table() -> pd.DataFrame:
    """Numbers, labels, truth values, times, with gaps in some: 61 records."""
    tables = [table.sort_index() for table in zoo().values()]
    return pd.concat(tables, axis=1).reset_index(drop=True).rename(columns=str)


def every_table_has_as_many_finite_numbers(case: StatisticCase) -> None:
    """However few its rows are, and also if they are all alike."""
    known = mixed_table()
    tables = [known, known.tail(2), known.head(1), known.iloc[[3] * 9], pd.concat([known] * 4)]
    shapes = [case.of(table.reset_index(drop=True), known).shape for table in tables]
    same({*shapes}, {shapes[0]}, "the set of shapes")
    same(len(shapes[0]), 1, "the number of dimensions")


def order_and_index_of_rows_mean_nothing(case: StatisticCase) -> None:
    """Nor does the order of columns."""
    known = mixed_table()
    odd = known.sample(frac=1, random_state=0)[known.columns[::-1]]
    found, expected = case.of(odd.set_index(pd.Index([7] * 61)), known), case.of(known, known)
    require(np.allclose(found, expected, atol=1e-8), f"{expected} becomes {found}")


def fitting_leaves_it_and_the_tables_as_they_were(case: StatisticCase) -> None:
    """A fitted copy knows its table, whatever the statistic is fitted to afterwards."""
    known = mixed_table()
    fitted = case.value.fit(known)
    before = fitted.measure(known, known.head(1))
    case.value.fit(known[["bool", "float64"]])
    again = fitted.measure(known, known.head(1))
    require(np.array_equal(before, again), f"{before} becomes {again} once it is fitted anew")
    same_table(known, mixed_table(), "a table was changed in place")


def nothing_is_drawn(case: StatisticCase) -> None:
    """A table has one description."""
    known = mixed_table()
    with global_random_state_left_alone():
        found = case.of(known, known)
    require(np.array_equal(found, case.of(known, known)), "the same table is described otherwise")


def a_column_that_is_not_there_is_refused_by_name(case: StatisticCase) -> None:
    """A table of other columns is none of the model's."""
    known = mixed_table()
    with refused(ColumnMismatchError, "a table without 'object'", "'object'"):
        case.of(known.drop(columns="object"), known)


def odd_columns_give_finite_numbers(case: StatisticCase) -> None:
    """Constant, missing, huge, tiny and infinite ones, on either side."""
    tables = [
        nasty_table(n, [number] * 3, [label] * 3)
        for n, number, label in zip((25, 7) * 6, NASTY_NUMBERS, [*NASTY_LABELS] * 2)
    ]
    usual = nasty_table(60, ["ordinary"] * 3, ["ordinary"] * 3)
    for odd in tables:
        for table, known in ((odd, usual), (usual, odd)):
            try:
                require(np.isfinite(case.of(table, known)).all(), "not finite")
            except Exception as error:
                raise AssertionError(f"{error!r} for\n{table}\nto who knows\n{known}") from error


def a_shift_is_found(case: AdversaryCase) -> None:
    """In models that it has not learned from, and by its own account of those that it has."""
    case.learned(1.0)
    features, is_member = worlds(1.0, seed=1)
    found = auc(case.value.score(features), is_member)
    require(found > 0.9, f"the AUC on other models is {found:.3f}")
    own = auc(case.value.training_scores, is_member)
    require(own > 0.8, f"the AUC of its training scores is {own:.3f}")


def training_scores_are_honest(case: AdversaryCase) -> None:
    """Those of a classifier that saw the labels would be nearly perfect on noise."""
    case.learned(0.0)
    found = auc(case.value.training_scores, worlds(0.0)[1])
    require(found < 0.65, f"of noise the AUC of its training scores is {found:.3f}")


def guesses_turn_at_the_boundary(case: AdversaryCase) -> None:
    """Where worlds are far apart, few guesses are wrong."""
    right = (case.learned(3.0) >= case.value.boundary) == worlds(3.0)[1]
    require(right.mean() > 0.95, f"{right.mean():.0%} of the guesses are right")


def models_are_scored_one_by_one(case: AdversaryCase) -> None:
    """Whoever ranks the models of a test among each other knows how many were members."""
    found = case.learned(0.5)
    alone = np.concatenate([case.value.score(row[None]) for row in worlds(0.5)[0]])
    require(np.allclose(found, alone, atol=1e-9), "a model has another score when it is alone")


def the_same_models_teach_the_same(case: AdversaryCase) -> None:
    """And what they are described by is left as it was."""
    features, is_member = worlds(0.5)
    given = deepcopy((features, is_member))
    with global_random_state_left_alone():
        first = case.value.fit(features, is_member).score(features)
    require(
        np.array_equal(first, case.learned(0.5)), "it learns something else when it is repeated"
    )
    left = all(map(np.array_equal, (features, is_member), given))
    require(left, "what it was given was changed in place")


def statistics_that_say_nothing_or_all_are_no_error(case: AdversaryCase) -> None:
    """Constant ones, and one that separates the worlds."""
    features, is_member = np.zeros((40, 3)), np.repeat([True, False], 20)
    require(np.isfinite(case.value.fit(features, is_member).score(features)).all(), "not finite")
    features[:20, 0] = 1.0
    found = auc(case.value.fit(features, is_member).score(features), is_member)
    require(found == 1.0, f"the AUC is {found:.3f} where a statistic tells the worlds apart")


def statistic_checks(statistic: Statistic) -> list[Check]:
    """Return one check for each law of a statistic.

    Examples
    --------
    >>> from vflsynth.adversary import Naive
    >>> for check in statistic_checks(Naive()):
    ...     check()
    """
    return checks_of(StatisticCase(statistic))


def adversary_checks(adversary: Adversary) -> list[Check]:
    """Return one check for each law of an adversary.

    Examples
    --------
    >>> from vflsynth.adversary import RegularisedLogistic
    >>> for check in adversary_checks(RegularisedLogistic()):
    ...     check()
    """
    return checks_of(AdversaryCase(adversary))
