"""Rules that rows keep, declared or found: how many break them, and what keeping them costs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Unpack

import numpy as np
import numpy.typing as npt
import pandas as pd

from vflsynth.contract import Rule, as_rules, discover, judged
from vflsynth.contract.rules import in_order
from vflsynth.evaluation.columns import TableEncoder
from vflsynth.evaluation.field import column_shapes, pair_trends
from vflsynth.evaluation.intervals import wilson
from vflsynth.evaluation.metric import Metric, MetricResult
from vflsynth.evaluation.tables import Compared, TableMetric, Tables
from vflsynth.exceptions import ContractError, ParameterError

RULES = Metric(
    name="rule_violations",
    title="Rows that break a rule",
    direction="baseline",
    measures="The share of synthetic rows that break at least one rule.",
    baseline="the share of real rows that break one",
)

COST = Metric(
    name="rule_cost",
    title="What rules cost",
    direction="lower",
    minimum=-1.0,
    measures="Shape, the likeness of single columns, of rows as the model draws them, less that of "
    "those rows once all rules are kept; below 0 rules make columns more alike.",
    baseline="no change",
)


STRUCTURE = Metric(
    name="exact_structure",
    title="Exact relations that are kept",
    direction="higher",
    measures="Of the relations between up to three columns that hold in all real rows, such as a "
    "total and its parts, the one that fewest synthetic rows keep: the share that keep it.",
    baseline="relations of one half of the real rows, in the other half",
    naive="columns that have nothing to do with each other",
)

NOTHING_EXACT = "no exact relation was found"


def exact_structure(
    real: pd.DataFrame, synthetic: pd.DataFrame, **known: Unpack[Compared]
) -> MetricResult:
    """Find what is exact in the real table, and count the synthetic rows that keep it.

    Parameters
    ----------
    real, synthetic, **known
        As in `evaluate`.

    Returns
    -------
    MetricResult
        ``parts`` has one row per relation, see `vflsynth.contract.discover`, the worst first. Where
        nothing is exact the value is 1 whatever the synthetic rows are, and so is the naive mark.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> parts = np.random.default_rng(0).integers(1, 99, (2, 400))
    >>> real = pd.DataFrame({"net": parts[0], "tax": parts[1], "total": parts.sum(axis=0)})
    >>> synthetic = real.assign(total=real["total"] + (real.index % 4 == 0))
    >>> float(exact_structure(real, synthetic))
    0.75
    """
    return structure_kept(Tables(real, synthetic, **known))


def structure_kept(tables: Tables) -> MetricResult:
    """Compute `exact_structure`, which see."""
    names, rng = list(tables.columns or ()), tables.generator("exact structure")
    real, synthetic = tables.real[names], tables.synthetic[names]
    rules, notes = _exact_rules(real), []
    parts = []
    for rule in rules:
        try:
            parts.append({"rule": rule.title, "value": _share(rule, synthetic), "real": 1.0})
        except ContractError:
            notes.append(f"{rule.title}: the synthetic columns are of other types")
    if not parts:
        notes.append(f"{NOTHING_EXACT}: the value is 1 whatever the synthetic rows are")
        parts = [{"rule": NOTHING_EXACT, "value": 1.0, "real": 1.0}]
    shuffled = real.apply(lambda column: column.array.take(rng.permutation(len(real))))
    halves = tables.halves("exact structure") or (real, real)
    table = pd.DataFrame(parts).sort_values("value", kind="stable", ignore_index=True)
    value = float(table["value"].iloc[0])
    return MetricResult(
        STRUCTURE,
        value,
        interval=wilson(round(value * len(synthetic)), len(synthetic)),
        baseline=_worst(_exact_rules(halves[0][names]), halves[1][names]),
        naive=_worst(rules, shuffled),
        interval_method="95 %, Wilson over synthetic rows",
        parts=table,
        notes=tuple(notes),
    )


def _exact_rules(table: pd.DataFrame) -> list[Rule]:
    found = (finding for finding in discover(table) if finding.judges_rows)
    return [finding.rule.learned(table, 1) for finding in found]


def _worst(rules: Sequence[Rule], table: pd.DataFrame) -> float:
    return min((_share(rule, table) for rule in rules), default=1.0)


def _share(rule: Rule, table: pd.DataFrame) -> float:
    kept = np.asarray(rule.keeps(table), np.bool_)
    return float(kept.mean()) if len(kept) else 1.0


def rule_violations(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    rules: Mapping[str, Callable[[pd.DataFrame], Any]] | Sequence[Rule | str],
) -> MetricResult:
    """Count synthetic rows that cannot be.

    Parameters
    ----------
    real, synthetic : DataFrame
    rules : sequence of Rule or str, or mapping of str to callable
        Rules of a contract, such as ``synthesizer.rules()`` or texts like ``"start <= end"``; or
        functions of a table that say which rows keep the rule, booleans of shape (row,).

    Returns
    -------
    MetricResult
        ``parts`` has one row per rule.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"a": [1, 2, 3, 4], "b": [2, 1, 4, 5]})
    >>> float(rule_violations(table.iloc[2:], table, ["a < b"]))
    0.25
    """
    if not isinstance(rules, Mapping):
        rules = {rule.title: rule.keeps for rule in as_rules(rules)}
    if not rules:
        return RULES.not_applicable("no rule was given")
    ours, theirs = (  # (rule, row)
        np.stack([~_kept(name, keeps(frame), len(frame)) for name, keeps in rules.items()])
        for frame in (real, synthetic)
    )
    parts = {"rule": [*rules], "value": theirs.mean(axis=1), "real": ours.mean(axis=1)}
    return MetricResult(
        RULES,
        float(theirs.any(axis=0).mean()),
        baseline=float(ours.any(axis=0).mean()),
        interval_method="none: a count",
        parts=pd.DataFrame(parts),
    )


def _kept(name: str, said: Any, n: int) -> npt.NDArray[np.bool_]:
    """Return which rows keep a rule, from what it says: one truth value for each."""
    rows = pd.Series(said)
    if len(rows) != n or not pd.api.types.is_bool_dtype(rows) or rows.hasnans:
        raise ParameterError(
            f"rule {name!r} must say of each of {n} rows whether it is kept, by booleans, and said "
            f"{len(rows)} values of type {rows.dtype}{', some missing' if rows.hasnans else ''}"
        )
    return rows.to_numpy(dtype=bool)


@dataclass(frozen=True, eq=False)
class RuleViolations(TableMetric):
    """See `rule_violations`.

    Parameters
    ----------
    rules : sequence of Rule or str
    """

    name: ClassVar[str] = "rules"

    rules: Sequence[Rule | str]

    def compute(self, tables: Tables) -> MetricResult:
        """Count rows that break rules."""
        return rule_violations(tables.real, tables.synthetic, self.rules)


@dataclass(frozen=True, eq=False)
class RuleCost(TableMetric):
    """See `rule_cost`.

    Parameters
    ----------
    rules : sequence of Rule or str
    drawn : DataFrame
        Rows of all parties as the model draws them, such as `sample_before_rules` returns.
    """

    name: ClassVar[str] = "rule_costs"

    rules: Sequence[Rule | str]
    drawn: pd.DataFrame

    def compute(self, tables: Tables) -> MetricResult:
        """Compare rows before and after rules."""
        return rule_cost(
            tables.real,
            self.drawn,
            self.rules,
            columns=tables.columns,
            categorical=tables.categorical,
        )


def rule_cost(
    real: pd.DataFrame,
    drawn: pd.DataFrame,
    rules: Sequence[Rule | str],
    *,
    columns: Sequence[Any] | None = None,
    categorical: Collection[Hashable] = (),
) -> MetricResult:
    """Compare rows as a model draws them with those rows once rules are kept.

    Parameters
    ----------
    real : DataFrame
    drawn : DataFrame
        Before any rule computed a column or left out a row.
    rules : sequence of Rule or str
    columns, categorical
        As in `evaluate`.

    Returns
    -------
    MetricResult
        The Shape that all rules together cost. ``parts`` has a row for each rule kept alone, and
        one for all: the share of drawn rows that break it, of those that are changed because it
        computes a column, of those that are left out; and Shape and Trend after, less before.

    Notes
    -----
    Rules that hold by how columns are modelled (differences, combinations) break no drawn row and
    cost nothing here: what the model loses by them is in its likeness to the real table.
    """
    given = as_rules(rules)
    if not given:
        return COST.not_applicable("no rule was given")
    if not len(drawn):
        return COST.not_applicable("no row was drawn")
    names = [c for c in columns or real.columns if c in drawn.columns and c in real.columns]

    def likeness(table: pd.DataFrame) -> tuple[float, float]:
        encoder = TableEncoder(real, table, columns=names, categorical=categorical)
        found = [parts(encoder, real, table) for parts in (column_shapes, pair_trends)]
        shape, trend = (float(each["value"].mean()) for each in found)
        return shape, trend

    before = likeness(drawn)
    parts: list[dict[str, Any]] = []
    for title, own in [*((r.title, [r]) for r in given), ("all rules", list(given))]:
        broken = ~np.logical_and.reduce([np.asarray(r.keeps(drawn), np.bool_) for r in own])
        found, kept = judged({"drawn": drawn}, in_order(own))
        table, rows = found["drawn"], kept.all(axis=0)
        now, was = (t.astype(object).where(t.notna(), None) for t in (table, drawn))
        changed = ~((now == was) | (table.isna() & drawn.isna())).to_numpy().all(axis=1)
        after = likeness(table.take(np.flatnonzero(rows))) if rows.any() else (np.nan, np.nan)
        parts.append(
            {
                "rule": title,
                "broken": float(broken.mean()),
                "changed": float(changed.mean()),
                "left_out": float(1.0 - rows.mean()),
                "shape_change": after[0] - before[0],
                "trend_change": after[1] - before[1],
            }
        )
    if np.isnan(parts[-1]["shape_change"]):
        return COST.not_applicable("no drawn row keeps all rules")
    return MetricResult(
        COST,
        -float(parts[-1]["shape_change"]),
        baseline=0.0,
        interval_method="none: the same draws before and after",
        parts=pd.DataFrame(parts),
    )
