"""Tables that the three questions compare: real, synthetic and control records."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict

import numpy as np
import pandas as pd

from vflsynth._validation import Number, Rule, check_parameters
from vflsynth.adversary.encoding import Attribute, Booleans, Floats
from vflsynth.audit.criteria import Disclosure
from vflsynth.exceptions import ColumnMismatchError, PartyDataError

_LEAST_RECORDS = 20


class QuestionOptions(TypedDict, total=False):
    """Keywords of all three questions, see `singling_out`."""

    categorical: Collection[Hashable]
    n_attacks: int
    confidence: float
    random_state: int


@dataclass(frozen=True, eq=False)
class Compared:
    """Training records, control records, and what was made of the former, with its columns."""

    real: pd.DataFrame
    synthetic: pd.DataFrame
    control: pd.DataFrame
    categorical: Collection[Hashable] = ()
    n_attacks: int = 1000
    confidence: float = 0.95
    random_state: int = 0

    @classmethod
    def of(
        cls,
        owner: str,
        tables: tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame],
        options: QuestionOptions,
        **own: Any,
    ) -> Compared:
        """Check tables (real, synthetic, control) and parameters, the question's own ones too."""
        given = cls(*tables, **options)
        rules: dict[str, Rule] = {
            "n_attacks": Number(10, whole=True),
            "confidence": Number(0.5, 1, closed=(True, False)),
            "random_state": Number(0, whole=True),
            "n_neighbours": Number(1, whole=True),
            "tolerance": Number(0),
        }
        values = vars(given) | own
        check_parameters(owner, values, {n: rule for n, rule in rules.items() if n in values})
        names = given.synthetic.columns
        kept: dict[str, Any] = {}
        for kind, table in zip(("real", "synthetic", "control"), tables):
            missing = [name for name in names if name not in table.columns]
            if missing:
                raise ColumnMismatchError(
                    f"absent from the {kind} table",
                    fix="pass tables of one kind",
                    column=missing[0],
                )
            if len(table) < _LEAST_RECORDS:
                raise PartyDataError(
                    f"the {kind} table has {len(table)} records, too few to answer anything",
                    fix=f"give at least {_LEAST_RECORDS}",
                )
            kept[kind] = table[names].reset_index(drop=True)
        return replace(given, **kept)

    def generator(self, purpose: int) -> np.random.Generator:
        """Return a generator of a question's own."""
        return np.random.default_rng([self.random_state, purpose])

    def asked(self, n: int, rng: np.random.Generator) -> list[pd.DataFrame]:
        """Return some random records of each kind, training ones first."""
        return [table.iloc[rng.permutation(len(table))[:n]] for table in (self.real, self.control)]

    def answer(
        self, question: str, successes: Sequence[Booleans], baseline: float, **more: Any
    ) -> Disclosure:
        """Compare which attacks succeeded for training and for control records."""
        hits = int(successes[0].sum()), int(successes[1].sum())
        trials = len(successes[0]), len(successes[1])
        return Disclosure.of_counts(question, hits, trials, baseline, self.confidence, **more)


def values_of(attribute: Attribute, frame: pd.DataFrame) -> Floats:
    """Numbers, or positions of labels, shape (row,); NaN where a number is missing."""
    if attribute.levels is None:
        return attribute.values(frame)
    return attribute.codes(frame).astype(np.float64)


def among(categorical: Collection[Hashable], columns: Sequence[Hashable]) -> list[Hashable]:
    """Return those of the columns that are to be read as labels."""
    return [name for name in categorical if name in columns]
