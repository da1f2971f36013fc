"""What the three questions of the European data protection authorities found, with control groups.

Opinion 05/2014 of the Article 29 Working Party (WP216) asks of anonymised data whether records can
be singled out, linked, and inferred. Each question is answered by an attack that uses the synthetic
table only. It is made on records that the generator was trained on and on control records of the
same population that it was not: whatever works on both is what the table says about the population,
and no leak of anybody's record.

The distance to the closest record is not among the answers. It has no attacker: records may be near
since the population is dense there, a copy of half a record or of a rare combination is far away,
and the share of synthetic records that are nearer to training than to control records stays at one
half for generators that attacks on membership tell apart (arXiv 2505.01524, 2503.04980).
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import numpy as np
import pandas as pd
from scipy.stats import fisher_exact

from vflsynth.adversary.encoding import Attribute, Booleans, Floats
from vflsynth.adversary.intervals import Estimate, binomial_interval, holm
from vflsynth.audit.findings import plain
from vflsynth.audit.settings import check_names, check_values
from vflsynth.evaluation.columns import check_is_table, check_listed, common_columns
from vflsynth.evaluation.tables import typed_table
from vflsynth.exceptions import ColumnMismatchError, PartyDataError
from vflsynth.reporting import Page, render

if TYPE_CHECKING:
    from markupsafe import Markup


@dataclass(frozen=True)
class Disclosure:
    """The answer to one question.

    Parameters
    ----------
    question : {"singling out", "linkability", "attribute inference"}
    column : hashable
        The sensitive column of an inference; None for the other questions.
    attack, control : Estimate
        How often the attack succeeded for training records, and for control records.
    baseline : float
        How often one succeeds without the synthetic records; each question says how.
    p_value : float
        That the attack works no better for training records than for control records, by itself.
    attacker : {"table", "model"}, default="table"
        Whether they hold the synthetic table only, or the model too.
    """

    question: str
    column: Hashable
    attack: Estimate
    control: Estimate
    baseline: float
    p_value: float
    attacker: Literal["table", "model"] = "table"

    @classmethod
    def of_counts(
        cls,
        question: str,
        successes: tuple[int, int],
        trials: tuple[int, int],
        baseline: float,
        confidence: float,
        column: Hashable = None,
        attacker: Literal["table", "model"] = "table",
    ) -> Disclosure:
        """Compare successes for training records and for control records by Fisher's test."""
        attack, control = (
            binomial_interval(k, n, confidence) for k, n in zip(successes, trials, strict=True)
        )
        table = np.array([[k, n - k] for k, n in zip(successes, trials, strict=True)])
        p_value = float(fisher_exact(table, alternative="greater")[1])
        return cls(question, column, attack, control, baseline, p_value, attacker)

    @property
    def excess(self) -> Estimate:
        """How much more often the attack succeeds for training records, with an interval.

        Newcombe's hybrid (1998, method 10), of exact instead of score intervals.
        """
        value = self.attack.value - self.control.value
        below = math.hypot(
            self.attack.value - self.attack.low, self.control.high - self.control.value
        )
        above = math.hypot(
            self.attack.high - self.attack.value, self.control.value - self.control.low
        )
        return Estimate(value, value - below, value + above, self.attack.confidence)

    @property
    def title(self) -> str:
        """The question, and the column that it is about."""
        name = self.question[0].upper() + self.question[1:]
        name = name if self.column is None else f"{name} of {self.column!r}"
        return name if self.attacker == "table" else f"{name} by who holds the model"

    def sentence(self, shown: bool) -> str:
        """Answer in one sentence; `shown` says whether training records fare worse for certain."""
        what = {
            "singling out": "descriptions made from the synthetic table fit exactly one record",
            "linkability": "the parties' halves of a record are linked by a synthetic record",
            "attribute inference": "the value is guessed from the nearest synthetic record",
        }[self.question]
        if self.attacker == "model":
            what = "the value is guessed as what the model calls most probable"
        compared = (
            f"{what} in {self.attack.value:.1%} of attempts for records that were used, in "
            f"{self.control.value:.1%} for others, in {self.baseline:.1%} without the synthetic "
            "table"
        )
        verdict = (
            "having been used exposes a record"
            if shown
            else "not shown to depend on having been used, which is no proof that it never does"
        )
        gap = (
            f"{100 * self.excess.value:.1f} points ({self.excess.confidence:.0%} interval "
            f"{100 * self.excess.low:.1f} to {100 * self.excess.high:.1f})"
        )
        return f"{self.title}: {compared}; difference {gap}: {verdict}."


@dataclass(frozen=True)
class Criteria:
    """Answers to all questions.

    Parameters
    ----------
    answers : tuple of Disclosure
    n_training, n_control : int
        Records of each kind.
    confidence : float
        Of each interval, and of all verdicts at once.
    """

    answers: tuple[Disclosure, ...]
    n_training: int
    n_control: int
    confidence: float

    @cached_property
    def p_values(self) -> list[float]:
        """Of each answer, adjusted for all of them by Holm's method."""
        return holm([answer.p_value for answer in self.answers])

    @property
    def shown(self) -> list[bool]:
        """Whether each attack is shown to work better for training records."""
        return [p <= round(1.0 - self.confidence, 12) for p in self.p_values]

    @property
    def exposed(self) -> list[str]:
        """What records are exposed to by having been used, as far as it is shown."""
        return [
            answer.title[0].lower() + answer.title[1:]
            for answer, shown in zip(self.answers, self.shown, strict=True)
            if shown
        ]

    @property
    def sentences(self) -> list[str]:
        """One sentence per question."""
        return [a.sentence(shown) for a, shown in zip(self.answers, self.shown, strict=True)]

    def section(self) -> Markup:
        """Return the answers as a piece of HTML, one card per question."""
        cards = [
            {
                "title": answer.title,
                "level": "far" if shown else "unknown",
                "answer": "Exposed" if shown else "Not shown to be exposed",
                "text": sentence,
            }
            for answer, shown, sentence in zip(
                self.answers, self.shown, self.sentences, strict=True
            )
        ]
        return render("vflsynth.audit", "criteria.html", cards=cards)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per question, with intervals and adjusted p-values."""
        rows = []
        for answer, p_value, shown in zip(self.answers, self.p_values, self.shown, strict=True):
            row: dict[str, Any] = {"question": answer.question, "column": answer.column}
            row["attacker"] = answer.attacker
            for name in ("attack", "control", "excess"):
                found: Estimate = getattr(answer, name)
                row |= {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
            rows.append(row | {"baseline": answer.baseline, "p_value": p_value, "shown": shown})
        columns = pd.Series([answer.column for answer in self.answers], dtype=object)
        return pd.DataFrame(rows).assign(column=columns)

    def to_list(self) -> list[dict[str, Any]]:
        """Return one row of `to_frame` per question, with its sentence, as JSON values."""
        return [
            {str(name): plain(value) for name, value in answer.items()} | {"conclusion": sentence}
            for answer, sentence in zip(
                self.to_frame().to_dict("records"), self.sentences, strict=True
            )
        ]

    def to_json(self) -> str:
        """Return all answers as JSON, which a release takes as it takes an audit's."""
        return json.dumps({"criteria": self.to_list()}, indent=1, ensure_ascii=False)

    def page(self, title: str = "Singling out, linkability and inference") -> Page:
        """Return the answers as a self-contained HTML page, with ``save(path)``."""
        headline = f"Having been used exposes records to {', '.join(self.exposed)}."
        if not self.exposed:
            headline = "No record is shown to be exposed by having been used."
        return Page(
            render(
                "vflsynth.audit",
                "page.html",
                title=title,
                facts=(f"{self.n_training:,} records used", f"{self.n_control:,} others"),
                headline=headline,
                section=self.section(),
            )
        )

    def __str__(self) -> str:
        return "\n".join(self.sentences)


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
        given_tables: tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame],
        options: QuestionOptions,
    ) -> Compared:
        """Check tables (real, synthetic, control) and parameters."""
        check_names(owner, options, QuestionOptions)
        tables = dict(zip(("real", "synthetic", "control"), map(typed_table, given_tables)))
        for kind, table in tables.items():
            check_is_table(table, kind)
        given = cls(**tables, **options)
        check_listed(owner, categorical=given.categorical)
        shared = ("n_attacks", "confidence", "random_state")
        check_values(owner, **{name: getattr(given, name) for name in shared})
        names = given.synthetic.columns
        kept: dict[str, Any] = {}
        for kind, table in tables.items():
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
        for kind in ("synthetic", "control"):  # text and numbers are never equal
            common_columns(kept["real"], kept[kind], table=kind)
        for name in given.categorical:
            if name not in names:
                raise PartyDataError(
                    "named in categorical= and in no table",
                    fix="name a column of the tables",
                    column=name,
                )
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
